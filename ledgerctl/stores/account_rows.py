"""An account's rows: those that name it, and those that name none and belong to a job of its."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from heapq import merge
from itertools import chain
from types import MappingProxyType
from typing import Any

from bson import DatetimeMS, ObjectId
from pymongo.command_cursor import CommandCursor

from ledgerctl.domain.balances import AccountSum, TypeSum
from ledgerctl.domain.ids import chunks
from ledgerctl.domain.rows import ORDER, Entry, LedgerRow, Row
from ledgerctl.stores.codec import (
    Document,
    candidates,
    to_entry,
    to_id,
    to_ledger_row,
    to_row,
    to_text,
    to_time,
)
from ledgerctl.stores.jobs import FIELDS as JOB_FIELDS
from ledgerctl.stores.mongo import Mongo
from ledgerctl.stores.sweep import ROW_FIELDS, JobDocuments, is_plain

NOT_A_DATE: Document = {"$not": {"$type": "date"}}
A_DATE: Document = {"$type": "date"}
BY_TIME = [("created_at", 1), ("_id", 1)]
EXPORT_FIELDS = dict.fromkeys(
    ("_id", "job_id", "account_id", "type", "amount", "created_at", "recorded_at", "operation_id",
     "reason"),
    1,
)  # fmt: skip
ENTRY_FIELDS = dict.fromkeys(("_id", "created_at", "job_id", "type", "amount", "reason"), 1)

# A server's batch may hold 16 MB, which is a hundred thousand rows as Python objects.
BATCH = 4_000
JOBS_TOGETHER = 20_000  # job ids of one query
FEW = 10  # jobs for each row without account: fewer rows are looked up, more are joined
MOST = 4  # a quarter of the rows
ROWS_TOGETHER = 2_000  # rows whose jobs are asked for their account together


class AccountRows:
    """Reads whole accounts, exactly and in constant memory; a row without account is its job's."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._rows = mongo.collection("ledger")
        self._jobs = mongo.collection("jobs")  # asked for the account of rows that lack it

    # one account's totals

    def sums(self, account: str, window: Mapping[str, Any]) -> list[TypeSum]:
        """Per type of the rows that name this account: how many, and their exact sum.

        Without a `known_at` the index answers alone. A sum is None where the server's may have
        been rounded, or leaves a row out: MongoDB turns a sum that leaves int64 or meets a double
        into another type without a word.
        """
        pipeline = [
            {"$match": {**self._mongo.of_account("ledger", account), **window}},
            {"$group": {"_id": {"type": "$type", "number": IS_NUMBER}, **SUM}},
        ]
        with self._mongo.reading("sum the account's rows"):
            return [
                TypeSum(to_text(one["_id"].get("type")) or "", one["rows"], exact_sum(one))
                for one in self._rows.aggregate(pipeline, allowDiskUse=True)
            ]

    def span(
        self, account: str, window: Mapping[str, Any]
    ) -> tuple[datetime | None, datetime | None]:
        """Return the first and last time among the rows that name this account."""
        first, last = (self._edge(account, window, direction) for direction in (1, -1))
        return first, last

    def _edge(self, account: str, window: Mapping[str, Any], direction: int) -> datetime | None:
        query = {**self._mongo.of_account("ledger", account), "created_at": A_DATE, **window}
        with self._mongo.reading("read the account's rows"):
            found = self._rows.find_one(
                query, {"created_at": 1, "_id": 0}, sort=[("created_at", direction)]
            )
        return None if found is None else to_time(found["created_at"])

    def has_undated(self, account: str) -> bool:
        """Return whether rows of this account lack a date: they are at the ends of its index."""
        with self._mongo.reading("read the account's rows"):
            of_account = self._mongo.of_account("ledger", account)
            for value in candidates(account):
                for direction in (1, -1):
                    edge = self._rows.find_one(
                        of_account | {"account_id": {**of_account["account_id"], "$in": [value]}},
                        {"created_at": 1, "_id": 0},
                        sort=[("created_at", direction)],
                    )
                    if edge is not None and not is_date(edge.get("created_at")):
                        return True
        return False

    def count(self, account: str, window: Mapping[str, Any]) -> int:
        """Return how many rows an account has in a window."""
        with self._mongo.reading("count the account's rows"):
            found = self._rows.count_documents(
                {**self._mongo.of_account("ledger", account), **window}
            )
        return found + sum(1 for _ in self._joined(account, window))

    def undated(self, account: str, window: Mapping[str, Any] = MappingProxyType({})) -> int:
        """Return how many rows of an account have no usable date."""
        undated = {**window, "created_at": NOT_A_DATE}
        if not self.has_undated(account):
            return sum(1 for _ in self._joined(account, undated))
        return self.count(account, undated)

    # one account's rows

    def named_entries(self, account: str, window: Mapping[str, Any]) -> Iterator[Entry]:
        """Return the rows that name this account, by time and id."""
        return map(to_entry, self._named(account, window))

    def joined_entries(self, account: str, window: Mapping[str, Any]) -> Iterator[Entry]:
        """Return the rows that name no account and belong to a job of this one, by time and id."""
        return map(to_entry, self._joined(account, window))

    def entries(
        self, account: str, *, since: datetime | None, before: datetime | None
    ) -> Iterator[Entry]:
        """Yield every row of an account by time and id; streamed.

        Without `before` the undated rows come first, by the rank of their type. Source: contract,
        section 3, balance replay.
        """
        if before is None:
            yield from map(to_entry, self._undated(account))
        bounds = {"$gte": since, "$lt": before}
        window = {key: value for key, value in bounds.items() if value is not None} or A_DATE
        yield from map(to_entry, self._both(account, {"created_at": window}))

    def rows_of(self, account: str, span: tuple[datetime, datetime]) -> Iterator[Row]:
        """Yield the rows of an account that are dated in a span, by time and id; streamed."""
        dated = {"created_at": {"$gte": span[0], "$lt": span[1]}}
        return map(to_row, self._both(account, dated, ROW_FIELDS))

    def _undated(self, account: str) -> Iterator[Document]:
        if not self.has_undated(account) and not self.any_without_account():
            return
        ranked: list[Document] = [{"type": one} for one in ORDER]
        ranked.append({"type": {"$nin": [*ORDER]}})
        for of_type in ranked:
            yield from self._both(account, {"created_at": NOT_A_DATE, **of_type})

    def _both(
        self, account: str, window: Mapping[str, Any], fields: Mapping[str, int] = ENTRY_FIELDS
    ) -> Iterator[Document]:
        rows = self._named(account, window, fields)
        if not self.any_without_account():
            return rows
        return merge(rows, self._joined(account, window, fields), key=time_and_id)

    def _named(
        self, account: str, window: Mapping[str, Any], fields: Mapping[str, int] = ENTRY_FIELDS
    ) -> Iterator[Document]:
        query = {**self._mongo.of_account("ledger", account), **window}
        with self._mongo.reading("read the account's rows"):
            yield from self._rows.find(
                query, fields, sort=BY_TIME, batch_size=BATCH, allow_disk_use=True
            )

    # rows that name no account

    def any_without_account(self) -> bool:
        """Return whether any row lacks its account, so that its job must be asked."""
        with self._mongo.reading("read the ledger"):
            return self._rows.find_one({"account_id": None}, {"_id": 1}) is not None

    def _joined(
        self, account: str, window: Mapping[str, Any], fields: Mapping[str, int] = ENTRY_FIELDS
    ) -> Iterator[Document]:
        """Return the rows without account of this account's jobs, from the smaller side."""
        if not self.any_without_account():
            return iter(())
        with self._mongo.reading("count the account's jobs"):
            jobs = self._jobs.count_documents(self._mongo.of_account("jobs", account))
            rows = self._rows.count_documents({"account_id": None}, limit=jobs + 1)
        if rows <= jobs:
            return self._joined_by_row(account, window, fields)
        return self._joined_by_job(account, window, fields)

    def _joined_by_row(
        self, account: str, window: Mapping[str, Any], fields: Mapping[str, int]
    ) -> Iterator[Document]:
        query = {"account_id": None, **window}
        with self._mongo.reading("read the rows without account"):
            rows = self._rows.find(
                query, fields, sort=BY_TIME, batch_size=BATCH, allow_disk_use=True
            )
            for some in chunks(rows, ROWS_TOGETHER):
                owners = self.owners([row.get("job_id") for row in some])
                yield from (row for row in some if owners.get(key(row.get("job_id"))) == account)

    def _joined_by_job(
        self, account: str, window: Mapping[str, Any], fields: Mapping[str, int]
    ) -> Iterator[Document]:
        runs = []
        with self._mongo.reading("read the rows of the account's jobs"):
            ids = (
                job["_id"]
                for job in self._jobs.find(self._mongo.of_account("jobs", account), {"_id": 1})
            )
            for some in chunks(ids, JOBS_TOGETHER):
                query = {"job_id": {"$in": self._spellings(some)}, "account_id": None, **window}
                runs.append(
                    self._rows.find(
                        query, fields, sort=BY_TIME, batch_size=BATCH, allow_disk_use=True
                    )
                )
            yield from merge(*runs, key=time_and_id)

    def _spellings(self, ids: Sequence[Any]) -> list[Any]:
        """Return every value under which rows can name these jobs and no other one."""
        others = {key(value): value for one in ids for value in candidates(to_id(one).text)}
        for one in ids:
            others.pop(key(one), None)
        taken = self._jobs.find({"_id": {"$in": list(others.values())}}, {"_id": 1})
        for job in taken:
            others.pop(key(job["_id"]), None)
        return [*ids, *others.values()]

    def owners(self, job_ids: Iterable[Any]) -> dict[Any, str]:
        """Return the account of each of these jobs, by `key` of the id as a row holds it.

        The job of the very id and type wins; else it is the one whose id spells the same text.
        """
        values = {key(value): value for value in job_ids if value is not None}
        asked = {key(one): one for v in values.values() for one in candidates(to_id(v).text)}
        asked |= values
        found = {
            key(job["_id"]): to_id(job["account_id"]).text
            for job in self._jobs.find(
                {"_id": {"$in": list(asked.values())}, "account_id": {"$ne": None}},
                {"account_id": 1},
                batch_size=len(asked) + 1,
            )
        }
        owners = {}
        for name, value in values.items():
            others = (key(one) for one in candidates(to_id(value).text))
            owner = next((found[one] for one in (name, *others) if one in found), None)
            if owner is not None:
                owners[name] = owner
        return owners

    def not_plain(self, texts: Sequence[str], horizon: datetime) -> list[str]:
        """Return those of these job ids whose jobs and rows are not plainly right, in this order.

        Rows dated after `horizon` are dated in the future.
        """
        values = [value for text in texts for value in candidates(text)]
        stories = {text: JobDocuments(text) for text in texts}
        with self._mongo.reading("read jobs and rows"):
            for job in self._jobs.find({"_id": {"$in": values}}, JOB_FIELDS, batch_size=BATCH):
                stories[to_id(job["_id"]).text].jobs.append(job)
            rows = self._rows.find({"job_id": {"$in": values}}, ROW_FIELDS, batch_size=BATCH)
            for row in rows:
                if (story := stories.get(to_id(row["job_id"]).text)) is not None:
                    story.rows.append(row)
        return [text for text, story in stories.items() if not is_plain(story, horizon)]

    # every account's totals

    def sums_of_all(self, window: Mapping[str, Any]) -> Iterator[AccountSum]:
        """Per account of the rows that name one: how many, and their exact sum or None.

        The index answers alone. An account comes once for each type of its id, and once more for
        rows whose amount is no number.
        """
        pipeline = [
            {"$match": {"account_id": {"$ne": None}, **window}},
            {"$group": {"_id": {"account": "$account_id", "number": IS_NUMBER}, **SUM}},
        ]
        with self._mongo.reading("sum the ledger"):
            for one in self._rows.aggregate(pipeline, allowDiskUse=True):
                yield AccountSum(to_id(one["_id"]["account"]).text, one["rows"], exact_sum(one))

    def joined_sums(self, window: Mapping[str, Any]) -> Iterator[AccountSum]:
        """Yield the same of the rows that name no account, by the account of their job.

        The server puts rows and jobs together, both halves of the jobs at once. What finds no job
        of its id and type that way is asked for again: the id may stand under another type.
        """
        unowned: list[Document] = []
        with self._mongo.reading("sum the rows without account"):
            for one in self._sums_by_job(window):
                if (account := one["_id"].get("account")) is not None:
                    yield AccountSum(to_id(account).text, one["rows"], exact_sum(one))
                    continue
                unowned.append(one)
                if len(unowned) == ROWS_TOGETHER:
                    yield from self._owned(unowned)
                    unowned.clear()
            yield from self._owned(unowned)

    def _sums_by_job(self, window: Mapping[str, Any]) -> Iterator[Document]:
        """Sums of rows without account: of an account, or of a job whose account is not known yet."""
        jobs = self._jobs.estimated_document_count()
        many = self._rows.estimated_document_count() // MOST
        rows = self._rows.count_documents({"account_id": None}, limit=max(jobs // FEW, many) + 1)
        pipelines = [by_job(not_numbers(window))]
        if rows * FEW <= jobs:
            pipelines.append(by_job(numbers(window)))
        else:
            pipelines += [self._union(window, half) for half in self._halves(jobs)]
        # Where most rows are wanted, reading them as they lie is quicker than through an index.
        order: dict[str, Any] = {"hint": {"$natural": 1}} if rows > many else {}

        def opened(pipeline: list[Document]) -> CommandCursor[Document]:
            return self._rows.aggregate(pipeline, allowDiskUse=True, **order)

        # A group is worked out before its first batch comes: it is the opening that takes long.
        with ThreadPoolExecutor(max_workers=len(pipelines)) as together:
            cursors = list(together.map(opened, pipelines))
        return chain.from_iterable(cursors)

    def _halves(self, jobs: int) -> list[Document]:
        """Two filters that share the job ids out evenly; one when there is no job."""
        middle = self._jobs.find({}, {"_id": 1}).sort("_id", 1).skip(jobs // 2).limit(1)
        for job in middle:
            lower = {"$lt": job["_id"]}
            return [lower, {"$not": lower}]
        return [{"$exists": True}, {"$exists": False}]

    def _union(self, window: Mapping[str, Any], half: Document) -> list[Document]:
        jobs = [{"$match": {"_id": half}}, {"$project": {"account": "$account_id"}}]
        return [
            {"$match": {"job_id": half, **numbers(window)}},
            {"$project": {"_id": "$job_id", "amount": 1, "row": {"$literal": 1}}},
            {"$unionWith": {"coll": self._jobs.name, "pipeline": jobs}},
            {"$group": {"_id": "$_id", "account": {"$max": "$account"}, **SUM_OF_ROWS}},
            {"$match": {"rows": {"$gt": 0}}},
            {"$group": {"_id": {"account": "$account", "job": JOB_WITHOUT_ACCOUNT}, **SUM_OF_SUMS}},
        ]

    def _owned(self, sums: Sequence[Document]) -> Iterator[AccountSum]:
        owners = self.owners([one["_id"].get("job") for one in sums])
        for one in sums:
            account = owners.get(key(one["_id"].get("job")))
            yield AccountSum(account, one["rows"], exact_sum(one))

    def unowned_entries(self, window: Mapping[str, Any]) -> Iterator[Entry]:
        """Yield the rows of no account: neither they nor their job name one."""
        query = {"account_id": None, **window}
        with self._mongo.reading("read the rows without account"):
            rows = self._rows.find(query, ENTRY_FIELDS, batch_size=BATCH)
            for some in chunks(rows, ROWS_TOGETHER):
                owners = self.owners([row.get("job_id") for row in some])
                yield from (to_entry(row) for row in some if key(row.get("job_id")) not in owners)

    # whole rows, to be exported

    def exported(self, account: str | None, window: Mapping[str, Any]) -> Iterator[LedgerRow]:
        """Whole rows, of one account or of all, by time; each with its account if it has one.

        The order is the same every time: by created_at, then by what the index holds besides.
        """
        if account is not None:
            rows = self._both(account, window, EXPORT_FIELDS)
            return (to_ledger_row(row, account) for row in rows)
        return self._exported_of_all(window)

    def _exported_of_all(self, window: Mapping[str, Any]) -> Iterator[LedgerRow]:
        order = [(name, 1) for name in ("created_at", "account_id", "type", "amount")]
        with self._mongo.reading("read the ledger"):
            rows = self._rows.find(
                dict(window), EXPORT_FIELDS, sort=order, batch_size=BATCH, allow_disk_use=True
            )
            for some in chunks(rows, ROWS_TOGETHER):
                nameless = [row.get("job_id") for row in some if row.get("account_id") is None]
                owners = self.owners(nameless) if nameless else {}
                for row in some:
                    yield to_ledger_row(row, owners.get(key(row.get("job_id"))) if owners else None)

    def sample(self, size: int) -> Iterator[Entry]:
        """Yield up to `size` rows, whichever come first."""
        with self._mongo.reading("read some rows"):
            yield from map(to_entry, self._rows.find({}, ENTRY_FIELDS).limit(size))

    def any_undated(self) -> bool:
        """Return whether any row of the ledger lacks a date: they are at the index's ends."""
        with self._mongo.reading("read the ledger"):
            for direction in (1, -1):
                edge = self._rows.find_one({}, {"created_at": 1}, sort=[("created_at", direction)])
                if edge is not None and not is_date(edge.get("created_at")):
                    return True
        return False

    def any_after(self, moment: datetime) -> bool:
        """Return whether any row is dated after this moment."""
        with self._mongo.reading("read the ledger"):
            return self._rows.find_one({"created_at": {"$gt": moment}}, {"_id": 1}) is not None


IS_NUMBER: Document = {"$isNumber": "$amount"}
SUM: Document = {"sum": {"$sum": "$amount"}, "rows": {"$sum": 1}}
SUM_OF_ROWS: Document = {"sum": {"$sum": "$amount"}, "rows": {"$sum": "$row"}}
SUM_OF_SUMS: Document = {"sum": {"$sum": "$sum"}, "rows": {"$sum": "$rows"}}
JOB_WITHOUT_ACCOUNT: Document = {"$cond": [{"$gt": ["$account", None]}, None, "$_id"]}


def numbers(window: Mapping[str, Any]) -> Document:
    """Return the filter of rows that name no account and hold a number."""
    return {"account_id": None, "amount": {"$type": "number"}, **window}


def not_numbers(window: Mapping[str, Any]) -> Document:
    """Return the filter of rows that name no account and hold none."""
    return {"account_id": None, "amount": {"$not": {"$type": "number"}}, **window}


def by_job(query: Document) -> list[Document]:
    """Return the sums of these rows by job; a sum of what is no number is not exact."""
    return [
        {"$match": query},
        {"$group": {"_id": {"job": "$job_id", "number": IS_NUMBER}, **SUM}},
    ]


def exact_sum(group: Mapping[str, Any]) -> int | None:
    """Return the server's sum of a group, where it is exact and leaves no row out; else None."""
    is_exact = isinstance(group["sum"], int) and group["_id"].get("number", True)
    return int(group["sum"]) if is_exact else None


def is_date(value: object) -> bool:
    """Return whether a stored value is a BSON date, also one of a year that Python has not."""
    return isinstance(value, datetime | DatetimeMS)


def key(value: object) -> tuple[str, Any]:
    """Return what tells stored ids apart, types included; 42 and 42.0 are one to MongoDB."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = type(value).__name__
        return kind, value if isinstance(value, str | bytes | ObjectId) else repr(value)
    return "number", value


def time_and_id(row: Mapping[str, Any]) -> tuple[int, int, Any]:
    """Sort key of a row in MongoDB's own order of `created_at` and `_id`, as far as it matters."""
    moment = row.get("created_at")
    instant = int(DatetimeMS(moment)) if isinstance(moment, datetime) else 0
    if isinstance(moment, DatetimeMS):
        instant = int(moment)
    identity = row["_id"]
    if isinstance(identity, int | float):
        return instant, 0, identity
    if isinstance(identity, str):
        return instant, 1, identity
    return instant, 2, str(identity)
