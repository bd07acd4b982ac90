"""Give a report to its format: fields, colour, streams, notes, exit code."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from itertools import chain, islice
from typing import Final, Literal, TextIO

from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import UsageError
from ledgerctl.render.output import Look, Output
from ledgerctl.render.report import Column, Document, Record, Report, Shape, settled

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


def shown_columns(report: Report, *, for_table: bool = False) -> Report:
    """Return the report without the columns that wait to be asked for."""
    shown = [one for one in report.columns if one.shown and (one.in_table or not for_table)]
    return replace(report, columns=shown)


def select_fields(report: Report, fields: Sequence[str], *, whole_document: bool) -> Report:
    """Return the report cut to these fields; UsageError names the fields there are for one unknown.

    A field is a column, shown or not, or a key of the first record. With `whole_document` (json) a
    report without a list of items has its document's own keys as fields.
    """
    if whole_document and _is_one_thing(report):
        return _select_members(report, fields)
    report, first = _peek(report)
    columns = {column.key: column for column in report.columns}
    _check(fields, [*columns, *(key for key in first if key not in columns)])
    return replace(
        report,
        columns=[
            replace(columns.get(field, Column(field)), when_filled=False, spare=False)
            for field in fields
        ],
        records=(_part(record, fields) for record in report.records),
        document=_cut_items(report, fields),
    )


def _is_one_thing(report: Report) -> bool:
    if report.items_key is not None:
        return False
    return report.document is not None or report.shape is Shape.RECORD


def _select_members(report: Report, fields: Sequence[str]) -> Report:
    members: Document | None = report.document
    if members is None:
        report, members = _peek(report)
    _check(fields, list(members))
    return replace(report, document={field: members[field] for field in fields})


def _peek(report: Report) -> tuple[Report, Record]:
    """Return the report and its first record, which it still has."""
    records = iter(report.records)
    first = list(islice(records, 1))
    return replace(report, records=chain(first, records)), first[0] if first else {}


def _check(fields: Sequence[str], known: Sequence[str]) -> None:
    unknown = [field for field in fields if field not in known]
    if unknown or not fields:
        raise UsageError(
            f"there is no field {', '.join(map(repr, unknown))}"
            if unknown
            else "no field is named",
            hint=f"The fields are {', '.join(known)}.",
        )


def _cut_items(report: Report, fields: Sequence[str]) -> Document | None:
    """Return the document, its items cut too where they are already there."""
    document, key = report.document, report.items_key
    if document is None or key is None:
        return document
    records = document.get(key)
    if not isinstance(records, list | tuple):
        return document
    parts = [_part(one, fields) if isinstance(one, Mapping) else one for one in records]
    return {**document, key: parts}


def _part(record: Record, fields: Iterable[str]) -> Record:
    return {field: record.get(field) for field in fields}


ColorChoice = Literal["auto", "always", "never"]
_OFF: Final = {"0", "false", "no", "off"}


def use_color(choice: ColorChoice, environment: Mapping[str, str], is_tty: bool) -> bool:
    """Obey the first that is set: --color, NO_COLOR, TERM=dumb, FORCE_COLOR (0: off), the terminal.

    An empty variable counts as unset. Sources: contract, section 1; no-color.org.
    """
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    if forced := environment.get("FORCE_COLOR"):
        return forced.lower() not in _OFF
    return is_tty
