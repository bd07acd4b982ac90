"""Wrong refunds and reclaims, each the product with one rule broken."""

import time
from typing import Any

from bson import ObjectId

from ledgerctl.domain.jobs import Outcome, Step, StepResult
from ledgerctl.domain.rows import RowType
from ledgerctl.stores.connections import Stores
from tests.builders import NOON

PAUSE_S = 0.02  # what a network or another process makes of the gap between two steps

FLAG = {Step.REFUND: "is_refunded", Step.RECLAIM: "is_reclaimed"}
SIGN = {Step.REFUND: -1, Step.RECLAIM: 1}


def outcome(job: str, step: Step, applied: bool) -> StepResult:
    already = Outcome.ALREADY_REFUNDED if step is Step.REFUND else Outcome.ALREADY_RECLAIMED
    return StepResult(job, step, Outcome.APPLIED if applied else already)


def row(job: str, step: Step, amount: int, row_id: Any) -> dict[str, Any]:
    row_type = RowType.REFUND if step is Step.REFUND else RowType.RECLAIM
    return {
        "_id": row_id,
        "job_id": job,
        "account_id": "acct-1",
        "type": str(row_type),
        "amount": amount,
        "created_at": NOON,
    }


def charged(stores: Stores, job: str) -> int:
    """The charge row's amount."""
    found = stores.mongo.collection("ledger").find_one({"job_id": job, "type": "charge"})
    return int(found["amount"]) if found else 0


def read_then_write(stores: Stores, job: str, step: Step, **_: Any) -> StepResult:
    """Reads the flag, decides, writes: two workers act on the same stale read."""
    jobs, ledger = stores.mongo.collection("jobs"), stores.mongo.collection("ledger")
    found = jobs.find_one({"_id": job}) or {}
    if found.get(FLAG[step]):
        return outcome(job, step, applied=False)
    time.sleep(PAUSE_S)
    jobs.update_one({"_id": job}, {"$set": {FLAG[step]: True}})
    ledger.insert_one(row(job, step, SIGN[step] * charged(stores, job), ObjectId()))
    return outcome(job, step, applied=True)


def amount_from_the_caller(
    stores: Stores, job: str, step: Step, reported: int = 0, **_: Any
) -> StepResult:
    """Takes the amount from the callback instead of the charge row."""
    return flip_then_append(stores, job, step, amount=reported or None)


def append_without_guard(stores: Stores, job: str, step: Step, **_: Any) -> StepResult:
    """Appends a row for each delivery, whatever the flag says."""
    stores.mongo.collection("jobs").update_one({"_id": job}, {"$set": {FLAG[step]: True}})
    amount = SIGN[step] * charged(stores, job)
    stores.mongo.collection("ledger").insert_one(row(job, step, amount, ObjectId()))
    return outcome(job, step, applied=True)


def lost_guard_stops(stores: Stores, job: str, step: Step, **_: Any) -> StepResult:
    """Takes a set flag for a written row: what a crash left half done stays so for ever."""
    return flip_then_append(stores, job, step)


def absent_flag_is_missed(stores: Stores, job: str, step: Step, **_: Any) -> StepResult:
    """Filters by `false` alone, which a document without the field never matches."""
    return flip_then_append(stores, job, step, clear=False)


def flip_then_append(
    stores: Stores, job: str, step: Step, *, amount: int | None = None, clear: Any = None
) -> StepResult:
    guard: dict[str, Any] = {"_id": job, FLAG[step]: {"$in": [False, None]}}
    if clear is not None:
        guard[FLAG[step]] = clear
    if step is Step.RECLAIM:
        guard["is_refunded"] = True
    changed = stores.mongo.collection("jobs").update_one(guard, {"$set": {FLAG[step]: True}})
    if changed.modified_count == 0:
        return outcome(job, step, applied=False)
    due = SIGN[step] * charged(stores, job) if amount is None else amount
    stores.mongo.collection("ledger").insert_one(row(job, step, due, f"{job}:{step}"))
    return outcome(job, step, applied=True)


def together_without_counting(stores: Stores, jobs: list[str]) -> None:
    """Marks several jobs in one transaction and appends a row for each, whoever was faster."""
    due = {job: -charged(stores, job) for job in jobs}

    def body(session: Any) -> None:
        stores.mongo.collection("jobs").update_many(
            {"_id": {"$in": jobs}, "is_refunded": False},
            {"$set": {"is_refunded": True}},
            session=session,
        )
        rows = [row(job, Step.REFUND, due[job], ObjectId()) for job in jobs]
        stores.mongo.collection("ledger").insert_many(rows, session=session)

    stores.mongo.transaction("refund several jobs", body)
