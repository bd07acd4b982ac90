"""The daily usage summaries: computed and written by the server, day by day, out of the ledger."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice

from bson import Int64
from pymongo import UpdateOne
from pymongo import errors as mongo_errors
from pymongo.client_session import ClientSession
from pymongo.read_concern import ReadConcern

from ledgerctl.domain.ids import text_of
from ledgerctl.domain.summary import DayFigures, DaySpan, Difference, Figures
from ledgerctl.errors import InvariantBroken
from ledgerctl.stores.codec import (
    Document,
    optional_id,
    to_amount,
    to_id,
    to_number,
    to_text,
    to_time,
)
from ledgerctl.stores.daily import (
    FIGURES,
    Grouping,
    as_summary,
    compared,
    figures,
    is_earlier,
    merge_into,
    outer,
    overwrite_when,
    values_of,
)
from ledgerctl.stores.mongo import Mongo

BEING_CREATED = 51183  # "cannot find index": the collection and its _id index are not there yet
MERGE_TRIES = 4
UUIDS_TOGETHER = 1_000  # summaries that one write holds
MERGE_PAUSE_S = 0.05
OUT_OF_MEMORY = {146, 10334, 17419, 4568300}  # a set of job ids too large: group on disk instead
ZEROS: Document = {name: Int64(0) for name in FIGURES}
# One document whatever the collection holds. `$documents` would want a right on the whole database.
ONE_NOW: list[Document] = [
    {"$limit": 1},
    {"$facet": {"none": [{"$limit": 1}]}},
    {"$project": {"now": "$$NOW"}},
]


@dataclass(frozen=True, slots=True)
class Rule:
    """Describe how summaries are written: zone, `as_of`, whose (None: all), and not whose."""

    timezone: str
    as_of: datetime
    accounts: Sequence[str] | None = None
    refused: Sequence[str] = ()

    @property
    def zeros(self) -> Document:
        """Return the fields of a day without rows."""
        return {**ZEROS, "timezone": self.timezone, "as_of": self.as_of}


@dataclass(frozen=True, slots=True)
class Written:
    """Count what the summaries of one `as_of` hold."""

    accounts: frozenset[str] = frozenset()
    days: int = 0
    rows: int = 0


class Summaries:
    """Read and write the summaries; foreign fields of a summary stay.

    Source: contract, section 2, usage_daily.
    """

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._documents = mongo.collection("usage_daily")
        self._ledger = mongo.collection("ledger")
        self._jobs = mongo.collection("jobs")

    # the mark and the sessions

    @contextmanager
    def session(self, after: ClientSession | None = None) -> Iterator[ClientSession]:
        """Return a causally consistent session that sees all that `after` has seen."""
        with self._mongo.reading("start a session"):
            opened = self._mongo.client.start_session(causal_consistency=True)
        with opened:
            if after is not None and after.cluster_time is not None:
                opened.advance_cluster_time(after.cluster_time)
            if after is not None and after.operation_time is not None:
                opened.advance_operation_time(after.operation_time)
            yield opened

    def now(self, session: ClientSession) -> datetime:
        """Return the server's `$$NOW`; what the session reads next is no older than this."""
        # With local reads the session's time is that of the last write applied, majority or not.
        asked = self._mongo.collection("usage_daily")
        if not session.in_transaction:
            asked = asked.with_options(read_concern=ReadConcern("local"))
        with self._mongo.reading("read the server's time", outer(session)):
            found = asked.aggregate(ONE_NOW, session=session)
            moment: datetime = next(iter(found))["now"]
        return moment

    # writing

    def merge_day(self, span: DaySpan, rule: Rule, shape: Grouping, session: ClientSession) -> None:
        """Overwrite the summaries of a day, where the stored `as_of` is absent or earlier."""
        with self._mongo.writing(f"write the summaries of {span.day}"):
            if shape.uuids:
                self._overwrite_uuids(span, rule, shape, session)
            for _ in range(MERGE_TRIES):
                try:
                    return self._merge(span, rule, shape, session)
                except mongo_errors.OperationFailure as error:
                    if error.code in OUT_OF_MEMORY and not shape.by_text:
                        shape = replace(shape, by_text=True)
                    elif error.code == BEING_CREATED:  # by the first rebuild's other day
                        time.sleep(MERGE_PAUSE_S)
                    else:
                        raise
            return self._merge(span, rule, shape, session)

    def _merge(self, span: DaySpan, rule: Rule, shape: Grouping, session: ClientSession) -> None:
        pipeline = [
            *self._figures(span, shape, rule.accounts),
            {"$match": {"_id": {"$nin": list(rule.refused), "$type": "string"}}},
            as_summary(span.day, rule.timezone, rule.as_of),
            merge_into(self._documents.name),
        ]
        merge = partial(self._ledger.aggregate, pipeline, session=session, allowDiskUse=True)
        self._mongo.repeated(merge)  # by its `as_of` a second one writes nothing anew

    def _overwrite_uuids(
        self, span: DaySpan, rule: Rule, shape: Grouping, session: ClientSession
    ) -> None:
        """Overwrite the summaries of accounts under UUIDs, whose text is made on this side.

        One that other rows hold as text is read again under both.
        """
        stages = [
            *self._figures(span, shape, rule.accounts),
            {"$match": {"_id": {"$type": "binData"}}},
            as_summary(span.day, rule.timezone),
        ]
        found = self._ledger.aggregate(stages, session=session, allowDiskUse=True)
        while some := list(islice(found, UUIDS_TOGETHER)):
            texts = {to_id(one["_id"]).text for one in some} - set(rule.refused)
            in_text = {"account_id": {"$in": list(texts)}}
            if self._ledger.find_one(in_text, {"_id": 1}, session=session) is None:
                documents = spelled(some, span.day)
            else:
                documents = self.day_figures(
                    span, list(texts), timezone=rule.timezone, shape=shape, session=session
                )
            wanted = [documents[f"{text}:{span.day}"] for text in sorted(texts)]
            self.overwrite(wanted, rule, session)

    def _figures(
        self, span: DaySpan, shape: Grouping, accounts: Sequence[str] | None
    ) -> list[Document]:
        return figures(span, shape, self._ledger.name, self._jobs.name, accounts)

    def clear(self, days: Document, rule: Rule, session: ClientSession) -> int:
        """Zero the summaries of days that have figures and were not written at this `as_of`.

        `days` is a condition on `day`. Returns how many changed.
        """
        query: Document = {
            "day": days,
            "account_id": {"$nin": values_of(rule.refused)},
            "$expr": is_earlier({"$literal": rule.as_of}),
            "$nor": [dict.fromkeys(FIGURES, 0) | {"timezone": rule.timezone}],
        }
        if rule.accounts is not None:
            query["account_id"]["$in"] = values_of(rule.accounts)
        with self._mongo.writing("clear the summaries of days without rows"):
            changed = self._mongo.repeated(
                lambda: self._documents.update_many(query, {"$set": rule.zeros}, session=session)
            )
        return changed.modified_count

    def written_at(self, days: Document, as_of: datetime, session: ClientSession) -> Written:
        """Return what a run wrote: the summaries of this `as_of` that have rows."""
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
        shape: Grouping,
        session: ClientSession,
    ) -> dict[str, Document]:
        """Return the documents, without `as_of`, that the ledger makes of a day, by `_id`."""
        pipeline = [*self._figures(span, shape, accounts), as_summary(span.day, timezone)]
        with self._mongo.reading(f"sum the rows of {span.day}", outer(session)):
            found = self._ledger.aggregate(pipeline, session=session, allowDiskUse=True)
            return spelled(found, span.day)

    def overwrite(self, documents: Iterable[Document], rule: Rule, session: ClientSession) -> int:
        """Write whole summaries: in every case inside a transaction, else only over earlier ones."""
        writes = [
            UpdateOne(
                {"_id": one["_id"]},
                [self._over(one | {"as_of": rule.as_of}, rule, session)],
                upsert=True,
            )
            for one in documents
        ]
        return self._write("write summaries", writes, session)

    def zero(self, ids: Iterable[str], rule: Rule, session: ClientSession) -> int:
        """Zero the summaries of these ids that stand there, by the same rule; none is made."""
        writes = [UpdateOne({"_id": one}, [self._over(rule.zeros, rule, session)]) for one in ids]
        return self._write("clear summaries", writes, session)

    def _over(self, fields: Document, rule: Rule, session: ClientSession) -> Document:
        always = {"$literal": True}
        condition = always if session.in_transaction else is_earlier(rule.as_of)
        return overwrite_when(condition, {"$literal": fields})

    def _write(self, action: str, writes: list[UpdateOne], session: ClientSession | None) -> int:
        if not writes:
            return 0
        with self._mongo.writing(action, outer(session)):
            done = self._documents.bulk_write(writes, ordered=False, session=session)
        return done.modified_count + done.upserted_count

    # comparing and showing

    def compare(
        self,
        span: DaySpan,
        *,
        timezone: str,
        shape: Grouping,
        accounts: Sequence[str] | None,
        names: Sequence[str],
    ) -> tuple[int, list[Difference]]:
        """Return how many (account, day) pairs a day has, and those whose `names` differ.

        Ledger and summaries are read in one snapshot where the server has transactions.
        """
        pipeline = [
            *self._figures(span, shape, accounts),
            as_summary(span.day, timezone),
            *compared(self._documents.name, span.day, timezone, accounts, names),
        ]
        concern = ReadConcern("snapshot" if self._mongo.transactions else "majority")
        pairs, differing = 0, []
        with self._mongo.reading(f"compare the summaries of {span.day}"):
            ledger = self._ledger.with_options(read_concern=concern)
            for one in ledger.aggregate(pipeline, allowDiskUse=True):
                pairs += one["pairs"]
                if one["_id"] is not None:
                    differing.append(difference_of(one, span.day))
        parts = Counter(one.account_id for one in differing)
        if shared := [account for account, number in parts.items() if number > 1]:
            differing = [one for one in differing if one.account_id not in shared]
            differing += self._compare_shared(span, timezone, shape, shared, names)
        return pairs, differing

    def _compare_shared(
        self,
        span: DaySpan,
        timezone: str,
        shape: Grouping,
        accounts: Sequence[str],
        names: Sequence[str],
    ) -> Iterator[Difference]:
        """Compare the accounts that rows or summaries hold under a UUID and as its text."""
        with self.session() as session:
            ledger = self.day_figures(
                span, accounts, timezone=timezone, shape=shape, session=session
            )
            stored = self._documents.find({"_id": {"$in": list(ledger)}}, session=session)
            summaries = {one["_id"]: one for one in stored}
        for name, document in ledger.items():
            pair = {"_id": name, "ledger": document, "summary": summaries.get(name)}
            one = difference_of(pair, span.day)
            differs = any(getattr(one.ledger, f) != getattr(one.summary, f, None) for f in names)
            if differs or one.timezone != timezone:
                yield one

    def of_account(self, account: str, from_day: str, to_day: str) -> list[DayFigures]:
        """Return the summaries of an account, by day; found by their `_id`."""
        query = {"_id": {"$gte": f"{account}:{from_day}", "$lte": f"{account}:{to_day}"}}
        with self._mongo.reading("read the account's summaries"):
            found = self._documents.find(query).sort("_id", 1)
            return [
                DayFigures(
                    one["day"],
                    figures_of(one),
                    to_text(one.get("timezone")),
                    to_time(one.get("as_of")),
                )
                for one in found
                if one["_id"] == f"{account}:{one.get('day')}"
            ]

    def knows(self, account: str) -> bool:
        """Return whether any summary of this account is stored."""
        query = {"_id": {"$gte": f"{account}:", "$lt": f"{account};"}}  # `;` comes after `:`
        with self._mongo.reading("read the account's summaries"):
            return self._documents.find_one(query, {"_id": 1}) is not None

    def days_with_summaries(
        self, from_day: str, to_day: str, accounts: Sequence[str] | None
    ) -> set[str]:
        """Return the days of a range that have any summary."""
        query: Document = {"day": {"$gte": from_day, "$lte": to_day}}
        if accounts is not None:
            query["account_id"] = {"$in": values_of(accounts)}
        with self._mongo.reading("read the summaries' days"):
            return {day for day in self._documents.distinct("day", query) if isinstance(day, str)}


