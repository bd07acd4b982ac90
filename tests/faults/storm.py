"""What the storm's test and its workers share."""

from datetime import timedelta
from typing import Any

from ledgerctl.domain.rows import Message
from ledgerctl.stores.connections import Stores

FEED = "feed"  # deliveries, each message five times
EFFECTS = "effects"  # what a consumer that adds up has added, by account
COUNTER = "adds-up"
TERM = timedelta(seconds=2)


def add_to(stores: Stores, message: Message, session: Any) -> None:
    """Add a message's amount to its account: twice would show."""
    stores.mongo.database[EFFECTS].update_one(
        {"_id": message.tenant},
        {"$inc": {"total": message.payload["amount"], "messages": 1}},
        upsert=True,
        session=session,
    )
