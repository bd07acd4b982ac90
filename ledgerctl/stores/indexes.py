"""The indexes that the guarantees stand on: what must be there, what is, and what is in the way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt
from typing import Any

from pymongo.errors import DuplicateKeyError, OperationFailure

from ledgerctl.domain.times import format_time
from ledgerctl.stores.codec import Document, to_id, to_time
from ledgerctl.stores.mongo import Mongo

STEP_TYPES = ("charge", "refund", "reclaim")
ID_TYPES = ("string", "objectId", "int", "long")
UUID_TYPE = "binData"
STEP_ROWS: Document = {
    "job_id": {"$type": [*ID_TYPES, UUID_TYPE]},
    "type": {"$in": [*STEP_TYPES]},
}
TYPE_NUMBERS = {2: "string", 5: "binData", 7: "objectId", 16: "int", 18: "long"}
EXAMPLES_MAX = 20  # rows named when an index cannot be built
NO_COLLECTION = 26
SIMPLE: Document = {"locale": "simple"}  # the collection's own collation is not inherited


@dataclass(frozen=True, slots=True)
class Index:
    """Hold one index of the contract: collection (its settings name), keys, and what it guards."""

    collection: str
    keys: tuple[str, ...]
    unique: bool = False
    partial: Document | None = None

    @property
    def name(self) -> str:
        """Return the index's name: its collection and its keys."""
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
    """Report on one index: `exists`, `created`, `would_create` or `blocked` by rows."""

    name: str
    status: str
    rows: list[Document] = field(default_factory=list)


class Indexes:
    """Builds and reads indexes."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    def present(self, collection: str) -> list[Mapping[str, Any]]:
        """List a collection's indexes, with `building` set on those not yet enforced."""
        name = self._mongo.collection(collection).name
        with self._mongo.reading(f"read the indexes of {name}"):
            try:
                found = self._mongo.database.command("listIndexes", name, includeBuildUUIDs=True)
            except OperationFailure as error:
                if error.code == NO_COLLECTION:
                    return []
                raise
        return [
            {**one.get("spec", one), "building": "buildUUID" in one}
            for one in found["cursor"]["firstBatch"]
        ]

    def guards(self, index: Index) -> bool:
        """Tell whether some index enforces what this one is for, on every row there can be today."""
        id_types = self.id_types() if index.partial else ()
        return any(not flaw(one, index, id_types) for one in self.present(index.collection))

    def id_types(self) -> tuple[str, ...]:
        """List the types of job ids that a guard must cover: UUIDs as soon as one job has one."""
        with self._mongo.reading("look for UUID jobs"):
            query = {"_id": {"$type": UUID_TYPE}}
            found = self._mongo.collection("jobs").find_one(query, {"_id": 1})
        return ID_TYPES if found is None else (*ID_TYPES, UUID_TYPE)

    def exists(self, index: Index) -> bool:
        """Tell whether this index, or one that does the same or more, is there."""
        return any(not flaw(one, index) for one in self.present(index.collection))

    def unique_fields(self, collection: str) -> list[tuple[str, ...]]:
        """List the fields of each index that makes a second document impossible, for every document."""
        found = []
        for one in self.present(collection):
            fields = tuple(one["key"])
            if one["name"] != "_id_" and not flaw(one, Index(collection, fields, unique=True)):
                found.append(fields)
        return found

    def build(self, index: Index) -> IndexStatus:
        """Build one index if it is not there; rows in its way are named, never removed.

        An index that only looks like it stays, and this one is built beside it; our own, hidden,
        is shown again.
        """
        present = self.present(index.collection)
        if any(not flaw(one, index) for one in present):
            return IndexStatus(index.name, "exists")
        hidden = (one for one in present if is_ours(one, index) and one.get("hidden"))
        own = next((one for one in hidden if not flaw({**one, "hidden": False}, index)), None)
        beside = any(one["name"] == index.name and looks_like(one, index) for one in present)
        with self._mongo.writing(f"build index {index.name}"):
            try:
                if own is not None:
                    return self._show_again(own, index)
                return self._create(index, f"{index.name}_2" if beside else index.name)
            except DuplicateKeyError:
                return IndexStatus(index.name, "blocked", list(self.in_the_way(index)))
            except OperationFailure as error:
                if error.code not in {85, 86}:  # the keys or the name belong to another
                    raise
                return IndexStatus(index.name, "conflict", [{"why": self._mongo.clean(error)}])

    def _show_again(self, found: Mapping[str, Any], index: Index) -> IndexStatus:
        name = self._mongo.collection(index.collection).name
        shown = {"name": found["name"], "hidden": False}
        self._mongo.database.command("collMod", name, index=shown)
        return IndexStatus(str(found["name"]), "shown_again")

    def _create(self, index: Index, name: str) -> IndexStatus:
        options: Document = {"name": name, "unique": index.unique, "collation": SIMPLE}
        if index.partial is not None:
            options["partialFilterExpression"] = index.partial
        keys = [(key, 1) for key in index.keys]
        self._mongo.collection(index.collection).create_index(keys, **options)
        return IndexStatus(name, "created")

    def in_the_way(self, index: Index) -> Iterator[Document]:
        """Yield the documents whose keys occur more than once, of a few keys, key by key."""
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
    """Return what tells blocking documents apart: id, keys, amount and date."""
    row: Document = {"row_id": to_id(document["_id"]).text}
    for key in index.keys:
        row[key] = None if document.get(key) is None else to_id(document[key]).text
    if "amount" in document:
        row["amount"] = document["amount"]
    if "created_at" in document:
        at = document["created_at"]
        row["created_at"] = format_time(to_time(at)) or at
    return row


