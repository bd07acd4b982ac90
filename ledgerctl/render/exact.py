"""Numbers, times and whole documents as exact JSON text: no figure ever passes through a float."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from ledgerctl.domain.times import format_time

# Decimal128 ends at 6,145 digits. A payload may spell 1e999999999, whose digits nobody wants.
_DIGITS_MAX: Final = 6200
# DEL and C1, bidi controls, line and paragraph separators, lone surrogates; and the encoder's short
# escapes of C0 (\n), which become \uXXXX too. A pair of backslashes is matched to be walked over.
_UNSAFE: Final = re.compile(
    "\\\\[\\\\bfnrt]|[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)
_LONG_ESCAPES: Final = {
    "\\b": "\\u0008",
    "\\t": "\\u0009",
    "\\n": "\\u000a",
    "\\f": "\\u000c",
    "\\r": "\\u000d",
}


def number_text(number: Decimal) -> str:
    """Return the exact digits, as a JSON number when finite, without a fraction when whole."""
    if not number.is_finite():
        return str(number)
    if abs(number.adjusted()) > _DIGITS_MAX:
        return str(number)
    if number == number.to_integral_value():
        return str(int(number))
    return f"{number:f}"


def time_text(instant: datetime) -> str:
    """RFC 3339, UTC, milliseconds, `Z`; an instant without zone is UTC, as the drivers give it."""
    if instant.tzinfo is UTC:  # nearly always; a million rows have a million of them
        return instant.isoformat("T", "milliseconds")[:-6] + "Z"
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return format_time(aware) or ""


def seconds_of(duration: timedelta) -> Decimal:
    """Exact seconds, to the microsecond."""
    return Decimal(duration // timedelta(microseconds=1)).scaleb(-6)


class _NeedsCareError(Exception):
    """Signal a value that the encoder of the standard library cannot write exactly."""


def _standard(value: Any) -> Any:
    """Return what the standard encoder takes for one of our values."""
    if isinstance(value, datetime):
        return time_text(value)
    for parent in type(value).__mro__:
        if convert := _STANDARD.get(parent):
            return convert(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) else str(value)


def _decimal(number: Decimal) -> int | str:
    return _whole(number) if number.is_finite() else str(number)


def _whole(number: Decimal) -> int:
    digits = number_text(number)
    if not digits.lstrip("-").isdigit():
        raise _NeedsCareError
    return int(digits)


_STANDARD: Final[dict[type, Callable[[Any], Any]]] = {
    Decimal: _decimal,
    timedelta: lambda duration: _whole(seconds_of(duration)),
    Enum: lambda member: member.value,
}


class Encoder:
    """Values to JSON text without ever going through a float.

    Integers and Decimals keep every digit, times are RFC 3339 in UTC, durations are seconds, what
    is no JSON number (NaN) becomes a string. C0, DEL, C1, bidi controls, U+2028, U+2029 and lone
    surrogates are `\\uXXXX`, and with `ascii_only` every other non-ASCII character as well.
    """

    def __init__(self, *, ascii_only: bool, separators: tuple[str, str] = (", ", ": ")) -> None:
        self._comma, self._colon = separators
        self._fast: Callable[[Any], str] = json.JSONEncoder(
            ensure_ascii=ascii_only,
            allow_nan=False,
            check_circular=False,
            separators=separators,
            default=_standard,
        ).encode

    def encode(self, value: Any) -> str:
        """Return one value on one line."""
        return self.join((value,), "")

    def join(self, values: Iterable[Any], separator: str) -> str:
        """Return the texts of some values: one check of the whole costs less than one of each."""
        values = tuple(values)
        try:
            text = separator.join(map(self._fast, values))
        except (_NeedsCareError, ValueError):
            text = separator.join(map(self._careful, values))
        return _escaped(text)

    def _careful(self, value: Any) -> str:
        match value:
            case Mapping():
                members = (
                    f"{self._fast(str(key))}{self._colon}{self._careful(member)}"
                    for key, member in value.items()
                )
                return f"{{{self._comma.join(members)}}}"
            case Sequence() if not isinstance(value, str):
                return f"[{self._comma.join(map(self._careful, value))}]"
            case Decimal() if value.is_finite():
                return number_text(value)
            case timedelta():
                return number_text(seconds_of(value))
            case float() if not math.isfinite(value):
                return self._fast(str(Decimal(value)))
            case _:
                return self._fast(value)


def _escaped(text: str) -> str:
    if text.isascii() and "\\" not in text and "\x7f" not in text:
        return text
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    found = match[0]
    if found.startswith("\\"):
        return _LONG_ESCAPES.get(found, found)
    return f"\\u{ord(found):04x}"
