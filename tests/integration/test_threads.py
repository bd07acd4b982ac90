"""Threads that share one set of stores: each store is opened once, whoever asks first."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from ledgerctl.config import load
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.steps import refund
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.mongo import Mongo
from tests.builders import make_job, make_row
from tests.conftest import Documents

THREADS = 8
ROUNDS = 10


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_that_ask_at_once_open_one_client(
    environment: dict[str, str], hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 took the lock out of `cached_property`: each thread opened a client of its own."""
    settings = load(environment=environment)
    opened: list[Stores] = []
    opening = Mongo.__init__

    def counted(self: Mongo, *words: Any) -> None:
        opened.append(stores)
        opening(self, *words)

    monkeypatch.setattr(Mongo, "__init__", counted)
    for _ in range(ROUNDS):
        barrier = Barrier(THREADS)
        with Stores(settings) as stores, ThreadPoolExecutor(THREADS) as pool:

            def ask(_: int, stores: Stores = stores, barrier: Barrier = barrier) -> None:
                barrier.wait()
                assert stores.jobs.find("job-1") == []

            list(pool.map(ask, range(THREADS)))
    assert len(opened) == ROUNDS


def test_threads_refund_before_any_connection_is_open(
    environment: dict[str, str], stores: Stores, documents: Documents, hurried: None
) -> None:
    build_indexes(stores)
    names = [f"job-{number}" for number in range(THREADS)]
    documents.jobs.insert_many([make_job(one) for one in names])
    documents.ledger.insert_many([make_row(one) for one in names])
    barrier = Barrier(THREADS)
    with Stores(load(environment=environment)) as fresh, ThreadPoolExecutor(THREADS) as pool:

        def one(name: str) -> str:
            barrier.wait()
            return str(refund(fresh, name, operation_id="op-1").outcome)

        assert set(pool.map(one, names)) == {"applied"}
    assert sum(row["amount"] for row in documents.ledger.find()) == 0
