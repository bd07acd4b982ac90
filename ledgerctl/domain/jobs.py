"""Jobs: two flags make the state; what each step needs, and why a guard did not match."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import assert_never

from ledgerctl.domain.amounts import Amount
from ledgerctl.domain.ids import Id
from ledgerctl.domain.results import Fate
from ledgerctl.domain.rows import Row, RowType


class Flag(Enum):
    """Name what a flag of a job document says. Absent and null count as false."""

    CLEAR = "clear"
    SET = "set"
    BAD = "bad"  # neither boolean nor absent nor null


class State(StrEnum):
    """Name the state of a job, read off its two flags."""

    CHARGED = "charged"
    REFUNDED = "refunded"
    RECLAIMED = "reclaimed"
    CORRUPT = "corrupt"  # reclaimed but never refunded: no path leads here
    BAD_FLAGS = "bad_flags"


class Step(StrEnum):
    """Name the guarded steps."""

    CHARGE = "charge"
    REFUND = "refund"
    RECLAIM = "reclaim"


class Outcome(StrEnum):
    """Name what came of one guarded step. Source: contract, section 3, job."""

    APPLIED = "applied"
    COMPLETED = "completed"  # flag or document was there, the row was not; appended now
    ALREADY_CHARGED = "already_charged"
    ALREADY_REFUNDED = "already_refunded"
    ALREADY_RECLAIMED = "already_reclaimed"
    ALREADY_GRANTED = "already_granted"
    NEVER_REFUNDED = "never_refunded"
    ROW_MISSING = "row_missing"
    ROW_EXISTS = "row_exists"
    NO_CHARGE = "no_charge"
    NO_ACCOUNT = "no_account"
    BAD_FLAGS = "bad_flags"
    CORRUPT = "corrupt"
    BAD_COST = "bad_cost"
    CONFLICT = "conflict"
    JOB_SUCCEEDED = "job_succeeded"
    NOT_FOUND = "not_found"
    REFUSED_BY_SERVER = "refused_by_server"  # a validator, or what the collection is


APPLIED = frozenset({Outcome.APPLIED, Outcome.COMPLETED})
ALREADY = frozenset(
    {
        Outcome.ALREADY_CHARGED,
        Outcome.ALREADY_REFUNDED,
        Outcome.ALREADY_RECLAIMED,
        Outcome.ALREADY_GRANTED,
        Outcome.NEVER_REFUNDED,
    }
)
SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class Job:
    """Hold one job document as it is stored."""

    id: Id
    account: Id | None
    cost: Amount
    refunded: Flag
    refunded_at: datetime | None
    reclaimed: Flag
    reclaimed_at: datetime | None
    status: str | None
    created_at: datetime | None
    flags_present: bool = True  # neither flag absent nor null
    refunded_as: object = None  # what stands there instead of true or false, if it is bad
    reclaimed_as: object = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """Hold one guarded step's outcome; amount, row and time are the row's, None without one."""

    job_id: str
    step: str
    outcome: Outcome
    state: State | None = None
    amount: int | None = None
    row_id: str | None = None
    at: datetime | None = None
    detail: str = ""  # one sentence for people

    @property
    def applied(self) -> bool:
        """Return whether this run wrote the row."""
        return self.outcome in APPLIED


@dataclass(frozen=True, slots=True)
class Append:
    """Allow the step: the row's amount and account are pinned to the charge row."""

    amount: int
    account: Id
    complete: bool = False  # the flag is set already; only the row is missing


@dataclass(frozen=True, slots=True)
class Stop:
    """Refuse the step: why, and the row that says so, if any."""

    outcome: Outcome
    row: Row | None = None
    detail: str = ""


Decision = Append | Stop


def state(job: Job) -> State:
    """Return the state of a job, read off its flags."""
    return state_of(job.refunded, job.reclaimed)


def state_of(refunded: Flag, reclaimed: Flag) -> State:
    """Return the state that the two flags spell. Source: domain, section 3."""
    if Flag.BAD in (refunded, reclaimed):
        return State.BAD_FLAGS
    if reclaimed is Flag.SET:
        return State.RECLAIMED if refunded is Flag.SET else State.CORRUPT
    return State.REFUNDED if refunded is Flag.SET else State.CHARGED


def of_type(rows: Iterable[Row], row_type: RowType) -> list[Row]:
    """Return the rows of one type."""
    return [row for row in rows if row.type == row_type]


