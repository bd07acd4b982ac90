"""Lay out the whole command line as a table, from which completion files and tests are made."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import typer

from ledgerctl.cli.command import COMMON_OPTIONS, summary
from ledgerctl.cli.nouns import NOUNS
from ledgerctl.cli.topics import TOPICS
from ledgerctl.domain.output_format import OutputFormat

FLAG, TEXT, FILE = "", "-", "@file"

# What stands for a value, by its metavar; the rest is free text.
KINDS: Final[dict[str, str]] = {
    "JOB": "@job",
    "JOB|DIGEST": "@job",
    "ACCOUNT": "@account",
    "OPERATION_ID": "@operation",
    "FILE": FILE,
    "PLAN": FILE,
    "FORMAT": ",".join(OutputFormat),
    "WHEN": "auto,always,never",
    "SHELL": "bash,zsh,fish",
    "TOPIC": ",".join(TOPICS),
}
KINDS_HERE: Final[dict[tuple[str, str], str]] = {
    ("dead", "--group"): "@group",  # a group of errors; elsewhere a consumer group
    ("dead", "JOB"): "@dead",
    ("dead", "JOB|DIGEST"): "@dead",
    ("dead", "OPERATION_ID"): "@taken",  # what a restore can undo
    ("inbox", "--topic"): TEXT,
    ("queue", "LIST"): "retry,dead-letter,processing",
}


@dataclass(frozen=True, slots=True)
class OptionEntry:
    """Hold one option: its spellings, its help, and the kind of its value (FLAG without one)."""

    names: tuple[str, ...]
    help: str
    kind: str
    common: bool


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Hold one command: its words, its summary, its options and the kind of its arguments."""

    path: str
    summary: str
    options: tuple[OptionEntry, ...]
    words: str


@cache
def command_table() -> tuple[CommandEntry, ...]:
    """Return every command in the order of the help; imports every noun."""
    return tuple(_entries())


def _entries() -> Iterator[CommandEntry]:
    from ledgerctl.cli.app import app

    root: Any = typer.main.get_command(app)
    for name in NOUNS:
        found = root.commands[name]
        for word, leaf in getattr(found, "commands", {"": found}).items():
            path = f"{name} {word}".strip()
            yield CommandEntry(path, summary(path), tuple(_options(name, leaf)), _words(name, leaf))


def _options(noun: str, leaf: Any) -> Iterator[OptionEntry]:
    for one in leaf.params:
        if one.param_type_name == "option":
            kind = FLAG if one.is_flag else _kind(noun, one, one.opts[0])
            yield OptionEntry(tuple(one.opts), one.help or "", kind, one.name in COMMON_OPTIONS)
    yield OptionEntry(("--help", "-h"), "Show this message and exit.", FLAG, common=True)


def _words(noun: str, leaf: Any) -> str:
    arguments = [one for one in leaf.params if one.param_type_name == "argument"]
    return _kind(noun, arguments[0], arguments[0].metavar or "") if arguments else FLAG


def _kind(noun: str, parameter: Any, name: str) -> str:
    here = KINDS_HERE.get((noun, name))
    if here is not None:
        return here
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return ",".join(str(getattr(one, "value", one)) for one in choices)
    return KINDS.get((parameter.metavar or "").strip("[]. …"), TEXT)
