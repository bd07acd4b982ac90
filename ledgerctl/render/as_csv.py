"""CSV that a spreadsheet opens without running anything: header of keys, one record a line."""

import csv
import io
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from ledgerctl.render.output import Look, Output, batches
from ledgerctl.render.report import Report
from ledgerctl.render.text import value_text

# What starts a formula, full-width forms included. Source: OWASP, CSV injection.
_FORMULA_STARTS: Final = frozenset("=+-@\t\r\n＝＋－＠")
_NEVER_GUARDED: Final = (bool, int, Decimal, datetime, timedelta)


def write(report: Report, output: Output, _: Look) -> int:
    """Write header and records with `\\n` line ends; return the record count.

    Text that a spreadsheet would run gets a leading `'`; numbers and times never do.
    """
    keys = [column.key for column in report.columns]
    output.write(_lines([[output.visible(key) for key in keys]]))
    count = 0
    for batch in batches(report.records):
        rows = [[_cell(record.get(key), output) for key in keys] for record in batch]
        output.write(_lines(rows))
        count += len(batch)
    return count


def _cell(value: Any, output: Output) -> str:
    text = value_text(value)
    shown = output.visible(text)
    if text[:1] in _FORMULA_STARTS and not isinstance(value, _NEVER_GUARDED):
        return f"'{shown}"
    return shown


def _lines(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
