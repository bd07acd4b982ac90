"""What several threads ask for at one moment is served in one go, as in a group commit.

A round trip costs the same whether it carries one request or ten. So while one is under way what
other threads ask for gathers, and the next one carries it all. A thread that meets nobody goes at
once.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

LetPass = Callable[[], None]
Serve = Callable[[Sequence[T], LetPass], None]

TOGETHER_MAX = 16  # a transaction stays short, and one that fails is repeated by few
LINGER_S = 0.001  # what those just served have to come back in: a fifth of a transaction


class Abandoned(Exception):
    """The thread that served this was interrupted meanwhile; what came of it is not known."""


@dataclass(eq=False, slots=True)
class Seat(Generic[T]):
    """One thread and what it asks for."""

    key: Hashable
    item: T
    leads: bool = False
    turn: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class Gathering(Generic[T]):
    """Serves items, each once, together with those that wait at the same moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._waiting: list[Seat[T]] = []
        self._expected = 0
        self._under_way = False

    def ask(self, key: Hashable, item: T, serve: Serve[T]) -> None:
        """Return once `item` was served, by this thread or by another one.

        Of several items of one key only one is served at a time. `serve` gets the items, and a
        call that lets the next ones pass before it is through. What it raises is raised to each that it was given; Abandoned to those whose serving thread was
        interrupted.
        """
        seat = Seat(key, item)
        with self._lock:
            self._waiting.append(seat)
            seat.leads = not self._under_way
            self._under_way = True
            self._came.notify()
        if not seat.leads:
            self._wait(seat)
        if seat.leads:
            self._lead(seat, serve)
        elif seat.error is not None:
            raise seat.error

    def _wait(self, seat: Seat[T]) -> None:
        try:
            seat.turn.wait()
        except BaseException:  # a signal: nobody must wait for one that has gone
            self._leave(seat)
            raise

    def _lead(self, seat: Seat[T], serve: Serve[T]) -> None:
        """Serve what waits, this seat's own first, and tell each what came of it."""
        group: list[Seat[T]] = []
        error: Exception | None = Abandoned()
        try:
            group = self._group()
            serve([one.item for one in group], lambda: self._let_pass(seat))
            error = None
        except Exception as failed:
            error = failed
            raise
        finally:
            for one in group[1:]:
                one.error = error
                one.turn.set()
            self._leave(seat)

    def _group(self) -> list[Seat[T]]:
        """Those to be served now; as many as were about the last time are given a moment to come."""
        with self._lock:
            self._came.wait_for(lambda: len(self._waiting) >= self._expected, LINGER_S)
            first: dict[Hashable, Seat[T]] = {}
            for one in self._waiting:
                first.setdefault(one.key, one)
            group = list(first.values())[:TOGETHER_MAX]
            self._expected = min(len(self._waiting), TOGETHER_MAX)
            self._waiting = [one for one in self._waiting if one not in group]
            return group

    def _leave(self, seat: Seat[T]) -> None:
        with self._lock:
            if seat in self._waiting:
                self._waiting.remove(seat)
        self._let_pass(seat)

    def _let_pass(self, seat: Seat[T]) -> None:
        """Let the one that has waited longest lead, if this one still does."""
        with self._lock:
            if not seat.leads:
                return
            seat.leads = False
            self._under_way = bool(self._waiting)
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].turn.set()
