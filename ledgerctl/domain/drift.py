"""Causes of drift: a day recomputed under each hypothesis, told only where every figure fits."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import partial

from ledgerctl.domain.rows import Row, RowType
from ledgerctl.domain.summary import NOTHING, DaySpan, Difference, Figures

Four = tuple[int, int, int, int]  # net, charged, refunded, reclaimed
Taken = tuple[str, int]  # the type of a row, and what it adds to the figure of that type

SIGNS = {RowType.CHARGE: -1, RowType.REFUND: 1, RowType.RECLAIM: -1}


class Cause(StrEnum):
    """Name why a summary differs, in the order of asking. Source: contract, summary drift."""

    MISSING_SUMMARY = "missing_summary"
    OTHER_ZONE = "other_zone"
    PARTIAL_DAY = "partial_day"
    LATE_ROWS = "late_rows"
    ADDED_AGAIN = "added_again"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Describe why a summary differs, and by which zone, how many times or which rows.

    `outside`: the day lies before the window that a rebuild takes by itself.
    """

    cause: Cause
    zone: str = ""
    times: Decimal | None = None
    row_ids: tuple[str, ...] = ()
    outside: bool = False


@dataclass(slots=True)
class Hypothesis:
    """Hold one cause, which rows would have been summed under it, and how many add how much.

    Of the rows that add the same to the same figure the first two are kept by their ids.
    """

    explanation: Explanation
    holds: Callable[[Row], bool]
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIGNS, 0))
    kinds: dict[Taken, list[str]] = field(default_factory=lambda: defaultdict(list))

    def take(self, row: Row) -> None:
        """Sum a row, if it would have been summed."""
        taken = taken_by(row)
        if taken is None or not self.holds(row):
            return
        self.sums[taken[0]] += taken[1]
        if len(self.kinds[taken]) < 2:  # noqa: PLR2004  # no more are ever named
            self.kinds[taken].append(row.id.text)

    @property
    def four(self) -> Four:
        """Return the figures as a summary would hold them."""
        charged, refunded, reclaimed = (self.sums[one] for one in SIGNS)
        return charged - refunded + reclaimed, charged, refunded, reclaimed


def explain(
    one: Difference, rows: Iterable[Row], own: DaySpan, others: Mapping[str, DaySpan]
) -> Explanation:
    """Return the first cause that explains every compared figure exactly.

    `own` is the day as the setting has it, `others` as other zones have it; `rows` are the
    account's of all of these.
    """
    if one.summary is None:
        return Explanation(Cause.MISSING_SUMMARY)
    found, ledger = four_of(one.summary), four_of(one.ledger or NOTHING)
    if found == ledger:
        return Explanation(Cause.OTHER_ZONE, zone=one.timezone or "no zone")
    day = Hypothesis(Explanation(Cause.ADDED_AGAIN), partial(is_in, span=own))
    tried = [*hypotheses(one.as_of, own, others)]
    for row in rows:
        for hypothesis in (day, *tried):
            hypothesis.take(row)
    for hypothesis in tried:
        if hypothesis.four == found:
            return hypothesis.explanation
    times, again = factor(found, ledger), rows_again(found, ledger, day.kinds)
    if times is None and not again:
        return Explanation(Cause.UNKNOWN)
    return replace(day.explanation, times=times, row_ids=() if times else again)


def hypotheses(
    as_of: datetime | None, own: DaySpan, others: Mapping[str, DaySpan]
) -> Iterator[Hypothesis]:
    """Yield what may have been summed instead of the day's rows."""
    for zone, span in others.items():
        yield Hypothesis(Explanation(Cause.OTHER_ZONE, zone=zone), partial(is_in, span=span))
    if as_of is None:
        return
    if own.start <= as_of < own.end:
        begun = DaySpan(own.day, own.start, as_of)
        yield Hypothesis(Explanation(Cause.PARTIAL_DAY), partial(is_in, span=begun))
    yield Hypothesis(
        Explanation(Cause.LATE_ROWS),
        lambda row: is_in(row, own) and row.recorded_at is not None and row.recorded_at <= as_of,
    )


def is_in(row: Row, span: DaySpan) -> bool:
    """Return true for a row that is dated on this day."""
    return row.created_at is not None and span.start <= row.created_at < span.end


def four_of(figures: Figures) -> tuple[int | None, ...]:
    """Return the compared figures; None stands for one that is no whole number."""
    return figures.net, figures.charged, figures.refunded, figures.reclaimed


def taken_by(row: Row) -> Taken | None:
    """Return what a row adds to its figure; None for a row that enters no summary."""
    sign = SIGNS.get(RowType(row.type)) if row.type in SIGNS else None
    if sign is None or not isinstance(row.amount, int):
        return None
    return row.type, sign * row.amount


def factor(found: tuple[int | None, ...], ledger: tuple[int | None, ...]) -> Decimal | None:
    """Return how many times the ledger the summary is, all figures alike; None if not, or below 1.

    A whole number or one with one decimal.
    """
    pairs = [(part or 0, whole or 0) for part, whole in zip(found, ledger, strict=True)]
    part, whole = next((pair for pair in pairs if pair[1]), (0, 1))
    tenths, rest = divmod(10 * part, whole)
    if rest or tenths <= 10 or None in found or any(10 * a != tenths * b for a, b in pairs):  # noqa: PLR2004  # once
        return None
    return Decimal(tenths) / 10 if tenths % 10 else Decimal(tenths // 10)


def rows_again(
    found: tuple[int | None, ...], ledger: tuple[int | None, ...], kinds: Mapping[Taken, list[str]]
) -> tuple[str, ...]:
    """Return the one or two rows which, added once more to the ledger, make the summary."""
    if None in found:
        return ()
    more = [(part or 0) - (whole or 0) for part, whole in zip(found, ledger, strict=True)]
    if more[0] != more[1] - more[2] + more[3]:
        return ()
    wanted = [(kind, value) for kind, value in zip(SIGNS, more[1:], strict=True) if value]
    if len(wanted) == 2 and all(one in kinds for one in wanted):  # noqa: PLR2004  # one of each
        return tuple(kinds[one][0] for one in wanted)
    if len(wanted) != 1:
        return ()
    ((kind, value),) = wanted
    if wanted[0] in kinds:
        return (kinds[kind, value][0],)
    for (of, part), ids in kinds.items():
        if of == kind and part and (others := kinds.get((kind, value - part))):
            return (ids[0], others[-1])
    return ()
