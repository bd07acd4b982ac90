"""`ledgerctl metrics`: what matters at night as Prometheus text, and the alerts for it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ledgerctl.cli.command import command, single
from ledgerctl.cli.files import regular_file, replace_file
from ledgerctl.cli.session import Session
from ledgerctl.errors import ExitCode, OutputFailed
from ledgerctl.render.report import Report

app = single("metrics")


class Printed(StrEnum):
    """Name what is printed instead of the figures."""

    RULES = "rules"


@command(app, "metrics")
def metrics(
    session: Session,
    what: Annotated[
        Printed | None, typer.Argument(help="rules: print alerting rules.", metavar="[rules]")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", help="Replace this file atomically.", metavar="FILE")
    ] = None,
) -> Report:
    """Print figures of dead letters, queues, workers, inbox and summaries for Prometheus.

    A store that is away gives ledgerctl_up 0 and exit code 6; the figures of the other are printed
    all the same. `metrics rules` prints alerting rules that name only these.

    Examples: ledgerctl metrics --file /var/lib/node_exporter/ledgerctl-night.prom
              ledgerctl metrics rules > ledgerctl-rules.yml
    """
    from ledgerctl.render.views.metrics import exposition, rules

    target = None if file is None else regular_file(file, "--file")
    if what is Printed.RULES:
        return printed(rules(), target)
    from ledgerctl.operations.metrics import measure

    found = measure(session.stores, now=session.now)
    for error in found.away.values():
        session.note(error.message)
    code = ExitCode.UNAVAILABLE if found.away else ExitCode.DONE
    return printed(exposition(found.samples), target, exit_code=int(code))


def printed(text: str, target: Path | None, *, exit_code: int = 0) -> Report:
    """Report a text, or write it to a file. Raises OutputFailed."""
    if target is not None:
        try:
            replace_file(target, text)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise OutputFailed(f"{target} was not written: {why}") from None
    lines = text.removesuffix("\n").split("\n")
    return Report(
        columns=(),
        document={"text": text},
        text=() if target is not None else lines,
        exit_code=exit_code,
    )
