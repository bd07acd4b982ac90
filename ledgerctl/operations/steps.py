"""The guarded steps: charge, refund and reclaim of a job, each at most one row for ever."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import (
    ALREADY,
    Append,
    Decision,
    Flag,
    Job,
    Outcome,
    State,
    Step,
    StepResult,
    Stop,
    decide_charge,
    decide_reclaim,
    decide_refund,
    state,
)
from ledgerctl.domain.rows import NewRow, Row, RowType, row_id, same_row
from ledgerctl.errors import InvariantBroken, LedgerctlError, OutcomeUnknown, StoreUnavailable
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.jobs import Found, Guarded
from ledgerctl.stores.ledger import RowTaken
from ledgerctl.stores.mongo import PATIENCE_S, Conflicted
from ledgerctl.stores.step_writes import StepWrite

LOOK_AGAIN_S = 2.0  # how long a flag without its row may be somebody at work
LOOK_EVERY_S = 0.1
ROUNDS_MAX = 20  # a guard that keeps missing while its reason keeps vanishing is a bug

# May be a glimpse between two writes of somebody at work: believed when seen twice.
PASSING = frozenset({Outcome.ROW_EXISTS, Outcome.NO_CHARGE})

ALREADY_OF = {
    Step.CHARGE: Outcome.ALREADY_CHARGED,
    Step.REFUND: Outcome.ALREADY_REFUNDED,
    Step.RECLAIM: Outcome.ALREADY_RECLAIMED,
}
TYPE_OF = {
    Step.CHARGE: RowType.CHARGE,
    Step.REFUND: RowType.REFUND,
    Step.RECLAIM: RowType.RECLAIM,
}


@dataclass(frozen=True, slots=True)
class Request:
    """One guarded step as asked for; rows carry the operation id and the reason."""

    step: Step
    job_id: str
    operation_id: str
    reason: str | None = None
    force: bool = False  # refund a job that succeeded
    account: Id | None = None  # charge only
    cost: int | None = None  # charge only, whole credits ≥ 1


def refund(stores: Stores, job_id: str, *, operation_id: str, **options: Any) -> StepResult:
    """Give a failed job's charge back, at most once; a repeat says so and changes nothing.

    The amount is the charge row's, never what anyone reports. Options: `reason`, `force`.
    Raises JobHeld, StoreUnavailable, OutcomeUnknown, NotPermitted. Source: domain, section 3.
    """
    return take(stores, Request(Step.REFUND, job_id, operation_id, **options))


def reclaim(stores: Stores, job_id: str, *, operation_id: str, **options: Any) -> StepResult:
    """Take a refund back after the job succeeded, at most once; harmless when never refunded.

    Call it unconditionally on success. Options: `reason`. Raises as `refund` does.
    """
    return take(stores, Request(Step.RECLAIM, job_id, operation_id, **options))


def charge(
    stores: Stores, job_id: str, *, account: str, cost: int, operation_id: str, **options: Any
) -> StepResult:
    """Charge a job before it runs, at most once, creating its document with its charge row."""
    owner = stores.ledger.account_id(account) or Id(account)
    return take(
        stores, Request(Step.CHARGE, job_id, operation_id, account=owner, cost=cost, **options)
    )


@dataclass(slots=True)
class Taking:
    """A step on its way: what its first look saw, and what came of it once that is known."""

    request: Request
    seen: tuple[Job | None, Decision] | None = None
    result: StepResult | None = None
    error: LedgerctlError | None = None


def take(stores: Stores, request: Request) -> StepResult:
    """Do one guarded step: flag, row and message together, or none of them.

    With transactions the three are one, and steps that several threads ask for at one moment
    share it; without, they are written in that order and the next delivery finishes what a crash
    left. Running it again is always safe.
    """
    taking = Taking(request)

    def alone() -> None:
        taking.result = take_alone(stores, taking)

    if stores.mongo.transactions:
        stores.gathering.ask(
            request.job_id, taking, serve=partial(take_together, stores), alone=alone
        )
    if taking.error is not None:
        raise taking.error
    return taking.result or take_alone(stores, taking)


def take_together(stores: Stores, takings: Sequence[Taking]) -> None:
    """The plain case of steps of different jobs: one look, and one transaction for all of them.

    Whatever else one of them meets is left to `take_alone`, so that none stops the others; only
    what must not or need not be tried again is kept as their error: an outcome that is unknown,
    a store that is away.
    """
    fresh: list[tuple[Taking, NewRow]] = []
    with each_told(takings):
        looks = look(stores, [one.request for one in takings])
        for taking, (job, decision) in zip(takings, looks, strict=True):
            if isinstance(decision, Append) and not decision.complete:
                fresh.append((taking, row_now(stores, taking.request, job, decision)))
            else:
                taking.seen = job, decision
    if not fresh:
        return
    with each_told([taking for taking, _ in fresh]):
        writes = [step_write(stores, taking.request, row) for taking, row in fresh]
        if stores.step_writes.land(writes, once=True):
            for taking, row in fresh:
                taking.result = applied(taking.request, row, completed=False)


@contextmanager
def each_told(takings: Sequence[Taking]) -> Iterator[None]:
    """Tell each of these steps of trouble that is the same for each; other trouble is none's yet."""
    try:
        yield
    except (OutcomeUnknown, StoreUnavailable) as error:
        for taking in takings:
            step, job_id = taking.request.step, taking.request.job_id
            message = f"{step} job {job_id}: {error.message}"
            taking.error = type(error)(message, hint=error.hint)
    except (LedgerctlError, RowTaken, Conflicted, UnicodeError):
        return  # nothing was written; whose trouble it is shows when each goes alone


