"""Name what the audit can find, and sort one job's documents for its checks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ledgerctl.domain.amounts import Amount
from ledgerctl.domain.jobs import (
    Flag,
    Job,
    State,
    of_type,
    state,
)
from ledgerctl.domain.results import Remedy
from ledgerctl.domain.rows import Row, RowType, row_id

FUTURE_SLACK = timedelta(seconds=5)  # writers' clocks differ a little from the server's
STEP_TYPES = (RowType.CHARGE, RowType.REFUND, RowType.RECLAIM)
JOB_TYPES = frozenset({*STEP_TYPES, RowType.CORRECTION})


REPAIR, CORRECT, SHOW = "ledger repair", "ledger correct", "job show"
REFUND, RECLAIM = "job refund", "job reclaim"


class Code(StrEnum):
    """Name everything that the audit can find. Source: contract, section 3, ledger."""

    MISSING_ROW = "missing_row"
    UNFLAGGED_ROW = "unflagged_row"
    DUPLICATE_ROW = "duplicate_row"
    WRONG_AMOUNT = "wrong_amount"
    WRONG_SIGN = "wrong_sign"
    MISSING_CHARGE = "missing_charge"
    ORPHAN_ROW = "orphan_row"
    CORRUPT_FLAGS = "corrupt_flags"
    BAD_FLAGS = "bad_flags"
    FLAGS_MISSING = "flags_missing"
    FLAG_TIME = "flag_time"
    BAD_AMOUNT = "bad_amount"
    BAD_COST = "bad_cost"
    COST_MISMATCH = "cost_mismatch"
    UNDATED_ROW = "undated_row"
    FUTURE_ROW = "future_row"
    ODD_RECORDED_AT = "odd_recorded_at"
    MIXED_ID_TYPES = "mixed_id_types"
    MISSING_MESSAGE = "missing_message"
    REFUNDED_BUT_SUCCEEDED = "refunded_but_succeeded"
    STRANDED_CHARGE = "stranded_charge"  # looked for only by name: it wants the lists read


# No row is ever changed or deleted, so only a correction row can make these good.
MADE_GOOD = frozenset({Code.DUPLICATE_ROW, Code.WRONG_AMOUNT, Code.WRONG_SIGN})
# Flags and rows disagree.
DISAGREEMENTS = MADE_GOOD | {
    Code.MISSING_ROW,
    Code.UNFLAGGED_ROW,
    Code.MISSING_CHARGE,
    Code.CORRUPT_FLAGS,
    Code.BAD_FLAGS,
    Code.BAD_AMOUNT,
}


@dataclass(frozen=True, slots=True)
class Case:
    """Hold everything that the stores have under one job id, or one row that names no job.

    `jobs` are the documents of this id: none, one, or one for each type that holds it. `now` is
    the server's time after the last of it was read. `unmessaged` are the rows whose message is
    not in the outbox although they carry an operation id.
    """

    job_id: str | None
    jobs: tuple[Job, ...]
    rows: tuple[Row, ...]
    now: datetime
    unmessaged: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Finding:
    """State one thing that is wrong.

    `effect`: credits the account is off by, + too much, − too little. `settled`: a correction row
    has made it good; it is shown and raises no alarm. `about`: the type of the row or flag, where
    a job has more than one.
    """

    code: Code
    job_id: str | None
    account_id: str | None
    row_ids: tuple[str, ...]
    effect: int
    repairable: bool
    detail: str
    remedy: Remedy | None = None
    settled: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Sort a case with at most one job for the checks.

    `cost` is what was charged by the job's charge row; `assumed` is the same, else the job
    document's own cost, else what a refund row gives back: good enough to say how much is off.
    """

    case: Case
    job: Job | None
    rows: tuple[Row, ...]
    kept: dict[str, Row]
    cost: int | None
    assumed: int | None

    @property
    def state(self) -> State | None:
        """Return the state that the flags spell; None without a job."""
        return None if self.job is None else state(self.job)

    @property
    def plain_flags(self) -> bool:
        """Tell if the flags spell a state that a path leads to."""
        return self.state in {State.CHARGED, State.REFUNDED, State.RECLAIMED}

    def right(self, row_type: str) -> int | None:
        """Return the amount that a step row of this job must have; None where nothing tells it."""
        if self.assumed is None:
            return None
        return self.assumed if row_type == RowType.REFUND else -self.assumed

    def is_right(self, row_type: RowType) -> bool:
        """Tell if the row of this type exists with the amount that the charge row pins."""
        row = self.kept.get(row_type)
        return row is not None and self.cost is not None and row.amount == self.right(row_type)

    def account(self, row: Row | None = None) -> str | None:
        """Return the owner: the row's own account, else the job's, else that of any row."""
        owners = [
            None if row is None else row.account,
            None if self.job is None else self.job.account,
        ]
        owners += [one.account for one in self.rows]
        return next((owner.text for owner in owners if owner is not None), None)

    def finding(
        self,
        code: Code,
        detail: str,
        *,
        rows: Iterable[Row] = (),
        effect: int = 0,
        repairable: bool = False,
        about: str = "",
        remedy: str = "",
    ) -> Finding:
        """Make a finding about this job and these of its rows; `remedy` is the verb that heals it."""
        named = tuple(rows)
        return Finding(
            code=code,
            job_id=self.case.job_id,
            account_id=self.account(named[0] if named else None),
            row_ids=tuple(row.id.text for row in named),
            effect=effect,
            repairable=repairable,
            detail=detail,
            remedy=Remedy(remedy, self.case.job_id) if remedy else None,
            about=about,
        )


