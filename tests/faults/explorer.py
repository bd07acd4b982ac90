"""Every interleaving of a few workers, and of one crash, against a real server.

The product runs as it is: each actor is a thread, and the driver's own command events hold it
before each command until the scheduler lets it go. A schedule is a list of choices: whose next
command is sent, or who dies before sending it.

Two schedules that have shown every actor the same replies are one state: what follows is the same,
and is explored once. `interleavings` counts the paths through the states all the same.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bson import ObjectId
from pymongo import MongoClient, WriteConcern, monitoring

from ledgerctl.stores.connections import Stores
from ledgerctl.stores.mongo import Mongo

HELD = {"find", "aggregate", "insert", "update", "delete", "findAndModify", "commitTransaction"}
WRITES = {"insert", "update", "delete", "findAndModify"}
WAIT_S = 30.0  # a thread that neither asks nor ends by then is a bug of the test
BUSY = {112, 251, 244, 267}  # a transaction was in the way

Action = Callable[[Stores], Any]
Choice = tuple[int, str]  # which actor, and `go` or `die`


class Died(BaseException):
    """The process is gone: nothing it would have done next happens."""


@dataclass(eq=False)
class Actor:
    """One worker: what it does, what it has been told, and the command it wants to send."""

    action: Action
    told: list[str] = field(default_factory=list)
    wants: str | None = None  # the command that it is held before
    collection: str = ""
    in_transaction: bool = False
    wrote_in_transaction: frozenset[str] = frozenset()
    server_session: Any = None  # of its transaction
    met: bool = False  # its last write met somebody else's transaction
    waits_for: int = -1  # then it tries again only after another one has got somewhere
    doomed: bool = False
    done: bool = False
    result: Any = None
    error: BaseException | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Everything that decides what it will do next."""
        return (self.done, self.doomed, self.wants, hash(tuple(self.told)))


class Scheduler(monitoring.CommandListener):
    """Holds each actor's thread before each command; lets one go at a time."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._lock = threading.Condition()
        self._turn: Actor | None = None
        self.moves = 0  # writes and ends of transactions: what a waiting one may wait for

    # called by the driver, in the actor's own thread

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        actor: Actor | None = getattr(self._here, "actor", None)
        if actor is None or event.command_name == "abortTransaction":
            return
        if actor.doomed:
            raise Died
        if event.command_name not in HELD:
            return
        with self._lock:
            actor.wants = event.command_name
            actor.collection = str(event.command.get(event.command_name, ""))
            actor.in_transaction = event.command.get("autocommit") is False
            if actor.in_transaction:
                actor.server_session = event.command["lsid"]
            self._turn = None
            self._lock.notify_all()
            assert self._lock.wait_for(lambda: self._turn is actor, WAIT_S), "never let go"
            actor.wants = None
        if actor.doomed:
            raise Died

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self._heard(event.command_name, digest(event.reply), busy=is_busy(event.reply))

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        failure = event.failure
        self._heard(event.command_name, str(failure.get("code")), busy=failure.get("code") in BUSY)

    def _heard(self, command: str, reply: str, *, busy: bool) -> None:
        actor: Actor | None = getattr(self._here, "actor", None)
        if actor is None:
            return
        if command in {"commitTransaction", "abortTransaction"}:
            actor.wrote_in_transaction = frozenset()
            self.moves += 1
        elif command in WRITES and actor.in_transaction and not busy:
            actor.wrote_in_transaction |= {actor.collection}
        elif command in WRITES and not busy:
            self.moves += 1
        if command in HELD:
            actor.told.append(f"{command} {actor.collection} {reply}")
        actor.met = busy or (actor.met and command == "abortTransaction")
        if actor.met:
            actor.waits_for = self.moves

    # called by the explorer

    def begin(self, actor: Actor, stores: Stores) -> threading.Thread:
        """Start an actor, a process of its own, and return once it is held before a command."""
        own = Stores(stores.settings)
        own.__dict__["mongo"] = stores.mongo

        def run() -> None:
            self._here.actor = actor
            try:
                actor.result = actor.action(own)
            except BaseException as error:  # noqa: BLE001  # a dead or failed worker is a result
                actor.error = error
            with self._lock:
                actor.done = True
                actor.wants = None
                actor.wrote_in_transaction = frozenset()
                self._turn = None
                self._lock.notify_all()

        thread = threading.Thread(target=run, daemon=True)
        with self._lock:
            self._turn = actor
            thread.start()
            assert self._lock.wait_for(lambda: self._turn is None, WAIT_S), "never began"
        return thread

    def let_go(self, actor: Actor) -> None:
        """Send the command that an actor is held before; return when it wants another or is done."""
        with self._lock:
            self._turn = actor
            self._lock.notify_all()
            assert self._lock.wait_for(lambda: self._turn is None, WAIT_S), "never came back"
        if actor.done:
            self.moves += 1

    def may_go(self, actor: Actor, actors: Sequence[Actor]) -> bool:
        """Whether its next command can get anywhere: a locked document only makes it wait."""
        if actor.done or actor.wants is None:
            return False
        if actor.waits_for >= self.moves:
            return False
        if actor.in_transaction or actor.wants not in WRITES:
            return True
        others = [one for one in actors if one is not actor]
        return all(actor.collection not in one.wrote_in_transaction for one in others)


def is_busy(reply: Any) -> bool:
    """Whether a write met somebody else's transaction."""
    return any(error.get("code") in BUSY for error in reply.get("writeErrors", []))


