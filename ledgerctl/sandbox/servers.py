"""The sandbox: one private mongod and one private valkey-server that outlive the terminal."""

import contextlib
import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ledgerctl.errors import SettingsError, StoreUnavailable
from ledgerctl.sandbox.binaries import MONGOD, VALKEY, Program
from ledgerctl.sandbox.launch import (
    OnSpawn,
    Process,
    Server,
    await_ready,
    start_mongod,
    start_valkey,
)

DATABASE = "ledger"
STATE_FILE = "state.json"
LOCK_FILE = "lock"
PROGRAMS = (MONGOD, VALKEY)


class ServerState(StrEnum):
    """Tell whether a server of the sandbox runs."""

    RUNNING = "running"
    STOPPED = "stopped"
    GONE = "gone"  # ended without `sandbox stop`: killed, crashed, or the machine was restarted


@dataclass(frozen=True)
class ServerStatus:
    """Hold one server as recorded and as found; `pid` and `uri` are None unless it runs."""

    name: str
    state: ServerState
    pid: int | None
    port: int | None
    uri: str | None
    log: Path


@dataclass(frozen=True)
class Running:
    """Hold a sandbox in use. `started` names the servers that this very call started."""

    directory: Path
    mongo_uri: str
    redis_url: str
    servers: tuple[ServerStatus, ...]
    started: tuple[str, ...]


@dataclass(frozen=True)
class _Record:
    """Tell what the state file says of one server; `process` is None once it was stopped."""

    port: int
    process: Process | None


_Records = dict[str, _Record]


def default_directory(environment: Mapping[str, str]) -> Path:
    """Tell where the sandbox lives: `$XDG_DATA_HOME/ledgerctl/sandbox`, else under `~/.local/share`.

    A relative XDG_DATA_HOME is ignored, as its specification asks.
    """
    base = environment.get("XDG_DATA_HOME", "")
    if base.startswith("/"):
        return Path(base) / "ledgerctl" / "sandbox"
    if home := environment.get("HOME", ""):
        return Path(home) / ".local" / "share" / "ledgerctl" / "sandbox"
    raise SettingsError(
        "there is no place for the sandbox: neither HOME nor XDG_DATA_HOME is set",
        hint="set XDG_DATA_HOME to a directory of your own",
    )


def own_directory() -> Path:
    """Return the sandbox of whoever runs this process."""
    return default_directory(os.environ)


def start(directory: Path) -> Running:
    """Make both servers run and return once they take writes; what runs already is left alone.

    Two calls at once take turns. A failed start leaves nothing running that it started.
    """
    with _locked(directory):
        return _start(directory)


def stop(directory: Path) -> tuple[str, ...]:
    """End the servers that run and name them; nothing else is ever signalled. The data stay."""
    if not directory.exists():
        return ()
    with _locked(directory):
        return _stop(directory)


def reset(directory: Path) -> Running:
    """End the servers, delete their data and start them empty."""
    with _locked(directory):
        _stop(directory)
        for program in PROGRAMS:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(directory / program.name)
        return _start(directory)


def status(directory: Path) -> tuple[ServerStatus, ...]:
    """Tell what runs, by the record and the process table; writes nothing and waits for nobody."""
    records = _read(directory)
    return tuple(_status(directory, program, records) for program in PROGRAMS)


def running(directory: Path) -> Running:
    """Return the running sandbox. Raises StoreUnavailable unless both servers run."""
    found = status(directory)
    absent = [server.name for server in found if server.state is not ServerState.RUNNING]
    if absent:
        raise StoreUnavailable(
            f"the sandbox does not run ({', '.join(absent)})", hint="ledgerctl sandbox start"
        )
    return _running(directory, found, started=())


def environment(sandbox: Running) -> dict[str, str]:
    """Return the variables that point ledgerctl at the sandbox."""
    return {
        "LEDGERCTL_MONGO_URI": sandbox.mongo_uri,
        "LEDGERCTL_REDIS_URL": sandbox.redis_url,
        "LEDGERCTL_DATABASE": DATABASE,
    }


