"""Explain a balance: read the rows once, run the audit's checks, keep what a page shows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from ledgerctl.domain.audit import audit
from ledgerctl.domain.balances import in_replay_order
from ledgerctl.domain.explain import (
    ODDITIES_MAX,
    TOLD_ROWS_MAX,
    Asked,
    Book,
    Point,
    Story,
    is_told,
    tell_jobs,
)
from ledgerctl.domain.findings import FUTURE_SLACK, JOB_TYPES, Case, Finding
from ledgerctl.domain.ids import chunks
from ledgerctl.domain.jobs import Flag
from ledgerctl.domain.rows import Entry, Row, running
from ledgerctl.errors import NotFound
from ledgerctl.operations.audit import as_of_one_moment
from ledgerctl.operations.balances import replay, require_account, tally_of
from ledgerctl.operations.cases import load, only_job
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.ledger import window_filter

Progress = Callable[[str], None]


def statement(
    stores: Stores,
    account: str,
    *,
    zone: ZoneInfo,
    asked: Asked,
    progress: Progress = lambda _: None,
) -> Story:
    """Read the figures of an account's range, by day and job, without looking for what is wrong.

    Memory does not grow with the account. Raises NotFound as `show` does.
    """
    now = stores.mongo.now()
    found = replay(stores, account, since=asked.since, before=asked.before)
    book, future = Book(found.opening_balance, zone), 0
    for some in chunks(found.rows, TOLD_ROWS_MAX):
        for entry, balance in some:
            book.add(entry, balance)
            future += entry.created_at is not None and entry.created_at > now
        progress(f"{book.rows} rows")
    return Story(
        account_id=account,
        as_of=now,
        zone=zone,
        asked=asked,
        book=book,
        unusable=(*found.unusable_before, *book.unusable),
        undated_left_out=found.undated_left_out,
        future_rows=future,
    )


def explain(
    stores: Stores,
    account: str,
    *,
    zone: ZoneInfo,
    asked: Asked,
    progress: Progress = lambda _: None,
) -> Story:
    """Explain an account's balance; the figures add up to the balance that it names.

    A long story is told by day or month. What is odd, and by how much the account is off, is of
    the whole account as of now, whatever the range. Memory does not grow with the account. Raises
    NotFound as `show` does.
    """
    story = statement(stores, account, zone=zone, asked=asked, progress=progress)
    checks = Checks(stores, stores.ledger.spelling_of(account), story.as_of)
    checks.run(progress)
    lines = story.book.lines()
    named = list(dict.fromkeys(one.entry.job_id for one in lines if one.entry.job_id is not None))
    told = [] if story.is_long else load(stores, named)
    if not story.is_long:
        told += rowless(stores, account, told, asked)
    return replace(
        story,
        jobs=() if story.is_long else tuple(tell_jobs(lines, told)),
        others=tuple(one for one in lines if one.entry.job_id is None),
        oddities=tuple([*checks.moving, *checks.still][:ODDITIES_MAX]),
        oddities_total=checks.total,
        off_by=checks.off_by,
    )


@dataclass(slots=True)
class Checks:
    """Run the audit's checks over one account: count what is odd, keep the first of it."""

    stores: Stores
    account: str
    now: datetime
    total: int = 0
    off_by: int = 0
    moving: list[Finding] = field(default_factory=list)  # credits
    still: list[Finding] = field(default_factory=list)

    def run(self, progress: Progress) -> None:
        """Check every job that a row of the account leads to, then the jobs without a row."""
        seen = 0
        for some in chunks(replay(self.stores, self.account).rows, TOLD_ROWS_MAX):
            entries = [entry for entry, _ in some]
            here = {entry.row_id for entry in entries}
            for case in self._odd_cases(entry.job_id for entry in entries):
                if first_of(case, self.account) in here:  # each case once
                    self._add(case)
            for row in self._nameless(entries):
                self._add(Case(None, (), (row,), self.now))
            seen += len(entries)
            progress(f"{seen} rows checked")
        marked = (
            job.id.text
            for job in self.stores.jobs.of_account(self.account)
            if {job.refunded, job.reclaimed} != {Flag.CLEAR}
        )
        for ids in chunks(marked, TOLD_ROWS_MAX):
            for case in self._odd_cases(ids):
                if first_of(case, self.account) is None:
                    self._add(case)

    def _odd_cases(self, ids: Iterable[str | None]) -> list[Case]:
        """Load the cases of these jobs that are not plainly right."""
        named = list(dict.fromkeys(one for one in ids if one is not None))
        odd = self.stores.account_rows.not_plain(named, self.now + FUTURE_SLACK)
        return as_of_one_moment(self.stores, odd)

    def _nameless(self, entries: Sequence[Entry]) -> list[Row]:
        """Load the rows of a job's step that name no job."""
        found = [one for one in entries if one.job_id is None and one.type in JOB_TYPES]
        return self.stores.ledger.among([one.row_id for one in found]) if found else []

    def _add(self, case: Case) -> None:
        """Count what the checks find in a case about this account."""
        for finding in audit(case):
            if finding.account_id != self.account:
                continue
            self.off_by += finding.effect
            if is_told(finding):
                self.total += 1
                kept = self.moving if finding.effect else self.still
                if len(kept) < ODDITIES_MAX:
                    kept.append(finding)


