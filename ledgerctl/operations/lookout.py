"""Finds what is due on the retry list without moving anything, and remembers the next due time."""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from ledgerctl.domain.payload import Unreadable, read_payload
from ledgerctl.stores.queues import Queues
from ledgerctl.stores.retry_queue import RetryLists

SPARE_ENTRIES = 1_000  # remembered beyond the list's length before a pass is forgotten
STRETCH_ENTRIES = 400
STRETCH_BYTES = 400_000


class Candidate(NamedTuple):
    """Hold an entry to take: its bytes, and how many entries from the head it can be at most."""

    raw: bytes
    within: int


class Stretch(NamedTuple):
    """Hold a run of entries and their fingerprint, as `fingerprint.lua` makes it."""

    start: int
    entries: int
    fingerprint: str


class Lookout:
    """Walks the list from its head, page by page; jobs that are not due stay untouched.

    `next_due` and `length` are what the last whole pass saw. Until a job comes due or the list
    changes there is nothing to do, and whether it has changed is asked by fingerprints, which
    the server makes: ten thousand waiting jobs cost some milliseconds to look at again.
    """

    def __init__(self, queues: Queues, lists: RetryLists) -> None:
        self._queues = queues
        self._lists = lists
        self._key = queues.keys.retry
        self._entries: Iterator[bytes] | None = None
        self._known: dict[bytes, datetime] = {}  # due times of entries seen before
        self._seen: dict[bytes, datetime] = {}  # those of this pass
        self._position = 0
        self._handed_out = False
        self._fingerprints = Fingerprints()
        self._quiet: list[Stretch] | None = None  # of the last pass, when it found nothing due
        self.next_due: datetime | None = None
        self.length = 0

    def next(self, now: datetime) -> Candidate | None:
        """Return the next due entry, or an unreadable one; None when a whole pass found none."""
        if self.next_due is not None and self.next_due <= now:
            self._entries = None  # one that was passed over has come due
        elif self._is_quiet():
            return None
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
                self._quiet = self._fingerprints.finished()
                return None

    def _is_quiet(self) -> bool:
        """Return whether nothing was due at the last look, and the list is as it was then."""
        return (
            self._quiet is not None
            and self._queues.length(self._key) == self.length
            and all(
                self._lists.fingerprint(self._key, one.start, one.entries) == one.fingerprint
                for one in self._quiet
            )
        )

    def _begin(self) -> None:
        self._known.update(self._seen)
        self.length = self._queues.length(self._key)
        if len(self._known) > self.length + SPARE_ENTRIES:
            self._known = {}
        self._entries = self._queues.read_all(self._key)
        self._seen, self._position, self._handed_out, self.next_due = {}, 0, False, None
        self._fingerprints, self._quiet = Fingerprints(), None

    def _onward(self, now: datetime) -> Candidate | None:
        try:
            return self._next_due_of_pass(now)
        except BaseException:
            self._entries = None  # half a pass says nothing of the rest
            raise

    def _next_due_of_pass(self, now: datetime) -> Candidate | None:
        for raw in self._entries or ():
            self._position += 1
            due = self._due_time(raw)
            if due is None or due <= now:
                return Candidate(raw, self._position)
            self._fingerprints.add(raw)
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


class Fingerprints:
    """Sums up a list as it is read, in stretches that the server can sum up in about 1 ms."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._start = 0
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, raw: bytes) -> None:
        """Add the next entry."""
        self._parts.append(b"%d:%b" % (len(raw), raw))
        self._size += len(raw)
        if len(self._parts) >= STRETCH_ENTRIES or self._size >= STRETCH_BYTES:
            self.finished()

    def finished(self) -> list[Stretch]:
        """Close the last stretch and return every stretch so far."""
        if self._parts:
            digest = hashlib.sha1(b"".join(self._parts), usedforsecurity=False).hexdigest()
            self._stretches.append(Stretch(self._start, len(self._parts), digest))
            self._start += len(self._parts)
            self._parts, self._size = [], 0
        return self._stretches
