"""Each rule of the retry queue as a claim: green for the product, red for its wrong version."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from ledgerctl.domain.queue import Destination, Hold, failure, hold_of
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.lookout import Lookout
from ledgerctl.operations.worker import RetryQueue
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.queues import Queues
from ledgerctl.stores.retry_queue import RetryLists
from tests.builders import NOON, make_entry, make_job, make_row
from tests.wrong_versions import queue as wrong

POLICY = RetryPolicy(timedelta(seconds=30), timedelta(hours=1), 5)
RETRY, MINE = "jobs:retry", "jobs:processing:w1"
LATER = "2999-01-01T00:00:00Z"

# failures


def claim_every_failure_advances_the_count(after: Callable[..., Any]) -> None:
    assert after(2, policy=POLICY, now=NOON).attempts == 3


def claim_the_new_count_meets_the_cap(after: Callable[..., Any]) -> None:
    assert after(4, policy=POLICY, now=NOON).place is Destination.DEAD_LETTER
    assert after(3, policy=POLICY, now=NOON).place is Destination.RETRY


def claim_no_count_overflows(after: Callable[..., Any]) -> None:
    endless = RetryPolicy(timedelta(seconds=30), timedelta(hours=1), 10**9)
    for found in (45, 46, 1_023, 999_999):
        assert after(found, policy=endless, now=NOON).not_before == NOON + timedelta(hours=1)


FAILURES = [
    (claim_every_failure_advances_the_count, wrong.attempts_never_advance),
    (claim_the_new_count_meets_the_cap, wrong.cap_compared_before_counting),
    (claim_no_count_overflows, wrong.power_before_cap),
]


@pytest.mark.parametrize(("claim", "wrong_version"), FAILURES)
def test_each_rule_of_a_failure_holds_and_is_red_against_its_wrong_version(
    claim: Callable[[Callable[..., Any]], None], wrong_version: Callable[..., Any]
) -> None:
    claim(failure)
    with pytest.raises(AssertionError):
        claim(wrong_version)


# taking


class Cut(Exception):
    """The process died here."""


class CutAfter:
    """A Redis client whose process dies after that many commands."""

    def __init__(self, client: Redis, commands: int) -> None:
        self._client = client
        self._left = commands

    def __getattr__(self, name: str) -> Any:
        whole = getattr(self._client, name)
        if name == "register_script":
            return lambda source: self._counted(whole(source))
        return self._counted(whole)

    def _counted(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def once(*words: Any, **named: Any) -> Any:
            if not self._left:
                raise Cut
            self._left -= 1
            return act(*words, **named)

        return once


def product_take(queues: Queues, worker: str, now: datetime) -> bytes | None:
    """The product's own way from retry to processing."""
    lists = RetryLists(queues)
    candidate = Lookout(queues, lists).next(now)
    if candidate is None or not lists.take(worker, candidate.raw, within=candidate.within):
        return None
    return candidate.raw


def claim_a_job_is_on_one_list_wherever_the_worker_dies(
    stores: Stores, redis: Redis, take: Callable[..., bytes | None]
) -> None:
    entries = [make_entry("waits", not_before=LATER), make_entry("due")]
    queues = stores.queues
    whole = queues.client
    for commands in range(12):
        redis.flushall()
        redis.rpush(RETRY, *entries)
        queues.client = CutAfter(whole, commands)  # type: ignore[assignment]  # quacks alike
        try:
            take(queues, "w1", datetime.now(UTC))
        except Cut:
            pass
        finally:
            queues.client = whole
        found = [*redis.lrange(RETRY, 0, -1), *redis.lrange(MINE, 0, -1)]
        assert sorted(found) == sorted(entries), f"after {commands} commands"


def test_a_taken_job_is_on_one_list_wherever_the_worker_dies(
    stores: Stores, redis_client: Redis
) -> None:
    claim_a_job_is_on_one_list_wherever_the_worker_dies(stores, redis_client, product_take)
    with pytest.raises(AssertionError):
        claim_a_job_is_on_one_list_wherever_the_worker_dies(
            stores, redis_client, wrong.pop_then_requeue
        )


# settled jobs


def claim_a_settled_job_is_reclaimed_before_it_is_dropped(
    stores: Stores, redis: Redis, kind: type[RetryQueue]
) -> None:
    ledger = stores.mongo.collection("ledger")
    stores.mongo.collection("jobs").delete_many({})
    ledger.delete_many({})
    stores.mongo.collection("jobs").insert_one(
        make_job(status="succeeded", is_refunded=True, refunded_at=NOON)
    )
    ledger.insert_many([make_row(), make_row(row_type="refund")])
    redis.rpush(RETRY, make_entry())
    with kind(stores) as queue:
        assert queue.take() is None
    assert redis.keys("*") == []
    assert sum(int(row["amount"]) for row in ledger.find()) == -40


def test_a_settled_job_is_reclaimed_before_it_is_dropped(
    stores: Stores, redis_client: Redis
) -> None:
    build_indexes(stores)
    claim_a_settled_job_is_reclaimed_before_it_is_dropped(stores, redis_client, RetryQueue)
    with pytest.raises(AssertionError):
        claim_a_settled_job_is_reclaimed_before_it_is_dropped(
            stores, redis_client, wrong.DropsSettled
        )


# recovering


def claim_a_live_worker_is_left_alone(hold: Callable[..., Hold | None]) -> None:
    for force in (False, True):
        alive = timedelta(seconds=-3)
        assert hold(alive, older_than=timedelta(0), force=force) is Hold.LIVE


def test_a_live_worker_is_left_alone() -> None:
    claim_a_live_worker_is_left_alone(hold_of)
    with pytest.raises(AssertionError):
        claim_a_live_worker_is_left_alone(wrong.hold_by_age_of_the_entry)
