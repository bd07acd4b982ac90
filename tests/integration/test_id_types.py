"""Ids of every type: a UUID is one like any other, and an owner that is none is told everywhere."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Int64, ObjectId

from ledgerctl.domain.ids import Id, IdKind
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.codec import candidates, from_id, to_id
from ledgerctl.stores.connections import Stores
from tests.builders import make_job, make_letter, make_row
from tests.conftest import Documents, Invoker

NOW = datetime.now(UTC).replace(microsecond=0)
TODAY = NOW.date().isoformat()
TEXT = "aa0e8400-e29b-41d4-a716-446655440000"
JOB = Binary(bytes.fromhex(TEXT.replace("-", "")), 4)
OWNER_TEXT = "bb0e8400-e29b-41d4-a716-446655440000"
OWNER = Binary(bytes.fromhex(OWNER_TEXT.replace("-", "")), 4)
OLD_TEXT = "cc0e8400-e29b-41d4-a716-446655440000"
OLD = Binary(bytes.fromhex(OLD_TEXT.replace("-", "")), 3)

HEX = ObjectId("65f0aa00bb11cc22dd33ee55")

NO_IDS: dict[str, Any] = {
    '["acct-x","acct-y"]': ["acct-x", "acct-y"],
    '{"tenant":"t","n":[1,2.5]}': {"tenant": "t", "n": [1, 2.5]},
    "12.5": 12.5,
    "true": True,
}


@pytest.mark.parametrize(
    "value",
    ["a", HEX, Int64(7), JOB, OLD, *NO_IDS.values(), [], {}, [HEX], {"a": OLD}],
    ids=str,
)
def test_an_id_is_found_by_the_text_that_it_prints(value: Any) -> None:
    identity = to_id(value)
    assert value in candidates(identity.text)
    assert from_id(identity) == value


@pytest.mark.parametrize("text", ['{"$gt":""}', '{"$regex":"."}', "[1", "{x}", "7.0", "[" * 5000])
def test_text_that_spells_no_value_stays_text(text: str) -> None:
    assert candidates(text) == [text]


def test_a_uuid_is_its_bytes_in_their_order_in_small_characters() -> None:
    assert to_id(JOB) == Id(TEXT, IdKind.UUID)
    assert to_id(OLD) == Id(OLD_TEXT, IdKind.LEGACY_UUID)
    assert JOB in candidates(TEXT.upper())
    assert to_id(Binary(b"0123456789abcde", 4)).kind is IdKind.OTHER


@pytest.fixture
def uuids(documents: Documents, stores: Stores) -> Documents:
    """A job and its charge under UUIDs, dated now."""
    build_indexes(stores)
    dated: dict[str, Any] = {"account_id": OWNER, "created_at": NOW}
    documents.jobs.insert_one(make_job(JOB, **dated))
    documents.ledger.insert_one(make_row(JOB, _id=f"{TEXT}:charge", **dated))
    return documents


@pytest.mark.parametrize("text", [TEXT, TEXT.upper()])
def test_a_uuid_job_goes_through_every_step_once(
    invoke: Invoker, uuids: Documents, text: str
) -> None:
    for step, outcome in (
        ("refund", "applied"),
        ("refund", "already_refunded"),
        ("reclaim", "applied"),
        ("reclaim", "already_reclaimed"),
    ):
        result = invoke("job", step, text, "-o", "json").json()["results"][0]
        assert (result["job_id"], result["outcome"]) == (TEXT, outcome)
    rows = list(uuids.ledger.find({"type": {"$ne": "charge"}}))
    assert [(row["_id"], row["job_id"], row["account_id"]) for row in rows] == [
        (f"{TEXT}:refund", JOB, OWNER),
        (f"{TEXT}:reclaim", JOB, OWNER),
    ]
    assert invoke("ledger", "audit", "-o", "json").json()["findings"] == []
    shown = invoke("job", "show", text, "-o", "json").json()
    assert (shown["job_id"], shown["account_id"], shown["net"]) == (TEXT, OWNER_TEXT, -40)
    listed = invoke("job", "list", "--account", OWNER_TEXT, "-o", "json").json()["items"]
    assert [one["job_id"] for one in listed] == [TEXT]


def test_a_uuid_account_has_its_balance_and_its_line(invoke: Invoker, uuids: Documents) -> None:
    shown = invoke("balance", "show", OWNER_TEXT.upper(), "-o", "json").json()
    assert (shown["balance"], shown["jobs"]) == (-40, 1)
    listed = invoke("balance", "list", "-o", "json").json()["items"]
    assert [(one["account_id"], one["balance"]) for one in listed] == [(OWNER_TEXT, -40)]
    replayed = invoke("balance", "replay", OWNER_TEXT, "-o", "json").json()
    assert [row["job_id"] for row in replayed["rows"]] == [TEXT]
    assert invoke("balance", "explain", OWNER_TEXT).code == 0


def test_an_account_of_two_types_is_named_once_by_the_audit(
    invoke: Invoker, documents: Documents
) -> None:
    """Between rows, and between a row and a job's document; numbers that are equal are one type."""
    documents.jobs.insert_many(
        [make_job("a"), make_job("b", account_id=7), make_job("c", account_id="9"), make_job("d")]
    )
    documents.ledger.insert_many(
        [
            make_row("a"),
            make_row("b", account_id=7),
            make_row("c", account_id=9),
            make_row(None, "grant", _id="g", account_id="7", amount=5),
            make_row(None, "grant", _id="h", account_id=Int64(7), amount=5),
            make_row(None, "grant", _id="i", account_id=7.0, amount=5),
        ]
    )
    found = invoke("ledger", "audit", "--code", "mixed_id_types", "-o", "json").json()["findings"]
    assert sorted((one["job_id"], one["account_id"]) for one in found) == [(None, "7"), (None, "9")]
    assert "integer and as string" in found[0]["detail"]
    words = ("ledger", "audit", "--code", "mixed_id_types", "-o", "json")
    assert invoke(*words, "--account", "7").code == 5
    assert invoke(*words, "--account", "acct-1").code == 0
    assert invoke(*words, "--job", "b").code == 0


