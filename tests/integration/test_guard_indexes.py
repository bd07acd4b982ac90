"""An index guards only what its filter, collation, sparseness and state prove."""

import threading
import time
from typing import Any
from uuid import UUID

import pytest
from bson import Binary, Int64, ObjectId
from pymongo.errors import DuplicateKeyError

from ledgerctl.domain.jobs import Outcome
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.steps import reclaim
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import (
    INBOX_UNIQUE,
    INDEXES,
    LEDGER_UNIQUE,
    STEP_TYPES,
    Index,
    left_out,
)
from tests.builders import make_job, make_row
from tests.conftest import Documents, Runner

KEYS = [("job_id", 1), ("type", 1)]
FIRST_EDITION = {
    "job_id": {"$type": ["string", "objectId", "int", "long"]},
    "type": {"$in": ["charge", "refund", "reclaim"]},
}
IDS: list[Any] = [
    "job",
    ObjectId("65f0aa00bb11cc22dd33ee55"),
    7,
    Int64(2**40),
    Binary(b"0123456789abcdef", 4),
]
UUID_JOB = Binary(UUID("aa0e8400-e29b-41d4-a716-446655440000").bytes, 4)

FILTERS: list[tuple[dict[str, Any], bool]] = [
    ({"type": "refund"}, False),
    ({"type": {"$eq": "refund"}}, False),
    ({"type": {"$in": ["charge", "refund"]}}, False),
    ({"type": {"$in": ["charge", "refund", "reclaim", "grant"]}}, True),
    ({"type": {"$exists": True}}, True),
    ({"type": {"$type": "string"}}, True),
    ({"type": {"$type": 2}}, True),
    ({"type": {"$gte": "charge"}}, True),
    ({"type": {"$gt": "charge"}}, False),
    ({"type": {"$lte": "refund"}}, True),
    ({"type": {"$lt": "refund"}}, False),
    ({"type": {"$gte": "charge", "$lte": "reclaim"}}, False),
    ({"$or": [{"type": "charge"}, {"type": "refund"}, {"type": "reclaim"}]}, True),
    ({"$or": [{"type": "charge"}, {"type": "refund"}]}, False),
    ({"$and": [{"type": {"$exists": True}}, {"job_id": {"$exists": True}}]}, True),
    ({"$and": [{"type": {"$exists": True}}, {"job_id": {"$type": "string"}}]}, False),
    ({"job_id": {"$exists": True}}, True),
    ({"job_id": {"$type": ["string", "objectId", "number", "binData"]}}, True),
    ({"job_id": {"$type": [2, 5, 7, 16, 18]}}, True),
    ({"job_id": {"$type": "string"}}, False),
    (FIRST_EDITION, False),
    ({"amount": {"$exists": True}, "type": {"$exists": True}}, False),
    ({"operation_id": {"$exists": True}}, False),
]  # fmt: skip


@pytest.mark.parametrize(("partial", "guards"), FILTERS, ids=[str(one) for one, _ in FILTERS])
def test_a_filter_is_believed_exactly_where_the_server_refuses_every_second_row(
    documents: Documents, partial: dict[str, Any], guards: bool
) -> None:
    documents.ledger.create_index(KEYS, unique=True, partialFilterExpression=partial)
    let_twice = False
    for job_id in IDS:
        for row_type in STEP_TYPES:
            documents.ledger.insert_one({"job_id": job_id, "type": row_type})
            try:
                documents.ledger.insert_one({"job_id": job_id, "type": row_type})
                let_twice = True
            except DuplicateKeyError:
                pass
    assert let_twice is not guards
    kinds = ("string", "objectId", "int", "long", "binData")
    assert (left_out(partial, kinds) == "") is guards


LOOKALIKES: dict[str, dict[str, Any]] = {
    "leaves out charge rows": {"partialFilterExpression": {"type": {"$eq": "refund"}}},
    "leaves out refund rows": {"partialFilterExpression": {"type": {"$lte": "charge"}}},
    "is sparse": {"sparse": True},
    "is hidden": {"hidden": True},
    "has a collation (en, strength 2)": {"collation": {"locale": "en", "strength": 2}},
}


@pytest.mark.parametrize("why", LOOKALIKES)
def test_an_index_that_only_looks_like_the_guard_is_told_and_the_right_one_is_built_beside_it(
    run: Runner, stores: Stores, documents: Documents, why: str
) -> None:
    documents.ledger.create_index(KEYS, unique=True, name="theirs", **LOOKALIKES[why])
    assert not stores.indexes.guards(LEDGER_UNIQUE)
    checks = {one["id"]: one for one in run("doctor", "-o", "json").json()["checks"]}
    told = checks["index.ledger_unique"]
    assert told["status"] == "fail"
    assert f"index theirs {why}" in told["detail"]
    built = {
        one["name"]: one["status"] for one in run("db", "init", "-o", "json").json()["indexes"]
    }
    assert built[LEDGER_UNIQUE.name] == "created"
    assert stores.indexes.guards(LEDGER_UNIQUE)
    assert "theirs" in documents.ledger.index_information()


def test_a_reclaim_is_not_completed_behind_an_index_for_refunds_alone(
    stores: Stores, documents: Documents
) -> None:
    """A worker whose own reclaim row is late would be accepted beside ours: −80 for one job of 40."""
    refunds = {"type": {"$eq": "refund"}}
    documents.ledger.create_index(KEYS, unique=True, partialFilterExpression=refunds)
    flags = {"is_refunded": True, "is_reclaimed": True}
    documents.jobs.insert_one(make_job("job-1", **flags))
    documents.ledger.insert_many([make_row("job-1"), make_row("job-1", "refund")])
    result = reclaim(stores, "job-1", operation_id="op-1")
    assert result.outcome == Outcome.ROW_MISSING
    documents.ledger.insert_one(make_row("job-1", "reclaim"))
    assert sum(row["amount"] for row in documents.ledger.find()) == -40


