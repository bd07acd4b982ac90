"""The ledger: rows are appended and read, never changed or deleted."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, ConnectionFailure, ServerSelectionTimeoutError

from ledgerctl.domain.ids import Id
from ledgerctl.domain.rows import NewRow, Row, RowType, row_order
from ledgerctl.stores.codec import candidates, from_row, to_id, to_row
from ledgerctl.stores.documents import Document
from ledgerctl.stores.mongo import Mongo, is_duplicate

STEP_TYPES = (RowType.CHARGE, RowType.REFUND, RowType.RECLAIM)


class RowTaken(Exception):
    """A row of this identity stands already; the caller compares it with what it meant to write."""


class Ledger:
    """The append-only rows; a balance is their sum and nothing else."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._rows = mongo.collection("ledger")
        self._jobs = mongo.collection("jobs")  # asked for the account of rows that lack it

    # appending

    def append(self, rows: Sequence[NewRow], session: ClientSession | None = None) -> None:
        """Append rows at most once: their identities are settled before they are sent.

        Raises RowTaken when a row of such an `_id`, or of such a job and type, stands already;
        several rows want a transaction, which then ends as a whole.
        """
        documents = [from_row(row) for row in rows]
        with self._mongo.writing(f"append row {rows[0].id}", session):
            try:
                self._insert(documents, session)
            except BulkWriteError as error:
                if not is_duplicate(error):
                    raise
                raise RowTaken(rows[0].id) from None

    def _insert(self, documents: Sequence[Document], session: ClientSession | None) -> None:
        try:
            self._rows.insert_many(documents, session=session)
        except ServerSelectionTimeoutError:
            raise
        except ConnectionFailure:
            if session is not None:  # the transaction starts again as a whole
                raise
            # The reply was lost. Its identity makes sending it again harmless, and telling.
            self._rows.insert_many(documents)

    def step_index_is_unique(self) -> bool:
        """Whether the server itself makes a second refund or reclaim row of a job impossible."""
        with self._mongo.reading("read the ledger's indexes"):
            return any(guards_steps(index) for index in self._rows.index_information().values())

    # reading the rows of one thing

    def get(self, row_id: str) -> Row | None:
        """The row of this id, whatever type its id has."""
        with self._mongo.reading("read a ledger row"):
            document = self._rows.find_one({"_id": {"$in": candidates(row_id)}})
        return None if document is None else to_row(document)

    def among(self, row_ids: Sequence[str]) -> list[Row]:
        """The rows of these ids, whatever type the ids have."""
        values = [value for row_id in row_ids for value in candidates(row_id)]
        with self._mongo.reading("read ledger rows"):
            return [to_row(one) for one in self._rows.find({"_id": {"$in": values}})]

    def of_job(self, job_id: str, session: ClientSession | None = None) -> list[Row]:
        """The rows of a job, whichever type they hold its id under, in order."""
        with self._mongo.reading("read the job's rows", session):
            found = self._rows.find({"job_id": {"$in": candidates(job_id)}}, session=session)
            return sorted((to_row(document) for document in found), key=row_order)

    def of_jobs(self, texts: Sequence[str], session: ClientSession | None = None) -> list[Row]:
        """The rows of several jobs, whichever type they hold the ids under, in order."""
        values = [value for text in texts for value in candidates(text)]
        with self._mongo.reading("read the jobs' rows", session):
            found = self._rows.find({"job_id": {"$in": values}}, session=session)
            return sorted((to_row(document) for document in found), key=row_order)

    def taken_by(self, row: NewRow) -> Row | None:
        """The stored row that stands where this one was to go."""
        found = self.get(row.id)
        if found is not None or row.job is None:
            return found
        rows = [one for one in self.of_job(row.job.text) if one.type == row.type]
        return rows[0] if rows else None

    # reading an account

    def account_id(self, account: str) -> Id | None:
        """The id, in its stored type, of an account that has rows; None when it has none."""
        with self._mongo.reading("read the account's rows"):
            found = self._rows.find_one(
                {"account_id": {"$in": candidates(account)}}, {"account_id": 1, "_id": 0}
            )
        return None if found is None else to_id(found["account_id"])

    def spelling_of(self, account: str) -> str:
        """The account as its documents spell it: an ObjectId may have been given in capitals."""
        spelled = candidates(account)
        if account == account.lower() or len(spelled) == 1:
            return account
        found = self.account_id(account)
        return (to_id(spelled[-1]) if found is None else found).text

    def by_job(self, *, account: str | None = None, since: datetime | None = None) -> Iterator[Row]:
        """The rows that name an account, or were dated or written since a time, in order of jobs.

        Rows that name no job come first.
        """
        query: Document = {}
        if account is not None:
            query["account_id"] = {"$in": candidates(account)}
        if since is not None:
            written = {"_id": {"$gte": ObjectId.from_datetime(since), "$type": "objectId"}}
            lately = [{"created_at": {"$gte": since}}, {"recorded_at": {"$gte": since}}, written]
            query["$or"] = lately
        with self._mongo.reading("read the ledger by job"):
            found = self._rows.find(query, batch_size=1000, allow_disk_use=True)
            for document in found.sort("job_id", 1):
                yield to_row(document)


def guards_steps(index: Mapping[str, Any]) -> bool:
    """Whether an index makes a second row of a job's step impossible; a wider one does too."""
    keys = [key for key, _ in index["key"]]
    if not index.get("unique") or sorted(keys) != ["job_id", "type"]:
        return False
    partial = index.get("partialFilterExpression")
    return not index.get("sparse") and (partial is None or covers_steps(partial))


def covers_steps(partial: Mapping[str, Any]) -> bool:
    """Whether a partial filter lets in every step row of every id type that jobs have."""
    if set(partial) - {"job_id", "type"}:
        return False
    types = partial.get("type", {}).get("$in")
    kinds = partial.get("job_id", {})
    known = kinds.get("$exists") is True or {"string", "objectId", "int", "long"} <= set(
        kinds.get("$type", []) if isinstance(kinds.get("$type", []), list) else []
    )
    return (not kinds or known) and (
        types is None or set(types) >= {str(one) for one in STEP_TYPES}
    )


def window_filter(
    *,
    since: datetime | None = None,
    before: datetime | None = None,
    at: datetime | None = None,
    known_at: datetime | None = None,
) -> Document:
    """The filter of a time window: `since` and `at` are inclusive, `before` is exclusive.

    `known_at` goes by when a row was written: recorded_at, else its ObjectId's time, else
    created_at. Source: contract, section 2, ledger.
    """
    bounds: Document = {}
    if since is not None:
        bounds["$gte"] = since
    if before is not None:
        bounds["$lt"] = before
    if at is not None:
        bounds["$lte"] = at
    query: Document = {"created_at": bounds} if bounds else {}
    if known_at is not None:
        query["$or"] = known_by(known_at)
    return query


def known_by(moment: datetime) -> list[Document]:
    """The three ways in which a row can have been known at this moment."""
    undated = {"$not": {"$type": "date"}}
    next_second = ObjectId.from_datetime(moment.replace(microsecond=0) + timedelta(seconds=1))
    return [
        {"recorded_at": {"$lte": moment, "$type": "date"}},
        {"recorded_at": undated, "_id": {"$lt": next_second, "$type": "objectId"}},
        {
            "recorded_at": undated,
            "_id": {"$not": {"$type": "objectId"}},
            "created_at": {"$lte": moment},
        },
    ]
