"""Data as visible text: nothing from a record acts on the terminal, and nothing is lost."""

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final

from ledgerctl.domain.times import format_time

_HIDDEN_CATEGORIES: Final = {
    "Cc",  # C0, DEL, C1
    "Cf",  # bidi controls, zero-width and tag characters
    "Cs",  # lone surrogates
    "Zl",
    "Zp",
}
# Decimal128 ends at 6,145 digits. A payload may spell 1e999999999, whose digits nobody wants.
_DIGITS_MAX: Final = 6200


class _VisibleCharacters(dict[int, str]):
    """What stands for each character on paper, worked out at its first appearance."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        hidden = unicodedata.category(character) in _HIDDEN_CATEGORIES
        self[code] = _escape(character) if hidden else character
        return self[code]


_VISIBLE = _VisibleCharacters()


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def visible(text: str) -> str:
    r"""The text on one line with every control and invisible character written out, as in `\x1b`.

    All else, brackets, emoji codes and backslashes included, stays letter for letter.
    """
    return text if text.isprintable() else text.translate(_VISIBLE)


def encodable(text: str, encoding: str) -> str:
    r"""The text with whatever the encoding lacks written out, as in `\u2500`."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def cell_width(text: str) -> int:
    """The number of terminal cells of a visible text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def number_text(number: Decimal) -> str:
    """The exact digits, also as a JSON number when finite; a whole number has no fraction part."""
    if not number.is_finite():
        return str(number)
    if abs(number.adjusted()) > _DIGITS_MAX:
        return str(number)
    if number == number.to_integral_value():
        return str(int(number))
    return f"{number:f}"


def time_text(instant: datetime) -> str:
    """RFC 3339, UTC, milliseconds, `Z`; an instant without zone is UTC, as the drivers give it."""
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return format_time(aware) or ""


def seconds_of(duration: timedelta) -> Decimal:
    """Exact seconds, to the microsecond."""
    return Decimal(duration // timedelta(microseconds=1)).scaleb(-6)


def duration_text(duration: timedelta) -> str:
    """A duration for people, to its two largest units: `3d 2h`, `2h 5m`, `12s`, `0.250s`."""
    if duration < timedelta(0):
        return f"-{duration_text(-duration)}"
    if duration < timedelta(seconds=1):
        return f"{duration / timedelta(seconds=1):.3f}s" if duration else "0s"
    minutes, seconds = divmod(duration.days * 86400 + duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    first = next(place for place, (count, _) in enumerate(units) if count)
    return " ".join(f"{count}{unit}" for count, unit in units[first : first + 2] if count)


def _joined(values: Sequence[Any]) -> str:
    if any(isinstance(value, Mapping) for value in values):
        return _compact(values)
    return ",".join(map(value_text, values))


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain_value)


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return value_text(value)


_TEXT_OF: Final[dict[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "",
    bool: lambda flag: "true" if flag else "false",
    int: int.__repr__,
    str: str,
    Decimal: number_text,
    datetime: time_text,
    timedelta: lambda duration: number_text(seconds_of(duration)),
    Enum: lambda member: value_text(member.value),
    dict: _compact,
    list: _joined,
    tuple: _joined,
}


def value_text(value: Any) -> str:
    """A value as one cell of plain text, not yet made visible; None is empty.

    Durations are seconds; a list of words is joined by commas, anything deeper is compact JSON.
    """
    write = _TEXT_OF.get(type(value))
    return write(value) if write else _inherited(value)


def _inherited(value: Any) -> str:
    for parent in type(value).__mro__:
        if write := _TEXT_OF.get(parent):
            return write(value)
    if isinstance(value, Mapping):
        return _compact(dict(value))
    return str(value)
