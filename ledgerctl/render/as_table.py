"""A table or a page for people. Data stands in it letter for letter, ids never folded or cut.

The layout is our own: rich's Table cuts ids or lets columns vanish when it runs out of width, and
takes 0.3 ms a row. Rich measures, folds and colours.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from itertools import zip_longest
from typing import Any, Final

from ledgerctl.render.output import Look, Output
from ledgerctl.render.report import Column, Kind, Record, Report, Shape, settled
from ledgerctl.render.text import cell_width, duration_text, value_text

Paint = Callable[[str], str]

_GAP: Final = "  "
_FOLDED_MIN: Final = 12  # a narrower column of words is no longer read
_WORD_MAX: Final = 64  # shorter words may be ids and stay whole even in a folded text
_RIGHT_ALIGNED: Final = {Kind.AMOUNT, Kind.COUNT, Kind.RATIO, Kind.DURATION}
_RULE: Final = "─"


def write(report: Report, output: Output, look: Look) -> int:
    """Write head, table or page, foot and sections; return the record count.

    A table grows past the width rather than fold or cut anything but words.
    """
    for line in report.head:
        output.prose(line)
    count = _write_body(report, output, look)
    for line in settled(report.foot):
        output.prose(line)
    for section in report.sections:
        output.write("\n")
        write(section, output, look)
    return count


def _write_body(report: Report, output: Output, look: Look) -> int:
    if report.text is not None:
        for line in report.text:
            (output.prose if report.is_prose else output.line)(line)
        return 0
    records = list(report.records)
    if report.shape is Shape.RECORD:
        for record in records:
            _write_lines(_page(report.columns, record, output, look), output)
    elif records or not report.empty:
        columns = [column for column in report.columns if _has_a_place(column, records)]
        _write_table(columns, records, output, look)
    return len(records)


def _write_table(
    columns: Sequence[Column], records: Sequence[Record], output: Output, look: Look
) -> None:
    grid = _grid(columns, records, output)
    spare = [at for at, column in enumerate(columns) if column.spare]
    left_out: list[str] = []
    while spare and look.width is not None and _least_total(grid) > look.width:
        left_out.insert(0, columns[spare[-1]].key)
        grid = grid.without(spare.pop())
    _write_lines(_table(grid, output, look), output)
    if left_out:
        output.prose(f"(no room for {', '.join(left_out)}: --fields or a wider terminal shows it)")


@dataclass(frozen=True)
class _Grid:
    """A table's columns, whether each may fold, and its visible cells, the headings first."""

    columns: Sequence[Column]
    folds: Sequence[bool]
    rows: Sequence[Sequence[str]]

    def without(self, at: int) -> "_Grid":
        rest = slice(at + 1, None)
        return _Grid(
            [*self.columns[:at], *self.columns[rest]],
            [*self.folds[:at], *self.folds[rest]],
            [[*row[:at], *row[rest]] for row in self.rows],
        )


def _grid(columns: Sequence[Column], records: Sequence[Record], output: Output) -> _Grid:
    headings = [output.visible(column.heading) for column in columns]
    rows = [
        [output.visible(_cell(column, record.get(column.key))) for column in columns]
        for record in records
    ]
    return _Grid(columns, [_folds(column, records) for column in columns], [headings, *rows])


def _cell(column: Column, value: Any) -> str:
    if column.kind is Kind.WORDS and isinstance(value, list | tuple):
        return ", ".join(map(cell_text, value))
    return cell_text(value)


def _least_total(grid: _Grid) -> int:
    return _total(column_widths(grid.folds, grid.rows, 1))


def _has_a_place(column: Column, records: Sequence[Record]) -> bool:
    return not column.when_filled or any(cell_text(one.get(column.key)) for one in records)


def _write_lines(lines: Iterator[str], output: Output) -> None:
    for line in lines:
        output.write(f"{line.rstrip()}\n")


def cell_text(value: Any) -> str:
    """A value as people read it; counts by name are words, not JSON."""
    if isinstance(value, Mapping) and all(type(one) in {int, str} for one in value.values()):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return duration_text(value) if isinstance(value, timedelta) else value_text(value)


def _table(grid: _Grid, output: Output, look: Look) -> Iterator[str]:
    columns, folds = grid.columns, grid.folds
    headings, *rows = grid.rows
    widths = column_widths(folds, grid.rows, look.width)
    right = [column.kind in _RIGHT_ALIGNED for column in columns]
    owing = [column.kind is Kind.AMOUNT for column in columns]
    bold, red = _paint("bold", look), _paint("red", look)
    yield _row(headings, widths, right, [bold] * len(columns))
    yield (_RULE if output.can_show(_RULE) else "-") * _total(widths)
    for row in rows:
        paints = [
            red if owes and cell.startswith("-") else str
            for owes, cell in zip(owing, row, strict=True)
        ]
        for line in _fold_row(row, widths, folds):
            yield _row(line, widths, right, paints)


