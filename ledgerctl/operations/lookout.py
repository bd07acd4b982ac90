"""Finds what is due on the retry list without moving anything, and remembers the next due time."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from ledgerctl.domain.payload import Unreadable, read_payload
from ledgerctl.stores.queues import Queues

SPARE_ENTRIES = 1_000  # remembered beyond the list's length before a pass is forgotten


class Candidate(NamedTuple):
    """An entry to take: its bytes, and how many entries from the head it can stand at most."""

    raw: bytes
    within: int


class Lookout:
    """Walks the list from its head, page by page; jobs that are not due stay untouched.

    `next_due` and `length` are what the last whole pass saw: until one of them changes there is
    nothing to do. An entry is read once, however often it is passed.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._key = queues.keys.retry
        self._entries: Iterator[bytes] | None = None
        self._known: dict[bytes, datetime] = {}  # due times of entries seen before
        self._seen: dict[bytes, datetime] = {}  # those of this pass
        self._position = 0
        self._handed_out = False
        self.next_due: datetime | None = None
        self.length = 0

    def next(self, now: datetime) -> Candidate | None:
        """The next due entry; unreadable ones count as due. None when a whole pass found none."""
        if self.next_due is not None and self.next_due <= now:
            self._entries = None  # one that was passed over has come due
        while True:
            if self._entries is None:
                self._begin()
            candidate = self._onward(now)
            if candidate is not None:
                self._handed_out = True
                return candidate
            self._entries = None
            self._known = self._seen
            if not self._handed_out:
                return None

    def _begin(self) -> None:
        self._known.update(self._seen)
        self.length = self._queues.length(self._key)
        if len(self._known) > self.length + SPARE_ENTRIES:
            self._known = {}
        self._entries = self._queues.read_all(self._key)
        self._seen, self._position, self._handed_out, self.next_due = {}, 0, False, None

    def _onward(self, now: datetime) -> Candidate | None:
        for raw in self._entries or ():
            self._position += 1
            due = self._due_time(raw)
            if due is None or due <= now:
                return Candidate(raw, self._position)
            self._seen[raw] = due
            if self.next_due is None or due < self.next_due:
                self.next_due = due
        return None

    def _due_time(self, raw: bytes) -> datetime | None:
        known = self._known.get(raw)
        if known is not None:
            return known
        payload = read_payload(raw)
        return None if isinstance(payload, Unreadable) else payload.not_before
