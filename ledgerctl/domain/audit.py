"""Check that a job's flags, its rows and its messages agree: one function for each thing that can be wrong."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ledgerctl.domain.amounts import Amount, total
from ledgerctl.domain.findings import (
    CORRECT,
    DISAGREEMENTS,
    FUTURE_SLACK,
    JOB_TYPES,
    MADE_GOOD,
    RECLAIM,
    REFUND,
    REPAIR,
    SHOW,
    STEP_TYPES,
    Case,
    Code,
    Facts,
    Finding,
    facts_of,
    flag_name,
    flags_of,
    shown,
    words,
)
from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import (
    SUCCEEDED,
    Append,
    Flag,
    Job,
    State,
    decide_reclaim,
    decide_refund,
    of_type,
)
from ledgerctl.domain.rows import Row, RowType
from ledgerctl.domain.times import format_time

# the checks: flags against rows


def missing_row(facts: Facts) -> Iterator[Finding]:
    """Find a flag that is set and whose row is missing."""
    job = facts.job
    if job is None or not facts.plain_flags:
        return
    for flag, at, row_type in flags_of(job):
        if flag is not Flag.SET or row_type in facts.kept:
            continue
        amount = facts.right(row_type)
        decide = decide_refund if row_type == RowType.REFUND else decide_reclaim
        decision = decide(job, facts.rows)
        repairable = isinstance(decision, Append)
        since = f" since {format_time(at)}" if at else ""
        of = "" if amount is None else f" of {amount:+d}"
        why = (
            "" if isinstance(decision, Append) else f"; no repair can append it: {decision.detail}"
        )
        yield facts.finding(
            Code.MISSING_ROW,
            f"{flag_name(row_type)} is set{since} and the {row_type} row{of} is missing{why}",
            effect=-(amount or 0),
            repairable=repairable,
            about=row_type,
            remedy=REPAIR if repairable else CORRECT,
        )


def unflagged_row(facts: Facts) -> Iterator[Finding]:
    """Find a refund or reclaim row whose flag is clear."""
    job = facts.job
    if job is None or not facts.plain_flags:
        return
    rows = [
        facts.kept[row_type]
        for flag, _, row_type in flags_of(job)
        if flag is Flag.CLEAR and row_type in facts.kept
    ]
    if not rows:
        return
    proven = all(proves(facts, RowType(row.type)) for row in rows)
    names = " and ".join(flag_name(row.type) for row in rows)
    yield facts.finding(
        Code.UNFLAGGED_ROW,
        f"{' and '.join(words(row) for row in rows)} exists and {names} is not set",
        rows=rows,
        effect=sum(facts.right(row.type) or 0 for row in rows),
        repairable=proven,
        remedy=REPAIR if proven else CORRECT,
    )


def proves(facts: Facts, row_type: RowType) -> bool:
    """Tell if the rows prove that this step was taken: its row and the one before it are right."""
    if not facts.is_right(row_type):
        return False
    if row_type == RowType.REFUND:
        return True
    refunded = facts.job is not None and facts.job.refunded is Flag.SET
    return refunded or facts.is_right(RowType.REFUND)


def duplicate_row(facts: Facts) -> Iterator[Finding]:
    """Find more than one row of a step that can be taken once."""
    if facts.job is None:
        return
    for row_type in STEP_TYPES:
        rows = of_type(facts.rows, row_type)
        if len(rows) < 2:  # noqa: PLR2004  # two are one too many
            continue
        kept = facts.kept[row_type]
        others = [row for row in rows if row is not kept]
        yield facts.finding(
            Code.DUPLICATE_ROW,
            f"{len(rows)} {row_type} rows: besides {words(kept)} also"
            f" {', '.join(words(row) for row in others)}",
            rows=(kept, *others),
            effect=total(row.amount for row in others),
            remedy=CORRECT,
        )


def wrong_sign(facts: Facts) -> Iterator[Finding]:
    """Find a row whose sign contradicts its type: a charge that adds, or a refund that takes."""
    if facts.job is None:
        return
    for row_type, row in facts.kept.items():
        if has_wrong_sign(row):
            right = facts.right(row_type) or 0
            yield facts.finding(
                Code.WRONG_SIGN,
                f"{words(row)} has the wrong sign; {right:+d} would be right",
                rows=(row,),
                effect=int_of(row.amount) - right,
                remedy=CORRECT,
            )


def has_wrong_sign(row: Row) -> bool:
    """Tell if a step row takes where its type gives, or gives where its type takes."""
    amount = int_of(row.amount)
    return amount < 0 if row.type == RowType.REFUND else amount > 0


def wrong_amount(facts: Facts) -> Iterator[Finding]:
    """Find a refund or reclaim row whose amount is not what was charged."""
    if facts.job is None:
        return
    for row_type in (RowType.REFUND, RowType.RECLAIM):
        row = facts.kept.get(row_type)
        right = facts.right(row_type)
        if row is None or right is None or row.amount == right:
            continue
        if isinstance(row.amount, int) and not has_wrong_sign(row):
            yield facts.finding(
                Code.WRONG_AMOUNT,
                f"{words(row)} must be {right:+d}, as charged",
                rows=(row,),
                effect=row.amount - right,
                remedy=CORRECT,
            )


def missing_charge(facts: Facts) -> Iterator[Finding]:
    """Find a set flag, a refund row or a reclaim row of a job that has no charge row."""
    job = facts.job
    if job is None or RowType.CHARGE in facts.kept:
        return
    followers = [facts.kept[one] for one in (RowType.REFUND, RowType.RECLAIM) if one in facts.kept]
    if followers or Flag.SET in (job.refunded, job.reclaimed):
        yield facts.finding(
            Code.MISSING_CHARGE,
            "the job was refunded or reclaimed and has no charge row; no command writes a charge"
            " after the fact",
            rows=followers,
            effect=facts.assumed or 0,
            remedy=SHOW,
        )


def corrupt_flags(facts: Facts) -> Iterator[Finding]:
    """Find a job that is reclaimed without being refunded: no path leads there."""
    if facts.state is State.CORRUPT:
        proven = proves(facts, RowType.RECLAIM)
        yield facts.finding(
            Code.CORRUPT_FLAGS,
            f"is_reclaimed is set and is_refunded is not{by_hand(proven)}",
            repairable=proven,
            remedy=repair_or_show(proven),
        )


def bad_flags(facts: Facts) -> Iterator[Finding]:
    """Find a flag that is neither true, false, null nor absent."""
    job = facts.job
    if job is None or facts.state is not State.BAD_FLAGS:
        return
    bad = [row_type for flag, _, row_type in flags_of(job) if flag is Flag.BAD]
    proven = all(proves(facts, row_type) for row_type in bad)
    names = " and ".join(flag_name(row_type) for row_type in bad)
    yield facts.finding(
        Code.BAD_FLAGS,
        f"{names} is neither true nor false{by_hand(proven)}",
        repairable=proven,
        remedy=repair_or_show(proven),
    )


def by_hand(proven: bool) -> str:
    """Say that a person must set a flag where no command may decide."""
    return "" if proven else "; the rows do not prove what it must be, so set it by hand"


def repair_or_show(proven: bool) -> str:
    """Choose the verb: a repair where the rows prove the flag, else a look at the job."""
    return REPAIR if proven else SHOW


def flags_missing(facts: Facts) -> Iterator[Finding]:
    """Find a flag that is absent or null: false here, and never matched by a filter for false."""
    job = facts.job
    if job is None or job.flags_present:
        return
    # False would invite another program to append a second row beside one that proves nothing.
    clear = [row_type for flag, _, row_type in flags_of(job) if flag is Flag.CLEAR]
    safe = all(one not in facts.kept or proves(facts, one) for one in clear)
    yield facts.finding(
        Code.FLAGS_MISSING,
        f"a flag is absent or null; a filter for false never finds such a job{by_hand(safe)}",
        repairable=safe,
        remedy=repair_or_show(safe),
    )


def flag_time(facts: Facts) -> Iterator[Finding]:
    """Find a flag without its time, or a time without its flag."""
    if facts.job is None:
        return
    for flag, at, row_type in flags_of(facts.job):
        row = facts.kept.get(row_type)
        if flag is Flag.SET and at is None:
            known = row is not None and row.created_at is not None
            said = "set and its time is missing"
        elif flag is Flag.CLEAR and at is not None:
            known = proves(facts, row_type)
            said = f"not set and has the time {format_time(at)}"
        else:
            continue
        yield facts.finding(
            Code.FLAG_TIME,
            f"{flag_name(row_type)} is {said}{by_hand(known)}",
            repairable=known,
            about=row_type,
            remedy=repair_or_show(known),
        )


# the checks: the job's own figures


def bad_cost(facts: Facts) -> Iterator[Finding]:
    """Find a cost that is not a whole number of credits, 0 or more."""
    if facts.job is not None and not (isinstance(facts.job.cost, int) and facts.job.cost >= 0):
        cost = facts.job.cost
        yield facts.finding(
            Code.BAD_COST,
            f"the job's cost is {shown(cost).lstrip('+')}, not a whole number of credits; amounts"
            " come from the charge row",
            remedy=SHOW,
        )


def cost_mismatch(facts: Facts) -> Iterator[Finding]:
    """Find a cost that is not what the charge row took."""
    job, charge = facts.job, facts.kept.get(RowType.CHARGE)
    if job is None or charge is None or not isinstance(job.cost, int) or facts.cost is None:
        return
    if job.cost >= 0 and job.cost != facts.cost:
        yield facts.finding(
            Code.COST_MISMATCH,
            f"the job's cost is {job.cost} and {facts.cost} was charged; refunds and reclaims use"
            " the charge row's amount",
            rows=(charge,),
            remedy=SHOW,
        )


def refunded_but_succeeded(facts: Facts) -> Iterator[Finding]:
    """Find a job that succeeded and kept its refund: a reclaim candidate."""
    if facts.job is None or facts.state is not State.REFUNDED or facts.job.status != SUCCEEDED:
        return
    refund = facts.kept.get(RowType.REFUND)
    yield facts.finding(
        Code.REFUNDED_BUT_SUCCEEDED,
        "the job succeeded and was refunded, and the refund was not taken back",
        rows=() if refund is None else (refund,),
        effect=facts.assumed or 0,
        remedy=RECLAIM,
    )


def mixed_id_types(facts: Facts) -> Iterator[Finding]:
    """Find an id stored under two types: a program that looks it up by one never finds the other."""
    case = facts.case
    kinds: dict[str, None] = dict.fromkeys(job.id.kind for job in case.jobs)
    kinds |= dict.fromkeys(row.job.kind for row in case.rows if row.job is not None)
    if len(kinds) < 2 or (case.jobs and facts.job is not case.jobs[0]):  # noqa: PLR2004  # two types
        return
    odd = [
        row for row in case.rows if row.job and case.jobs and row.job.kind != case.jobs[0].id.kind
    ]
    yield facts.finding(
        Code.MIXED_ID_TYPES,
        f"the id is stored as {' and as '.join(sorted(kinds))}: ledgerctl finds the rows of both,"
        " other programs may miss some",
        rows=odd,
        remedy=SHOW,
    )


def mixed_account(ids: Sequence[Id]) -> Finding:
    """State that an account is stored under several types."""
    kinds = " and as ".join(sorted({one.kind for one in ids}))
    return Finding(
        code=Code.MIXED_ID_TYPES,
        job_id=None,
        account_id=ids[0].text,
        row_ids=(),
        effect=0,
        repairable=False,
        detail=f"the account is stored as {kinds}: ledgerctl takes them for one,"
        " other programs may miss some",
    )


# the checks: each row by itself


def orphan_row(facts: Facts) -> Iterator[Finding]:
    """Find a row of a job that does not exist, or a step's row that names no job."""
    if facts.job is not None:
        return
    for row in facts.rows:
        if row.job is None and row.type not in JOB_TYPES:
            continue
        why = (
            "names no job" if row.job is None else f"names job {row.job.text}, which does not exist"
        )
        yield facts.finding(
            Code.ORPHAN_ROW,
            f"{words(row)} {why}; it counts in the balance; a grant or the job's document settles it",
            rows=(row,),
            effect=int_of(row.amount),
        )


