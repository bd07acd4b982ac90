"""CSV that a spreadsheet opens without running anything: header of keys, one record a line."""

import csv
import io
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from ledgerctl.render.output import Look, Output, batches
from ledgerctl.render.report import Report
from ledgerctl.render.text import cell_text, read_cell

# What starts a formula, full-width forms included. Source: OWASP, CSV injection.
_FORMULA_STARTS: Final = frozenset("=+-@\t\r\n＝＋－＠")
_NEVER_GUARDED: Final = (bool, int, Decimal, datetime, timedelta)


def write(report: Report, output: Output, look: Look) -> int:
    """Write header and records with `\\n` line ends; return the record count.

    Text that a spreadsheet would run gets a leading `'`; numbers and times never do.
    """
    keys = [column.key for column in report.columns]
    if look.header:
        output.write(_lines([[output.visible(key) for key in keys]]))
    count = 0
    for batch in batches(report.records):
        rows = [[_cell(record.get(key), output) for key in keys] for record in batch]
        output.write(_lines(rows))
        count += len(batch)
    return count


def _cell(value: Any, output: Output) -> str:
    text = cell_text(value)
    shown = output.visible(text)
    if is_formula(text) and not isinstance(value, _NEVER_GUARDED):
        return f"'{shown}"
    return shown


def is_formula(text: str) -> bool:
    """Return true for text that a spreadsheet would run, or that looks like such text guarded."""
    return text.lstrip("'")[:1] in _FORMULA_STARTS


def read_guarded(cell: str) -> str:
    """Return the text that a parsed csv cell was written for."""
    text = read_cell(cell)
    return text[1:] if text[:1] == "'" and is_formula(text) else text


def read_line(line: str) -> list[str]:
    """Return the cells of one line, which is a whole record; empty when it is no csv."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def is_written_here(line: str) -> bool:
    """Return true for a line that can be a record of one cell, exactly as `write` spells it."""
    cells = read_line(line)
    guarded = not is_formula(line) or line[:1] == "'"
    return len(cells) == 1 and guarded and _lines([cells]) == f"{line}\n"


def _lines(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
