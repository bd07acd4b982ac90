"""Files that a command writes for another program: regular ones, replaced whole."""

import os
from pathlib import Path

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


def replace_file(file: Path, text: str) -> None:
    """Put a file in place whole: a reader sees the old text or the new, never half of one."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
