"""The guarded steps: charge, refund and reclaim of a job, each at most one row for ever."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
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
from ledgerctl.domain.rows import NewRow, Row, RowType, row_id
from ledgerctl.errors import InvariantBroken, LedgerctlError, OutcomeUnknown, StoreUnavailable
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import LEDGER_UNIQUE
from ledgerctl.stores.jobs import Found, Guarded
from ledgerctl.stores.ledger import Already, Appended, AppendOutcome, Conflict, RowTaken
from ledgerctl.stores.mongo import PATIENCE_S, Conflicted

LOOK_AGAIN_S = 2.0  # how long a flag without its row may be somebody at work
LOOK_EVERY_S = 0.1
TOGETHER_MAX = 16  # steps of one transaction: it stays short, and few are repeated if it fails
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
    """One attempt at a step: what its first look saw, then its result or its error."""

    request: Request
    seen: tuple[Job | None, Decision] | None = None
    result: StepResult | None = None
    error: LedgerctlError | None = None


def take(stores: Stores, request: Request) -> StepResult:
    """Do one guarded step: flag, row and message together, or none of them.

    With transactions the three are one; without, they are written in that order and the next
    delivery finishes what a crash left. Running it again is always safe.
    """
    return take_alone(stores, Taking(request))


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
        if land(stores, [(taking.request, row) for taking, row in fresh], once=True):
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
        if isinstance(decision, Stop):
            return already(stores, request, job, decision)
        if decision.complete:
            result = complete(stores, request, job, decision)
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
    found = stores.ledger.compare(row)
    if isinstance(found, Conflict):
        return stopped(request, job, conflict(found.row))
    return applied(request, row, completed=decision.complete)


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


class GuardMissed(Exception):
    """Signal that a guard matched nothing, so that the transaction is given up."""


def write(
    stores: Stores, request: Request, row: NewRow, job: Job | None, patience_s: float
) -> StepResult | None:
    """Write flag, row and message, in this order; None when another writer was faster.

    A different row of this identity ends a transaction; without transactions it is looked for
    before the flag is set, because the flag would stay set.
    """
    if not stores.mongo.transactions:
        found = stores.ledger.compare(row)
        if isinstance(found, Conflict):
            return stopped(request, job, conflict(found.row))
    try:
        if not land(stores, [(request, row)], patience_s=patience_s):
            return None
    except RowTaken:
        outcome = stores.ledger.resolve(row)
        return None if outcome is None else ended(stores, request, row, outcome)
    return applied(request, row, completed=False)


def land(
    stores: Stores,
    steps: Sequence[tuple[Request, NewRow]],
    *,
    patience_s: float = PATIENCE_S,
    once: bool = False,
) -> bool:
    """Write every flag, then every row, then every message; False when a guard matched nothing.

    With transactions all of it lands or none does; without them only one step may be given.
    A conflict with another transaction is tried again for `patience_s` in all; with `once` it
    raises Conflicted. Raises RowTaken, JobHeld, StoreUnavailable, OutcomeUnknown, NotPermitted.
    """
    guards = [guarded(stores, request, row) for request, row in steps]
    rows = [row for _, row in steps]

    def body(session: Any) -> None:
        if stores.jobs.pass_guards(guards, session) < len(guards):
            raise GuardMissed
        stores.ledger.append(rows, session)

    first = steps[0][0]
    action = f"{first.step} job {first.job_id}" if len(steps) == 1 else f"write {len(steps)} steps"
    try:
        stores.mongo.together(action, body, patience_s=patience_s, once=once)
    except GuardMissed:
        return False
    return True


def conflict(stored: Row) -> Stop:
    """Stop a step because its row id is used by a different row."""
    return Stop(Outcome.CONFLICT, stored, f"row id {stored.id} is already used by a different row")


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


def already(stores: Stores, request: Request, job: Job | None, stop: Stop) -> StepResult:
    """Return the result of a step that writes no row; a message that a crash lost is put."""
    if stop.row is not None and stop.outcome in ALREADY:
        stores.ledger.complete_message(stop.row)
    return stopped(request, job, stop)


def complete(
    stores: Stores, request: Request, job: Job | None, decision: Append
) -> StepResult | None:
    """Append the row that a crash left missing, dated by the flag.

    Only where the unique index makes a second row impossible; else a slow worker may yet write
    it, so wait for two seconds and then refuse. None when that row has come.
    """
    if job is None:
        raise InvariantBroken("a row to complete without its job")
    if not stores.indexes.guards(LEDGER_UNIQUE):
        return look_again(stores, request, job)
    return complete_row(stores, request, job, decision)


def complete_row(stores: Stores, request: Request, job: Job, decision: Append) -> StepResult:
    """Append the missing row of a set flag at most once, dated by the flag, else now."""
    now = stores.mongo.now()
    at = flag_time(request.step, job) or now
    row = replace(new_row(request, job.id, decision, at), recorded_at=now)
    return ended(stores, request, row, stores.ledger.append_once(row), completed=True)


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


def ended(
    stores: Stores,
    request: Request,
    row: NewRow,
    outcome: AppendOutcome,
    *,
    completed: bool = False,
) -> StepResult:
    """Return the result of a step by what its row met in the ledger."""
    match outcome:
        case Appended():
            return applied(request, row, completed=completed)
        case Conflict(stored):
            return stopped(request, stores.jobs.get(required_job(row)), conflict(stored))
        case Already(stored):
            job = stores.jobs.get(required_job(row))
            if job is not None and not flag_set(request.step, job):
                stop = Stop(Outcome.ROW_EXISTS, stored, "the row exists, the flag is not set")
                return stopped(request, job, stop)
            return already(stores, request, job, Stop(ALREADY_OF[request.step], stored))


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
        job_id=request.job_id if job is None else job.id.text,
        step=request.step,
        outcome=decision.outcome,
        state=None if job is None else state(job),
        amount=row.amount if row is not None and isinstance(row.amount, int) else None,
        row_id=None if row is None else row.id.text,
        at=None if row is None else row.created_at,
        detail=decision.detail,
    )
