"""The job documents: guarded flips, and reading."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from bson import decode_all
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError
from pymongo.operations import InsertOne, UpdateOne

from ledgerctl.domain.ids import LENGTH_MAX, Id, IdKind
from ledgerctl.domain.jobs import SUCCEEDED, Flag, Job, State, state_of
from ledgerctl.domain.rows import Row
from ledgerctl.stores.codec import (
    Document,
    candidates,
    from_id,
    rows_in_order,
    to_flag,
    to_id,
    to_job,
    to_number,
)
from ledgerctl.stores.mongo import CODEC, Mongo, is_duplicate

if TYPE_CHECKING:
    from ledgerctl.domain.dead import JobStatus

IDS_BATCH = 10_000
CLEAR = {"$in": [False, None]}  # None matches null and absent
NOT_BOOLEAN = {"$not": {"$in": [True, False, None]}}
FIELDS = dict.fromkeys(
    (
        "account_id",
        "cost",
        "is_refunded",
        "refunded_at",
        "is_reclaimed",
        "reclaimed_at",
        "status",
        "created_at",
    ),
    1,
)

JobsOfText = list[
    tuple[Job, list[Row]]
]  # jobs that one text can name, each with the rows of that id
Guarded = InsertOne[Document] | UpdateOne  # a conditional write on one job

FILTER_OF_STATE: dict[State, Document] = {
    State.CHARGED: {"is_refunded": CLEAR, "is_reclaimed": CLEAR},
    State.REFUNDED: {"is_refunded": True, "is_reclaimed": CLEAR},
    State.RECLAIMED: {"is_refunded": True, "is_reclaimed": True},
    State.CORRUPT: {"is_refunded": CLEAR, "is_reclaimed": True},
    State.BAD_FLAGS: {"$or": [{"is_refunded": NOT_BOOLEAN}, {"is_reclaimed": NOT_BOOLEAN}]},
}

FILTER_OF_FLAG: dict[Flag, Any] = {Flag.SET: True, Flag.CLEAR: CLEAR, Flag.BAD: NOT_BOOLEAN}


class Jobs:
    """Read and guard the job documents; others write these too, so unknown fields are kept."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._jobs = mongo.collection("jobs")

    def find(self, text: str) -> list[Job]:
        """Return every job that this text can name: more than one when two types hold it."""
        with self._mongo.reading("read the job"):
            found = self._jobs.find({"_id": {"$in": candidates(text)}}, FIELDS)
            return [to_job(document) for document in found]

    def with_rows(self, texts: Sequence[str]) -> list[JobsOfText]:
        """Return for each text every job that it can name, with its ledger rows; in one query."""
        if len(texts) > 1 and sum(map(len, texts)) > LENGTH_MAX:
            return [self.with_rows([text])[0] for text in texts]  # a query holds no more
        named = [value for text in texts for value in candidates(text)]
        # Measured on 6.0: a union takes two thirds of the time of a $lookup, server and client.
        rows_of_it = [{"$match": {"job_id": {"$in": named}}}, {"$project": {"row": "$$ROOT"}}]
        pipeline: list[Document] = [
            {"$match": {"_id": {"$in": named}}},
            {"$project": FIELDS},
            {
                "$unionWith": {
                    "coll": self._mongo.collection("ledger").name,
                    "pipeline": rows_of_it,
                }
            },
        ]
        with self._mongo.reading("read the job and its rows"):
            documents = list(self._jobs.aggregate(pipeline))
        if len(texts) == 1:
            return [to_found(documents)]
        return parted(texts, documents) or [self.with_rows([text])[0] for text in texts]

    def get(self, job_id: Id, session: ClientSession | None = None) -> Job | None:
        """Return the job of this very id and type."""
        with self._mongo.reading("read the job", session):
            document = self._jobs.find_one({"_id": from_id(job_id)}, FIELDS, session=session)
        return None if document is None else to_job(document)

    # the guarded writes

    def charging(self, job_id: Id, *, account: Id, cost: int, at: datetime) -> Guarded:
        """Create the document of a job that is charged now, unless it exists already."""
        return InsertOne(
            {
                "_id": from_id(job_id),
                "account_id": from_id(account),
                "cost": to_number(cost),
                "is_refunded": False,
                "refunded_at": None,
                "is_reclaimed": False,
                "reclaimed_at": None,
                "created_at": at,
                "status": "running",
            }
        )

    def refunding(self, job_id: Id, *, at: datetime, force: bool = False) -> Guarded:
        """Mark the job refunded if, and only if, it is charged; the filter is the check."""
        guard: Document = {"_id": from_id(job_id), **FILTER_OF_STATE[State.CHARGED]}
        if not force:
            guard["status"] = {"$ne": SUCCEEDED}
        return UpdateOne(guard, {"$set": {"is_refunded": True, "refunded_at": at}})

    def reclaiming(self, job_id: Id, *, at: datetime) -> Guarded:
        """Mark the job reclaimed if, and only if, it is refunded and not yet reclaimed."""
        guard = {"_id": from_id(job_id), **FILTER_OF_STATE[State.REFUNDED]}
        return UpdateOne(guard, {"$set": {"is_reclaimed": True, "reclaimed_at": at}})

    def pass_guards(self, writes: Sequence[Guarded], session: ClientSession | None = None) -> int:
        """Send these conditional writes, one after another; how many found what they ask for.

        Of all callers that send the same one at most one ever gets it counted. Source: domain,
        section 3.
        """
        with self._mongo.writing("mark the job", session):
            try:
                done = self._jobs.bulk_write(writes, session=session)
            except BulkWriteError as error:
                if not is_duplicate(error):
                    raise
                return 0  # a job to be charged exists: those before it are of its transaction
        return done.modified_count + done.inserted_count

    def _flip(self, guard: Document, fields: Document, session: ClientSession | None) -> bool:
        with self._mongo.writing("mark the job", session):
            changed = self._jobs.update_one(guard, {"$set": fields}, session=session)
        return changed.modified_count == 1

    # what the rows prove; for repairs alone

    def set_proven_flag(self, seen: Job, name: str, *, at: datetime | None) -> bool:
        """Set a flag that a ledger row proves, if both flags still are what was seen.

        `name`: `refunded` or `reclaimed`. `at` is written where the flag has no time yet.
        """
        guard = {
            "_id": from_id(seen.id),
            "is_refunded": FILTER_OF_FLAG[seen.refunded],
            "is_reclaimed": FILTER_OF_FLAG[seen.reclaimed],
        }
        fields: Document = {f"is_{name}": True}
        if at is not None:
            fields[f"{name}_at"] = at
        return self._flip(guard, fields, None)

    def clear_absent_flag(self, job_id: Id, name: str) -> bool:
        """Write false where the flag is absent or null, and nowhere else."""
        return self._flip({"_id": from_id(job_id), f"is_{name}": None}, {f"is_{name}": False}, None)

    def date_flag(self, job_id: Id, name: str, *, at: datetime) -> bool:
        """Write the time of a set flag that has none."""
        guard = {
            "_id": from_id(job_id),
            f"is_{name}": True,
            f"{name}_at": {"$not": {"$type": "date"}},
        }
        return self._flip(guard, {f"{name}_at": at}, None)

    def set_status(self, job_id: Id, status: str, *, unless: str | None = None) -> bool:
        """Write the job's status; False when there is no such job, or its status is `unless`."""
        guard: Document = {"_id": from_id(job_id)}
        if unless is not None:
            guard["status"] = {"$ne": unless}
        with self._mongo.writing("set the job's status"):
            changed = self._jobs.update_one(guard, {"$set": {"status": status}})
        return changed.matched_count == 1

    def newest(
        self,
        *,
        account: str | None,
        state: State | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
    ) -> tuple[list[Job], int]:
        """Jobs newest first (`limit` 0: all), and how many match; `until` is exclusive."""
        query = job_query(state, since, until)
        if account is not None:
            query |= self._mongo.of_account("jobs", account)
        with self._mongo.reading("list jobs"):
            found = self._jobs.find(query, FIELDS).sort([("created_at", -1), ("_id", -1)])
            jobs = [to_job(document) for document in found.limit(limit)]
            return jobs, self._jobs.count_documents(query)

    def of_account(self, account: str, *, until: datetime | None = None) -> Iterator[Job]:
        """Yield the jobs of an account, oldest first; `until` is inclusive."""
        query = self._mongo.of_account("jobs", account)
        if until is not None:
            query["created_at"] = {"$lte": until}
        with self._mongo.reading("read the account's jobs"):
            for document in self._jobs.find(query, FIELDS).sort("created_at", 1):
                yield to_job(document)

    def charged(self, account: str | None = None) -> Iterator[str]:
        """Yield the ids of the jobs that neither succeeded nor were refunded, in any order."""
        query = FILTER_OF_STATE[State.CHARGED] | {"status": {"$ne": SUCCEEDED}}
        if account is not None:
            query["account_id"] = {"$in": candidates(account)}
        with self._mongo.reading("read the charged jobs"):
            for batch in self._jobs.find_raw_batches(query, {"_id": 1}, batch_size=IDS_BATCH):
                for document in decode_all(cast(bytes, batch), CODEC):
                    job_id = document["_id"]
                    yield job_id if type(job_id) is str else to_id(job_id).text

    def touched_since(self, since: datetime) -> Iterator[Job]:
        """Yield the jobs that were created, refunded or reclaimed since then."""
        names = ("created_at", "refunded_at", "reclaimed_at")
        query = {"$or": [{name: {"$gte": since}} for name in names]}
        with self._mongo.reading("read the jobs of late"):
            for document in self._jobs.find(query, FIELDS, batch_size=1000):
                yield to_job(document)

    def count_of_account(self, account: str, *, until: datetime | None = None) -> int:
        """Return how many jobs an account has; covered by the index; `until` is inclusive."""
        query = self._mongo.of_account("jobs", account)
        if until is not None:
            query["created_at"] = {"$lte": until}
        with self._mongo.reading("count the account's jobs"):
            return self._jobs.count_documents(query)

    def named(self, texts: Sequence[str], session: ClientSession | None = None) -> Iterator[Job]:
        """Yield the jobs of several id texts, whatever type holds them."""
        values = [value for text in texts for value in candidates(text)]
        with self._mongo.reading("read jobs", session):
            for document in self._jobs.find({"_id": {"$in": values}}, FIELDS, session=session):
                yield to_job(document)

    def many(self, ids: Sequence[Any]) -> Iterator[Job]:
        """Yield the jobs whose stored ids are among these values."""
        with self._mongo.reading("read jobs"):
            for document in self._jobs.find({"_id": {"$in": list(ids)}}, FIELDS):
                yield to_job(document)

    def statuses(self, texts: Iterable[str]) -> dict[str, "JobStatus"]:
        """Give the flags and status of the job that each text names; nothing where two jobs answer.

        One query, in which the server puts together the jobs that are alike; without accounts.
        """
        from ledgerctl.domain.dead import JobStatus

        named = {text: candidates(text) for text in texts}
        stand: dict[Any, tuple[State, bool]] = {}
        for alike in self._alike([value for values in named.values() for value in values]):
            flags = alike["_id"]
            state = state_of(to_flag(flags, "is_refunded"), to_flag(flags, "is_reclaimed"))
            of_all = state, flags["succeeded"]
            for value in alike["ids"]:
                if type(value) is str or to_id(value).kind is not IdKind.OTHER:
                    stand[value] = of_all
        found: dict[str, JobStatus] = {}
        for text, values in named.items():
            if len(values) == 1:
                if (known_of := stand.get(text)) is not None:
                    found[text] = JobStatus(text, known_of[0], known_of[1], None)
                continue
            known = [value for value in values if value in stand]
            if len(known) == 1:
                job_id = text if known[0] is text else to_id(known[0]).text
                found[text] = JobStatus(job_id, *stand[known[0]], None)
        return found

    def _alike(self, values: Sequence[Any]) -> list[Document]:
        """Return the ids of those of these jobs that exist, by flags and success."""
        if not values:
            return []
        pipeline: list[Document] = [
            {"$match": {"_id": {"$in": values}}},
            {
                "$group": {
                    "_id": {
                        "is_refunded": "$is_refunded",
                        "is_reclaimed": "$is_reclaimed",
                        "succeeded": {"$eq": ["$status", SUCCEEDED]},
                    },
                    "ids": {"$push": "$_id"},
                }
            },
        ]
        with self._mongo.reading("read the jobs"):
            return list(self._jobs.aggregate(pipeline))

    def accounts(self, texts: Iterable[str]) -> dict[str, str]:
        """Return the accounts of the jobs that these texts can name, by the jobs' own ids."""
        values = [value for text in texts for value in candidates(text)]
        if not values:
            return {}
        with self._mongo.reading("read the jobs' accounts"):
            found = self._jobs.find({"_id": {"$in": values}}, {"account_id": 1})
            return {
                to_id(one["_id"]).text: sys.intern(to_id(one["account_id"]).text)
                for one in found
                if one.get("account_id") is not None
            }


