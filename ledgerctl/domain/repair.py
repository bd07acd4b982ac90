"""Repairs and corrections: from what the audit found to the steps that heal it; pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ledgerctl.domain.audit import can_be_corrected, corrected, proves, right_net, run_checks
from ledgerctl.domain.findings import Case, Code, Facts, Finding, facts_of, flags_of
from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import Flag, Job, State, of_type
from ledgerctl.domain.rows import Row, RowType, correction_id


class Mend(StrEnum):
    """Name the ways to heal; the write of each keeps a guard of its own."""

    APPEND_ROW = "append_row"
    PUT_MESSAGE = "put_message"
    SET_FLAG = "set_flag"
    CLEAR_FLAG = "clear_flag"  # absent becomes false
    SET_FLAG_TIME = "set_flag_time"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """Hold one write that heals a finding, or part of one.

    `at`: the time to write, None for now. `since`: when the fault came about, for the grace; None
    where nothing tells it.
    """

    code: Code
    mend: Mend
    row_type: RowType | None = None  # which flag, or which row
    job: Job | None = None
    row: Row | None = None
    at: datetime | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """Hold one finding with the steps that heal it."""

    finding: Finding
    steps: tuple[RepairStep, ...]

    @property
    def since(self) -> datetime | None:
        """Return when the youngest part of it came about; None where nothing tells it."""
        return max((step.since for step in self.steps if step.since is not None), default=None)

    def is_ripe(self, now: datetime, grace: timedelta) -> bool:
        """Return whether it is older than the grace, so that a live worker would have finished."""
        return self.since is None or self.since <= now - grace


def plan(case: Case) -> list[Repair]:
    """Return what a repair would do about this case, in the order in which it is to be done."""
    repairs = []
    for job in case.jobs or (None,):
        facts = facts_of(case, job)
        for finding in corrected(facts, run_checks(facts)):
            planner = PLANNERS.get(finding.code)
            if finding.repairable and planner is not None:
                repairs.append(Repair(finding, tuple(planner(facts, finding))))
    return repairs


def append_rows(facts: Facts, finding: Finding) -> Iterator[RepairStep]:
    """Yield the row that a set flag calls for, dated by the flag."""
    for job, flag, at, row_type in told(facts):
        if flag is Flag.SET and row_type == finding.about:
            since = at or job.created_at
            yield RepairStep(finding.code, Mend.APPEND_ROW, row_type, job, None, at, since)


def put_messages(facts: Facts, finding: Finding) -> Iterator[RepairStep]:
    """Yield the message of each row that has none."""
    for row in facts.rows:
        if row.id.text in finding.row_ids:
            since = row.recorded_at or row.created_at
            yield RepairStep(finding.code, Mend.PUT_MESSAGE, None, facts.job, row, None, since)


def set_flags(facts: Facts, finding: Finding) -> Iterator[RepairStep]:
    """Yield the flags that the rows prove, refund first."""
    for job, flag, at, row_type in told(facts):
        if flag is not Flag.SET and proves(facts, row_type):
            row = facts.kept[row_type]
            since = row.recorded_at or row.created_at
            step_at = at or row.created_at
            yield RepairStep(finding.code, Mend.SET_FLAG, row_type, job, row, step_at, since)


def clear_flags(facts: Facts, finding: Finding) -> Iterator[RepairStep]:
    """Set each absent flag to false where no row proves it."""
    for job, flag, _, row_type in told(facts):
        if flag is Flag.CLEAR and row_type not in facts.kept:
            yield RepairStep(
                finding.code, Mend.CLEAR_FLAG, row_type, job, None, None, job.created_at
            )


def date_flags(facts: Facts, finding: Finding) -> Iterator[RepairStep]:
    """Yield the time of a flag from its row, or the flag of a time whose row exists."""
    for job, flag, at, row_type in told(facts):
        row = facts.kept.get(row_type)
        if row is None or row_type != finding.about:
            continue
        since = row.recorded_at or row.created_at
        if flag is Flag.SET and at is None and row.created_at is not None:
            yield RepairStep(
                finding.code, Mend.SET_FLAG_TIME, row_type, job, row, row.created_at, since
            )
        if flag is Flag.CLEAR and at is not None and proves(facts, row_type):
            yield RepairStep(finding.code, Mend.SET_FLAG, row_type, job, row, at, since)


def told(facts: Facts) -> Iterator[tuple[Job, Flag, datetime | None, RowType]]:
    """Yield each flag of the case's job, with the job."""
    if facts.job is not None:
        for flag, at, row_type in flags_of(facts.job):
            yield facts.job, flag, at, row_type


Planner = Callable[[Facts, Finding], Iterable[RepairStep]]

PLANNERS: dict[Code, Planner] = {
    Code.MISSING_ROW: append_rows,
    Code.MISSING_MESSAGE: put_messages,
    Code.UNFLAGGED_ROW: set_flags,
    Code.CORRUPT_FLAGS: set_flags,
    Code.BAD_FLAGS: set_flags,
    Code.FLAGS_MISSING: clear_flags,
    Code.FLAG_TIME: date_flags,
}