def test_a_row_that_a_collation_holds_equal_is_a_conflict_and_is_named(
    run: Runner, run_standalone: Runner, documents: Documents, standalone_client: Any, database: str
) -> None:
    for program, place in ((run, documents), (run_standalone, standalone_client[database])):
        place.ledger.create_index(KEYS, unique=True, collation={"locale": "en", "strength": 2})
        assert program("job", "charge", "AbC10", "--account", "acct-1", "--cost", "40").code == 0
        done = program(
            "job", "charge", "aBc10", "--account", "acct-2", "--cost", "40", "-o", "json"
        )
        result = done.json()["results"][0]
        assert (done.code, result["outcome"]) == (3, "conflict")
        assert result["row_id"] == "AbC10:charge"
        assert [one["_id"] for one in place.jobs.find()] == ["AbC10"]
        assert [one["_id"] for one in place.ledger.find()] == ["AbC10:charge"]


@pytest.mark.parametrize(
    "options",
    [
        {"sparse": True},
        {"hidden": True},
        {"partialFilterExpression": {"consumer_group": {"$exists": True}}},
        {"collation": {"locale": "en", "strength": 2}},
    ],
    ids=str,
)
def test_a_consumer_is_refused_where_the_inbox_index_only_looks_right(
    run: Runner, documents: Documents, options: dict[str, Any]
) -> None:
    keys = [(name, 1) for name in INBOX_UNIQUE.keys]
    documents.inbox.create_index(keys, unique=True, name="theirs", **options)
    assert run("inbox", "consume", "--group", "usage-daily", "--once").code == 3
    assert run("db", "init").code == 0
    assert run("inbox", "consume", "--group", "usage-daily", "--once").code == 0


def first_edition(documents: Documents) -> None:
    """The guard as the first edition built it."""
    documents.ledger.create_index(
        KEYS, unique=True, name=LEDGER_UNIQUE.name, partialFilterExpression=FIRST_EDITION
    )


def test_an_index_without_uuids_guards_until_the_first_uuid_job(
    stores: Stores, documents: Documents
) -> None:
    first_edition(documents)
    documents.jobs.insert_one(make_job("job-1"))
    assert stores.indexes.guards(LEDGER_UNIQUE)
    documents.jobs.insert_one(make_job(UUID_JOB))
    assert not stores.indexes.guards(LEDGER_UNIQUE)


def test_the_index_for_uuid_jobs_is_built_beside_the_older_one_under_another_name(
    run: Runner, stores: Stores, documents: Documents
) -> None:
    first_edition(documents)
    documents.jobs.insert_one(make_job(UUID_JOB))
    built = run("db", "init", "-o", "json").json()["indexes"]
    assert {"created"} == {one["status"] for one in built}
    assert f"{LEDGER_UNIQUE.name}_2" in {one["name"] for one in built}
    assert set(documents.ledger.index_information()) >= {
        LEDGER_UNIQUE.name,
        f"{LEDGER_UNIQUE.name}_2",
    }
    documents.ledger.insert_one(make_row(UUID_JOB, "refund", _id="a"))
    with pytest.raises(DuplicateKeyError):
        documents.ledger.insert_one(make_row(UUID_JOB, "refund", _id="b"))
    again = run("db", "init", "-o", "json").json()["indexes"]
    assert {one["status"] for one in again} == {"exists"}


def test_our_own_index_hidden_is_shown_again(
    run: Runner, stores: Stores, documents: Documents
) -> None:
    build_indexes(stores)
    documents.command("collMod", "ledger", index={"name": LEDGER_UNIQUE.name, "hidden": True})
    assert not stores.indexes.guards(LEDGER_UNIQUE)
    shown = {
        one["name"]: one["status"] for one in run("db", "init", "-o", "json").json()["indexes"]
    }
    assert shown[LEDGER_UNIQUE.name] == "shown_again"
    assert set(shown.values()) == {"exists", "shown_again"}
    assert stores.indexes.guards(LEDGER_UNIQUE)


def test_a_collections_own_collation_is_not_inherited(stores: Stores, documents: Documents) -> None:
    documents.create_collection("ledger", collation={"locale": "en", "strength": 2})
    build_indexes(stores)
    assert stores.indexes.guards(LEDGER_UNIQUE)
    documents.ledger.insert_one(make_row("AbC", "refund", _id="a"))
    documents.ledger.insert_one(make_row("aBc", "refund", _id="b"))


def test_an_index_is_no_guard_while_it_is_being_built(stores: Stores, documents: Documents) -> None:
    documents.ledger.insert_one(make_row("job-1"))
    admin = documents.client.admin
    admin.command("configureFailPoint", "hangAfterStartingIndexBuild", mode="alwaysOn")
    building = threading.Thread(target=stores.indexes.build, args=(LEDGER_UNIQUE,))
    building.start()
    try:
        deadline = time.monotonic() + 20
        while not stores.indexes.present("ledger")[1:]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not stores.indexes.guards(LEDGER_UNIQUE)
    finally:
        admin.command("configureFailPoint", "hangAfterStartingIndexBuild", mode="off")
        building.join()
    assert stores.indexes.guards(LEDGER_UNIQUE)


def test_every_index_of_ours_does_its_own_job(stores: Stores) -> None:
    build_indexes(stores)
    assert all(stores.indexes.guards(one) for one in INDEXES)
    assert not stores.indexes.guards(Index("ledger", ("reason",)))
