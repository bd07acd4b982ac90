"""The claims of messages."""

from ledgerctl.stores.connections import Mongo


class Inbox:
    """The claims of messages."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._documents = mongo.collection("inbox")
