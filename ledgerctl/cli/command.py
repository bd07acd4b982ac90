"""The frame of every command: the common options, then parse, call, emit."""

import inspect
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from ledgerctl.cli.nouns import NOUNS
from ledgerctl.cli.session import Session, Words
from ledgerctl.cli.usage import TYPER_TROUBLE
from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import LedgerctlError, NotFound
from ledgerctl.render.report import Report


class Effect(StrEnum):
    """Tell what a command may do, hence which options it takes and whether it asks first."""

    READ = "read"  # changes nothing
    CHANGE = "change"  # changes one named thing; asks only on a protected profile
    BULK = "bulk"  # may change many things; asks on a terminal, else wants --yes
    LOOP = "loop"  # runs handlers or questions of its own: no --dry-run, no --reason


class ColorChoice(StrEnum):
    """Tell when to colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


COMMON_OPTIONS: dict[str, Any] = {
    "profile": (Annotated[str | None, typer.Option("--profile", help="Profile of the configuration file.", metavar="NAME")], None),
    "config": (Annotated[str | None, typer.Option("--config", help="Configuration file.", metavar="FILE")], None),
    "output": (Annotated[OutputFormat | None, typer.Option("--output", "-o", help=f"{', '.join(OutputFormat)}; table on a terminal and plain in a pipe.", metavar="FORMAT", show_default=False)], None),
    "fields": (Annotated[str | None, typer.Option("--fields", help="Only these fields, in this order: a,b,c.", metavar="LIST")], None),
    "no_header": (Annotated[bool, typer.Option("--no-header", help="Leave out the header line of plain and csv.")], False),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress.")], False),
    "verbose": (Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")], False),
    "color": (Annotated[ColorChoice, typer.Option("--color", help="auto, always or never.", metavar="WHEN", show_default=False)], ColorChoice.AUTO),
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
    "expect": (Annotated[int | None, typer.Option("--expect", help="Refuse unless exactly this many are selected.", metavar="N")], None),
}  # fmt: skip

OPTIONS_BY_EFFECT: dict[Effect, tuple[dict[str, Any], ...]] = {
    Effect.READ: (COMMON_OPTIONS,),
    Effect.CHANGE: (CHANGE_OPTIONS, CONSENT_OPTIONS, COMMON_OPTIONS),
    Effect.BULK: (CHANGE_OPTIONS, CONSENT_OPTIONS, BULK_OPTIONS, COMMON_OPTIONS),
    Effect.LOOP: (CONSENT_OPTIONS, COMMON_OPTIONS),
}


SECTIONS = ("Arguments", "Options", "Options of every change", "Options of every command")
EXAMPLES = re.compile(r"\s*Examples?:")


def command(
    app: typer.Typer, name: str, *, effect: Effect = Effect.READ
) -> Callable[[Callable[..., Report | None]], Callable[..., Report | None]]:
    """Add a function to `app` as the command `name`, with the options that its effect asks for.

    The function gets a `Session` first, then its own words by name; the Report it returns is
    printed and decides the exit code. Its docstring is the help text; what follows `Examples:` in
    it is shown line by line.
    """

    def register(function: Callable[..., Report | None]) -> Callable[..., Report | None]:
        path = command_path(app, name)
        text, examples = split_examples(inspect.cleandoc(docstring_of(function)))
        REGISTERED[path] = Registered(path, effect, function, text, examples)
        app.command(name, cls=Leaf, help=text)(_callback(path, effect, function))
        return function

    return register


def docstring_of(function: Callable[..., Report | None]) -> str:
    """Return a function's docstring, from its source where `python -OO` has left it out."""
    if function.__doc__ or sys.flags.optimize < 2:  # noqa: PLR2004  # -OO
        return function.__doc__ or ""
    import ast

    (tree,) = ast.parse(inspect.getsource(inspect.unwrap(function))).body
    return (ast.get_docstring(tree) if isinstance(tree, ast.FunctionDef) else None) or ""


