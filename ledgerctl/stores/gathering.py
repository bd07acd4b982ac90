"""What several threads ask for at one moment is served in one go, as in a group commit.

A round trip costs the same whether it carries one request or ten. A thread that meets nobody goes
at once and alone; what others ask for meanwhile gathers, and a thread of its own serves it. That
one gets no signals, so no interrupted thread leaves the others waiting.
"""

import copy
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

Serve = Callable[[Sequence[T]], None]

TOGETHER_MAX = 16  # a transaction stays short, and one that fails is repeated by few
LINGER_S = 0.001  # what those just served have to come back in: a fifth of a transaction
IDLE_S = 1.0  # a serving thread that has had nothing to do for so long ends
LOOK_AGAIN_S = 1.0  # whether there still is a serving thread


@dataclass(eq=False, slots=True)
class Seat(Generic[T]):
    """One thread and what it asks for."""

    key: Hashable
    item: T
    serve: Serve[T]
    served: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Gathering(Generic[T]):
    """Serves items, each once: alone, or together with those that wait at the same moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._waiting: list[Seat[T]] = []
        self._thread: threading.Thread | None = None
        self._expected = 0
        self._one_alone = False
        self._serving = False

    def ask(self, key: Hashable, item: T, *, serve: Serve[T], alone: Callable[[], None]) -> None:
        """Return once `item` was served: by `alone` when nobody else asks, else by `serve`.

        Of several items of one key only one is served at a time. What `serve` raises is raised to
        each whose item it was given.
        """
        with self._lock:
            goes_alone = not (self._one_alone or self._serving or self._waiting)
            self._one_alone |= goes_alone
        if not goes_alone:
            self._wait(Seat(key, item, serve))
            return
        try:
            alone()
        finally:
            self._one_alone = False  # were this missed, all would be served together for ever

    def _wait(self, seat: Seat[T]) -> None:
        try:
            with self._lock:
                self._waiting.append(seat)
                self._came.notify()
            self._see_to_service()
            while not seat.served.wait(LOOK_AGAIN_S):
                self._see_to_service()
        except BaseException:  # a signal: what nobody waits for need not be served
            with self._lock:
                if seat in self._waiting:
                    self._waiting.remove(seat)
            raise
        if seat.error is not None:
            raise copy.copy(seat.error)

    def _see_to_service(self) -> None:
        """Start a thread that serves what waits, unless there is one; a fork has left it behind."""
        with self._lock:
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                self._serving = False
                self._thread = threading.Thread(
                    target=self._serve_all, name="ledgerctl-together", daemon=True
                )
                self._thread.start()

    # the serving thread

    def _serve_all(self) -> None:
        while group := self._next_group():
            error: BaseException | None = None
            try:
                group[0].serve([one.item for one in group])
            except BaseException as failed:  # noqa: BLE001  # raised to each that asked
                error = failed
            with self._lock:
                self._serving = False
                self._expected = len(group) + len(self._waiting)
            for one in group:
                one.error = error
                one.served.set()

    def _next_group(self) -> list[Seat[T]]:
        """Those to be served now; none when nothing has come for a while, and then this ends.

        As many as were about the last time are given a moment to come.
        """
        with self._lock:
            while self._came.wait_for(lambda: self._waiting, IDLE_S):
                self._came.wait_for(self._all_came, LINGER_S)
                first: dict[Hashable, Seat[T]] = {}
                for one in self._waiting:
                    first.setdefault(one.key, one)
                if group := list(first.values())[:TOGETHER_MAX]:
                    self._waiting = [one for one in self._waiting if one not in group]
                    self._serving = True
                    return group
            self._thread = None
            return []

    def _all_came(self) -> bool:
        return len(self._waiting) >= min(self._expected, TOGETHER_MAX)
