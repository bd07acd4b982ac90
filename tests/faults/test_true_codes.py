"""Exit codes that once said too much: each fault that was wrong in the table, by itself."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from bson import Int64
from redis import exceptions as redis_errors

from ledgerctl.domain.dead import Letter
from ledgerctl.domain.payload import read_payload
from ledgerctl.domain.removal import Pick, Piece
from ledgerctl.errors import OutcomeUnknown, ReadOnlyReplica
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_job, make_letter, make_row
from tests.conftest import Client, Runner
from tests.dead_letters import DEAD

DISK_FULL = 14031


@contextmanager
def failing(client: Client, command: str, **how: Any) -> Iterator[None]:
    """mongod fails every such command of ours inside the block."""
    data = {"failCommands": [command], "appName": "ledgerctl", **how}
    point = {"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data}
    client.admin.command(point)
    try:
        yield
    finally:
        client.admin.command(point | {"mode": "off"})


def seed(stores: Stores) -> None:
    """One charged job."""
    build_indexes(stores)
    stores.mongo.collection("jobs").insert_one(make_job())
    stores.mongo.collection("ledger").insert_one(make_row())


def test_a_flag_that_is_set_before_the_disk_is_full_is_exit_8_and_never_6(
    standalone_stores: Stores, standalone_client: Client, run_standalone: Runner, database: str
) -> None:
    seed(standalone_stores)
    namespace = f"{database}.ledger"
    with failing(standalone_client, "insert", errorCode=DISK_FULL, namespace=namespace):
        half = run_standalone("job", "refund", "job-1", "-o", "json")
    assert (half.code, standalone_client[database].jobs.find_one()["is_refunded"]) == (8, True)  # type: ignore[index]  # it is there
    error = half.json()["error"]
    assert (error["code"], error["exit_code"]) == ("store_busy", 8)
    again = run_standalone("job", "refund", "job-1", "-o", "json")
    assert again.json()["results"][0]["outcome"] == "completed"


def test_a_change_whose_log_entry_stays_open_is_exit_8_with_its_counts(
    standalone_stores: Stores, standalone_client: Client, run_standalone: Runner, database: str
) -> None:
    seed(standalone_stores)
    namespace = f"{database}.operator_log"
    with failing(standalone_client, "update", errorCode=DISK_FULL, namespace=namespace):
        done = run_standalone("job", "refund", "job-1", "-o", "json")
    assert (done.code, done.json()["applied"]) == (8, 1)
    assert "stays open in the operator log" in json.dumps(done.json()["notes"])
    assert run_standalone("job", "refund", "job-1").code == 0


def test_an_operation_that_cannot_be_logged_is_exit_6_and_changes_nothing(
    standalone_stores: Stores, standalone_client: Client, run_standalone: Runner, database: str
) -> None:
    seed(standalone_stores)
    with failing(standalone_client, "insert", closeConnection=True):
        refused = run_standalone("job", "refund", "job-1")
    assert refused.code == 6
    assert standalone_client[database].jobs.find_one() == make_job()


def test_a_correction_without_its_message_is_told_by_the_next_run(
    standalone_stores: Stores, standalone_client: Client, run_standalone: Runner, database: str
) -> None:
    seed(standalone_stores)
    db = standalone_client[database]
    db.ledger.insert_one(make_row(row_type="correction", _id="foreign", amount=Int64(-7)))
    words = ("ledger", "correct", "job-1", "--reason", "x", "--yes")
    namespace = f"{database}.outbox"
    with failing(standalone_client, "update", errorCode=DISK_FULL, namespace=namespace):
        assert run_standalone(*words).code == 8
    assert (db.ledger.count_documents({}), db.outbox.count_documents({})) == (3, 0)
    assert run_standalone(*words).code == 0
    assert (db.ledger.count_documents({}), db.outbox.count_documents({})) == (3, 1)


def test_an_archive_that_is_not_known_to_be_durable_moves_no_letter(
    stores: Stores, client: Client, run: Runner, redis_client: Any, database: str
) -> None:
    redis_client.rpush(DEAD, make_letter("job-1"), make_letter("job-2"))
    concern = {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting timed out"}
    namespace = f"{database}.dead_archive"
    with failing(client, "insert", writeConcernError=concern, namespace=namespace):
        refused = run("dead", "release", "--all", "--reason", "x", "--yes")
    assert refused.code == 6, refused.err
    assert redis_client.llen(DEAD) == 2


@pytest.mark.parametrize("lost", [True, False])
def test_a_refusal_after_a_lost_reply_leaves_the_outcome_unknown(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], lost: bool
) -> None:
    troubles: list[Exception] = [redis_errors.TimeoutError("no reply")] if lost else []
    troubles.append(redis_errors.ReadOnlyError("You can't write against a read only replica."))
    letters = stores.dead_letters

    def fail(*_: object) -> None:
        raise troubles.pop(0)

    monkeypatch.setattr(stores.queues, "attempts", fail)
    with pytest.raises(OutcomeUnknown if lost else ReadOnlyReplica):
        letters.take("op-1", [Piece((), 1, b"a", b"b")], set_aside=True)


def test_a_duplicate_that_no_majority_confirms_is_not_taken_for_archived(
    stores: Stores, client: Client, database: str
) -> None:
    raw = make_letter()
    pick = Pick(0, Letter(raw, 0, 0, 0, False, read_payload(raw)), None)
    pieces = [Piece((pick,), 1, chunk=1)]
    stores.archive.keep("op-1", pieces, at=NOON)
    concern = {"code": 64, "errmsg": "waiting for replication timed out"}
    namespace = f"{database}.dead_archive"
    with (
        failing(client, "insert", writeConcernError=concern, namespace=namespace),
        pytest.raises(OutcomeUnknown),
    ):
        stores.archive.keep("op-1", pieces, at=NOON)
    stores.archive.keep("op-1", pieces, at=NOON)
    assert client[database].dead_archive.count_documents({}) == 1
