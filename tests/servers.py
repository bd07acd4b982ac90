"""The servers of a test session, and the guard that ends them when the session is killed."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from ledgerctl.sandbox import binaries
from ledgerctl.sandbox.binaries import MONGOD
from ledgerctl.sandbox.launch import REPLICA_SET, Server, spawn, start_mongod, start_valkey

ROOT = ("root", "r00t-s3cr3t")
TEST_COMMANDS = ("--setParameter", "enableTestCommands=1")
# Waits until its standard input closes, which a killed session does too, then ends the servers.
WATCH = 'dir=$1; shift; read -r _; kill -9 "$@" 2>/dev/null; sleep 1; rm -rf "$dir"'


IN_MEMORY = Path("/dev/shm")  # noqa: S108  # no disk to wait for, where there is room for it
ROOM_WANTED = 8 * 1024**3


def roomy_place() -> Path | None:
    """The file system in memory, if servers of a session fit in it; None for the usual place."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(one.split()[1]) for one in lines if one.startswith("MemAvailable:"))
        limits = [shutil.disk_usage(IN_MEMORY).free, available * 1024]
        with suppress(OSError, ValueError):  # no container, or one without a limit
            limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
        if min(limits) >= ROOM_WANTED and os.access(IN_MEMORY, os.W_OK):
            return IN_MEMORY
    return None


class SessionServers:
    """Starts servers in a directory of its own and ends every one of them at the end."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ledgerctl-tests-", dir=roomy_place()))
        self._started: list[tuple[Server, subprocess.Popen[bytes]]] = []
        self._again: dict[int, Callable[[], Server]] = {}  # by port
        self._guards: list[subprocess.Popen[bytes]] = []

    def mongod(self, *parameters: str, replica_set: bool = True) -> Server:
        """A mongod with fail points; `parameters` are `name=value` for --setParameter."""
        extra = [*TEST_COMMANDS]
        for parameter in parameters:
            extra += ["--setParameter", parameter]
        place = self._new_place("mongod")

        def start(port: int | None = None) -> Server:
            return self._watched(
                lambda on_spawn: start_mongod(
                    place, replica_set=replica_set, port=port, extra=extra, on_spawn=on_spawn
                )
            )

        return self._remembered(start)

    def valkey(self, *extra: str) -> Server:
        """A valkey-server without an append-only file; `extra` are its own options."""
        place = self._new_place("valkey")
        options = ("--appendonly", "no", *extra)

        def start(port: int | None = None) -> Server:
            return self._watched(
                lambda on_spawn: start_valkey(place, port=port, extra=options, on_spawn=on_spawn)
            )

        return self._remembered(start)

    def again(self, server: Server) -> Server:
        """Start a server that has ended anew: its files, its options, its port."""
        self.stop(server)
        return self._again[server.port]()

    def guarded_mongod(self, *, replica_set: bool = True) -> Server:
        """A mongod with access control; ROOT may do everything, and so may nobody else yet."""
        place = self._new_place("mongod")
        open_to_all = start_mongod(place, replica_set=replica_set)
        with MongoClient[dict[str, Any]](open_to_all.uri) as client:
            client.admin.command("createUser", ROOT[0], pwd=ROOT[1], roles=["root"])
        open_to_all.stop()
        key = place.with_name("key")
        key.write_text("ledgerctl" * 8)
        key.chmod(0o600)
        command = [
            *(str(binaries.find(MONGOD)), "--dbpath", str(place), "--port", str(open_to_all.port)),
            *("--bind_ip", "127.0.0.1", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25"),
            *(("--replSet", REPLICA_SET, "--keyFile", str(key)) if replica_set else ("--auth",)),
        ]
        log = place.with_name("guarded.log")
        libraries = binaries.private_libraries(MONGOD, place.with_name("lib"))
        child, process = spawn(command, directory=place, log=log, variables=libraries)
        server = Server(MONGOD, process, open_to_all.port, log, child, replica_set)
        self._started.append((server, self._watch(server)))
        with MongoClient[dict[str, Any]](address_of(server, *ROOT)) as client:
            wait_until(lambda: bool(client.admin.command("hello")["isWritablePrimary"]))
        return server

    def stop(self, server: Server, *, grace_s: float = 5) -> None:
        """End one server, running or not."""
        for entry in [entry for entry in self._started if entry[0].pid == server.pid]:
            self._started.remove(entry)
            entry[0].stop(grace_s=grace_s)
            self._dismiss(entry[1])

    def close(self) -> None:
        """End all servers and remove their files."""
        for server, _ in list(self._started):
            self.stop(server, grace_s=0)
        for guard in self._guards:
            self._dismiss(guard)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _remembered(self, start: Callable[[int | None], Server]) -> Server:
        server = start(None)
        self._again[server.port] = lambda: start(server.port)
        return server

    def _new_place(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory)) / name

    def _watched(self, start: Callable[[Callable[[Server], None]], Server]) -> Server:
        def watch(server: Server) -> None:
            self._started.append((server, self._watch(server)))

        return start(watch)

    def guard(self, pid: int) -> None:
        """Let a process that a test starts itself end with the session, killed or not."""
        self._guards.append(self._watcher(pid))

    def _watch(self, server: Server) -> subprocess.Popen[bytes]:
        return self._watcher(server.pid)

    def _watcher(self, pid: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "sh", str(self.directory), str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @staticmethod
    def _dismiss(watcher: subprocess.Popen[bytes]) -> None:
        watcher.kill()
        watcher.wait()
        if watcher.stdin:
            watcher.stdin.close()


def address_of(server: Server, user: str, password: str, *, source: str = "admin") -> str:
    """The server's address with a user in it."""
    place = server.uri.partition("://")[2]
    return f"{server.uri.partition(':')[0]}://{user}:{password}@{place}&authSource={source}"


def stop_on_sigterm() -> None:
    """Let SIGTERM end the session the way Ctrl-C does, so that its servers are stopped."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with suppress(ValueError):  # not in the main thread: somebody else's session
        signal.signal(signal.SIGTERM, interrupt)


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 30) -> None:
    """Return once the condition holds; fail the test when it does not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