def decide_refund(job: Job, rows: Sequence[Row], *, force: bool = False) -> Decision:
    """Decide whether a refund row may be appended to this job, whose rows are `rows`.

    The amount is minus the charge row's, never what anyone reports. The guard itself is in the
    write. Source: domain, sections 2 and 3.
    """
    existing = of_type(rows, RowType.REFUND)
    match state(job):
        case State.BAD_FLAGS:
            return Stop(Outcome.BAD_FLAGS, detail="a flag is neither true, false nor absent")
        case State.CORRUPT:
            return Stop(Outcome.CORRUPT, detail="reclaimed without ever having been refunded")
        case State.REFUNDED | State.RECLAIMED:
            if existing:
                return Stop(Outcome.ALREADY_REFUNDED, existing[0])
            return pinned(job, rows, sign=-1, complete=True)
        case State.CHARGED:
            if existing:
                return Stop(
                    Outcome.ROW_EXISTS, existing[0], "a refund row exists, the flag is not set"
                )
            if job.status == SUCCEEDED and not force:
                return Stop(Outcome.JOB_SUCCEEDED, detail="the job succeeded; --force refunds it")
            return pinned(job, rows, sign=-1)
        case other:
            assert_never(other)


def decide_reclaim(job: Job, rows: Sequence[Row]) -> Decision:
    """Decide whether a reclaim row may be appended; never refused for lack of credit.

    A job that was never refunded needs none, which is success. Source: domain, section 3.
    """
    existing = of_type(rows, RowType.RECLAIM)
    match state(job):
        case State.BAD_FLAGS:
            return Stop(Outcome.BAD_FLAGS, detail="a flag is neither true, false nor absent")
        case State.CORRUPT:
            return Stop(Outcome.CORRUPT, detail="reclaimed without ever having been refunded")
        case State.CHARGED:
            return Stop(Outcome.NEVER_REFUNDED)
        case State.RECLAIMED:
            if existing:
                return Stop(Outcome.ALREADY_RECLAIMED, existing[0])
            return pinned(job, rows, sign=1, complete=True)
        case State.REFUNDED:
            if existing:
                return Stop(
                    Outcome.ROW_EXISTS, existing[0], "a reclaim row exists, the flag is not set"
                )
            return pinned(job, rows, sign=1)
        case other:
            assert_never(other)


def pinned(job: Job, rows: Sequence[Row], *, sign: int, complete: bool = False) -> Decision:
    """Return the amount and account that the job's one charge row pins, or why it pins none."""
    charges = of_type(rows, RowType.CHARGE)
    if not charges:
        return Stop(Outcome.NO_CHARGE, detail="the job has no charge row")
    if len(charges) > 1:
        return Stop(Outcome.CONFLICT, charges[0], f"the job has {len(charges)} charge rows")
    charge = charges[0]
    if not isinstance(charge.amount, int) or charge.amount > 0:
        return Stop(Outcome.BAD_COST, charge, "the charge row is not a whole number ≤ 0")
    account = job.account or charge.account
    if account is None:
        return Stop(Outcome.NO_ACCOUNT, charge, "neither the job nor its charge row has an account")
    if charge.account is not None and charge.account.text != account.text:
        return Stop(Outcome.CONFLICT, charge, "the charge row belongs to another account")
    return Append(sign * charge.amount, account, complete)


def decide_charge(job: Job, rows: Sequence[Row], *, account: Id, cost: int) -> Decision:
    """Decide what charging means for a job document that exists already."""
    charges = of_type(rows, RowType.CHARGE)
    if job.cost != cost:
        return Stop(Outcome.CONFLICT, charges[0] if charges else None, "the job has another cost")
    if job.account is not None and job.account.text != account.text:
        return Stop(
            Outcome.CONFLICT, charges[0] if charges else None, "the job has another account"
        )
    if len(charges) > 1:
        return Stop(Outcome.CONFLICT, charges[0], f"the job has {len(charges)} charge rows")
    if charges:
        return _compare_charge(charges[0], account=account, cost=cost)
    if state(job) is not State.CHARGED:
        return Stop(Outcome.CONFLICT, detail=f"the job is {state(job)} and has no charge row")
    return Append(-cost, job.account or account, complete=True)


def _compare_charge(charge: Row, *, account: Id, cost: int) -> Stop:
    if charge.amount != -cost:
        return Stop(Outcome.CONFLICT, charge, "the charge row has another amount")
    if charge.account is not None and charge.account.text != account.text:
        return Stop(Outcome.CONFLICT, charge, "the charge row belongs to another account")
    return Stop(Outcome.ALREADY_CHARGED, charge)


def fate_of(outcome: Outcome) -> Fate:
    """Class an outcome as a change's result counts it."""
    if outcome in APPLIED:
        return Fate.DONE
    if outcome in ALREADY:
        return Fate.ALREADY
    return Fate.NOT_FOUND if outcome is Outcome.NOT_FOUND else Fate.REFUSED
