"""The guarded steps on a replica set and on a standalone server: one row, one message, or none."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from threading import Barrier
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId

from ledgerctl.domain.jobs import Outcome, Step, StepResult
from ledgerctl.operations import steps
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.steps import grant
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_job, make_row, without

OPERATION = "op-1"


@pytest.fixture(params=["replica set", "standalone"])
def deployment(request: pytest.FixtureRequest) -> Stores:
    """The stores on each kind of server, with the indexes built."""
    name = "stores" if request.param == "replica set" else "standalone_stores"
    opened: Stores = request.getfixturevalue(name)
    build_indexes(opened)
    return opened


def put(stores: Stores, *, jobs: list[Any] = [], rows: list[Any] = []) -> None:  # noqa: B006  # read only
    """Write documents as a foreign writer does."""
    for document in jobs:
        stores.mongo.collection("jobs").insert_one(document)
    for document in rows:
        stores.mongo.collection("ledger").insert_one(document)


def everything(stores: Stores) -> dict[str, list[Any]]:
    """Every document of the money collections, in id order."""
    return {
        name: sorted(stores.mongo.collection(name).find(), key=lambda one: str(one["_id"]))
        for name in ("jobs", "ledger", "outbox")
    }


def row_ids(stores: Stores) -> list[str]:
    return [row["_id"] for row in everything(stores)["ledger"]]


def message_ids(stores: Stores) -> list[str]:
    return [message["_id"] for message in everything(stores)["outbox"]]


def refund(stores: Stores, job: str = "job-1", **options: Any) -> StepResult:
    return steps.refund(stores, job, operation_id=token_hex(8), **options)


def reclaim(stores: Stores, job: str = "job-1", **options: Any) -> StepResult:
    return steps.reclaim(stores, job, operation_id=token_hex(8), **options)


def charge(
    stores: Stores, job: str = "job-1", account: str = "acct-1", cost: int = 40
) -> StepResult:
    return steps.charge(stores, job, account=account, cost=cost, operation_id=OPERATION)


# the path of a job


def test_charge_refund_reclaim_leave_three_rows_and_three_messages(deployment: Stores) -> None:
    outcomes = [step(deployment).outcome for step in (charge, refund, reclaim)]
    assert outcomes == [Outcome.APPLIED] * 3
    assert row_ids(deployment) == ["job-1:charge", "job-1:reclaim", "job-1:refund"]
    assert message_ids(deployment) == row_ids(deployment)
    amounts = {row["type"]: row["amount"] for row in everything(deployment)["ledger"]}
    assert amounts == {"charge": -40, "refund": 40, "reclaim": -40}


def test_a_message_carries_its_row(deployment: Stores) -> None:
    charge(deployment)
    (message,), (row,) = everything(deployment)["outbox"], everything(deployment)["ledger"]
    assert message["message_key"] == message["_id"] == row["_id"] == "job-1:charge"
    assert (message["tenant_id"], message["topic"]) == ("acct-1", "ledger.appended")
    assert message["payload"] == {
        "row_id": "job-1:charge",
        "job_id": "job-1",
        "account_id": "acct-1",
        "type": "charge",
        "amount": -40,
        "created_at": row["created_at"],
    }


def test_rows_written_here_say_when_and_by_which_operation(deployment: Stores) -> None:
    charge(deployment)
    (row,) = everything(deployment)["ledger"]
    assert row["operation_id"] == OPERATION
    assert row["recorded_at"] == row["created_at"]


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        (charge, Outcome.ALREADY_CHARGED),
        (refund, Outcome.ALREADY_REFUNDED),
        (reclaim, Outcome.ALREADY_RECLAIMED),
    ],
)
def test_a_repeated_step_changes_nothing(
    deployment: Stores, step: Callable[[Stores], StepResult], outcome: Outcome
) -> None:
    for one in (charge, refund, reclaim):
        one(deployment)
    before = everything(deployment)
    result = step(deployment)
    assert (result.outcome, result.applied) == (outcome, False)
    assert result.row_id is not None
    assert result.at is not None
    assert everything(deployment) == before


def test_reclaim_of_a_job_that_was_never_refunded_does_nothing(deployment: Stores) -> None:
    charge(deployment)
    before = everything(deployment)
    assert [reclaim(deployment).outcome for _ in range(5)] == [Outcome.NEVER_REFUNDED] * 5
    assert everything(deployment) == before


# absent flags, foreign documents, every id and number type


@pytest.mark.parametrize("flags", [{}, {"is_refunded": None, "is_reclaimed": None}])
def test_an_absent_or_null_flag_counts_as_false(deployment: Stores, flags: dict[str, None]) -> None:
    job = without(make_job(), "is_refunded", "is_reclaimed") | flags
    put(deployment, jobs=[job], rows=[make_row()])
    assert refund(deployment).outcome is Outcome.APPLIED
    assert refund(deployment).outcome is Outcome.ALREADY_REFUNDED
    assert reclaim(deployment).outcome is Outcome.APPLIED


@pytest.mark.parametrize("flag", ["false", 0, 1, "true", [], {}])
def test_a_flag_of_another_type_is_refused(deployment: Stores, flag: Any) -> None:
    put(deployment, jobs=[make_job(is_refunded=flag)], rows=[make_row()])
    before = everything(deployment)
    assert refund(deployment).outcome is Outcome.BAD_FLAGS
    assert reclaim(deployment).outcome is Outcome.BAD_FLAGS
    assert everything(deployment) == before


def test_reclaimed_without_refunded_is_corrupt(deployment: Stores) -> None:
    put(deployment, jobs=[make_job(is_reclaimed=True)], rows=[make_row()])
    assert refund(deployment).outcome is Outcome.CORRUPT
    assert reclaim(deployment).outcome is Outcome.CORRUPT


@pytest.mark.parametrize("stored", [ObjectId(), Int64(4217), 42])
def test_an_id_given_as_text_finds_its_type_and_new_rows_keep_it(
    deployment: Stores, stored: Any
) -> None:
    put(deployment, jobs=[make_job(stored)], rows=[make_row(stored)])
    assert refund(deployment, str(stored)).outcome is Outcome.APPLIED
    rows = everything(deployment)["ledger"]
    assert [row["job_id"] for row in rows] == [stored, stored]
    assert f"{stored}:refund" in row_ids(deployment)


def test_a_text_that_two_jobs_answer_to_is_refused_naming_both_types(deployment: Stores) -> None:
    put(deployment, jobs=[make_job("42"), make_job(42)], rows=[make_row("42")])
    result = refund(deployment, "42")
    assert result.outcome is Outcome.CONFLICT
    assert "integer" in result.detail
    assert "string" in result.detail


def test_a_charge_row_that_spells_the_job_in_another_type_is_found(deployment: Stores) -> None:
    job = ObjectId()
    put(deployment, jobs=[make_job(job)], rows=[make_row(str(job), _id=1)])
    assert refund(deployment, str(job)).outcome is Outcome.APPLIED


@pytest.mark.parametrize("amount", [-40.0, Decimal128("-40"), Decimal128("-4E1"), -40])
def test_a_whole_charge_of_any_number_type_is_refunded_exactly(
    deployment: Stores, amount: Any
) -> None:
    put(deployment, jobs=[make_job()], rows=[make_row(amount=amount)])
    assert refund(deployment).amount == 40


@pytest.mark.parametrize("amount", [-40.5, "-40", None, float("nan"), 40, Decimal128("-0.1")])
def test_a_charge_that_is_not_a_whole_number_below_zero_pins_nothing(
    deployment: Stores, amount: Any
) -> None:
    put(deployment, jobs=[make_job()], rows=[make_row(amount=amount)])
    before = repr(everything(deployment))  # NaN equals nothing, its spelling does
    assert refund(deployment).outcome is Outcome.BAD_COST
    assert repr(everything(deployment)) == before


def test_the_amount_is_the_charge_rows_whatever_the_cost_says_now(deployment: Stores) -> None:
    put(deployment, jobs=[make_job(cost=60)], rows=[make_row()])
    assert refund(deployment).amount == 40
    deployment.mongo.collection("jobs").update_one({"_id": "job-1"}, {"$set": {"cost": 10}})
    assert reclaim(deployment).amount == -40


def test_a_zero_charge_is_refunded_by_a_zero_row(deployment: Stores) -> None:
    put(deployment, jobs=[make_job(cost=0)], rows=[make_row(amount=0)])
    assert (refund(deployment).outcome, refund(deployment).amount) == (Outcome.APPLIED, 0)
    assert len(row_ids(deployment)) == 2


# refusals


def test_refusals_change_nothing(deployment: Stores) -> None:
    put(
        deployment,
        jobs=[
            make_job("no-charge"),
            without(make_job("no-account"), "account_id"),
            make_job("other-account"),
            make_job("succeeded", status="succeeded"),
            make_job("row-there"),
        ],
        rows=[
            without(make_row("no-account"), "account_id"),
            make_row("other-account", account_id="acct-2"),
            make_row("succeeded"),
            make_row("row-there"),
            make_row("row-there", "refund", amount=7),
        ],
    )
    before = everything(deployment)
    refused = {
        "no-charge": Outcome.NO_CHARGE,
        "no-account": Outcome.NO_ACCOUNT,
        "other-account": Outcome.CONFLICT,
        "succeeded": Outcome.JOB_SUCCEEDED,
        "row-there": Outcome.ROW_EXISTS,
        "nobody": Outcome.NOT_FOUND,
    }
    assert {job: refund(deployment, job).outcome for job in refused} == refused
    assert everything(deployment) == before


def test_two_charge_rows_are_a_conflict(deployment: Stores) -> None:
    deployment.mongo.collection("ledger").drop_indexes()
    put(deployment, jobs=[make_job()], rows=[make_row(), make_row(_id="again")])
    assert refund(deployment).outcome is Outcome.CONFLICT


def test_a_foreign_row_of_our_id_is_a_conflict_and_no_flag_moves(deployment: Stores) -> None:
    foreign = make_row("x", "grant", _id="job-1:refund")
    put(deployment, jobs=[make_job()], rows=[make_row(), foreign])
    before = everything(deployment)
    assert refund(deployment).outcome is Outcome.CONFLICT
    assert everything(deployment) == before


def test_a_foreign_row_of_a_charges_id_is_a_conflict_and_no_job_is_made(deployment: Stores) -> None:
    put(deployment, jobs=[], rows=[make_row("x", "grant", _id="job-1:charge")])
    before = everything(deployment)
    assert charge(deployment).outcome is Outcome.CONFLICT
    assert everything(deployment) == before


def test_a_dry_run_foresees_the_conflict_with_a_foreign_row(deployment: Stores) -> None:
    foreign = make_row("x", "grant", _id="job-1:refund")
    put(deployment, jobs=[make_job()], rows=[make_row(), foreign])
    planned = steps.preview(deployment, steps.StepRequest(Step.REFUND, "job-1", ""))
    assert planned.outcome is Outcome.CONFLICT


def test_force_refunds_a_job_that_succeeded(deployment: Stores) -> None:
    put(deployment, jobs=[make_job(status="succeeded")], rows=[make_row()])
    assert refund(deployment, force=True).outcome is Outcome.APPLIED


def test_a_running_job_may_be_refunded(deployment: Stores) -> None:
    put(deployment, jobs=[make_job(status="running")], rows=[make_row()])
    assert refund(deployment).outcome is Outcome.APPLIED


def test_a_reclaim_takes_a_balance_below_zero(deployment: Stores) -> None:
    charge(deployment)
    refund(deployment)
    assert reclaim(deployment).amount == -40


def test_charging_again_with_another_cost_or_account_is_a_conflict(deployment: Stores) -> None:
    charge(deployment)
    before = everything(deployment)
    assert charge(deployment, cost=41).outcome is Outcome.CONFLICT
    assert charge(deployment, account="acct-2").outcome is Outcome.CONFLICT
    assert everything(deployment) == before


# somebody died in between


def test_a_flag_without_its_row_is_completed_dated_by_the_flag(deployment: Stores) -> None:
    put(deployment, jobs=[make_job(is_refunded=True, refunded_at=NOON)], rows=[make_row()])
    result = refund(deployment)
    assert (result.outcome, result.applied, result.at) == (Outcome.COMPLETED, True, NOON)
    assert refund(deployment).outcome is Outcome.ALREADY_REFUNDED
    assert message_ids(deployment) == ["job-1:refund"]


def test_a_job_document_without_its_charge_row_is_completed(deployment: Stores) -> None:
    put(deployment, jobs=[make_job()])
    assert charge(deployment).outcome is Outcome.COMPLETED
    assert charge(deployment).outcome is Outcome.ALREADY_CHARGED


def test_without_the_unique_index_a_missing_row_is_refused_not_guessed(deployment: Stores) -> None:
    deployment.mongo.collection("ledger").drop_indexes()
    put(deployment, jobs=[make_job(is_refunded=True, refunded_at=NOON)], rows=[make_row()])
    before = everything(deployment)
    assert refund(deployment).outcome is Outcome.ROW_MISSING
    assert everything(deployment) == before


def test_a_wider_unique_index_protects_as_well(deployment: Stores) -> None:
    ledger = deployment.mongo.collection("ledger")
    ledger.drop_indexes()
    ledger.create_index([("job_id", 1), ("type", 1)], unique=True)
    put(deployment, jobs=[make_job(is_refunded=True, refunded_at=NOON)], rows=[make_row()])
    assert refund(deployment).outcome is Outcome.COMPLETED


def test_the_next_delivery_adds_a_missing_message_on_a_standalone(
    standalone_stores: Stores,
) -> None:
    build_indexes(standalone_stores)
    charge(standalone_stores)
    standalone_stores.mongo.collection("outbox").delete_many({})
    charge(standalone_stores)
    assert message_ids(standalone_stores) == ["job-1:charge"]


# races


def race(stores: Stores, calls: list[Callable[[Stores], StepResult]]) -> list[StepResult]:
    """Every call at the same instant, each in a thread of its own."""
    start = Barrier(len(calls))

    def run(call: Callable[[Stores], StepResult]) -> StepResult:
        start.wait()
        return call(stores)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_fifty_failure_signals_at_once_refund_once(deployment: Stores) -> None:
    charge(deployment)
    results = race(deployment, [refund] * 50)
    assert sum(result.applied for result in results) == 1
    assert {result.outcome for result in results if not result.applied} == {
        Outcome.ALREADY_REFUNDED
    }
    assert row_ids(deployment) == message_ids(deployment) == ["job-1:charge", "job-1:refund"]


def test_fifty_recovery_signals_at_once_reclaim_once(deployment: Stores) -> None:
    charge(deployment)
    refund(deployment)
    results = race(deployment, [reclaim] * 50)
    assert sum(result.applied for result in results) == 1
    assert len(row_ids(deployment)) == len(message_ids(deployment)) == 3


def test_a_refund_against_a_recovery_never_pays_twice(deployment: Stores) -> None:
    for number in range(20):
        job = f"job-{number}"
        charge(deployment, job)
        race(
            deployment,
            [lambda s, j=job: refund(s, j), lambda s, j=job: reclaim(s, j)] * 2,  # type: ignore[misc]
        )
        rows = [row for row in everything(deployment)["ledger"] if row["job_id"] == job]
        assert sum(row["amount"] for row in rows) in {-40, 0}
        assert reclaim(deployment, job).outcome in {
            Outcome.APPLIED,
            Outcome.ALREADY_RECLAIMED,
        }


# grants


def test_a_grant_is_given_once_for_each_key(deployment: Stores) -> None:
    def give(amount: int = 5, account: str = "acct-1") -> Outcome:
        return grant(deployment, account, amount, key="k", operation_id=OPERATION + account).outcome

    assert give() is Outcome.APPLIED
    assert grant(deployment, "acct-1", 5, key="k", operation_id="op-2").outcome is (
        Outcome.ALREADY_GRANTED
    )
    assert grant(deployment, "acct-1", 6, key="k", operation_id="op-3").outcome is Outcome.CONFLICT
    assert grant(deployment, "acct-2", 5, key="k", operation_id="op-4").outcome is Outcome.CONFLICT
    assert row_ids(deployment) == message_ids(deployment) == ["grant:k"]
