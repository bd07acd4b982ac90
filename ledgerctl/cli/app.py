"""The root of the command line: nouns loaded on demand, and every error turned into its code."""

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperGroup

from ledgerctl.cli.boundary import (
    bug,
    drop,
    output_trouble,
    prepare_streams,
    report_error,
    wants_json,
    wants_quiet,
)
from ledgerctl.cli.nouns import NOUNS
from ledgerctl.cli.usage import TYPER_TROUBLE, advised, usage_error
from ledgerctl.errors import ExitCode, Interrupted, LedgerctlError, UsageError


class LazyNouns(MutableMapping[str, Any]):
    """Provide the nouns by name; the module of a noun is imported when its commands are asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in NOUNS:
            raise KeyError(name)
        if name not in self._loaded:
            module = import_module(f"ledgerctl.cli.{name}")
            self._loaded[name] = command_of(module.app, name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NOUNS)

    def __len__(self) -> int:
        return len(NOUNS)


def command_of(noun: typer.Typer, name: str) -> Any:
    """Typer's group for a noun, or its one command; a group's commands are made when asked for."""
    if noun.registered_callback is None:
        found = typer.main.get_command(noun)
    else:
        commands, noun.registered_commands = noun.registered_commands, []
        found = typer.main.get_command(noun)
        noun.registered_commands = commands
        cast(Any, found).commands = LazyCommands(commands)
    found.name = name
    return found


class LazyCommands(Mapping[str, Any]):
    """Provide the commands of a noun by name, each made from its function when it is asked for."""

    def __init__(self, registered: Sequence[Any]) -> None:
        self._registered = {one.name: one for one in registered}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.registered_commands = [self._registered[name]]
            self._made[name] = typer.main.get_command(alone)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)


class Root(TyperGroup):
    """Provide the root group: knows every noun by name, and turns every error into its exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyNouns()

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # Typer's own signature
        """List the nouns from the table, without importing any; say where to begin."""
        with formatter.section("Commands"):
            formatter.write_dl(list(NOUNS.items()))
        with formatter.section("Begin with"):
            formatter.write_dl(list(BEGIN))

    def invoke(self, ctx: Any) -> Any:
        """Run one command; trouble with stdout and Ctrl-C are told as ours before Typer sees them."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            drop(sys.stdout)
            raise typer.Exit(int(ExitCode.DONE)) from None
        except OSError as error:
            trouble = output_trouble(error)
            if trouble is None:
                raise
            raise trouble from None
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002  # Typer's own signature
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command and exit; the same boundary in the shell and in a test runner."""
        words = list(sys.argv[1:] if args is None else args)
        settings = {
            "prog_name": prog_name or "ledgerctl",
            "complete_var": complete_var,
            "windows_expand_args": windows_expand_args,
        }
        sys.exit(self._guarded(words, {**settings, **extra}))

    def _guarded(self, words: list[str], settings: dict[str, Any]) -> int:
        try:
            words = [as_typed(word) for word in words]
            return int(super().main(args=words, standalone_mode=False, **settings) or 0)
        except LedgerctlError as error:
            found = advised(error, words)
        except TYPER_TROUBLE as error:
            found = usage_error(error, words)
        except Exception as error:  # noqa: BLE001  # the last boundary: a bug is reported as one
            found = bug(error)
        return report_error(found, as_json=wants_json(words, os.environ), quiet=wants_quiet(words))


BEGIN = (
    ("ledgerctl demo", "a tour on private servers that it starts itself"),
    ("ledgerctl doctor", "is everything in order?"),
    ("ledgerctl COMMAND -h", "what a command does, with examples"),
    ("ledgerctl help safety", "what is promised; also verdicts, codes, exit-codes and others"),
)

app = typer.Typer(
    cls=Root,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", "-V", help="Show the version and exit."),
) -> None:
    """Operate a credits ledger: explain balances, drain dead letters, rebuild daily summaries."""
    if version:
        from ledgerctl import __version__

        typer.echo(f"ledgerctl {__version__}")
        raise typer.Exit


def as_typed(word: str) -> str:
    """Return a word of the command line as text: what is typed is UTF-8, also under a plain C locale.

    Raises UsageError for bytes that are none, since no store could hold them.
    """
    try:
        word.encode()
    except UnicodeEncodeError:  # bytes that the locale could not read stand in it as surrogates
        with suppress(UnicodeError):
            return os.fsencode(word).decode()
    else:
        return word
    raise UsageError("a word of the command line is not UTF-8 text", hint="type it again")


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    prepare_streams()
    try:
        typer.main.get_command(app).main(args=list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0
