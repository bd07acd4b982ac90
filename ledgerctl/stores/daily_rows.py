"""What a rebuild must know of the ledger before it writes: its days, late rows, odd rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo.client_session import ClientSession

from ledgerctl.domain.days import EARLIEST, LATEST
from ledgerctl.domain.ids import IdKind, text_of
from ledgerctl.domain.summary import DaySpan, RefusedRow
from ledgerctl.stores.codec import Document, candidates, optional_id, to_id
from ledgerctl.stores.daily import (
    COUNTED,
    INTEGERS,
    UUIDS,
    WHOLE,
    Grouping,
    account_of_job,
    in_transaction,
    outer,
    rows_of,
    values_of,
)
from ledgerctl.stores.mongo import Mongo

# What the four bytes of an ObjectId can say.
OBJECT_IDS = (datetime(1970, 1, 1, tzinfo=UTC), datetime(2106, 2, 7, tzinfo=UTC))
DATES = {"$gte": EARLIEST, "$lte": LATEST}
# One condition a type: only then does MongoDB go to the few keys there are in the index.
NO_DATES: list[Document] = [
    {"created_at": None},
    {"created_at": {"$lt": EARLIEST}},
    {"created_at": {"$gt": LATEST}},
    *(
        {"created_at": {"$type": kind}}
        for kind in ("string", "number", "object", "binData", "objectId", "bool", "timestamp")
    ),
]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Hold the instants between which a row counts as recorded in a window; the end is excluded."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class OddRows:
    """Describe what a day's, or the undated, rows hold that cannot simply be summed."""

    usable: int = 0  # whole, but no int or long
    recent: tuple[RefusedRow, ...] = ()  # recorded inside the window: one a refused account
    others: int = 0  # rows left out that refuse nothing
    no_ids: tuple[RefusedRow, ...] = ()  # one an account whose id is none


