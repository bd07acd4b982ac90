"""`ledger audit --code stranded_charge`: money that is charged and that no list will ever settle.

2,000 jobs in two runs each time; LEDGERCTL_TEST_STRANDED=100000 and LEDGERCTL_TEST_STRANDED_RUNS=20
for the whole claim, with its memory and its time beside a bare scan (-s shows the figures).
"""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from redis import Redis

from tests.builders import make_entry, make_job, make_letter, make_row, without
from tests.conftest import ROOT, Documents, Invoker, Runner

JOBS = int(os.environ.get("LEDGERCTL_TEST_STRANDED", "2000"))
RUNS = int(os.environ.get("LEDGERCTL_TEST_STRANDED_RUNS", "2"))
PLANTED = JOBS // 200
WORKERS = 8
NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=2)
AUDIT = ("ledger", "audit", "--code", "stranded_charge")
LISTS = ("jobs:retry", "jobs:dead-letter", "jobs:new")


@pytest.fixture
def pending(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment, its configuration naming a list of new jobs."""
    place = tmp_path / "config.toml"
    place.write_text('[keys]\npending = ["jobs:new"]\n')
    place.chmod(0o600)
    environment["LEDGERCTL_CONFIG"] = str(place)
    return environment


def charged(documents: Documents, job_id: Any = "job-1", at: datetime = OLD, **job: Any) -> None:
    """A job and its charge row, dated then."""
    documents.jobs.insert_one(make_job(job_id, created_at=at) | job)
    documents.ledger.insert_one(make_row(job_id, created_at=at))


def named(invoke: Invoker, *words: str) -> list[str]:
    done = invoke(*AUDIT, *words, "-o", "json")
    found = [one["job_id"] for one in done.json()["findings"]]
    assert done.code == (5 if found else 0)
    return sorted(found)


def test_a_charge_that_no_list_and_no_outcome_settles_is_named_with_its_effect(
    invoke: Invoker, documents: Documents
) -> None:
    charged(documents)
    (found,) = invoke(*AUDIT, "-o", "json").json()["findings"]
    assert "no operation here took it" in found.pop("detail")
    assert found == {
        "code": "stranded_charge",
        "job_id": "job-1",
        "account_id": "acct-1",
        "row_ids": ["job-1:charge"],
        "effect": -40,
        "repairable": False,
        "settled": False,
        "command": "ledgerctl job refund job-1",
    }
    assert invoke("ledger", "audit", "-o", "json").json()["findings"] == []
    assert invoke("balance", "explain", "acct-1", "-o", "json").json().get("off_by", 0) == 0


@pytest.mark.parametrize(
    ("job", "rows"),
    [
        ({"status": "succeeded"}, ["charge"]),
        ({"is_refunded": True, "refunded_at": OLD}, ["charge", "refund"]),
        ({"is_refunded": "no"}, ["charge"]),
        ({"is_reclaimed": True}, ["charge"]),
        ({}, []),
        ({}, ["charge", "refund"]),
        ({}, [{"amount": 40}]),
        ({}, ["charge", {"type": "correction", "_id": "c", "amount": 40}]),
    ],
)
def test_what_is_settled_uncharged_or_odd_is_left_to_its_own_code(
    invoke: Invoker, documents: Documents, job: dict[str, Any], rows: list[Any]
) -> None:
    documents.jobs.insert_one(make_job(created_at=OLD) | job)
    for one in rows:
        changes = {"type": one} if isinstance(one, str) else one
        row = make_row("job-1", changes.get("type", "charge"), created_at=OLD)
        documents.ledger.insert_one(row | changes)
    assert named(invoke) == []


def test_absent_flags_count_as_false(invoke: Invoker, documents: Documents) -> None:
    documents.jobs.insert_one(without(make_job(), "is_refunded", "is_reclaimed", "status"))
    documents.ledger.insert_one(make_row(created_at=OLD))
    assert named(invoke) == ["job-1"]


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("jobs:retry", make_entry()),
        ("jobs:processing:gpu-1", make_entry()),
        ("jobs:dead-letter", make_letter()),
        ("jobs:dead-letter:passed:op-1", make_letter()),
        ("jobs:new", b"job-1"),
        ("jobs:new", b' "job-1"\n'),
        ("jobs:new", b'{"error":"x","JobID":"job-1"}'),
        ("jobs:retry", b'{"job_id":"job-1","attempts":"three"}'),
        ("jobs:dead-letter", b'{"attempts":1,"job_id": "job\\u002d1", "cut off'),
    ],
)
def test_a_job_that_any_list_holds_is_not_stranded(
    pending: dict[str, str],
    invoke: Invoker,
    documents: Documents,
    redis_client: Redis,
    key: str,
    entry: bytes,
) -> None:
    charged(documents)
    charged(documents, "job-2")
    redis_client.rpush(key, entry)
    assert named(invoke) == ["job-2"]


def test_ids_of_other_types_are_found_on_the_lists_by_their_text(
    invoke: Invoker, documents: Documents, redis_client: Redis
) -> None:
    identity = ObjectId()
    for job_id in (identity, 42, 43):
        charged(documents, job_id)
    redis_client.rpush("jobs:retry", make_entry(str(identity).upper()), make_entry(42))
    assert named(invoke) == ["43"]


def test_a_young_charge_has_time_and_a_scope_leaves_others_out(
    invoke: Invoker, documents: Documents
) -> None:
    charged(documents, "young", NOW - timedelta(hours=2))
    charged(documents, "old")
    charged(documents, "other", account_id="acct-2")
    assert named(invoke) == ["old", "other"]
    assert named(invoke, "--older-than", "1h") == ["old", "other", "young"]
    assert named(invoke, "--account", "acct-2") == ["other"]
    assert named(invoke, "--job", "old") == ["old"]
    assert named(invoke, "--since", "yesterday", "--older-than", "1h") == ["young"]
    assert invoke(*AUDIT, "--job", "typo").code == 4
    assert invoke("ledger", "audit", "--older-than", "1h").code == 2


def test_a_released_letter_says_which_operation_let_it_go(
    invoke: Invoker, documents: Documents, redis_client: Redis
) -> None:
    charged(documents)
    redis_client.rpush("jobs:dead-letter", make_letter())
    done = invoke("dead", "release", "job-1", "--reason", "x", "--yes", "-o", "json").json()
    (found,) = invoke(*AUDIT, "-o", "json").json()["findings"]
    assert f"operation {done['operation_id']} released it at " in found["detail"]


def test_what_is_named_goes_through_a_pipe_into_refund(
    invoke: Invoker, documents: Documents
) -> None:
    for job_id in ("job-1", "a,b", "t\tab"):
        charged(documents, job_id)
    found = invoke(*AUDIT, "-o", "plain", "--no-header", "--fields", "job_id")
    assert sorted(found.out.split("\n")) == ["", "a,b", "job-1", "t\\tab"]
    words = ("--from-file", "-", "--yes", "-o", "json")
    assert invoke("job", "refund", *words, stdin=found.stdout).json()["applied"] == 3
    assert named(invoke) == []


def test_a_list_of_another_type_is_refused(
    invoke: Invoker, documents: Documents, redis_client: Redis
) -> None:
    charged(documents)
    redis_client.set("jobs:retry", "x")
    assert invoke(*AUDIT).code == 3


def test_a_role_may_read_the_pending_lists(pending: dict[str, str], invoke: Invoker) -> None:
    assert " ~jobs:new " in invoke("db", "roles", "--role", "support", "-o", "plain").out


# beside workers


def fill(documents: Documents, redis_client: Redis) -> set[str]:
    """Jobs on every list, succeeded ones, young ones and the planted ones, whose ids return."""
    names = [f"job-{number:07d}" for number in range(JOBS)]
    random.Random(22).shuffle(names)
    planted, young, done = names[:PLANTED], names[PLANTED : 2 * PLANTED], names[-JOBS // 4 :]
    kinds = dict.fromkeys(done, "succeeded")
    dates = dict.fromkeys(young, NOW)
    for start in range(0, JOBS, 10_000):
        some = names[start : start + 10_000]
        documents.jobs.insert_many(
            make_job(
                one, created_at=dates.get(one, OLD), status=kinds.get(one, "running"), model="sdxl"
            )
            for one in some
        )
        documents.ledger.insert_many(make_row(one, created_at=dates.get(one, OLD)) for one in some)
    waiting = names[2 * PLANTED : -JOBS // 4]
    for start in range(0, len(waiting), 1_000):
        some = waiting[start : start + 1_000]
        redis_client.rpush(LISTS[start // 1_000 % 3], *map(make_entry, some))
    return set(planted)


@contextmanager
def workers(redis_url: str, documents: Documents) -> Iterator[list[int]]:
    """Eight workers: each takes a job from a list into its own, and lets it go to another one."""
    stop, moves = threading.Event(), [0] * WORKERS

    def work(number: int) -> None:
        chance = random.Random(number)
        own = f"jobs:processing:w{number}"
        with Redis.from_url(redis_url) as lists:
            while not stop.is_set():
                raw = lists.lmove(chance.choice(LISTS), own, "LEFT", "RIGHT")
                if raw is None:
                    continue
                moves[number] += 1
                if chance.random() < 0.01:
                    job_id = json.loads(raw)["job_id"]
                    documents.jobs.update_one({"_id": job_id}, {"$set": {"status": "succeeded"}})
                    lists.lrem(own, 1, raw)
                    continue
                side = "RIGHT" if chance.random() < 0.8 else "LEFT"
                lists.lmove(own, chance.choice(LISTS), "RIGHT", side)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for one in threads:
        one.start()
    try:
        yield moves
    finally:
        stop.set()
        for one in threads:
            one.join()


def test_beside_eight_workers_every_stranded_charge_is_named_and_no_other(
    pending: dict[str, str],
    documents: Documents,
    redis_client: Redis,
    redis_url: str,
    run: Runner,
) -> None:
    planted = fill(documents, redis_client)
    with workers(redis_url, documents) as moves:
        for _ in range(RUNS):
            found = run(*AUDIT, "-o", "json").json()["findings"]
            names = [one["job_id"] for one in found]
            assert (len(names), set(names)) == (len(planted), planted)
    assert min(moves) > 0


@pytest.mark.skipif(JOBS < 100_000, reason="a ratio of a few milliseconds says nothing")
def test_it_takes_twice_a_bare_scan_at_most_and_100_mb(
    pending: dict[str, str], documents: Documents, redis_client: Redis, tmp_path: Path
) -> None:
    planted = fill(documents, redis_client)
    bare, ours = [], []
    for _ in range(3):
        bare.append(measured(pending, tmp_path, [sys.executable, __file__]))
        ours.append(measured(pending, tmp_path, [sys.executable, "-m", "ledgerctl", *AUDIT]))
    seconds = [min(one["seconds"] for one in some) for some in (bare, ours)]
    peak = max(one["memory_mb"] for one in ours)
    print(f"\n{len(planted)} of {JOBS}: bare, ours {seconds} s, {peak:.0f} MB")
    assert seconds[1] <= 2 * seconds[0]
    assert peak <= 100


def measured(environment: Mapping[str, str], place: Path, words: list[str]) -> dict[str, float]:
    """What a small process of its own measures of a run."""
    report = place / "report"
    meter = [sys.executable, str(ROOT / "tests/bench/measured.py"), str(report), os.devnull]
    subprocess.run([*meter, *words], env=environment, check=True)
    figures: dict[str, float] = json.loads(report.read_text())
    return figures


def bare_scan() -> None:
    """Read every job, and every entry of the lists: what any answer has to do at least."""
    client: Any = MongoClient(os.environ["LEDGERCTL_MONGO_URI"])
    jobs = client[os.environ["LEDGERCTL_DATABASE"]].jobs
    waiting = set()
    with Redis.from_url(os.environ["LEDGERCTL_REDIS_URL"]) as lists:
        for name in LISTS:
            for start in range(0, lists.llen(name), 1_000):
                for raw in lists.lrange(name, start, start + 999):
                    waiting.add(json.loads(raw)["job_id"])
    print(sum(1 for job in jobs.find() if job["_id"] not in waiting))


if __name__ == "__main__":
    bare_scan()
