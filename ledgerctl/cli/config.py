"""`ledgerctl config`: show every setting with its origin, write a first file, find the file."""

from dataclasses import replace

from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.session import Session, default_format
from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.render.report import Column, Kind, Report, record

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
        columns=(Column("name", kind=Kind.ID), Column("value", kind=Kind.ID), Column("origin")),
        records=settings,
        document={"settings": settings},
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
    return record(
        {"path": str(path), "created": True},
        columns=(Column("path", kind=Kind.ID), Column("created", kind=Kind.FLAG)),
    )


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
        {"path": str(location.path), "exists": location.exists},
        columns=(Column("path", kind=Kind.ID), Column("exists", kind=Kind.FLAG)),
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