def _row(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], paints: Sequence[Paint]
) -> str:
    return _GAP.join(map(_padded, cells, widths, right, paints))


def _padded(cell: str, width: int, right: bool, paint: Paint) -> str:
    padding = " " * (width - cell_width(cell))
    return f"{padding}{paint(cell)}" if right else f"{paint(cell)}{padding}"


def _fold_row(
    row: Sequence[str], widths: Sequence[int], folds: Sequence[bool]
) -> Iterator[Sequence[str]]:
    """The lines of one row, its words folded to their columns."""
    cells = [
        _folded(cell, width) if fold else [cell]
        for cell, width, fold in zip(row, widths, folds, strict=True)
    ]
    return zip_longest(*cells, fillvalue="")


def _folds(column: Column, records: Sequence[Record]) -> bool:
    """Whether the column holds nothing but words: a list may be one of ids."""
    if column.kind is not Kind.TEXT:
        return column.kind is Kind.WORDS
    return all(_is_words(record.get(column.key)) for record in records)


def _is_words(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(type(count) is int for count in value.values())
    return isinstance(value, str | None)


def column_widths(
    folds: Sequence[bool], rows: Sequence[Sequence[str]], available: int | None
) -> list[int]:
    """The cells each column gets: what it needs, except that words give way to fit the terminal.

    The widest columns that may fold give way first, down to their longest word; the others keep
    their whole width. The first row holds the headings, which are kept whole too.
    """
    columns = list(zip(*rows, strict=True))
    needed = [max(map(cell_width, cells)) for cells in columns]
    if available is None or _total(needed) <= available:
        return needed
    least = [
        min(need, max(cell_width(cells[0]), _longest_word(cells))) if fold else need
        for fold, cells, need in zip(folds, columns, needed, strict=True)
    ]
    limit = max(available, 1)
    while limit > 1 and _total(_limited(needed, least, limit)) > available:
        limit -= 1
    return _limited(needed, least, limit)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * max(len(widths) - 1, 0)


def _limited(needed: Sequence[int], least: Sequence[int], limit: int) -> list[int]:
    return [min(need, max(floor, limit)) for need, floor in zip(needed, least, strict=True)]


def _longest_word(texts: Sequence[str]) -> int:
    longest = max((cell_width(word) for text in texts for word in text.split()), default=0)
    return max(min(longest, _WORD_MAX), _FOLDED_MIN)


def _page(columns: Sequence[Column], record: Record, output: Output, look: Look) -> Iterator[str]:
    """`key  value` lines, one below the other."""
    keys = [output.visible(column.heading) for column in columns]
    key_width = max(map(cell_width, keys), default=0)
    room = sys.maxsize if look.width is None else look.width - key_width - len(_GAP)
    bold, red = _paint("bold", look), _paint("red", look)
    for column, key in zip(columns, keys, strict=True):
        lines = [output.visible(line) for line in _page_lines(record.get(column.key))]
        if _folds(column, [record]):
            lines = _folded(lines[0], max(room, _longest_word(lines)))
        owes = column.kind is Kind.AMOUNT and lines[0].startswith("-")
        for number, line in enumerate(lines):
            label = _padded("" if number else key, key_width, False, str if number else bold)
            yield f"{label}{_GAP}{red(line) if owes else line}"


def _page_lines(value: Any) -> list[str]:
    """The lines of one value on a page: a list of records has one for each."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return [_members(item) for item in value]
    return [_members(value)]


def _members(value: Any) -> str:
    if not isinstance(value, Mapping):
        return cell_text(value)
    return _GAP.join(f"{key} {cell_text(member)}" for key, member in value.items())


def _folded(text: str, room: int) -> list[str]:
    """The lines of a text, broken at its words, and inside a word that is wider than the room."""
    if cell_width(text) <= room:
        return [text]
    from rich.console import Console
    from rich.text import Text

    # Height as well as width: on a dumb terminal rich believes one only with the other.
    console = Console(file=StringIO(), width=room, height=1, color_system=None)
    return [line.plain.rstrip() for line in Text(text).wrap(console, room, overflow="fold")]


def _paint(style: str, look: Look) -> Paint:
    """What puts a text into that style; rich is told the colours, so it asks no environment."""
    if not look.color:
        return str
    from rich.color import ColorSystem
    from rich.style import Style

    parsed = Style.parse(style)
    return lambda text: parsed.render(text, color_system=ColorSystem.STANDARD)
