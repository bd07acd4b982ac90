"""The ledger: rows are appended and read, never changed or deleted."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any

from bson import ObjectId
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, ConnectionFailure, ServerSelectionTimeoutError

from ledgerctl.domain.ids import Id, chunks
from ledgerctl.domain.rows import NewRow, Row, same_row
from ledgerctl.errors import InvariantBroken, NotPermitted, RefusedByServer
from ledgerctl.stores.codec import Document, candidates, from_row, rows_in_order, to_id, to_row
from ledgerctl.stores.indexes import LEDGER_UNIQUE, STEP_TYPES, Indexes, flaw
from ledgerctl.stores.mongo import Mongo, is_duplicate
from ledgerctl.stores.outbox import Outbox

NOT_TEXT = ["objectId", "binData", "number"]
ACCOUNTS_AT_ONCE = 200
RULE_HINT = "ask whoever set this rule on the server"
# One document whatever the collection holds.
ONE_DOCUMENT: list[Document] = [{"$limit": 1}, {"$facet": {"none": [{"$limit": 1}]}}]
ROUNDS_MAX = 10  # a stored row that keeps vanishing after a duplicate key is a bug


class RowTaken(Exception):
    """Signal inside a transaction that the identity of a row is used; `resolve` says by what."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Report that this operation wrote the row, even if the reply was lost."""


@dataclass(frozen=True, slots=True)
class Already:
    """Report that a row with the same content was stored before."""

    row: Row


@dataclass(frozen=True, slots=True)
class Conflict:
    """Report that the row's identity is used by a different row."""

    row: Row


AppendOutcome = Appended | Already | Conflict


