"""Check that each job's flags, rows and messages agree, in one streaming pass."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ledgerctl.domain.audit import audit, mixed_account, stranded_charges
from ledgerctl.domain.findings import FUTURE_SLACK, Case, Code, Finding
from ledgerctl.domain.ids import chunks
from ledgerctl.domain.jobs import Job
from ledgerctl.domain.rows import Row
from ledgerctl.errors import LedgerctlError, NotFound
from ledgerctl.operations.balances import require_account
from ledgerctl.operations.cases import ids, load, without_message
from ledgerctl.stores.ahead import ahead
from ledgerctl.stores.codec import to_id, to_job, to_row
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.job_sieve import JobSieve, Range, Sifted
from ledgerctl.stores.listed import listed_jobs
from ledgerctl.stores.sweep import JobDocuments, Sweep, is_plain

CHUNK = 1_000  # stories looked at together
SIFTERS = 2  # ranges that the server sifts at once
SCOPED = 200  # jobs loaded together
ACCOUNTS_MAX = 10_000  # accounts told apart in the totals; memory does not grow with the ledger

STRANDED_AFTER = timedelta(hours=24)
SUSPECTS_MAX = 20_000  # jobs for which the lists are read again
LOOKS_MAX = 5

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scope:
    """Describe what to audit: everything, one job, one account's, or what happened since a time."""

    account: str | None = None
    job: str | None = None
    since: datetime | None = None
    codes: frozenset[Code] = frozenset()  # none: all but stranded_charge
    older_than: timedelta = STRANDED_AFTER  # of a stranded charge


@dataclass(slots=True)
class AccountTotal:
    """Describe what the findings of one account come to."""

    findings: int = 0
    effect: int = 0


