"""`ledgerctl doctor`: one look at stores, indexes, rights and queues."""

import time
from datetime import datetime, timedelta

from ledgerctl.cli.command import command, single
from ledgerctl.cli.session import Session
from ledgerctl.render.report import Report

app = single("doctor")


@command(app, "doctor")
def doctor(session: Session) -> Report:
    """Check stores, indexes, rights and queues; changes nothing, never waits long.

    One line each: ok, warn, fail, or unknown where a store is down or the user may not ask. Ends
    with exit code 5 when a check failed.

    Example: ledgerctl doctor

    Example: ledgerctl doctor -o json
    """
    clock = Clock(session.now, time.monotonic())
    from ledgerctl.operations.doctor import examine
    from ledgerctl.render.views.doctor import checks

    return checks(examine(session.stores, clock=clock))


class Clock:
    """Continue this machine's clock from the run's one reading of it."""

    def __init__(self, now: datetime, at: float) -> None:
        self._now, self._at = now, at

    def __call__(self) -> datetime:
        """Return the time now, aware UTC."""
        return self._now + timedelta(seconds=time.monotonic() - self._at)
