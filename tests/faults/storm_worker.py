"""A consumer of two groups that handles whatever the feed delivers, until it is killed."""

import os
import time
from typing import Any

from pymongo.collection import Collection

from ledgerctl.config import load
from ledgerctl.domain.inbox import Claim
from ledgerctl.domain.rows import Message
from ledgerctl.operations.claims import Claims
from ledgerctl.operations.consume import Counts
from ledgerctl.operations.usage_daily import GROUP, UsageDaily
from ledgerctl.stores.connections import Stores
from tests.faults.storm import COUNTER, FEED, TERM, add_to

BATCH = 50


def main() -> None:
    with Stores(load(environment=dict(os.environ))) as stores:
        owner = f"worker {os.getpid()}"
        summaries = Claims(stores, GROUP, owner=owner, claim_for=TERM)
        work = UsageDaily(stores, summaries, stores.settings.zone)
        counter = Claims(stores, COUNTER, owner=owner, claim_for=TERM)
        counts = Counts()
        while True:
            if not (messages := delivered(stores)):
                time.sleep(0.05)
                continue
            work(messages, counts, lambda: False)
            for message in messages:
                counter.deliver(message, counting(stores))


def delivered(stores: Stores) -> list[Message]:
    """Some deliveries off the feed; what a killed worker took is gone, as with any broker."""
    feed: Collection[Any] = stores.mongo.database[FEED]
    taken = [one for _ in range(BATCH) if (one := feed.find_one_and_delete({})) is not None]
    return stores.outbox.of_keys([one["key"] for one in taken])


def counting(stores: Stores) -> Any:
    def handler(claim: Claim, session: Any) -> None:
        add_to(stores, claim.message, session)

    return handler


if __name__ == "__main__":
    main()