@dataclass(slots=True)
class Audit:
    """Audit a scope: read `findings()` once; the totals are known after its last finding.

    `trouble` is the error that ended it early: the totals are then of what was read, and say so.
    """

    stores: Stores
    scope: Scope
    progress: Progress | None = None
    after_change: bool = False  # trouble is kept from the first read on: the change is done
    jobs_checked: int = 0
    rows_checked: int = 0
    jobs_expected: int | None = None
    rows_expected: int | None = None
    open_findings: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    accounts: dict[str, AccountTotal] = field(default_factory=dict)
    other_accounts: AccountTotal = field(default_factory=AccountTotal)
    trouble: LedgerctlError | None = None
    _told: set[str] = field(default_factory=set)  # the few ids that two types hold

    def findings(self) -> Iterator[Finding]:
        """Yield every finding, by job id; memory does not grow with the ledger.

        Raises StoreUnavailable and its like when nothing could be read at all; later trouble ends
        the walk and is kept.
        """
        try:
            for finding in self._all():
                self._count(finding)
                yield finding
        except LedgerctlError as error:
            if not (self.jobs_checked or self.rows_checked or self.after_change):
                raise
            self.trouble = error

    def counts_by_code(self) -> dict[str, int]:
        """Return how many findings of each code, in the order of the codes."""
        return {str(code): self.counts[code] for code in Code if self.counts[code]}

    def effects_by_code(self) -> dict[str, int]:
        """Return the credits that the accounts are off by, for each code."""
        return {str(code): self.effects[code] for code in Code if self.counts[code]}

    def by_account(self) -> list[dict[str, Any]]:
        """Return findings and effect of each account, the one that is most off first."""
        told = sorted(self.accounts.items(), key=lambda one: (-abs(one[1].effect), one[0]))
        lines: list[dict[str, Any]] = [
            {"account_id": name or None, "findings": one.findings, "effect": one.effect}
            for name, one in told
        ]
        if self.other_accounts.findings:
            others = self.other_accounts
            lines.append(
                {"account_id": "(others)", "findings": others.findings, "effect": others.effect}
            )
        return lines

    def ended_early(self) -> dict[str, Any] | None:
        """Return the error that ended the walk, and how much was read by then; else None."""
        if self.trouble is None:
            return None
        of = "" if self.rows_expected is None else f" of about {self.rows_expected}"
        return {
            **self.trouble.document(),
            "hint": "run it again; what was found stands, what was not read is not known",
            "read": f"{self.rows_checked}{of} rows",
        }

    def _all(self) -> Iterator[Finding]:
        codes = self.scope.codes
        if codes != {Code.STRANDED_CHARGE}:
            for case in self.cases():
                yield from (one for one in audit(case) if not codes or one.code in codes)
        if not codes or Code.MIXED_ID_TYPES in codes:
            yield from self._mixed_accounts()
        if Code.STRANDED_CHARGE in codes:
            yield from self._stranded()

    def _mixed_accounts(self) -> Iterator[Finding]:
        """Name each account once; what concerns one job or the last days alone is not asked for it."""
        if self.scope.job is not None or self.scope.since is not None:
            return
        named: set[str] = set()
        for held in self.stores.ledger.accounts_of_two_types(self.scope.account):
            if held[0].text not in named:
                named.add(held[0].text)
                yield mixed_account(held)

    def _count(self, finding: Finding) -> None:
        self.counts[finding.code] += 1
        self.effects[finding.code] += finding.effect
        self.open_findings += not finding.settled
        name = finding.account_id or ""
        room = name in self.accounts or len(self.accounts) < ACCOUNTS_MAX
        total = self.accounts.setdefault(name, AccountTotal()) if room else self.other_accounts
        total.findings += 1
        total.effect += finding.effect

    def cases(self) -> Iterator[Case]:
        """Return every case of the scope that is not plainly right."""
        if self.scope.job is not None:
            return self._one(self.scope.job)
        if self.scope.account is not None:
            return self._of_account(self.scope.account)
        if self.scope.since is not None:
            return self._since(self.scope.since)
        return self._everything()

    # jobs that no list holds

    def _stranded(self) -> Iterator[Finding]:
        """Look at the lists, at the jobs, and at the lists again; what moved in between is not named."""
        queues, names = self.stores.queues, self.stores.settings.keys
        queues.require_lists(names.retry, names.dead_letter, *names.pending)
        listed = listed_jobs(queues)
        unlisted = (text for text in self._charged() if hash(text) not in listed)
        suspects = (case.job_id for case in self._charges(unlisted) if case.job_id is not None)
        for some in chunks(suspects, SUSPECTS_MAX):
            left = self._still_unlisted(some)
            taken = self.stores.archive.last_taken(left)
            for case in self._charges(left):
                self.rows_checked += len(case.rows)
                yield from stranded_charges(
                    case, self.scope.older_than, taken.get(case.job_id or "")
                )

    def _still_unlisted(self, suspects: list[str]) -> list[str]:
        """Return those on no list in look after look, until one look finds none of them."""
        for _ in range(LOOKS_MAX):
            listed = listed_jobs(self.stores.queues)
            left = [text for text in suspects if hash(text) not in listed]
            if len(left) == len(suspects):
                break
            suspects = left
        return suspects

    def _charged(self) -> Iterable[str]:
        """Return the ids of the scope's jobs that are charged and not settled."""
        jobs, scope = self.stores.jobs, self.scope
        if scope.job is not None:
            named = [job.id.text for job in jobs.find(scope.job)]
            if not named:
                raise no_such_job(scope.job)
            checked, found = len(named), iter(named)
        elif scope.account is not None:
            require_account(self.stores, scope.account)
            checked, found = jobs.count_of_account(scope.account), jobs.charged(scope.account)
        else:
            checked, found = Sweep(self.stores.mongo).expected()[0], jobs.charged()
        self.jobs_checked = max(self.jobs_checked, checked)
        return found

    def _charges(self, texts: Iterable[str]) -> Iterator[Case]:
        """Yield the cases of these jobs in which a charge is stranded if no list holds the job."""
        for some in chunks(texts, CHUNK):
            for case in load(self.stores, some):
                if self._is_recent(case) and stranded_charges(case, self.scope.older_than):
                    yield case

    # everything

    def _everything(self) -> Iterator[Case]:
        with Sweep(self.stores.mongo) as sweep:
            self.jobs_expected, self.rows_expected = sweep.expected()
            sieve = JobSieve(self.stores.mongo, self.stores.outbox)
            kind = sieve.kind()
            if kind is not None:
                yield from self._sifted(sieve, kind)
            for chunk in chunks(sweep.stories(sifted=kind is not None), CHUNK):
                yield from self._suspicious(chunk, steady=sweep.steady)
                self._tell()

    def _sifted(self, sieve: JobSieve, kind: str) -> Iterator[Case]:
        """Yield the cases that are not plainly right by the server, read anew as of one moment."""

        def sift(part: Range) -> Sifted:
            return sieve.sift(part, self.stores.mongo.now() + FUTURE_SLACK)

        for sifted in ahead(sift, sieve.ranges(kind), hands=SIFTERS):
            self.jobs_checked += sifted.jobs
            self.rows_checked += sifted.rows
            for some in chunks(sifted.odd, SCOPED):
                yield from self._loaded(some)
            for some in chunks(sorted(sifted.unmessaged), SCOPED):
                yield from self._loaded(some, counted=False)
            self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(f"{self.rows_checked} of {self.rows_expected} rows")

    def _suspicious(self, chunk: list[JobDocuments], *, steady: bool) -> Iterator[Case]:
        """Yield the cases of a chunk that are not plainly right, seen as of one moment."""
        now = self.stores.mongo.now()
        unmessaged = self._unmessaged(chunk)
        cases = [
            case_of(story, now, unmessaged)
            for story in chunk
            if not is_plain(story, now + FUTURE_SLACK)
            or (unmessaged and any(str(row["_id"]) in unmessaged for row in story.rows))
        ]
        self.jobs_checked += sum(len(story.jobs) for story in chunk)
        self.rows_checked += sum(len(story.rows) for story in chunk)
        yield from cases if steady else self._looked_at_again(cases)

    def _unmessaged(self, chunk: list[JobDocuments]) -> frozenset[str]:
        carrying = [
            row["_id"] if isinstance(row["_id"], str) else to_id(row["_id"]).text
            for story in chunk
            for row in story.rows
            if row.get("operation_id") is not None
        ]
        return frozenset(carrying) - self.stores.outbox.standing_near(carrying)

    def _looked_at_again(self, cases: list[Case]) -> Iterator[Case]:
        """Yield the same cases read anew: a half-finished write that looked wrong is right now."""
        for case in cases:
            if case.job_id is None:
                again = self.stores.outbox.standing(sorted(case.unmessaged))
                yield replace(case, unmessaged=case.unmessaged - again)
        suspects = [case for case in cases if case.job_id is not None and audit(case)]
        for some in chunks(suspects, SCOPED):
            fresh = load(self.stores, [case.job_id for case in some if case.job_id is not None])
            exotic = {case.job_id for case in fresh if not case.jobs and not case.rows}
            yield from (case for case in fresh if case.job_id not in exotic)
            yield from (case for case in some if case.job_id in exotic)

    # one job, one account, or what happened lately

    def _one(self, text: str) -> Iterator[Case]:
        found = self.stores.jobs.find(text)
        for case in self._loaded([found[0].id.text if found else text]):
            if not case.jobs and not case.rows:
                raise no_such_job(text)
            yield case

    def _loaded(
        self,
        texts: list[str],
        wanted: Callable[[Case], bool] = lambda _: True,
        *,
        counted: bool = True,
    ) -> Iterator[Case]:
        """Yield the cases of these jobs that are wanted, counted as checked."""
        for case in filter(wanted, as_of_one_moment(self.stores, texts)):
            if is_double(case):
                if case.job_id in self._told:
                    continue
                self._told.add(case.job_id or "")
            self.jobs_checked += len(case.jobs) * counted
            self.rows_checked += len(case.rows) * counted
            yield case

    def _of_account(self, account: str) -> Iterator[Case]:
        require_account(self.stores, account)
        account = self.stores.ledger.spelling_of(account)
        for some in chunks(self.stores.jobs.of_account(account), SCOPED):
            texts = list(dict.fromkeys(job.id.text for job in some))
            yield from self._loaded(texts, self._is_recent)

        def elsewhere(case: Case) -> bool:
            owners = {job.account.text for job in case.jobs if job.account is not None}
            return account not in owners and self._is_recent(case)

        yield from self._by_rows(self.stores.ledger.by_job(account=account), elsewhere)

    def _since(self, since: datetime) -> Iterator[Case]:
        for some in chunks(self.stores.jobs.touched_since(since), SCOPED):
            yield from self._loaded(list(dict.fromkeys(job.id.text for job in some)))

        def untouched(case: Case) -> bool:
            return not any(touched(job, since) for job in case.jobs)

        yield from self._by_rows(self.stores.ledger.by_job(since=since), untouched)

    def _by_rows(self, rows: Iterable[Row], wanted: Callable[[Case], bool]) -> Iterator[Case]:
        """Yield the cases that rows lead to; rows come by job, those that name none first."""
        last: str | None = None
        for some in chunks(rows, CHUNK):
            nameless = [row for row in some if row.job is None]
            yield from self._row_cases(nameless, wanted)
            texts = dict.fromkeys(row.job.text for row in some if row.job is not None)
            new = [text for text in texts if text != last]
            last = new[-1] if new else last
            yield from self._loaded(new, wanted)

    def _row_cases(self, rows: list[Row], wanted: Callable[[Case], bool]) -> Iterator[Case]:
        missing = without_message(self.stores, rows)
        now = self.stores.mongo.now()
        for row in rows:
            case = Case(None, (), (row,), now, missing & ids([row]))
            if wanted(case):
                self.rows_checked += 1
                yield case

    def _is_recent(self, case: Case) -> bool:
        since = self.scope.since
        told: tuple[Job | Row, ...] = (*case.jobs, *case.rows)
        return since is None or any(touched(one, since) for one in told)


