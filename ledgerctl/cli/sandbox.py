"""`ledgerctl sandbox`: private servers to try things on; it never touches a profile's stores."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledgerctl.cli.change import consent
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.session import Session
from ledgerctl.render.report import Column, Kind, Report, columns, members

if TYPE_CHECKING:
    from pathlib import Path

    from ledgerctl.sandbox.servers import ServerStatus

app = noun("sandbox")

COLUMNS = columns(
    Column("name", title="server", kind=Kind.ID), "state pid port uri log", not_shown="log"
)
USE_IT = 'to use it in this shell: eval "$(ledgerctl sandbox env)"'


@command(app, "start", effect=Effect.LOOP)
def start(session: Session) -> Report:
    """Start a private mongod and valkey-server, and wait until they take writes.

    They listen on 127.0.0.1 only, keep their data under your data directory, and go on running
    when this terminal closes. What runs already is left alone.

    Examples: ledgerctl sandbox start
              ledgerctl sandbox start && eval "$(ledgerctl sandbox env)"
    """
    from ledgerctl.sandbox import servers

    directory = servers.own_directory()
    with changing(session, "starting mongod and valkey-server …"):
        running = servers.start(directory)
    return _report(directory, running.servers, foot=(USE_IT,), started=running.started)


@command(app, "stop", effect=Effect.LOOP)
def stop(session: Session) -> Report:
    """Stop the sandbox's servers; their data stay.

    Examples: ledgerctl sandbox stop
              ledgerctl sandbox stop -o json
    """
    from ledgerctl.sandbox import servers

    directory = servers.own_directory()
    with changing(session, "stopping mongod and valkey-server …"):
        stopped = servers.stop(directory)
    return _report(directory, servers.status(directory), stopped=stopped)


@command(app, "status")
def status(_session: Session) -> Report:
    """Show which of the sandbox's servers run, and where.

    `gone` is a server that ended without `sandbox stop`; `sandbox start` brings it back.

    Examples: ledgerctl sandbox status
              ledgerctl sandbox status -o json
    """
    from ledgerctl.sandbox import servers

    directory = servers.own_directory()
    return _report(directory, servers.status(directory))


@command(app, "env")
def env(_session: Session) -> Report:
    """Print `export` lines that point ledgerctl at the running sandbox.

    Examples: eval "$(ledgerctl sandbox env)"
              ledgerctl sandbox env -o json
    """
    from ledgerctl.sandbox import servers

    running = servers.running(servers.own_directory())
    variables = servers.environment(running)
    return Report(
        columns=columns("name value"),
        records=[{"name": name, "value": value} for name, value in variables.items()],
        document=variables,
        text=servers.environment_lines(running),
    )


@command(app, "reset", effect=Effect.LOOP)
def reset(session: Session) -> Report:
    """Stop the sandbox's servers, delete their data and start them empty.

    Examples: ledgerctl sandbox reset
              ledgerctl sandbox reset && ledgerctl demo
    """
    from ledgerctl.sandbox import servers

    directory = servers.own_directory()
    with changing(session, "emptying the sandbox …"):
        running = servers.reset(directory)
    return _report(directory, running.servers, foot=(USE_IT,), started=running.started)


@contextmanager
def changing(session: Session, text: str) -> Iterator[None]:
    """Ask what the profile wants asked before any change, then show what is going on."""
    consent(session, [text], size=1, bulk=False)
    session.progress(text)
    try:
        yield
    finally:
        session.progress_done()


def _report(
    directory: "Path",
    servers: Sequence["ServerStatus"],
    *,
    foot: Sequence[str] = (),
    **changed: Sequence[str],
) -> Report:
    """Return the servers, a row each; the document says besides where they live and what changed."""
    return Report(
        columns=COLUMNS,
        records=[members(one, "name state pid port uri log") for one in servers],
        document={
            "directory": str(directory),
            "running": all(server.uri is not None for server in servers),
            **changed,
        },
        items_key="servers",
        foot=foot,
    )
