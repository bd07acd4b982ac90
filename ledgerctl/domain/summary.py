"""Daily summaries: their figures, what a rebuild left alone, and how far they are from the ledger."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

from ledgerctl.domain.days import next_day, previous_day

if TYPE_CHECKING:
    from ledgerctl.domain.drift import Explanation

OUTSIDE_WINDOW = "outside_window"
BEFORE_FIRST_ROW = "before_first_row"
RATIO_STEP = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Figures:
    """Hold one account's figures of one day; magnitudes in whole credits, exact at any size.

    None stands for a stored figure that is no whole number. Source: contract, section 2.
    """

    charged: int | None
    refunded: int | None
    reclaimed: int | None
    net: int | None
    jobs: int | None
    rows: int | None


NOTHING = Figures(0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Difference:
    """Hold a (account, day) whose summary is not what the ledger says.

    `summary` is None where none is stored, `ledger` where no row counts on that day.
    """

    account_id: str
    day: str
    summary: Figures | None
    ledger: Figures | None
    timezone: str | None = None  # the summary's
    as_of: datetime | None = None  # the summary's
    why: "Explanation | None" = None  # where it was asked for

    @property
    def missing(self) -> bool:
        """Return whether no summary is stored at all."""
        return self.summary is None

    @property
    def summary_net(self) -> int | None:
        """Return the summary's net; 0 where there is none, None where it cannot be read."""
        return 0 if self.summary is None else self.summary.net

    @property
    def ledger_net(self) -> int:
        """Return the ledger's net; 0 where no row counts."""
        return 0 if self.ledger is None else self.ledger.net or 0

    @property
    def ratio(self) -> Decimal | None:
        """Summary over ledger, to 6 decimals; None when the ledger is 0."""
        return ratio(self.summary_net or 0, self.ledger_net)

    @property
    def distance(self) -> int:
        """|summary − ledger|, in credits."""
        return abs((self.summary_net or 0) - self.ledger_net)


def ratio(part: int, whole: int) -> Decimal | None:
    """`part / whole` rounded to 6 decimals, exact at any size; None when `whole` is 0."""
    if whole == 0:
        return None
    with localcontext() as context:
        context.prec = len(str(part)) + 40
        return (Decimal(part) / Decimal(whole)).quantize(RATIO_STEP)


def worst(differences: Iterable[Difference]) -> Difference | None:
    """Return the one furthest from the ledger; the first by account and day among equals."""
    return min(differences, key=lambda one: (-one.distance, one.account_id, one.day), default=None)


@dataclass(frozen=True, slots=True)
class Untouched:
    """Days, first and last included, that a rebuild left as they were, and why."""

    from_day: str
    to_day: str
    why: str


def untouched(
    from_day: str, to_day: str, *, first: str | None, last: str | None, late: Sequence[str]
) -> list[Untouched]:
    """Return what a rebuild of `from_day` to `to_day` leaves alone, in order of time.

    `first` and `last` are the days of the ledger's first and last row (None: it is empty), `late`
    the days that were rebuilt besides the window. Source: contract, section 3, summary.
    """
    if first is None or last is None:
        return [Untouched(from_day, to_day, BEFORE_FIRST_ROW)]
    found = []
    if from_day < first:
        found.append(Untouched(from_day, min(to_day, previous_day(first)), BEFORE_FIRST_ROW))
    start = first
    for day in [day for day in sorted(late) if first <= day < from_day]:
        if start < day:
            found.append(Untouched(start, previous_day(day), OUTSIDE_WINDOW))
        start = next_day(day)
    if start < from_day:
        found.append(Untouched(start, min(last, previous_day(from_day)), OUTSIDE_WINDOW))
    after = max(next_day(to_day), first)
    if after <= last and to_day < after:
        found.append(Untouched(after, last, OUTSIDE_WINDOW))
    return [one for one in found if one.from_day <= one.to_day]


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """Hold a row because of which an account is not written, and how many such rows it has."""

    account_id: str
    row_id: str
    why: str
    rows: int = 1
    lasting: bool = False  # it gets no summary whatever is written later


def refusals(found: Iterable[RefusedRow]) -> tuple[RefusedRow, ...]:
    """Return one row an account, the first found, with the number of them all."""
    first: dict[str, RefusedRow] = {}
    for row in found:
        before = first.get(row.account_id)
        first[row.account_id] = (
            row if before is None else replace(before, rows=before.rows + row.rows)
        )
    return tuple(first.values())


def accounts_of(rows: Iterable[RefusedRow]) -> list[str]:
    """Return the accounts that are not written because of these rows, each once."""
    return sorted({row.account_id for row in rows})


@dataclass(slots=True)
class Rebuilt:
    """Describe what a rebuild did and left; the days it counts are (account, day) pairs."""

    from_day: str
    to_day: str
    timezone: str
    as_of: datetime
    late_days: tuple[str, ...]
    refused_rows: tuple[RefusedRow, ...]
    undated: int  # rows without a usable date or amount that refuse nothing
    not_rebuilt: tuple[Untouched, ...]
    accounts: int | None = None  # None: not counted, because the store went away
    days_written: int | None = None
    days_cleared: int = 0
    rows: int | None = None
    duration_s: Decimal = Decimal(0)
    days_left: tuple[str, ...] = ()  # interrupted before these
    differences: list[Difference] | None = None  # of a dry run

    @property
    def refused(self) -> list[str]:
        """Return the accounts that were not written."""
        return accounts_of(self.refused_rows)


@dataclass(frozen=True, slots=True)
class DaySpan:
    """Hold one day of the day zone, as the instants it runs from (included) to (excluded)."""

    day: str
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class DayFigures:
    """Hold a summary as `summary show` lists it."""

    day: str
    figures: Figures
    timezone: str | None
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class AccountSummaries:
    """Hold an account's summaries of a range of days."""

    account_id: str
    from_day: str
    to_day: str
    timezone: str
    days: list[DayFigures]


@dataclass(frozen=True, slots=True)
class Drift:
    """Describe how far the summaries of a range are from the ledger."""

    from_day: str
    to_day: str
    timezone: str
    days_compared: int
    drifted: list[Difference]
    unusable_rows: int = 0
    unsummarised: list[str] = field(default_factory=list)  # accounts whose id is none

    @property
    def worst(self) -> Difference | None:
        """Return the one furthest off."""
        return worst(self.drifted)

    @property
    def causes(self) -> dict[str, int]:
        """Count the summaries that each cause explains."""
        return dict(Counter(str(one.why.cause) for one in self.drifted if one.why is not None))

    @property
    def found(self) -> bool:
        """Say whether anything is wrong."""
        return bool(self.drifted or self.unusable_rows or self.unsummarised)
