"""Verdict on a whole job: what its corrections make good, and what its rows should come to; pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ledgerctl.domain.amounts import total
from ledgerctl.domain.audit import run_checks
from ledgerctl.domain.findings import (
    CORRECT,
    DISAGREEMENTS,
    MADE_GOOD,
    Case,
    Code,
    Facts,
    Finding,
    facts_of,
    words,
)
from ledgerctl.domain.jobs import (
    Job,
    State,
    of_type,
)
from ledgerctl.domain.rows import Row, RowType

# corrections


CORRECTABLE = DISAGREEMENTS - {Code.CORRUPT_FLAGS, Code.BAD_FLAGS}


def can_be_corrected(finding: Finding) -> bool:
    """Tell if only a correction row can make this finding good."""
    return finding.code in CORRECTABLE and not finding.repairable


def corrected(facts: Facts, found: list[Finding]) -> list[Finding]:
    """Take what the job's correction rows have made good out of the findings' effects."""
    corrections = [row for row in of_type(facts.rows, RowType.CORRECTION) if facts.job is not None]
    if not corrections:
        return netted(found)
    given = total(row.amount for row in corrections)
    off = sum(one.effect for one in found if can_be_corrected(one)) + given
    if off == 0:
        return [made_good(one) if can_be_corrected(one) else one for one in found]
    at = next((at for at, one in enumerate(found) if can_be_corrected(one)), None)
    if at is not None:
        first = found[at]
        return [*found[:at], replace(first, effect=first.effect + given), *found[at + 1 :]]
    over = facts.finding(
        Code.WRONG_AMOUNT,
        f"with {', '.join(words(row) for row in corrections)} the job is {off:+d} off its right net",
        rows=corrections,
        effect=off,
        remedy=CORRECT,
    )
    return [*found, over]


def netted(found: list[Finding]) -> list[Finding]:
    """Drop the effects where the rows net right although a flag is not set.

    Source: contract, section 3, ledger audit, `unflagged_row`.
    """
    wrong = [one for one in found if can_be_corrected(one)]
    if sum(one.effect for one in wrong) or all(one.code != Code.UNFLAGGED_ROW for one in wrong):
        return found
    return [replace(one, effect=0) if can_be_corrected(one) else one for one in found]


def made_good(finding: Finding) -> Finding:
    """Mark a finding whose effect a correction row has undone."""
    settled = finding.code in MADE_GOOD or finding.code is Code.UNFLAGGED_ROW
    detail = f"{finding.detail}; a correction row makes up for it"
    return replace(finding, effect=0, settled=settled, detail=detail, remedy=None)


# what a whole job comes to


def audit(case: Case) -> list[Finding]:
    """Find everything that is wrong with this case, in the order of the checks."""
    found: list[Finding] = []
    for job in case.jobs or (None,):
        facts = facts_of(case, job)
        found += corrected(facts, run_checks(facts))
    return found


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """State what the rows of one job come to, in whole credits."""

    net: int  # of every row of the job
    expected: int | None  # by the charge row; None where nothing tells it
    findings: tuple[Finding, ...]

    @property
    def consistent(self) -> bool:
        """Tell if flags and rows agree, and the rows net what they should."""
        return not any(one.code in DISAGREEMENTS and not one.settled for one in self.findings)


@dataclass(frozen=True, slots=True)
class JobPage:
    """Hold one job's page. `queues` is None where Redis could not be asked; `queues_why` says why."""

    job: Job
    rows: tuple[Row, ...]
    verdict: JobVerdict
    queues: dict[str, int] | None
    queues_why: str = ""


def judge(case: Case) -> JobVerdict:
    """Compare what one job's rows come to with what they should, and find what is wrong."""
    job = case.jobs[0] if case.jobs else None
    facts = facts_of(case, job)
    return JobVerdict(
        net=total(row.amount for row in facts.rows),
        expected=right_net(facts),
        findings=tuple(audit(case)),
    )


def right_net(facts: Facts) -> int | None:
    """Return what the job's rows must come to by its state and its charge row."""
    match facts.state:
        case State.REFUNDED:
            return 0
        case State.CHARGED | State.RECLAIMED:
            return None if facts.cost is None else -facts.cost
        case _:
            return None


def unmessaged(rows: Iterable[Row], messages: set[str]) -> frozenset[str]:
    """Return the rows that carry an operation id and have no message among these."""
    return frozenset(
        row.id.text for row in rows if row.operation_id is not None and row.id.text not in messages
    )