def bad_amount(facts: Facts) -> Iterator[Finding]:
    """Find a row whose amount cannot be summed: no balance contains it."""
    for row in facts.rows:
        if isinstance(row.amount, int):
            continue
        counts = facts.job is not None and facts.kept.get(row.type) is row
        right = (facts.right(row.type) or 0) if counts else 0
        how, remedy = "", CORRECT
        if not right:
            how, remedy = "; a grant makes up for it", ""
        elif row.type == RowType.CHARGE:
            how, remedy = "; no command can tell what was charged", SHOW
        yield facts.finding(
            Code.BAD_AMOUNT,
            f"the amount of {row.type} row {row.id.text} is {row.amount.shown}"
            f" ({row.amount.why}); it counts as 0{how}",
            rows=(row,),
            effect=-right,
            remedy=remedy,
        )


def undated_row(facts: Facts) -> Iterator[Finding]:
    """Find a row whose created_at is not a date, so that no day and no window contains it."""
    for row in facts.rows:
        if row.created_at is None:
            yield facts.finding(
                Code.UNDATED_ROW,
                f"{words(row)} has no usable date; it counts in the balance and on no day; fix the"
                " program that writes such rows, the row stays as it is",
                rows=(row,),
            )


def future_row(facts: Facts) -> Iterator[Finding]:
    """Find a row that is dated after now."""
    for row in facts.rows:
        if row.created_at is not None and row.created_at > facts.case.now + FUTURE_SLACK:
            yield facts.finding(
                Code.FUTURE_ROW,
                f"{words(row)} is dated {format_time(row.created_at)}, in the future; fix the clock"
                " of its writer, the row stays as it is",
                rows=(row,),
            )


