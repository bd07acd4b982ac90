"""Give a report to its format: the table of formats, the streams, the notes, the exit code."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import TextIO

from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import UsageError
from ledgerctl.render.fields import select_fields, shown_columns
from ledgerctl.render.output import Look, Output
from ledgerctl.render.report import Report, settled

Writer = Callable[[Report, Output, Look], int]


def writer_of(format: str) -> Writer:
    """Give what writes this format, loaded now if it was not before. Raises UsageError without one."""
    if format not in list(OutputFormat):
        raise UsageError(
            f"there is no output format {format!r}",
            hint=f"The formats are {', '.join(OutputFormat)}.",
        )
    write: Writer = import_module(f"ledgerctl.render.as_{format}").write
    return write


def emit(
    report: Report,
    *,
    format: str,
    fields: Sequence[str] | None = None,
    out: TextIO,
    err: TextIO,
    color: bool = False,
    width: int | None = None,
    header: bool = True,
    now: datetime | None = None,
    quiet: bool = False,
) -> int:
    """Write the whole report to `out`, its notes to `err`; return the report's exit code.

    Nothing is written before the first few hundred records have arrived, so a store that is down
    leaves `out` empty. `width` counts cells and matters to tables alone; None is unlimited. With
    `now` a table shows ages beside its times. Colour is the caller's decision (see `use_color`).
    `header` matters to plain and csv.

    Raises UsageError for a format or a field that does not exist, OutputFailed when `out` takes no
    more, BrokenPipeError when its reader is gone. An encoding that lacks a character never raises.
    """
    write = writer_of(format)
    if fields is None:
        report = shown_columns(report, for_table=format == "table")
    else:
        report = select_fields(report, fields, whole_document=format == "json")
    output = Output(out, room=_room(out, width))
    count = write(report, output, Look(color, width, header, now))
    output.finish()
    if format != "json":
        layout = () if quiet else output.notes
        _remark(report, err, width, layout, nothing_shown=format == "table" and count == 0)
    return settled(report.exit_code)


def _room(stream: TextIO, width: int | None) -> int | None:
    """Return the width that sentences are folded to: only where a person reads them."""
    try:
        return width if stream.isatty() else None
    except ValueError:  # closed
        return None


def _remark(
    report: Report, err: TextIO, width: int | None, layout: Sequence[str], *, nothing_shown: bool
) -> None:
    """Notes to stderr; that nobody can take them does not spoil the result."""
    remarks = Output(err, room=_room(err, width))
    if nothing_shown and report.text is None and report.empty:
        remarks.prose(report.empty)
    for note in (*layout, *settled(report.notes)):
        remarks.prose(note)
    with suppress(OSError, ValueError, LookupError):
        remarks.finish()