def _callback(path: str, effect: Effect, function: Callable[..., Report | None]) -> Any:
    """Return the function as Typer calls it: its own words and the common ones, in one signature."""
    groups = OPTIONS_BY_EFFECT[effect]
    shared = {key: option for group in groups for key, option in group.items()}
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    def run(**words: Any) -> None:
        common = {key: words.pop(key) for key in shared}
        session = Session(Words(command=path, effect=effect.value, **common))
        with session:
            code = run_command(session, function, words)
        raise typer.Exit(code)

    parameters = own + [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for key, (kind, default) in shared.items()
    ]
    run.__name__ = function.__name__
    run.__module__ = function.__module__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # how inspect is told
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def run_command(
    session: Session, function: Callable[..., Report | None], words: dict[str, Any]
) -> int:
    """Run a command's own part and print its Report; what it raises is ours, a signal a signal."""
    try:
        session.heed_map()
        if session.words.effect in {Effect.CHANGE, Effect.BULK}:
            session.permit()
        return session.emit(function(session, **words))
    except (LedgerctlError, BrokenPipeError, TYPER_TROUBLE, typer.Exit) as error:
        if session.stop.ended is not None:  # whatever a driver made of it
            raise session.stop.ended from None
        if isinstance(error, NotFound):
            session.check_place()
            error.message = session.located(error.message)
        raise
    except Exception as error:  # noqa: BLE001  # only here it is known what must not be printed
        raise session.stop.ended or session.bug(error) from None


class Registered(NamedTuple):
    """Tell what the program knows of one command besides its parameters."""

    path: str
    effect: Effect
    function: Callable[..., Report | None]
    help: str
    examples: tuple[str, ...]


REGISTERED: dict[str, Registered] = {}


def split_examples(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a help text without its examples, and the examples, one command line each."""
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if EXAMPLES.match(line)), len(lines))
    examples = (EXAMPLES.sub("", line).strip() for line in lines[start:])
    return "\n".join(lines[:start]).strip(), tuple(one for one in examples if one)


def summary(path: str) -> str:
    """Return the first sentence of a command's help, on one line."""
    first = " ".join(REGISTERED[path].help.split("\n\n")[0].split())
    return first.partition(". ")[0].partition(": ")[0].partition("; ")[0].removesuffix(".")


class Group(TyperGroup):
    """Provide a noun whose help tells each command in a whole sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without making any of them."""
        noun = ctx.command_path.partition(" ")[2]
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(f"{noun} {name}")) for name in self.commands])


# Typer has no option with an optional value.
VALUE_OF_BARE: dict[str, tuple[str, str]] = {"queue stats": ("--watch", "2s")}


class Leaf(TyperCommand):
    """Provide a command whose help shows examples first and its own options apart from the common ones."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words, an option that may stand bare with its value put in."""
        option, value = VALUE_OF_BARE.get(ctx.command_path.partition(" ")[2], ("", ""))
        for at, word in enumerate(args):
            if word == option and (at + 1 == len(args) or args[at + 1].startswith("-")):
                args = [*args[: at + 1], value, *args[at + 1 :]]
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what it does, then its examples, each on a line of its own."""
        super().format_help_text(ctx, formatter)
        known = REGISTERED.get(ctx.command_path.partition(" ")[2])
        if known is None or not known.examples:
            return
        with formatter.section("Examples"):
            for example in known.examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, the command's own options, those of every change, those of every command."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in SECTIONS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections[section_of(parameter)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def section_of(parameter: Any) -> str:
    """Return the section of the help in which a parameter stands."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    if parameter.name in COMMON_OPTIONS or parameter.name == "help":
        return "Options of every command"
    if parameter.name in {**CHANGE_OPTIONS, **CONSENT_OPTIONS, **BULK_OPTIONS}:
        return "Options of every change"
    return "Options"


def command_path(app: typer.Typer, name: str) -> str:
    """Return the command as the operator types it, without the program's name: `job refund`."""
    group = app.info.name if isinstance(app.info.name, str) else ""
    return name if name == group else f"{group} {name}".strip()


def noun(name: str) -> typer.Typer:
    """Return an empty group of commands, with plain help and no completion of Typer's own."""
    group = single(name)
    group.info.cls = Group

    @group.callback(help=NOUNS[name])
    def _group() -> None:
        pass

    return group


def single(name: str) -> typer.Typer:
    """Return a noun that is one command of the same name: `doctor`."""
    return typer.Typer(
        name=name,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
