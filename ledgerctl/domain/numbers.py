"""Whole numbers as people type them."""

import re

from ledgerctl.errors import UsageError

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_WHOLE = re.compile(r"-?[0-9]+")
_DIGITS_MAX = 19  # int64 has no more; Python refuses to convert a text of thousands


def parse_whole(text: str, *, name: str) -> int:
    """The number of whole credits that `text` spells, and nothing that could mean two numbers.

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
