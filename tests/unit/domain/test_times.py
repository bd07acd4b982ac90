"""Times mean one instant, ranges keep the contract's ends, and doubtful forms are refused."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from ledgerctl.domain.amounts import parse_whole
from ledgerctl.domain.times import (
    at_bound,
    check_order,
    format_time,
    lower_bound,
    parse_duration,
    parse_rfc3339,
    shifted,
    time_range,
)
from ledgerctl.errors import UsageError

NOW = datetime(2026, 3, 8, 9, 15, 2, 435000, tzinfo=UTC)
ZONE = ZoneInfo("UTC")
TOKYO = ZoneInfo("Asia/Tokyo")


def shown(instant: datetime | None) -> str | None:
    return format_time(instant)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-03-08T09:15:02.4359552-10:00", "2026-03-08T19:15:02.435Z"),
        ("2026-03-08T09:15:02.1Z", "2026-03-08T09:15:02.100Z"),
        ("2026-03-08T09:15:02Z", "2026-03-08T09:15:02.000Z"),
        ("2026-03-08T09:15:02.123456789Z", "2026-03-08T09:15:02.123Z"),
        ("2026-03-08T09:15:02+00", "2026-03-08T09:15:02.000Z"),
        ("2026-03-08t09:15:02z", "2026-03-08T09:15:02.000Z"),
        ("2026-03-08T09:15:02." + "9" * 9000 + "+05:30", "2026-03-08T03:45:02.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
        ("0001-01-01T00:00:00+09:00", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59-10:00", "9999-12-31T23:59:59.999Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000Z"),
    ],
)
def test_rfc3339_times_are_read_with_any_fraction_and_offset(text: str, instant: str) -> None:
    assert shown(parse_rfc3339(text)) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-03-08",
        "2026-03-08T09:15:02",
        "2026-03-08T09:15Z",
        "2026-03-08T09:15:02.Z",
        "2026-03-08T09:15:02,5Z",
        "2026-03-08T24:00:00Z",
        "2026-02-30T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-03-08T09:15:61Z",
        "2026-03-08T09:15:02+24:00",
        "2026-03-08T09:15:02Z\n",
        "2026-03-08T09:15:Z\0.123Z",
        "2026-03-08T09:15:02.\x0035Z",
        "2026-03-08T24:00:00.000Z",
        "2026-W10-7T09:15:02.435Z",
        "2026-03-08T09:15:02,435Z",
        "٢٠٢٦-03-08T09:15:02Z",
    ],
)
def test_what_is_not_rfc3339_is_not_guessed_at(text: str) -> None:
    assert parse_rfc3339(text) is None


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
        (datetime(987, 6, 5, tzinfo=UTC), "0987-06-05T00:00:00.000Z"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9))), "0001-01-01T00:00:00.000Z"),
        (datetime(2026, 3, 8, 12, tzinfo=TOKYO), "2026-03-08T03:00:00.000Z"),
        (None, None),
    ],
)
def test_times_are_written_in_utc_with_milliseconds(
    instant: datetime | None, text: str | None
) -> None:
    assert format_time(instant) == text


@pytest.mark.parametrize(
    ("text", "lower", "upper", "at"),
    [
        (
            "2026-03-07",
            "2026-03-07T00:00:00.000Z",
            "2026-03-08T00:00:00.000Z",
            "2026-03-07T23:59:59.999Z",
        ),
        (
            "yesterday",
            "2026-03-07T00:00:00.000Z",
            "2026-03-08T00:00:00.000Z",
            "2026-03-07T23:59:59.999Z",
        ),
        (
            "today",
            "2026-03-08T00:00:00.000Z",
            "2026-03-09T00:00:00.000Z",
            "2026-03-08T23:59:59.999Z",
        ),
        ("now", *["2026-03-08T09:15:02.435Z"] * 3),
        ("2h ago", *["2026-03-08T07:15:02.435Z"] * 3),
        (" 90m  ago ", *["2026-03-08T07:45:02.435Z"] * 3),
        ("2026-03-08T00:00:00+01:00", *["2026-03-07T23:00:00.000Z"] * 3),
        ("999999999d ago", *["0001-01-01T00:00:00.000Z"] * 3),
        (
            "2026-03-08T00:00:00.0005Z",
            "2026-03-08T00:00:00.001Z",
            "2026-03-08T00:00:00.001Z",
            "2026-03-08T00:00:00.000Z",
        ),
    ],
)
def test_each_option_takes_its_own_end_of_what_is_named(
    text: str, lower: str, upper: str, at: str
) -> None:
    assert shown(lower_bound(text, now=NOW, zone=ZONE)) == lower
    assert shown(time_range(None, text, now=NOW, zone=ZONE)[1]) == upper
    assert shown(at_bound(text, now=NOW, zone=ZONE)) == at


def test_a_one_day_range_holds_its_last_millisecond_and_not_the_next_midnight() -> None:
    lower, upper = time_range("2026-03-07", "2026-03-07", now=NOW, zone=ZONE)
    assert lower is not None
    assert upper is not None
    rows = ["2026-03-07T00:00:00.000Z", "2026-03-07T23:59:59.999Z", "2026-03-08T00:00:00.000Z"]
    inside = [row for row in rows if lower <= lower_bound(row, now=NOW, zone=ZONE) < upper]
    assert inside == rows[:2]


def test_a_date_is_a_day_of_the_day_zone() -> None:
    assert shown(lower_bound("2026-03-08", now=NOW, zone=TOKYO)) == "2026-03-07T15:00:00.000Z"
    assert shown(at_bound("2026-03-08", now=NOW, zone=TOKYO)) == "2026-03-08T14:59:59.999Z"


@pytest.mark.parametrize(
    ("zone", "now"),
    [("Asia/Tokyo", "2026-03-07T15:30:00Z"), ("America/Phoenix", "2026-03-08T07:30:00Z")],
)
def test_yesterday_at_half_past_midnight_is_the_local_day_before(zone: str, now: str) -> None:
    instant = parse_rfc3339(now)
    assert instant is not None
    yesterday = lower_bound("yesterday", now=instant, zone=ZoneInfo(zone))
    assert yesterday == lower_bound("2026-03-07", now=NOW, zone=ZoneInfo(zone))


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("2026-03-08", "2026-03-07"),
        ("today", "yesterday"),
        ("2026-03-08T00:00:00Z", "2026-03-07"),
        ("1h ago", "2h ago"),
        ("2026-03-09", "now"),
    ],
)
def test_from_after_to_is_refused(lower: str, upper: str) -> None:
    with pytest.raises(UsageError, match="reversed"):
        time_range(lower, upper, now=NOW, zone=ZONE)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("2026-03-08T00:00:00.0005Z", "2026-03-08T00:00:00.0005Z"),
        ("today", "now"),
        ("now", "today"),
        (None, "2026-03-07"),
        ("2026-03-07", None),
        (None, None),
    ],
)
def test_an_empty_or_open_range_is_not_refused(lower: str | None, upper: str | None) -> None:
    time_range(lower, upper, now=NOW, zone=ZONE)


def test_instants_out_of_order_are_refused() -> None:
    check_order(NOW, NOW)
    check_order(None, NOW)
    with pytest.raises(UsageError):
        check_order(NOW, NOW - timedelta(milliseconds=1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-03-08T09:15:02",
        "03/08/2026",
        "1741424102",
        "2 hours ago",
        "٢h ago",
        "1_0h ago",
        "1e3s ago",
        "-2h ago",
        "2h",
        "tomorrow",
        "9999999999999d ago",
        "2026-13-01",
    ],
)
def test_doubtful_times_are_refused_with_the_accepted_forms(text: str) -> None:
    for bound in (lower_bound, at_bound):
        with pytest.raises(UsageError) as caught:
            bound(text, now=NOW, zone=ZONE)
        assert "RFC 3339" in caught.value.hint
        assert "2h ago" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("3d", 259200), ("0s", 0)]
)
def test_durations_are_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "15",
        "1.5h",
        "-1s",
        "+1s",
        "1w",
        "1e3s",
        "1_0s",
        "٣s",
        "15 m",
        "9" * 6000 + "s",
        "999999999999999999d",
        "2H",
        "1h30m",
        "ms",
    ],
)
def test_doubtful_durations_are_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert "15m" in caught.value.hint


def test_shifting_never_leaves_the_years_that_a_clock_can_show() -> None:
    assert shown(shifted(NOW, timedelta.max)) == "9999-12-31T23:59:59.999Z"
    assert shown(shifted(NOW, timedelta.min)) == "0001-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("2500", 2500),
        ("007", 7),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775807", 2**63 - 1),
        ("0" * 50 + "7", 7),
    ],
)
def test_whole_credits_are_read_exactly(text: str, number: int) -> None:
    assert parse_whole(text, name="--cost") == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "25.00",
        "12.5",
        "1,250",
        "1e3",
        "1_000",
        "+5",
        " 5",
        "5\n",
        "--5",
        "٢٥",
        "0x10",
        "9223372036854775808",
        "-9223372036854775809",
        "9" * 5000,
    ],
)
def test_an_amount_that_could_mean_two_numbers_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_whole(text, name="--cost")
    assert "whole credits" in caught.value.message + caught.value.hint
    assert "--cost" in caught.value.message
