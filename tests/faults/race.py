"""The race of the daily summaries: an appender, two consumers and two rebuilds at once."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import Empty, Queue
from typing import Any

from bson import Int64

from ledgerctl.domain.days import day_of
from ledgerctl.domain.summary import Drift
from ledgerctl.errors import JobHeld, StoreBusy
from ledgerctl.operations.rebuild import RebuildRequest, overwrite
from ledgerctl.operations.summaries import Window, drift, recompute_days
from ledgerctl.stores.connections import Stores
from tests.builders import make_row

ROWS_EACH = 8  # of an account, then it rests: no later message mends a stale figure
HELD_S = 0.5  # how long the first rebuild's last figures wait to be written, at least
HELD_PAIRS = 40  # figures that consumers write meanwhile

Pair = tuple[str, str]
Open = Callable[[], Stores]
Skew = Callable[[str], timedelta]
HANG = "hangWhileBuildingDocumentSourceMergeBatch"  # between reading and writing of a $merge


def no_skew(_: str) -> timedelta:
    """Everybody goes by the server's clock."""
    return timedelta(0)


def client_clocks(actor: str) -> timedelta:
    """Each by its own client's clock: the first rebuild's runs ahead, the others are slow."""
    return timedelta(minutes=5 if actor == "rebuild-1" else -5)


class Race:
    """Runs everybody for a while, lets the consumers finish, and compares."""

    def __init__(self, opened: Open, seed: int, skew: Skew = no_skew) -> None:
        self.open = opened
        self.seed = seed
        self.skew = skew
        self.over = threading.Event()
        self.appended = threading.Event()
        self.half_time = threading.Event()
        self.held = threading.Event()
        self.messages: Queue[Pair] = Queue()
        self.trouble: list[BaseException] = []
        self.counts = {"rows": 0, "recomputed": 0, "rebuilt": 0, "conflicts": 0}

    def run(self, seconds: float) -> Drift:
        """The summaries compared with the ledger, once all is quiet."""
        actors = [
            ("appender", self.append),
            ("consumer-1", self.consume),
            ("consumer-2", self.consume),
            ("rebuild-1", self.rebuild_until_half_time),
            ("rebuild-2", self.rebuild),
        ]
        threads = [
            threading.Thread(target=self.guarded, args=(name, work)) for name, work in actors
        ]
        with self.open() as stores, self.pauses(stores):
            for thread in threads:
                thread.start()
            time.sleep(seconds * 0.5)
            self.held.set()
            time.sleep(HELD_S)
            self.wait_for_consumers()
            self.half_time.set()
            self.held.clear()
            time.sleep(seconds * 0.5)
            self.over.set()
            for thread in threads:
                thread.join()
        assert not self.trouble, self.trouble
        with self.open() as stores:
            return drift(stores, Window(3))

    def wait_for_consumers(self) -> None:
        """Until they have written what the rebuilds in hand have not seen, on a busy machine too."""
        enough = self.counts["recomputed"] + HELD_PAIRS
        deadline = time.monotonic() + 20
        while self.counts["recomputed"] < enough and time.monotonic() < deadline:
            time.sleep(0.02)

    def guarded(self, name: str, work: Callable[[Stores, random.Random], None]) -> None:
        chance = random.Random(f"{self.seed} {name}")
        try:
            with self.open() as stores:
                self.put_clock(stores, self.skew(name))
                work(stores, chance)
        except BaseException as error:  # noqa: BLE001  # the main thread reports it
            self.trouble.append(error)
            self.over.set()
        finally:
            if name == "appender":
                self.appended.set()

    def put_clock(self, stores: Stores, skew: timedelta) -> None:
        if not skew:
            return
        real = stores.summaries.now

        def skewed(session: Any) -> datetime:
            return real(session) + skew

        stores.summaries.now = skewed  # type: ignore[method-assign]  # the wrong clock

    def append(self, stores: Stores, chance: random.Random) -> None:
        """Rows of few accounts at a time, on two days, each with its message."""
        ledger = stores.mongo.collection("ledger")
        number = 0
        while not self.over.is_set():
            number += 1
            at = datetime.now(UTC) - timedelta(days=chance.randrange(2))
            account = f"acct-{(number + chance.randrange(ROWS_EACH)) // ROWS_EACH}"
            row = make_row(
                f"job-{number}", account_id=account, amount=Int64(-chance.randrange(1, 99)),
                created_at=at, recorded_at=datetime.now(UTC),
            )  # fmt: skip
            ledger.insert_one(row)
            self.messages.put((account, day_of(at, stores.settings.zone)))
            self.counts["rows"] = number
            time.sleep(chance.expovariate(1 / 0.004))

    def consume(self, stores: Stores, chance: random.Random) -> None:
        """Take what is there, recompute it in one transaction, try again when it is refused."""
        while not (self.appended.is_set() and self.messages.empty()):
            pairs = self.batch(chance.randrange(1, 20))
            while pairs:
                work = partial(recompute, stores, tuple(pairs), chance)
                try:
                    stores.mongo.transaction("recompute", work)
                    self.counts["recomputed"] += len(pairs)
                    break
                except (JobHeld, StoreBusy):
                    self.counts["conflicts"] += 1

    def batch(self, size: int) -> set[Pair]:
        pairs: set[Pair] = set()
        with suppress(Empty):
            pairs.add(self.messages.get(timeout=0.05))
            while len(pairs) < size:
                pairs.add(self.messages.get_nowait())
        return pairs

    def rebuild_until_half_time(self, stores: Stores, chance: random.Random) -> None:
        """The same, ending earlier: what it wrote last is nobody's to mend but by the rule."""
        self.rebuild(stores, chance, self.half_time)

    def rebuild(
        self, stores: Stores, chance: random.Random, until: threading.Event | None = None
    ) -> None:
        """Rebuild without the lease, pausing between reading as_of and reading the ledger."""
        while not (until or self.over).is_set() and not self.over.is_set():
            overwrite(stores, RebuildRequest(), pause=lambda: time.sleep(chance.random() * 0.05))
            self.counts["rebuilt"] += 1
            time.sleep(chance.random() * 0.02)

    @contextmanager
    def pauses(self, stores: Stores) -> Iterator[None]:
        """Hold every $merge between its reading and its writing, now and then."""
        admin = stores.mongo.client.admin
        chance = random.Random(self.seed)

        def toggle() -> None:
            while not self.over.is_set():
                admin.command("configureFailPoint", HANG, mode="alwaysOn")
                time.sleep(chance.random() * 0.08)
                while self.held.is_set():
                    time.sleep(0.01)
                admin.command("configureFailPoint", HANG, mode="off")
                time.sleep(chance.random() * 0.04)

        toggler = threading.Thread(target=toggle)
        toggler.start()
        try:
            yield
        finally:
            self.over.set()
            toggler.join()
            admin.command("configureFailPoint", HANG, mode="off")


def recompute(stores: Stores, pairs: tuple[Pair, ...], chance: random.Random, session: Any) -> None:
    """Recompute, and dawdle before the commit."""
    recompute_days(stores, pairs, session)
    time.sleep(chance.random() * 0.01)
