"""Wrong retry queues, each the product with one rule broken."""

from collections.abc import Callable
from datetime import datetime, timedelta

from ledgerctl.domain.payload import Payload, read_payload
from ledgerctl.domain.queue import Destination, Failure, Hold
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.operations.worker import Delivery, RetryQueue
from ledgerctl.stores.queues import Queues


def attempts_never_advance(found: int, *, policy: RetryPolicy, now: datetime) -> Failure:
    """Writes the count that it read: the cap is never reached."""
    if policy.is_exhausted(found):
        return Failure(found, Destination.DEAD_LETTER, None)
    return Failure(found, Destination.RETRY, policy.due_at(now, found))


def cap_compared_before_counting(found: int, *, policy: RetryPolicy, now: datetime) -> Failure:
    """Looks at the cap, then counts: one attempt too many."""
    if policy.is_exhausted(found):
        return Failure(found, Destination.DEAD_LETTER, None)
    return Failure(found + 1, Destination.RETRY, policy.due_at(now, found + 1))


def power_before_cap(found: int, *, policy: RetryPolicy, now: datetime) -> Failure:
    """Computes the power, then cuts it down: there is no such power."""
    attempts = found + 1
    if policy.is_exhausted(attempts):
        return Failure(attempts, Destination.DEAD_LETTER, None)
    try:
        wait = timedelta(seconds=policy.base.total_seconds() * 2.0**attempts)
    except OverflowError as error:
        raise AssertionError(f"attempts {attempts}: {error}") from error
    return Failure(attempts, Destination.RETRY, now + min(wait, policy.cap))


def pop_then_requeue(queues: Queues, worker: str, now: datetime) -> bytes | None:
    """Pops the head and pushes what is not due back: in between it is nowhere."""
    retry, own = queues.keys.retry, f"{queues.keys.processing}:{worker}"
    for _ in range(queues.client.llen(retry)):
        raw = queues.client.lpop(retry)
        if not isinstance(raw, bytes):
            return None
        payload = read_payload(raw)
        if isinstance(payload, Payload) and not payload.is_due(now):
            queues.client.rpush(retry, raw)
        else:
            queues.client.rpush(own, raw)
            return raw
    return None


class DropsSettled(RetryQueue):
    """Takes a settled job off the queue without its reclaim: the refund stands for ever."""

    def _reclaim(self, delivery: Delivery) -> None:  # type: ignore[override]  # as wrong as that
        """Does nothing."""


def hold_by_age_of_the_entry(
    expired_for: timedelta | None,
    *,
    older_than: timedelta,
    force: bool,
    entry_age: timedelta = timedelta(hours=1),
) -> Hold | None:
    """Recovers what has been in hand for long, whether its worker lives or not."""
    if expired_for is None and not force:
        return Hold.NO_LEASE
    return None if entry_age >= older_than else Hold.RECENT


Holder = Callable[..., Hold | None]
