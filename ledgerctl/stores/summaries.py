"""The daily usage summaries, rebuilt from the ledger."""

from ledgerctl.stores.connections import Mongo


class Summaries:
    """The daily usage summaries, rebuilt from the ledger."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._documents = mongo.collection("usage_daily")