class DailyRows:
    """Hold the questions to the ledger; each is answered from an index wherever one can."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._ledger = mongo.collection("ledger")
        self._jobs = mongo.collection("jobs")

    def first_and_last(self, session: ClientSession) -> tuple[datetime, datetime] | None:
        """Return the times of the ledger's first and last dated row; None when there is none."""
        with self._mongo.reading("read the ledger's ends"):
            ends = [
                self._ledger.find_one(
                    {"created_at": DATES},
                    {"_id": 0, "created_at": 1},
                    sort=[("created_at", way)],
                    session=session,
                )
                for way in (1, -1)
            ]
        if ends[0] is None or ends[1] is None:
            return None
        return ends[0]["created_at"], ends[1]["created_at"]

    def next_row_at(
        self, start: datetime, end: datetime, session: ClientSession | None
    ) -> datetime | None:
        """Return the time of the first row that counts from `start` on and before `end`."""
        with self._mongo.reading("read the ledger"):
            found = self._ledger.find_one(
                {"created_at": {"$gte": start, "$lt": end}, "type": {"$in": COUNTED}},
                {"_id": 0, "created_at": 1},
                sort=[("created_at", 1)],
                session=session,
            )
        return None if found is None else found["created_at"]

    def late_spans(
        self, since: datetime, before: datetime, account: str | None, session: ClientSession
    ) -> list[tuple[datetime, datetime]]:
        """First and last time, an hour of UTC each, of rows recorded since then and dated before.

        Recorded: recorded_at, else the time of an ObjectId `_id`, else created_at.
        """
        with self._mongo.reading("look for late rows"):
            return [
                (hour["first"], hour["last"])
                for query in late_queries(since, before, account)
                for hour in self._ledger.aggregate(
                    [{"$match": query}, BY_HOUR], session=session, allowDiskUse=True
                )
            ]

    def undated_rows(
        self, window: Recorded, accounts: Sequence[str] | None, session: ClientSession
    ) -> OddRows:
        """Return the rows that would count, had they a date."""
        query: Document = {"$or": NO_DATES, "type": {"$in": COUNTED}}
        return self._odd(query, window, accounts, session, usable=False)

    def odd_rows(
        self,
        span: DaySpan,
        window: Recorded,
        accounts: Sequence[str] | None,
        session: ClientSession,
    ) -> OddRows:
        """Return the rows of a day whose amount is no int or long, or whose account is no id.

        An index alone answers where there are none.
        """
        query = rows_of(span)
        if accounts is not None:
            query["account_id"] = {"$in": [*values_of(accounts), None]}
        types = {"$group": {"_id": [{"$type": "$amount"}, {"$type": "$account_id"}]}}
        with self._mongo.reading("read the types of amounts", outer(session)):
            groups = list(self._ledger.aggregate([{"$match": query}, types], session=session))
        amounts, owners = ({one["_id"][at] for one in groups} for at in (0, 1))
        no_ids = () if owners <= PLAIN_OWNERS else self._no_ids(query, session)
        if amounts <= {"int", "long"}:
            return OddRows(no_ids=no_ids)
        query |= {"amount": {"$not": INTEGERS}}
        return replace(self._odd(query, window, accounts, session, usable=True), no_ids=no_ids)

    def _no_ids(self, query: Document, session: ClientSession) -> tuple[RefusedRow, ...]:
        """Name the accounts of these rows that are no ids, each with a row and their number."""
        stages: list[Document] = [
            {"$match": {"$and": [query, {"$or": NO_IDS}]}},
            {"$group": {"_id": "$account_id", "rows": {"$sum": 1}, "row": {"$first": "$_id"}}},
        ]
        with self._mongo.reading("look for accounts that are no ids", outer(session)):
            groups = list(self._ledger.aggregate(stages, session=session, allowDiskUse=True))
        found = [(to_id(one["_id"]), one) for one in groups]
        return tuple(
            RefusedRow(account.text, to_id(one["row"]).text, NO_ID, one["rows"], lasting=True)
            for account, one in found
            if account.kind is IdKind.OTHER
        )

    def strayed_rows(
        self, window: Recorded, accounts: Sequence[str] | None, session: ClientSession
    ) -> OddRows:
        """Return the rows recorded in the window that cannot be summed and are dated outside of it.

        Looks at what was recorded in the window and nothing else, however long the ledger is.
        """
        found = [
            self._odd(query, window, accounts, session, usable=True, strayed=True)
            for query in recorded_queries(window)
        ]
        return OddRows(
            recent=tuple(row for one in found for row in one.recent),
            others=sum(one.others for one in found),
        )

    def _odd(
        self,
        query: Document,
        window: Recorded,
        accounts: Sequence[str] | None,
        session: ClientSession | None,
        *,
        usable: bool,
        strayed: bool = False,
    ) -> OddRows:
        pipeline = odd_groups(
            query, window, accounts, self._jobs.name, usable=usable, strayed=strayed
        )
        with self._mongo.reading("look for rows that cannot be summed", outer(session)):
            groups = list(self._ledger.aggregate(pipeline, session=session, allowDiskUse=True))
        return odd_rows_of(groups, accounts, dated=usable)

    def shape(
        self, span: DaySpan, *, odd: bool, session: ClientSession | None, jobs: bool = True
    ) -> Grouping:
        """Return how to group a day: by text as soon as its account ids are of several kinds."""
        found = []
        with self._mongo.reading("read the ledger's accounts", outer(session)):
            for kind in KINDS_OF_ID:
                query = {"account_id": kind, "created_at": {"$gte": span.start, "$lt": span.end}}
                if self._ledger.find_one(query, {"_id": 1}, session=session) is not None:
                    found.append(kind)
        by_text = len(found) > 1 or None in found
        return Grouping(odd, by_text, jobs, in_transaction(session), UUIDS in found)


# Text, numbers, ObjectIds, UUIDs, and rows that name no account.
KINDS_OF_ID: tuple[Any, ...] = (
    {"$type": "string"},
    {"$type": "number"},
    {"$type": "objectId"},
    UUIDS,
    None,
)
PLAIN_OWNERS = {"string", "objectId", "int", "long", "decimal", "null", "missing"}
NO_ID = "an account of this type gets no summary"
NO_IDS: list[Document] = [
    {"account_id": {"$type": ["array", "object", "bool", "double", "date", "timestamp", "regex"]}},
    {"account_id": {"$type": "binData"}, "$nor": [{"account_id": UUIDS}]},
]


BY_HOUR: Document = {
    "$group": {
        "_id": {"$dateTrunc": {"date": "$created_at", "unit": "hour"}},
        "first": {"$min": "$created_at"},
        "last": {"$max": "$created_at"},
    }
}


