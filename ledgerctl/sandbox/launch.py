"""Bring up one mongod or one valkey-server on loopback, ready to use, or leave nothing behind."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ledgerctl.errors import SettingsError, StoreUnavailable
from ledgerctl.sandbox import binaries
from ledgerctl.sandbox.binaries import MONGOD, VALKEY, Program

POLL_S = 0.02
KILL_WAIT_S = 5.0


@dataclass(frozen=True)
class Process:
    """Hold a process told from every other one, before or after it: a pid and when it started.

    A pid alone is not enough: after a crash or a reboot it may name somebody else's process.
    """

    pid: int
    started: str

    def alive(self) -> bool:
        """Tell whether exactly this process still runs; one that waits to be reaped does not."""
        return started_at(self.pid) == self.started


class Child(subprocess.Popen[bytes]):
    """Provide a child that is meant to outlive us: Python need not warn that it still runs."""

    def __del__(self) -> None:
        """Leave it running."""


def spawn(
    command: Sequence[str],
    *,
    directory: Path,
    log: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Child, Process]:
    """Start `command` in a session of its own, with no terminal and nothing inherited.

    `variables` are added to its environment.

    Its output replaces `log`. Raises OSError when the kernel will not run the file.
    """
    with log.open("wb") as output:
        child = Child(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
            env=_environment() | dict(variables),
        )
    return child, Process(child.pid, started_at(child.pid) or "")


def _deliver(received: Sequence[int]) -> None:
    for number in received:
        signal.raise_signal(number)


@contextmanager
def signals_held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait while a process is born that nobody would know of to end it.

    Without effect outside the main thread, where no signal strikes.
    """
    received: list[int] = []
    with ExitStack() as stack:  # whatever one step of it raises, the others are taken
        stack.callback(_deliver, received)
        with suppress(ValueError):  # not in the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                stack.callback(signal.signal, number, before or signal.SIG_DFL)
                signal.signal(number, lambda one, _: received.append(one))
        yield


def terminate(process: Process, *, grace_s: float) -> None:
    """End the process and return once it is gone: asked first, killed after `grace_s`.

    Does nothing when the pid is no longer this process.
    """
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_WAIT_S)):
        if not process.alive():
            return
        _send(process.pid, number)
        if _gone_within(process, patience_s):
            return


def started_at(pid: int) -> str | None:
    """Tell when the process of this pid started, as text to compare; None when none runs.

    On Linux boot id and clock ticks since boot; elsewhere what `ps` says, to the second.
    """
    return _started_linux(pid) if sys.platform == "linux" else _started_ps(pid)


