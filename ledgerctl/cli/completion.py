"""`ledgerctl completion`: the completion files of bash, zsh and fish, made from the command table.

Words are static, values are looked up: no file starts Python for a static word. Ids come from
`ledgerctl --complete KIND WORDS…`, which answers from a cache or within a second, and never prints
an error.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ledgerctl.cli.command import COMMON_OPTIONS, command, noun, summary
from ledgerctl.cli.help import TOPICS
from ledgerctl.cli.nouns import NOUNS
from ledgerctl.cli.session import Session
from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.render.report import Report, columns

app = noun("completion")


class Shell(StrEnum):
    """List the shells that are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(app, "show")
def show(
    _session: Session,
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", metavar="SHELL")],
) -> Report:
    """Print the completion file of a shell; it edits nothing.

    The wheel also installs the three files under its prefix's share/, where bash-completion finds
    the first by itself and fish and zsh look when share/ is on their paths.

    Examples: ledgerctl completion show bash > ~/.local/share/bash-completion/completions/ledgerctl
              ledgerctl completion show zsh > ~/.zfunc/_ledgerctl
              ledgerctl completion show fish > ~/.config/fish/completions/ledgerctl.fish
    """
    text = completion_file(shell.value)
    lines = text.removesuffix("\n").split("\n")
    return Report(
        columns=columns("shell text"),
        records=[{"shell": shell.value, "text": text}],
        document={"shell": shell.value, "lines": lines},
        text=lines,
    )


# the command table

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


# what the three files share


def completion_file(shell: str) -> str:
    """Return the whole completion file of a shell: its text, the table's lines put in."""
    text = Path(__file__).with_name("completion_texts").joinpath(shell).read_text(encoding="utf-8")
    for name, lines in PARTS[Shell(shell)](command_table()).items():
        text = text.replace(f"@{name}@", "\n".join(lines))
    return text


def by_noun(table: Iterable[CommandEntry]) -> dict[str, list[CommandEntry]]:
    """Return the commands of each noun that has any below it."""
    nouns: dict[str, list[CommandEntry]] = {}
    for entry in table:
        if " " in entry.path:
            nouns.setdefault(entry.path.split()[0], []).append(entry)
    return nouns


def own(entry: CommandEntry) -> list[OptionEntry]:
    """Return the options that not every command has."""
    return [option for option in entry.options if not option.common]


def common(table: tuple[CommandEntry, ...]) -> list[OptionEntry]:
    """Return the options of every command."""
    return [option for option in table[0].options if option.common]


def spellings(options: Iterable[OptionEntry]) -> str:
    """Return the long spellings, separated by blanks."""
    return " ".join(name for option in options for name in option.names if name.startswith("--"))


def kinds(options: Iterable[OptionEntry]) -> str:
    """Return the options that take a value as `--name=kind` words."""
    return " ".join(
        f"{name}={option.kind}"
        for option in options
        if option.kind != FLAG
        for name in option.names
    )


def quoted(text: str) -> str:
    """Return a text in single quotes, for any of the shells."""
    return "'" + text.replace("'", "'\\''") + "'"


Table = tuple[CommandEntry, ...]
Parts = Mapping[str, Iterable[str]]


def bash(table: Table) -> Parts:
    """Fill the file for bash 4.2 and newer; it needs nothing of the bash-completion package."""
    return {
        "entries": bash_entries(table),
        "nouns": [",".join(NOUNS)],
        "common": [spellings(common(table))],
        "common_values": [kinds(common(table))],
        "commands": (
            f"    {group}) echo '{','.join(entry.path.split()[1] for entry in entries)}' ;;"
            for group, entries in by_noun(table).items()
        ),
    }


def bash_entries(table: Table) -> Iterator[str]:
    """Yield what each command takes."""
    for entry in table:
        yield f"    '{entry.path}') options='{spellings(own(entry))}' plain='{entry.words or '-'}'"
        yield f"      values='{kinds(own(entry))}' ;;"


def zsh(table: Table) -> Parts:
    """Fill the file for zsh, in fpath as `_ledgerctl` or sourced; the first TAB works."""
    return {
        "nouns": (f"    {described(name, about)}" for name, about in NOUNS.items()),
        "commands": zsh_commands(table),
        "entries": zsh_entries(table),
        "common": zsh_options(common(table)),
        "common_values": [zsh_values(common(table))],
    }


def zsh_commands(table: Table) -> Iterator[str]:
    """Yield the commands of each noun with their summaries."""
    for group, entries in by_noun(table).items():
        yield f"    {group})"
        yield "      commands=("
        for entry in entries:
            yield f"        {described(entry.path.split()[1], entry.summary)}"
        yield "      )"
        yield "      if (( CURRENT == 3 )); then _describe -t commands 'command' commands; return; fi"
        yield '      at+=" $words[3]" ;;'


def zsh_entries(table: Table) -> Iterator[str]:
    """Yield what each command takes."""
    for entry in table:
        yield f"    '{entry.path}')"
        yield f"      plain='{entry.words or '-'}'"
        yield f"      values=({zsh_values(own(entry))})"
        yield "      options=("
        yield from zsh_options(own(entry))
        yield "      ) ;;"


def zsh_values(options: Iterable[OptionEntry]) -> str:
    """Return the options that take a value as words of an array."""
    return " ".join(map(quoted, kinds(options).split()))


def zsh_options(options: Iterable[OptionEntry]) -> Iterator[str]:
    """Yield each long option with its help."""
    for option in options:
        for name in option.names:
            if name.startswith("--"):
                yield f"        {described(name, option.help)}"


def described(word: str, text: str) -> str:
    """Return a word and its help as zsh's `_describe` reads them."""
    return quoted(f"{word}:{text.removesuffix('.')}".replace("\\", "\\\\"))


def fish(table: Table) -> Parts:
    """Fill the file for fish 3.1 and newer."""
    return {
        "nouns": (
            f"complete -c ledgerctl -n \"__ledgerctl_wants ''\" -a {name} -d {quoted(about)}"
            for name, about in NOUNS.items()
        ),
        "commands": (
            f"complete -c ledgerctl -n '__ledgerctl_wants {group}' -a {entry.path.split()[1]}"
            f" -d {quoted(entry.summary)}"
            for group, entries in by_noun(table).items()
            for entry in entries
        ),
        "entries": fish_entries(table),
    }


def fish_entries(table: Table) -> Iterator[str]:
    """Yield what each command takes."""
    for entry in table:
        here = f"complete -c ledgerctl -n \"__ledgerctl_at '{entry.path}'\""
        if entry.words not in {FLAG, "-"}:
            yield f"{here} {fish_values(entry.words)}"
        for option in entry.options:
            yield f"{here} {fish_option(option)}"


def fish_option(option: OptionEntry) -> str:
    """Return one option: its spellings, its values, its help."""
    names = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    values = [] if option.kind == FLAG else [f"-x {fish_values(option.kind)}".strip()]
    if option.kind == FILE:
        values = ["-r -F"]
    return " ".join([*names, *values, f"-d {quoted(option.help.removesuffix('.'))}"])


def fish_values(kind: str) -> str:
    """Return the values of a kind."""
    if kind == FILE:
        return "-F"
    if kind.startswith("@"):
        return f"-a '(__ledgerctl_ids {kind[1:]})'"
    return "" if kind == "-" else f"-a {quoted(kind.replace(',', ' '))}"


PARTS: Final = {Shell.BASH: bash, Shell.ZSH: zsh, Shell.FISH: fish}
FILE_NAMES: Final = {"bash": "ledgerctl.bash", "zsh": "_ledgerctl", "fish": "ledgerctl.fish"}
