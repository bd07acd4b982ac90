"""Outages of a store: a run that has begun waits through one for a bounded time, and says so."""

import threading
import time
from collections.abc import Callable

FIRST_CONTACT_S = 2.5  # to be told within 3 s
OUTAGE_S = 30.0  # an election, a failover or a moving slot

Notice = Callable[[str], None]


class Outage:
    """Hold one store, away or not; of several threads the first one says so."""

    def __init__(self, store: str, notice: Notice) -> None:
        self.has_begun = False  # the run is past its first contact with the store
        self.limit_s = OUTAGE_S
        self._store = store
        self._notice = notice
        self._lock = threading.Lock()
        self._since: float | None = None
        self._said = False

    def say(self, text: str) -> None:
        """Say something of the store at once, beside the result."""
        self._notice(f"{self._store}: {text}")

    def begin(self, why: str, *, sure: bool = False) -> None:
        """Start the clock of an outage; it is said at once if `sure`, else when it is seen again."""
        with self._lock:
            again = self._since is not None
            self._since = self._since or time.monotonic()
            first = (sure or again) and not self._said and self.has_begun and self.limit_s > 0
            self._said |= first
        if first:
            self.say(f"{why}; waiting for up to {self.limit_s:.0f} s")

    def end(self) -> None:
        """Stop the clock: the store takes writes."""
        with self._lock:
            since, self._since = self._since, None
            said, self._said = self._said, False
        if said and since is not None and self.limit_s > 0:
            self.say(f"back after {time.monotonic() - since:.1f} s; going on")

    @property
    def is_over_limit(self) -> bool:
        """Return True when this outage has lasted too long to be waited for any more."""
        since = self._since
        limit_s = self.limit_s if self.has_begun else min(self.limit_s, FIRST_CONTACT_S)
        return since is not None and time.monotonic() - since >= limit_s
