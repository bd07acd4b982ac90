"""The dead letters that operations took, byte for byte."""

from ledgerctl.stores.connections import Mongo


class Archive:
    """The dead letters that operations took, byte for byte."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._documents = mongo.collection("dead_archive")