def odd_recorded_at(facts: Facts) -> Iterator[Finding]:
    """Find a row whose recorded_at is not a date, so that no rebuild counts it as late."""
    for row in facts.rows:
        if row.has_odd_recorded_at:
            yield facts.finding(
                Code.ODD_RECORDED_AT,
                f"recorded_at of {words(row)} is not a date, so no rebuild takes it as late; fix"
                " the program that writes such rows, the row stays as it is",
                rows=(row,),
            )


def missing_message(facts: Facts) -> Iterator[Finding]:
    """Find a row that carries an operation id and has no message in the outbox."""
    for row in facts.rows:
        if row.id.text in facts.case.unmessaged:
            yield facts.finding(
                Code.MISSING_MESSAGE,
                f"{words(row)} has no message in the outbox",
                rows=(row,),
                repairable=True,
                remedy=REPAIR,
            )


def int_of(amount: Amount) -> int:
    """Return the amount as it counts in a balance."""
    return amount if isinstance(amount, int) else 0


Check = Callable[[Facts], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    missing_row,
    unflagged_row,
    duplicate_row,
    wrong_amount,
    wrong_sign,
    missing_charge,
    orphan_row,
    corrupt_flags,
    bad_flags,
    flags_missing,
    flag_time,
    bad_amount,
    bad_cost,
    cost_mismatch,
    undated_row,
    future_row,
    odd_recorded_at,
    mixed_id_types,
    missing_message,
    refunded_but_succeeded,
)


