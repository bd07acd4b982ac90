"""Every command from fifty milliseconds away: a proxy that delays what passes, before both stores."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

from bson import Int64

from tests.bench.letters import load_jobs, load_letters
from tests.bench.place import BenchFailed, Claim, Command, Place, say
from tests.builders import NOON
from tests.dead_letters import DEAD, RETRY

WORK = "20,000 letters and 300 jobs, 50 ms a round trip to both stores"
ROUND_TRIP_S = 0.05
LETTERS, JOBS = 20_000, 300
REPLY_SIZE = 65_536


@dataclass
class Distance:
    """A listening proxy; `trips` counts the requests that followed a reply."""

    uri: str
    trips: int = 0


@contextmanager
def distant(uri: str, round_trip_s: float = ROUND_TRIP_S) -> Iterator[Distance]:
    """A proxy in front of the server at `uri` that delays each direction by half a round trip."""
    parts = urlsplit(uri)
    listener = socket.create_server(("127.0.0.1", 0))
    netloc = f"127.0.0.1:{listener.getsockname()[1]}"
    found = Distance(urlunsplit(parts._replace(netloc=netloc)))
    target = (parts.hostname or "127.0.0.1", parts.port or 0)

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(
                target=serve, args=(near, target, round_trip_s / 2, found), daemon=True
            ).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield found
    finally:
        listener.close()


def serve(near: socket.socket, target: tuple[str, int], delay_s: float, found: Distance) -> None:
    """Pass a connection on, both ways at once; opening it takes a round trip too."""
    time.sleep(2 * delay_s)
    far = socket.create_connection(target)
    answered = threading.Event()
    answered.set()

    def asked() -> None:
        if answered.is_set():
            answered.clear()
            found.trips += 1

    ways: list[tuple[socket.socket, socket.socket, Callable[[], None]]] = [
        (near, far, asked),
        (far, near, answered.set),
    ]
    for source, sink, seen in ways:
        source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        late: queue.Queue[tuple[float, bytes]] = queue.Queue()
        threading.Thread(target=deliver, args=(late, sink), daemon=True).start()
        threading.Thread(target=receive, args=(source, late, delay_s, seen), daemon=True).start()


def receive(
    source: socket.socket,
    late: "queue.Queue[tuple[float, bytes]]",
    delay_s: float,
    seen: Callable[[], None],
) -> None:
    """Note when each piece is to arrive."""
    data = b"-"
    while data:
        try:
            data = source.recv(REPLY_SIZE)
        except OSError:
            data = b""
        if data:
            seen()
        late.put((time.monotonic() + delay_s, data))


def deliver(late: "queue.Queue[tuple[float, bytes]]", sink: socket.socket) -> None:
    """Let each piece arrive in its time."""
    while True:
        at, data = late.get()
        time.sleep(max(0.0, at - time.monotonic()))
        try:
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)
        except OSError:
            return


def run(place: Place) -> Iterator[Claim]:
    """The contract's figures, each with the round trips that it took."""
    name = load_jobs(place, LETTERS)
    yield from (
        measured(place, name, what, limit, words, moved)
        for what, limit, words, moved in (
            ("requeue --all of 20,000", 4.0, ("dead", "requeue", "--all"), LETTERS),
            ("one id among 20,000", 1.5, ("dead", "requeue", "job-010000"), 1),
            ("a filtered requeue of 207", 3.0, ("dead", "requeue", "--account", "acct-7"), 207),
        )
    )  # fmt: skip
    yield reclaims(place, name)  # these change the jobs
    yield worker(place, name)


def far_away(command: Command, mongo: Distance, redis: Distance) -> Command:
    """The command with both stores behind the proxies."""
    uris = {"LEDGERCTL_MONGO_URI": mongo.uri, "LEDGERCTL_REDIS_URL": redis.uri}
    return replace(command, environment={**command.environment, **uris})


def timed(place: Place, command: Command) -> tuple[float, int]:
    """How long a command takes from far away, and its round trips."""
    with distant(place.mongod.uri) as mongo, distant(place.valkey.uri) as redis:
        best = place.run(far_away(command, mongo, redis))
        say(f"{best.seconds:.2f} s, round trips: MongoDB {mongo.trips}, Redis {redis.trips}")
        return best.seconds, mongo.trips + redis.trips


def measured(
    place: Place, name: str, what: str, limit: float, words: tuple[str, ...], moved: int
) -> Claim:
    """One change of dead letters."""
    figures = []
    for _ in range(place.size.rounds):
        load_jobs(place, LETTERS)
        load_letters(place, LETTERS)
        command = place.ours(*words, "--yes", "-o", "json", database=name, queues=True)
        figures.append(timed(place, command))
        if place.redis.llen(RETRY) != moved or place.redis.llen(DEAD) != LETTERS - moved:
            raise BenchFailed(f"{what}: {place.redis.llen(RETRY)} were moved")
    seconds, trips = min(figures)
    return Claim(what, seconds, limit, unit="s", detail=f"{trips} round trips")


def reclaims(place: Place, name: str) -> Claim:
    """A batch of reclaims."""
    database = place.database(name)
    figures = []
    for turn in range(place.size.rounds):
        first = turn * JOBS
        ids = [f"job-{number:06d}" for number in range(first, first + JOBS)]
        refund(place, name, ids)
        file = place.directory / "jobs.txt"
        file.write_text("\n".join(ids), encoding="utf-8")
        words = ("job", "reclaim", "--from-file", str(file), "--yes", "-o", "json")
        figures.append(timed(place, place.ours(*words, database=name)))
        done = database.jobs.count_documents({"_id": {"$in": ids}, "is_reclaimed": True})
        if done != JOBS:
            raise BenchFailed(f"{done} of {JOBS} jobs were reclaimed")
    seconds, trips = min(figures)
    return Claim("a batch of 300 reclaims", seconds, 2.0, unit="s", detail=f"{trips} round trips")


def refund(place: Place, name: str, ids: list[str]) -> None:
    """Charged and refunded jobs with their rows."""
    database = place.database(name)
    database.jobs.update_many(
        {"_id": {"$in": ids}}, {"$set": {"is_refunded": True, "is_reclaimed": False}}
    )
    database.ledger.delete_many({"job_id": {"$in": ids}})
    database.ledger.insert_many(
        {
            "_id": f"{job}:{kind}",
            "job_id": job,
            "account_id": f"acct-{int(job[4:]) % 97}",
            "type": kind,
            "amount": Int64(amount),
            "created_at": NOON,
        }
        for job in ids
        for kind, amount in (("charge", -40), ("refund", 40))
    )


def worker(place: Place, name: str) -> Claim:
    """A worker's time for one job: that of twenty less that of none, a job each."""
    jobs = 20
    words = ("queue", "work", "--exec", "true", "-o", "json")
    figures = []
    for _ in range(place.size.rounds):
        load_jobs(place, LETTERS)
        place.redis.flushall()
        empty, _ = timed(place, place.ours(*words, database=name, queues=True))
        refund(place, name, [f"job-{number:06d}" for number in range(jobs)])
        place.redis.rpush(RETRY, *(b'{"job_id":"job-%06d"}' % number for number in range(jobs)))
        seconds, trips = timed(place, place.ours(*words, database=name, queues=True))
        figures.append(((seconds - empty) / jobs, trips))
    seconds, trips = min(figures)
    return Claim("queue work, a job", seconds, 0.25, unit="s", detail=f"{trips} round trips")
