"""`ledgerctl doctor`: one look at stores, indexes, rights and queues."""

import time
from datetime import datetime, timedelta
from typing import Annotated

import typer

from ledgerctl.cli.command import command, single
from ledgerctl.cli.files import regular_file, replace_file
from ledgerctl.cli.session import Session
from ledgerctl.errors import OutputFailed
from ledgerctl.render.report import Report

app = single("doctor")


@command(app, "doctor")
def doctor(
    session: Session,
    bundle: Annotated[
        str | None,
        typer.Option(
            "--bundle", help="Write one redacted file (tar.gz) for a ticket.", metavar="FILE"
        ),
    ] = None,
    with_ids: Annotated[
        bool, typer.Option("--with-ids", help="Keep ids, reasons and error texts in it.")
    ] = False,
) -> Report:
    """Check stores, indexes, rights and queues; changes nothing, never waits long.

    One line each: ok, warn, fail, or unknown where a store is down or the user may not ask. Ends
    with exit code 5 when a check failed. A bundle holds versions, settings without secrets,
    indexes, and what doctor, `dead stats`, `queue stats` and `log list` say; never a payload.

    Examples: ledgerctl doctor
              ledgerctl doctor --bundle ticket-8812.tar.gz
    """
    clock = Clock(session.now, time.monotonic())
    from ledgerctl.operations.doctor import examine
    from ledgerctl.render.views.doctor import checks

    file = None if bundle is None else regular_file(bundle, "--bundle")
    report = checks(examine(session.stores, clock=clock))
    if file is not None:
        from ledgerctl.cli.bundle import bundle as pack

        content = pack(session, report, with_ids=with_ids)
        try:
            replace_file(file, content, mode=0o600)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise OutputFailed(f"the bundle {file} was not written: {why}") from None
        session.note(f"wrote {file}")
    return report


class Clock:
    """Continue this machine's clock from the run's one reading of it."""

    def __init__(self, now: datetime, at: float) -> None:
        self._now, self._at = now, at

    def __call__(self) -> datetime:
        """Return the time now, aware UTC."""
        return self._now + timedelta(seconds=time.monotonic() - self._at)
