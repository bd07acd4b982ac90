"""`ledgerctl doctor`: one look at stores, indexes, rights and queues; a redacted file for a ticket."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from ledgerctl import __version__
from ledgerctl.cli.command import command, single
from ledgerctl.cli.files import regular_file, replace_file
from ledgerctl.cli.session import Session
from ledgerctl.errors import LedgerctlError, OutputFailed
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
    from ledgerctl.render.views.database import checks

    file = None if bundle is None else regular_file(bundle, "--bundle")
    report = checks(examine(session.stores, clock=clock))
    if file is not None:
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


PACKAGES = ("typer", "rich", "pymongo", "redis")
LOGGED = 100  # operations
GROUPS = 20
# Left out unless ids are asked for: names, texts of people and of data, and what may quote them.
WITHHELD = frozenset(
    {
        "detail",
        "error",
        "hint",
        "notes",
        "operation_id",
        "operator",
        "reason",
        "sample_error",
        "sample_job",
        "workers",
    }
)


def pack(session: Session, checks: Report, *, with_ids: bool) -> bytes:
    """Return a gzipped tar of what a ticket needs; secrets never, ids only `with_ids`."""
    import io
    import json
    import tarfile

    from ledgerctl.config import describe

    parts: dict[str, Callable[[], Any]] = {
        "versions": lambda: versions(session),
        "settings": lambda: describe(session.settings),
        "doctor": lambda: document_of(checks),
        "dead-stats": lambda: document_of(dead_stats(session)),
        "queue-stats": lambda: document_of(queue_stats(session)),
        "log": lambda: document_of(log(session)),
        "indexes": lambda: indexes(session),
    }
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name, part in parts.items():
            found = attempted(part)
            kept = found if with_ids or name in {"versions", "settings"} else withheld(found)
            content = json.dumps(kept, indent=1, default=str, ensure_ascii=False).encode()
            member = tarfile.TarInfo(f"ledgerctl/{name}.json")
            member.size, member.mode = len(content), 0o600
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def attempted(part: Callable[[], Any]) -> Any:
    """Return one part, or the code of the error that kept it away."""
    try:
        return part()
    except LedgerctlError as error:
        return {"unavailable": error.code}


def withheld(value: Any) -> Any:
    """Return a document without ids, reasons, error texts and what may quote them."""
    if isinstance(value, Mapping):
        return {key: withheld(one) for key, one in value.items() if key not in WITHHELD}
    if isinstance(value, list):
        return [withheld(one) for one in value]
    return value


def document_of(report: Report) -> Any:
    """Return a report as its JSON document."""
    import io
    import json

    from ledgerctl.render.emit import emit

    out = io.StringIO()
    emit(report, format="json", out=out, err=io.StringIO())
    return json.loads(out.getvalue())


def versions(session: Session) -> dict[str, Any]:
    """Return the versions of everything that takes part."""
    import platform
    from importlib.metadata import version

    stores = session.stores
    return {
        "ledgerctl": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: version(name) for name in PACKAGES},
        "mongodb": attempted(stores.deployment.version),
        "redis": attempted(lambda: str(stores.queue_server.facts().get("redis_version", "?"))),
    }


def indexes(session: Session) -> dict[str, Any]:
    """Return the indexes of each collection, as the server lists them."""
    names = ("ledger", "jobs", "inbox", "outbox", "usage_daily", "dead_archive")
    return {name: [dict(one) for one in session.stores.indexes.present(name)] for name in names}


def dead_stats(session: Session) -> Report:
    """Return what `dead stats` prints."""
    from ledgerctl.operations.dead import count
    from ledgerctl.render.views.dead import statistics

    return statistics(count(session.stores), top=GROUPS, selectors=(), exit_code=0, notes=())


def queue_stats(session: Session) -> Report:
    """Return what `queue stats` prints."""
    from ledgerctl.operations.queue import stats
    from ledgerctl.render.views.queue import stats_report

    return stats_report(stats(session.stores.queues, now=session.now))


def log(session: Session) -> Report:
    """Return what `log list` prints."""
    from ledgerctl.render.views.log import operations

    return operations(*session.stores.operator_log.newest(LOGGED))