class Ledger:
    """Append and read ledger rows, each with its message; a balance is the sum of the rows."""

    def __init__(self, mongo: Mongo, outbox: Outbox) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self._rows = mongo.collection("ledger")
        self._jobs = mongo.collection("jobs")  # asked for the account of rows that lack it

    # appending

    def append_once(self, row: NewRow) -> AppendOutcome:
        """Append one row with its message at most once; a stored row of its identity is compared.

        Raises JobHeld, StoreUnavailable, OutcomeUnknown, NotPermitted.
        """
        for _ in range(ROUNDS_MAX):
            try:
                self._mongo.together(f"append row {row.id}", partial(self.append, [row]))
            except RowTaken:
                outcome = self.resolve(row)
                if outcome is not None:
                    return outcome
            else:
                return Appended()
        raise InvariantBroken(f"row {row.id} kept appearing and vanishing")

    def resolve(self, row: NewRow) -> AppendOutcome | None:
        """Tell what RowTaken meant; None when the stored row has vanished, so try again.

        A row of the same operation is this operation's own write whose reply was lost.
        """
        found = self.compare(row)
        if isinstance(found, Already) and found.row.operation_id == row.operation_id:
            self._outbox.add([found.row])
            return Appended()
        return found

    def compare(self, row: NewRow) -> Already | Conflict | None:
        """Compare a wanted row with the stored row of its identity; change nothing.

        The identity is the `_id`, and for the rows of a step also the job and type.
        """
        identity: list[Document] = [{"_id": {"$in": candidates(row.id)}}]
        if row.job is not None and row.type.value in STEP_TYPES:
            job = {"$in": candidates(row.job.text)}
            identity.append({"job_id": job, "type": row.type.value})
        with self._mongo.reading("read the stored row"):
            found = [to_row(one) for one in self._rows.find({"$or": identity})]
        if not found:
            stored = self._kept_out_by(row)
            return None if stored is None else Conflict(stored)
        stored = next((one for one in found if one.id.text == row.id), found[0])
        return Already(stored) if same_row(stored, row) else Conflict(stored)

    def require_accepted(self, row: NewRow) -> None:
        """Raise RefusedByServer where the collection would refuse this row; nothing is written.

        The server itself holds the row against its validator. Where its rules may not be read, the
        insert alone tells.
        """
        kind, validator = self._rule
        if kind in {"view", "timeseries"}:
            raise RefusedByServer(
                f"cannot append row {row.id}: {self._rows.name} is a {kind}", hint=RULE_HINT
            )
        if not validator:
            return
        document: Document = {"$replaceWith": {"$literal": from_row(row)}}
        with self._mongo.reading("hold the row against the validator"):
            stages = [*ONE_DOCUMENT, document, {"$match": validator}]
            accepted = list(self._jobs.aggregate(stages))
        if not accepted:
            raise RefusedByServer(
                f"cannot append row {row.id}: the validator of {self._rows.name} refuses it",
                hint=RULE_HINT,
            )

    @cached_property
    def _rule(self) -> tuple[str, Document]:
        """Return the collection's kind, and the validator that refuses what it does not accept."""
        with suppress(NotPermitted), self._mongo.reading("read the ledger's rules"):
            found = list(self._mongo.database.list_collections(filter={"name": self._rows.name}))
            kind = found[0].get("type", "") if found else ""
            options = found[0].get("options", {}) if found else {}
            enforced = options.get("validationAction", "error") == "error"
            enforced = enforced and options.get("validationLevel", "strict") != "off"
            return kind, options.get("validator", {}) if enforced else {}
        return "", {}

    def _kept_out_by(self, row: NewRow) -> Row | None:
        """Find the row that a unique index not of ours, as one with a collation, holds equal."""
        document = from_row(row)
        for index in self._other_unique_indexes:
            equal = {name: document.get(name) for name in index["key"]}
            with self._mongo.reading("read the row in the way"):
                found = self._rows.find_one(equal, collation=index.get("collation"))
            if found is not None:
                return to_row(found)
        return None

    @cached_property
    def _other_unique_indexes(self) -> list[Mapping[str, Any]]:
        present = Indexes(self._mongo).present("ledger")
        return [one for one in present if one.get("unique") and flaw(one, LEDGER_UNIQUE)]

    def complete_message(self, row: Row) -> None:
        """Put the message of a stored row if a crash lost it; transactions leave none to put."""
        if row.operation_id and not self._mongo.transactions:
            self._outbox.add([row])

    def append(self, rows: Sequence[NewRow], session: ClientSession | None = None) -> None:
        """Append rows with their messages; several rows need a transaction.

        Raises RowTaken when a row of such an `_id`, or of such a job and type, is stored; a
        transaction then ends as a whole.
        """
        documents = [from_row(row) for row in rows]
        with self._mongo.writing(f"append row {rows[0].id}", session):
            try:
                self._insert(documents, session)
            except BulkWriteError as error:
                if not is_duplicate(error):
                    raise
                raise RowTaken(rows[0].id) from None
        self._outbox.add(rows, session)

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

    # reading the rows of one thing

    def among(self, row_ids: Sequence[str]) -> list[Row]:
        """Return the rows of these ids, whatever type the ids have."""
        values = [value for row_id in row_ids for value in candidates(row_id)]
        with self._mongo.reading("read ledger rows"):
            return [to_row(one) for one in self._rows.find({"_id": {"$in": values}})]

    def of_job(self, job_id: str, session: ClientSession | None = None) -> list[Row]:
        """Return the rows of a job, whichever type they hold its id under, in order."""
        with self._mongo.reading("read the job's rows", session):
            found = self._rows.find({"job_id": {"$in": candidates(job_id)}}, session=session)
            return rows_in_order(found)

    def of_jobs(self, texts: Sequence[str], session: ClientSession | None = None) -> list[Row]:
        """Return the rows of several jobs, whichever type they hold the ids under, in order."""
        values = [value for text in texts for value in candidates(text)]
        with self._mongo.reading("read the jobs' rows", session):
            found = self._rows.find({"job_id": {"$in": values}}, session=session)
            return rows_in_order(found)

    # reading an account

    def account_id(self, account: str) -> Id | None:
        """Return the id, in its stored type, of an account that has rows; None when it has none."""
        with self._mongo.reading("read the account's rows"):
            found = self._rows.find_one(
                self._mongo.of_account("ledger", account), {"account_id": 1, "_id": 0}
            )
        return None if found is None else to_id(found["account_id"])

    def spelling_of(self, account: str) -> str:
        """Return the account as its documents spell it: an ObjectId may be given in capitals."""
        spelled = candidates(account)
        if account == account.lower() or len(spelled) == 1:
            return account
        found = self.account_id(account)
        return (to_id(spelled[-1]) if found is None else found).text

    def accounts_of_two_types(self, account: str | None = None) -> Iterator[list[Id]]:
        """Yield each account (or this one) that rows and jobs hold under several types of id."""
        with self._mongo.reading("list the accounts"):
            if account is not None:
                yield from self._several_types([account])
                return
            for rows in (self._rows, self._mongo.collection("jobs")):
                found = rows.aggregate(
                    [
                        {"$match": {"account_id": {"$type": NOT_TEXT}}},
                        {"$group": {"_id": "$account_id"}},
                    ],
                    allowDiskUse=True,
                )
                for some in chunks(found, ACCOUNTS_AT_ONCE):
                    yield from self._several_types([to_id(one["_id"]).text for one in some])

    def _several_types(self, accounts: list[str]) -> Iterator[list[Id]]:
        values = [value for account in accounts for value in candidates(account)]
        held: dict[str, set[Id]] = {account: set() for account in accounts}
        for rows in (self._rows, self._mongo.collection("jobs")):
            pipeline: list[Document] = [
                {"$match": {"account_id": {"$in": values}}},
                {"$group": {"_id": "$account_id"}},
            ]
            for one in rows.aggregate(pipeline):
                found = to_id(one["_id"])
                held.get(found.text, set()).add(found)
        yield from (sorted(ids, key=str) for ids in held.values() if len(ids) > 1)

    def by_job(self, *, account: str | None = None, since: datetime | None = None) -> Iterator[Row]:
        """Yield the rows of an account, or dated or written since a time, in order of jobs.

        Rows that name no job come first.
        """
        query: Document = {}
        if account is not None:
            query |= self._mongo.of_account("ledger", account)
        if since is not None:
            written = {"_id": {"$gte": ObjectId.from_datetime(since), "$type": "objectId"}}
            lately = [{"created_at": {"$gte": since}}, {"recorded_at": {"$gte": since}}, written]
            query["$or"] = lately
        with self._mongo.reading("read the ledger by job"):
            found = self._rows.find(query, batch_size=1000, allow_disk_use=True)
            for document in found.sort("job_id", 1):
                yield to_row(document)


def window_filter(
    *,
    since: datetime | None = None,
    before: datetime | None = None,
    at: datetime | None = None,
    known_at: datetime | None = None,
) -> Document:
    """Return the filter of a time window: `since` and `at` include, `before` excludes.

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
    """Return the three ways in which a row can have been known at this moment."""
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
