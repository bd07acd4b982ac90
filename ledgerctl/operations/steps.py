"""Guarded steps: charge, refund and reclaim a job, and grant credits, each at most one row ever."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from ledgerctl.domain.ids import Id, chunks
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
    fate_of,
    state,
)
from ledgerctl.domain.results import Result, Run
from ledgerctl.domain.rows import NewRow, Row, RowType, grant_id, row_id
from ledgerctl.errors import (
    InvariantBroken,
    JobHeld,
    LedgerctlError,
    OutcomeUnknown,
    RefusedByServer,
    StoreUnavailable,
)
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import LEDGER_UNIQUE
from ledgerctl.stores.jobs import Guarded, JobsOfText
from ledgerctl.stores.ledger import Already, Appended, AppendOutcome, Conflict, RowTaken
from ledgerctl.stores.mongo import PATIENCE_S, Conflicted

T = TypeVar("T")

LOOK_AGAIN_S = 2.0  # how long a flag without its row may be a concurrent writer's
LOOK_EVERY_S = 0.1
NEXT_PATIENCE_S = 0.5  # with a held job, after another one that was held
TOGETHER_MAX = 16  # steps of one transaction: it stays short, and few are repeated if it fails
IN_FLIGHT = 8  # transactions of different jobs at one time
ROUNDS_MAX = 20  # a guard that keeps missing while its reason keeps vanishing is a bug

# May be a concurrent worker's half-finished write; act only if a second read agrees.
MAYBE_HALF_WRITTEN = frozenset({Outcome.ROW_EXISTS, Outcome.NO_CHARGE})

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
class StepRequest:
    """Ask for one guarded step; its row carries the operation id and the reason."""

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
    return take(stores, StepRequest(Step.REFUND, job_id, operation_id, **options))


def reclaim(stores: Stores, job_id: str, *, operation_id: str, **options: Any) -> StepResult:
    """Take a refund back after the job succeeded, at most once; harmless when never refunded.

    Call it unconditionally on success. Options: `reason`. Raises as `refund` does.
    """
    return take(stores, StepRequest(Step.RECLAIM, job_id, operation_id, **options))


def charge(
    stores: Stores, job_id: str, *, account: str, cost: int, operation_id: str, **options: Any
) -> StepResult:
    """Charge a job before it runs, at most once, creating its document with its charge row."""
    owner = owner_of(stores, account)
    return take(
        stores, StepRequest(Step.CHARGE, job_id, operation_id, account=owner, cost=cost, **options)
    )


def owner_of(stores: Stores, account: str) -> Id:
    """Return the account's id in its stored type; text where no row names it yet."""
    return stores.ledger.account_id(account) or Id(account)


@dataclass(slots=True)
class StepAttempt:
    """Carry one attempt at a step: what its first look saw, then its result or its error."""

    request: StepRequest
    seen: tuple[Job | None, Decision] | None = None
    result: StepResult | None = None
    error: LedgerctlError | None = None


def take(stores: Stores, request: StepRequest) -> StepResult:
    """Do one guarded step: flag, row and message together, or none of them.

    With transactions the three are one; without, they are written in that order and the next
    delivery finishes what a crash left. Running it again is always safe.
    """
    return take_alone(stores, StepAttempt(request))


def take_together(stores: Stores, attempts: Sequence[StepAttempt]) -> None:
    """Take steps of different jobs with one read and one transaction where nothing hinders them.

    A step that meets anything else is left to `take_alone`, so that none stops the others. Only an
    unknown outcome and an unreachable store are kept as errors, because trying again cannot help.
    """
    fresh: list[tuple[StepAttempt, NewRow]] = []
    with shared_errors(attempts):
        looks = look(stores, [one.request for one in attempts])
        for attempt, (job, decision) in zip(attempts, looks, strict=True):
            if isinstance(decision, Append) and not decision.complete:
                fresh.append((attempt, row_now(stores, attempt.request, job, decision)))
            else:
                attempt.seen = job, decision
    if not fresh:
        return
    with shared_errors([attempt for attempt, _ in fresh]):
        if land(stores, [(attempt.request, row) for attempt, row in fresh], once=True):
            for attempt, row in fresh:
                attempt.result = applied(attempt.request, row, completed=False)


