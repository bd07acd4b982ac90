"""Whole credits, exact at any size, from the number types of documents and from what people type."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from ledgerctl.errors import UsageError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Unusable:
    """Hold an amount that cannot be summed: its value, and why it does not count."""

    shown: str
    why: str


type_words = {str: "text", bool: "true or false", list: "a list", dict: "a document"}

Amount = int | Unusable


def exact_amount(value: object) -> Amount:
    """Return the whole number that `value` holds, exactly, or the reason why it holds none.

    Never rounds: a double or a decimal counts only when it is whole. Source: contract, section 1.
    """
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return Unusable(str(value).lower(), "true or false, not a number")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _whole_float(value)
    if isinstance(value, Decimal):
        return _whole_decimal(value)
    if value is None:
        return Unusable("null", "absent or null")
    if isinstance(value, str):
        return Unusable(value, "text, not a number")
    return Unusable(str(value), f"{type_words.get(type(value), 'not a number')}")


def _whole_float(value: float) -> Amount:
    if math.isnan(value):
        return Unusable("NaN", "not a number (NaN)")
    if math.isinf(value):
        return Unusable("Infinity" if value > 0 else "-Infinity", "infinite")
    if not value.is_integer():
        return Unusable(repr(value), "a fraction")
    return int(value)


def _whole_decimal(value: Decimal) -> Amount:
    if value.is_nan():
        return Unusable("NaN", "not a number (NaN)")
    if value.is_infinite():
        return Unusable("Infinity" if value > 0 else "-Infinity", "infinite")
    if value != value.to_integral_value():
        return Unusable(str(value), "a fraction")
    return int(value)


def total(amounts: Iterable[Amount]) -> int:
    """Return the exact sum of those that can be summed."""
    return sum(amount for amount in amounts if isinstance(amount, int))


def fits_int64(amount: int) -> bool:
    """Return whether a new row could hold this amount."""
    return INT64_MIN <= amount <= INT64_MAX


_WHOLE = re.compile(r"-?[0-9]+")
_DIGITS_MAX = 19  # int64 has no more; Python refuses to convert a text of thousands


def parse_whole(text: str, *, name: str) -> int:
    """Return the whole credits that `text` spells, and nothing that could mean two numbers.

    Only ASCII digits with an optional `-`; `25.00`, `1,250`, `1e3`, `1_000` and what does not fit
    64 bits raise UsageError. `name` is the option or argument as the caller knows it.
    """
    if not _WHOLE.fullmatch(text):
        raise UsageError(
            f"{name} is a number of whole credits, not {text!r}",
            hint="Write digits only, such as 25: no decimal point, separator or exponent.",
        )
    digits = text.lstrip("-").lstrip("0") or "0"
    number = int(digits[: _DIGITS_MAX + 1]) * (-1 if text.startswith("-") else 1)
    if len(digits) > _DIGITS_MAX or not INT64_MIN <= number <= INT64_MAX:
        raise UsageError(
            f"{name} does not fit 64 bits",
            hint=f"Give whole credits from {INT64_MIN} to {INT64_MAX}.",
        )
    return number