def facts_of(case: Case, job: Job | None) -> Facts:
    """Sort a case as seen from one of its jobs, or from none.

    Where two jobs have the same id under two types, each has the rows of its own type.
    """
    rows = case.rows
    if job is not None and len(case.jobs) > 1:
        rows = tuple(row for row in rows if row.job is None or row.job.kind == job.id.kind)
    kept: dict[str, Row] = {}
    whole_cost = job.cost if job is not None and isinstance(job.cost, int) else None
    charge = keep(rows, RowType.CHARGE, job, None if whole_cost is None else -whole_cost)
    cost = abs(charge.amount) if charge is not None and isinstance(charge.amount, int) else None
    assumed = cost if cost is not None else whole_cost
    if assumed is None:
        refunds = [row.amount for row in of_type(rows, RowType.REFUND)]
        assumed = next((abs(amount) for amount in refunds if isinstance(amount, int)), None)
    if charge is not None:
        kept[RowType.CHARGE] = charge
    for row_type, sign in ((RowType.REFUND, 1), (RowType.RECLAIM, -1)):
        row = keep(rows, row_type, job, None if assumed is None else sign * assumed)
        if row is not None:
            kept[row_type] = row
    return Facts(case, job, rows, kept, cost, assumed)


def keep(rows: Sequence[Row], row_type: RowType, job: Job | None, right: int | None) -> Row | None:
    """Choose the row of a type that counts: ours, else the right one, else the first."""
    found = of_type(rows, row_type)
    if len(found) < 2:  # noqa: PLR2004  # one row needs no choosing
        return found[0] if found else None
    ours = None if job is None else row_id(job.id, row_type)
    return min(found, key=lambda row: (row.id.text != ours, row.amount != right))


def words(row: Row) -> str:
    """Describe a row: its type, its id and its amount."""
    return f"{row.type} row {row.id.text} ({shown(row.amount)})"


def shown(amount: Amount) -> str:
    """Write an amount with its sign, or the stored value that is none."""
    return f"{amount:+d}" if isinstance(amount, int) else amount.shown


def flags_of(job: Job) -> tuple[tuple[Flag, datetime | None, RowType], ...]:
    """List the job's two flags, each with its time and the type of its row."""
    return (
        (job.refunded, job.refunded_at, RowType.REFUND),
        (job.reclaimed, job.reclaimed_at, RowType.RECLAIM),
    )


def flag_name(row_type: str) -> str:
    """Name the flag that belongs to a row of this type."""
    return "is_refunded" if row_type == RowType.REFUND else "is_reclaimed"
