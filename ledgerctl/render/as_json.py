"""One JSON document, exact at any size, with long lists written as they come."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from ledgerctl.render.output import Look, Output, batches
from ledgerctl.render.report import STREAMED, Document, Record, Report, Shape, settled
from ledgerctl.render.text import number_text, seconds_of, time_text

# DEL and C1, bidi controls, line and paragraph separators, lone surrogates. C0 is escaped by the
# encoder; `\\.` walks over its escapes so that the short ones (\n) can be written as \uXXXX too.
_UNSAFE: Final = re.compile(
    "\\\\.|[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)
_LONG_ESCAPES: Final = {
    "\\b": "\\u0008",
    "\\t": "\\u0009",
    "\\n": "\\u000a",
    "\\f": "\\u000c",
    "\\r": "\\u000d",
}


class _NeedsCareError(Exception):
    """A value that the encoder of the standard library cannot write exactly."""


def _standard(value: Any) -> Any:
    """What the standard encoder takes for one of our values."""
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
    datetime: time_text,
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
        """One value on one line."""
        return self.join((value,), "")

    def join(self, values: Iterable[Any], separator: str) -> str:
        """The texts of some values in one go: a check of the whole costs less than one of each."""
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


def write(report: Report, output: Output, _: Look) -> int:
    """Write the report's document, then its notes as one more member; return the record count."""
    encoder = Encoder(ascii_only=not output.is_unicode)
    count = 0
    opening = "{\n"
    for key, value in _members(report):
        output.write(f"{opening}  {encoder.encode(key)}: ")
        opening = ",\n"
        if value is STREAMED:
            count = _write_items(report.records, encoder, output)
        else:
            _write_value(settled(value), encoder, output)
    if notes := list(settled(report.notes)):
        output.write(f"{opening}  {encoder.encode('notes')}: {encoder.encode(notes)}")
        opening = ",\n"
    output.write("{}\n" if opening == "{\n" else "\n}\n")
    return count


def _members(report: Report) -> Iterable[tuple[str, Any]]:
    document = _document(report)
    yield from document.items()
    if report.items_key is not None and report.items_key not in document:
        yield report.items_key, STREAMED


def _document(report: Report) -> Document:
    if report.document is not None:
        return report.document
    if report.shape is Shape.RECORD:
        return next(iter(report.records), {})
    return {report.items_key or "items": STREAMED}


def _write_value(value: Any, encoder: Encoder, output: Output) -> None:
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        _write_items(value, encoder, output)
    else:
        output.write(encoder.encode(value))


def _write_items(items: Iterable[Record], encoder: Encoder, output: Output) -> int:
    """A list with one item a line."""
    count = 0
    opening = "[\n    "
    for batch in batches(items):
        output.write(opening + encoder.join(batch, ",\n    "))
        opening = ",\n    "
        count += len(batch)
    output.write("\n  ]" if count else "[]")
    return count