def test_a_dead_letter_of_a_uuid_job_is_judged_by_its_job(
    invoke: Invoker, uuids: Documents, redis_client: Any
) -> None:
    redis_client.rpush("jobs:dead-letter", make_letter(TEXT), make_letter(OLD_TEXT))
    listed = invoke("dead", "list", "-o", "json").json()["items"]
    assert [one["verdict"] for one in listed] == ["retryable", "unknown_job"]


def figures(documents: Documents) -> dict[str, tuple[Any, int]]:
    """Each summary's account, as stored, and its net."""
    return {one["_id"]: (one["account_id"], one["net"]) for one in documents.usage_daily.find()}


@pytest.mark.parametrize("by_text", [False, True])
def test_a_rebuild_writes_the_summary_of_a_uuid_account(
    invoke: Invoker, uuids: Documents, by_text: bool
) -> None:
    expected: dict[str, tuple[Any, int]] = {f"{OWNER_TEXT}:{TODAY}": (OWNER, 40)}
    if by_text:
        uuids.ledger.insert_one(make_row("job-1", created_at=NOW))
        expected[f"acct-1:{TODAY}"] = ("acct-1", 40)
    drifted = invoke("summary", "drift", "-o", "json")
    assert (drifted.code, len(drifted.json()["drifted"])) == (5, len(expected))
    done = invoke("summary", "rebuild", "-o", "json")
    assert (done.code, done.json()["days_written"], done.json()["refused"]) == (
        0,
        len(expected),
        [],
    )
    assert figures(uuids) == expected
    assert [one["jobs"] for one in uuids.usage_daily.find()] == [1] * len(expected)
    assert invoke("summary", "drift").code == 0
    assert invoke("summary", "show", OWNER_TEXT, "-o", "json").json()["days"][-1]["net"] == 40
    uuids.ledger.delete_many({})
    assert invoke("summary", "rebuild").code == 0
    assert {net for _, net in figures(uuids).values()} == {40}  # before the first row: left alone
    uuids.ledger.insert_one(make_row("job-9", created_at=NOW))
    assert invoke("summary", "rebuild", "-o", "json").json()["days_cleared"] == 1