def no_such_job(text: str) -> NotFound:
    """Return the error for an id that no job and no row has."""
    return NotFound(
        f"no job and no ledger row has the id {text!r}",
        hint="`ledgerctl job list` shows the newest",
    )


def is_double(case: Case) -> bool:
    """Return whether two types hold this id, so that two walks may come by it."""
    return len({one.id.kind for one in case.jobs}) > 1 or len({row.job for row in case.rows}) > 1


def touched(one: Job | Row, since: datetime) -> bool:
    """Return whether anything is known to have happened to a job or row since then."""
    times = (
        (one.created_at, one.refunded_at, one.reclaimed_at)
        if isinstance(one, Job)
        else (one.created_at, one.recorded_at)
    )
    return any(at is not None and at >= since for at in times)


def case_of(story: JobDocuments, now: datetime, unmessaged: Collection[str]) -> Case:
    """Return a story as the audit's checks take it."""
    rows = tuple(to_row(row) for row in story.rows)
    missing = frozenset(unmessaged) & ids(rows) if unmessaged else frozenset()
    return Case(story.text, tuple(to_job(job) for job in story.jobs), rows, now, missing)


def as_of_one_moment(stores: Stores, texts: list[str]) -> list[Case]:
    """Load the cases of these jobs; without snapshots, read again what may be a half-finished step."""
    with moment(stores) as session:
        cases = load(stores, texts, session=session)
    if session is not None:
        return cases
    wrong = [case.job_id for case in cases if case.job_id is not None and audit(case)]
    fresh = {case.job_id: case for case in load(stores, wrong)}
    return [fresh.get(case.job_id, case) for case in cases]


@contextmanager
def moment(stores: Stores) -> Iterator[Any]:
    """Return a session whose reads all see one moment; None where the server has no such thing."""
    if not stores.mongo.transactions:
        yield None
        return
    with stores.mongo.snapshot("read jobs and rows") as session:
        yield session
