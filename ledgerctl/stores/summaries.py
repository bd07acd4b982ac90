"""The daily usage summaries: computed and written by the server, day by day, out of the ledger."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import Int64, ObjectId
from pymongo import UpdateOne
from pymongo import errors as mongo_errors
from pymongo.client_session import ClientSession
from pymongo.read_concern import ReadConcern

from ledgerctl.domain.days import EARLIEST, LATEST
from ledgerctl.domain.ids import text_of
from ledgerctl.domain.summary import DayFigures, DaySpan, Difference, Figures, RefusedRow
from ledgerctl.stores.codec import candidates, optional_id, to_amount, to_id, to_text, to_time
from ledgerctl.stores.connections import Document, Mongo
from ledgerctl.stores.daily import (
    COUNTED,
    FIGURES,
    INTEGERS,
    WHOLE,
    Shape,
    account_of_job,
    as_summary,
    figures,
    is_earlier,
    merge_into,
    overwrite_when,
    rows_of,
)

OUT_OF_MEMORY = {146, 10334, 17419, 4568300}  # a set of job ids too large: group on disk instead
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
ZEROS: Document = {name: Int64(0) for name in FIGURES}


@dataclass(frozen=True, slots=True)
class Recorded:
    """The instants between which a row counts as recorded in a window; the end is excluded."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class OddRows:
    """What a day's, or the undated, rows hold that cannot simply be summed."""

    usable: int = 0  # whole, but no int or long
    recent: tuple[RefusedRow, ...] = ()  # recorded inside the window: one a refused account
    others: int = 0  # rows left out that refuse nothing


@dataclass(frozen=True, slots=True)
class Written:
    """What stands in the summaries of one `as_of`."""

    accounts: frozenset[str] = frozenset()
    days: int = 0
    rows: int = 0


