"""Write a table or a page for people, data letter for letter, ids never folded or cut.

The layout is our own: rich's Table cuts ids or lets columns vanish when it runs out of width, and
takes 0.3 ms a row. Rich measures, folds and colours.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from io import StringIO
from itertools import zip_longest
from typing import Any, Final

from ledgerctl.render.output import Look, Output
from ledgerctl.render.report import Column, Kind, Record, Report, Shape, settled
from ledgerctl.render.text import age_text, cell_width, duration_text, telling_line, value_text

Paint = Callable[[str], str]

_GAP: Final = "  "
_FOLDED_MIN: Final = 12  # a narrower column of words is no longer read
_CUT_MIN: Final = 24  # words that are cut after a few lines need as much
_WORD_MAX: Final = 64  # shorter words may be ids and stay whole even in a folded text
_RIGHT_ALIGNED: Final = {Kind.AMOUNT, Kind.COUNT, Kind.RATIO, Kind.DURATION}
_RULE: Final = "─"
_CUT: Final = "…"


def write(report: Report, output: Output, look: Look) -> int:
    """Write head, table or page, foot and sections; return the record count.

    No line is wider than the terminal, except one that holds a single wider id or command.
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
        page = _block if report.is_brief else _page
        columns = [one for one in report.columns if _has_a_place(one, records)]
        for record in records:
            _write_lines(page(columns, record, output, look), output)
    elif records or not report.empty:
        columns = [column for column in report.columns if _has_a_place(column, records)]
        _write_table(columns, records, output, look)
    return len(records)


def _write_table(
    columns: Sequence[Column], records: Sequence[Record], output: Output, look: Look
) -> None:
    strips = [_strip(column, records, output, look.now) for column in columns]
    fitting = _fitting(strips, records, output, look)
    if fitting is None:
        for record in records:
            _write_lines(_block(columns, record, output, look), output)
        return
    _write_lines(_table(fitting, output, look), output)
    kept = {strip.column.key for strip in fitting}
    left_out = [column.key for column in columns if column.key not in kept]
    if left_out:
        output.notes.append(
            f"no room for {', '.join(left_out)}: --fields or a wider terminal shows it"
        )


@dataclass(frozen=True)
class _Strip:
    """Hold one column of a table: its visible cells, the heading first."""

    column: Column
    cells: Sequence[str]
    folds: bool

    @cached_property
    def need(self) -> int:
        """Measure the widest cell."""
        return max(map(cell_width, self.cells))

    @cached_property
    def least(self) -> int:
        """Measure the narrowest width: words may fold, headings and all else stay whole."""
        if not self.folds:
            return self.need
        least = max(cell_width(self.cells[0]), _longest_word(self.cells))
        return min(self.need, least if self.column.lines_max is None else max(least, _CUT_MIN))


def _strip(
    column: Column, records: Sequence[Record], output: Output, now: datetime | None, *,
    short: bool = False,
) -> _Strip:  # fmt: skip
    cells = [output.visible(_cell(column, one.get(column.key), now, short)) for one in records]
    return _Strip(column, [output.visible(column.heading), *cells], _folds(column, records))


def _cell(column: Column, value: Any, now: datetime | None, short: bool = False) -> str:
    if column.lines_max is not None and isinstance(value, str):
        return telling_line(value)
    if column.kind is Kind.WORDS and isinstance(value, list | tuple):
        return ", ".join(map(cell_text, value))
    if isinstance(value, datetime) and now is not None:
        age = age_text(value, now)
        return age if short else f"{cell_text(value)} {age}"
    return cell_text(value)


def _fitting(
    strips: Sequence[_Strip], records: Sequence[Record], output: Output, look: Look
) -> Sequence[_Strip] | None:
    """Choose the columns that fit the terminal; None where no table does.

    Spare columns go first, the last one first, instants after all others; before an instant goes
    it is replaced by its age.
    """
    if len(strips) == 1:
        return strips
    for candidate in _candidates(strips, records, output, look.now):
        if look.width is None or _total([strip.least for strip in candidate]) <= look.width:
            return candidate
    return None


def _candidates(
    strips: Sequence[_Strip], records: Sequence[Record], output: Output, now: datetime | None
) -> Iterator[Sequence[_Strip]]:
    yield strips
    yield from _without_spare(strips, keep=Kind.TIME)
    if now is not None:
        strips = [
            _strip(one.column, records, output, now, short=True)
            if one.column.kind is Kind.TIME
            else one
            for one in strips
        ]
        yield strips
    yield from _without_spare(strips)


