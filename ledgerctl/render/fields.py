"""`--fields a,b`: which keys a report shows, and in which order, the same in every format."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from ledgerctl.errors import UsageError
from ledgerctl.render.report import Column, Document, Record, Report, Shape


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
    if document is None or key is None or not _is_records(document.get(key)):
        return document
    return {**document, key: list(_parts(document[key], fields))}


def _is_records(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _parts(records: Any, fields: Sequence[str]) -> Iterator[Record]:
    for record in records:
        yield _part(record, fields) if isinstance(record, Mapping) else record


def _part(record: Record, fields: Iterable[str]) -> Record:
    return {field: record.get(field) for field in fields}