class Summaries:
    """The summaries, and the questions to the ledger that they are made of.

    Foreign fields of a summary stay. Source: contract, section 2, usage_daily.
    """

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._documents = mongo.collection("usage_daily")
        self._ledger = mongo.collection("ledger")
        self._jobs = mongo.collection("jobs")

    # the mark and the sessions

    @contextmanager
    def session(self, after: ClientSession | None = None) -> Iterator[ClientSession]:
        """A causally consistent session that sees all that `after` has seen."""
        with self._mongo.reading("start a session"):
            opened = self._mongo.client.start_session(causal_consistency=True)
        with opened:
            if after is not None and after.cluster_time is not None:
                opened.advance_cluster_time(after.cluster_time)
            if after is not None and after.operation_time is not None:
                opened.advance_operation_time(after.operation_time)
            yield opened

    def now(self, session: ClientSession) -> datetime:
        """The server's `$$NOW`; what the session reads next is no older than this."""
        # With local reads the session's time is that of the last write applied, majority or not.
        database = self._mongo.database.with_options(read_concern=ReadConcern("local"))
        if session.in_transaction:
            database = self._mongo.database
        with self._mongo.reading("read the server's time", _outer(session)):
            found = database.aggregate(
                [{"$documents": [{}]}, {"$project": {"now": "$$NOW"}}], session=session
            )
            moment: datetime = next(iter(found))["now"]
        return moment

    # what the ledger holds

    def first_and_last(self, session: ClientSession) -> tuple[datetime, datetime] | None:
        """The times of the ledger's first and last dated row; None when there is none."""
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
        """The time of the first row that counts from `start` on and before `end`."""
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
        dated = {"$gte": EARLIEST, "$lt": before}
        base: Document = {"type": {"$in": COUNTED}, "created_at": dated}
        if account is not None:
            base["account_id"] = {"$in": [*candidates(account), None]}
        unrecorded = {"recorded_at": {"$not": {"$type": "date"}}}
        ways: list[Document] = [
            base | {"recorded_at": {"$gte": since}},
            base | unrecorded | {"_id": {"$gte": ObjectId.from_datetime(since)}},
            base
            | unrecorded
            | {"_id": {"$not": {"$type": "objectId"}}, "created_at": dated | {"$gte": since}},
        ]
        hours = {
            "$group": {
                "_id": {"$dateTrunc": {"date": "$created_at", "unit": "hour"}},
                "first": {"$min": "$created_at"},
                "last": {"$max": "$created_at"},
            }
        }
        with self._mongo.reading("look for late rows"):
            return [
                (hour["first"], hour["last"])
                for way in (ways if since < before else ways[:2])
                for hour in self._ledger.aggregate(
                    [{"$match": way}, hours], session=session, allowDiskUse=True
                )
            ]

    def undated_rows(
        self, window: Recorded, accounts: Sequence[str] | None, session: ClientSession
    ) -> OddRows:
        """The rows that would count, had they a date."""
        query: Document = {"$or": NO_DATES, "type": {"$in": COUNTED}}
        return self._odd(query, window, accounts, session, usable=False)

    def odd_rows(
        self,
        span: DaySpan,
        window: Recorded,
        accounts: Sequence[str] | None,
        session: ClientSession,
    ) -> OddRows:
        """The rows of a day whose amount is no int or long; an index alone answers."""
        query = rows_of(span) | {"amount": {"$not": INTEGERS}}
        return self._odd(query, window, accounts, session, usable=True)

    def _odd(
        self,
        query: Document,
        window: Recorded,
        accounts: Sequence[str] | None,
        session: ClientSession | None,
        *,
        usable: bool,
    ) -> OddRows:
        if accounts is not None:
            values: list[Any] = [one for text in accounts for one in candidates(text)]
            query = query | {"account_id": {"$in": [*values, None]}}
        named: Document = {"$ne": [{"$ifNull": ["$account_id", None]}, None]}
        pipeline: list[Document] = [
            {"$match": query},
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
                    "amount": {"$first": "$amount"},
                }
            },
            *account_of_job("$_id.job", self._jobs.name),
        ]
        with self._mongo.reading("look for rows that cannot be summed", _outer(session)):
            groups = list(self._ledger.aggregate(pipeline, session=session, allowDiskUse=True))
        return odd_rows_of(groups, accounts, dated=usable)

    def shape(
        self, span: DaySpan, *, odd: bool, session: ClientSession | None, jobs: bool = True
    ) -> Shape:
        """How a day is to be grouped: by text as soon as its account ids are of several kinds."""
        found = []
        with self._mongo.reading("read the ledger's accounts", _outer(session)):
            for kind in KINDS_OF_ID:
                query = {"account_id": kind, "created_at": {"$gte": span.start, "$lt": span.end}}
                if self._ledger.find_one(query, {"_id": 1}, session=session) is not None:
                    found.append(kind)
        by_text = len(found) > 1 or None in found
        return Shape(odd=odd, by_text=by_text, jobs=jobs)

    # writing

    def merge_day(
        self,
        span: DaySpan,
        *,
        timezone: str,
        as_of: datetime,
        shape: Shape,
        accounts: Sequence[str] | None,
        refused: Sequence[str],
        session: ClientSession,
    ) -> None:
        """Overwrite the summaries of a day, where the stored `as_of` is absent or earlier."""
        end = [as_summary(span.day, timezone, as_of), merge_into(self._documents.name)]
        with self._mongo.writing(f"write the summaries of {span.day}"):
            try:
                self._ledger.aggregate(
                    [*self._figures(span, shape, accounts, refused), *end],
                    session=session,
                    allowDiskUse=True,
                )
            except mongo_errors.OperationFailure as error:
                if error.code not in OUT_OF_MEMORY or shape.by_text:
                    raise
                on_disk = Shape(odd=shape.odd, by_text=True)
                self._ledger.aggregate(
                    [*self._figures(span, on_disk, accounts, refused), *end],
                    session=session,
                    allowDiskUse=True,
                )

    def _figures(
        self,
        span: DaySpan,
        shape: Shape,
        accounts: Sequence[str] | None,
        refused: Sequence[str] = (),
    ) -> list[Document]:
        stages = figures(span, shape, self._ledger.name, self._jobs.name, accounts)
        if refused:
            stages.append({"$match": {"_id": {"$nin": list(refused)}}})
        return stages

    def clear(
        self,
        days: Document,
        *,
        timezone: str,
        as_of: datetime,
        accounts: Sequence[str] | None,
        refused: Sequence[str],
        session: ClientSession,
    ) -> int:
        """Zero the summaries of days that have figures and were not written at this `as_of`.

        `days` is a condition on `day`. Returns how many changed.
        """
        query: Document = {
            "day": days,
            "$expr": is_earlier({"$literal": as_of}),
            "$nor": [dict.fromkeys(FIGURES, 0) | {"timezone": timezone}],
        }
        named: Document = {}
        if accounts is not None:
            named["$in"] = [one for text in accounts for one in candidates(text)]
        if refused:
            named["$nin"] = [one for text in refused for one in candidates(text)]
        if named:
            query["account_id"] = named
        with self._mongo.writing("clear the summaries of days without rows"):
            changed = self._documents.update_many(
                query, {"$set": {**ZEROS, "timezone": timezone, "as_of": as_of}}, session=session
            )
        return changed.modified_count

    def written_at(self, days: Document, as_of: datetime, session: ClientSession) -> Written:
        """What a run wrote: the summaries of this `as_of` that have rows."""
        pipeline: list[Document] = [
            {"$match": {"day": days, "as_of": as_of, "rows": {"$gt": 0}}},
            {"$group": {"_id": "$account_id", "days": {"$sum": 1}, "rows": {"$sum": "$rows"}}},
        ]
        accounts, count, rows = set(), 0, 0
        with self._mongo.reading("count the summaries written"):
            for one in self._documents.aggregate(pipeline, session=session, allowDiskUse=True):
                accounts.add(to_id(one["_id"]).text)
                count += one["days"]
                rows += int(one["rows"])
        return Written(frozenset(accounts), count, rows)

    # recomputing some pairs

    def day_figures(
        self,
        span: DaySpan,
        accounts: Sequence[str],
        *,
        timezone: str,
        shape: Shape,
        session: ClientSession | None,
    ) -> dict[str, Document]:
        """The documents, without `as_of`, that the ledger makes of a day, by `_id`."""
        pipeline = [*self._figures(span, shape, accounts), as_summary(span.day, timezone)]
        with self._mongo.reading(f"sum the rows of {span.day}", _outer(session)):
            found = self._ledger.aggregate(pipeline, session=session, allowDiskUse=True)
            return {one["_id"]: one for one in found}

    def overwrite(
        self, documents: Iterable[Document], *, as_of: datetime, session: ClientSession | None
    ) -> int:
        """Write whole summaries: in every case inside a transaction, else only over earlier ones."""
        writes = []
        for document in documents:
            fields = {"$literal": document | {"as_of": as_of}}
            condition = {"$literal": True} if in_transaction(session) else is_earlier(as_of)
            writes.append(
                UpdateOne(
                    {"_id": document["_id"]}, [overwrite_when(condition, fields)], upsert=True
                )
            )
        return self._write("write summaries", writes, session)

    def zero(
        self,
        ids: Iterable[str],
        *,
        timezone: str,
        as_of: datetime,
        session: ClientSession | None,
    ) -> int:
        """Zero the summaries of these ids that stand there; none is made."""
        fields = {"$literal": {**ZEROS, "timezone": timezone, "as_of": as_of}}
        condition = {"$literal": True} if in_transaction(session) else is_earlier(as_of)
        writes = [UpdateOne({"_id": one}, [overwrite_when(condition, fields)]) for one in ids]
        return self._write("clear summaries", writes, session)

    def _write(self, action: str, writes: list[UpdateOne], session: ClientSession | None) -> int:
        if not writes:
            return 0
        with self._mongo.writing(action, _outer(session)):
            done = self._documents.bulk_write(writes, ordered=False, session=session)
        return done.modified_count + done.upserted_count

    # comparing and showing

    def compare(
        self,
        span: DaySpan,
        *,
        timezone: str,
        shape: Shape,
        accounts: Sequence[str] | None,
        names: Sequence[str],
    ) -> tuple[int, list[Difference]]:
        """How many (account, day) pairs a day has, and those whose `names` differ.

        Ledger and summaries are read in one snapshot where the server has transactions.
        """
        stored: Document = {"day": span.day}
        if accounts is not None:
            stored["account_id"] = {"$in": [one for text in accounts for one in candidates(text)]}
        same = {
            "$and": [
                {"$eq": [f"$summary.{name}", {"$ifNull": [f"$ledger.{name}", default]}]}
                for name, default in (*((name, 0) for name in names), ("timezone", timezone))
            ]
        }
        pipeline: list[Document] = [
            *self._figures(span, shape, accounts),
            as_summary(span.day, timezone),
            {"$project": {"ledger": "$$ROOT"}},
            {
                "$unionWith": {
                    "coll": self._documents.name,
                    "pipeline": [{"$match": stored}, {"$project": {"summary": "$$ROOT"}}],
                }
            },
            {
                "$group": {
                    "_id": "$_id",
                    "ledger": {"$max": "$ledger"},
                    "summary": {"$max": "$summary"},
                }
            },
            {
                "$group": {
                    "_id": {"$cond": [same, None, "$_id"]},
                    "pairs": {"$sum": 1},
                    "ledger": {"$first": "$ledger"},
                    "summary": {"$first": "$summary"},
                }
            },
        ]
        concern = ReadConcern("snapshot" if self._mongo.transactions else "majority")
        pairs, differing = 0, []
        with self._mongo.reading(f"compare the summaries of {span.day}"):
            ledger = self._ledger.with_options(read_concern=concern)
            for one in ledger.aggregate(pipeline, allowDiskUse=True):
                pairs += one["pairs"]
                if one["_id"] is not None:
                    differing.append(difference_of(one, span.day))
        return pairs, differing

    def of_account(self, account: str, from_day: str, to_day: str) -> list[DayFigures]:
        """The summaries of an account, by day."""
        query = {
            "account_id": {"$in": candidates(account)},
            "day": {"$gte": from_day, "$lte": to_day},
        }
        with self._mongo.reading("read the account's summaries"):
            found = self._documents.find(query).sort([("day", 1), ("_id", 1)])
            return [
                DayFigures(
                    one["day"],
                    figures_of(one),
                    to_text(one.get("timezone")),
                    to_time(one.get("as_of")),
                )
                for one in found
            ]

    def days_with_summaries(
        self, from_day: str, to_day: str, accounts: Sequence[str] | None
    ) -> set[str]:
        """The days of a range that have any summary."""
        query: Document = {"day": {"$gte": from_day, "$lte": to_day}}
        if accounts is not None:
            query["account_id"] = {"$in": [one for text in accounts for one in candidates(text)]}
        with self._mongo.reading("read the summaries' days"):
            return {day for day in self._documents.distinct("day", query) if isinstance(day, str)}


