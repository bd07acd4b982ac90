"""The outbox: one message for each appended ledger row, under the row's own id."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError
from pymongo.operations import UpdateOne

from ledgerctl.domain.rows import KEY, TENANT, Message, NewRow, Row
from ledgerctl.stores.codec import (
    Document,
    candidates,
    from_id,
    measure,
    measuring,
    to_id,
    to_number,
    to_text,
    to_time,
    without_collisions,
)
from ledgerctl.stores.mongo import Mongo, is_duplicate

TOPIC = "ledger.appended"
TIDIED = "tidied"  # the `_id`, among the leases, of what `db tidy` notes
YOUNGEST_REMOVED = timedelta(days=1)
SCAN_MAX = 20_000  # messages that are looked through for a key where no index serves
NO_DATE: list[Document] = [  # spelled as ranges, which the index on created_at serves
    {"created_at": None},
    {"created_at": {"$type": ["string", "int", "long", "double", "decimal", "object"]}},
]


class Outbox:
    """Messages that tell consumers of appended rows."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._messages = mongo.collection("outbox")
        self._key_name: str | None = None

    @cached_property
    def tidied_before(self) -> datetime | None:
        """Return up to when `db tidy` has removed messages; None when it never did."""
        with self._mongo.reading("read up to when messages were removed"):
            found = self._mongo.collection("leases").find_one({"_id": TIDIED}) or {}
        return to_time(found.get("before"))

    def _was_removed(self, recorded_at: datetime | None) -> bool:
        """Say whether the message of a row recorded then may have been removed by `db tidy`."""
        if recorded_at is None or self._mongo.now() - recorded_at < YOUNGEST_REMOVED:
            return False
        return self.tidied_before is not None and recorded_at < self.tidied_before

    def add(self, rows: Sequence[NewRow | Row], session: ClientSession | None = None) -> int:
        """Put the messages of these rows, each at most once; how many did not stand there.

        In a transaction they land together with the rows. They are dated now, not as their rows:
        one that a repair adds late must not lie behind the marks of the consumers. Source:
        contract, section 2, outbox.
        """
        dated = {"created_at": self._mongo.now()}
        # An insert that meets its own key would end the transaction around it. A sharded outbox
        # wants its shard key in an upsert.
        puts = [
            UpdateOne(
                {"_id": one["_id"], KEY: one[KEY]}, {"$setOnInsert": one | dated}, upsert=True
            )
            for one in map(message_of, rows)
            if not self._was_removed(one["created_at"])
        ]
        if not puts:
            return 0
        with self._mongo.writing("put the message of a ledger row", session):
            try:
                return self._messages.bulk_write(puts, session=session).upserted_count
            except BulkWriteError as error:
                if session is not None or not is_duplicate(error):
                    raise
                return 0  # another one put it at this instant

    def standing(self, row_ids: Sequence[str]) -> set[str]:
        """Return those of these rows whose message exists, or was removed by `db tidy`."""
        if not row_ids:
            return set()
        values = [value for row_id in row_ids for value in candidates(row_id)]
        with self._mongo.reading("read the outbox"):
            found = self._messages.find({"_id": {"$in": values}}, {"_id": 1})
            standing = {to_id(document["_id"]).text for document in found}
        return standing | self._removed([one for one in row_ids if one not in standing])

    def _removed(self, row_ids: Sequence[str]) -> set[str]:
        """Return those of these rows that are older than the messages that are kept."""
        if not row_ids or self.tidied_before is None:
            return set()
        values = [value for row_id in row_ids for value in candidates(row_id)]
        old = {"_id": {"$in": values}, "recorded_at": {"$lt": self.tidied_before}}
        with self._mongo.reading("read the rows of removed messages"):
            found = self._mongo.collection("ledger").find(old, {"_id": 1})
            return {to_id(document["_id"]).text for document in found}

    # reading

    def after(
        self, position: "Position", *, topic: str | None, limit: int
    ) -> list[tuple[Message, "Position"]]:
        """Return the next messages by creation time and id, each with its own position."""
        query: Document = {"$or": position.query()}
        if topic is not None:
            query["topic"] = topic
        with self._mongo.reading("read the outbox"):
            found = self._messages.find(query).sort([("created_at", 1), ("_id", 1)])
            found = found.limit(limit).batch_size(limit + 1)
            return [(to_message(one), position.of(one)) for one in found]

    def undated(self, *, topic: str | None, after: Any, limit: int) -> list[tuple[Message, Any]]:
        """Messages whose created_at is no date, by id, each with its `_id`."""
        parts: list[Document] = [{"$or": NO_DATE}]
        if topic is not None:
            parts.append({"topic": topic})
        if after is not None:
            parts.append({"$expr": {"$gt": ["$_id", {"$literal": after}]}})
        with self._mongo.reading("read the outbox"):
            found = self._messages.find({"$and": parts}).sort("_id", 1).limit(limit)
            return [(to_message(one), one["_id"]) for one in found]

    def of_keys(self, keys: Iterable[Any]) -> list[Message]:
        """Return the messages of these keys."""
        return [to_message(one) for one in self.documents(list(keys))]

    def documents(self, keys: Sequence[Any], fields: Sequence[str] = ()) -> list[Document]:
        """Return the documents of these keys, whole or with only some fields."""
        projection = without_collisions(dict.fromkeys([KEY, *fields], 1)) if fields else None
        with self._mongo.reading("read the outbox"):
            return list(self._messages.find({self._key_field(): {"$in": list(keys)}}, projection))

    def of_text(self, key: str) -> list[Document]:
        """Return the documents whose key is spelled like this text."""
        return self.documents(candidates(key))

    def _key_field(self) -> str:
        """Return the field that holds the key; `_id` where only that has an index."""
        if self._key_name is None:
            indexes = self._messages.index_information().values()
            served = any(index["key"][0][0] == KEY for index in indexes)
            small = served or self._messages.estimated_document_count() <= SCAN_MAX
            self._key_name = KEY if small else "_id"
        return self._key_name

    # the audit

    def count(self, topic: str | None = None) -> int:
        """Count messages."""
        with self._mongo.reading("count the outbox"):
            return self._messages.count_documents({} if topic is None else {"topic": topic})

    def filled(self, fields: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Count messages, and in how many each field holds something."""
        with self._mongo.reading("measure the outbox"):
            return measure(self._messages.aggregate(measuring(fields), allowDiskUse=True), fields)

    def shared_keys(self) -> Iterator[list[Document]]:
        """Yield the messages that share a key with another one, key by key."""
        pipeline: list[Document] = [
            {"$match": {KEY: {"$ne": None}}},
            {"$group": {"_id": f"${KEY}", "messages": {"$sum": 1}}},
            {"$match": {"messages": {"$gt": 1}}},
        ]
        with self._mongo.reading("look for shared keys in the outbox"):
            for one in self._messages.aggregate(pipeline, allowDiskUse=True):
                yield list(self._messages.find({KEY: {"$eq": one["_id"]}}))

    def standing_near(self, row_ids: Sequence[str]) -> set[str]:
        """Do as `standing`, quicker for ids that lie close together, as those of a sweep.

        Walks the index once from the first to the last; looks up each id where too much lies between.
        """
        if not row_ids:
            return set()
        limit = len(row_ids) * 2 + 100
        between = {"_id": {"$gte": min(row_ids), "$lte": max(row_ids)}}
        with self._mongo.reading("read the outbox"):
            found = self._messages.find(between, {"_id": 1}, batch_size=limit).limit(limit)
            seen = {document["_id"] for document in found}
        if len(seen) == limit:
            return self.standing(row_ids)
        missing = [row_id for row_id in row_ids if row_id not in seen]
        return seen | (self.standing(missing) if missing else set())

    def has(self, row_id: str) -> bool:
        """Return whether the message of this row stands there."""
        with self._mongo.reading("read the outbox"):
            return self._messages.find_one({"_id": row_id}, {"_id": 1}) is not None


def message_of(row: NewRow | Row) -> Document:
    """Return the message of a row. Source: contract, section 2, outbox."""
    row_id = row.id if isinstance(row.id, str) else row.id.text
    account: Any = None if row.account is None else from_id(row.account)
    return {
        "_id": row_id,
        "message_key": row_id,
        "tenant_id": account,
        "topic": TOPIC,
        "payload": {
            "row_id": row_id,
            "job_id": None if row.job is None else from_id(row.job),
            "account_id": account,
            "type": str(row.type),
            "amount": to_number(row.amount) if isinstance(row.amount, int) else None,
            "created_at": row.created_at,
        },
        "created_at": row.recorded_at or row.created_at,
    }


@dataclass(frozen=True, slots=True)
class Position:
    """Hold a place in the outbox's order, by created_at and then `_id`."""

    at: Any  # a date; one beyond Python's years stays as the driver gave it
    id: Any = None  # None: before every message of that instant

    def query(self) -> list[Document]:
        """Return the alternatives that together match everything behind this place."""
        if self.id is None:
            return [{"created_at": {"$gte": self.at}}]
        behind = {"$expr": {"$gt": ["$_id", {"$literal": self.id}]}}  # across types, as sorting is
        return [{"created_at": {"$gt": self.at}}, {"created_at": self.at, **behind}]

    def of(self, document: Document) -> "Position":
        """Return the place of a document that was found behind this one."""
        return Position(document.get("created_at", self.at), document["_id"])


def to_message(document: Document) -> Message:
    """Return a message as our record; one without a key is known by its `_id`."""
    key = document.get(KEY)
    key = document["_id"] if key is None else key
    return Message(
        id=to_id(key),
        key=key,
        tenant=document.get(TENANT),
        topic=to_text(document.get("topic")),
        payload=document.get("payload"),
        created_at=to_time(document.get("created_at")),
    )
