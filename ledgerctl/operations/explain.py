"""Explaining a balance: read the rows once, hold the jobs against the audit, keep what a page shows."""

from collections.abc import Callable, Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from ledgerctl.domain.audit import Case
from ledgerctl.domain.balances import in_replay_order
from ledgerctl.domain.explain import (
    ODDITIES_MAX,
    TOLD_ROWS_MAX,
    Book,
    Line,
    Oddity,
    Point,
    Story,
    is_told,
    odd,
    tell_jobs,
)
from ledgerctl.domain.rows import Entry, Row, running
from ledgerctl.errors import NotFound
from ledgerctl.operations.audit import Audit, Scope
from ledgerctl.operations.balances import replay, require_account, tally_of
from ledgerctl.operations.cases import load
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.ledger import window_filter

LOADED = 200  # jobs loaded together

Progress = Callable[[str], None]


def explain(
    stores: Stores,
    account: str,
    *,
    zone: ZoneInfo,
    since: datetime | None = None,
    before: datetime | None = None,
    progress: Progress = lambda _: None,
) -> Story:
    """The story of an account's balance; its figures add up to the balance it names.

    Memory does not grow with the account: a long story is told by day or month, with what is odd
    singled out. `since` is inclusive, `before` exclusive. Raises NotFound as `show` does.
    """
    now = stores.mongo.now()
    found = replay(stores, account, since=since, before=before)
    book, future = Book(found.opening_balance, zone), 0
    for entry, balance in found.rows:
        book.add(entry, balance)
        future += entry.created_at is not None and entry.created_at > now
        if book.rows % 50_000 == 0:
            progress(f"{book.rows} rows")
    lines = book.lines()
    if book.is_long:
        oddities, total = oddities_of(stores, account, since, progress)
        jobs, others = [], []
    else:
        cases = list(cases_of(stores, account, lines, since, before))
        jobs, others = tell_jobs(lines, cases), [one for one in lines if one.entry.job_id is None]
        oddities = [one for job in jobs for one in job.oddities]
        total = len(oddities)
    return Story(
        account_id=account,
        as_of=now,
        zone=zone,
        since=since,
        before=before,
        book=book,
        jobs=tuple(jobs),
        others=tuple(others),
        oddities=tuple(oddities),
        oddities_total=total,
        unusable=(*found.unusable_before, *book.unusable),
        undated_left_out=found.undated_left_out,
        future_rows=future,
    )


def cases_of(
    stores: Stores,
    account: str,
    lines: list[Line],
    since: datetime | None,
    before: datetime | None,
) -> Iterator[Case]:
    """The jobs that these rows name, and those of the account created in the window without rows."""
    created, _ = stores.jobs.newest(
        account=account, state=None, since=since, until=before, limit=TOLD_ROWS_MAX
    )
    named = (line.entry.job_id for line in lines if line.entry.job_id is not None)
    ids = list(dict.fromkeys([*named, *(job.id.text for job in reversed(created))]))
    for at in range(0, len(ids), LOADED):
        yield from load(stores, ids[at : at + LOADED])


def oddities_of(
    stores: Stores, account: str, since: datetime | None, progress: Progress
) -> tuple[list[Oddity], int]:
    """What the audit finds on an account: the first of it that moves credits, and how much in all."""
    moving: list[Oddity] = []
    still: list[Oddity] = []
    total = 0
    audit = Audit(stores, Scope(account=account, since=since), progress=progress)
    for finding in audit.findings():
        if audit.jobs_checked % 10_000 == 0:
            progress(f"{audit.jobs_checked} jobs checked")
        if not is_told(finding):
            continue
        total += 1
        kept = moving if finding.effect else still
        if len(kept) < ODDITIES_MAX:
            kept.append(odd(finding))
    if audit.trouble is not None:
        raise audit.trouble
    return [*moving, *still][:ODDITIES_MAX], total


def explain_job(
    stores: Stores,
    account: str,
    job_id: str,
    *,
    zone: ZoneInfo,
    since: datetime | None = None,
    before: datetime | None = None,
) -> Story:
    """The story of one job of an account, and what the balance is besides it.

    Raises NotFound for an account as `show` does, and for a job that is not this account's.
    """
    now = stores.mongo.now()
    require_account(stores, account)
    (case,) = load(stores, [job_id])
    entries = [entry_of(row) for row in case.rows if is_of(row, case, account)]
    owners = {job.account.text for job in case.jobs if job.account is not None}
    if not entries and account not in owners:
        raise NotFound(
            f"account {account!r} has no job {job_id!r}",
            hint=f"`ledgerctl job list --account {account}` names its jobs",
        )
    book = Book(0, zone)
    inside = [one for one in entries if is_inside(one, since, before)]
    for entry, net in running(in_replay_order(inside), 0):
        book.add(entry, net)
    jobs = tell_jobs(book.lines(), [case])
    oddities = tuple(one for job in jobs for one in job.oddities)
    tally = tally_of(stores, account, window_filter(since=None, before=before))
    return Story(
        account_id=account,
        as_of=now,
        zone=zone,
        since=since,
        before=before,
        book=book,
        jobs=tuple(jobs),
        oddities=oddities,
        oddities_total=len(oddities),
        unusable=tuple(book.unusable),
        undated_left_out=sum(1 for one in entries if one.created_at is None and before is not None),
        job_id=job_id,
        account_balance=tally.balance,
    )


def is_of(row: Row, case: Case, account: str) -> bool:
    """Whether a row belongs to this account: it names it, or names none and its job does."""
    if row.account is not None:
        return row.account.text == account
    return any(job.account is not None and job.account.text == account for job in case.jobs)


def entry_of(row: Row) -> Entry:
    """What a replay needs of a row."""
    job = None if row.job is None else row.job.text
    return Entry(row.id.text, row.created_at, job, row.type, row.amount, row.reason)


def is_inside(entry: Entry, since: datetime | None, before: datetime | None) -> bool:
    """Whether a row lies in a window; an undated one in those without an end."""
    if entry.created_at is None:
        return before is None
    after_start = since is None or entry.created_at >= since
    return after_start and (before is None or entry.created_at < before)


def points(stores: Stores, account: str, *, zone: ZoneInfo) -> list[Point]:
    """An account's balance over time, thinned out for a chart."""
    book = Book(0, zone)
    for entry, balance in replay(stores, account).rows:
        book.add(entry, balance)
    return book.points()
