"""Explaining a balance: read the rows once, hold the jobs against the audit, keep what a page shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from ledgerctl.domain.audit import FUTURE_SLACK, Case, Finding, audit
from ledgerctl.domain.balances import in_replay_order
from ledgerctl.domain.explain import (
    ODDITIES_MAX,
    TOLD_ROWS_MAX,
    Book,
    Point,
    Story,
    is_told,
    tell_jobs,
)
from ledgerctl.domain.ids import chunks
from ledgerctl.domain.rows import Entry, Row, running
from ledgerctl.errors import NotFound
from ledgerctl.operations.balances import replay, require_account, tally_of
from ledgerctl.operations.cases import load, only_job
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.ledger import window_filter

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
    book, odd_ones, future = Book(found.opening_balance, zone), Oddities(), 0
    told: list[Case] = []
    for some in chunks(found.rows, TOLD_ROWS_MAX):
        for entry, balance in some:
            book.add(entry, balance)
            future += entry.created_at is not None and entry.created_at > now
        entries = [entry for entry, _ in some]
        told = cases_of(stores, entries, now, since=since, everything=not book.is_long)
        for case in told:
            odd_ones.add(case)
        progress(f"{book.rows} rows")
    if not book.is_long:
        told += rowless(stores, account, told, since, before)
    lines = book.lines()
    jobs = [] if book.is_long else tell_jobs(lines, told)
    oddities = odd_ones.found() if book.is_long else [one for job in jobs for one in job.oddities]
    return Story(
        account_id=account,
        as_of=now,
        zone=zone,
        since=since,
        before=before,
        book=book,
        jobs=tuple(jobs),
        others=tuple(one for one in lines if one.entry.job_id is None),
        oddities=tuple(oddities),
        oddities_total=odd_ones.total if book.is_long else len(oddities),
        unusable=(*found.unusable_before, *book.unusable),
        undated_left_out=found.undated_left_out,
        future_rows=future,
    )


@dataclass(slots=True)
class Oddities:
    """What is odd about a long account: how much, and the first of it that moves credits."""

    total: int = 0
    _moving: list[Finding] = field(default_factory=list)
    _still: list[Finding] = field(default_factory=list)

    def add(self, case: Case) -> None:
        """Take in what the audit's checks find in a case."""
        for finding in filter(is_told, audit(case)):
            self.total += 1
            kept = self._moving if finding.effect else self._still
            if len(kept) < ODDITIES_MAX:
                kept.append(finding)

    def found(self) -> list[Finding]:
        """Those that are singled out."""
        return [*self._moving, *self._still][:ODDITIES_MAX]


def cases_of(
    stores: Stores,
    entries: Sequence[Entry],
    now: datetime,
    *,
    since: datetime | None,
    everything: bool,
) -> list[Case]:
    """The cases that these rows open; without `everything` those that may be odd, each once.

    A job whose rows are spread belongs to where the first of them stands.
    """
    ids = list(dict.fromkeys(one.job_id for one in entries if one.job_id is not None))
    if not everything:
        ids = stores.account_rows.not_plain(ids, now + FUTURE_SLACK)
    cases = load(stores, ids)
    if everything:
        return cases
    here = {one.row_id for one in entries}
    return [case for case in cases if first_inside(case, since) in here]


def first_inside(case: Case, since: datetime | None) -> str | None:
    """The first of a case's rows in a window that begins here."""
    inside = (row for row in case.rows if is_inside(entry_of(row), since, None))
    return next((row.id.text for row in inside), None)


def rowless(
    stores: Stores,
    account: str,
    told: Sequence[Case],
    since: datetime | None,
    before: datetime | None,
) -> list[Case]:
    """The jobs of the account that were created in the window and have no row in it."""
    created, _ = stores.jobs.newest(
        account=account, state=None, since=since, until=before, limit=TOLD_ROWS_MAX
    )
    known = {case.job_id for case in told}
    return load(stores, [job.id.text for job in reversed(created) if job.id.text not in known])


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

    Raises NotFound for an account as `show` does, and for a job that is not this account's;
    AmbiguousId for a text that jobs of two types answer to.
    """
    now = stores.mongo.now()
    require_account(stores, account)
    job = only_job(stores, job_id)
    (case,) = load(stores, [job.id.text if job else job_id])
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