def late_queries(since: datetime, before: datetime, account: str | None) -> list[Document]:
    """Return the ways in which a row dated before can have been recorded since then.

    By recorded_at, else by the time of an ObjectId `_id`, else by created_at.
    """
    dated = {"$gte": EARLIEST, "$lt": before}
    base: Document = {"type": {"$in": COUNTED}, "created_at": dated}
    if account is not None:
        base["account_id"] = {"$in": [*candidates(account), None]}
    unrecorded = {"recorded_at": {"$not": {"$type": "date"}}}
    queries = [
        base | {"recorded_at": {"$gte": since}},
        base | unrecorded | {"_id": {"$gte": ObjectId.from_datetime(since)}},
    ]
    if since < before:
        created = {"_id": {"$not": {"$type": "objectId"}}, "created_at": dated | {"$gte": since}}
        queries.append(base | unrecorded | created)
    return queries


def recorded_queries(window: Recorded) -> list[Document]:
    """Return the ways in which an odd row can have been recorded inside the window.

    By recorded_at, else by the time of an ObjectId `_id`. A row that has only created_at is dated
    where it was recorded.
    """
    base: Document = {"type": {"$in": COUNTED}, "amount": {"$not": INTEGERS}}
    queries = [base | {"recorded_at": {"$gte": window.start, "$lt": window.end}}]
    start, end = max(window.start, OBJECT_IDS[0]), min(window.end, OBJECT_IDS[1])
    if start < end:
        generated = {"$gte": ObjectId.from_datetime(start), "$lt": ObjectId.from_datetime(end)}
        queries.append(base | {"recorded_at": {"$not": {"$type": "date"}}, "_id": generated})
    return queries


def odd_groups(
    query: Document,
    window: Recorded,
    accounts: Sequence[str] | None,
    jobs: str,
    *,
    usable: bool,
    strayed: bool = False,
) -> list[Document]:
    """Return the stages that count odd rows by account: `usable` says whether one may be whole.

    `strayed` leaves only those that are dated outside the window.
    """
    if accounts is not None:
        query = query | {"account_id": {"$in": [*values_of(accounts), None]}}
    named: Document = {"$ne": [{"$ifNull": ["$account_id", None]}, None]}
    outside: Document = {
        "$and": [
            {"$eq": [{"$type": "$created_at"}, "date"]},
            {
                "$or": [
                    {"$lt": ["$created_at", window.start]},
                    {"$gte": ["$created_at", window.end]},
                ]
            },
        ]
    }
    # An expression, so that no plan walks the days outside to find these few.
    kept = [{"$match": {"$expr": {"$eq": [True, outside]}}}] if strayed else []
    return [
        {"$match": query},
        *kept,
        {
            "$group": {
                "_id": {
                    "account": {"$ifNull": ["$account_id", None]},
                    "job": {"$cond": [named, None, {"$ifNull": ["$job_id", None]}]},
                    "usable": WHOLE if usable else {"$literal": False},
                    "recent": recorded_in(window),
                },
                "rows": {"$sum": 1},
                "row": {"$first": "$_id"},
            }
        },
        *account_of_job("$_id.job", jobs),
    ]


def recorded_in(window: Recorded) -> Document:
    """Return whether a row was recorded inside the window, by whichever time counts for it."""
    created = {"$cond": [{"$eq": [{"$type": "$created_at"}, "date"]}, "$created_at", None]}
    generated = {"$cond": [{"$eq": [{"$type": "$_id"}, "objectId"]}, {"$toDate": "$_id"}, created]}
    recorded = {"$cond": [{"$eq": [{"$type": "$recorded_at"}, "date"]}, "$recorded_at", generated]}
    return {
        "$let": {
            "vars": {"at": recorded},
            "in": {"$and": [{"$gte": ["$$at", window.start]}, {"$lt": ["$$at", window.end]}]},
        }
    }


def odd_rows_of(
    groups: Iterable[Document], accounts: Sequence[str] | None, *, dated: bool
) -> OddRows:
    """Sort out groups of odd rows: usable, refusing their account, or merely left out."""
    usable, others = 0, 0
    refused: dict[str, RefusedRow] = {}
    for group in groups:
        key = group["_id"]
        account = text_of(
            optional_id(key["account"] if key["account"] is not None else group["account"])
        )
        if accounts is not None and account not in accounts:
            continue
        if key["usable"]:
            usable += group["rows"]
        elif key["recent"] and account is not None:
            why = "its amount cannot be summed" if dated else "it has no usable date"
            before = refused[account].rows if account in refused else 0
            row_id = to_id(group["row"]).text
            refused[account] = RefusedRow(account, row_id, why, before + group["rows"])
        else:
            others += group["rows"]
    return OddRows(usable, tuple(refused.values()), others)