# corrections


class CorrectionOutcome(StrEnum):
    """Name what came of a correction."""

    APPLIED = "applied"
    ALREADY_RIGHT = "already_right"
    REPAIR_FIRST = "repair_first"  # what is wrong is a lost row or flag, which a repair brings back
    NOT_FOUND = "not_found"
    BAD_FLAGS = "bad_flags"
    CORRUPT = "corrupt"
    NO_CHARGE = "no_charge"
    BAD_COST = "bad_cost"
    NO_ACCOUNT = "no_account"
    CONFLICT = "conflict"  # two jobs of this id, or a foreign row under the correction's id


@dataclass(frozen=True, slots=True)
class CorrectionPlan:
    """Hold the one correction row that brings a job to its right net."""

    job: Job
    account: Id
    amount: int
    row_id: str
    net: int  # before it, of the job's own step and correction rows
    right: int


@dataclass(frozen=True, slots=True)
class NoCorrection:
    """Describe why no correction row is to be written."""

    outcome: CorrectionOutcome
    detail: str


def decide_correction(case: Case) -> CorrectionPlan | NoCorrection:
    """Return the correction that this case needs, or why there is none.

    What a repair will heal is left to it: a correction beside it would count twice.
    """
    if not case.jobs:
        return NoCorrection(CorrectionOutcome.NOT_FOUND, "no job has this id")
    if len(case.jobs) > 1:
        kinds = " and ".join(sorted(job.id.kind for job in case.jobs))
        return NoCorrection(CorrectionOutcome.CONFLICT, f"two jobs have this id: {kinds}")
    job = case.jobs[0]
    facts = facts_of(case, job)
    refused = refusal(facts)
    if refused is not None:
        return refused
    account = job.account or next((row.account for row in facts.rows if row.account), None)
    if account is None:
        return NoCorrection(CorrectionOutcome.NO_ACCOUNT, "neither the job nor its rows name one")
    findings = run_checks(facts)
    given = sum(row.amount for row in corrections(facts) if isinstance(row.amount, int))
    amount = -sum(one.effect for one in findings if can_be_corrected(one)) - given
    if amount == 0:
        return nothing_to_correct(findings)
    net = sum(row.amount for row in job_rows(facts) if isinstance(row.amount, int))
    row_id = correction_id(job.id, next_number(facts))
    return CorrectionPlan(job, account, amount, row_id, net, net + amount)


def refusal(facts: Facts) -> NoCorrection | None:
    """Return why the right net of this job is not known."""
    match facts.state:
        case State.BAD_FLAGS:
            return NoCorrection(
                CorrectionOutcome.BAD_FLAGS, "a flag is neither true, false nor absent"
            )
        case State.CORRUPT:
            return NoCorrection(
                CorrectionOutcome.CORRUPT, "reclaimed without ever having been refunded"
            )
        case _:
            pass
    charge = facts.kept.get(RowType.CHARGE)
    if charge is not None and not isinstance(charge.amount, int):
        return NoCorrection(CorrectionOutcome.BAD_COST, "the charge row's amount cannot be read")
    if right_net(facts) is None and run_checks(facts):
        return NoCorrection(
            CorrectionOutcome.NO_CHARGE, "without a charge row nothing tells the right net"
        )
    return None


def nothing_to_correct(findings: Iterable[Finding]) -> NoCorrection:
    """Tell that the job is right as it is, or that a repair comes first."""
    if sum(one.effect for one in findings if one.repairable and one.code in TO_REPAIR_FIRST):
        return NoCorrection(
            CorrectionOutcome.REPAIR_FIRST, "a row or a flag is lost; repair the job first"
        )
    return NoCorrection(CorrectionOutcome.ALREADY_RIGHT, "the rows net what they should")


TO_REPAIR_FIRST = frozenset({Code.MISSING_ROW, Code.UNFLAGGED_ROW})


def corrections(facts: Facts) -> list[Row]:
    """Return the correction rows of the job."""
    return of_type(facts.rows, RowType.CORRECTION)


def job_rows(facts: Facts) -> list[Row]:
    """Return the rows that make the job's net: steps and corrections, no other types."""
    known = {RowType.CHARGE, RowType.REFUND, RowType.RECLAIM, RowType.CORRECTION}
    return [row for row in facts.rows if row.type in known]


def next_number(facts: Facts) -> int:
    """Return the number of the next correction: one more than there are, and than any that is used.

    Two operators who saw the same rows come to the same number, so only one row can be written.
    """
    found = corrections(facts)
    used = [row.id.text.rpartition(":")[2] for row in found]
    return max([len(found), *(int(one) for one in used if one.isdecimal() and len(one) < 10)]) + 1  # noqa: PLR2004  # a number we wrote
