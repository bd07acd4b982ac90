"""What a report looks like on a stream of a given encoding."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ledgerctl.render.emit import emit
from ledgerctl.render.report import Report


@dataclass(frozen=True)
class Printed:
    out: str
    err: str
    exit_code: int


def stream(encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")


def printed(
    report: Report,
    format: str,
    *,
    fields: Sequence[str] | None = None,
    color: bool = False,
    width: int | None = None,
    encoding: str = "utf-8",
    header: bool = True,
    now: datetime | None = None,
    quiet: bool = False,
) -> Printed:
    """Emit the report; decode strictly, so that a byte out of place fails the test."""
    out, err = stream(encoding), stream(encoding)
    exit_code = emit(
        report,
        format=format,
        fields=fields,
        out=out,
        err=err,
        color=color,
        width=width,
        header=header,
        now=now,
        quiet=quiet,
    )
    texts = [_bytes(written).decode(encoding) for written in (out, err)]
    return Printed(out=texts[0], err=texts[1], exit_code=exit_code)


def _bytes(written: io.TextIOWrapper) -> bytes:
    buffer = written.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()
