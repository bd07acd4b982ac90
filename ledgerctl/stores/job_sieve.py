"""A sieve: the server sorts out the jobs that are plainly right, so that only odd ones travel."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from ledgerctl.domain.days import EARLIEST, LATEST
from ledgerctl.domain.ids import chunks
from ledgerctl.domain.jobs import SUCCEEDED
from ledgerctl.domain.rows import RowType
from ledgerctl.errors import NotPermitted
from ledgerctl.stores.codec import Document, to_id
from ledgerctl.stores.mongo import Mongo
from ledgerctl.stores.outbox import Outbox

KINDS = ("string", "objectId")  # whose ids the server orders and tells apart as we do
RANGE = 20_000  # documents of one collection that are sifted together
MESSAGES = 2_000  # rows whose messages are looked up together

# What a group of rows adds up to: how many of each step, in one number. A job takes off what its
# flags call for, so that a job and its rows come to 0. What is odd never does.
CHARGE, REFUND, RECLAIM, ODD = 1, 2**20, 2**40, 2**60


class Range(NamedTuple):
    """The ids of one type that lie after the first and not after the last; None is no border."""

    kind: str
    after: Any
    last: Any

    def of(self, key: str) -> Document:
        """Return the filter of the documents whose id under this key lies in the range."""
        bounds: Document = {"$type": self.kind}
        if self.after is not None:
            bounds["$gt"] = self.after
        if self.last is not None:
            bounds["$lte"] = self.last
        return {key: bounds}


class Sifted(NamedTuple):
    """Count jobs and rows of a range that are plainly right, and hold the ids that may not be.

    `unmessaged` are jobs of those counted: they are right but for a row that has no message.
    """

    jobs: int
    rows: int
    odd: list[str]
    unmessaged: list[str]


class JobSieve:
    """Sorts jobs and rows by ranges of ids. What it finds odd may be right; it misses nothing.

    A range is asked in one query, which is repeated when it is lost.
    """

    def __init__(self, mongo: Mongo, outbox: Outbox) -> None:
        self._mongo = mongo
        self._jobs, self._ledger = mongo.collection("jobs"), mongo.collection("ledger")
        self._outbox = outbox

    def kind(self) -> str | None:
        """Return the one type that all ids are of; None where two types may spell one text.

        None also where no index leads to a job's rows: each range would read the whole ledger.
        """
        indexes: list[Document] = []
        with self._mongo.reading("look at the ids"):
            found = {
                kind
                for kind in (*KINDS, "number")
                for collection, key in ((self._jobs, "_id"), (self._ledger, "job_id"))
                if collection.find_one({key: {"$type": kind}}, {"_id": 1}) is not None
            }
        with suppress(NotPermitted), self._mongo.reading("look at the indexes"):
            indexes = [*self._ledger.index_information().values()]
        whole = (one for one in indexes if not one.keys() & {"partialFilterExpression", "sparse"})
        is_served = any(one["key"][0][0] == "job_id" for one in whole)
        return found.pop() if is_served and len(found) == 1 and found <= set(KINDS) else None

    def ranges(self, kind: str) -> Iterator[Range]:
        """Yield ranges that hold every id of this type, each with few documents."""
        after = None
        while True:
            last = self._border(Range(kind, after, None))
            yield Range(kind, after, last)
            if last is None:
                return
            after = last

    def _border(self, rest: Range) -> Any:
        """Return the id at which the next range ends; None where this one is the last."""
        borders = []
        with self._mongo.reading("look at the ids"):
            for collection, key in ((self._jobs, "_id"), (self._ledger, "job_id")):
                found = collection.find(rest.of(key), {"_id": 0, key: 1}).sort(key, 1)
                borders += [one[key] for one in found.skip(RANGE).limit(1)]
        return min((one for one in borders if not isinstance(one, list)), default=None)

    def sift(self, part: Range, horizon: datetime) -> Sifted:
        """Sort out a range; rows dated after `horizon` are odd."""
        with self._mongo.reading("read the ledger"):
            return self._mongo.repeated(lambda: self._sifted(part, horizon))

    def _sifted(self, part: Range, horizon: datetime) -> Sifted:
        jobs = rows = carrying = 0
        odd: list[str] = []
        pipeline = stages(part, horizon, self._jobs.name)
        for one in self._ledger.aggregate(pipeline, allowDiskUse=True):
            carrying += one["carrying"]
            if one["_id"] is None:
                jobs, rows = one["groups"], one["documents"] - one["groups"]
            elif not isinstance(one["_id"], list):  # a list matches by its elements
                odd.append(to_id(one["_id"]).text)
        missing = self._unmessaged(part) if carrying else {}
        return Sifted(jobs, rows, odd, [*missing.keys() - set(odd)])

    def _unmessaged(self, part: Range) -> dict[str, None]:
        """Return the jobs of the rows that carry an operation id and have no message."""
        query = part.of("job_id") | {"operation_id": {"$ne": None}}
        found = self._ledger.find(query, {"job_id": 1}).sort("job_id", 1)
        jobs: dict[str, None] = {}
        for some in chunks(found, MESSAGES):
            named = {to_id(row["_id"]).text: row["job_id"] for row in some}
            for missing in named.keys() - self._outbox.standing_near(list(named)):
                if not isinstance(named[missing], list):
                    jobs[to_id(named[missing]).text] = None
        return jobs


def stages(part: Range, horizon: datetime, jobs: str) -> list[Document]:
    """Return the stages that count what is plainly right under `_id` null, and name the rest."""
    of_jobs = [{"$match": part.of("_id")}, {"$project": job_code()}]
    alone = {"$and": [{"$eq": ["$code", -CHARGE]}, {"$eq": ["$documents", 1]}]}  # never charged
    paired = {"$and": [{"$eq": ["$code", 0]}, {"$eq": ["$least", "$most"]}]}
    return [
        {"$match": part.of("job_id")},
        {"$project": row_code(horizon)},
        {"$unionWith": {"coll": jobs, "pipeline": of_jobs}},
        {
            "$group": {
                "_id": "$job",
                "code": {"$sum": "$code"},
                "least": {"$min": "$cost"},
                "most": {"$max": "$cost"},
                "documents": {"$sum": 1},
                "carrying": {"$sum": "$carrying"},
            }
        },
        {
            "$group": {
                "_id": {"$cond": [{"$or": [paired, alone]}, None, "$_id"]},
                "groups": {"$sum": 1},
                "documents": {"$sum": "$documents"},
                "carrying": {"$sum": "$carrying"},
            }
        },
    ]


def row_code(horizon: datetime) -> Document:
    """Return the fields of a row: its job, what it adds to the code, and the cost it speaks of."""
    recorded = {"$or": [is_absent("$recorded_at"), {"$and": is_date("$recorded_at", LATEST)}]}
    usable = {"$and": [is_whole("$amount"), *is_date("$created_at", horizon), recorded]}
    taken: Document = {"$multiply": ["$amount", -1]}  # of the lowest int64 a double, never an error
    is_refund = {"$eq": ["$type", RowType.REFUND]}
    step = {
        "$switch": {
            "branches": [
                {"case": {"$eq": ["$type", RowType.CHARGE]}, "then": CHARGE},
                {"case": is_refund, "then": REFUND},
                {"case": {"$eq": ["$type", RowType.RECLAIM]}, "then": RECLAIM},
            ],
            "default": ODD,
        }
    }
    cost = {"$cond": [is_refund, "$amount", taken]}
    return {
        "_id": 0,
        "job": "$job_id",
        "code": {"$cond": [usable, step, ODD]},
        "cost": {"$cond": [is_whole("$amount"), cost, None]},
        "carrying": {"$cond": [{"$gt": ["$operation_id", None]}, 1, 0]},
    }


def job_code() -> Document:
    """Return the same fields of a job; its code is what its flags take off."""
    refunded = [{"$eq": ["$is_refunded", True]}, *is_date("$refunded_at", LATEST)]
    reclaimed = [{"$eq": ["$is_reclaimed", True]}, *is_date("$reclaimed_at", LATEST)]
    not_reclaimed = [{"$eq": ["$is_reclaimed", False]}, is_absent("$reclaimed_at")]
    not_refunded = [{"$eq": ["$is_refunded", False]}, is_absent("$refunded_at")]
    failed = {"$ne": ["$status", SUCCEEDED]}
    flags = {
        "$switch": {
            "branches": [
                {"case": {"$and": [*not_refunded, *not_reclaimed]}, "then": -CHARGE},
                {"case": {"$and": [*refunded, *reclaimed]}, "then": -CHARGE - REFUND - RECLAIM},
                {"case": {"$and": [*refunded, *not_reclaimed, failed]}, "then": -CHARGE - REFUND},
            ],
            "default": ODD,
        }
    }
    usable = {"$and": [is_whole("$cost"), {"$gte": ["$cost", 0]}]}
    code = {"$cond": [usable, flags, ODD]}
    return {"_id": 0, "job": "$_id", "code": code, "cost": "$cost", "carrying": {"$literal": 0}}


def is_whole(field: str) -> Document:
    """Return the condition of an int or a long."""
    return {"$in": [{"$type": field}, ["int", "long"]]}


def is_date(field: str, latest: datetime) -> list[Document]:
    """Return the conditions of a date up to `latest`: no other type lies between two dates."""
    return [{"$gte": [field, EARLIEST]}, {"$lte": [field, latest]}]


def is_absent(field: str) -> Document:
    """Return the condition of an absent field or null."""
    return {"$eq": [{"$ifNull": [field, None]}, None]}
