"""Corrections: one row that brings a job to its right net, however many operators try."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ledgerctl.domain.findings import Case
from ledgerctl.domain.repair import (
    CorrectionOutcome,
    CorrectionPlan,
    NoCorrection,
    decide_correction,
)
from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.domain.rows import NewRow, RowType
from ledgerctl.errors import InvariantBroken
from ledgerctl.operations.cases import load
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.ledger import Appended, Conflict, RowTaken

ROUNDS_MAX = 10  # each round lost means that another correction was written


@dataclass(frozen=True, slots=True)
class Correction:
    """Report what came of `correct`; amount and row are None where no row was written."""

    job_id: str
    outcome: CorrectionOutcome
    amount: int | None = None
    row_id: str | None = None
    net: int | None = None  # after it
    detail: str = ""

    @property
    def fate(self) -> Fate:
        """Class the outcome as a change's result counts it."""
        match self.outcome:
            case CorrectionOutcome.APPLIED:
                return Fate.DONE
            case CorrectionOutcome.ALREADY_RIGHT:
                return Fate.ALREADY
            case CorrectionOutcome.NOT_FOUND:
                return Fate.NOT_FOUND
            case _:
                return Fate.REFUSED

    @property
    def result(self) -> Result["Correction"]:
        """Give the result of a change that is this one correction."""
        return Result([self], {str(self.outcome): 1}, Counter({self.fate: 1}))


def preview(stores: Stores, job_id: str) -> Correction:
    """Return what `correct` would do, changing nothing."""
    text, case = look(stores, job_id)
    decision = decide_correction(case)
    return stopped(text, decision) if isinstance(decision, NoCorrection) else done(text, decision)


def correct(
    stores: Stores, job_id: str, *, operation_id: str, reason: str | None = None
) -> Correction:
    """Append the one correction row that brings the job to its right net; none when it is right.

    Two at once write one row: both number it alike, so the second meets the first one's id and
    looks again. Raises JobHeld, StoreUnavailable, OutcomeUnknown, NotPermitted.
    """
    for _ in range(ROUNDS_MAX):
        result = attempt(stores, job_id, operation_id, reason)
        if result is not None:
            return result
    raise InvariantBroken(f"the corrections of job {job_id} kept changing")


def apply(stores: Stores, job_id: str, run: Run[Correction]) -> None:
    """Correct one job as part of a run."""
    done = correct(stores, job_id, operation_id=run.operation_id, reason=run.reason)
    run.result.items.append(done)
    run.result.count(str(done.outcome), fate=done.fate)


def attempt(
    stores: Stores, job_id: str, operation_id: str, reason: str | None
) -> Correction | None:
    """Try once; None when another correction was written meanwhile, so look again."""
    text, _ = look(stores, job_id)
    taken: list[NewRow] = []

    def body(session: Any) -> Correction:
        taken.clear()
        case = load(stores, [text], session=session)[0]
        decision = decide_correction(case)
        if isinstance(decision, NoCorrection):
            if not stores.mongo.transactions:
                tell(stores, case)
            return stopped(text, decision)
        row = new_row(stores, decision, operation_id, reason)
        taken.append(row)
        stores.ledger.append([row], session)
        return done(text, decision)

    try:
        if stores.mongo.transactions:
            return stores.mongo.transaction(f"correct job {text}", body)
        return body(None)
    except RowTaken:
        return compared(stores, text, taken[0])


def tell(stores: Stores, case: Case) -> None:
    """Put the message of a correction that a run without transactions left untold."""
    for row in case.rows:
        if row.type == RowType.CORRECTION and row.id.text in case.unmessaged:
            stores.outbox.add([row])


def compared(stores: Stores, text: str, row: NewRow) -> Correction | None:
    """Return the result of a correction whose id is used; None after another operator's."""
    match stores.ledger.resolve(row):
        case Appended():
            return Correction(text, CorrectionOutcome.APPLIED, row.amount, row.id)
        case Conflict(stored) if stored.type != RowType.CORRECTION or stored.job != row.job:
            detail = f"row id {row.id} is already used by a different row"
            return Correction(text, CorrectionOutcome.CONFLICT, row_id=row.id, detail=detail)
        case _:
            return None


def look(stores: Stores, job_id: str) -> tuple[str, Case]:
    """Return the job's id as it is stored, and everything under it."""
    found = stores.jobs.find(job_id)
    text = found[0].id.text if found else job_id
    return text, load(stores, [text])[0]


def new_row(
    stores: Stores, decision: CorrectionPlan, operation_id: str, reason: str | None
) -> NewRow:
    """Return the correction row, its identity and amount settled; it counts from now on."""
    now = stores.mongo.now()
    return NewRow(
        id=decision.row_id,
        job=decision.job.id,
        account=decision.account,
        type=RowType.CORRECTION,
        amount=decision.amount,
        created_at=now,
        recorded_at=now,
        operation_id=operation_id,
        reason=reason,
    )


def done(text: str, decision: CorrectionPlan) -> Correction:
    """Return the result of a correction that was, or would be, written."""
    return Correction(
        text,
        CorrectionOutcome.APPLIED,
        decision.amount,
        decision.row_id,
        decision.right,
        f"net {decision.net:+d} becomes {decision.right:+d}",
    )


def stopped(text: str, decision: NoCorrection) -> Correction:
    """Return the result of a correction that was not written."""
    return Correction(text, decision.outcome, detail=decision.detail)
