"""The root of the command line: nouns loaded on demand, and the one boundary for errors."""

import json
import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from ledgerctl.cli.nouns import NOUNS
from ledgerctl.cli.session import drop_stdout
from ledgerctl.errors import ExitCode, Interrupted, LedgerctlError, UsageError

# Typer names its usage errors' base only from 0.27 on; this holds for every version allowed.
TYPER_TROUBLE: type[Exception] = typer.BadParameter.__mro__[2]


class LazyNouns(MutableMapping[str, Any]):
    """The nouns by name; the module of a noun is imported when its commands are asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module = import_module(NOUNS[name].module)
            self._loaded[name] = typer.main.get_command(module.app)
            self._loaded[name].name = name
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NOUNS)

    def __len__(self) -> int:
        return len(NOUNS)


class Root(TyperGroup):
    """The root group: knows every noun by name, and turns every error into its exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyNouns()

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # Typer's own signature
        """List the nouns from the table, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, noun.text) for name, noun in NOUNS.items()])

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
            return int(super().main(args=words, standalone_mode=False, **settings) or 0)
        except LedgerctlError as error:
            return report_error(error, as_json=wants_json(words))
        except KeyboardInterrupt:
            return report_error(Interrupted("interrupted"), as_json=wants_json(words))
        except BrokenPipeError:
            drop_stdout()
            return int(ExitCode.DONE)
        except TYPER_TROUBLE as error:
            return report_error(usage_error(error), as_json=wants_json(words))


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


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a bug becomes exit 1 with its trace."""
    prepare_streams()
    try:
        typer.main.get_command(app).main(args=list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    except Exception as error:  # noqa: BLE001  # the last boundary: a bug is reported as one
        return report_bug(error, as_json=wants_json(list(arguments)))
    return 0


def prepare_streams() -> None:
    """Never fail on a character that the output cannot show; it is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def wants_json(words: Sequence[str]) -> bool:
    """Whether this command line asks for json, judged before it is parsed."""
    for at, word in enumerate(words):
        if word in {"-o", "--output"}:
            return list(words[at + 1 : at + 2]) == ["json"]
        if word in {"-ojson", "--output=json"}:
            return True
        if word.startswith(("-o", "--output=")):
            return False
    return os.environ.get("LEDGERCTL_OUTPUT") == "json"


def usage_error(error: Exception) -> UsageError:
    """Typer's complaint as ours; a group without a command shows its help."""
    text = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return UsageError(text)
    path = context.command_path if context is not None else "ledgerctl"
    return UsageError(text, hint=f"try `{path} --help`")


def report_error(error: LedgerctlError, *, as_json: bool) -> int:
    """Print one error on stderr, as three short lines or as one document, and return its code."""
    from ledgerctl.render.text import visible

    code = int(error.exit_code)
    if sys.stderr is None:
        return code
    if as_json:
        document = {
            "error": {
                "code": error.code,
                "message": error.message,
                "hint": error.hint,
                "exit_code": code,
            }
        }
        sys.stderr.write(json.dumps(document, ensure_ascii=True) + "\n")
        return code
    for line in error.message.splitlines()[:1]:
        sys.stderr.write(f"error: {visible(line)}\n")
    for line in error.message.splitlines()[1:]:
        sys.stderr.write(visible(line) + "\n")
    if error.hint:
        sys.stderr.write(f"  try: {visible(error.hint)}\n")
    sys.stderr.write(f"  [{error.code}, exit {code}]\n")
    return code


def report_bug(error: Exception, *, as_json: bool) -> int:
    """Report an unexpected exception as a bug, with a trace that shows no values."""
    import traceback

    from ledgerctl.secrets import without_credentials

    where = "".join(traceback.format_tb(error.__traceback__)[-3:])
    text = without_credentials(f"{type(error).__name__}: {error}")
    found = LedgerctlError(
        f"this is a bug in ledgerctl: {text}", hint="please report it with the lines above"
    )
    if not as_json and sys.stderr is not None:
        sys.stderr.write(where)
    return report_error(found, as_json=as_json)
