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
