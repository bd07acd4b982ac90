"""Every store of a run, each opened at its first use: who needs no MongoDB loads no driver of it."""

from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

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
    from ledgerctl.stores.retention import Retention
    from ledgerctl.stores.retry_queue import RetryLists
    from ledgerctl.stores.summaries import Summaries

# By attribute: the module and class, and what opening one takes.
STORES: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {
    "mongo": (("mongo", "Mongo"), ("settings", "notice")),
    "jobs": (("jobs", "Jobs"), ("mongo",)),
    "ledger": (("ledger", "Ledger"), ("mongo", "outbox")),
    "account_rows": (("account_rows", "AccountRows"), ("mongo",)),
    "outbox": (("outbox", "Outbox"), ("mongo",)),
    "operator_log": (("operator_log", "OperatorLog"), ("mongo",)),
    "indexes": (("indexes", "Indexes"), ("mongo",)),
    "leases": (("leases", "Leases"), ("mongo",)),
    "summaries": (("summaries", "Summaries"), ("mongo",)),
    "daily_rows": (("daily_rows", "DailyRows"), ("mongo",)),
    "inbox": (("inbox", "Inbox"), ("mongo",)),
    "archive": (("archive", "Archive"), ("mongo",)),
    "retention": (("retention", "Retention"), ("mongo",)),
    "queues": (("queues", "Queues"), ("settings", "notice")),
    "deployment": (("deployment", "Deployment"), ("mongo",)),
    "queue_server": (("queue_server", "QueueServer"), ("queues",)),
    "retry_lists": (("retry_queue", "RetryLists"), ("queues",)),
    "dead_letters": (("dead_letters", "DeadLetters"), ("queues",)),
}


class Stores:
    """Open each store of one run at its first use.

    This is also the way in for a library user: `with Stores(load(environment=os.environ)) as …`.
    """

    mongo: "Mongo"
    jobs: "Jobs"
    ledger: "Ledger"
    account_rows: "AccountRows"
    outbox: "Outbox"
    operator_log: "OperatorLog"
    indexes: "Indexes"
    leases: "Leases"
    summaries: "Summaries"
    daily_rows: "DailyRows"
    inbox: "Inbox"
    archive: "Archive"
    retention: "Retention"
    queues: "Queues"
    deployment: "Deployment"
    queue_server: "QueueServer"
    retry_lists: "RetryLists"
    dead_letters: "DeadLetters"

    def __init__(self, settings: Settings, notice: "Notice" = lambda _text: None) -> None:
        """`notice` takes the lines that say that the run waits for a store."""
        self.settings = settings
        self.notice = notice
        self.opening = RLock()

    if not TYPE_CHECKING:  # else mypy would let every name pass

        def __getattr__(self, name: str) -> Any:
            """Open a store that is asked for the first time."""
            if name not in STORES:
                raise AttributeError(name)
            with self.opening:  # once, however many threads ask
                if name not in self.__dict__:
                    (module, kind), needs = STORES[name]
                    store = getattr(import_module(f"ledgerctl.stores.{module}"), kind)
                    self.__dict__[name] = store(*(getattr(self, need) for need in needs))
            return self.__dict__[name]

    def __enter__(self) -> "Stores":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unread(self) -> list[str]:
        """Return the collections of ours that count as empty because the user may not read them."""
        return [*self.mongo.unread] if "mongo" in self.__dict__ else []

    @property
    def changes(self) -> int:
        """Return how many confirmed writes of this run have changed anything that counts."""
        documents = self.mongo.changes.count if "mongo" in self.__dict__ else 0
        return documents + (self.queues.changes if "queues" in self.__dict__ else 0)

    def close(self) -> None:
        """Close what was opened."""
        for name in ("mongo", "queues"):
            if name in self.__dict__:
                self.__dict__[name].close()