def to_found(documents: Sequence[Document]) -> JobsOfText:
    """Job documents, and ledger documents under `row`, as our records.

    An id of an exotic type, such as 7.0 in decimal, is no job's that a text can name.
    """
    rows = rows_in_order(one["row"] for one in documents if "row" in one)
    jobs = [to_job(one) for one in documents if "row" not in one]
    return [(job, rows) for job in jobs if job.id.kind is not IdKind.OTHER]


def parted(texts: Sequence[str], documents: Sequence[Document]) -> list[JobsOfText]:
    """Return what belongs to each text; nothing at all where the printed ids do not tell.

    MongoDB holds numbers of different types equal, and one ObjectId is spelled in two ways.
    """
    spelled = [{to_id(value).text for value in candidates(text)} for text in texts]
    owners = [to_id(one["row"]["job_id"] if "row" in one else one["_id"]) for one in documents]
    known: set[str] = set().union(*spelled)
    if len(known) < sum(map(len, spelled)) or any(
        owner.kind is IdKind.OTHER or owner.text not in known for owner in owners
    ):
        return []
    by_text: dict[str, list[Document]] = {}
    for owner, one in zip(owners, documents, strict=True):
        by_text.setdefault(owner.text, []).append(one)
    return [to_found([one for name in names for one in by_text.get(name, ())]) for names in spelled]


def job_query(state: State | None, since: datetime | None, until: datetime | None) -> Document:
    """Return the filter of a listing of jobs."""
    query: Document = {}
    if state is not None:
        query |= FILTER_OF_STATE[state]
    bounds: Document = {}
    if since is not None:
        bounds["$gte"] = since
    if until is not None:
        bounds["$lt"] = until
    if bounds:
        query["created_at"] = bounds
    return query
