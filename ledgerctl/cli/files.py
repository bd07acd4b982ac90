"""Files that a command reads ids from, and files that it replaces whole for another program."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ledgerctl.errors import UsageError


def regular_file(name: str, option: str) -> Path:
    """Return the file to write, a symbolic link followed.

    Raises UsageError for an empty name, and for what exists and is no regular file, as a FIFO or
    /dev/null.
    """
    if not name:
        raise UsageError(f"{option} has an empty name", hint="is a variable unset?")
    file = Path(os.path.realpath(name))
    if file.exists() and not file.is_file():
        raise UsageError(f"{option}: {name} is no regular file", hint="name a file to be replaced")
    return file


def replace_file(file: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Put a file in place whole: a reader sees the old content or the new, never half of one."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(made, "wb") as opened:
            opened.write(content if isinstance(content, bytes) else content.encode())
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


REASON = "reason"
Cells = Callable[[str], list[str]]


def read_ids(lines: Sequence[str], column: str) -> Iterator[tuple[str, str]]:
    """Yield each id with its reason, "" without one, in the order of the file.

    The first line may be a header; then `column` and a column `reason` count. Blank lines and
    CRLF are fine. Raises UsageError, naming the line, for a record that lacks the id.
    """
    filled = [line for line in (one.removesuffix("\r") for one in lines) if line.strip()]
    if not filled:
        return
    if is_record(filled[0], column):
        yield from map(from_record(column), filled)
        return
    names, cells = layout(filled, column)
    for line in filled[1:] if names else filled:
        found = cells(line)
        if names and len(found) != len(names):
            raise UsageError(
                f"{line[:80]!r} has {len(found)} columns and the header {len(names)}: no job was"
                " looked at"
            )
        record = dict(zip(names or [column], found, strict=True))
        yield record[column], record.get(REASON, "").strip()


def layout(lines: Sequence[str], column: str) -> tuple[list[str], Cells]:
    """Return the header's names, none without a header, and the reader of a line."""
    from ledgerctl.render.as_csv import is_written_here, read_guarded, read_line
    from ledgerctl.render.text import read_cell

    def of_csv(line: str) -> list[str]:
        return [read_guarded(cell) for cell in read_line(line)]

    def of_plain(line: str) -> list[str]:
        return [read_cell(cell) for cell in line.split("\t")]

    def of_list(line: str) -> list[str]:
        return [read_cell(line)]

    first = [name.strip() for name in lines[0].split("\t")]
    names = first if column in first else [name.strip() for name in read_line(lines[0])]
    if column not in names:
        return [], of_csv if all(map(is_written_here, lines)) else of_list
    if len(names) == 1:
        return names, of_csv if all(map(is_written_here, lines[1:])) else of_list
    return names, of_plain if names is first else of_csv


def is_record(line: str, column: str) -> bool:
    """Return true for a line of jsonl that holds this key."""
    try:
        found = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return False
    return isinstance(found, dict) and column in found


def from_record(column: str) -> Callable[[str], tuple[str, str]]:
    """Return the reader of one line of jsonl."""

    def read(line: str) -> tuple[str, str]:
        if not is_record(line, column):
            raise UsageError(f"{line[:80]!r} is no JSON object with a {column}")
        found: dict[str, Any] = json.loads(line)
        return "" if found[column] is None else str(found[column]), str(
            found.get(REASON) or ""
        ).strip()

    return read
