"""Describe a mistake on the command line: what is wrong, what was probably meant, what to do."""

import re
import shlex
from collections.abc import Mapping, Sequence
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
    """Give an error that has no hint the hint of its kind."""
    if not error.hint:
        error.hint = WHAT_TO_DO.get(error.code, "") or f"`{command_of(words)} --help`"
    return error


def command_of(words: Sequence[str]) -> str:
    """Name the command that a line begins with, as far as its words before any option tell."""
    named = list(takewhile(lambda word: not word.startswith("-"), words[:2]))
    if not named or named[0] not in NOUNS:
        return "ledgerctl"
    return " ".join(["ledgerctl", *(named[:1] if named[0] in SINGLE else named)])


def usage_error(error: Exception, words: Sequence[str]) -> UsageError:
    """Turn Typer's usage error into ours: one sentence, with the nearest right word if there is one."""
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
        root = context.find_root().command if context is not None else None
        return no_such_command(path, list(group), words, getattr(root, "commands", {}))
    return UsageError(sentence(text) + nearest_choice(text), hint=f"`{path} --help`")


def nearest_choice(text: str) -> str:
    """End Typer's sentence about a wrong choice with the choice that was probably meant."""
    wrong = WRONG_CHOICE.search(text)
    if wrong is None:
        return ""
    return did_you_mean(get_close_matches(wrong[1].lower(), re.findall("'([^']*)'", wrong[2]), n=1))


WRONG_CHOICE: Final = re.compile(r"'([^']*)' is not one of (.*)", re.DOTALL)


def no_command(path: str, names: Sequence[str]) -> UsageError:
    """Refuse a noun without one of its commands."""
    return UsageError(f"missing command; choose from: {', '.join(names)}", hint=f"`{path} --help`")


def no_such_command(
    path: str, names: Sequence[str], words: Sequence[str], nouns: Mapping[str, Any]
) -> UsageError:
    """Refuse a word that is no command here; name the noun whose command it is, or a near one."""
    depth = len(path.split()) - 1
    word = next((one for one in words[depth:] if not one.startswith("-")), "")
    near = elsewhere(word, path, nouns) or get_close_matches(word, names, n=2)
    return UsageError(
        f"`{path}` has no command {word!r}{did_you_mean(near)}", hint=f"`{path} --help` lists them"
    )


OTHER_WORDS: Final = {  # what the field calls our commands
    "dlq": "dead",
    "dead-letter": "dead",
    "dead-letters": "dead",
    "redrive": "dead requeue",
    "purge": "dead release",
    "worker": "queue work",
}


def elsewhere(word: str, path: str, nouns: Mapping[str, Any]) -> list[str]:
    """Find a word elsewhere: as a noun, as another word for a command, as commands of other nouns."""
    if word in NOUNS and path != "ledgerctl":
        return [f"`ledgerctl {word}`"]
    if word in OTHER_WORDS:
        return [f"`ledgerctl {OTHER_WORDS[word]}`"]
    owners = [name for name in nouns if word in getattr(nouns[name], "commands", ())]
    return [f"`ledgerctl {name} {word}`" for name in owners[:3]]


def no_such_option(error: Any, path: str, words: Sequence[str]) -> UsageError:
    """Refuse an option that the command lacks, or one that stands before the command."""
    name = error.option_name
    if path == "ledgerctl" and any(word in NOUNS for word in words):
        return UsageError(
            f"{name} stands before the command",
            hint=f"options come after the command: `{moved_behind(words)}`",
        )
    known = [text for one in error.ctx.command.params for text in one.opts] if error.ctx else []
    near = get_close_matches(name, known, n=1)
    return UsageError(
        f"`{path}` has no option {name}{did_you_mean(near)}", hint=f"`{path} --help` lists them"
    )


def moved_behind(words: Sequence[str]) -> str:
    """Write the command line with the options that stand before the command at its end."""
    at = next(place for place, word in enumerate(words) if word in NOUNS)
    return shlex.join(["ledgerctl", *words[at:], *words[:at]])


def did_you_mean(near: Sequence[str]) -> str:
    """End a sentence with what was probably meant."""
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
    """Reword Typer's sentence: plain words, small first letter, no full stop."""
    text = " ".join(text.split()).removesuffix(".")
    for theirs, ours in REWORDED:
        text = text.replace(theirs, ours)
    return text[:1].lower() + text[1:]
