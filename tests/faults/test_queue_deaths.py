"""A worker that dies after any one of its writes, to either store: the job is on one list, or done."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from ledgerctl.operations.audit import Audit, Scope
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.queue import plan_recovery, recover
from ledgerctl.operations.worker import Delivery, RetryQueue
from ledgerctl.stores.connections import Stores
from tests.builders import make_entry, make_job, make_row

RETRY = "jobs:retry"
WRITES_MAX = 30


class Death(BaseException):
    """The process ended here: nothing catches it, nothing is tidied up."""


class Mortal:
    """Lets the stores do so many writes, then dies as soon as the last of them is done."""

    def __init__(self, stores: Stores, writes: int) -> None:
        self._stores = stores
        self._left = writes
        self.died = False

    @contextmanager
    def living(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Count the writes of this block."""
        mongo, queues = self._stores.mongo, self._stores.queues
        with monkeypatch.context() as patch:
            for store in (mongo, queues):
                patch.setattr(store, "writing", self._counted(store.writing))
            whole = mongo.transaction
            patch.setattr(
                mongo,
                "transaction",
                lambda *words, **options: self._once(lambda: whole(*words, **options)),
            )
            try:
                yield
            except Death:
                self.died = True

    def _counted(self, writing: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def counted(*words: Any) -> Iterator[None]:
            with writing(*words):
                yield
            if len(words) == 1 or words[1] is None:  # one inside a transaction is not its end
                self._spend()

        return counted

    def _once(self, act: Callable[[], Any]) -> Any:
        value = act()
        self._spend()
        return value

    def _spend(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Death


def fail(queue: RetryQueue, delivery: Delivery) -> None:
    queue.failed(delivery, "boom")


def succeed(queue: RetryQueue, delivery: Delivery) -> None:
    queue.succeeded(delivery)


def put_back(queue: RetryQueue, delivery: Delivery) -> None:
    queue.put_back(delivery)


def reset(stores: Stores, redis: Redis) -> None:
    """One refunded job, in its second run."""
    redis.flushall()
    for name in ("jobs", "ledger", "outbox", "leases"):
        stores.mongo.collection(name).delete_many({})
    stores.mongo.collection("jobs").insert_one(make_job())
    stores.mongo.collection("ledger").insert_one(make_row())
    redis.rpush(RETRY, make_entry(attempts=0))


def entries(redis: Any) -> list[bytes]:
    return [raw for key in redis.keys("*") for raw in redis.lrange(key, 0, -1)]


def net(stores: Stores) -> int:
    return sum(int(row["amount"]) for row in stores.mongo.collection("ledger").find())


@pytest.mark.parametrize("answer", [fail, succeed, put_back])
def test_a_worker_may_die_after_any_write(
    stores: Stores,
    redis_client: Redis,
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[RetryQueue, Delivery], None],
) -> None:
    build_indexes(stores)
    for writes in range(1, WRITES_MAX):
        reset(stores, redis_client)
        died = die_after(stores, writes, monkeypatch, answer)
        found = entries(redis_client)
        assert len(found) == 1 or (answer is succeed and not found and net(stores) == -40)
        dead = plan_recovery(stores, older_than=timedelta(0), force=True)
        list(recover(stores, dead, stopping=lambda: False))
        finish(stores, redis_client)
        assert net(stores) == -40, f"after {writes} writes"
        assert not list(Audit(stores, Scope()).findings())
        if not died:
            assert writes >= 3
            return
    pytest.fail("the worker never came to its end")


def die_after(
    stores: Stores,
    writes: int,
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[RetryQueue, Delivery], None],
) -> bool:
    """Take the job and answer for it; whether it died over it."""
    queue = RetryQueue(stores)
    queue.__enter__()
    mortal = Mortal(stores, writes)
    monkeypatch.setattr(queue.stores.leases, "take", lambda *_: None)  # the thread is dead, too
    with mortal.living(monkeypatch):
        delivery = queue.take()
        assert delivery is not None
        answer(queue, delivery)
    monkeypatch.undo()
    queue._open.close()
    return mortal.died


def finish(stores: Stores, redis: Redis) -> None:
    """A calm worker takes what is left and succeeds, whenever it is due."""
    for raw in redis.lrange(RETRY, 0, -1):
        content = json.loads(raw)
        redis.lrem(RETRY, 1, raw)  # type: ignore[arg-type]  # bytes
        redis.rpush(RETRY, json.dumps(content | {"not_before": None}).encode())
    with RetryQueue(stores) as queue:
        for delivery in queue:
            queue.succeeded(delivery)
    assert entries(redis) == []