def _without_spare(
    strips: Sequence[_Strip], keep: Kind | None = None
) -> Iterator[Sequence[_Strip]]:
    spare = [one for one in strips if one.column.spare and one.column.kind is not keep]
    for count in range(1, len(spare) + 1):
        yield [one for one in strips if one not in spare[-count:]]


def _has_a_place(column: Column, records: Sequence[Record]) -> bool:
    return not column.when_filled or any(
        cell_text(one.get(column.key)) not in {"", "0"} for one in records
    )


def _write_lines(lines: Iterator[str], output: Output) -> None:
    for line in lines:
        output.write(f"{line.rstrip()}\n")


def cell_text(value: Any) -> str:
    """Spell a value as people read it; counts by name are words, not JSON."""
    if isinstance(value, Mapping) and all(type(one) in {int, str} for one in value.values()):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return duration_text(value) if isinstance(value, timedelta) else value_text(value)


def _table(strips: Sequence[_Strip], output: Output, look: Look) -> Iterator[str]:
    widths = _widths(strips, look.width)
    right = [strip.column.kind in _RIGHT_ALIGNED for strip in strips]
    owing = [strip.column.kind is Kind.AMOUNT for strip in strips]
    bold, red = _paint("bold", look), _paint("red", look)
    headings, *rows = zip(*(strip.cells for strip in strips), strict=True)
    yield _row(headings, widths, right, [bold] * len(strips))
    yield (_RULE if output.can_show(_RULE) else "-") * _total(widths)
    cut = _cut(output)
    for row in rows:
        paints = [
            red if owes and cell.startswith("-") else str
            for owes, cell in zip(owing, row, strict=True)
        ]
        for line in _fold_row(row, widths, strips, cut):
            yield _row(line, widths, right, paints)


def _row(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], paints: Sequence[Paint]
) -> str:
    return _GAP.join(map(_padded, cells, widths, right, paints))


def _padded(cell: str, width: int, right: bool, paint: Paint) -> str:
    padding = " " * (width - cell_width(cell))
    return f"{padding}{paint(cell)}" if right else f"{paint(cell)}{padding}"


def _fold_row(
    row: Sequence[str], widths: Sequence[int], strips: Sequence[_Strip], cut: str
) -> Iterator[Sequence[str]]:
    """Fold the words of one row to their columns, each to no more lines than its column takes."""
    cells = [
        _first_lines(_folded(cell, width), strip.column.lines_max, width, cut)
        if strip.folds
        else [cell]
        for cell, width, strip in zip(row, widths, strips, strict=True)
    ]
    return zip_longest(*cells, fillvalue="")


def _cut(output: Output) -> str:
    return _CUT if output.can_show(_CUT) else "..."


def _first_lines(lines: list[str], lines_max: int | None, width: int, cut: str) -> list[str]:
    if lines_max is None or len(lines) <= lines_max:
        return lines
    last = lines[lines_max - 1]
    while cell_width(last + cut) > width:
        last = last[:-1]
    return [*lines[: lines_max - 1], last + cut]


def _folds(column: Column, records: Sequence[Record]) -> bool:
    """Tell whether the column holds nothing but words: a list may be one of ids."""
    if column.kind is not Kind.TEXT:
        return column.kind is Kind.WORDS
    return all(_is_words(record.get(column.key)) for record in records)