def _started_linux(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("ascii", "replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything.
    fields = text.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot}:{fields[19]}"


def _started_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C"},
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise SettingsError(
            f"process {pid} was started by another user and cannot be stopped",
            hint="stop it as the user who started it",
        ) from error


def _gone_within(process: Process, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _environment() -> dict[str, str]:
    """Ours without ledgerctl's settings: a server's environment can be read in /proc."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEDGERCTL_")}
    return kept | {"LC_ALL": "C"}  # mongod refuses to start under an unknown locale


LOOPBACK = "127.0.0.1"
REPLICA_SET = "sandbox"
START_TIMEOUT_S = 60.0
STOP_GRACE_S = 20.0
PORT_TRIES = 5
POLL_S = 0.05
ANSWER_TIMEOUT_S = 5.0
LOG_TAIL_BYTES = 8192

NOT_INITIATED = 94  # MongoDB's NotYetInitialized

PORT_TAKEN = re.compile(r"address already in use", re.IGNORECASE)


@dataclass
class Server:
    """Hold a server that we started, now or in an earlier run."""

    program: Program
    process: Process
    port: int
    log: Path
    child: Child | None = None
    replica_set: bool = False

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    @property
    def uri(self) -> str:
        """Return the address as ledgerctl's settings want it. It holds no secret."""
        if self.program is MONGOD:
            return f"mongodb://{LOOPBACK}:{self.port}/?directConnection=true"
        return f"redis://{LOOPBACK}:{self.port}/0"

    def alive(self) -> bool:
        """Tell whether the process still runs."""
        return self.process.alive()

    def stop(self, *, grace_s: float = STOP_GRACE_S) -> None:
        """End the process and return once it is gone."""
        terminate(self.process, grace_s=grace_s)
        self.exit_code()

    def exit_code(self) -> int | None:
        """Tell how it ended, as subprocess has it; None while it runs or if an earlier run started it."""
        return self.child.poll() if self.child else None

    def log_tail(self) -> str:
        """Return the end of its log, as written."""
        return _tail(self.log)


OnSpawn = Callable[[Server], None]


def _nothing(_server: Server) -> None:
    """Nobody wants to know."""


def start_mongod(
    directory: Path,
    *,
    replica_set: bool,
    port: int | None = None,
    extra: Sequence[str] = (),
    timeout_s: float = START_TIMEOUT_S,
    on_spawn: OnSpawn = _nothing,
) -> Server:
    """Return a mongod that takes writes, its files in `directory`; on failure nothing is left running.

    `port` is a wish: a port that is taken is replaced by a free one. `on_spawn` is called as soon as
    the process exists, before it is ready.
    """

    def command(path: Path, chosen: int) -> list[str]:
        return _mongod_command(path, directory, chosen, replica_set=replica_set, extra=extra)

    return _start(
        MONGOD, directory, command, port=port, timeout_s=timeout_s, on_spawn=on_spawn,
        replica_set=replica_set,
    )  # fmt: skip


def start_valkey(
    directory: Path,
    *,
    port: int | None = None,
    extra: Sequence[str] = (),
    timeout_s: float = START_TIMEOUT_S,
    on_spawn: OnSpawn = _nothing,
) -> Server:
    """Return a valkey-server that answers; otherwise as `start_mongod`. It keeps an append-only file."""

    def command(path: Path, chosen: int) -> list[str]:
        return _valkey_command(path, directory, chosen, extra=extra)

    return _start(
        VALKEY, directory, command, port=port, timeout_s=timeout_s, on_spawn=on_spawn
    )  # fmt: skip


def await_ready(server: Server, *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return once the server takes writes. Raises StoreUnavailable when it ends or the time is up."""
    ready = _mongod_ready if server.program is MONGOD else _valkey_ready
    deadline = time.monotonic() + timeout_s
    while not ready(server):
        if not server.alive():
            raise _ended(server)
        if time.monotonic() > deadline:
            raise _failed(server, f"was not ready within {timeout_s:g} s")
        time.sleep(POLL_S)


def _start(
    program: Program,
    directory: Path,
    command: Callable[[Path, int], list[str]],
    *,
    port: int | None,
    timeout_s: float,
    on_spawn: OnSpawn,
    replica_set: bool = False,
) -> Server:
    path = binaries.find(program)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = directory.with_name(f"{directory.name}.log")
    libraries = binaries.private_libraries(program, directory.with_name("lib"))
    for attempt in range(PORT_TRIES):
        chosen = _free_port(port if attempt == 0 else None)
        server = None
        try:
            with signals_held():
                child, process = _spawn(
                    program, path, command(path, chosen), directory, log, libraries
                )
                server = Server(program, process, chosen, log, child, replica_set)
            on_spawn(server)
            await_ready(server, timeout_s=timeout_s)
        except BaseException as error:  # Ctrl-C too: what we started goes with us
            if server is not None:
                server.stop(grace_s=0)
            if not isinstance(error, _PortTaken):
                raise
        else:
            return server
    raise StoreUnavailable(
        f"{program.name} found {PORT_TRIES} free ports taken when it came to use them",
        hint="start it again",
    )


def _spawn(
    program: Program,
    path: Path,
    command: list[str],
    directory: Path,
    log: Path,
    libraries: dict[str, str],
) -> tuple[Child, Process]:
    try:
        return spawn(command, directory=directory, log=log, variables=libraries)
    except OSError as error:
        raise binaries.not_for_this_platform(
            program, path, error.strerror or "it failed"
        ) from error


class _PortTaken(StoreUnavailable):
    """Somebody took the port between our look and the server's: try another one."""


def _ended(server: Server) -> SettingsError | StoreUnavailable:
    """Tell why a server ended before it was ready."""
    log = server.log_tail()
    code = server.exit_code()
    if cannot := binaries.why_it_cannot_run(server.program, code, log):
        return cannot
    if PORT_TAKEN.search(log):
        return _PortTaken(f"port {server.port} is taken")
    ended = "ended before it was ready" if code is None else f"ended at once with status {code}"
    return _failed(server, ended)


def _failed(server: Server, what: str) -> StoreUnavailable:
    line = _last_line(server.log_tail()) or "nothing"
    hint = f"read {server.log}"
    if server.child is None:  # it is not ours to kill: an earlier run started it
        hint += ", or end it with `ledgerctl sandbox stop`"
    return StoreUnavailable(f"{server.program.name} {what}; the last it said: {line}", hint=hint)


def _free_port(wished: int | None) -> int:
    """`wished` when nobody listens there, else a port that the kernel names."""
    for port in (wished, 0):
        if port is None:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return int(probe.getsockname()[1])
    raise StoreUnavailable("this machine has no free port on 127.0.0.1", hint="close some programs")


def _mongod_command(
    path: Path, directory: Path, port: int, *, replica_set: bool, extra: Sequence[str]
) -> list[str]:
    return [
        str(path),
        *("--dbpath", str(directory), "--bind_ip", LOOPBACK, "--port", str(port)),
        *("--nounixsocket", "--quiet", "--wiredTigerCacheSizeGB", "0.25"),
        *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        *(("--replSet", REPLICA_SET, "--oplogSize", "128") if replica_set else ()),
        *extra,
    ]


def _valkey_command(path: Path, directory: Path, port: int, *, extra: Sequence[str]) -> list[str]:
    return [
        str(path),
        *("--dir", str(directory), "--bind", LOOPBACK, "--port", str(port)),
        *("--protected-mode", "yes", "--daemonize", "no"),
        *("--appendonly", "yes", "--save", ""),
        *extra,
    ]


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=ANSWER_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _mongod_ready(server: Server) -> bool:
    """Tell whether this very process answers on its port and takes writes; moves a replica set towards it."""
    if not _listens(server.port):
        return False
    from pymongo import MongoClient
    from pymongo.errors import PyMongoError

    timeout_ms = int(ANSWER_TIMEOUT_S * 1000)
    client: MongoClient[dict[str, Any]] = MongoClient(
        LOOPBACK,
        server.port,
        directConnection=True,
        serverSelectionTimeoutMS=timeout_ms,
        connectTimeoutMS=timeout_ms,
        socketTimeoutMS=timeout_ms,
    )
    with client:
        try:
            if client.admin.command("serverStatus")["pid"] != server.pid:
                return False  # another server holds the port; ours is about to say so
            if client.admin.command("hello")["isWritablePrimary"]:
                return True
            _settle_replica_set(client, server.port)
        except PyMongoError:
            return False
    return False


def _settle_replica_set(client: Any, port: int) -> None:
    """Initiate the single-node replica set, or tell it its new port."""
    from pymongo.errors import OperationFailure

    host = f"{LOOPBACK}:{port}"
    try:
        config = client.admin.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code == NOT_INITIATED:
            members = [{"_id": 0, "host": host}]
            client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": members})
        return
    if config["members"][0]["host"] != host:
        config["members"][0]["host"] = host
        config["version"] += 1
        client.admin.command("replSetReconfig", config, force=True)


def _valkey_ready(server: Server) -> bool:
    """Tell whether this very process answers on its port and has read its data."""
    if not _listens(server.port):
        return False
    from redis import Redis
    from redis.exceptions import RedisError

    client = Redis(LOOPBACK, server.port, socket_timeout=ANSWER_TIMEOUT_S)
    with client:
        try:
            client.ping()
            facts: Any = client.info("server")
        except RedisError:
            return False
    return bool(facts["process_id"] == server.pid)


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _last_line(log: str) -> str:
    """Return the last thing a log says, errors before remarks, in mongod's JSON or in plain text."""
    lines = [line for line in log.splitlines() if line.strip()]
    if not lines:
        return ""
    errors = [line for line in lines if re.search(r'"s":"[EF]"', line)]
    return _plain(errors[-1] if errors else lines[-1])


def _plain(line: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError:
        return line.strip()
    if not isinstance(entry, dict):
        return line.strip()
    attributes = entry.get("attr")
    error = attributes.get("error", "") if isinstance(attributes, dict) else ""
    return f"{entry.get('msg', '')}: {error}" if error else str(entry.get("msg", line))
