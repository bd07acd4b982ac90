"""A balance told as a story: job by job in a customer's words, or by day and month when it is long."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.audit import Case, Code, Finding, Verdict, judge
from ledgerctl.domain.balances import UnusableRow, unusable
from ledgerctl.domain.days import day_of
from ledgerctl.domain.jobs import Job, State, state
from ledgerctl.domain.rows import Entry, OtherType, RowType

TOLD_ROWS_MAX = 1_000  # a longer story is rolled up
DAYS_MAX = 62  # of a roll-up; a longer one goes by month
ODDITIES_MAX = 50  # singled out; the others are counted
POINTS_MAX = 400  # of a chart
QUARTER_S = 900  # no zone changes its offset within a quarter of an hour
UNDATED = "undated"

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

# Matters between this program and its stores: they move no credits and mean nothing to a customer.
SILENT = frozenset({Code.FLAGS_MISSING, Code.MISSING_MESSAGE})
PLAIN_WORDS: Mapping[Code, str] = {
    Code.UNFLAGGED_ROW: "a row stands although the job is not marked so",
    Code.DUPLICATE_ROW: "the same step was booked more than once",
    Code.WRONG_AMOUNT: "a row's amount is not what was charged",
    Code.WRONG_SIGN: "a row counts in the wrong direction",
    Code.MISSING_CHARGE: "the job has no charge row",
    Code.ORPHAN_ROW: "the row names a job that does not exist",
    Code.CORRUPT_FLAGS: "the job is marked reclaimed without ever having been refunded",
    Code.BAD_FLAGS: "a mark of the job is neither true nor false",
    Code.BAD_AMOUNT: "a row's amount cannot be summed",
    Code.REFUNDED_BUT_SUCCEEDED: "the job succeeded and its credits came back all the same",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the story; `balance` is the balance after it."""

    entry: Entry
    balance: int
    sentence: str


