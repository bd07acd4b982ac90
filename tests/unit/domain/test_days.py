"""Days are bounded by the zone's own calendar, however its clocks have jumped."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from ledgerctl.domain import days
from ledgerctl.domain.days import (
    EARLIEST,
    LATEST,
    check_day_order,
    day_bounds,
    day_of,
    parse_day,
    window,
    zone_named,
)
from ledgerctl.errors import UsageError
from tests.builders import days_between

TOKYO = ZoneInfo("Asia/Tokyo")
PHOENIX = ZoneInfo("America/Phoenix")
ZONES = (
    "UTC",
    "Asia/Tokyo",
    "America/Phoenix",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "Asia/Beirut",
    "America/St_Johns",
    "America/Toronto",
    "America/Havana",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Africa/Monrovia",
)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]  # starred arguments


@pytest.mark.parametrize(
    ("zone", "day", "start", "hours"),
    [
        ("UTC", "2026-03-08", utc(2026, 3, 8), 24),
        ("Asia/Tokyo", "2026-03-08", utc(2026, 3, 7, 15), 24),
        ("America/New_York", "2025-03-09", utc(2025, 3, 9, 5), 23),
        ("America/New_York", "2025-11-02", utc(2025, 11, 2, 4), 25),
        ("America/Sao_Paulo", "2018-11-04", utc(2018, 11, 4, 3), 23),  # midnight never came
        ("America/Sao_Paulo", "2018-02-17", utc(2018, 2, 17, 2), 25),  # ends with 23:00 twice
        ("Africa/Cairo", "2025-04-25", utc(2025, 4, 24, 22), 23),
        ("Asia/Beirut", "2025-03-30", utc(2025, 3, 29, 22), 23),
        ("America/Havana", "2025-11-02", utc(2025, 11, 2, 4), 25),  # midnight came twice
        ("America/Toronto", "1919-03-31", utc(1919, 3, 31, 4, 30), 23.5),  # 23:30 became 00:30
        ("Pacific/Apia", "2011-12-30", utc(2011, 12, 30, 10), 0),  # the day was skipped
    ],
)
def test_a_day_begins_at_its_first_instant(
    zone: str, day: str, start: datetime, hours: float
) -> None:
    assert day_bounds(day, ZoneInfo(zone)) == (start, start + timedelta(hours=hours))


@pytest.mark.parametrize("name", ZONES)
def test_days_follow_each_other_without_gap_or_overlap(name: str) -> None:
    zone = ZoneInfo(name)
    for year in (1844, 1919, 1972, 1987, 2006, 2011, 2018, 2026):
        for day in days_between(f"{year}-01-01", f"{year}-12-31"):
            start, end = day_bounds(day, zone)
            assert start <= end == day_bounds(days.next_day(day), zone)[0]
            if start < end:
                assert day_of(start, zone) == day
                assert day_of(end - timedelta(milliseconds=1), zone) == day


def test_a_row_counts_on_the_day_of_the_day_zone() -> None:
    late, early = utc(2026, 3, 7, 23, 30), utc(2026, 3, 8, 0, 10)
    assert [day_of(at, TOKYO) for at in (late, early)] == ["2026-03-08", "2026-03-08"]
    assert [day_of(at, PHOENIX) for at in (late, early)] == ["2026-03-07", "2026-03-07"]
    assert [day_of(at, ZoneInfo("UTC")) for at in (late, early)] == ["2026-03-07", "2026-03-08"]


@pytest.mark.parametrize("name", ZONES)
def test_the_first_and_last_years_do_not_overflow(name: str) -> None:
    zone = ZoneInfo(name)
    assert day_of(EARLIEST, zone) in {"0001-01-01", "0001-01-02"}
    assert day_of(LATEST, zone) in {"9999-12-30", "9999-12-31"}
    assert EARLIEST <= day_bounds("0001-01-01", zone)[0] < day_bounds("0001-01-03", zone)[0]
    assert day_bounds("9999-12-31", zone)[1] == LATEST


def test_a_window_ends_today_and_counts_both_ends() -> None:
    now = utc(2026, 3, 7, 23, 30)
    assert window(2, now, ZoneInfo("UTC")) == ("2026-03-06", "2026-03-07")
    assert window(1, now, TOKYO) == ("2026-03-08", "2026-03-08")
    assert window(10**30, now, TOKYO) == ("0001-01-01", "2026-03-08")


@pytest.mark.parametrize("count", [0, -1])
def test_an_empty_window_is_refused(count: int) -> None:
    with pytest.raises(UsageError):
        window(count, utc(2026, 3, 7), ZoneInfo("UTC"))


def test_a_range_of_days_that_is_reversed_is_refused() -> None:
    with pytest.raises(UsageError, match="from 2026-03-08 to 2026-03-07"):
        check_day_order("2026-03-08", "2026-03-07")


@pytest.mark.parametrize(
    ("zone", "now", "yesterday"),
    [
        ("Asia/Tokyo", utc(2026, 3, 7, 15, 30), "2026-03-07"),  # 00:30 on the 8th
        ("America/Phoenix", utc(2026, 3, 8, 7, 30), "2026-03-07"),  # 00:30 on the 8th
        ("America/New_York", utc(2025, 3, 10, 4, 30), "2025-03-09"),  # the day had 23 hours
        ("America/New_York", utc(2025, 11, 3, 5, 30), "2025-11-02"),  # the day had 25 hours
    ],
)
def test_yesterday_at_half_past_midnight_is_the_day_that_just_ended(
    zone: str, now: datetime, yesterday: str
) -> None:
    assert parse_day("yesterday", now, ZoneInfo(zone)) == yesterday
    assert parse_day("today", now, ZoneInfo(zone)) > yesterday


@pytest.mark.parametrize(
    "text",
    [
        "",
        "20260308",
        "2026-W10-7",
        "2026-3-8",
        "2026-02-30",
        "08.03.2026",
        "٢٠٢٦-٠٣-٠٨",
        "tomorrow",
    ],
)
def test_anything_but_a_day_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_day(text, utc(2026, 3, 8), ZoneInfo("UTC"))
    assert "yesterday" in caught.value.hint


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "America"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        zone_named(name)


def test_utc_exists_without_a_time_zone_database(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(ZoneInfo):
        def __new__(cls, key: str) -> "Bare":
            raise KeyError(key)

    monkeypatch.setattr("zoneinfo.ZoneInfo", Bare)
    monkeypatch.setattr(Bare, "from_file", ZoneInfo.from_file)
    zone = zone_named("UTC")
    assert (zone.key, str(zone)) == ("UTC", "UTC")
    assert day_bounds("2026-03-08", zone) == (utc(2026, 3, 8), utc(2026, 3, 9))
    with pytest.raises(UsageError):
        zone_named("Asia/Tokyo")
