"""Archive of the dead letters that operations took, byte for byte."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from bson import Binary
from pymongo import errors as mongo_errors

from ledgerctl.domain.dead import Archived
from ledgerctl.domain.payload import digest, sha256
from ledgerctl.domain.removal import Pick, Piece
from ledgerctl.stores.codec import Document
from ledgerctl.stores.mongo import Mongo, is_duplicate

ARCHIVED_AT_ONCE = 1_000  # letters that one reply of the archive brings at most


class Archive:
    """Keep the dead letters that operations were about to take, one document each.

    What was taken is said by the operation's notes in Redis alone.
    """

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._documents = mongo.collection("dead_archive")

    def keep(self, operation_id: str, pieces: Iterable[Piece], *, at: datetime) -> None:
        """Store the exact bytes of these pieces durably; storing them again changes nothing."""
        documents = [
            to_document(operation_id, one.chunk, pick, at) for one in pieces for pick in one.picks
        ]
        if not documents:
            return
        with self._mongo.writing("archive the dead letters"):
            try:
                self._documents.insert_many(documents, ordered=False)
            except mongo_errors.BulkWriteError as error:
                if not is_duplicate(error):
                    raise

    def of_operation(self, operation_id: str, *, after: int = -1) -> Iterator[Archived]:
        """Yield what an operation was about to take in the chunks after one, by chunk and order."""
        bounds = {"$gte": f"{operation_id}:{after + 1:06d}:", "$lt": f"{operation_id};"}
        with self._mongo.reading("read the archive"):
            found = self._documents.find({"_id": bounds}, batch_size=ARCHIVED_AT_ONCE)
            for document in found.sort("_id", 1):
                yield to_archived(document)

    def count(self, operation_id: str) -> int:
        """Count the letters that an operation was about to take."""
        bounds = {"$gte": f"{operation_id}:", "$lt": f"{operation_id};"}
        with self._mongo.reading("count the archive"):
            return self._documents.count_documents({"_id": bounds})

    def about(self, text: str) -> Iterator[Archived]:
        """Yield the letters of a job or of a digest, the newest first."""
        query = {"$or": [{"job_id": text}, {"digest": text}]}
        with self._mongo.reading("look into the archive"):
            for document in self._documents.find(query).sort([("at", -1), ("_id", 1)]):
                yield to_archived(document)

    def last_taken(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str, datetime]]:
        """Return for each of these jobs what took its letter last: action, operation and time."""
        fields = {"job_id": 1, "action": 1, "operation_id": 1, "at": 1}
        with self._mongo.reading("look into the archive"):
            found = self._documents.find({"job_id": {"$in": list(job_ids)}}, fields).sort("at", 1)
            return {one["job_id"]: (one["action"], one["operation_id"], one["at"]) for one in found}

    def requeues(self, job_ids: Sequence[str]) -> dict[str, int]:
        """Count for each of these jobs the operations that put it back on retry."""
        if not job_ids:
            return {}
        wanted = {"job_id": {"$in": list(dict.fromkeys(job_ids))}, "action": "requeue"}
        operations = {"_id": "$job_id", "operations": {"$addToSet": "$operation_id"}}
        pipeline: list[Document] = [{"$match": wanted}, {"$group": operations}]
        with self._mongo.reading("look into the archive"):
            found = self._documents.aggregate(pipeline)
            return {one["_id"]: len(one["operations"]) for one in found}

    def chunks_with(
        self, digests: Sequence[str], since: datetime | None
    ) -> Iterator[tuple[str, str, int]]:
        """Digest, operation and chunk of every archived letter with one of these digests."""
        query: Document = {"digest": {"$in": list(digests)}}
        if since is not None:
            query["at"] = {"$gte": since}
        fields = {"digest": 1, "operation_id": 1, "chunk": 1}
        with self._mongo.reading("look into the archive"):
            for document in self._documents.find(query, fields):
                yield document["digest"], document["operation_id"], document["chunk"]


def to_document(operation_id: str, chunk: int, pick: Pick, at: datetime) -> Document:
    """Return the document of one letter; its `_id` sorts by operation, chunk and order."""
    letter = pick.letter
    return {
        "_id": f"{operation_id}:{chunk:06d}:{pick.order:08d}",
        "operation_id": operation_id,
        "chunk": chunk,
        "order": pick.order,
        "action": "release" if pick.written is None else "requeue",
        "digest": digest(letter.raw),
        "job_id": letter.job_id,
        "payload": Binary(letter.raw),
        "written_sha256": None if pick.written is None else Binary(sha256(pick.written)),
        "at": at,
    }


def to_archived(document: Document) -> Archived:
    """Read one archived letter."""
    written = document.get("written_sha256")
    return Archived(
        operation_id=document["operation_id"],
        chunk=document["chunk"],
        order=document["order"],
        job_id=document.get("job_id"),
        payload=bytes(document["payload"]),
        written_sha256=None if written is None else bytes(written),
        at=document["at"],
    )