@dataclass(frozen=True, slots=True)
class JobStory:
    """One job: its rows in the window, what they come to, and what is odd."""

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
    """A day or a month of a long story. Magnitudes, except `corrected`, `other` and `balance`."""

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
        """What the period's rows come to."""
        taken = self.charged + self.reclaimed
        return self.refunded + self.granted + self.corrected + self.other - taken

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
        """Take a later period in."""
        for name in ("rows", "jobs", "charged", "refunded", "reclaimed", "granted", "corrected",
                     "other"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.balance = later.balance


@dataclass(frozen=True, slots=True)
class Point:
    """The balance from this moment on."""

    at: datetime
    balance: int


@dataclass(slots=True)
class Book:
    """Takes an account's rows in their order and keeps no more than a page can show.

    Up to TOLD_ROWS_MAX rows it keeps every line, then only its periods: a period a day, at most
    one for each day of the ledger.
    """

    opening: int
    zone: ZoneInfo
    rows: int = 0
    closing: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    count_by_type: dict[str, int] = field(default_factory=dict)
    days: dict[str, Period] = field(default_factory=dict)
    unusable: list[UnusableRow] = field(default_factory=list)
    first_at: datetime | None = None
    last_at: datetime | None = None
    _lines: list[tuple[Entry, int]] = field(default_factory=list)
    _ends: dict[str, Point] = field(default_factory=dict)
    _quarter: float = -1.0
    _day: str = UNDATED

    def __post_init__(self) -> None:
        self.closing = self.opening

    @property
    def is_long(self) -> bool:
        """Whether the story must be rolled up."""
        return self.rows > TOLD_ROWS_MAX

    def add(self, entry: Entry, balance: int) -> None:
        """Take the next row in, with the balance after it."""
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
        if entry.created_at is not None:
            self.first_at = self.first_at or entry.created_at
            self.last_at = entry.created_at
            self._ends[day] = Point(entry.created_at, balance)
        if self.is_long:
            self._lines.clear()
        else:
            self._lines.append((entry, balance))

    def _day_of(self, moment: datetime | None) -> str:
        if moment is None:
            return UNDATED
        quarter = moment.timestamp() // QUARTER_S
        if quarter != self._quarter:
            self._quarter, self._day = quarter, day_of(moment, self.zone)
        return self._day

    def lines(self) -> list[Line]:
        """Every row with its sentence; none of a long story."""
        return [Line(entry, balance, sentence(entry, self.zone)) for entry, balance in self._lines]

    def periods(self) -> list[Period]:
        """The days, or the months where there are many days."""
        if len(self.days) <= DAYS_MAX:
            return list(self.days.values())
        months: dict[str, Period] = {}
        for day, period in self.days.items():
            month = day if day == UNDATED else day[: -len("-01")]
            months.setdefault(month, Period(month)).join(period)
        return list(months.values())

    def points(self) -> list[Point]:
        """The balance over time: after each row, or at the end of each day of a long story."""
        if not self.is_long:
            dated = [
                Point(entry.created_at, balance)
                for entry, balance in self._lines
                if entry.created_at is not None
            ]
            return thinned(dated)
        return thinned(list(self._ends.values()))


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that explains a balance; opening + every net = closing."""

    account_id: str
    as_of: datetime
    zone: ZoneInfo
    since: datetime | None
    before: datetime | None
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

    @property
    def is_long(self) -> bool:
        """Whether it is told by periods."""
        return self.book.is_long


# telling


def tell_jobs(lines: Iterable[Line], cases: Iterable[Case]) -> list[JobStory]:
    """The story of each job, in the order in which the jobs first appear."""
    by_job: dict[str, list[Line]] = {}
    for line in lines:
        if line.entry.job_id is not None:
            by_job.setdefault(line.entry.job_id, []).append(line)
    known = {case.job_id: case for case in cases if case.job_id is not None}
    order = [*by_job, *(job for job in known if job not in by_job)]
    stories = [tell_job(job, by_job.get(job, []), known.get(job)) for job in order]
    return [one for one in stories if one.lines or one.oddities]


def tell_job(job_id: str, lines: Sequence[Line], case: Case | None) -> JobStory:
    """One job's story: its lines, its ending and what is odd about it."""
    net = sum(line.entry.amount for line in lines if isinstance(line.entry.amount, int))
    if case is None:
        return JobStory(job_id, None, None, tuple(lines), net, None, ending(None, net, None), ())
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


def told_ending(job: Job | None, net: int, verdict: Verdict, *, whole: bool) -> str:
    """How a job came out; a part of its rows only says what that part comes to."""
    if not whole:
        return f"In this period its rows come to {signed(net)}; it has others outside."
    return ending(job, net, verdict)


def ending(job: Job | None, net: int, verdict: Verdict | None) -> str:
    """How a job came out, in one sentence."""
    if verdict is not None and not verdict.consistent and verdict.expected not in {None, net}:
        return f"Net {signed(net)}, where {signed(verdict.expected or 0)} would be right."
    if job is None:
        return f"Net {signed(net)}."
    match state(job):
        case State.CHARGED:
            return f"Net {signed(net)}: charged once."
        case State.REFUNDED:
            return f"Net {signed(net)}: it failed, and the charge came back."
        case State.RECLAIMED:
            return f"Net {signed(net)}: refunded and taken again, so in the end charged once."
        case State.CORRUPT | State.BAD_FLAGS:
            return f"Net {signed(net)}."


def is_told(finding: Finding) -> bool:
    """Whether a finding belongs into a customer's story."""
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
    """One row in a customer's words: when, how much, and why."""
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
    """What a row did, without its time."""
    credits = amount_words(amount)
    were = "was" if abs(amount) == 1 else "were"
    job = job_words(entry.job_id) if entry.job_id else "no job"
    match entry.type:
        case RowType.CHARGE if amount <= 0:
            return f"{credits} {were} charged for {job}, before it ran"
        case RowType.REFUND if amount > 0:
            return f"{credits} came back, because {job} had failed"
        case RowType.RECLAIM if amount <= 0:
            return f"{credits} {were} taken again, because {job} had succeeded after all"
        case RowType.GRANT if amount > 0:
            return f"{credits} {were} given"
        case RowType.CORRECTION:
            return f"a correction {moved(amount)} for {job}"
        case RowType.CHARGE | RowType.REFUND | RowType.RECLAIM | RowType.GRANT:
            against = f"{moved(amount)}, against its nature" if amount else "moved no credits"
            return f"a {entry.type} row {against}"
        case OtherType():
            kind = f"of the unknown type {entry.type}" if entry.type else "without a type"
            return f"a row {kind} {moved(amount)}" + (f" for {job}" if entry.job_id else "")


def job_words(job_id: str) -> str:
    """A job by its id; one that calls itself a job is not called so twice."""
    return job_id if job_id.lower().startswith("job") else f"job {job_id}"


def moved(amount: int) -> str:
    """In which direction a row moved the balance."""
    return f"{'took' if amount < 0 else 'added'} {amount_words(amount)}"


def because(entry: Entry) -> str:
    """The reason that somebody gave."""
    return f" ({entry.reason})" if entry.reason else ""


def amount_words(amount: int) -> str:
    """A number of credits, without its sign."""
    return "1 credit" if abs(amount) == 1 else f"{abs(amount)} credits"


def signed(amount: int) -> str:
    """An amount with its sign."""
    return f"{amount:+d}" if amount else "0"


def date_words(moment: datetime, zone: ZoneInfo) -> str:
    """A time as people write it, in the day zone: `8 March 2026, 09:15:02 UTC`."""
    try:
        local = moment.astimezone(zone)
    except OverflowError:  # the first or last day there is, in a zone that lies beyond it
        local = moment
    name = local.tzname() or ""
    zone_words = f"UTC{name}" if name[:1] in {"+", "-"} else name
    clock = f"{local.hour:02}:{local.minute:02}:{local.second:02}"
    return f"{local.day} {MONTHS[local.month - 1]} {local.year}, {clock} {zone_words}"


def thinned(points: Sequence[Point], most: int = POINTS_MAX) -> list[Point]:
    """At most `most` points, spread over the time: the last of each stretch, and the first of all."""
    if len(points) <= most:
        return list(points)
    first, last = points[0].at, points[-1].at
    width = max((last - first) / (most - 1), timedelta(milliseconds=1))
    kept = {int((point.at - first) / width): point for point in points}
    return [points[0], *(point for point in kept.values() if point is not points[0])]