@contextmanager
def shared_errors(attempts: Sequence[StepAttempt]) -> Iterator[None]:
    """Give each attempt an error that concerns all of them; drop one that concerns a single step."""
    try:
        yield
    except (OutcomeUnknown, StoreUnavailable) as error:
        for attempt in attempts:
            step, job_id = attempt.request.step, attempt.request.job_id
            message = f"{step} job {job_id}: {error.message}"
            attempt.error = type(error)(message, hint=error.hint)
    except (LedgerctlError, RowTaken, Conflicted, UnicodeError):
        return  # nothing was written; each step alone shows which one the error concerns


def take_alone(
    stores: Stores, attempt: StepAttempt, *, patience_s: float = PATIENCE_S
) -> StepResult:
    """Do one guarded step, whatever it meets; an attempt may bring its first look.

    A refusal by a rule of the server is a result too. Raises JobHeld when another transaction holds
    the job for `patience_s`.
    """
    before = stores.changes
    try:
        return take_guarded(stores, attempt, patience_s)
    except RefusedByServer as error:
        if stores.changes > before:  # no transactions, and no right to read the server's rules
            raise RefusedByServer(
                f"the flag of job {attempt.request.job_id} is set, but its row was refused, so the"
                f" balance is wrong until the server accepts the row: {error.message}",
                hint="then run this again, or `ledgerctl ledger repair`",
            ) from None
        stop = Stop(Outcome.REFUSED_BY_SERVER, detail=error.message)
        return stopped(attempt.request, None, stop)


def take_guarded(stores: Stores, attempt: StepAttempt, patience_s: float) -> StepResult:
    """Look, decide and write until one of them has the last word."""
    request, first = attempt.request, attempt.seen
    for _ in range(ROUNDS_MAX):
        job, decision = first or look(stores, [request])[0]
        first = None
        if isinstance(decision, Stop) and decision.outcome in MAYBE_HALF_WRITTEN:
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


def preview(stores: Stores, request: StepRequest) -> StepResult:
    """Return what `take` would do, changing nothing."""
    ((job, decision),) = look(stores, [request])
    if isinstance(decision, Stop):
        return stopped(request, job, decision)
    row = row_now(stores, request, job, decision)
    found = stores.ledger.compare(row)
    if isinstance(found, Conflict):
        return stopped(request, job, conflict(found.row))
    return applied(request, row, completed=decision.complete)


def look(stores: Stores, requests: Sequence[StepRequest]) -> list[tuple[Job | None, Decision]]:
    """Read the jobs with their rows and decide; the guard in the write has the last word.

    A charge row never changes, so the amount read here is the amount for ever.
    """
    looks = stores.jobs.with_rows([one.job_id for one in requests])
    return [judged(stores, one, found) for one, found in zip(requests, looks, strict=True)]


def judged(stores: Stores, request: StepRequest, found: JobsOfText) -> tuple[Job | None, Decision]:
    """Return the one job that the text names, and what its documents allow."""
    if len(found) > 1:
        kinds = " and ".join(sorted(job.id.kind for job, _ in found))
        return None, Stop(Outcome.CONFLICT, detail=f"two jobs have this id: {kinds}")
    if found:
        job, rows = found[0]
        return job, decide(request, job, rows)
    rows = stores.ledger.of_job(request.job_id) if request.step is Step.CHARGE else []
    return None, decide(request, None, rows)


def decide(request: StepRequest, job: Job | None, rows: list[Row]) -> Decision:
    """Return what the documents allow; the guard in the write has the last word."""
    if request.step is Step.CHARGE:
        account, cost = charged(request)
        if job is not None:
            return decide_charge(job, rows, account=account, cost=cost)
        if rows:
            return Stop(Outcome.ROW_EXISTS, rows[0], "the job has rows but no document")
        return Append(-cost, account)
    if job is None:
        return Stop(Outcome.NOT_FOUND, detail="no job has this id")
    if request.step is Step.REFUND:
        return decide_refund(job, rows, force=request.force)
    return decide_reclaim(job, rows)


def charged(request: StepRequest) -> tuple[Id, int]:
    """Return the account and cost that a charge must carry."""
    if request.account is None or request.cost is None:
        raise InvariantBroken("a charge without its account or cost")
    return request.account, request.cost


# the write


class GuardMissed(Exception):
    """Signal that a guard matched nothing, so that the transaction is given up."""


def write(
    stores: Stores, request: StepRequest, row: NewRow, job: Job | None, patience_s: float
) -> StepResult | None:
    """Write flag, row and message, in this order; None when another writer was faster.

    A different row of this identity ends a transaction; without transactions it is looked for
    before the flag is set, because the flag would stay set; so is a rule that refuses the row.
    """
    if not stores.mongo.transactions:
        found = stores.ledger.compare(row)
        if isinstance(found, Conflict):
            return stopped(request, job, conflict(found.row))
        stores.ledger.require_accepted(row)
    try:
        if not land(stores, [(request, row)], patience_s=patience_s):
            return None
    except RowTaken:
        outcome = stores.ledger.resolve(row)
        return None if outcome is None else ended(stores, request, row, outcome)
    return applied(request, row, completed=False)


