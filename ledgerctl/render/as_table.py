"""A table or a page for people. Data stands in it letter for letter, ids never folded or cut."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from ledgerctl.render.output import Look, Output
from ledgerctl.render.report import Column, Kind, Record, Report, Shape, settled
from ledgerctl.render.text import cell_width, duration_text, value_text

if TYPE_CHECKING:
    from rich.box import Box
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_GAP: Final = 2  # cells between two columns
_FOLDED_MIN: Final = 12  # a narrower column of words is no longer read
_WORD_MAX: Final = 64  # shorter words may be ids and stay whole even in a folded text
_RIGHT_ALIGNED: Final = {Kind.AMOUNT, Kind.COUNT, Kind.RATIO, Kind.DURATION}
_RULE: Final = "─"


def write(report: Report, output: Output, look: Look) -> int:
    """Write head, table or page, foot and sections; return the record count.

    A table grows past the width rather than fold or cut anything but a TEXT column.
    """
    for line in report.head:
        output.line(line)
    count = _write_body(report, output, look)
    for line in settled(report.foot):
        output.line(line)
    for section in report.sections:
        output.write("\n")
        write(section, output, look)
    return count


def _write_body(report: Report, output: Output, look: Look) -> int:
    if report.text is not None:
        for line in report.text:
            output.line(line)
        return 0
    records = list(report.records)
    if report.shape is Shape.RECORD:
        for record in records:
            _draw(_page(report.columns, record, output, look), output, look)
    elif records or not report.empty:
        _draw(_table(report.columns, records, output, look), output, look)
    return len(records)


def cell_text(value: Any) -> str:
    """A value as people read it."""
    return duration_text(value) if isinstance(value, timedelta) else value_text(value)


def _table(
    columns: Sequence[Column], records: Sequence[Record], output: Output, look: Look
) -> tuple["Table", int]:
    """The table and its width in cells."""
    from rich.table import Table

    headings = [output.visible(column.heading) for column in columns]
    rows = [
        [output.visible(cell_text(record.get(column.key))) for column in columns]
        for record in records
    ]
    folds = [_folds(column, records) for column in columns]
    widths = column_widths(folds, [headings, *rows], look.width)
    table = Table(
        box=_box(output), show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0), style=""
    )
    for column, heading, width, fold in zip(columns, headings, widths, folds, strict=True):
        table.add_column(
            _text(heading, "bold"),
            width=width,
            no_wrap=not fold,
            overflow="fold",
            justify="right" if column.kind in _RIGHT_ALIGNED else "left",
        )
    for row in rows:
        table.add_row(*map(_styled, row, columns))
    return table, sum(widths) + _GAP * max(len(widths) - 1, 0)


def _folds(column: Column, records: Sequence[Record]) -> bool:
    """Whether the column holds nothing but words: a list may be one of ids."""
    if column.kind is not Kind.TEXT:
        return False
    return all(isinstance(record.get(column.key), str | None) for record in records)


def column_widths(
    folds: Sequence[bool], rows: Sequence[Sequence[str]], available: int | None
) -> list[int]:
    """The cells each column gets: what it needs, except that words give way to fit the terminal.

    The widest columns that may fold give way first, down to their longest word; the others keep
    their whole width. The first row holds the headings, which are kept whole too.
    """
    columns = list(zip(*rows, strict=True))
    needed = [max(map(cell_width, cells), default=0) for cells in columns]
    room = sys.maxsize if available is None else available - _GAP * (len(columns) - 1)
    if sum(needed) <= room:
        return needed
    least = [
        min(need, max(cell_width(cells[0]), _longest_word(cells))) if fold else need
        for fold, cells, need in zip(folds, columns, needed, strict=True)
    ]
    limit = max(room, 1)
    while limit > 1 and sum(_limited(needed, least, limit)) > room:
        limit -= 1
    return _limited(needed, least, limit)


def _longest_word(texts: Sequence[str]) -> int:
    longest = max((cell_width(word) for text in texts for word in text.split()), default=0)
    return max(min(longest, _WORD_MAX), _FOLDED_MIN)


def _limited(needed: Sequence[int], least: Sequence[int], limit: int) -> list[int]:
    return [min(need, max(floor, limit)) for need, floor in zip(needed, least, strict=True)]


def _page(
    columns: Sequence[Column], record: Record, output: Output, look: Look
) -> tuple["Table", int]:
    """`key  value` lines, one below the other, and their width in cells."""
    from rich.table import Table

    keys = [output.visible(column.heading) for column in columns]
    key_width = max(map(cell_width, keys), default=0)
    room = None if look.width is None else look.width - key_width - _GAP
    values = [
        _folded(
            _page_lines(record.get(column.key), output), room if _folds(column, [record]) else None
        )
        for column in columns
    ]
    value_width = max((cell_width(line) for lines in values for line in lines), default=0)
    page = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    page.add_column(width=key_width, no_wrap=True)
    page.add_column(width=value_width, no_wrap=True)
    for column, key, lines in zip(columns, keys, values, strict=True):
        page.add_row(_text(key, "bold"), _styled("\n".join(lines), column))
    return page, key_width + _GAP + value_width


def _page_lines(value: Any, output: Output) -> list[str]:
    """The lines of one value on a page: a list of records has one for each."""
    if isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        return [output.visible(_members(item)) for item in value]
    if isinstance(value, dict):
        return [output.visible(_members(value))]
    return [output.visible(cell_text(value))]


def _members(value: Any) -> str:
    if not isinstance(value, dict):
        return cell_text(value)
    return "  ".join(f"{key} {cell_text(member)}" for key, member in value.items())


def _folded(lines: Sequence[str], room: int | None) -> list[str]:
    """The lines, those that are too wide folded at their words."""
    if room is None or all(cell_width(line) <= room for line in lines):
        return list(lines)
    room = max(room, _longest_word(lines))
    console = _console(StringIO(), Look(color=False, width=room), room)
    wrapped = [_text(line).wrap(console, room, overflow="fold") for line in lines]
    return [line.plain.rstrip() for folded in wrapped for line in folded]


def _styled(text: str, column: Column) -> "Text":
    owes = column.kind is Kind.AMOUNT and text.startswith("-")
    return _text(text, "red" if owes else "")


def _text(text: str, style: str = "") -> "Text":
    """Data as rich must see it: a Text, so that no bracket and no `:code:` means anything."""
    from rich.text import Text

    return Text(text, style=style)


def _box(output: Output) -> "Box":
    from rich.box import SIMPLE_HEAD, Box

    if output.can_show(_RULE):
        return SIMPLE_HEAD
    return Box(str(SIMPLE_HEAD).replace(_RULE, "-"), ascii=True)


def _draw(drawn: tuple["RenderableType", int], output: Output, look: Look) -> None:
    table, width = drawn
    target = StringIO()
    _console(target, look, width).print(table)
    for line in target.getvalue().removesuffix("\n").split("\n"):
        output.write(f"{line.rstrip()}\n")


def _console(target: StringIO, look: Look, width: int) -> "Console":
    """A console that decides nothing by itself.

    Left alone, rich reads FORCE_COLOR=0 as on, takes 80 columns on a dumb terminal unless width and
    height are both given, and replaces emoji codes even without markup.
    """
    from rich.console import Console

    return Console(
        file=target,
        width=max(width, 1),
        height=1,
        force_terminal=look.color,
        force_jupyter=False,
        no_color=not look.color,
        color_system="standard" if look.color else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        safe_box=False,
    )