def take_alone(stores: Stores, taking: Taking, *, patience_s: float = PATIENCE_S) -> StepResult:
    """Do one guarded step, whatever it meets; its first look may have been taken already.

    Raises JobHeld when somebody else's transaction holds the job for `patience_s`.
    """
    request, first = taking.request, taking.seen
    for _ in range(ROUNDS_MAX):
        job, decision = first or look(stores, [request])[0]
        first = None
        if isinstance(decision, Stop) and decision.outcome in PASSING:
            job, decision = look(stores, [request])[0]
        if isinstance(decision, Stop) or decision.complete:
            result = settled(stores, request, job, decision)
        else:
            row = row_now(stores, request, job, decision)
            result = write(stores, request, row, job, patience_s)
        if result is not None:
            return result
    raise InvariantBroken(f"the guard of job {request.job_id} kept missing without a reason")


def preview(stores: Stores, request: Request) -> StepResult:
    """What `take` would do, changing nothing."""
    ((job, decision),) = look(stores, [request])
    if isinstance(decision, Stop):
        return stopped(request, job, decision)
    row = row_now(stores, request, job, decision)
    return obstructed(stores, request, job, row) or applied(
        request, row, completed=decision.complete
    )


def look(stores: Stores, requests: Sequence[Request]) -> list[tuple[Job | None, Decision]]:
    """Read the jobs with their rows and decide; the guard in the write has the last word.

    A charge row never changes, so the amount read here is the amount for ever.
    """
    looks = stores.jobs.with_rows([one.job_id for one in requests])
    return [judged(stores, one, found) for one, found in zip(requests, looks, strict=True)]


def judged(stores: Stores, request: Request, found: Found) -> tuple[Job | None, Decision]:
    """The job that is meant, and what its documents allow."""
    if len(found) > 1:
        kinds = " and ".join(sorted(job.id.kind for job, _ in found))
        return None, Stop(Outcome.CONFLICT, detail=f"two jobs have this id: {kinds}")
    if found:
        job, rows = found[0]
        return job, decide(request, job, rows)
    rows = stores.ledger.of_job(request.job_id) if request.step is Step.CHARGE else []
    return None, decide(request, None, rows)


