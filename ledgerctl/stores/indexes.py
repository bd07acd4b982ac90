"""The indexes that the guarantees stand on: what must be there, what is, and what is in the way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pymongo.errors import DuplicateKeyError, OperationFailure

from ledgerctl.domain.times import format_time
from ledgerctl.stores.codec import to_id, to_time
from ledgerctl.stores.documents import Document
from ledgerctl.stores.ledger import guards_steps
from ledgerctl.stores.mongo import Mongo

STEP_ROWS: Document = {
    "job_id": {"$type": ["string", "objectId", "int", "long"]},
    "type": {"$in": ["charge", "refund", "reclaim"]},
}
EXAMPLES_MAX = 20  # rows named when an index cannot be built


@dataclass(frozen=True, slots=True)
class Index:
    """One index of the contract: collection (its settings name), keys, and what it guards."""

    collection: str
    keys: tuple[str, ...]
    unique: bool = False
    partial: Document | None = None

    @property
    def name(self) -> str:
        """The index's name: its collection and its keys."""
        kind = "_unique" if self.unique else ""
        return f"{self.collection}_{'_'.join(key.strip('_') for key in self.keys)}{kind}"


INDEXES: tuple[Index, ...] = (
    Index("ledger", ("job_id", "type"), unique=True, partial=STEP_ROWS),
    Index("ledger", ("job_id", "type")),
    Index("ledger", ("account_id", "created_at", "_id", "type", "amount")),
    Index("ledger", ("created_at", "account_id", "type", "amount")),
    Index("ledger", ("recorded_at",)),
    Index("jobs", ("account_id", "created_at")),
    Index("inbox", ("consumer_group", "message_key"), unique=True),
    Index("inbox", ("consumer_group", "status", "completed_at")),  # what a group left unfinished
    Index("outbox", ("message_key",), unique=True),
    Index("outbox", ("created_at", "_id")),
    Index("usage_daily", ("day",)),
)


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """What became of one index: `exists`, `created`, `would_create` or `blocked` by rows."""

    name: str
    status: str
    rows: list[Document] = field(default_factory=list)


class Indexes:
    """Builds and reads indexes."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    def present(self, collection: str) -> list[Mapping[str, Any]]:
        """The indexes of a collection; none when it does not exist."""
        with self._mongo.reading(f"read the indexes of {collection}"):
            return list(self._mongo.collection(collection).index_information().values())

    def exists(self, index: Index) -> bool:
        """Whether this index, or one that does the same or more, is there."""
        return any(serves(found, index) for found in self.present(index.collection))

    def build(self, index: Index) -> IndexStatus:
        """Build one index if it is not there; rows in its way are named, never removed."""
        if self.exists(index):
            return IndexStatus(index.name, "exists")
        options: Document = {"name": index.name, "unique": index.unique}
        if index.partial is not None:
            options["partialFilterExpression"] = index.partial
        with self._mongo.writing(f"build index {index.name}"):
            try:
                self._mongo.collection(index.collection).create_index(
                    [(key, 1) for key in index.keys], **options
                )
            except DuplicateKeyError:
                return IndexStatus(index.name, "blocked", list(self.in_the_way(index)))
            except OperationFailure as error:
                if error.code not in {85, 86}:  # the name or the keys are taken by another index
                    raise
                return IndexStatus(index.name, "conflict", [{"why": self._mongo.clean(error)}])
        return IndexStatus(index.name, "created")

    def in_the_way(self, index: Index) -> Iterator[Document]:
        """The documents whose keys stand more than once, of a few keys, key by key."""
        pipeline: list[Document] = [
            {"$match": index.partial or {}},
            {"$group": {"_id": {key: f"${key}" for key in index.keys}, "number": {"$sum": 1}}},
            {"$match": {"number": {"$gt": 1}}},
            {"$limit": EXAMPLES_MAX},
        ]
        collection = self._mongo.collection(index.collection)
        with self._mongo.reading(f"find what is in the way of {index.name}"):
            shared = [one["_id"] for one in collection.aggregate(pipeline, allowDiskUse=True)]
            if not shared:
                return
            alike = [{key: {"$eq": one.get(key)} for key in index.keys} for one in shared]
            found = collection.find({"$and": [index.partial or {}, {"$or": alike}]})
            for document in found.sort([(key, 1) for key in (*index.keys, "_id")]):
                yield shown_row(document, index)


def shown_row(document: Document, index: Index) -> Document:
    """What tells one blocking document from another: its id, its keys, its amount and its date."""
    row: Document = {"row_id": to_id(document["_id"]).text}
    for key in index.keys:
        row[key] = None if document.get(key) is None else to_id(document[key]).text
    if "amount" in document:
        row["amount"] = document["amount"]
    if "created_at" in document:
        at = document["created_at"]
        row["created_at"] = format_time(to_time(at)) or at
    return row


def serves(found: Mapping[str, Any], index: Index) -> bool:
    """Whether an index that is there does what this one is to do; a wider one does."""
    keys = [key for key, _ in found["key"]]
    if index.unique and index.partial is not None:
        return guards_steps(found)
    if index.unique:
        whole = "partialFilterExpression" not in found and not found.get("sparse")
        return bool(found.get("unique")) and sorted(keys) == sorted(index.keys) and whole
    usable = "partialFilterExpression" not in found and not found.get("sparse")
    return usable and keys[: len(index.keys)] == list(index.keys)