def test_rows_that_hold_one_account_as_text_and_as_uuid_make_one_summary(
    invoke: Invoker, uuids: Documents
) -> None:
    uuids.ledger.insert_one(make_row("job-1", account_id=OWNER_TEXT, created_at=NOW))
    uuids.ledger.insert_one(make_row("job-2", account_id=Binary(bytes(OWNER), 3), created_at=NOW))
    for _ in range(2):
        assert invoke("summary", "rebuild", "--days", "1").code == 0
        assert {name: net for name, (_, net) in figures(uuids).items()} == {
            f"{OWNER_TEXT}:{TODAY}": 120
        }
    assert invoke("balance", "list", "-o", "json").json()["total"] == 1
    assert invoke("summary", "drift", "--days", "1", "-o", "json").json()["drifted"] == []


def test_a_consumer_writes_the_summary_of_a_uuid_account(invoke: Invoker, uuids: Documents) -> None:
    invoke("job", "refund", TEXT, "--reason", "x")
    done = invoke("inbox", "consume", "--group", "usage-daily", "--until-empty", "-o", "json")
    assert done.json()["succeeded"] == 1
    assert figures(uuids) == {f"{OWNER_TEXT}:{TODAY}": (OWNER, 0)}


@pytest.fixture(params=list(NO_IDS))
def odd_owner(request: pytest.FixtureRequest, documents: Documents, stores: Stores) -> str:
    """The text of an owner that is no id: a job and its charge bear it, dated now."""
    build_indexes(stores)
    dated: dict[str, Any] = {"account_id": NO_IDS[request.param], "created_at": NOW}
    documents.jobs.insert_one(make_job("job-1", **dated))
    documents.ledger.insert_one(make_row("job-1", **dated))
    documents.ledger.insert_one(make_row("job-2", created_at=NOW))
    return str(request.param)


def test_an_owner_that_is_no_id_is_one_account_found_by_its_text_alone(
    invoke: Invoker, odd_owner: str, documents: Documents
) -> None:
    shown = invoke("balance", "show", odd_owner, "-o", "json").json()
    assert (shown["account_id"], shown["balance"], shown["jobs"]) == (odd_owner, -40, 1)
    for inside in ("acct-x", "acct-y", "t", "12"):
        assert invoke("balance", "show", inside).code == 4, inside
        assert invoke("job", "list", "--account", inside, "-o", "json").json()["items"] == []
    listed = invoke("balance", "list", "-o", "json").json()["items"]
    assert {one["account_id"]: one["balance"] for one in listed} == {odd_owner: -40, "acct-1": -40}
    replayed = invoke("balance", "replay", odd_owner, "-o", "json").json()
    assert [row["job_id"] for row in replayed["rows"]] == ["job-1"]
    assert invoke("job", "refund", "job-1").code == 0
    row = documents.ledger.find_one({"_id": "job-1:refund"})
    assert row is not None
    assert row["account_id"] == NO_IDS[odd_owner]
    assert invoke("balance", "show", odd_owner, "-o", "json").json()["balance"] == 0


def test_an_owner_that_is_no_id_is_named_as_unsummarised(
    invoke: Invoker, odd_owner: str, documents: Documents
) -> None:
    for _ in range(2):
        done = invoke("summary", "rebuild", "-o", "json")
        assert (done.code, done.json()["refused"]) == (8, [odd_owner])
        assert [one["_id"] for one in documents.usage_daily.find()] == [f"acct-1:{TODAY}"]
    found = invoke("summary", "drift", "-o", "json")
    assert (found.code, found.json()["unsummarised"], found.json()["drifted"]) == (
        5,
        [odd_owner],
        [],
    )
    assert invoke("summary", "drift", "--account", "acct-1").code == 0
    assert invoke("summary", "drift", "--account", odd_owner).code == 5


def test_a_row_whose_job_id_is_a_list_is_no_row_of_the_jobs_in_it(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job("job-1"))
    documents.ledger.insert_one(make_row("job-1"))
    documents.ledger.insert_one(make_row(["job-1", "job-2"], "refund", _id="odd"))
    assert len(invoke("job", "show", "job-1", "-o", "json").json()["rows"]) == 1
    assert invoke("job", "refund", "job-1").code == 0
