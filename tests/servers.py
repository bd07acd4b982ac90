"""The servers of a test session, and the guard that ends them when the session is killed."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ledgerctl.sandbox.launch import Server, start_mongod, start_valkey

TEST_COMMANDS = ("--setParameter", "enableTestCommands=1")
# Waits until its standard input closes, which a killed session does too, then ends the servers.
WATCH = 'dir=$1; shift; read -r _; kill -9 "$@" 2>/dev/null; sleep 1; rm -rf "$dir"'


class SessionServers:
    """Starts servers in a directory of its own and ends every one of them at the end."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ledgerctl-tests-"))
        self._started: list[tuple[Server, subprocess.Popen[bytes]]] = []

    def mongod(self, *parameters: str, replica_set: bool = True) -> Server:
        """A mongod with fail points; `parameters` are `name=value` for --setParameter."""
        extra = [*TEST_COMMANDS]
        for parameter in parameters:
            extra += ["--setParameter", parameter]
        place = self._new_place("mongod")
        return self._watched(
            lambda on_spawn: start_mongod(
                place, replica_set=replica_set, extra=extra, on_spawn=on_spawn
            )
        )

    def valkey(self, *extra: str) -> Server:
        """A valkey-server without an append-only file; `extra` are its own options."""
        place = self._new_place("valkey")
        options = ("--appendonly", "no", *extra)
        return self._watched(lambda on_spawn: start_valkey(place, extra=options, on_spawn=on_spawn))

    def stop(self, server: Server) -> None:
        """End one server, running or not."""
        for entry in [entry for entry in self._started if entry[0].pid == server.pid]:
            self._started.remove(entry)
            entry[0].stop(grace_s=5)
            self._dismiss(entry[1])

    def close(self) -> None:
        """End all servers and remove their files."""
        for server, _ in list(self._started):
            self.stop(server)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _new_place(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory)) / name

    def _watched(self, start: Callable[[Callable[[Server], None]], Server]) -> Server:
        def watch(server: Server) -> None:
            self._started.append((server, self._watch(server)))

        return start(watch)

    def _watch(self, server: Server) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "sh", str(self.directory), str(server.pid)],
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