def land(
    stores: Stores,
    steps: Sequence[tuple[StepRequest, NewRow]],
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


def guarded(stores: Stores, request: StepRequest, row: NewRow) -> Guarded:
    """Return the conditional write of a step, which succeeds for exactly one caller ever."""
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


def already(stores: Stores, request: StepRequest, job: Job | None, stop: Stop) -> StepResult:
    """Return the result of a step that writes no row; a message that a crash lost is put."""
    if stop.row is not None and stop.outcome in ALREADY:
        stores.ledger.complete_message(stop.row)
    return stopped(request, job, stop)


def complete(
    stores: Stores, request: StepRequest, job: Job | None, decision: Append
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


def complete_row(stores: Stores, request: StepRequest, job: Job, decision: Append) -> StepResult:
    """Append the missing row of a set flag at most once."""
    row = missing_row(stores, request, job, decision)
    return ended(stores, request, row, stores.ledger.append_once(row), completed=True)


def missing_row(stores: Stores, request: StepRequest, job: Job, decision: Append) -> NewRow:
    """Return the row that a set flag calls for, dated by the flag, else now."""
    now = stores.mongo.now()
    at = flag_time(request.step, job) or now
    return replace(new_row(request, job.id, decision, at), recorded_at=now)


def look_again(stores: Stores, request: StepRequest, job: Job) -> StepResult | None:
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
    request: StepRequest,
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


def row_now(stores: Stores, request: StepRequest, job: Job | None, decision: Append) -> NewRow:
    """Return the row of this step, dated now."""
    job_id = Id(request.job_id) if job is None else job.id
    return new_row(request, job_id, decision, stores.mongo.now())


def new_row(request: StepRequest, job_id: Id, decision: Append, at: datetime) -> NewRow:
    """Return the row of this step: identity, account and amount are fixed before it is sent."""
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
    """Return True when the job says that this step was taken; for a charge it need only exist."""
    match step:
        case Step.CHARGE:
            return True
        case Step.REFUND:
            return job.refunded is Flag.SET
        case Step.RECLAIM:
            return job.reclaimed is Flag.SET


def flag_time(step: Step, job: Job) -> datetime | None:
    """Return when the flag of this step was set, or the job created."""
    match step:
        case Step.CHARGE:
            return job.created_at
        case Step.REFUND:
            return job.refunded_at
        case Step.RECLAIM:
            return job.reclaimed_at


def required_job(row: NewRow) -> Id:
    """Return the job of a step's row."""
    if row.job is None:
        raise InvariantBroken(f"row {row.id} of a step has no job")
    return row.job


STATE_AFTER = {
    Step.CHARGE: State.CHARGED,
    Step.REFUND: State.REFUNDED,
    Step.RECLAIM: State.RECLAIMED,
}


def applied(request: StepRequest, row: NewRow, *, completed: bool) -> StepResult:
    """Return the result of a step that wrote its row."""
    mark = "the job existed" if request.step is Step.CHARGE else "the flag was set"
    return StepResult(
        job_id=required_job(row).text,
        step=request.step,
        outcome=Outcome.COMPLETED if completed else Outcome.APPLIED,
        state=STATE_AFTER[request.step],
        amount=row.amount,
        row_id=row.id,
        at=row.created_at,
        detail=f"{mark} but its row was missing; the row is appended now" if completed else "",
    )


def stopped(request: StepRequest, job: Job | None, decision: Stop) -> StepResult:
    """Return the result of a step that wrote nothing."""
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


# many jobs


def side_by_side(act: Callable[[T], object], items: Sequence[T]) -> None:
    """Act on each item, several at a time; raise the first error once all of them have ended."""
    if len(items) == 1:
        act(items[0])
        return
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        started = [pool.submit(act, one) for one in items]
    for one in started:
        one.result()


@dataclass(frozen=True, slots=True)
class Batch:
    """Take one step for several jobs."""

    stores: Stores
    step: Step
    ids: Sequence[str]
    force: bool = False
    account: str | None = None
    cost: int | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)  # by id; "" takes the operation's

    def preview(self) -> Result[StepResult]:
        """Return what each step would do, changing nothing."""
        result: Result[StepResult] = Result()
        for request in self._requests("", None):
            keep(result, preview(self.stores, request))
        return result

    def apply(self, run: Run[StepResult]) -> None:
        """Take the steps, several at a time; pass over a held job, and end at any other error."""
        requests = self._requests(run.operation_id, run.reason)
        try:
            for some in chunks(requests, TOGETHER_MAX * IN_FLIGHT):
                self._round([StepAttempt(request) for request in some], run)
        finally:
            run.result.not_tried = len(requests) - len(run.result.items)

    def _round(self, attempts: Sequence[StepAttempt], run: Run[StepResult]) -> None:
        """Take steps in transactions that travel side by side, then one by one what is left."""
        try:
            if len(attempts) > 1 and self.stores.mongo.transactions and not run.stopping():
                groups = list(chunks(attempts, TOGETHER_MAX))
                side_by_side(partial(take_together, self.stores), groups)
            for attempt in attempts:
                if attempt.error is not None:
                    raise attempt.error
                if attempt.result is None and not run.stopping():
                    self._alone(attempt, run.result)
        finally:
            for attempt in attempts:
                if attempt.result is not None:
                    keep(run.result, attempt.result)

    def _alone(self, attempt: StepAttempt, result: Result[StepResult]) -> None:
        """Take one step; wait long only for the first held job, as a killed client may hold many."""
        patience_s = PATIENCE_S if result.error is None else NEXT_PATIENCE_S
        try:
            attempt.result = self.stores.mongo.patiently(
                partial(take_alone, self.stores, attempt, patience_s=patience_s)
            )
        except JobHeld as error:
            result.error = error

    def _requests(self, operation_id: str, reason: str | None) -> list[StepRequest]:
        owner = None if self.account is None else owner_of(self.stores, self.account)
        return [
            StepRequest(
                step=self.step,
                job_id=job_id,
                operation_id=operation_id,
                reason=self.reasons.get(job_id) or reason,
                force=self.force,
                account=owner,
                cost=self.cost,
            )
            for job_id in self.ids
        ]


def keep(result: Result[StepResult], item: StepResult) -> None:
    """Add one step's result, and count its outcome for the log and for the exit code."""
    result.items.append(item)
    result.count(count_name(item.outcome), fate=fate_of(item.outcome))


def count_name(outcome: Outcome) -> str:
    """Return the count of the operator log that an outcome belongs to."""
    if outcome in ALREADY:
        return "unchanged"
    return {Outcome.APPLIED: "applied", Outcome.COMPLETED: "applied"}.get(outcome, str(outcome))


# grants


def grant(
    stores: Stores,
    account: str,
    amount: int,
    *,
    key: str,
    operation_id: str,
    reason: str | None = None,
) -> StepResult:
    """Give `amount` whole credits to an account, at most once for each key.

    The same key with another amount or account is a conflict and changes nothing.
    Raises JobHeld, StoreUnavailable, OutcomeUnknown, NotPermitted.
    """
    row = grant_row(stores, account, amount, key, operation_id, reason)
    outcome = stores.ledger.append_once(row)
    if isinstance(outcome, Already):
        stores.ledger.complete_message(outcome.row)
    return grant_result(row, outcome)


def preview_grant(stores: Stores, account: str, amount: int, *, key: str) -> StepResult:
    """Return what `grant` would do, changing nothing."""
    row = grant_row(stores, account, amount, key, "", None)
    return grant_result(row, stores.ledger.compare(row) or Appended())


def grant_row(
    stores: Stores, account: str, amount: int, key: str, operation_id: str, reason: str | None
) -> NewRow:
    """Return the row of a grant, dated now."""
    now = stores.mongo.now()
    return NewRow(
        id=grant_id(key),
        job=None,
        account=owner_of(stores, account),
        type=RowType.GRANT,
        amount=amount,
        created_at=now,
        recorded_at=now,
        operation_id=operation_id,
        reason=reason,
    )


def grant_result(row: NewRow, outcome: AppendOutcome) -> StepResult:
    """Return the result of a grant; amount and time are those of the stored row."""
    if isinstance(outcome, Appended):
        return StepResult("", "grant", Outcome.APPLIED, None, row.amount, row.id, row.created_at)
    stored = outcome.row
    amount = stored.amount if isinstance(stored.amount, int) else None
    granted, detail = Outcome.ALREADY_GRANTED, ""
    if isinstance(outcome, Conflict):
        granted, detail = Outcome.CONFLICT, "this key was used for another amount or account"
    return StepResult("", "grant", granted, None, amount, row.id, stored.created_at, detail)
