"""The day zone: which day an instant falls on, where a day begins and ends."""

import io
import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING

from ledgerctl.errors import UsageError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo  # its import alone takes as long as all else here

EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)

DAY_FORMS = "a date such as 2026-03-08, `yesterday` or `today`"

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ONE_DAY = timedelta(days=1)

# A TZif file (RFC 8536) with one local time type: offset 0, no daylight saving, named UTC.
_UTC_FILE = b"TZif" + bytes(16) + bytes((0, 0, 0, 0) * 4 + (0, 0, 0, 1, 0, 0, 0, 4) + (0,) * 6)
_UTC_FILE += b"UTC\0"


def zone_named(name: str) -> "ZoneInfo":
    """Return the zone of that IANA name; UTC exists even where no time zone database is installed.

    Raises UsageError for a name that the database does not know.
    """
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        if name == "UTC":
            return ZoneInfo.from_file(io.BytesIO(_UTC_FILE), key="UTC")
        raise UsageError(
            f"no time zone is named {name!r}",
            hint="Use an IANA name such as UTC, Europe/Berlin or America/New_York.",
        ) from error


def day_of(instant: datetime, zone: "ZoneInfo") -> str:
    """Return the one day, `YYYY-MM-DD`, whose `day_bounds` in `zone` hold `instant`.

    Differs from the wall clock's date only where a clock was once put back across midnight
    (St John's until 2006): there the repeated minutes stay with the day that had begun.
    """
    day = _wall_date(instant, zone)
    start, end = _span(day, zone)
    if instant < start:
        day = _before(day)
    elif instant >= end:
        day = _after(day)
    return day.isoformat()


def day_bounds(day: str, zone: "ZoneInfo") -> tuple[datetime, datetime]:
    """Return the day's first instant and the next day's first: 23, 24 or 25 hours apart, mostly."""
    return _span(date.fromisoformat(day), zone)


def next_day(day: str) -> str:
    """Return the day after; the last day of year 9999 is its own."""
    return _after(date.fromisoformat(day)).isoformat()


def previous_day(day: str) -> str:
    """Return the day before; the first day of year 1 is its own."""
    return _before(date.fromisoformat(day)).isoformat()


def window(days: int, now: datetime, zone: "ZoneInfo") -> tuple[str, str]:
    """First and last day, both included, of the `days` days that end today."""
    if days < 1:
        raise UsageError(f"a window has at least one day, not {days}")
    today = date.fromisoformat(day_of(now, zone))
    first = date.fromordinal(max(today.toordinal() - (days - 1), 1))
    return first.isoformat(), today.isoformat()


def check_day_order(from_day: str, to_day: str) -> None:
    """UsageError when the first day lies after the last."""
    if from_day > to_day:
        raise UsageError(f"the range is reversed: from {from_day} to {to_day}")


def parse_day(text: str, now: datetime, zone: "ZoneInfo") -> str:
    """Return the day meant by a date, `yesterday` or `today`; UsageError names these forms."""
    day = day_named(text, now, zone)
    if day is None:
        raise UsageError(f"{text!r} is not a day", hint=f"Give {DAY_FORMS}.")
    return day


def day_named(text: str, now: datetime, zone: "ZoneInfo") -> str | None:
    """Return the day meant by a date, `yesterday` or `today`; None for any other text."""
    word = text.strip().lower()
    if word == "today":
        return day_of(now, zone)
    if word == "yesterday":
        return _yesterday(now, zone)
    return word if _is_date(word) else None


def _yesterday(now: datetime, zone: "ZoneInfo") -> str:
    # By the calendar, not by 24 hours: a day has 23 or 25 twice a year.
    return _before(date.fromisoformat(day_of(now, zone))).isoformat()


def _is_date(text: str) -> bool:
    if not re.fullmatch(_DAY, text):  # fromisoformat also takes 20260308 and 2026-W10-7
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _before(day: date) -> date:
    return day if day == date.min else day - _ONE_DAY


def _after(day: date) -> date:
    return day if day == date.max else day + _ONE_DAY


def _wall_date(instant: datetime, zone: "ZoneInfo") -> date:
    try:
        return instant.astimezone(zone).date()
    except OverflowError:  # Go's zero time, seen from a zone behind UTC, lies before year 1
        return instant.date()


@lru_cache(maxsize=4096)
def _span(day: date, zone: "ZoneInfo") -> tuple[datetime, datetime]:
    end = LATEST if day == date.max else _start(_after(day), zone)
    return _start(day, zone), end


@lru_cache(maxsize=4096)
def _start(day: date, zone: "ZoneInfo") -> datetime:
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    start = _in_utc(midnight)
    if start in (EARLIEST, LATEST):
        return start
    if start.astimezone(zone).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return start  # with fold 0, the first of two midnights
    return _end_of_gap(day, zone, before=_in_utc(midnight.replace(fold=1)), after=start)


def _in_utc(local: datetime, utc: tzinfo = UTC) -> datetime:
    try:
        return local.astimezone(utc)
    except OverflowError:
        return EARLIEST if local.year == 1 else LATEST


def _end_of_gap(day: date, zone: "ZoneInfo", *, before: datetime, after: datetime) -> datetime:
    """Return the instant at which the clock jumps over midnight into `day` or beyond.

    Toronto's jump of 1919 was from 23:30 to 00:30, so the shifted midnight alone does not tell.
    """
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if _wall_date(before + timedelta(seconds=middle), zone) >= day:
            high = middle
        else:
            low = middle
    return before + timedelta(seconds=high)