def decide(request: Request, job: Job | None, rows: list[Row]) -> Decision:
    """What the documents allow; pure, and never a substitute for the guard in the write."""
    if request.step is Step.CHARGE:
        account, cost = charged(request)
        if job is not None:
            return decide_charge(job, rows, account=account, cost=cost)
        if rows:
            return Stop(
                Outcome.ROW_EXISTS, rows[0], "rows of this job stand, its document does not"
            )
        return Append(-cost, account)
    if job is None:
        return Stop(Outcome.NOT_FOUND, detail="no job has this id")
    if request.step is Step.REFUND:
        return decide_refund(job, rows, force=request.force)
    return decide_reclaim(job, rows)


def charged(request: Request) -> tuple[Id, int]:
    """The account and cost that a charge must carry."""
    if request.account is None or request.cost is None:
        raise InvariantBroken("a charge without its account or cost")
    return request.account, request.cost


# the write


def write(
    stores: Stores, request: Request, row: NewRow, job: Job | None, patience_s: float
) -> StepResult | None:
    """Flag, row and message, in this order; None when somebody was faster and one looks again.

    A row in the way ends a transaction; without one it is looked for before the flag is set, which
    would stay set.
    """
    if not stores.mongo.transactions and (refusal := obstructed(stores, request, job, row)):
        return refusal

    try:
        ours = stores.step_writes.land([step_write(stores, request, row)], patience_s=patience_s)
    except RowTaken:
        return compared(stores, request, row)
    return applied(request, row, completed=False) if ours else None


def step_write(stores: Stores, request: Request, row: NewRow) -> StepWrite:
    """What a step writes, and what it is called."""
    return StepWrite(f"{request.step} job {request.job_id}", guarded(stores, request, row), row)


def obstructed(stores: Stores, request: Request, job: Job | None, row: NewRow) -> StepResult | None:
    """The conflict with a row of this id that belongs to something else; None without one."""
    standing = stores.ledger.get(row.id)
    if standing is None or same_row(standing, row):
        return None
    return stopped(request, job, conflict(standing))


def conflict(standing: Row) -> Stop:
    """A row that bears our id and is something else stops the step."""
    detail = f"row {standing.id} stands in the way and belongs to something else"
    return Stop(Outcome.CONFLICT, standing, detail)


def guarded(stores: Stores, request: Request, row: NewRow) -> Guarded:
    """The one conditional write of a step: it succeeds for exactly one caller, ever."""
    job_id = required_job(row)
    match request.step:
        case Step.CHARGE:
            return stores.jobs.charging(
                job_id, account=row.account, cost=-row.amount, at=row.created_at
            )
        case Step.REFUND:
            return stores.jobs.refunding(job_id, at=row.created_at, force=request.force)
        case Step.RECLAIM:
            return stores.jobs.reclaiming(job_id, at=row.created_at)


# the end of a step


def settled(
    stores: Stores, request: Request, job: Job | None, decision: Decision
) -> StepResult | None:
    """The result where the flag was not ours to flip; a missing row or message is added."""
    if isinstance(decision, Append):
        return complete(stores, request, job, decision)
    row = decision.row
    ours = row is not None and decision.outcome in ALREADY and row.operation_id
    if row is not None and ours and not stores.mongo.transactions:
        stores.outbox.add([row])
    return stopped(request, job, decision)


def complete(
    stores: Stores, request: Request, job: Job | None, decision: Append
) -> StepResult | None:
    """Append the row that somebody died before appending, dated by the flag.

    Only where the unique index makes a second row impossible; else the row may yet come from a
    worker that is slow, so one looks again for two seconds and then refuses.
    """
    if job is None:
        raise InvariantBroken("a row to complete without its job")
    if not stores.ledger.step_index_is_unique():
        return look_again(stores, request, job)
    now = stores.mongo.now()
    at = flag_time(request.step, job) or now
    row = replace(new_row(request, job.id, decision, at), recorded_at=now)
    return append_row(stores, request, row, completed=True)


def look_again(stores: Stores, request: Request, job: Job) -> StepResult | None:
    """Wait for the row of a worker that is between flag and row; refuse when none comes."""
    deadline = time.monotonic() + LOOK_AGAIN_S
    while time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        rows = stores.ledger.of_job(request.job_id)
        if any(row.type == TYPE_OF[request.step] for row in rows):
            return None  # decided afresh
    detail = (
        "the flag is set and the row is missing; without the unique index on (job_id, type) a"
        " second row would be possible: `ledgerctl db init`, then again"
    )
    return stopped(request, job, Stop(Outcome.ROW_MISSING, detail=detail))