def spelled(documents: Iterable[Document], day: str) -> dict[str, Document]:
    """Key the summaries of a day by their `_id` in text; those of one text are one, under a UUID."""
    found: dict[str, Document] = {}
    for one in documents:
        if isinstance(one["_id"], str):
            name, uuid = one["_id"], {}
        else:
            name, uuid = f"{to_id(one['_id']).text}:{day}", {"account_id": one["account_id"]}
        if (other := found.get(name)) is not None:
            added = {field: to_number(exact(one, field) + exact(other, field)) for field in FIGURES}
            found[name] = other | added | uuid
        else:
            found[name] = one | {"_id": name}
    return found


def exact(document: Document, field: str) -> int:
    """Return a figure that the server summed, as an exact number."""
    amount = to_amount(document[field])
    if not isinstance(amount, int):
        raise InvariantBroken(f"{field} of {document['_id']} is no whole number")
    return amount


def difference_of(group: Document, day: str) -> Difference:
    """Read one pair of the comparison."""
    ledger, summary = group.get("ledger"), group.get("summary")
    stated = (ledger or summary or {}).get("account_id")
    return Difference(
        account_id=text_of(optional_id(stated)) or str(group["_id"]).rsplit(":", 1)[0],
        day=day,
        summary=None if summary is None else figures_of(summary),
        ledger=None if ledger is None else figures_of(ledger),
        timezone=None if summary is None else to_text(summary.get("timezone")),
        as_of=None if summary is None else to_time(summary.get("as_of")),
    )


def figures_of(document: Document) -> Figures:
    """Return the figures a document holds."""
    found = {name: to_amount(document.get(name)) for name in FIGURES}
    return Figures(
        **{name: value if isinstance(value, int) else None for name, value in found.items()}
    )
