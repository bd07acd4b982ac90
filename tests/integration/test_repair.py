"""`ledger repair` and `ledger correct`: what the rows prove is put right, once, and nothing else."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Int64, ObjectId
from pymongo import MongoClient

from tests.builders import NOON, make_job, make_row
from tests.conftest import Documents, Invoker, Run, Runner
from tests.planted import FAULTS, RECLAIMED, REFUNDED, plant

Client = MongoClient[dict[str, Any]]

REPAIR = ("ledger", "repair", "--yes", "-o", "json")


def everything(documents: Documents) -> dict[str, list[dict[str, Any]]]:
    """Every document of the three collections that money and messages stand in."""
    return {
        name: sorted(documents[name].find(), key=lambda one: str(one["_id"]))
        for name in ("jobs", "ledger", "outbox")
    }


def net(documents: Documents, job_id: Any = "job-1") -> int:
    return sum(int(row["amount"]) for row in documents.ledger.find({"job_id": job_id}))


def correct(job_id: str, *more: str) -> tuple[str, ...]:
    return ("ledger", "correct", job_id, "--reason", "ticket 1", "--yes", "-o", "json", *more)


def test_a_lost_refund_is_appended_under_its_own_id_dated_by_the_flag_with_its_message(
    invoke: Invoker, documents: Documents
) -> None:
    invoke("db", "init")
    documents.jobs.insert_one(make_job(**REFUNDED))
    documents.ledger.insert_one(make_row())
    done = invoke(*REPAIR, "--reason", "lost in the outage")
    assert (done.code, done.json()["repaired"], done.json()["left"]) == (0, 1, [])
    row = documents.ledger.find_one({"type": "refund"})
    assert row is not None
    assert (row["_id"], row["amount"], row["created_at"]) == ("job-1:refund", 40, NOON)
    assert row["recorded_at"] > NOON
    assert row["reason"] == "lost in the outage"
    assert row["operation_id"] == done.json()["operation_id"]
    assert [one["_id"] for one in documents.outbox.find()] == ["job-1:refund"]


def test_every_repairable_fault_is_healed_and_the_rest_stays_as_it_was(
    invoke: Invoker, documents: Documents
) -> None:
    plant(lambda name, found: documents[name].insert_many(found), FAULTS)
    before = everything(documents)
    done = invoke(*REPAIR)
    left = done.json()["left"]
    # A job that lacked its charge row, or whose fault no row proves, is left and named.
    repairable = [one for fault in FAULTS for one in fault.said if one[2]]
    assert done.json()["repaired"] == len(repairable)
    assert not [one for one in left if one["repairable"]]
    fixed = {fault.name for fault in FAULTS if any(said[2] for said in fault.said)}
    after = everything(documents)
    unchanged = [one for one in before["jobs"] if one["_id"] not in fixed]
    assert [one for one in after["jobs"] if one["_id"] not in fixed] == unchanged
    assert all(row in after["ledger"] for row in before["ledger"])
    appended = [row for row in after["ledger"] if row not in before["ledger"]]
    assert {row["_id"] for row in appended} == {
        "lost-refund:refund", "lost-reclaim:reclaim", "lost-both:refund", "lost-both:reclaim",
    }  # fmt: skip
    again = invoke(*REPAIR).json()
    assert (again["repaired"], again["left"]) == (0, left)
    assert everything(documents) == after


def test_nothing_younger_than_the_grace_is_touched(invoke: Invoker, documents: Documents) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    documents.jobs.insert_one(make_job(is_refunded=True, refunded_at=now, status="failed"))
    documents.ledger.insert_one(make_row())
    before = everything(documents)
    young = invoke(*REPAIR)
    assert (young.code, young.json()["repaired"], young.json()["skipped"]) == (0, 0, 1)
    assert [one["code"] for one in young.json()["left"]] == ["missing_row"]
    assert everything(documents) == before
    assert invoke(*REPAIR, "--grace", "0s").json()["repaired"] == 1


def test_a_flag_without_a_time_makes_a_row_of_now_and_that_is_said(
    invoke: Invoker, documents: Documents
) -> None:
    invoke("db", "init")
    documents.jobs.insert_one(make_job(is_refunded=True, status="failed"))
    documents.ledger.insert_one(make_row())
    done = invoke(*REPAIR).json()
    assert done["left"] == []  # the row is what dates the flag
    assert any("dated now" in note and "job-1:refund" in note for note in done["notes"])
    row = documents.ledger.find_one({"_id": "job-1:refund"})
    job = documents.jobs.find_one()
    assert row is not None
    assert job is not None
    assert row["created_at"].year >= 2026
    assert job["refunded_at"] == row["created_at"]


def test_without_the_unique_index_it_says_what_it_relies_on(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job(**REFUNDED))
    documents.ledger.insert_one(make_row())
    done = invoke(*REPAIR).json()
    assert done["repaired"] == 1
    assert any("no unique index" in note for note in done["notes"])


def test_a_dry_run_writes_nothing_and_shows_each_step(
    invoke: Invoker, documents: Documents
) -> None:
    plant(lambda name, found: documents[name].insert_many(found), FAULTS)
    before = everything(documents)
    plan = invoke("ledger", "repair", "--dry-run", "-o", "json")
    assert plan.code == 0
    assert everything(documents) == before
    assert "operator_log" not in documents.list_collection_names()
    item = next(one for one in plan.json()["items"] if one["job_id"] == "lost-refund")
    assert (item["action"], item["row_type"], item["ripe"]) == ("append_row", "refund", True)


def test_it_asks_first_and_holds_the_selection_to_expect(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job(**REFUNDED))
    documents.ledger.insert_one(make_row())
    assert invoke("ledger", "repair").code == 2
    assert invoke("ledger", "repair", "--yes", "--expect", "2").code == 3
    assert net(documents) == -40
    assert invoke("ledger", "repair", "--yes", "--expect", "1").code == 0
    assert net(documents) == 0


def test_codes_and_a_job_choose_what_is_healed(invoke: Invoker, documents: Documents) -> None:
    documents.jobs.insert_many([make_job(one, **REFUNDED) for one in ("a", "b")])
    documents.jobs.insert_one(make_job("c", is_refunded=None))
    documents.ledger.insert_many([make_row(one) for one in ("a", "b", "c")])
    assert invoke(*REPAIR, "--job", "a").json()["repaired"] == 1
    assert net(documents, "b") == -40
    assert invoke(*REPAIR, "--code", "flags_missing").json()["repaired"] == 1
    assert net(documents, "b") == -40
    assert invoke(*REPAIR, "--job", "no-such-job").code == 4


def test_never_a_charge(invoke: Invoker, documents: Documents) -> None:
    documents.jobs.insert_one(make_job(**REFUNDED))
    before = everything(documents)
    done = invoke(*REPAIR).json()
    assert done["repaired"] == 0
    assert {one["code"] for one in done["left"]} == {"missing_charge", "missing_row"}
    assert everything(documents) == before


def test_a_foreign_row_under_the_id_is_refused_and_stays(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job(**REFUNDED))
    documents.ledger.insert_many([make_row(), make_row("other", "refund", _id="job-1:refund")])
    before = everything(documents)
    done = invoke(*REPAIR, "--job", "job-1")
    assert done.code == 3
    assert "conflict" in done.json()["refused"][0]
    assert everything(documents) == before


def test_a_missing_message_of_a_grant_is_put(invoke: Invoker, documents: Documents) -> None:
    grant = {
        "_id": "grant:1",
        "account_id": "acct-1",
        "type": "grant",
        "amount": 5,
        "created_at": NOON,
    }
    documents.ledger.insert_one(grant | {"operation_id": "op-1"})
    assert invoke(*REPAIR).json()["repaired"] == 1
    message = documents.outbox.find_one()
    assert message is not None
    assert (message["_id"], message["payload"]["amount"]) == ("grant:1", 5)


@pytest.mark.parametrize("indexed", [True, False])
def test_two_repairs_and_a_go_style_worker_at_once_append_one_row(
    invoke: Invoker, run: Runner, documents: Documents, indexed: bool
) -> None:
    """The worker flips the flag, waits, and inserts its row under an id of its own."""
    if indexed:
        invoke("db", "init")
    old = [f"old-{number}" for number in range(20)]
    documents.jobs.insert_many([make_job(one, **REFUNDED) for one in old])
    documents.ledger.insert_many([make_row(one) for one in old])
    live = [f"live-{number}" for number in range(40)]
    documents.jobs.insert_many([make_job(one, status="failed") for one in live])
    documents.ledger.insert_many([make_row(one) for one in live])

    def worker() -> None:
        for job_id in live:
            now = datetime.now(UTC)
            flip = {"$set": {"is_refunded": True, "refunded_at": now}}
            changed = documents.jobs.update_one({"_id": job_id, "is_refunded": False}, flip)
            assert changed.modified_count == 1
            threading.Event().wait(0.05)
            documents.ledger.insert_one(make_row(job_id, "refund", _id=ObjectId(), created_at=now))

    outcomes = together(worker, lambda: run(*REPAIR), lambda: run(*REPAIR))
    runs = [one for one in outcomes if isinstance(one, Run)]
    assert [one.code for one in runs] == [0, 0]
    for job_id in old + live:
        assert documents.ledger.count_documents({"job_id": job_id, "type": "refund"}) == 1
    assert sum(one.json()["repaired"] for one in runs) == len(old)
    assert invoke("ledger", "audit").code == 0


def test_two_repairs_on_a_standalone_server_append_one_row(
    run_standalone: Runner, standalone_client: Client, database: str
) -> None:
    documents = standalone_client[database]
    jobs = [f"job-{number}" for number in range(30)]
    documents.jobs.insert_many([make_job(one, **RECLAIMED) for one in jobs])
    documents.ledger.insert_many([make_row(one) for one in jobs])
    runs = together(*[lambda: run_standalone(*REPAIR)] * 3)
    assert [one.code for one in runs if isinstance(one, Run)] == [0, 0, 0]
    assert [net(documents, one) for one in jobs] == [-40] * 30
    assert documents.ledger.count_documents({}) == 90
    assert documents.outbox.count_documents({}) == 60


def together(*actions: Callable[[], Any]) -> list[Any]:
    """Run these at once and return what each returned."""
    results: list[Any] = [None] * len(actions)

    def act(at: int) -> None:
        results[at] = actions[at]()

    threads = [threading.Thread(target=act, args=(at,)) for at in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# corrections


def test_a_double_refund_is_corrected_by_one_row_and_alarms_nobody_afterwards(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job(**REFUNDED))
    documents.ledger.insert_many(
        [make_row(), make_row(row_type="refund"), make_row(row_type="refund", _id="twice")]
    )
    before = everything(documents)
    done = invoke(*correct("job-1"))
    assert done.code == 0
    result = done.json()
    assert (result["outcome"], result["amount"], result["row_id"]) == ("applied", -40, "job-1:correction:1")  # fmt: skip
    row = documents.ledger.find_one({"_id": "job-1:correction:1"})
    assert row is not None
    assert (row["type"], row["amount"], row["reason"], row["account_id"]) == ("correction", -40, "ticket 1", "acct-1")  # fmt: skip
    assert documents.outbox.find_one({"_id": row["_id"]}) is not None
    assert everything(documents)["jobs"] == before["jobs"]
    assert len(everything(documents)["ledger"]) == len(before["ledger"]) + 1
    audit = invoke("ledger", "audit", "-o", "json")
    assert audit.code == 0
    assert [(one["code"], one["effect"]) for one in audit.json()["findings"]] == [
        ("duplicate_row", 0)
    ]
    again = invoke(*correct("job-1")).json()
    assert (again["outcome"], again["amount"], again["row_id"]) == ("already_right", None, None)


@pytest.mark.parametrize(
    ("job", "rows", "amount"),
    [
        (REFUNDED, [("charge", -40), ("refund", 7)], 33),
        (REFUNDED, [("charge", -40), ("refund", 100)], -60),
        (REFUNDED, [("charge", -40), ("refund", -40)], 80),
        (RECLAIMED, [("charge", -40), ("refund", 40), ("reclaim", -50)], 10),
        ({}, [("charge", 40)], -80),
        ({}, [("charge", -40), ("charge", -40)], 40),
        (REFUNDED, [("charge", -40), ("refund", "forty")], 40),
    ],
)
def test_a_correction_brings_the_job_to_its_right_net(
    invoke: Invoker, documents: Documents, job: dict[str, Any], rows: list[Any], amount: int
) -> None:
    documents.jobs.insert_one(make_job(**job))
    for number, (row_type, value) in enumerate(rows):
        documents.ledger.insert_one(make_row(row_type=row_type, amount=value, _id=f"row-{number}"))
    assert invoke(*correct("job-1")).json()["amount"] == amount
    page = invoke("job", "show", "job-1", "-o", "json").json()
    assert page["net"] == page["expected_net"]
    assert invoke(*correct("job-1")).json()["outcome"] == "already_right"


def test_a_right_job_gets_no_correction(invoke: Invoker, documents: Documents) -> None:
    documents.jobs.insert_one(make_job(**RECLAIMED))
    documents.ledger.insert_many(
        [make_row(row_type=one) for one in ("charge", "refund", "reclaim")]
    )
    before = everything(documents)
    done = invoke(*correct("job-1"))
    assert (done.code, done.json()["outcome"]) == (0, "already_right")
    assert everything(documents) == before


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        ({"is_refunded": "yes"}, "bad_flags"),
        ({"is_reclaimed": True}, "corrupt"),
    ],
)
def test_bad_and_corrupt_flags_are_refused(
    invoke: Invoker, documents: Documents, job: dict[str, Any], outcome: str
) -> None:
    documents.jobs.insert_one(make_job(**job))
    documents.ledger.insert_many([make_row(), make_row(_id="twice")])
    before = everything(documents)
    done = invoke(*correct("job-1"))
    assert (done.code, done.json()["outcome"]) == (3, outcome)
    assert everything(documents) == before
    assert invoke(*correct("job-typo")).code == 4


def test_nothing_is_corrected_where_the_net_is_right_whatever_the_flags_still_lack(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_many(
        [make_row(), make_row(row_type="refund"), make_row(row_type="reclaim")]
    )
    before = everything(documents)
    done = invoke(*correct("job-1"))
    assert (done.code, done.json()["outcome"]) == (0, "already_right")
    assert everything(documents) == before


def test_a_correction_of_an_id_of_two_types_is_refused_naming_both(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_many([make_job("42"), make_job(42)])
    done = invoke(*correct("42"))
    assert done.code == 3
    assert "integer and string" in done.json()["detail"]


def test_a_lost_row_is_left_to_the_repair_so_that_nobody_is_paid_twice(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job(**REFUNDED))
    documents.ledger.insert_one(make_row())
    done = invoke(*correct("job-1"))
    assert (done.code, done.json()["outcome"]) == (3, "repair_first")
    invoke(*REPAIR)
    assert invoke(*correct("job-1")).json()["outcome"] == "already_right"
    assert net(documents) == 0


def test_a_correction_wants_a_reason_and_a_yes(invoke: Invoker, documents: Documents) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_many([make_row(), make_row(_id="twice")])
    assert invoke("ledger", "correct", "job-1", "--yes").code == 2
    assert invoke("ledger", "correct", "job-1", "--reason", "x").code == 2
    planned = invoke(
        "ledger", "correct", "job-1", "--reason", "x", "--dry-run", "-o", "json"
    ).json()
    assert planned["amount"] == 40
    assert documents.ledger.count_documents({}) == 2


@pytest.fixture(params=["replica set", "standalone"])
def either(
    run: Runner,
    run_standalone: Runner,
    client: Client,
    standalone_client: Client,
    database: str,
    request: pytest.FixtureRequest,
) -> tuple[Runner, Documents]:
    """The program and the documents of one server, and then of the other."""
    if request.param == "replica set":
        return run, client[database]
    return run_standalone, standalone_client[database]


def test_many_corrections_at_once_write_one_row(
    either: tuple[Runner, Documents],
) -> None:
    runner, documents = either
    documents.jobs.insert_one(make_job(**REFUNDED))
    documents.ledger.insert_many(
        [make_row(), make_row(row_type="refund"), make_row(row_type="refund", _id="twice")]
    )
    runs = together(*[lambda: runner(*correct("job-1"))] * 6)
    outcomes = sorted(one.json()["outcome"] for one in runs)
    assert outcomes == ["already_right"] * 5 + ["applied"]
    assert net(documents) == 0


def test_a_second_mistake_gets_a_second_correction(invoke: Invoker, documents: Documents) -> None:
    documents.jobs.insert_one(make_job(**REFUNDED))
    documents.ledger.insert_many(
        [make_row(), make_row(row_type="refund"), make_row(row_type="refund", _id="twice")]
    )
    invoke(*correct("job-1"))
    documents.ledger.insert_one(
        make_row(row_type="refund", _id="thrice", created_at=NOON + timedelta(1))
    )
    second = invoke(*correct("job-1")).json()
    assert (second["amount"], second["row_id"]) == (-40, "job-1:correction:2")
    assert net(documents) == 0


def test_a_foreign_row_under_a_corrections_id_is_a_conflict(
    either: tuple[Runner, Documents],
) -> None:
    runner, documents = either
    documents.jobs.insert_one(make_job(**REFUNDED))
    foreign = make_row("job-9", "grant", _id="job-1:correction:1", amount=Int64(7))
    documents.ledger.insert_many(
        [make_row(), make_row(row_type="refund"), make_row(row_type="refund", _id="twice"), foreign]
    )
    before = everything(documents)
    done = runner(*correct("job-1"))
    assert (done.code, done.json()["outcome"]) == (3, "conflict")
    assert everything(documents)["ledger"] == before["ledger"]


@pytest.mark.parametrize("row_type", ["refund", "reclaim"])
def test_a_row_of_nothing_whose_flag_is_clear_puts_no_account_off(
    invoke: Invoker, documents: Documents, row_type: str
) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_many(
        [make_row(), make_row(row_type=row_type, _id="foreign", amount=Int64(0))]
    )
    found = invoke("ledger", "audit", "-o", "json").json()["findings"]
    assert {one["code"]: one["effect"] for one in found} == {"unflagged_row": 0, "wrong_amount": 0}
    assert invoke(*correct("job-1")).json()["outcome"] == "already_right"
