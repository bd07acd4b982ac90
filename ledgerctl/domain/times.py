"""Times and durations as people and payloads write them; UTC with milliseconds inside and out."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from ledgerctl.domain.days import EARLIEST, LATEST, day_bounds, day_named
from ledgerctl.errors import UsageError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo  # its import alone takes as long as all else here

TIME_FORMS = (
    "an RFC 3339 time with its offset such as 2026-03-08T09:15:02Z, a date such as 2026-03-08, "
    "`2h ago` (s, m, h or d), `yesterday`, `today` or `now`"
)
DURATION_FORMS = "a whole number and s, m, h or d, such as 90s, 15m, 2h, 3d or 0s"

_MILLISECOND = timedelta(milliseconds=1)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = r"([0-9]{1,18})([smhd])"
_AGO = r"([0-9]{1,18}[smhd])\s+ago"
# RFC 3339 with any number of fraction digits; Go also writes an offset of hours alone.
_RFC3339 = (
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ](?:[01][0-9]|2[0-3]):[0-5][0-9]:)([0-5][0-9]|60)"
    r"(?:\.([0-9]+))?(?:[Zz]|([+-])([01][0-9]|2[0-3])(?::([0-5][0-9]))?)"
)


_PLAIN = "YYYY-MM-DDTHH:MM:SS.mmmZ"
_PLAIN_LENGTHS, _PLAIN_MARKS = {len(_PLAIN), len("YYYY-MM-DDTHH:MM:SSZ")}, _PLAIN[4:17:3]


class Instant(NamedTuple):
    """Hold a point in time, cut to milliseconds, and whether anything was cut off."""

    at: datetime
    cut: bool

    def rounded_up(self) -> datetime:
        """Return the first whole millisecond that is not before the instant."""
        return shifted(self.at, _MILLISECOND) if self.cut else self.at


def format_time(instant: datetime | None) -> str | None:
    """RFC 3339 in UTC with milliseconds and `Z`, for any year from 1 to 9999; None stays None."""
    if instant is None:
        return None
    return in_utc(instant).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_utc(instant: datetime) -> datetime:
    """Return the same instant in UTC, clamped to years 1 to 9999."""
    if instant.tzinfo is UTC:
        return instant
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        return EARLIEST if instant.year == 1 else LATEST


def shifted(instant: datetime, by: timedelta) -> datetime:
    """`instant + by`, clamped to years 1 to 9999 instead of overflowing."""
    try:
        return min(max(instant + by, EARLIEST), LATEST)
    except OverflowError:
        return EARLIEST if by < timedelta(0) else LATEST


def parse_rfc3339(text: str) -> datetime | None:
    """Return the instant of an RFC 3339 time, in UTC, cut to milliseconds; else None.

    Takes any number of fraction digits, `Z`, `±HH:MM` and `±HH`, and a leap second as the second
    after it. What lies outside years 1 to 9999 in UTC is clamped.
    """
    # As we write it, and most others do: read in a fraction of the time.
    plain = len(text) in _PLAIN_LENGTHS and text[4:17:3] == _PLAIN_MARKS and text[-1] == "Z"
    if (
        plain and text[19] in ".Z" and "T24" not in text and "\0" not in text
    ):  # what fromisoformat lets pass
        try:
            return datetime.fromisoformat(text)
        except ValueError:  # a leap second, or no such day
            pass
    read = _read_rfc3339(text)
    return None if read is None else read.at


def parse_duration(text: str) -> timedelta:
    """Return the duration of `90s`, `15m`, `2h`, `3d` or `0s`; UsageError lists these forms."""
    duration = _read_duration(text.strip())
    if duration is None:
        raise UsageError(f"{text!r} is not a duration", hint=f"Give {DURATION_FORMS}.")
    return duration


def lower_bound(text: str, *, now: datetime, zone: "ZoneInfo") -> datetime:
    """Return the first instant that `--from` or `--since` includes; a date includes its first."""
    read = _read(text, now, zone)
    return read.rounded_up() if isinstance(read, Instant) else day_bounds(read, zone)[0]


def at_bound(text: str, *, now: datetime, zone: "ZoneInfo") -> datetime:
    """Return the last instant that `--at` includes; a date means its last millisecond."""
    read = _read(text, now, zone)
    return read.at if isinstance(read, Instant) else day_bounds(read, zone)[1] - _MILLISECOND


def time_range(
    lower_text: str | None, upper_text: str | None, *, now: datetime, zone: "ZoneInfo"
) -> tuple[datetime | None, datetime | None]:
    """Return the bounds from (included) and to (excluded) of two options.

    Raises UsageError when they are reversed: from the 8th to the 7th is, although the 7th ends
    where the 8th begins; from an instant to the same instant is merely empty.
    """
    lower = None if lower_text is None else lower_bound(lower_text, now=now, zone=zone)
    if upper_text is None:
        return lower, None
    upper = _read(upper_text, now, zone)
    if isinstance(upper, Instant):
        check_order(lower, upper.rounded_up())
        return lower, upper.rounded_up()
    end = day_bounds(upper, zone)[1]
    check_order(lower, end - _MILLISECOND)
    return lower, end


def check_order(lower: datetime | None, upper: datetime | None) -> None:
    """UsageError when from lies after to; an absent end is never out of order."""
    if lower is not None and upper is not None and lower > upper:
        raise UsageError(
            f"the range is reversed: from {format_time(lower)} to {format_time(upper)}"
        )


def _read(text: str, now: datetime, zone: "ZoneInfo") -> Instant | str:
    """Return an instant, or a day as `YYYY-MM-DD`."""
    words = text.strip()
    day = day_named(words, now, zone)
    if day is not None:
        return day
    instant = _read_instant(words, now)
    if instant is None:
        raise UsageError(f"{text!r} is not a time", hint=f"Give {TIME_FORMS}.")
    return instant


def _read_instant(words: str, now: datetime) -> Instant | None:
    if words.lower() == "now":
        return _cut(now)
    ago = re.fullmatch(_AGO, words)
    if ago is None:
        return _read_rfc3339(words)
    duration = _read_duration(ago[1])
    return None if duration is None else _cut(shifted(now, -duration))


def _read_duration(text: str) -> timedelta | None:
    match = re.fullmatch(_DURATION, text)
    if match is None:
        return None
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:  # beyond 2.7 million years
        return None


def _read_rfc3339(text: str) -> Instant | None:
    match = re.fullmatch(_RFC3339, text)
    if match is None:
        return None
    clock, seconds, fraction, sign, east_hours, east_minutes = match.groups(default="")
    leap = seconds == "60"
    try:
        at = datetime.fromisoformat(f"{clock}{'59' if leap else seconds}.{fraction[:3]:0<3}+00:00")
    except ValueError:  # no such day
        return None
    if sign or leap:
        east = timedelta(hours=int(east_hours or 0), minutes=int(east_minutes or 0))
        at = shifted(at, (east if sign == "-" else -east) + timedelta(seconds=leap))
    return Instant(at, cut=bool(fraction[3:].strip("0")))


def _cut(instant: datetime) -> Instant:
    rest_us = instant.microsecond % 1000
    return Instant(in_utc(instant) - timedelta(microseconds=rest_us), cut=rest_us > 0)