def append_row(
    stores: Stores, request: Request, row: NewRow, *, completed: bool
) -> StepResult | None:
    """Append a row whose flag is set, with its message; a row that stands is compared."""
    try:
        stores.mongo.together(f"append row {row.id}", partial(stores.append, [row]))
    except RowTaken:
        return compared(stores, request, row)
    return applied(request, row, completed=completed)


def compared(stores: Stores, request: Request, row: NewRow) -> StepResult | None:
    """What a row that stood in the way means: ours, already done, or a conflict."""
    standing = stores.ledger.taken_by(row)
    if standing is None:
        return None  # gone again with a transaction that failed
    if standing.operation_id == row.operation_id and same_row(standing, row):
        stores.outbox.add([standing])
        return applied(request, row, completed=False)  # our own write; its reply was lost
    job = stores.jobs.get(required_job(row))
    if not same_row(standing, row):
        return stopped(request, job, conflict(standing))
    if job is not None and not flag_set(request.step, job):
        return stopped(request, job, Stop(Outcome.ROW_EXISTS, standing, "the flag does not say so"))
    return settled(stores, request, job, Stop(ALREADY_OF[request.step], standing))


def row_now(stores: Stores, request: Request, job: Job | None, decision: Append) -> NewRow:
    """The row of this step, dated now."""
    job_id = Id(request.job_id) if job is None else job.id
    return new_row(request, job_id, decision, stores.mongo.now())


def new_row(request: Request, job_id: Id, decision: Append, at: datetime) -> NewRow:
    """The row of this step, its identity and amount settled."""
    row_type = TYPE_OF[request.step]
    return NewRow(
        id=row_id(job_id, row_type),
        job=job_id,
        account=decision.account,
        type=row_type,
        amount=decision.amount,
        created_at=at,
        recorded_at=at,
        operation_id=request.operation_id,
        reason=request.reason,
    )


def flag_set(step: Step, job: Job) -> bool:
    """Whether the job says that this step was taken; its document alone says so of a charge."""
    match step:
        case Step.CHARGE:
            return True
        case Step.REFUND:
            return job.refunded is Flag.SET
        case Step.RECLAIM:
            return job.reclaimed is Flag.SET


def flag_time(step: Step, job: Job) -> datetime | None:
    """When the flag of this step was set, or the job created."""
    match step:
        case Step.CHARGE:
            return job.created_at
        case Step.REFUND:
            return job.refunded_at
        case Step.RECLAIM:
            return job.reclaimed_at


def required_job(row: NewRow) -> Id:
    """The job of a step's row."""
    if row.job is None:
        raise InvariantBroken(f"row {row.id} of a step has no job")
    return row.job


STATE_AFTER = {
    Step.CHARGE: State.CHARGED,
    Step.REFUND: State.REFUNDED,
    Step.RECLAIM: State.RECLAIMED,
}


def applied(request: Request, row: NewRow, *, completed: bool) -> StepResult:
    """The result of a step that wrote its row."""
    mark = "the job was there" if request.step is Step.CHARGE else "the flag was set"
    return StepResult(
        job_id=required_job(row).text,
        step=request.step,
        outcome=Outcome.COMPLETED if completed else Outcome.APPLIED,
        state=STATE_AFTER[request.step],
        amount=row.amount,
        row_id=row.id,
        at=row.created_at,
        detail=f"{mark} and the row was missing; it is appended now" if completed else "",
    )


def stopped(request: Request, job: Job | None, decision: Stop) -> StepResult:
    """The result of a step that wrote nothing."""
    row = decision.row
    return StepResult(
        job_id=request.job_id,
        step=request.step,
        outcome=decision.outcome,
        state=None if job is None else state(job),
        amount=row.amount if row is not None and isinstance(row.amount, int) else None,
        row_id=None if row is None else row.id.text,
        at=None if row is None else row.created_at,
        detail=decision.detail,
    )
