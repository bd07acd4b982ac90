"""Show data as visible text: nothing from a record acts on the terminal, and nothing is lost."""

import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final

from ledgerctl.domain.results import Remedy
from ledgerctl.render.exact import Encoder, number_text, seconds_of, time_text
from ledgerctl.render.report import CommandLine

_HIDDEN_CATEGORIES: Final = {
    "Cc",  # C0, DEL, C1
    "Cf",  # bidi controls, zero-width and tag characters
    "Cs",  # lone surrogates
    "Zl",
    "Zp",
}


class _VisibleCharacters(dict[int, str]):
    """Describe what stands for each character on paper, worked out at its first appearance."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        hidden = unicodedata.category(character) in _HIDDEN_CATEGORIES
        self[code] = _escape(character) if hidden else character
        return self[code]


_VISIBLE = _VisibleCharacters()
_PIECES: Final = re.compile(r"\s*(?:`[^`]*`[^\s`]*|\S+)")
_LEAD: Final = re.compile(r"\s+(?:! |[-+=\d\s]+(?<=  ))?")
_SHORT_ESCAPES: Final = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
_ESCAPE: Final = re.compile(
    r"\\(\\|[tnr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})"
)
# A remedy whose command is more than its verb and the job.
_COMMANDS: Final = {
    "ledger repair": "ledger repair --job {job}",
    "ledger correct": "ledger correct {job} --reason TEXT",
}
_JSON: Final = Encoder(ascii_only=False)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def visible(text: str) -> str:
    """Return the text on one line, control and invisible characters written out, as in `\x1b`.

    All else, brackets, emoji codes and backslashes included, stays letter for letter.
    """
    return text if text.isprintable() else text.translate(_VISIBLE)


def encodable(text: str, encoding: str) -> str:
    """Return the text with whatever the encoding lacks written out, as in `\u2500`."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def folded_sentence(text: str, width: int) -> list[str]:
    """Fold a visible line to `width`, the later lines below where its words begin.

    A command in backticks stays whole, so that it can be copied.
    """
    words = _PIECES.findall(text.rstrip())
    lead = _LEAD.match(text)
    indent = lead.end() if lead is not None and lead.end() < width // 2 else 0
    lines = [""]
    for word in words:
        if cell_width(lines[-1] + word) >= width and lines[-1].strip():
            lines.append(" " * indent)
            lines[-1] += word.lstrip()
        else:
            lines[-1] += word
    return lines


def shell_line(words: Sequence[str]) -> CommandLine:
    """Quote words for a shell, so that pasting the line passes exactly these words."""
    return CommandLine(" ".join(map(_shell_word, words)))


def _shell_word(word: str) -> str:
    if visible(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(_shell_escape(one) for one in escaped) + "'"


def _shell_escape(character: str) -> str:
    if visible(character) == character:
        return character
    stored = character.encode("utf-8", "surrogateescape")
    return "".join(f"\\x{byte:02x}" for byte in stored)


def cell_width(text: str) -> int:
    """Return the number of terminal cells of a visible text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def duration_text(duration: timedelta) -> str:
    """Return a duration for people, to its two largest units: `3d 2h`, `2h 5m`, `12s`, `0.250s`."""
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


def age_text(at: datetime, now: datetime) -> str:
    """Say how long ago an instant was, in its largest unit: `5h ago`; `in 5h` for a later one."""
    later = at > now
    text = duration_text(timedelta(seconds=abs(now - at) // timedelta(seconds=1))).partition(" ")[0]
    return f"in {text}" if later else f"{text} ago"


def telling_line(text: str) -> str:
    """Give the line of a text that tells most: of a Python traceback the last, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _joined(values: Sequence[Any]) -> str:
    if any(isinstance(value, Mapping) for value in values):
        return _JSON.encode(values)
    return ",".join(map(value_text, values))


_TEXT_OF: Final[dict[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "",
    bool: lambda flag: "true" if flag else "false",
    int: int.__repr__,
    str: str,
    Decimal: number_text,
    datetime: time_text,
    timedelta: lambda duration: number_text(seconds_of(duration)),
    Enum: lambda member: value_text(member.value),
    dict: _JSON.encode,
    list: _joined,
    tuple: _joined,
}


def value_text(value: Any) -> str:
    """Return a value as one cell of plain text, not yet made visible; None is empty.

    Durations are seconds; a list of words is joined by commas, anything deeper is compact JSON.
    """
    write = _TEXT_OF.get(type(value))
    return write(value) if write else _inherited(value)


def cell_text(value: Any) -> str:
    """Write a value as one cell of plain or csv, so that no two values of a kind print alike.

    A backslash of the data is doubled: a single one begins an escape.
    """
    return value_text(value).replace("\\", "\\\\")


def read_cell(cell: str) -> str:
    """Return the text that a visible cell of plain or csv was written for."""
    return _ESCAPE.sub(lambda found: _unescaped(found[1]), cell) if "\\" in cell else cell


def _unescaped(code: str) -> str:
    return _SHORT_ESCAPES.get(code) or chr(int(code[1:], 16))


def _inherited(value: Any) -> str:
    for parent in type(value).__mro__:
        if write := _TEXT_OF.get(parent):
            return write(value)
    if isinstance(value, Mapping):
        return _JSON.encode(value)
    return str(value)


def rows(count: int) -> str:
    """Return a number of rows in words."""
    return "1 row" if count == 1 else f"{count} rows"


def command_words(remedy: Remedy) -> str:
    """Write the command of a remedy, quoted for a shell."""
    if remedy.job_id is None:
        return f"ledgerctl {remedy.verb}"
    form = _COMMANDS.get(remedy.verb, f"{remedy.verb} {{job}}")
    return f"ledgerctl {form.format(job=shlex.quote(remedy.job_id))}"
