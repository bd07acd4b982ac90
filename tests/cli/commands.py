"""Every command of the live command line, for the tests that walk through all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from ledgerctl.cli.app import app
from ledgerctl.cli.command import REGISTERED
from ledgerctl.cli.nouns import NOUNS


@dataclass(frozen=True)
class Leaf:
    """One command: its words, Typer's command for it, its own function and its examples."""

    path: str
    command: Any
    function: Any
    help: str
    examples: tuple[str, ...]


def _leaves() -> Iterator[Leaf]:
    root: Any = typer.main.get_command(app)
    for name in NOUNS:
        import_module(f"ledgerctl.cli.{name}")
        found = root.commands[name]
        if hasattr(found, "commands"):
            for word, command in found.commands.items():
                yield _leaf(f"{name} {word}", command)
        else:
            yield _leaf(name, found)


def _leaf(path: str, command: Any) -> Leaf:
    known = REGISTERED[path]
    return Leaf(path, command, known.function, known.help, known.examples)


COMMANDS = tuple(_leaves())