def environment_lines(sandbox: Running) -> list[str]:
    """Return the same as `export` lines for a POSIX shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment(sandbox).items()]


def _start(directory: Path) -> Running:
    started = []
    with contextlib.ExitStack() as undo:  # Ctrl-C too: what we started goes with us
        for program in PROGRAMS:
            if server := _ensure(directory, program):
                undo.callback(_withdraw, directory, server)
                started.append(program.name)
        undo.pop_all()
    return _running(directory, status(directory), started=tuple(started))


def _ensure(directory: Path, program: Program) -> Server | None:
    """Make one server run; None when it did already."""
    record = _read(directory).get(program.name)
    if record and record.process and record.process.alive():
        await_ready(Server(program, record.process, record.port, _log(directory, program)))
        return None
    return _launch(directory, program, port=record.port if record else None)


def _launch(directory: Path, program: Program, *, port: int | None) -> Server:
    spawned: list[Server] = []

    def on_spawn(server: Server) -> None:  # before it is ready: a killed start is found again
        spawned.append(server)
        _record(directory, server, process=server.process)

    try:
        return _start_program(program, directory / program.name, port, on_spawn)
    except BaseException:
        for server in spawned[-1:]:
            _withdraw(directory, server)
        raise


def _withdraw(directory: Path, server: Server) -> None:
    """End a server if it runs, and record that."""
    server.stop()
    _record(directory, server, process=None)


def _start_program(program: Program, place: Path, port: int | None, on_spawn: OnSpawn) -> Server:
    if program is MONGOD:
        return start_mongod(place, replica_set=True, port=port, on_spawn=on_spawn)
    return start_valkey(place, port=port, on_spawn=on_spawn)


def _stop(directory: Path) -> tuple[str, ...]:
    stopped = []
    records = _read(directory)
    for program in PROGRAMS:
        record = records.get(program.name)
        if record is None or record.process is None:
            continue
        server = Server(program, record.process, record.port, _log(directory, program))
        if server.alive():
            stopped.append(program.name)
        _withdraw(directory, server)
    return tuple(stopped)


def _status(directory: Path, program: Program, records: _Records) -> ServerStatus:
    log = _log(directory, program)
    record = records.get(program.name)
    if record is None or record.process is None:
        port = record.port if record else None
        return ServerStatus(program.name, ServerState.STOPPED, None, port, None, log)
    server = Server(program, record.process, record.port, log)
    if not server.alive():
        return ServerStatus(program.name, ServerState.GONE, None, record.port, None, log)
    return ServerStatus(program.name, ServerState.RUNNING, server.pid, server.port, server.uri, log)


def _running(
    directory: Path, servers: tuple[ServerStatus, ...], *, started: tuple[str, ...]
) -> Running:
    uris = {server.name: server.uri or "" for server in servers}
    return Running(directory, uris[MONGOD.name], uris[VALKEY.name], servers, started)


def _log(directory: Path, program: Program) -> Path:
    return directory / f"{program.name}.log"


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the sandbox alone; the lock goes with the process that held it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (directory / LOCK_FILE).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise SettingsError(
            f"the sandbox cannot use {error.filename or directory}: {error.strerror}",
            hint="set XDG_DATA_HOME to a directory of your own, on a disk with space",
        ) from error


def _read(directory: Path) -> _Records:
    """Return the state file's records; one that cannot be read counts as absent."""
    try:
        stored = json.loads((directory / STATE_FILE).read_text("utf-8"))
        return {name: _parsed(entry) for name, entry in stored["servers"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _parsed(entry: Mapping[str, object]) -> _Record:
    port, pid, started = entry["port"], entry["pid"], entry["started"]
    if not isinstance(port, int):
        raise TypeError(port)
    if isinstance(pid, int) and pid > 1 and isinstance(started, str) and started:
        return _Record(port, Process(pid, started))
    return _Record(port, None)


def _record(directory: Path, server: Server, *, process: Process | None) -> None:
    """Write what is known of one server, whole or not at all, readable by its owner only."""
    records = _read(directory) | {server.program.name: _Record(server.port, process)}
    entries = {
        name: {
            "port": record.port,
            "pid": record.process.pid if record.process else None,
            "started": record.process.started if record.process else None,
        }
        for name, record in records.items()
    }
    fresh = directory / f"{STATE_FILE}.new"
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump({"servers": entries}, file)
    fresh.replace(directory / STATE_FILE)
