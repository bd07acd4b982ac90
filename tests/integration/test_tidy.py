"""Retention: what nobody needs any more goes, what may be needed stays, and no command is misled."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_claim, make_job, make_letter, make_message, make_row
from tests.conftest import Client, Invoker, Runner
from tests.dead_letters import DEAD

DONE: dict[str, Any] = {"status": "succeeded", "completed_at": NOON, "claimed_until": None}
TIDY = ("db", "tidy", "--yes", "-o", "json")


def today() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def claims(*keys: str, group: str = "mail", **overrides: Any) -> list[dict[str, Any]]:
    return [make_claim(consumer_group=group, message_key=key, **overrides) for key in keys]


def ids(db: Any, name: str, field: str = "_id") -> list[Any]:
    return sorted(one[field] for one in db[name].find())


def test_only_messages_that_every_reading_group_has_completed_go(
    invoke: Invoker, client: Client, database: str
) -> None:
    db = client[database]
    young = make_message("young", created_at=today() - timedelta(days=29))
    unread = make_message("unread", topic="nobody")
    db.outbox.insert_many(
        [make_message("both"), make_message("one"), make_message("dead"), young, unread]
    )
    db.inbox.insert_many(claims("both", "one", "dead", "young", **DONE))
    db.inbox.insert_many(claims("both", group="search", **DONE))
    db.inbox.insert_many(claims("dead", group="search", status="dead", attempts=5))
    dry = invoke("db", "tidy", "--dry-run", "-o", "json").json()
    done = invoke(*TIDY).json()
    assert dry["removed"] == done["removed"] == {"outbox": 1, "inbox": 2, "dead_archive": 0}
    assert dry["kept"] == done["kept"]
    assert done["kept"] == {
        "outbox_not_completed": 2, "outbox_no_reader": 1, "inbox_message_kept": 3, "inbox_unfinished": 1,
    }  # fmt: skip
    assert ids(db, "outbox") == ["dead", "one", "unread", "young"]
    assert ids(db, "inbox", "message_key") == ["dead", "dead", "one", "young"]
    again = invoke(*TIDY).json()
    assert again["removed"] == {"outbox": 0, "inbox": 0, "dead_archive": 0}
    assert again["operation_id"] is None


@pytest.mark.parametrize(
    "overrides",
    [
        {"status": "failed"},
        {"status": "dead"},
        {"status": "claimed"},
        {"status": "succeeded", "completed_at": None},
        {**DONE, "last_seen_at": datetime.now(UTC)},
    ],
    ids=["failed", "dead", "claimed", "unmarked", "delivered again"],
)
def test_a_claim_that_is_not_done_with_stays_without_its_message_too(
    invoke: Invoker, client: Client, database: str, overrides: dict[str, Any]
) -> None:
    client[database].inbox.insert_many(claims("gone", **overrides))
    before = list(client[database].inbox.find())
    assert invoke(*TIDY).json()["removed"]["inbox"] == 0
    assert list(client[database].inbox.find()) == before


def test_a_group_that_lags_is_waited_for_even_when_all_its_claims_are_gone(
    invoke: Invoker, client: Client, database: str
) -> None:
    db = client[database]
    db.outbox.insert_one(make_message("first"))
    db.inbox.insert_many([*claims("first", **DONE), *claims("first", group="search", **DONE)])
    assert invoke(*TIDY).json()["removed"] == {"outbox": 1, "inbox": 2, "dead_archive": 0}
    db.outbox.insert_one(make_message("second"))
    db.inbox.insert_many(claims("second", **DONE))
    assert invoke(*TIDY).json()["kept"]["outbox_not_completed"] == 1
    assert ids(db, "outbox") == ["second"]


def test_an_entry_that_waits_longer_raises_the_limit_and_one_without_age_keeps_everything(
    invoke: Invoker, client: Client, database: str, redis_client: Redis
) -> None:
    db = client[database]
    db.outbox.insert_one(make_message("m"))
    db.inbox.insert_many(claims("m", **DONE))
    redis_client.rpush(DEAD, make_letter(failed_at="2026-03-08T12:00:00Z"))
    kept = invoke(*TIDY).json()
    assert (kept["removed"]["outbox"], kept["before"]) == (0, "2026-03-07T12:00:00.000Z")
    assert "waits on a list" in json.dumps(kept["notes"])
    redis_client.rpush(DEAD, b"no json")
    unknown = invoke(*TIDY).json()
    assert (unknown["removed"]["outbox"], unknown["before"]) == (0, None)
    redis_client.delete(DEAD)
    redis_client.rpush(DEAD, make_letter("job-1", failed_at=None))
    assert invoke(*TIDY).json()["before"] is None
    db.ledger.insert_one(make_row("job-1", created_at=today() - timedelta(days=2)))
    assert invoke(*TIDY).json()["removed"]["outbox"] == 1


def test_archived_letters_go_with_their_notes_unless_one_of_the_chunk_waits(
    run: Runner, client: Client, database: str, redis_client: Redis
) -> None:
    db = client[database]
    db.jobs.insert_many([make_job(f"job-{n}") for n in range(4)])
    redis_client.rpush(DEAD, *[make_letter(f"job-{n}", failed_at=None) for n in range(4)])
    db.ledger.insert_many([make_row(f"job-{n}", created_at=today()) for n in range(4)])
    requeued = run("dead", "requeue", "job-0", "job-1", "--yes", "-o", "json").json()
    released = run("dead", "release", "job-2", "--reason", "x", "--yes", "-o", "json").json()
    db.dead_archive.update_many({}, {"$set": {"at": NOON}})
    done = run(*TIDY, "--keep", "2d").json()
    assert done["removed"] == {"outbox": 0, "inbox": 0, "dead_archive": 1}
    assert done["kept"]["dead_archive_waiting"] == 2
    assert {one["operation_id"] for one in db.dead_archive.find()} == {requeued["operation_id"]}
    names = set(redis_client.keys("*"))
    assert f"{DEAD}:op:{released['operation_id']}".encode() not in names
    assert f"{DEAD}:op:{requeued['operation_id']}".encode() in names
    assert redis_client.llen(DEAD) == 1
    restored = run("dead", "restore", released["operation_id"], "--yes", "-o", "json").json()
    assert (restored["restored"], restored["gone"]) == (0, 1)
    assert "no longer kept" in json.dumps(restored["notes"])


@pytest.mark.parametrize("kind", ["replica set", "standalone"])
def test_no_command_takes_a_removed_message_for_a_lost_one(
    request: pytest.FixtureRequest, database: str, kind: str
) -> None:
    alone = kind == "standalone"
    run: Runner = request.getfixturevalue("run_standalone" if alone else "run")
    stores: Stores = request.getfixturevalue("standalone_stores" if alone else "stores")
    build_indexes(stores)
    db = stores.mongo.database
    for job in ("old", "new"):
        run("job", "charge", job, "--account", "acct-1", "--cost", "40")
        run("job", "refund", job)
    run("inbox", "consume", "--group", "usage-daily", "--until-empty")
    past = today() - timedelta(days=40)
    db.ledger.update_many({"job_id": "old"}, {"$set": {"recorded_at": past, "created_at": past}})
    db.outbox.update_many({"payload.job_id": "old"}, {"$set": {"created_at": past}})
    db.inbox.update_many(
        {"message_key": {"$regex": "^old"}}, {"$set": {"completed_at": past, "last_seen_at": past}}
    )
    done = run(*TIDY).json()
    assert done["removed"] == {"outbox": 2, "inbox": 2, "dead_archive": 0}
    assert run("ledger", "audit", "-o", "json").json()["counts"] == {}
    assert (
        run("ledger", "repair", "--grace", "0s", "--dry-run", "-o", "json").json()["repaired"] == 0
    )
    assert run("job", "refund", "old").code == 0
    measured = run("inbox", "audit", "-o", "json")
    assert (measured.code, {one["without_message"] for one in measured.json()["lookups"]}) == (
        0,
        {0},
    )
    assert ids(db, "outbox") == ["new:charge", "new:refund"]
    db.outbox.delete_one({"_id": "new:refund"})
    assert run("ledger", "audit", "-o", "json").json()["counts"] == {"missing_message": 1}


def test_a_run_that_is_killed_anywhere_is_completed_by_the_next(
    stores: Stores, environment: Mapping[str, str], run: Runner, client: Client, database: str
) -> None:
    build_indexes(stores)
    db = client[database]
    keys = [f"m-{number:05d}" for number in range(4_000)]
    db.outbox.insert_many([make_message(key) for key in keys])
    db.outbox.insert_many([make_message(f"open-{n}") for n in range(10)])
    db.inbox.insert_many(claims(*keys, **DONE))
    draw = random.Random(7)
    for _ in range(4):
        command = [sys.executable, "-m", "ledgerctl", *TIDY]
        with subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL) as program:
            time.sleep(0.4 + draw.random())
            program.kill()
        gone = set(keys) - set(ids(db, "outbox"))
        assert set(keys) - set(ids(db, "inbox", "message_key")) <= gone
    assert run(*TIDY).code == 0
    assert (db.outbox.count_documents({}), db.inbox.count_documents({})) == (10, 0)
