"""Answer `ledgerctl help`: topics that concern several commands, and any command's help."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from ledgerctl.cli.command import command, single
from ledgerctl.cli.session import Session
from ledgerctl.cli.topics import EXIT_CODES, TOPICS, topic
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Column, Kind, Record, Report

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
        columns=(Column("topic", kind=Kind.ID), Column("about")),
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
            columns=(Column("exit_code", kind=Kind.COUNT), Column("meaning")),
            records=records,
            document={"topic": name},
            items_key="exit_codes",
            text=lines,
        )
    return Report(
        columns=(Column("topic", kind=Kind.ID), Column("text")),
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