def digest(reply: Any) -> str:
    """What a reply tells its reader; ids that are random say nothing."""
    if "cursor" in reply:
        batch = reply["cursor"].get("firstBatch", [])
        return repr([scrubbed(one) for one in batch])
    errors = [error.get("code") for error in reply.get("writeErrors", [])]
    upserted = bool(reply.get("upserted"))
    return f"{reply.get('n')} {reply.get('nModified')} {upserted} {errors}"


def scrubbed(value: Any) -> Any:
    """A document without what differs from run to run."""
    if isinstance(value, ObjectId):
        return "id"
    if isinstance(value, dict):
        return {key: scrubbed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [scrubbed(one) for one in value]
    return value


class WatchedMongo(Mongo):
    """The product's connection with the scheduler listening, and a clock that stands still."""

    def __init__(self, stores: Stores, scheduler: Scheduler, now: Any) -> None:
        self._scheduler = scheduler
        self._uri = stores.settings.mongo_uri.reveal()
        self._now = now
        super().__init__(stores.settings)
        # No schedule depends on the disk, and a standalone server takes 30 ms to reach it.
        quick = WriteConcern(w="majority" if self.transactions else 1, j=False)
        self.database = self.database.with_options(write_concern=quick)

    def _client(self) -> MongoClient[dict[str, Any]]:
        return MongoClient(self._uri, event_listeners=[self._scheduler], tz_aware=True)

    def now(self) -> Any:
        return self._now


@dataclass
class Explored:
    """What an exploration saw."""

    runs: int = 0
    states: int = 0
    interleavings: int = 0
    wrong: dict[str, int] = field(default_factory=dict)  # what was wrong, in how many runs
    example: list[Choice] = field(default_factory=list)  # a schedule that showed it
    complete: bool = True  # False when the run stopped at its limit

    def line(self) -> str:
        """One line for people."""
        seen = ", ".join(f"{what} in {count}" for what, count in sorted(self.wrong.items()))
        whole = "" if self.complete else " (not all)"
        return (
            f"{self.interleavings} interleavings{whole}, {self.states} states,"
            f" {self.runs} runs: {seen or 'nothing wrong'}"
        )


@dataclass
class Explorer:
    """Explores every schedule of these actions.

    `seed` puts the documents there; `judge` says what is wrong once all are done, or dead: it is
    told whether somebody died, and may heal first.
    """

    stores: Stores
    scheduler: Scheduler
    actions: Sequence[Action]
    seed: Callable[[Stores], None]
    judge: Callable[[Stores, list[Actor], bool], list[str]]
    may_die: bool = True
    runs_max: int = 100_000
    stop_at_first: bool = False

    def explore(self) -> Explored:
        """Every schedule, each state once."""
        found = Explored()
        edges: dict[Any, dict[Choice, Any]] = {}
        pending: list[list[Choice]] = [[]]
        start: Any = None
        while pending:
            if found.runs >= self.runs_max or (found.wrong and self.stop_at_first):
                found.complete = False
                break
            keys = self._run(pending.pop(), edges, pending, found)
            start = keys if start is None else start
        found.states = len(edges)
        found.interleavings = paths(edges, start) if found.complete else 0
        return found

    def _run(
        self,
        prefix: list[Choice],
        edges: dict[Any, dict[Choice, Any]],
        pending: list[list[Choice]],
        found: Explored,
    ) -> Any:
        """One schedule: the prefix, then what was not tried yet; returns the first state's key."""
        found.runs += 1
        self.seed(self.stores)
        self.scheduler.moves = 0
        actors = [Actor(action) for action in self.actions]
        threads = [self.scheduler.begin(actor, self.stores) for actor in actors]
        taken: list[Choice] = []
        before: tuple[Any, Choice] | None = None
        first: Any = None
        while True:
            key = tuple(actor.key for actor in actors)
            first = key if first is None else first
            if before is not None:
                edges[before[0]][before[1]] = key
            if len(taken) >= len(prefix) and key in edges:
                break  # what follows is known
            choices = self._choices(actors)
            if key not in edges:
                edges[key] = {}
                pending.extend([*taken, one] for one in reversed(choices[1:]))
            if not choices:
                self._judge(actors, found, taken)
                break
            choice = prefix[len(taken)] if len(taken) < len(prefix) else choices[0]
            before = (key, choice)
            taken.append(choice)
            self._take(actors[choice[0]], choice[1])
        self._end(actors, threads)
        return first

    def _choices(self, actors: list[Actor]) -> list[Choice]:
        alive = [at for at, actor in enumerate(actors) if not actor.done]
        free = [at for at in alive if self.scheduler.may_go(actors[at], actors)] or alive
        choices = [(at, "go") for at in free]
        if self.may_die and not any(actor.doomed for actor in actors):
            choices += [(at, "die") for at in alive]
        return choices

    def _take(self, actor: Actor, what: str) -> None:
        if what == "die":
            self._kill(actor)
        else:
            self.scheduler.let_go(actor)

    def _kill(self, actor: Actor) -> None:
        """End an actor before its next command; the server lets go of its transaction, as it will."""
        actor.doomed = True
        while not actor.done:
            self.scheduler.let_go(actor)
        if actor.server_session is not None:
            self.stores.mongo.client.admin.command("killSessions", [actor.server_session])

    def _judge(self, actors: list[Actor], found: Explored, taken: list[Choice]) -> None:
        died = any(actor.doomed for actor in actors)
        failed = [actor.error for actor in actors if actor.error and not actor.doomed]
        wrong = [f"raised {type(error).__name__}" for error in failed]
        for what in dict.fromkeys([*wrong, *self.judge(self.stores, actors, died)]):
            found.wrong[what] = found.wrong.get(what, 0) + 1
            found.example = found.example or list(taken)

    def _end(self, actors: list[Actor], threads: list[threading.Thread]) -> None:
        for actor in actors:
            if not actor.done:
                self._kill(actor)
        for thread in threads:
            thread.join(WAIT_S)


def paths(edges: dict[Any, dict[Choice, Any]], start: Any) -> int:
    """How many schedules lead from the start to an end."""

    @cache
    def count(key: Any) -> int:
        after = edges.get(key) or {}
        return sum(count(one) for one in after.values()) if after else 1

    return count(start)
