"""The frame of every command: the common options, then parse, call, emit."""

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Protocol

import typer

from ledgerctl.cli.nouns import NOUNS
from ledgerctl.cli.session import Session, Words
from ledgerctl.render.report import Report


class Effect(StrEnum):
    """What a command may do, hence which options it takes and whether it asks first."""

    READ = "read"  # changes nothing
    CHANGE = "change"  # changes one named thing; asks only on a protected profile
    BULK = "bulk"  # may change many things; asks on a terminal, else wants --yes
    LOOP = "loop"  # runs handlers or questions of its own: no --dry-run, no --reason


class Format(StrEnum):
    """The output formats, in the order of the help."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class ColorChoice(StrEnum):
    """When to colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class CommandFunction(Protocol):
    """A command's own part: takes the session and its own words, returns what to print."""

    __name__: str

    def __call__(self, session: Session, /, **words: Any) -> Report | None: ...


COMMON_OPTIONS: dict[str, Any] = {
    "profile": (Annotated[str | None, typer.Option("--profile", help="Profile of the configuration file.", metavar="NAME")], None),
    "config": (Annotated[str | None, typer.Option("--config", help="Configuration file.", metavar="FILE")], None),
    "output": (Annotated[Format | None, typer.Option("--output", "-o", help="Output format: table on a terminal, plain in a pipe.")], None),
    "fields": (Annotated[str | None, typer.Option("--fields", help="Only these fields, in this order: a,b,c.", metavar="LIST")], None),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress.")], False),
    "verbose": (Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")], False),
    "color": (Annotated[ColorChoice, typer.Option("--color", help="When to colour.")], ColorChoice.AUTO),
}  # fmt: skip

CHANGE_OPTIONS: dict[str, Any] = {
    "dry_run": (Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing, ask nothing.")], False),
    "reason": (Annotated[str | None, typer.Option("--reason", help="Why, kept in the operator log.", metavar="TEXT")], None),
}  # fmt: skip

CONSENT_OPTIONS: dict[str, Any] = {
    "yes": (Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")], False),
    "confirm": (Annotated[str | None, typer.Option("--confirm", help="A protected profile's name, instead of typing it.", metavar="NAME")], None),
}  # fmt: skip

BULK_OPTIONS: dict[str, Any] = {
    "expect": (Annotated[int | None, typer.Option("--expect", min=0, help="Refuse unless exactly this many are selected.", metavar="N")], None),
}  # fmt: skip

OPTIONS_BY_EFFECT: dict[Effect, tuple[dict[str, Any], ...]] = {
    Effect.READ: (COMMON_OPTIONS,),
    Effect.CHANGE: (CHANGE_OPTIONS, CONSENT_OPTIONS, COMMON_OPTIONS),
    Effect.BULK: (CHANGE_OPTIONS, CONSENT_OPTIONS, BULK_OPTIONS, COMMON_OPTIONS),
    Effect.LOOP: (CONSENT_OPTIONS, COMMON_OPTIONS),
}


def command(
    app: typer.Typer, name: str, *, effect: Effect = Effect.READ
) -> Callable[[Callable[..., Report | None]], Callable[..., Report | None]]:
    """Add a function to `app` as the command `name`, with the options that its effect asks for.

    The function gets a `Session` first, then its own words by name; the Report it returns is
    printed and decides the exit code. Its docstring is the help text.
    """

    def register(function: Callable[..., Report | None]) -> Callable[..., Report | None]:
        shared = {
            key: option for group in OPTIONS_BY_EFFECT[effect] for key, option in group.items()
        }
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def run(**words: Any) -> None:
            common = {key: words.pop(key) for key in shared}
            session = Session(Words(command=command_path(app, name), effect=effect.value, **common))
            with session:
                if effect in {Effect.CHANGE, Effect.BULK}:
                    session.permit()
                report = function(session, **words)
                code = session.emit(report)
            raise typer.Exit(code)

        parameters = own + [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for key, (kind, default) in shared.items()
        ]
        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__module__ = function.__module__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # how inspect is told
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name, help=inspect.cleandoc(function.__doc__ or ""))(run)
        return function

    return register


def command_path(app: typer.Typer, name: str) -> str:
    """The command as the operator types it, without the program's name: `job refund`."""
    group = app.info.name if isinstance(app.info.name, str) else ""
    return name if name == group else f"{group} {name}".strip()


def noun(name: str) -> typer.Typer:
    """An empty group of commands, with plain help and no completion of Typer's own."""
    group = single(name)

    @group.callback(help=NOUNS[name].text)
    def _group() -> None:
        pass

    return group


def single(name: str) -> typer.Typer:
    """A noun that is one command of the same name: `doctor`."""
    return typer.Typer(
        name=name,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