def _is_words(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(type(count) is int for count in value.values())
    return isinstance(value, str | None)


def _widths(strips: Sequence[_Strip], available: int | None) -> list[int]:
    """Give each column what it needs, except that words give way to fit the terminal.

    The widest columns that may fold give way first, down to their longest word.
    """
    needed = [strip.need for strip in strips]
    if available is None or _total(needed) <= available:
        return needed
    least = [strip.least for strip in strips]
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
    """Lay out `key  value` lines, one below the other; a value too wide stands below its key."""
    keys = [output.visible(column.heading) for column in columns]
    key_width = max(map(cell_width, keys), default=0)
    bold = _paint("bold", look)
    for column, key in zip(columns, keys, strict=True):
        paint = _value_paint(column, look)
        lines, is_beside = _value_lines(column, record, output, look, key_width + len(_GAP))
        if not is_beside:
            yield bold(key)
            yield from (f"{_GAP}{paint(line)}" for line in lines)
            continue
        for number, line in enumerate(lines):
            label = _padded("" if number else key, key_width, False, str if number else bold)
            yield f"{label}{_GAP}{paint(line)}"


def _block(columns: Sequence[Column], record: Record, output: Output, look: Look) -> Iterator[str]:
    """Lay out one record on as few lines as hold it, `key value` pairs side by side."""
    bold = _paint("bold", look)
    cut = _cut(output)
    line, used = "", 0
    for column in columns:
        key = output.visible(column.heading)
        label_width = cell_width(key) + 1
        lines, is_beside = _value_lines(column, record, output, look, len(_GAP) + label_width)
        if lines == [""]:
            continue
        lines = _first_lines(lines, column.lines_max, look.width or sys.maxsize, cut)
        paint = _value_paint(column, look)
        width = label_width + cell_width(lines[0])
        fits = look.width is None or used + len(_GAP) + width <= look.width
        if used and not (fits and is_beside and len(lines) == 1):
            yield line
            line, used = _GAP, len(_GAP)
        elif used:
            line, used = line + _GAP, used + len(_GAP)
        first, *rest = lines if is_beside else ["", *lines]
        line, used = f"{line}{bold(key)} {paint(first)}", used + width
        indent = " " * (len(_GAP) + label_width if is_beside else 2 * len(_GAP))
        for more in rest:
            yield line
            line, used = f"{indent}{paint(more)}", len(indent) + cell_width(more)
    yield line


def _value_paint(column: Column, look: Look) -> Paint:
    if column.kind is not Kind.AMOUNT:
        return str
    red = _paint("red", look)
    return lambda text: red(text) if text.startswith("-") else text


def _value_lines(
    column: Column, record: Record, output: Output, look: Look, indent: int
) -> tuple[list[str], bool]:
    """Spell a value on lines that fit beside its key, else below it; say which."""
    value = record.get(column.key)
    lines = [output.visible(line) for line in _page_lines(column, value, look.now)]
    if look.width is None:
        return lines, True
    beside, below = (
        [part for line in lines for part in _parts(column, value, line, output, room)]
        for room in (look.width - indent, look.width - 2 * len(_GAP))
    )
    fits_beside = _widest(beside) <= look.width - indent
    is_beside = fits_beside or _widest(below) > look.width - 2 * len(_GAP)
    return (beside, True) if is_beside else (below, False)


def _widest(lines: Sequence[str]) -> int:
    return max(map(cell_width, lines))


def _parts(column: Column, value: Any, line: str, output: Output, room: int) -> list[str]:
    """Break one line of a value where it may be broken: a list at its items, words at blanks."""
    if cell_width(line) <= room:
        return [line]
    if isinstance(value, list | tuple) and not any(isinstance(one, Mapping) for one in value):
        *items, last = (output.visible(cell_text(one)) for one in value)
        return [*(f"{one}," for one in items), last]
    if column.kind not in {Kind.TEXT, Kind.WORDS}:
        return [line]
    return _folded(line, max(room, _longest_word([line])))


def _page_lines(column: Column, value: Any, now: datetime | None) -> list[str]:
    """Spell one value of a page: a list of records on a line for each."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return [_members(item) for item in value]
    return [_members(value)] if isinstance(value, Mapping) else [_cell(column, value, now)]


def _members(value: Any) -> str:
    if not isinstance(value, Mapping):
        return cell_text(value)
    return _GAP.join(f"{key} {cell_text(member)}" for key, member in value.items())


def _folded(text: str, room: int) -> list[str]:
    """Break a text at its words, and inside a word that is wider than the room."""
    if cell_width(text) <= room:
        return [text]
    from rich.console import Console
    from rich.text import Text

    # Height as well as width: on a dumb terminal rich believes one only with the other.
    console = Console(file=StringIO(), width=room, height=1, color_system=None)
    return [line.plain.rstrip() for line in Text(text).wrap(console, room, overflow="fold")]


def _paint(style: str, look: Look) -> Paint:
    """Return what puts a text into that style; rich is told the colours and asks no environment."""
    if not look.color:
        return str
    from rich.color import ColorSystem
    from rich.style import Style

    parsed = Style.parse(style)
    return lambda text: parsed.render(text, color_system=ColorSystem.STANDARD)
