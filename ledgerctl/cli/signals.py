"""Ctrl-C, SIGTERM and SIGHUP: at once while reading or asking, between two chunks while changing."""

import signal
from types import FrameType
from typing import Any

from ledgerctl.errors import ExitCode, HungUp, Interrupted, LedgerctlError, Terminated

ENDS: dict[int, tuple[type[LedgerctlError], str]] = {
    signal.SIGINT: (Interrupted, "interrupted"),
    signal.SIGTERM: (Terminated, "stopped by SIGTERM"),
    signal.SIGHUP: (HungUp, "stopped by SIGHUP: the terminal or the connection is gone"),
}


class StopSignal:
    """Tell whether somebody asked this run to stop.

    A signal ends the command where it stands. While it is held the first one is only noted, for
    the loop to see between two chunks; a second one ends it where it stands, which every step
    survives.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.ended: LedgerctlError | None = None  # what a signal raised, wherever it struck
        self._held = False
        self._before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Tell whether to stop before the next chunk, even if something swallowed what a signal raised."""
        return self.exit_code is not None

    @property
    def exit_code(self) -> ExitCode | None:
        """Return the exit code of an interrupted run, whatever it made of the signal; None without one."""
        if self.received is not None:
            return ENDS[self.received][0].exit_code
        return None if self.ended is None else self.ended.exit_code

    def install(self) -> None:
        """Take over these signals; without effect outside the main thread.

        A SIGHUP that is ignored, as under nohup, stays ignored.
        """
        for number in ENDS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            try:
                self._before[number] = signal.signal(number, self._handle)
            except ValueError:  # not the main thread: the caller owns the signals
                return

    def uninstall(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def hold(self) -> None:
        """Hold signals back: changes are under way, or their result is about to be told."""
        self._held = True

    def release(self) -> None:
        """Let signals strike again."""
        self._held = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        again = self.requested
        if self._held and not again:
            self.received = number
            return
        kind, message = ENDS[number]
        self.ended = kind(message)
        raise self.ended
