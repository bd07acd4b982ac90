"""The one boundary for errors: what goes wrong becomes three lines or one document, and a code."""

import errno
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import (
    InvariantBroken,
    LeaseHeld,
    LedgerctlError,
    OutOfDescriptors,
    OutputFailed,
    SettingsError,
    UsageError,
)

if TYPE_CHECKING:
    from ledgerctl.addresses import Secret

OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF})
FLAG_LETTERS = frozenset("qvyh")  # short options without a value


def bug(error: Exception, secrets: Sequence["Secret"] = ()) -> LedgerctlError:
    """Return an exception that nobody expected as a bug: without secrets, without what caused it."""
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        return OutOfDescriptors(
            "this process may open no more files", hint="raise the limit (`ulimit -n`), then again"
        )
    from ledgerctl.addresses import redact, without_credentials

    text = without_credentials(redact(f"{type(error).__name__}: {error}", secrets))
    found = InvariantBroken(
        f"this is a bug in ledgerctl: {text}",
        hint="please report it with the lines above; running the command again is safe",
    )
    return found.with_traceback(error.__traceback__)


def report_error(error: LedgerctlError, *, as_json: bool, quiet: bool = False) -> int:
    """Print one error on stderr, as three short lines or as one document; return its exit code.

    With `quiet` the exit code alone tells that another run is at work: cron need not mail it.
    Never raises: a stderr that is closed or full changes neither the outcome nor the code.
    """
    if quiet and isinstance(error, LeaseHeld) and not as_json:
        return int(error.exit_code)
    say([document_of(error)] if as_json else [*trace_of(error), *lines_of(error)])
    return int(error.exit_code)


def document_of(error: LedgerctlError) -> str:
    """Return the error as one line of JSON. Source: contract, section 1."""
    return json.dumps({"error": {**error.document(), "exit_code": int(error.exit_code)}})


def lines_of(error: LedgerctlError) -> list[str]:
    """Return the error in at most three lines: what and why, what to do, its code."""
    from ledgerctl.render.text import visible

    what = " ".join(error.message.split("\n"))
    todo = [f"  try: {visible(' '.join(error.hint.split(chr(10))))}"] if error.hint else []
    lines = [f"error: {visible(what)}", *todo, f"  [{error.code}, exit {int(error.exit_code)}]"]
    return [part for line in lines for part in fitted(line)]


def fitted(line: str) -> list[str]:
    """Return the line, broken at words where a terminal would break inside one."""
    import shutil

    from ledgerctl.render.text import folded_sentence

    with suppress(AttributeError, ValueError):  # no stream, or a closed one
        width = shutil.get_terminal_size((80, 24)).columns
        if sys.stderr.isatty() and len(line) >= width:
            return folded_sentence(line, width)
    return [line]


def trace_of(error: LedgerctlError) -> list[str]:
    """Tell where a bug happened: files, lines and source, never values, never what caused it."""
    import traceback

    if not isinstance(error, InvariantBroken):
        return []
    frames = traceback.format_tb(error.__traceback__)[-3:]
    return "".join(frames).splitlines()


def say(lines: Iterable[str]) -> None:
    """Write lines to stderr, if anybody takes them."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()
    except (OSError, ValueError):
        drop(sys.stderr)


def drop(stream: Any) -> None:
    """Point a stream at nothing, so that the interpreter's last flush of it does not fail too."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def output_trouble(error: OSError) -> LedgerctlError | None:
    """Return the error when an OSError means that stdout takes no more; None when it means something else."""
    if error.errno not in OUTPUT_ERRORS:
        return None
    drop(sys.stdout)
    return OutputFailed(
        f"the output cannot be written: {error.strerror}",
        hint="write to another place, or make room there",
    )


def prepare_streams() -> None:
    """Keep files and sockets off the standard descriptors, and never fail on a character.

    A descriptor that the shell closed is opened on nothing, so that no connection takes its number
    and gets another's output. What an encoding cannot show is written as an escape.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def wants_json(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Tell whether an error of this command line is told as json: by flag, environment, profile or file.

    Judged before and apart from parsing, because what is wrong may be the command line. A
    configuration file that cannot be read has no say.
    """
    given = {name: option_value(words, name) for name in ("--output", "--profile", "--config")}
    if option_value(words, "--format") == "json":  # `balance explain`: the same as -o json
        return True
    for chosen in (given["--output"], environment.get("LEDGERCTL_OUTPUT")):
        if chosen in list(OutputFormat):
            return chosen == "json"
    with suppress(SettingsError, UsageError):
        from ledgerctl.config import load

        settings = load(
            environment=environment, profile=given["--profile"], config=given["--config"]
        )
        return settings.output == "json"
    return False


def wants_quiet(words: Sequence[str]) -> bool:
    """Tell whether this command line has --quiet, alone or among other short options."""
    named = words[: words.index("--")] if "--" in words else words
    return any(
        word == "--quiet" or (re.fullmatch("-[vyh]*q.*", word) is not None) for word in named
    )


def option_value(words: Sequence[str], name: str) -> str | None:
    """Return the last value given for a long option (for --output its short form too); None without."""
    value = None
    for at, word in enumerate(words):
        if word == "--":
            break
        following = next(iter(words[at + 1 : at + 2]), None)
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
        elif name == "--output" and (rest := short_output(word)) is not None:
            value = rest or following
    return value


def short_output(word: str) -> str | None:
    """Tell what follows `-o` in a word of short options: `json` in `-qojson`, "" in `-qo`; else None."""
    if word.startswith("--") or not word.startswith("-"):
        return None
    flags, found, rest = word[1:].partition("o")
    return rest.removeprefix("=") if found and set(flags) <= FLAG_LETTERS else None
