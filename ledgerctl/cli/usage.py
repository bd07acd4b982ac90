"""A mistake on the command line, in our words: what is wrong, what was meant, what to do."""

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Final

import typer

from ledgerctl.cli.nouns import NOUNS
from ledgerctl.errors import LedgerctlError, UsageError

# Typer names its usage errors' base only from 0.27 on; this holds for every version allowed.
SINGLE: Final = {"doctor", "demo", "help"}  # nouns that are a command themselves
TYPER_TROUBLE: type[Exception] = typer.BadParameter.__mro__[2]


WHAT_TO_DO: Final = {  # of errors that do not say it themselves
    "bug": "please report it with the lines above; running the command again is safe",
    "declined": "run it again to be asked again",
    "interrupted": "run it again: what is done already is left as it is",
    "partly_done": "run it again: what is done already is left as it is",
}


def advised(error: LedgerctlError, words: Sequence[str]) -> LedgerctlError:
    """The error with what to do, which every error says."""
    if not error.hint:
        error.hint = WHAT_TO_DO.get(error.code, "") or f"`{command_of(words)} --help`"
    return error


def command_of(words: Sequence[str]) -> str:
    """The command that a line begins with, as far as it can be told without its options."""
    named = list(takewhile(lambda word: not word.startswith("-"), words[:2]))
    if not named or named[0] not in NOUNS:
        return "ledgerctl"
    return " ".join(["ledgerctl", *(named[:1] if named[0] in SINGLE else named)])


def usage_error(error: Exception, words: Sequence[str]) -> UsageError:
    """Typer's complaint as ours, in one sentence, with the nearest right word where there is one."""
    context = getattr(error, "ctx", None)
    path = "ledgerctl" if context is None else context.command_path
    group = getattr(getattr(context, "command", None), "commands", None)
    kind = type(error).__name__
    if kind == "NoArgsIsHelpError":
        return no_command(path, list(group or ()))
    if kind == "NoSuchOption":
        return no_such_option(error, path, words)
    text = getattr(error, "format_message", lambda: str(error))()
    if group is not None and text.startswith("No such command"):
        return no_such_command(path, list(group), words)
    return UsageError(sentence(text), hint=f"`{path} --help`")


def no_command(path: str, names: Sequence[str]) -> UsageError:
    """A group was named without one of its commands."""
    return UsageError(
        f"`{path}` wants one of its commands: {', '.join(names)}", hint=f"`{path} --help`"
    )


def no_such_command(path: str, names: Sequence[str], words: Sequence[str]) -> UsageError:
    """A word that is no command here; it may be misspelt, or a command of another noun."""
    depth = len(path.split()) - 1
    word = next((one for one in words[depth:] if not one.startswith("-")), "")
    near = get_close_matches(word, names, n=2) or elsewhere(word, path)
    return UsageError(
        f"`{path}` has no command {word!r}{did_you_mean(near)}",
        hint=f"`{path} --help` lists them",
    )


def elsewhere(word: str, path: str) -> list[str]:
    """The noun, when a word is one: `ledgerctl dead job` was meant as `ledgerctl job`."""
    return [f"ledgerctl {word}"] if word in NOUNS and path != "ledgerctl" else []


def no_such_option(error: Any, path: str, words: Sequence[str]) -> UsageError:
    """An option that the command lacks; common options stand after the command, not before it."""
    name = error.option_name
    if path == "ledgerctl" and any(word in NOUNS for word in words):
        return UsageError(
            f"{name} stands before the command",
            hint="options come after the command: `ledgerctl job list -o json`",
        )
    known = [text for one in error.ctx.command.params for text in one.opts] if error.ctx else []
    near = get_close_matches(name, known, n=1)
    return UsageError(
        f"`{path}` has no option {name}{did_you_mean(near)}", hint=f"`{path} --help` lists them"
    )


def did_you_mean(near: Sequence[str]) -> str:
    """The end of a sentence that names what was probably meant."""
    return f": did you mean {' or '.join(near)}?" if near else ""


REWORDED = (
    ("is not a valid int range", "is not a whole number"),
    ("is not a valid integer range", "is not a whole number"),
    ("is not a valid int", "is not a whole number"),
    ("is not a valid integer", "is not a whole number"),
    ("is not in the range x>=0", "is below 0"),
    ("Got unexpected extra argument(s)", "too many words:"),
    ("Got unexpected extra argument", "too many words:"),
    ("Invalid value for", "wrong value for"),
)


def sentence(text: str) -> str:
    """Typer's sentence in our manner: plain words, small first letter, no full stop."""
    text = " ".join(text.split()).removesuffix(".")
    for theirs, ours in REWORDED:
        text = text.replace(theirs, ours)
    return text[:1].lower() + text[1:]
