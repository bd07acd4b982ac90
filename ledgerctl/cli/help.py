"""Answer `ledgerctl help`: topics that concern several commands, and any command's help."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from ledgerctl.cli.command import command, single
from ledgerctl.cli.session import Session
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Record, Report, columns

app = single("help")


@command(app, "help")
def show_help(
    _session: Session,
    words: Annotated[
        list[str] | None, typer.Argument(help="A topic, or a command's words.", metavar="TOPIC")
    ] = None,
) -> Report:
    """Explain a topic, such as exit-codes, safety, verdicts or codes; or a command.

    Examples: ledgerctl help exit-codes
              ledgerctl help verdicts
              ledgerctl help job refund
    """
    if not words:
        return topics()
    lines = topic(words[0]) if len(words) == 1 else None
    if lines is None:
        lines = iter(command_help(words))
    return text_report(" ".join(words), list(lines))


def topics() -> Report:
    """List the topics."""
    records = [{"topic": name, "about": about} for name, about in TOPICS.items()]
    return Report(
        columns=columns("topic about"),
        records=records,
        document={},
        items_key="topics",
        foot=("", "`ledgerctl help TOPIC`, `ledgerctl COMMAND --help`"),
    )


def text_report(name: str, lines: Sequence[str]) -> Report:
    """Report one topic: lines for people, one text for json; exit codes as records besides."""
    if name == "exit-codes":
        records: list[Record] = [
            {"exit_code": code, "meaning": meaning} for code, meaning in EXIT_CODES
        ]
        return Report(
            columns=columns("exit_code meaning"),
            records=records,
            document={"topic": name},
            items_key="exit_codes",
            text=lines,
        )
    return Report(
        columns=columns("topic text"),
        records=[{"topic": name, "text": "\n".join(lines)}],
        document={"topic": name, "lines": list(lines)},
        text=lines,
    )


def command_help(words: Sequence[str]) -> list[str]:
    """Give the help of a noun or of a command, as its --help prints it."""
    from ledgerctl.cli.app import app as root

    found: Any = typer.main.get_command(root)
    context = found.make_context("ledgerctl", [], resilient_parsing=True)
    for word in words:
        names = list(getattr(found, "commands", ()))
        if word not in names:
            raise UsageError(
                f"there is no topic or command {' '.join(words)!r}{nearest(word, names)}",
                hint="`ledgerctl help` lists the topics, `ledgerctl --help` the commands",
            )
        found = found.commands[word]
        context = found.make_context(word, [], parent=context, resilient_parsing=True)
    return str(found.get_help(context)).split("\n")


def nearest(word: str, names: Sequence[str]) -> str:
    """End a sentence with the word that was probably meant."""
    near = get_close_matches(word, [*names, *(TOPICS if "job" in names else ())], n=1)
    return f": did you mean {near[0]}?" if near else ""


EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "done, or nothing to do, or already done"),
    (1, "a bug in ledgerctl"),
    (2, "usage, settings, or no consent"),
    (3, "refused by a guard or a rule; nothing changed"),
    (4, "the named job, account, message, operation or dead letter does not exist"),
    (5, "a check found something"),
    (6, "a store cannot be reached, is full or busy, or a right is missing"),
    (7, "sent, but the outcome is unknown; running it again is safe"),
    (8, "some done and some not; the report says which"),
    (9, "another run holds the lease, or another operation holds the job; try again"),
    (129, "stopped by SIGHUP; the chunk in hand was finished"),
    (130, "interrupted by Ctrl-C; the chunk in hand was finished"),
    (143, "stopped by SIGTERM; the chunk in hand was finished"),
)

TEXT_WIDTH = 80


def exit_codes() -> Iterator[str]:
    """List the exit codes and their meaning."""
    yield from (f" {code:>3}  {meaning}" for code, meaning in EXIT_CODES)
    yield ""
    yield from text_of("exit-codes")


def environment() -> Iterator[str]:
    """List every setting: its variable, its key in the file, its default."""
    from ledgerctl.settings import SETTINGS

    yield "Strongest first: flag, environment, the chosen profile in the configuration"
    yield "file, the file's top level, default. An empty variable counts as unset."
    for setting in SETTINGS:
        names = [setting.variable, setting.flag]
        names += [f"key {setting.file_key}"] if setting.in_file else []
        names += [f"or {setting.file_key}_file"] if setting.may_be_file else []
        default = setting.default_text or str(setting.default)
        default = default.lower() if isinstance(setting.default, bool) else default
        yield ""
        yield f"  {', '.join(name for name in names if name)}"
        yield f"      {setting.help}"
        yield from textwrap.wrap(
            f"      default: {default}", TEXT_WIDTH, subsequent_indent=" " * 15
        )
    yield ""
    yield "  ledgerctl config show    every setting, its value and what set it"
    yield "  ledgerctl config init    write a commented file, private to you"


def topic(name: str) -> Iterator[str] | None:
    """Give the lines of one topic; None when there is no such topic."""
    if name not in TOPICS:
        return None
    if name in COMPUTED:
        return COMPUTED[name]()
    return text_of(name)


def text_of(name: str) -> Iterator[str]:
    """Yield the lines of one of the texts kept beside this module."""
    texts = Path(__file__).with_name("help_texts")
    yield from (texts / f"{name}.txt").read_text(encoding="utf-8").splitlines()


COMPUTED: dict[str, Callable[[], Iterator[str]]] = {
    "exit-codes": exit_codes,
    "environment": environment,
}
TOPICS = {
    "exit-codes": "what a script can tell from the exit status",
    "environment": "every setting: variable, key, default",
    "time": "how times are given and shown",
    "output": "formats, fields, colour, errors",
    "safety": "what is promised, and what asks first",
    "cron": "running it from cron and systemd",
    "verdicts": "what a dead letter is worth",
    "codes": "audit codes, outcomes of a step, states of a job",
    "deployments": "replica sets, shards, Sentinel, clusters: what was run there",
    "map": "another team's ledger, read under its own names",
    "worker": "a worker of your own, by command or in Python",
}