# Text, numbers, ObjectIds, and rows that name no account.
KINDS_OF_ID: tuple[Any, ...] = (
    {"$type": "string"},
    {"$type": "number"},
    {"$type": "objectId"},
    None,
)


def recorded_in(window: Recorded) -> Document:
    """Whether a row was recorded inside the window, by whichever time stands for it."""
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


def difference_of(group: Document, day: str) -> Difference:
    """A pair of the comparison as our record."""
    ledger, summary = group.get("ledger"), group.get("summary")
    stated = (ledger or summary or {}).get("account_id")
    return Difference(
        account_id=text_of(optional_id(stated)) or str(group["_id"]).rsplit(":", 1)[0],
        day=day,
        summary=None if summary is None else figures_of(summary),
        ledger=None if ledger is None else figures_of(ledger),
        timezone=None if summary is None else to_text(summary.get("timezone")),
    )


def figures_of(document: Document) -> Figures:
    """The figures a document holds."""
    found = {name: to_amount(document.get(name)) for name in FIGURES}
    return Figures(
        **{name: value if isinstance(value, int) else None for name, value in found.items()}
    )


def in_transaction(session: ClientSession | None) -> bool:
    """Whether this session has a transaction open."""
    return session is not None and session.in_transaction


def _outer(session: ClientSession | None) -> ClientSession | None:
    """The session whose transaction must see the driver's own error; None outside of one."""
    return session if in_transaction(session) else None
