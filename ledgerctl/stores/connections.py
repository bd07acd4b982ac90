"""Every store of a run, each opened at its first use: who needs no MongoDB loads no driver of it."""

from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from ledgerctl.config import Settings

if TYPE_CHECKING:
    from ledgerctl.stores.account_rows import AccountRows
    from ledgerctl.stores.archive import Archive
    from ledgerctl.stores.daily_rows import DailyRows
    from ledgerctl.stores.dead_letters import DeadLetters
    from ledgerctl.stores.deployment import Deployment
    from ledgerctl.stores.inbox import Inbox
    from ledgerctl.stores.indexes import Indexes
    from ledgerctl.stores.jobs import Jobs
    from ledgerctl.stores.leases import Leases
    from ledgerctl.stores.ledger import Ledger
    from ledgerctl.stores.mongo import Mongo
    from ledgerctl.stores.operator_log import OperatorLog
    from ledgerctl.stores.outages import Notice
    from ledgerctl.stores.outbox import Outbox
    from ledgerctl.stores.queue_server import QueueServer
    from ledgerctl.stores.queues import Queues
    from ledgerctl.stores.retry_queue import RetryLists
    from ledgerctl.stores.summaries import Summaries


T = TypeVar("T")


class opened_once(cached_property[T]):  # noqa: N801  # a decorator, as cached_property is
    """Open a store at its first use, once however many threads ask: Python 3.12 took the lock away."""

    def __get__(self, stores: Any, owner: Any = None) -> T:  # type: ignore[override]  # never on the class
        """Return the store, opened under the lock of all stores."""
        with stores.opening:
            store: T = super().__get__(stores, owner)
        return store


class Stores:
    """Every store of one run, each opened at its first use.

    This is also the way in for a library user: `with Stores(load(environment=os.environ)) as …`.
    """

    def __init__(self, settings: Settings, notice: "Notice" = lambda _text: None) -> None:
        """`notice` takes the lines that say that the run waits for a store."""
        self.settings = settings
        self.notice = notice
        self.opening = RLock()

    def __enter__(self) -> "Stores":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @opened_once
    def mongo(self) -> "Mongo":
        """The MongoDB connection."""
        from ledgerctl.stores.mongo import Mongo

        return Mongo(self.settings, self.notice)

    @opened_once
    def jobs(self) -> "Jobs":
        """The job documents."""
        from ledgerctl.stores.jobs import Jobs

        return Jobs(self.mongo)

    @opened_once
    def ledger(self) -> "Ledger":
        """The ledger rows."""
        from ledgerctl.stores.ledger import Ledger

        return Ledger(self.mongo, self.outbox)

    @opened_once
    def account_rows(self) -> "AccountRows":
        """The ledger's rows by account."""
        from ledgerctl.stores.account_rows import AccountRows

        return AccountRows(self.mongo)

    @opened_once
    def outbox(self) -> "Outbox":
        """The messages that tell of appended rows."""
        from ledgerctl.stores.outbox import Outbox

        return Outbox(self.mongo)

    @opened_once
    def operator_log(self) -> "OperatorLog":
        """What operators did."""
        from ledgerctl.stores.operator_log import OperatorLog

        return OperatorLog(self.mongo)

    @opened_once
    def indexes(self) -> "Indexes":
        """The indexes that the guarantees stand on."""
        from ledgerctl.stores.indexes import Indexes

        return Indexes(self.mongo)

    @opened_once
    def leases(self) -> "Leases":
        """The leases that keep two runs apart."""
        from ledgerctl.stores.leases import Leases

        return Leases(self.mongo)

    @opened_once
    def summaries(self) -> "Summaries":
        """The daily usage summaries."""
        from ledgerctl.stores.summaries import Summaries

        return Summaries(self.mongo)

    @opened_once
    def daily_rows(self) -> "DailyRows":
        """What a rebuild must know of the ledger."""
        from ledgerctl.stores.daily_rows import DailyRows

        return DailyRows(self.mongo)

    @opened_once
    def inbox(self) -> "Inbox":
        """The claims of messages."""
        from ledgerctl.stores.inbox import Inbox

        return Inbox(self.mongo)

    @opened_once
    def archive(self) -> "Archive":
        """The dead letters that operations took."""
        from ledgerctl.stores.archive import Archive

        return Archive(self.mongo)

    @opened_once
    def queues(self) -> "Queues":
        """The Redis lists."""
        from ledgerctl.stores.queues import Queues

        return Queues(self.settings, self.notice)

    @opened_once
    def deployment(self) -> "Deployment":
        """The MongoDB deployment itself."""
        from ledgerctl.stores.deployment import Deployment

        return Deployment(self.mongo)

    @opened_once
    def queue_server(self) -> "QueueServer":
        """The Redis server itself."""
        from ledgerctl.stores.queue_server import QueueServer

        return QueueServer(self.queues)

    @opened_once
    def retry_lists(self) -> "RetryLists":
        """The moves between retry, processing and the dead letters."""
        from ledgerctl.stores.retry_queue import RetryLists

        return RetryLists(self.queues)

    @opened_once
    def dead_letters(self) -> "DeadLetters":
        """The dead letters on Redis."""
        from ledgerctl.stores.dead_letters import DeadLetters

        return DeadLetters(self.queues)

    @property
    def unread(self) -> list[str]:
        """Return the collections of ours that count as empty because the user may not read them."""
        return [*self.mongo.unread] if "mongo" in self.__dict__ else []

    @property
    def changes(self) -> int:
        """How many confirmed writes of this run have changed anything that counts."""
        documents = self.mongo.changes.count if "mongo" in self.__dict__ else 0
        return documents + (self.queues.changes if "queues" in self.__dict__ else 0)

    def close(self) -> None:
        """Close what was opened."""
        for name in ("mongo", "queues"):
            if name in self.__dict__:
                self.__dict__[name].close()