def is_ours(found: Mapping[str, Any], index: Index) -> bool:
    """Tell whether an index has the keys and the filter with which `db init` builds this one."""
    same_keys = tuple(found["key"]) == index.keys
    return same_keys and found.get("partialFilterExpression") == index.partial


def looks_like(found: Mapping[str, Any], index: Index) -> bool:
    """Tell whether an index has the keys of this one, in the order that its job wants."""
    keys = list(found["key"])
    if index.unique:
        return sorted(keys) == sorted(index.keys)
    return keys[: len(index.keys)] == list(index.keys)


def flaw(
    found: Mapping[str, Any],
    index: Index,
    id_types: Sequence[str] = (*ID_TYPES, UUID_TYPE),
) -> str:
    """Name what keeps an index from doing this one's job; empty where it does it, or more.

    The one judge of every index. `id_types` are the types of job ids that rows can have. Source:
    contract, section 2, indexes.
    """
    if not looks_like(found, index):
        return "has other keys"
    if index.unique and not found.get("unique"):
        return "is not unique"
    for name, why in (
        ("building", "is not yet enforced"),
        ("hidden", "is hidden"),
        ("sparse", "is sparse"),
    ):
        if found.get(name):
            return why
    collation = found.get("collation") or SIMPLE
    if collation["locale"] != "simple":
        return f"has a collation ({collation['locale']}, strength {collation.get('strength', 3)})"
    partial = found.get("partialFilterExpression")
    if partial is None or (index.partial and not left_out(partial, id_types)):
        return ""
    return f"leaves out {left_out(partial, id_types)}" if index.partial else "is partial"


def left_out(partial: Mapping[str, Any], id_types: Sequence[str]) -> str:
    """Name a kind of row that a partial filter does not certainly let in; empty if there is none."""
    for row_type in STEP_TYPES:
        for id_type in id_types:
            if not lets_in(partial, row_type, id_type):
                shown = "UUID" if id_type == UUID_TYPE else id_type
                return f"{row_type} rows of jobs whose id is of type {shown}"
    return ""


def lets_in(partial: Mapping[str, Any], row_type: str, id_type: str) -> bool:
    """Tell whether a filter certainly lets in a row of this type, whatever else the row holds."""
    for name, condition in partial.items():
        match name:
            case "$and":
                passes = all(lets_in(one, row_type, id_type) for one in condition)
            case "$or":
                passes = any(lets_in(one, row_type, id_type) for one in condition)
            case "type":
                passes = meets(condition, "string", row_type)
            case "job_id":
                passes = meets(condition, id_type, None)
            case _:
                passes = False
        if not passes:
            return False
    return True


def meets(condition: object, bson_type: str, value: str | None) -> bool:
    """Tell whether a field certainly meets a condition; `value` None stands for any of its type."""
    if not isinstance(condition, Mapping):
        return value is not None and condition == value
    return all(
        meets_one(operator, wanted, bson_type, value) for operator, wanted in condition.items()
    )


def meets_one(operator: str, wanted: Any, bson_type: str, value: str | None) -> bool:
    """Tell whether a field certainly meets one operator of a condition."""
    if operator == "$exists":
        return bool(wanted)
    if operator == "$type":
        named = wanted if isinstance(wanted, list) else [wanted]
        names = {TYPE_NUMBERS.get(one, one) for one in named}
        return bson_type in names or ("number" in names and bson_type in {"int", "long"})
    if value is None:
        return False
    if operator == "$in":
        return value in wanted
    test = COMPARISONS.get(operator)
    return test is not None and isinstance(wanted, str) and bool(test(value, wanted))


COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "$eq": eq,
    "$gt": gt,
    "$gte": ge,
    "$lt": lt,
    "$lte": le,
}
LEDGER_UNIQUE = next(one for one in INDEXES if one.collection == "ledger" and one.unique)
INBOX_UNIQUE = next(one for one in INDEXES if one.collection == "inbox" and one.unique)