def first_of(case: Case, account: str) -> str | None:
    """Return the first of a case's rows that belongs to the account."""
    return next((row.id.text for row in case.rows if is_of(row, case, account)), None)


def rowless(stores: Stores, account: str, told: Sequence[Case], asked: Asked) -> list[Case]:
    """Load the jobs of the account that were created in the range and have no row in it."""
    created, _ = stores.jobs.newest(
        account=account, state=None, since=asked.since, until=asked.before, limit=TOLD_ROWS_MAX
    )
    known = {case.job_id for case in told}
    return load(stores, [job.id.text for job in reversed(created) if job.id.text not in known])


def explain_job(
    stores: Stores,
    account: str,
    job_id: str,
    *,
    zone: ZoneInfo,
    asked: Asked,
) -> Story:
    """Explain one job of an account, and what the balance is besides it.

    Raises NotFound for an account as `show` does, and for a job that is not this account's;
    AmbiguousId for a text that jobs of two types answer to.
    """
    now = stores.mongo.now()
    account, case, entries = case_of_job(stores, account, job_id)
    book = Book(0, zone)
    inside = [one for one in entries if is_inside(one, asked)]
    for entry, net in running(in_replay_order(inside), 0):
        book.add(entry, net)
    jobs = tell_jobs(book.lines(), [case])
    oddities = tuple(one for job in jobs for one in job.oddities)
    tally = tally_of(stores, account, window_filter(since=None, before=asked.before))
    return Story(
        account_id=account,
        as_of=now,
        zone=zone,
        asked=asked,
        book=book,
        jobs=tuple(jobs),
        oddities=oddities,
        oddities_total=len(oddities),
        unusable=tuple(book.unusable),
        undated_left_out=sum(
            1 for one in entries if one.created_at is None and asked.before is not None
        ),
        job_id=job_id,
        account_balance=tally.balance,
        off_by=sum(one.effect for one in audit(case) if one.account_id == account),
    )


def case_of_job(stores: Stores, account: str, job_id: str) -> tuple[str, Case, list[Entry]]:
    """Load a job of an account: the account as stored, the job's case, its rows in the account."""
    require_account(stores, account)
    account = stores.ledger.spelling_of(account)
    job = only_job(stores, job_id)
    (case,) = load(stores, [job.id.text if job else job_id])
    entries = [entry_of(row) for row in case.rows if is_of(row, case, account)]
    owners = {job.account.text for job in case.jobs if job.account is not None}
    if not entries and account not in owners:
        raise NotFound(
            f"account {account!r} has no job {job_id!r}",
            hint=f"`ledgerctl job list --account {account}` names its jobs",
        )
    return account, case, entries


def is_of(row: Row, case: Case, account: str) -> bool:
    """Tell if a row belongs to this account: it names it, or names none and its job does."""
    if row.account is not None:
        return row.account.text == account
    return any(job.account is not None and job.account.text == account for job in case.jobs)


def entry_of(row: Row) -> Entry:
    """Return what a replay needs of a row."""
    job = None if row.job is None else row.job.text
    return Entry(row.id.text, row.created_at, job, row.type, row.amount, row.reason)


def is_inside(entry: Entry, asked: Asked) -> bool:
    """Tell if a row lies in the range; an undated one lies in those without an end."""
    if entry.created_at is None:
        return asked.before is None
    after_start = asked.since is None or entry.created_at >= asked.since
    return after_start and (asked.before is None or entry.created_at < asked.before)


def points(stores: Stores, account: str, *, zone: ZoneInfo) -> list[Point]:
    """Return an account's balance over time, thinned out for a chart."""
    book = Book(0, zone)
    for entry, balance in replay(stores, account).rows:
        book.add(entry, balance)
    return book.points()
