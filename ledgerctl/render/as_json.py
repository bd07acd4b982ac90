"""Write one JSON document, exact at any size, with long lists written as they come."""

from collections.abc import Iterable, Mapping
from typing import Any

from ledgerctl.render.exact import Encoder
from ledgerctl.render.output import Look, Output, batches
from ledgerctl.render.report import STREAMED, Document, Record, Report, Shape, settled


def write(report: Report, output: Output, _: Look) -> int:
    """Write the report's document, then its notes as one more member; return the record count."""
    encoder = Encoder(ascii_only=not output.is_unicode)
    count = 0
    opening = "{\n"
    for key, value in _members(report):
        output.write(f"{opening}  {encoder.encode(key)}: ")
        opening = ",\n"
        if value is STREAMED:
            count = _write_items(report.records, encoder, output)
        else:
            _write_value(settled(value), encoder, output)
    if notes := list(settled(report.notes)):
        output.write(f"{opening}  {encoder.encode('notes')}: {encoder.encode(notes)}")
        opening = ",\n"
    output.write("{}\n" if opening == "{\n" else "\n}\n")
    return count


def _members(report: Report) -> Iterable[tuple[str, Any]]:
    document = _document(report)
    yield from document.items()
    if report.items_key is not None and report.items_key not in document:
        yield report.items_key, STREAMED


def _document(report: Report) -> Document:
    if report.document is not None:
        return report.document
    if report.shape is Shape.RECORD:
        return next(iter(report.records), {})
    return {report.items_key or "items": STREAMED}


def _write_value(value: Any, encoder: Encoder, output: Output) -> None:
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        _write_items(value, encoder, output)
    else:
        output.write(encoder.encode(value))


def _write_items(items: Iterable[Record], encoder: Encoder, output: Output) -> int:
    """Return a list with one item a line."""
    count = 0
    opening = "[\n    "
    for batch in batches(items):
        output.write(opening + encoder.join(batch, ",\n    "))
        opening = ",\n    "
        count += len(batch)
    output.write("\n  ]" if count else "[]")
    return count
