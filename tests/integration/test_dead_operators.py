"""Two operators at once beside a producer.

10,000 letters in every run; LEDGERCTL_TEST_MANY=100000 for the whole claim.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from ledgerctl.operations.dead_restore import taken_by
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.dead_letters import DeadLetters
from tests.dead_letters import DEAD, RETRY, Incident, unchanged

MANY = int(os.environ.get("LEDGERCTL_TEST_MANY", "10000"))


@contextmanager
def producer(incident: Incident) -> Iterator[list[bytes]]:
    """Adds one new letter a millisecond for as long as the block runs."""
    added: list[bytes] = []
    done = threading.Event()

    def produce() -> None:
        with Redis.from_url(incident.environment["LEDGERCTL_REDIS_URL"]) as redis:
            while not done.wait(0.001):
                raw = b'{"job_id":"new-%d","attempts":5,"error":"new"}' % len(added)
                redis.rpush(DEAD, raw)
                added.append(raw)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield added
    finally:
        done.set()
        thread.join()


def both(incident: Incident, *words: tuple[str, ...]) -> list[tuple[int, str]]:
    """Several runs side by side; the operation id of each and its exit code."""
    programs = [incident.start(*one) for one in words]
    ended = []
    for program in programs:
        out, err = program.communicate(timeout=300)
        assert program.returncode == 0, err.decode()
        ended.append((json.loads(out)["moved"], json.loads(out)["operation_id"]))
    return ended


ALL = ("dead", "requeue", "--all", "--yes")


@pytest.mark.parametrize(
    "second",
    [ALL, ("dead", "requeue", "--error", "timed out", "--yes"), ("dead", "release", "--verdict", "retryable", "--reason", "x", "--yes")],
    ids=["all-beside-all", "filter-beside-all", "release-beside-all"],
)  # fmt: skip
def test_two_operators_move_each_letter_once_and_newcomers_stay(
    incident: Incident, second: tuple[str, ...]
) -> None:
    incident.load(MANY)
    with producer(incident) as added:
        (first_moved, first), (second_moved, other) = both(incident, ALL, second)
    newcomers = list(added)
    assert first_moved + second_moved == MANY
    assert incident.dead() == newcomers
    incident.original += newcomers
    away = incident.retry()
    released = incident.taken() if "release" in second else []
    requeued = {unchanged(raw) for raw in away}
    incident.assert_none_lost([*away, *(raw for raw in released if unchanged(raw) not in requeued)])

    code, document = incident.run("dead", "restore", first, "--yes")
    assert (code, document["restored"], document["gone"]) == (0, first_moved, 0)
    code, document = incident.run("dead", "restore", other, "--yes")
    assert (code, document["restored"], document["gone"]) == (0, second_moved, 0)
    assert incident.redis.llen(RETRY) == 0
    incident.assert_none_lost([])
    assert incident.dead()[: len(newcomers)] == newcomers
    assert sorted(incident.dead()) == sorted(incident.original)


def test_a_second_change_by_filter_is_refused_while_the_first_runs(incident: Incident) -> None:
    incident.load(2_000)
    incident.database.leases.insert_one({"_id": "dead-letters", "owner": "somebody abc"})
    incident.database.leases.update_one(
        {"_id": "dead-letters"}, [{"$set": {"expires_at": {"$add": ["$$NOW", 8_000]}}}]
    )
    program = incident.start("dead", "requeue", "--error", "timed", "--yes")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (9, b"")
    assert b"lease_held" in err
    assert incident.dead() == incident.original
    assert incident.run("dead", "requeue", "job-000001", "--yes")[0] == 0


def test_letters_that_a_dead_owner_passed_over_are_read_and_put_back(incident: Incident) -> None:
    incident.load(100)
    passed = f"{DEAD}:passed:20260311T031400123Z-5f2c9a01be"
    for _ in range(40):
        incident.redis.lmove(DEAD, passed, "LEFT", "RIGHT")
    listed = incident.run("dead", "list", "--limit", "0")[1]
    assert [item["job_id"] for item in listed["items"]] == [f"job-{n:06d}" for n in range(100)]
    assert incident.run("dead", "stats")[1]["depth"] == 100
    assert incident.redis.llen(passed) == 40
    code, document = incident.run("dead", "requeue", "--digest", listed["items"][3]["digest"], "--yes")  # fmt: skip
    assert (code, document["moved"], document["remaining"]) == (0, 1, 99)
    assert incident.redis.keys(f"{DEAD}:passed:*") == []
    assert incident.dead() == [raw for n, raw in enumerate(incident.original) if n != 3]


def test_a_live_owners_passed_letters_can_be_taken_by_id(incident: Incident) -> None:
    incident.load(100)
    passed = f"{DEAD}:passed:20260311T031400123Z-5f2c9a01be"
    for _ in range(40):
        incident.redis.lmove(DEAD, passed, "LEFT", "RIGHT")
    incident.database.leases.insert_one({"_id": "dead-letters", "owner": "somebody abc"})
    incident.database.leases.update_one(
        {"_id": "dead-letters"}, [{"$set": {"expires_at": {"$add": ["$$NOW", 30_000]}}}]
    )
    code, document = incident.run("dead", "requeue", "job-000003", "job-000050", "--yes")
    assert (code, document["moved"], document["remaining"]) == (0, 2, 98)
    assert incident.redis.llen(passed) == 39
    assert incident.dead() == [raw for n, raw in enumerate(incident.original) if n not in {3, 50}]


def test_one_unreadable_entry_among_many_stays_and_the_rest_moves(incident: Incident) -> None:
    incident.load(2_000)
    incident.replace(700, b'{"job_id":"job-000700","attempts":"many"}')
    incident.replace(701, b"\xff\xfe no json")
    code, document = incident.run(*ALL)
    assert code == 0
    assert (document["moved"], document["skipped"]) == (1_998, {"unreadable": 2})
    assert incident.dead() == [b'{"job_id":"job-000700","attempts":"many"}', b"\xff\xfe no json"]


def test_many_letters_that_stay_before_one_that_moves_keep_their_order(incident: Incident) -> None:
    incident.load(3_000)
    incident.database.jobs.update_many(
        {"account_id": {"$in": [f"acct-{n}" for n in range(90)]}},
        {"$set": {"status": "succeeded"}},
    )
    code, document = incident.run(*ALL)
    assert code == 0
    assert document["moved"] == 3_000 - document["skipped"]["settled"]
    incident.assert_none_lost(incident.retry())
    incident.assert_order_kept()
    left = set(incident.dead())
    assert [unchanged(raw) for raw in incident.retry()] == [
        unchanged(raw) for raw in incident.original if raw not in left
    ]


@pytest.mark.parametrize("lease_is_held", [False, True])
def test_letters_between_many_that_stay_deep_in_the_list_are_taken_in_order(
    incident: Incident, lease_is_held: bool
) -> None:
    incident.load(14_000)
    incident.database.jobs.update_many(
        {"_id": {"$regex": "[0-7]$"}}, {"$set": {"status": "succeeded"}}
    )
    if lease_is_held:
        incident.database.leases.update_one(
            {"_id": "dead-letters"},
            [{"$set": {"owner": "somebody abc", "expires_at": {"$add": ["$$NOW", 60_000]}}}],
            upsert=True,
        )
    code, document = incident.run(*ALL)
    assert (code, document["moved"], document["remaining"]) == (0, 2_800, 11_200)
    incident.assert_none_lost(incident.retry())
    incident.assert_order_kept()
    assert [unchanged(raw) for raw in incident.retry()] == [
        unchanged(raw) for number, raw in enumerate(incident.original) if number % 10 > 7
    ]
    assert incident.redis.keys(f"{DEAD}:passed:*") == []
    held = incident.database.leases.find_one({"_id": "dead-letters"})
    assert held is not None
    assert (held["owner"] == "somebody abc") == lease_is_held


def test_stopping_finishes_the_chunk_and_names_the_command_that_goes_on(
    incident: Incident,
) -> None:
    incident.load(MANY)
    program = incident.start(*ALL)
    while incident.redis.llen(RETRY) == 0 and program.poll() is None:
        time.sleep(0.001)
    program.send_signal(signal.SIGINT)
    out, err = communicate(program)
    assert program.returncode in {0, 130}
    incident.assert_none_lost(incident.retry())
    incident.assert_order_kept()
    if program.returncode == 130:
        assert "to continue, run:" in out + err
        assert "ledgerctl dead requeue --all --yes" in out + err
    assert incident.run(*ALL)[1]["remaining"] == 0


def communicate(program: "subprocess.Popen[bytes]") -> tuple[str, str]:
    out, err = program.communicate(timeout=60)
    return out.decode(), err.decode()


def test_what_another_restore_puts_back_between_two_looks_is_seen_as_back(
    incident: Incident, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident.load(500)
    words = ("dead", "release", "--all", "--reason", "x", "--yes")
    operation_id = incident.run(*words)[1]["operation_id"]
    codes: list[int] = []

    def then_restored(look: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def first(self: DeadLetters, of: str) -> list[str]:
            found = look(self, of)
            if not codes:
                codes.append(incident.run("dead", "restore", of, "--yes")[0])
            return found

        return first

    for name in ("noted", "restored"):
        monkeypatch.setattr(DeadLetters, name, then_restored(getattr(DeadLetters, name)))
    chunks = taken_by(stores, operation_id)
    assert codes == [0]
    assert sum(len(chunk.back) for chunk in chunks) == 500


def test_two_restores_at_once_put_each_letter_back_once(incident: Incident) -> None:
    incident.load(2_000)
    for words in (ALL, ("dead", "release", "--all", "--reason", "x", "--yes")):
        operation_id = incident.run(*words)[1]["operation_id"]
        programs = [incident.start("dead", "restore", operation_id, "--yes") for _ in range(2)]
        documents = [json.loads(program.communicate(timeout=60)[0]) for program in programs]
        assert sum(document["restored"] for document in documents) == 2_000
        for document in documents:
            assert document["restored"] + document["already_back"] == 2_000
        assert incident.redis.llen(RETRY) == 0
        assert sorted(incident.dead()) == sorted(incident.original)
        incident.redis.delete(DEAD)
        incident.put(list(incident.original))


def test_a_run_that_slept_through_its_lease_stops_and_nothing_is_lost(incident: Incident) -> None:
    incident.load(MANY)
    words = ("dead", "requeue", "--error", "timed out", "--yes")
    sleeper = incident.start(*words)
    while not incident.redis.keys(f"{DEAD}:passed:*") and sleeper.poll() is None:
        time.sleep(0.001)
    sleeper.send_signal(signal.SIGSTOP)
    incident.expire_lease()
    code, document = incident.run("dead", "requeue", "--error", "disk", "--yes")
    assert (code, document["moved"]) == (0, MANY // 4)
    sleeper.send_signal(signal.SIGCONT)
    sleeper.communicate(timeout=60)
    assert sleeper.returncode in {0, 8, 9}
    incident.assert_none_lost(incident.retry())
    assert incident.run(*words)[0] == 0
    incident.assert_none_lost(incident.retry())
    incident.assert_order_kept()
    assert incident.redis.llen(RETRY) == MANY // 2
    assert incident.redis.keys(f"{DEAD}:passed:*") == []
