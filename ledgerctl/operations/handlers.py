"""Runs an operator's command for one entry: no shell, bounded time, bounded output, nothing left."""

import os
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from errno import E2BIG, EMFILE, ENFILE
from typing import IO

from ledgerctl.errors import UsageError

CHUNK_BYTES = 65_536
TAIL_BYTES = 4_096  # of each output stream; the rest of a flood is read and dropped
LINE_MAX = 400  # characters of the last line that become part of the error
WAKE_S = 0.2  # how soon an exit is seen whose pipes a forked child keeps open
GRACE_S = 2.0  # between SIGTERM and SIGKILL


def ignore(_text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Describe how a handler ended: one line for people, empty on success, and its exit code."""

    error: str = ""
    code: int | None = None  # None where it was ended or never ran

    @property
    def succeeded(self) -> bool:
        """Return whether it exited with 0 in time."""
        return not self.error


@dataclass(frozen=True, slots=True)
class Handler:
    """Hold a command to run for each entry, in a process group of its own."""

    words: Sequence[str]
    environment: Mapping[str, str]
    timeout: timedelta | None = None
    show: Callable[[str], None] | None = None  # gets each line of output, undecodable bytes escaped
    tick: Callable[[], None] = field(default=lambda: None)  # called while the handler runs

    def run(self, payload: bytes, variables: Mapping[str, str]) -> Ending:
        """HandlerProcess it once with `payload` on its standard input, and say how it ended.

        A handler that ignores its input, floods its output, forks or hangs blocks nobody: what
        it forked is ended with it at the time limit, and also when this call is interrupted.
        Raises UsageError when the command cannot be started at all, OSError when no descriptors
        are left, and then nothing was started.
        """
        with selectors.DefaultSelector() as selector:
            process = self._started(variables)
            if isinstance(process, Ending):
                return process
            return HandlerProcess(self, process, payload, selector).ending()

    def _started(self, variables: Mapping[str, str]) -> "subprocess.Popen[bytes] | Ending":
        try:
            return subprocess.Popen(  # noqa: S603  # the operator's own words, and no shell
                list(self.words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**as_bytes(self.environment), **as_bytes(variables)},
                bufsize=0,
                start_new_session=True,
            )
        except ValueError as error:  # a NUL in an id
            return Ending(f"cannot be handed to the command: {error}")
        except OSError as error:
            if error.errno == E2BIG:
                return Ending(f"cannot be handed to the command: {error.strerror}")
            if error.errno in {EMFILE, ENFILE}:
                raise  # not for want of the command
            raise UsageError(f"cannot start {self.words[0]!r}: {error.strerror}") from None


def handler_words(text: str) -> list[str]:
    """Split a command line. Raises UsageError when it is empty, unclosed or not found."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"cannot split the command into words: {error}") from None
    if not words:
        raise UsageError("--exec names no command")
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"{words[0]!r} is no command that can be run here",
            hint="there is no shell: for pipes and variables write  sh -c '…'",
        )
    return words


class HandlerProcess:
    """Hold one process from its start to its end."""

    def __init__(
        self,
        handler: Handler,
        process: subprocess.Popen[bytes],
        payload: bytes,
        selector: selectors.BaseSelector,
    ) -> None:
        self._handler = handler
        self._process = process
        self._unsent = memoryview(payload)
        self._tails: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._shown: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._selector = selector
        timeout = handler.timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()

    def ending(self) -> Ending:
        """Feed it, read it, and wait for its end or its time limit."""
        ended = False
        try:
            self._register()
            while self._process.poll() is None:
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._end_group()
                    ended = True
                    return Ending(f"timed out after {seconds(self._handler.timeout)}")
                self._handler.tick()
                self._exchange(self._pause_s())
            self._exchange(0)
            ended = True
            return self._verdict()
        finally:
            if not ended:
                self._signal(signal.SIGKILL)
            self._close()

    def _register(self) -> None:
        for stream, event, name in (
            (self._process.stdin, selectors.EVENT_WRITE, "stdin"),
            (self._process.stdout, selectors.EVENT_READ, "stdout"),
            (self._process.stderr, selectors.EVENT_READ, "stderr"),
        ):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, event, name)

    def _pause_s(self) -> float:
        left = WAKE_S if self._deadline is None else self._deadline - time.monotonic()
        return max(0.0, min(WAKE_S, left))

    def _exchange(self, timeout_s: float) -> None:
        """Move what can be moved; with every pipe closed wait for the exit itself."""
        if not self._selector.get_map():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
            return
        for key, _ in self._selector.select(timeout_s):
            stream = key.fileobj
            if key.data == "stdin":
                self._write(stream)  # type: ignore[arg-type]  # what was registered
            else:
                self._read(stream, key.data)  # type: ignore[arg-type]  # what was registered

    def _write(self, stream: IO[bytes]) -> None:
        try:
            sent = os.write(stream.fileno(), self._unsent[:CHUNK_BYTES]) if self._unsent else 0
            self._unsent = self._unsent[sent:]
        except BlockingIOError:
            return
        except OSError:  # it does not want its input
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._forget(stream)

    def _read(self, stream: IO[bytes], name: str) -> None:
        try:
            chunk = os.read(stream.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._forget(stream)
        self._tails[name] = (self._tails[name] + chunk)[-TAIL_BYTES:]
        if self._handler.show is not None:
            *lines, rest = (self._shown[name] + chunk).split(b"\n")
            self._shown[name] = rest[-CHUNK_BYTES:]
            for line in lines:
                self._handler.show(line.decode(errors="backslashreplace"))

    def _forget(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        with suppress(OSError):
            stream.close()

    def _end_group(self) -> None:
        """End the handler and all it forked: asked first, then killed."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        while self._process.poll() is None and time.monotonic() < until:
            self._exchange(0.02)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._forget(key.fileobj)  # type: ignore[arg-type]  # what was registered
        self._process.wait()

    def _verdict(self) -> Ending:
        code = self._process.returncode
        if code == 0:
            return Ending(code=code)
        what = f"exit {code}" if code > 0 else f"killed by {signal_name(-code)}"
        said = last_line(self._tails["stderr"]) or last_line(self._tails["stdout"])
        return Ending(f"{what}: {said}" if said else what, code)


def last_line(tail: bytes) -> str:
    """Return the last line with anything on it, cut; where a program says what went wrong."""
    lines = tail.decode(errors="backslashreplace").split("\n")
    return next((line.strip()[:LINE_MAX] for line in reversed(lines) if line.strip()), "")


def signal_name(number: int) -> str:
    """Return the signal's name, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def seconds(duration: timedelta | None) -> str:
    """Return a duration for people, in seconds."""
    return "" if duration is None else f"{duration.total_seconds():g}s"


def as_bytes(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Environment variables as bytes: UTF-8 whatever the locale; undecodable ones as they were."""
    return {
        name.encode(errors="surrogateescape"): value.encode(errors="surrogateescape")
        for name, value in variables.items()
    }
