"""Options and arguments that several commands share."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from ledgerctl.cli.files import read_ids
from ledgerctl.cli.session import Session
from ledgerctl.domain.amounts import INT64_MAX
from ledgerctl.domain.ids import LENGTH_MAX
from ledgerctl.domain.times import at_bound, time_range
from ledgerctl.errors import UsageError

Account = Annotated[str, typer.Argument(help="Account id.", metavar="ACCOUNT")]
From = Annotated[
    str | None, typer.Option("--from", help="From this time or date on.", metavar="TIME")
]
To = Annotated[
    str | None,
    typer.Option("--to", help="Before this time; a date is included whole.", metavar="TIME"),
]
Since = Annotated[
    str | None, typer.Option("--since", help="From this time or date on.", metavar="TIME")
]
Until = Annotated[
    str | None,
    typer.Option("--until", help="Before this time; a date is included whole.", metavar="TIME"),
]
At = Annotated[
    str | None,
    typer.Option("--at", help="As of this time, included; a date means its end.", metavar="TIME"),
]
OfAccount = Annotated[
    str | None, typer.Option("--account", help="Only this account.", metavar="ACCOUNT")
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        min=0,
        help="Show at most this many; 0 shows all.",
        metavar="N",
        callback=lambda limit: min(limit, INT64_MAX),
    ),
]
FromFile = Annotated[
    str | None,
    typer.Option(
        "--from-file", help="Ids from a file, one a line; - reads standard input.", metavar="FILE"
    ),
]

SHOWN = 100  # records of a listing


def window(
    session: Session, since: str | None, until: str | None
) -> tuple[datetime | None, datetime | None]:
    """Return the bounds of a time window: the first included, the second excluded."""
    if since is None and until is None:
        return None, None
    return time_range(since, until, now=session.now, zone=session.zone)


def moment(session: Session, text: str | None) -> datetime | None:
    """Read an `--at`: included; a date means its end."""
    return None if text is None else at_bound(text, now=session.now, zone=session.zone)


def required(text: str, *, name: str) -> str:
    """Check a name that a change will write; an empty one is an unset variable, not a name."""
    if not text.strip():
        raise UsageError(f"{name} is empty", hint="is a variable of the shell unset?")
    return text


def named(ids: Sequence[str], file: str | None, column: str) -> dict[str, str]:
    """Return the ids given as words and in a file, each once, in order, with their reasons.

    A reason is "" where the file gives none. Raises UsageError when there is no id, one is empty
    or too long, or the file cannot be read.
    """
    found = {required(one, name=column): "" for one in ids}
    if file is not None:
        for one, why in read_ids(read_lines(required(file, name="--from-file")), column):
            if one:  # a finding may name no job
                found.setdefault(one, why)
    elif not found:
        raise UsageError(f"no {column} was given", hint="name one, or use --from-file FILE")
    if any(len(one) > LENGTH_MAX for one in found):
        raise UsageError(
            f"a {column} has more than {LENGTH_MAX:,} characters: too many to look it up"
        )
    return found


def read_lines(file: str) -> list[str]:
    """Return the lines of a file; `-` is standard input."""
    import sys
    from pathlib import Path

    try:
        if file == "-":
            raw = sys.stdin.buffer.read() if sys.stdin is not None else b""
        else:
            raw = Path(file).read_bytes()
        return raw.decode("utf-8-sig").split("\n")  # an id may hold what else ends a line
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the ids from {file}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Tell why a file could not be read, in a few words."""
    return getattr(error, "strerror", None) or "it is not UTF-8 text"
