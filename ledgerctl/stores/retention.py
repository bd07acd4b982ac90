"""What `db tidy` removes: old messages, claims and archived letters, by pages and under a guard."""

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ledgerctl.domain.ids import chunks
from ledgerctl.domain.inbox import ClaimStatus
from ledgerctl.domain.payload import DIGEST_LENGTH
from ledgerctl.domain.rows import KEY
from ledgerctl.stores.codec import Document, to_time
from ledgerctl.stores.mongo import Mongo
from ledgerctl.stores.outbox import TIDIED

PAGE = 1_000
SLICE_MIN, SLICE_MAX = 50, 100  # how many are removed at once
SLICE_S = 0.01  # how long that should take

Reader = tuple[Any, Any]  # topic and consumer group
DONE: Document = {"status": ClaimStatus.SUCCEEDED.value, "completed_at": {"$type": "date"}}


class ArchivedChunk(NamedTuple):
    """Hold one chunk of the archive: its letters, and the digests under which they may wait."""

    operation_id: str
    number: int
    letters: int
    digests: frozenset[str]  # as `digest` has them, of what was taken and of what was written
    newest: datetime | None  # None when a letter has no time


class Retention:
    """Read what is old by pages, and remove it in slices that hold the server for milliseconds."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._outbox = mongo.collection("outbox")
        self._inbox = mongo.collection("inbox")
        self._archive = mongo.collection("dead_archive")
        self._leases = mongo.collection("leases")
        self._slice = SLICE_MIN

    # what is known of earlier runs

    def known_readers(self) -> set[Reader]:
        """Return topics with the groups that read them, as earlier runs and consumers noted them.

        A consumer's mark without a topic stands for every topic: (None, group).
        """
        with self._mongo.reading("read what earlier runs noted"):
            noted = self._leases.find_one({"_id": TIDIED}) or {}
            marks = self._leases.find({"_id": {"$gte": "consumer:", "$lt": "consumer;"}})
            found = {(one.get("topic"), one["_id"].partition(":")[2]) for one in marks}
        return found | {(one["topic"], one["group"]) for one in noted.get("readers", [])}

    def remember(self, before: datetime, readers: Iterable[Reader]) -> None:
        """Note, before anything is removed, up to when messages may be gone, and who reads what."""
        noted = [{"topic": topic, "group": group} for topic, group in readers]
        with self._mongo.writing("note up to when messages are removed"):
            self._leases.update_one(
                {"_id": TIDIED},
                {"$max": {"before": before}, "$addToSet": {"readers": {"$each": noted}}},
                upsert=True,
            )

    # messages

    def groups(self) -> list[Any]:
        """Return every consumer group that has a row."""
        with self._mongo.reading("list the consumer groups"):
            return list(self._inbox.distinct("consumer_group"))

    def messages(self, query: Document) -> Iterator[list[Document]]:
        """Yield messages in the order of time, a page at a time: `_id`, key and topic."""
        fields = {KEY: 1, "topic": 1}
        with self._mongo.reading("read the outbox"):
            found = self._outbox.find(query, fields, batch_size=PAGE)
            yield from chunks(found.sort([("created_at", 1), ("_id", 1)]), PAGE)

    def with_rows(self, group: Any, keys: Sequence[Any], which: Document | None = None) -> set[Any]:
        """Return those of these keys that have a row of the group, of whatever kind `which` says."""
        query = {"consumer_group": group, KEY: {"$in": list(keys)}, **(which or {})}
        with self._mongo.reading("read the inbox"):
            return {one[KEY] for one in self._inbox.find(query, {KEY: 1})}

    def count_old(self, before: datetime, *, limit: int) -> int:
        """Count messages and completed claims older than that, up to a limit each."""
        with self._mongo.reading("count old messages and claims"):
            messages = self._outbox.count_documents({"created_at": {"$lt": before}}, limit=limit)
            query = {**DONE, "completed_at": {"$lt": before}}
            return messages + self._inbox.count_documents(query, limit=limit)

    # claims and archive

    def claims(self, before: datetime) -> Iterator[list[Document]]:
        """Yield succeeded rows completed before then, a page at a time, by `_id`."""
        query = {**DONE, "completed_at": {"$lt": before}}
        with self._mongo.reading("read the inbox"):
            found = self._inbox.find(query, {KEY: 1, "last_seen_at": 1}, batch_size=PAGE)
            yield from chunks(found.sort("_id", 1), PAGE)

    def count_unfinished(self, before: datetime) -> int:
        """Count rows last seen before then that nobody completed: these are never removed."""
        query = {"last_seen_at": {"$lt": before}, "$nor": [DONE]}
        with self._mongo.reading("count the inbox"):
            return self._inbox.count_documents(query)

    def present(self, keys: Sequence[Any]) -> list[Document]:
        """Return the messages of these keys that are in the outbox: `_id`, key, topic and time."""
        fields = {KEY: 1, "topic": 1, "created_at": 1}
        with self._mongo.reading("read the outbox"):
            return list(self._outbox.find({KEY: {"$in": list(keys)}}, fields))

    def archived_chunks(self) -> Iterator[ArchivedChunk]:
        """Yield every chunk of the archive, in order."""
        fields = {"operation_id": 1, "chunk": 1, "digest": 1, "written_sha256": 1, "at": 1}
        letters: list[Document] = []
        with self._mongo.reading("read the archive"):
            for one in self._archive.find({}, fields, batch_size=PAGE).sort("_id", 1):
                if letters and of_chunk(one) != of_chunk(letters[0]):
                    yield to_chunk(letters)
                    letters = []
                letters.append(one)
            if letters:
                yield to_chunk(letters)

    # removing

    def remove_messages(self, ids: Sequence[Any], before: datetime) -> Iterator[int]:
        """Remove these messages if they are still older; yield how many each slice removed."""
        return self._remove(self._outbox, ids, {"created_at": {"$lt": before}})

    def remove_claims(self, ids: Sequence[Any], before: datetime) -> Iterator[int]:
        """Remove these rows if they are still succeeded, old and not seen again since."""
        guard = {
            "status": ClaimStatus.SUCCEEDED.value,
            "completed_at": {"$lt": before},
            "$nor": [{"last_seen_at": {"$gte": before}}],
        }
        return self._remove(self._inbox, ids, guard)

    def remove_chunk(self, chunk: ArchivedChunk) -> int:
        """Remove one chunk's letters; return how many there were."""
        start = f"{chunk.operation_id}:{chunk.number:06d}"
        bounds = {"$gte": f"{start}:", "$lt": f"{start};"}
        with self._mongo.writing("remove old letters from the archive"):
            return self._archive.delete_many({"_id": bounds}).deleted_count

    def _remove(self, collection: Any, ids: Sequence[Any], guard: Document) -> Iterator[int]:
        start = 0
        while start < len(ids):
            some = ids[start : start + self._slice]
            start += len(some)
            began = time.monotonic()
            with self._mongo.writing(f"remove old documents from {collection.name}"):
                removed: int = collection.delete_many(
                    {"_id": {"$in": list(some)}, **guard}
                ).deleted_count
            fast = time.monotonic() - began < SLICE_S
            self._slice = (
                min(SLICE_MAX, self._slice * 2) if fast else max(SLICE_MIN, self._slice // 2)
            )
            yield removed


def of_chunk(document: Document) -> tuple[Any, Any]:
    """Return operation and number of the chunk that a letter belongs to."""
    return document.get("operation_id"), document.get("chunk")


def to_chunk(letters: Sequence[Document]) -> ArchivedChunk:
    """Put the letters of one chunk together."""
    written = [bytes(one["written_sha256"]).hex() for one in letters if one.get("written_sha256")]
    digests = [*(str(one["digest"]) for one in letters), *written]
    times = [to_time(one.get("at")) for one in letters]
    dated = [time for time in times if time is not None]
    return ArchivedChunk(
        operation_id=str(letters[0]["operation_id"]),
        number=letters[0]["chunk"],
        letters=len(letters),
        digests=frozenset(one[:DIGEST_LENGTH] for one in digests),
        newest=max(dated) if len(dated) == len(letters) else None,
    )