def run_checks(facts: Facts) -> list[Finding]:
    """Run every check, corrections not yet taken into account."""
    return [finding for check in CHECKS for finding in check(facts)]


# what the lists say


def stranded_charges(
    case: Case, older_than: timedelta, taken: tuple[str, str, datetime] | None = None
) -> list[Finding]:
    """Return the charges of this case that nothing will settle, given that no list holds the job.

    `taken` is what took its dead letter last: action, operation and time.
    """
    found = [stranded_charge(facts_of(case, job), older_than, taken) for job in case.jobs]
    return [one for one in found if one is not None]


def stranded_charge(
    facts: Facts, older_than: timedelta, taken: tuple[str, str, datetime] | None
) -> Finding | None:
    """Return the finding of a job that is charged, neither succeeded nor refunded, and old enough."""
    job, charge = facts.job, facts.kept.get(RowType.CHARGE)
    if job is None or facts.state is not State.CHARGED or job.status == SUCCEEDED:
        return None
    if charge is None or facts.cost is None or RowType.REFUND in facts.kept:
        return None
    at = charge.created_at or charge.recorded_at
    given_back = total(row.amount for row in facts.rows) >= 0 < facts.cost
    if at is None or at > facts.case.now - older_than or given_back:
        return None
    last = "no operation here took it from one"
    if taken is not None:
        action, operation, moment = taken
        last = f"operation {operation} {action}d it at {format_time(moment)}"
    return facts.finding(
        Code.STRANDED_CHARGE,
        f"charged {facts.cost} at {format_time(at)}, neither succeeded nor refunded, and on no"
        f" list: {last}",
        rows=(charge,),
        effect=-facts.cost,
        remedy=REFUND,
    )


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
