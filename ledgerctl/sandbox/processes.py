"""Start a server process that outlives us, and stop it only when it is surely ours."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ledgerctl.errors import SettingsError

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
