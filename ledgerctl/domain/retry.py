"""The retry policy: how long a failed job waits, and when it becomes a dead letter."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from ledgerctl.domain.times import shifted
from ledgerctl.errors import UsageError

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with a cap on the delay and a cap on the attempts.

    One rule for `attempts` everywhere: it counts the failures so far, the one at hand included,
    and a job whose count has reached `max_attempts` is a dead letter. Source: contract, sections
    1 and 3.
    """

    base: timedelta
    cap: timedelta
    max_attempts: int

    def __post_init__(self) -> None:
        if min(self.base, self.cap) < timedelta(0) or self.max_attempts < 0:
            raise UsageError("a retry policy has no negative delay and no negative attempts")

    def delay(self, attempts: int) -> timedelta:
        """`min(base · 2^attempts, cap)`, never overflowing: from 0 to `cap` for any count ≥ 0."""
        base_us, cap_us = self.base // _MICROSECOND, self.cap // _MICROSECOND
        # Beyond as many doublings as the cap has bits, one microsecond has outgrown it.
        if base_us and attempts > cap_us.bit_length():
            return self.cap
        return min(base_us << attempts, cap_us) * _MICROSECOND if base_us else self.base

    def due_at(self, now: datetime, attempts: int) -> datetime:
        """Return when a job with that count is due: at most `now + cap` and year 9999."""
        return shifted(now, self.delay(attempts))

    def is_exhausted(self, attempts: int) -> bool:
        """Return whether a job with that count, the failure at hand included, is a dead letter."""
        return attempts >= self.max_attempts
