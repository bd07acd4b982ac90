"""What a rebuild left alone, how far a summary is off, and every half hour in one day."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from ledgerctl.domain.days import day_bounds, day_of, zone_named
from ledgerctl.domain.summary import NOTHING, Difference, Figures, ratio, untouched, worst
from tests.builders import days_between

BEFORE, OUTSIDE = "before_first_row", "outside_window"


@pytest.mark.parametrize(
    ("window", "ends", "late", "expected"),
    [
        (("03-05", "03-06"), None, [], [("03-05", "03-06", BEFORE)]),
        (("03-05", "03-06"), ("03-05", "03-06"), [], []),
        (("03-05", "03-06"), ("03-01", "03-06"), [], [("03-01", "03-04", OUTSIDE)]),
        (("03-05", "03-06"), ("03-06", "03-06"), [], [("03-05", "03-05", BEFORE)]),
        (("03-05", "03-06"), ("03-01", "03-09"), [], [("03-01", "03-04", OUTSIDE), ("03-07", "03-09", OUTSIDE)]),
        (("03-01", "03-02"), ("03-05", "03-06"), [], [("03-01", "03-02", BEFORE), ("03-05", "03-06", OUTSIDE)]),
        (("03-08", "03-09"), ("03-01", "03-03"), [], [("03-01", "03-03", OUTSIDE)]),
        (("03-05", "03-06"), ("03-01", "03-06"), ["03-02"], [("03-01", "03-01", OUTSIDE), ("03-03", "03-04", OUTSIDE)]),
        (("03-05", "03-06"), ("03-01", "03-06"), ["03-01", "03-04"], [("03-02", "03-03", OUTSIDE)]),
        (("03-05", "03-06"), ("03-04", "03-06"), ["03-04"], []),
    ],
)  # fmt: skip
def test_what_was_left_alone_is_named_range_by_range(
    window: tuple[str, str],
    ends: tuple[str, str] | None,
    late: list[str],
    expected: list[tuple[str, str, str]],
) -> None:
    first, last = ends or (None, None)
    found = untouched(
        f"2026-{window[0]}",
        f"2026-{window[1]}",
        first=first and f"2026-{first}",
        last=last and f"2026-{last}",
        late=[f"2026-{day}" for day in late],
    )
    assert [(one.from_day[5:], one.to_day[5:], one.why) for one in found] == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (7, 3, "2.333333"),
        (2, 3, "0.666667"),
        (96, 40, "2.400000"),
        (0, 40, "0.000000"),
        (-40, 40, "-1.000000"),
        (2**80, 1, f"{2**80}.000000"),
        (1, 3 * 2**80, "0.000000"),
    ],
)
def test_a_ratio_has_six_decimals_at_any_size(part: int, whole: int, expected: str) -> None:
    assert ratio(part, whole) == Decimal(expected)


def test_a_ratio_to_nothing_is_none() -> None:
    assert ratio(5, 0) is None


def difference(account: str, summary: int, ledger: int, day: str = "2026-03-05") -> Difference:
    def net(value: int) -> Figures:
        return Figures(value, 0, 0, value, 1, 1)

    return Difference(account, day, net(summary), net(ledger))


def test_the_worst_is_the_furthest_off_in_either_direction() -> None:
    found = worst([difference("a", 10, 0), difference("b", 0, 30), difference("c", 5, 25)])
    assert found is not None
    assert found.account_id == "b"
    assert worst([]) is None


def test_an_absent_summary_counts_as_nothing() -> None:
    missing = Difference("a", "2026-03-05", None, Figures(40, 0, 0, 40, 1, 1))
    assert (missing.missing, missing.summary_net, missing.ratio, missing.distance) == (
        True,
        0,
        Decimal(0),
        40,
    )
    idle = Difference("a", "2026-03-05", NOTHING, None)
    assert (idle.missing, idle.ledger_net, idle.ratio) == (False, 0, None)


# A 23-hour, a 25-hour and, but for Berlin, a day without midnight; Lord Howe's jump is half an hour.
CLOCK_CHANGES = [
    ("Europe/Berlin", "2026-03-29", 23),
    ("Europe/Berlin", "2026-10-25", 25),
    ("America/Santiago", "2026-09-06", 23),
    ("America/Santiago", "2026-04-04", 25),
    ("Africa/Cairo", "2026-04-24", 23),
    ("Africa/Cairo", "2026-10-29", 25),
    ("Australia/Lord_Howe", "2026-10-04", 23.5),
    ("Australia/Lord_Howe", "2026-04-05", 24.5),
]


@pytest.mark.parametrize(("name", "day", "hours"), CLOCK_CHANGES)
def test_every_half_hour_around_a_clock_change_lands_in_exactly_one_day(
    name: str, day: str, hours: float
) -> None:
    zone = zone_named(name)
    start, end = day_bounds(day, zone)
    assert end - start == timedelta(hours=hours)
    first = datetime.fromisoformat(f"{day}T00:00:00+00:00") - timedelta(days=2)
    instants = [first + timedelta(minutes=30 * step) for step in range(4 * 48)]
    days = days_between(day_of(instants[0], zone), day_of(instants[-1], zone))
    bounds = {one: day_bounds(one, zone) for one in days}
    for instant in instants:
        holding = [one for one in days if bounds[one][0] <= instant < bounds[one][1]]
        assert holding == [day_of(instant, zone)]
        assert holding == [instant.astimezone(zone).date().isoformat()]
    lengths = [(upper - lower) for lower, upper in bounds.values()]
    assert sum(lengths, timedelta(0)) == bounds[days[-1]][1] - bounds[days[0]][0]
    assert instants[0].tzinfo is UTC
