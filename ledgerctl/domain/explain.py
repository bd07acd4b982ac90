"""Explain a balance: job by job in sentences, by day and month when it is long, as a statement for a customer."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.audit import JobVerdict, judge
from ledgerctl.domain.balances import UnusableRow, unusable
from ledgerctl.domain.days import day_of
from ledgerctl.domain.findings import Case, Code, Finding
from ledgerctl.domain.jobs import SUCCEEDED, Job, State, state
from ledgerctl.domain.rows import Entry, OtherType, RowType

TOLD_ROWS_MAX = 1_000  # a longer story is told by day
DAYS_MAX = 62  # a longer story is told by month
LISTED_JOBS_MAX, LISTED_LINES_MAX = 2_000, 20_000  # a longer statement shows its days alone
ODDITIES_MAX = 50  # shown; the others are counted
POINTS_MAX = 400  # of a chart
QUARTER_S = 900  # no zone changes its offset within a quarter of an hour
UNDATED = "undated"

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

# These concern this program and its stores alone: they move no credits.
SILENT = frozenset({Code.FLAGS_MISSING, Code.MISSING_MESSAGE})
PLAIN_WORDS: Mapping[Code, str] = {
    Code.UNFLAGGED_ROW: "a row exists although the job is not marked so",
    Code.DUPLICATE_ROW: "the same step has more than one row",
    Code.WRONG_AMOUNT: "a row's amount is not what was charged",
    Code.WRONG_SIGN: "a row has the wrong sign",
    Code.MISSING_CHARGE: "the job has no charge row",
    Code.ORPHAN_ROW: "the row names a job that does not exist",
    Code.CORRUPT_FLAGS: "the job is marked reclaimed without ever having been refunded",
    Code.BAD_FLAGS: "a mark of the job is neither true nor false",
    Code.BAD_AMOUNT: "a row's amount cannot be summed",
    Code.REFUNDED_BUT_SUCCEEDED: "the job succeeded and its credits came back all the same",
}


class Asked(NamedTuple):
    """Keep the range that was asked for, and the days where it was given in days."""

    since: datetime | None = None  # included
    before: datetime | None = None  # excluded
    first_day: str | None = None
    last_day: str | None = None  # included whole

    @property
    def is_all(self) -> bool:
        """Tell if no bound was given."""
        return self.since is None and self.before is None

    def words(self, zone: ZoneInfo) -> str:
        """Write the range as it was asked; empty where none was."""
        parts = [("from", self.since, self.first_day), ("to", self.before, self.last_day)]
        return " ".join(
            f"{word} {moment_words(at, day, zone)}" for word, at, day in parts if at is not None
        )


@dataclass(frozen=True, slots=True)
class Line:
    """Tell one row; `balance` is the balance after it."""

    entry: Entry
    balance: int
    sentence: str


@dataclass(frozen=True, slots=True)
class JobStory:
    """Tell one job: its rows in the range, what they come to, and what is odd."""

    job_id: str
    state: State | None  # None: there is no such job
    status: str | None
    lines: tuple[Line, ...]
    net: int  # of these rows
    expected: int | None  # of the whole job
    ending: str
    oddities: tuple[Finding, ...]


@dataclass(slots=True)
class Period:
    """Sum the rows of a day, a month, or a job within a day.

    Magnitudes, except `corrected`, `other` and `balance`.
    """

    name: str
    rows: int = 0
    jobs: int = 0  # charges
    charged: int = 0
    refunded: int = 0
    reclaimed: int = 0
    granted: int = 0
    corrected: int = 0
    other: int = 0
    balance: int = 0  # at its end

    @property
    def net(self) -> int:
        """Return what the period's rows come to."""
        taken = self.charged + self.reclaimed
        return self.refunded + self.rest - taken

    @property
    def rest(self) -> int:
        """Return what is neither charged, refunded nor charged again."""
        return self.granted + self.corrected + self.other

    def add(self, entry: Entry, balance: int) -> None:
        """Count one row in."""
        self.rows += 1
        self.balance = balance
        if isinstance(entry.amount, Unusable):
            return
        match entry.type:
            case RowType.CHARGE:
                self.jobs += 1
                self.charged -= entry.amount
            case RowType.REFUND:
                self.refunded += entry.amount
            case RowType.RECLAIM:
                self.reclaimed -= entry.amount
            case RowType.GRANT:
                self.granted += entry.amount
            case RowType.CORRECTION:
                self.corrected += entry.amount
            case OtherType():
                self.other += entry.amount

    def join(self, later: "Period") -> None:
        """Add a later period."""
        for name in ("rows", "jobs", "charged", "refunded", "reclaimed", "granted", "corrected",
                     "other"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.balance = later.balance


@dataclass(frozen=True, slots=True)
class Point:
    """State the balance from this moment on."""

    at: datetime
    balance: int


@dataclass(slots=True)
class Book:
    """Take an account's rows in their order and keep no more than a page can show.

    Keeps every line up to TOLD_ROWS_MAX rows, the jobs of each day up to LISTED_JOBS_MAX jobs, and
    the figures of each day.
    """

    opening: int
    zone: ZoneInfo
    rows: int = 0
    closing: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    count_by_type: dict[str, int] = field(default_factory=dict)
    days: dict[str, Period] = field(default_factory=dict)
    by_job: dict[str, dict[tuple[str | None, str], Period]] = field(default_factory=dict)
    lists_jobs: bool = True
    unusable: list[UnusableRow] = field(default_factory=list)
    first_at: datetime | None = None
    last_at: datetime | None = None
    lowest: Point | None = None
    highest: Point | None = None
    _jobs: set[str] = field(default_factory=set)
    _listed: int = 0
    _lines: list[tuple[Entry, int]] = field(default_factory=list)
    _ends: dict[str, Point] = field(default_factory=dict)
    _quarter: float = -1.0
    _day: str = UNDATED

    def __post_init__(self) -> None:
        self.closing = self.opening

    @property
    def is_long(self) -> bool:
        """Tell if the story must be told by day or month."""
        return self.rows > TOLD_ROWS_MAX

    def add(self, entry: Entry, balance: int) -> None:
        """Add the next row, with the balance after it."""
        self.rows += 1
        self.closing = balance
        self.count_by_type[entry.type] = self.count_by_type.get(entry.type, 0) + 1
        if isinstance(entry.amount, Unusable):
            self.unusable.append(unusable(entry.row_id, entry.amount))
        else:
            self.by_type[entry.type] = self.by_type.get(entry.type, 0) + entry.amount
        day = self._day_of(entry.created_at)
        if day not in self.days:
            self.days[day] = Period(day)
        self.days[day].add(entry, balance)
        if self.lists_jobs:
            self._list(day, entry, balance)
        if entry.created_at is not None:
            self.first_at = self.first_at or entry.created_at
            self.last_at = entry.created_at
            self._ends[day] = self._see(Point(entry.created_at, balance))
        if self.is_long:
            self._lines.clear()
        else:
            self._lines.append((entry, balance))

    def _see(self, point: Point) -> Point:
        """Keep the lowest and the highest balance."""
        if self.lowest is None or point.balance < self.lowest.balance:
            self.lowest = point
        if self.highest is None or point.balance > self.highest.balance:
            self.highest = point
        return point

    def extremes(self) -> list[Point]:
        """Return the lowest and the highest point; none without a dated row."""
        return [one for one in (self.lowest, self.highest) if one is not None]

    def _list(self, day: str, entry: Entry, balance: int) -> None:
        """Add a row to its job within its day, or to its type where it names no job."""
        lines = self.by_job.setdefault(day, {})
        key = (entry.job_id, kind_of(entry.type) if entry.job_id is None else "")
        if key not in lines:
            lines[key] = Period(entry.job_id or key[1])
            self._listed += 1
        lines[key].add(entry, balance)
        if entry.job_id is not None:
            self._jobs.add(entry.job_id)
        if len(self._jobs) > LISTED_JOBS_MAX or self._listed > LISTED_LINES_MAX:
            self.lists_jobs = False
            self.by_job.clear()

    def _day_of(self, moment: datetime | None) -> str:
        if moment is None:
            return UNDATED
        quarter = moment.timestamp() // QUARTER_S
        if quarter != self._quarter:
            self._quarter, self._day = quarter, day_of(moment, self.zone)
        return self._day

    def lines(self) -> list[Line]:
        """Tell every row in a sentence; none of a long story."""
        return [Line(entry, balance, sentence(entry, self.zone)) for entry, balance in self._lines]

    def periods(self) -> list[Period]:
        """Return the days, or the months where there are many days."""
        if len(self.days) <= DAYS_MAX:
            return list(self.days.values())
        months: dict[str, Period] = {}
        for day, period in self.days.items():
            month = day if day == UNDATED else day[: -len("-01")]
            months.setdefault(month, Period(month)).join(period)
        return list(months.values())

    def points(self) -> list[Point]:
        """Return the balance over time: after each row, or at the end of each day of a long story."""
        if not self.is_long:
            dated = [
                Point(entry.created_at, balance)
                for entry, balance in self._lines
                if entry.created_at is not None
            ]
        else:
            dated = list(self._ends.values())
        kept = thinned(dated)
        for one in self.extremes():
            if one not in kept:
                kept.insert(bisect_left(kept, one.at, key=lambda point: point.at), one)
        return kept


def kind_of(row_type: RowType | OtherType) -> str:
    """Name what a row without a job is to a customer."""
    match row_type:
        case RowType.GRANT:
            return "granted"
        case RowType.CORRECTION:
            return "corrected"
        case RowType.CHARGE:
            return "charged"
        case RowType.REFUND:
            return "refunded"
        case RowType.RECLAIM:
            return "charged again"
        case OtherType():
            return "other"


@dataclass(frozen=True, slots=True)
class Story:
    """Hold everything that explains a balance; opening + every net = closing."""

    account_id: str
    as_of: datetime
    zone: ZoneInfo
    asked: Asked
    book: Book
    jobs: tuple[JobStory, ...] = ()
    others: tuple[Line, ...] = ()  # rows that name no job
    oddities: tuple[Finding, ...] = ()
    oddities_total: int = 0
    unusable: tuple[UnusableRow, ...] = ()
    undated_left_out: int = 0
    future_rows: int = 0
    job_id: str | None = None  # the one job that was asked for
    account_balance: int | None = None  # the whole balance, where one job was asked for
    off_by: int = 0  # the sum of the audit's effects: of the whole account as of now, or of one job

    @property
    def is_long(self) -> bool:
        """Tell if it is told by periods."""
        return self.book.is_long

    @property
    def right_balance(self) -> int | None:
        """Return what the closing figure would be if nothing were wrong; None for an earlier end."""
        return None if self.asked.before is not None else self.book.closing - self.off_by


# telling


def tell_jobs(lines: Iterable[Line], cases: Iterable[Case]) -> list[JobStory]:
    """Tell each job, in the order in which the jobs first appear."""
    by_job: dict[str, list[Line]] = {}
    for line in lines:
        if line.entry.job_id is not None:
            by_job.setdefault(line.entry.job_id, []).append(line)
    known = {case.job_id: case for case in cases if case.job_id is not None}
    order = [*by_job, *(job for job in known if job not in by_job)]
    stories = [tell_job(job, by_job.get(job, []), known.get(job)) for job in order]
    return [one for one in stories if one.lines or one.oddities]


def tell_job(job_id: str, lines: Sequence[Line], case: Case | None) -> JobStory:
    """Tell one job: its lines, its ending and what is odd about it."""
    net = sum(line.entry.amount for line in lines if isinstance(line.entry.amount, int))
    if case is None:
        return JobStory(job_id, None, None, tuple(lines), net, None, f"Net {signed(net)}.", ())
    job = case.jobs[0] if case.jobs else None
    verdict = judge(case)
    return JobStory(
        job_id=job_id,
        state=None if job is None else state(job),
        status=None if job is None else job.status,
        lines=tuple(lines),
        net=net,
        expected=verdict.expected,
        ending=told_ending(job, net, verdict, whole=len(lines) == len(case.rows)),
        oddities=tuple(filter(is_told, verdict.findings)),
    )


def told_ending(job: Job | None, net: int, verdict: JobVerdict, *, whole: bool) -> str:
    """Tell how a job ended; of a part of its rows only what they come to."""
    if not whole:
        return f"In this period its rows come to {signed(net)}; it has others outside."
    return f"Net {signed(net)}{ending(job, net, verdict)}."


def ending(job: Job | None, net: int, verdict: JobVerdict) -> str:
    """Tell how a job ended, in a clause that its rows and its status bear out."""
    right = verdict.expected
    if not verdict.consistent:
        if right is None:
            return ""
        return ", which is right" if right == net else f", where {signed(right)} would be right"
    if job is None or right != net:
        return ""
    if any(one.settled for one in verdict.findings):
        return ", as corrected"
    if state(job) is State.REFUNDED and job.status == SUCCEEDED:
        return ": it was reported as failed and the charge came back, but it succeeded in the end"
    return ENDINGS.get(state(job), "")


ENDINGS: Mapping[State, str] = {
    State.CHARGED: ": charged once",
    State.REFUNDED: ": it was reported as failed, and the charge came back",
    State.RECLAIMED: ": refunded and taken again, so in the end charged once",
}


def is_told(finding: Finding) -> bool:
    """Tell if a finding belongs in the story of a balance."""
    return finding.code not in SILENT and not finding.settled


def oddity(finding: Finding) -> str:
    """Say what is odd and what it costs, in one clause."""
    said = PLAIN_WORDS.get(finding.code, finding.detail)
    if finding.code is Code.MISSING_ROW:
        said = f"the job is marked {finding.about}ed but no {finding.about} row exists"
    if not finding.effect:
        return said
    were = "is" if abs(finding.effect) == 1 else "are"
    off = f"{were} missing" if finding.effect < 0 else "too many"
    return f"{said}: {amount_words(finding.effect)} {off}"


# words


def sentence(entry: Entry, zone: ZoneInfo) -> str:
    """Tell one row: when, how much, and why."""
    when = (
        f"On {date_words(entry.created_at, zone)}" if entry.created_at else "Without a usable date"
    )
    amount = entry.amount
    if isinstance(amount, Unusable):
        return (
            f"{when}, a {entry.type or 'nameless'} row holds {amount.shown}: {amount.why}, so it"
            " is left out of every sum."
        )
    return f"{when}, {clause(entry, amount)}{because(entry)}."


def clause(entry: Entry, amount: int) -> str:
    """Tell what a row did, without its time."""
    credits = amount_words(amount)
    were = "was" if abs(amount) == 1 else "were"
    job = job_words(entry.job_id) if entry.job_id else "no job"
    match entry.type:
        case RowType.CHARGE if amount <= 0:
            return f"{credits} {were} charged for {job}, before it ran"
        case RowType.REFUND if amount > 0:
            return f"{credits} came back, because {job} was reported as failed"
        case RowType.RECLAIM if amount <= 0:
            return f"{credits} {were} taken again, because {job} had succeeded after all"
        case RowType.GRANT if amount > 0:
            return f"{credits} {were} given"
        case RowType.CORRECTION:
            return f"a correction {moved(amount)} for {job}"
        case RowType.CHARGE | RowType.REFUND | RowType.RECLAIM | RowType.GRANT:
            against = f"{moved(amount)}, which is the wrong sign" if amount else "moved no credits"
            return f"a {entry.type} row {against}"
        case OtherType():
            kind = f"of the unknown type {entry.type}" if entry.type else "without a type"
            return f"a row {kind} {moved(amount)}" + (f" for {job}" if entry.job_id else "")


def job_words(job_id: str) -> str:
    """Name a job by its id, with the word job in front unless the id begins with it."""
    return job_id if job_id.lower().startswith("job") else f"job {job_id}"


def moved(amount: int) -> str:
    """Tell in which direction a row moved the balance."""
    return f"{'took' if amount < 0 else 'added'} {amount_words(amount)}"


def because(entry: Entry) -> str:
    """Quote the reason that an operator gave."""
    return f" ({entry.reason})" if entry.reason else ""


def amount_words(amount: int) -> str:
    """Write a number of credits, without its sign."""
    return "1 credit" if abs(amount) == 1 else f"{abs(amount)} credits"


def signed(amount: int) -> str:
    """Write an amount with its sign."""
    return f"{amount:+d}" if amount else "0"


def moment_words(at: datetime | None, day: str | None, zone: ZoneInfo) -> str:
    """Write a bound as it was asked: a day where it was a day, else the time."""
    if day is not None:
        return day_words(day)
    return "" if at is None else date_words(at, zone)


def day_words(day: str) -> str:
    """Write a day as people do: `8 March 2026`."""
    if day == UNDATED:
        return "Without a date"
    told = date.fromisoformat(day)
    return f"{told.day} {MONTHS[told.month - 1]} {told.year}"


def short_day(day: str) -> str:
    """Write a day in a table: `8 Mar 2026`."""
    if day == UNDATED:
        return day_words(day)
    number, month, year = day_words(day).split()
    return f"{number} {month[:3]} {year}"


def local_time(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return a moment on the zone's clock; the very first and last days may stay in UTC."""
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment


def date_words(moment: datetime, zone: ZoneInfo) -> str:
    """Write a time as people do, in the day zone: `8 March 2026, 09:15:02 UTC`."""
    local = local_time(moment, zone)
    name = local.tzname() or ""
    zone_words = f"UTC{name}" if name[:1] in {"+", "-"} else name
    clock = f"{local.hour:02}:{local.minute:02}:{local.second:02}"
    return f"{local.day} {MONTHS[local.month - 1]} {local.year}, {clock} {zone_words}"


def thinned(points: Sequence[Point], most: int = POINTS_MAX) -> list[Point]:
    """Keep at most `most` points, spread over the time: the first, and the last of each stretch."""
    if len(points) <= most:
        return list(points)
    first, last = points[0].at, points[-1].at
    width = max((last - first) / (most - 1), timedelta(milliseconds=1))
    kept = {int((point.at - first) / width): point for point in points}
    return [points[0], *(point for point in kept.values() if point is not points[0])]
