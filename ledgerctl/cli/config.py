"""`ledgerctl config`: show every setting with its origin, write a first file, find the file."""

from dataclasses import replace
from typing import Annotated

import typer

from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.session import Session, default_format
from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.render.report import Column, Report, columns, record

app = noun("config")


@command(app, "show")
def show(session: Session) -> Report:
    """Show every setting, its value and what set it; secrets are hidden.

    Example: ledgerctl config show --profile production

    Example: ledgerctl config show -o json
    """
    from ledgerctl.config import describe

    settings = describe(session.settings)
    return Report(
        columns=columns("name value origin"), records=settings, document={"settings": settings}
    )


@command(app, "map")
def propose_map(
    session: Session,
    database: Annotated[
        str | None, typer.Option("--database", help="The database to look into.", metavar="NAME")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option("--ledger", help="The collection of the rows.", metavar="COLLECTION"),
    ] = None,
    jobs: Annotated[
        str | None, typer.Option("--jobs", help="The collection of the jobs.", metavar="COLLECTION")
    ] = None,
) -> Report:
    """Propose a map of another team's ledger for the configuration file; writes nothing.

    Looks at up to 1,000 documents of each collection. What is unsure stands as a comment. Exit 5
    where an amount, an account or a time is not to be told.

    Example: ledgerctl config map --database billing >> ~/.config/ledgerctl/config.toml

    Example: ledgerctl config map --ledger credit_entries --jobs tasks
    """
    from ledgerctl.operations.foreign import look_for_map

    settings = session.settings
    session.choose(replace(settings, map=None, database=database or settings.database))
    found = look_for_map(session.stores, ledger, jobs)
    return Report(
        columns=(Column("map"),),
        records=[{"map": line} for line in found.lines],
        document={"map": "\n".join(found.lines), "untold": found.untold},
        text=found.lines,
        exit_code=5 if found.untold else 0,
    )


@command(app, "init", effect=Effect.LOOP)
def init(session: Session) -> Report:
    """Write a commented configuration file, private to you; never replaces one.

    Every setting stands in it with its default, its variable and its unit.

    Example: ledgerctl config init

    Example: ledgerctl config init --config ./production.toml
    """
    from ledgerctl.config_file import locate, write_new
    from ledgerctl.settings import commented_file

    _judge_output_without_file(session)
    path = locate(session.environment, session.words.config).path
    write_new(path, commented_file())
    return record({"path": str(path), "created": True}, columns=columns("path created"))


@command(app, "path")
def path(session: Session) -> Report:
    """Print the path of the configuration file in use, or of the one that would be.

    Works when that file is absent or broken. In a pipe the path stands alone: `cat "$(ledgerctl
    config path)"`.

    Example: ledgerctl config path

    Example: ledgerctl config path -o json
    """
    from ledgerctl.config_file import locate

    _judge_output_without_file(session)
    location = locate(session.environment, session.words.config)
    report = record(
        {"path": str(location.path), "exists": location.exists}, columns=columns("path exists")
    )
    if session.format != "plain" or session.words.fields:
        return report
    return replace(report, text=[str(location.path)])


def _judge_output_without_file(session: Session) -> None:
    """Settle the output format before anything reads the file, which may be absent or broken."""
    chosen = session.words.output or session.environment.get("LEDGERCTL_OUTPUT")
    session.words = session.words._replace(
        output=chosen if chosen in list(OutputFormat) else default_format()
    )
