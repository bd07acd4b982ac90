"""The claims of messages: taken by insert or by a conditional update on the exact state read."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo import ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, DuplicateKeyError

from ledgerctl.domain.inbox import GROUP, Claim, ClaimRow, ClaimStatus, short_error
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.domain.rows import KEY, Message
from ledgerctl.stores.codec import (
    Document,
    candidates,
    measure,
    measuring,
    to_amount,
    to_id,
    to_text,
    to_time,
    without_collisions,
)
from ledgerctl.stores.mongo import Mongo, is_duplicate

ONE_REPLY = 1_000  # rows a reply, more than a batch of messages: no second round trip
DELAY_MAX = timedelta(days=36_500)  # a date of MongoDB holds it from any now on
# Group and key, which never change, are what a sharded inbox finds the row by.
FENCED = (GROUP, KEY, "status", "attempts", "claimed_until", "claimed_by")
NOT_A_DATE: Document = {"$not": {"$type": "date"}}
UNFINISHED: Document = {"$nin": [ClaimStatus.SUCCEEDED.value, ClaimStatus.DEAD.value]}
UNMARKED: Document = {"status": ClaimStatus.SUCCEEDED.value, "completed_at": NOT_A_DATE}


class Inbox:
    """Change inbox rows, every change fenced by what was read of the row.

    All times are the server's own (`$$NOW`), so that no client's clock decides who has a claim.
    """

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._claims = mongo.collection("inbox")
        self._marks = mongo.collection("leases")

    # claiming

    def insert(
        self, group: str, messages: Sequence[Message], *, token: str, term: timedelta
    ) -> None:
        """Insert a claim for each message that has no row yet; the others are left as they are.

        The unique index on (group, key) rejects a second row; whose the row is, reading tells.
        """
        requests = [self._insertion(group, message, token, term) for message in messages]
        with self._mongo.writing("claim messages"):
            try:
                self._claims.bulk_write(requests, ordered=False)
            except BulkWriteError as error:
                if not is_duplicate(error):
                    raise

    def _insertion(self, group: str, message: Message, token: str, term: timedelta) -> UpdateOne:
        # A new _id never matches, so this always inserts; an update can ask the server's clock.
        return UpdateOne(
            {"_id": ObjectId(), GROUP: {"$eq": group}, KEY: {"$eq": message.key}},
            [
                {
                    "$set": {
                        "tenant_id": {"$literal": message.tenant},
                        "status": ClaimStatus.CLAIMED.value,
                        "attempts": 0,
                        "deliveries": 1,
                        "first_seen_at": "$$NOW",
                        "last_seen_at": "$$NOW",
                        "claimed_until": later(term),
                        "claimed_by": {"$literal": token},
                        "not_before": None,
                        "completed_at": None,
                        "last_error": None,
                    }
                }
            ],
            upsert=True,
        )

    def take(
        self, standing: ClaimRow, *, token: str, term: timedelta, attempts: int
    ) -> ClaimRow | None:
        """Take a row over, only if it still stands exactly as it was read; None otherwise."""
        return self._change(
            standing,
            {
                "status": ClaimStatus.CLAIMED.value,
                "attempts": attempts,
                "deliveries": one_more("deliveries"),
                "last_seen_at": "$$NOW",
                "claimed_until": later(term),
                "claimed_by": {"$literal": token},
                "not_before": None,
            },
        )

    def bury(self, standing: ClaimRow, *, attempts: int, error: str | None) -> ClaimRow | None:
        """Mark a row dead, only if it still stands exactly as it was read; None otherwise."""
        change: Document = {
            "status": ClaimStatus.DEAD.value,
            "attempts": attempts,
            "claimed_until": None,
            "not_before": None,
        }
        if error is not None:
            change["last_error"] = {"$literal": short_error(error)}
        return self._change(standing, change)

    def retry(self, standing: ClaimRow) -> ClaimRow | None:
        """Make a row due now with no attempts counted, only if it stands as it was read."""
        return self._change(
            standing,
            {
                "status": ClaimStatus.FAILED.value,
                "attempts": 0,
                "deliveries": 0,
                "claimed_until": None,
                "completed_at": None,
                "completed_by": None,
                "not_before": "$$NOW",
                "retried_at": "$$NOW",
            },
        )

    def acknowledge(self, standing: ClaimRow) -> ClaimRow | None:
        """Complete a row as of its last delivery and forget the count, only if unchanged."""
        done = {"$max": [date_or("completed_at", None), SEEN_LAST]}
        return self._change(standing, {"completed_at": done, "deliveries": 0})

    def _change(self, standing: ClaimRow, fields: Document) -> ClaimRow | None:
        query = {"_id": standing.row} | {
            name: {"$eq": value} for name, value in standing.fence.items()
        }
        with self._mongo.writing("change a claim"):
            found = self._claims.find_one_and_update(
                query, [{"$set": fields}], return_document=ReturnDocument.AFTER
            )
        return None if found is None else to_standing(found, self._mongo.now())

    def seen_again(self, rows: Sequence[Any]) -> None:
        """Count one more delivery of these rows, as of now."""
        with self._mongo.writing("count deliveries"):
            self._claims.update_many(
                {"_id": {"$in": list(rows)}},
                [{"$set": {"deliveries": one_more("deliveries"), "last_seen_at": "$$NOW"}}],
            )

    def renew(self, claims: Sequence[Claim], term: timedelta) -> list[Any]:
        """Let claims stand for another term; returns the rows that are still these claims."""
        rows = [claim.row for claim in claims]
        held = {
            "_id": {"$in": rows},
            "status": ClaimStatus.CLAIMED.value,
            "claimed_by": claims[0].token,
        }
        # A claim that somebody shortened or ended is not ours to lengthen again.
        ours = held | {"claimed_until": {"$in": sorted({claim.until for claim in claims})}}
        with self._mongo.writing("renew claims"):
            self._claims.update_many(ours, [{"$set": {"claimed_until": later(term)}}])
            return list(self._claims.find(held, {"claimed_until": 1}))

    # marking

    def succeed(self, claims: Sequence[Claim], session: ClientSession | None = None) -> list[Any]:
        """Mark the messages of these claims, all of one token, processed; returns the rows marked.

        A finish is recorded unless the row was completed meanwhile or an operator put it back, so
        a late one is neither lost nor overwrites a newer one.
        """
        rows = [claim.row for claim in claims]
        token = claims[0].token
        open_rows = {
            "_id": {"$in": rows},
            "$and": [
                {
                    "$or": [
                        {"status": {"$ne": ClaimStatus.SUCCEEDED.value}},
                        {"completed_at": NOT_A_DATE},
                    ]
                },
                {"$or": [{"retried_at": None}, {"retried_at": {"$lte": last_claimed(claims)}}]},
            ],
        }
        mark = {
            "status": ClaimStatus.SUCCEEDED.value,
            "completed_at": "$$NOW",
            "completed_by": {"$literal": token},
            "claimed_until": None,
            "not_before": None,
        }
        with self._mongo.writing("mark messages processed", session):
            self._claims.update_many(open_rows, [{"$set": mark}], session=session)
        with self._mongo.reading_back("mark messages processed", session):
            ours = {"_id": {"$in": rows}, "completed_by": token, "completed_at": {"$type": "date"}}
            found = self._claims.find(ours, {"_id": 1}, batch_size=ONE_REPLY, session=session)
            return [row["_id"] for row in found]

    def fail(self, claim: Claim, error: str, policy: RetryPolicy) -> ClaimStatus | None:
        """Count a failed handling and set when it is due again; `dead` at the cap.

        None when the claim is no longer this one: whoever took it over has counted the failure.
        """
        attempts = claim.attempts + 1
        dead = policy.is_exhausted(attempts)
        status = ClaimStatus.DEAD if dead else ClaimStatus.FAILED
        with self._mongo.writing("count a failed message"):
            found = self._claims.update_one(
                {
                    "_id": claim.row,
                    "status": ClaimStatus.CLAIMED.value,
                    "claimed_by": claim.token,
                    "attempts": claim.attempts,
                },
                [
                    {
                        "$set": {
                            "status": status.value,
                            "attempts": attempts,
                            "claimed_until": None,
                            "not_before": None if dead else later(policy.delay(attempts)),
                            "last_error": {"$literal": short_error(error)},
                        }
                    }
                ],
            )
        return status if found.matched_count else None

    # reading

    def standing(self, group: str, keys: Iterable[Any]) -> list[ClaimRow]:
        """Return the rows of these keys in a group, with the server's time of the reading."""
        return self._standings({GROUP: {"$eq": group}, KEY: {"$in": list(keys)}})

    def of_key(self, key: str, group: str | None = None) -> list[ClaimRow]:
        """Return the rows of a key given as text, in every group or in one."""
        query: Document = {KEY: {"$in": candidates(key)}}
        if group is not None:
            query[GROUP] = {"$eq": group}
        return self._standings(query)

    def documents(self, rows: Sequence[Any]) -> list[Document]:
        """Return the whole documents of these rows, by group."""
        with self._mongo.reading("read the inbox"):
            return list(self._claims.find({"_id": {"$in": list(rows)}}).sort(GROUP, 1))

    def claimed_keys(self, group: str, keys: Iterable[Any]) -> set[Any]:
        """Return which of these keys have a row in the group, whatever it says."""
        query = {GROUP: {"$eq": group}, KEY: {"$in": list(keys)}}
        with self._mongo.reading("read the inbox"):
            found = self._claims.find(query, {"_id": 0, KEY: 1}, batch_size=ONE_REPLY)
            return {to_id(row[KEY]) for row in found}

    def takeable(self, group: str, *, after: Any, limit: int) -> list[ClaimRow]:
        """Return the group's failed rows that are due and its lapsed claims, by row id."""
        pipeline: list[Document] = [
            {"$match": {GROUP: {"$eq": group}, "status": UNFINISHED}},
            {"$match": {"$expr": {"$lte": [WAITS_UNTIL, "$$NOW"]}}},
            {"$match": {} if after is None else {"$expr": {"$gt": ["$_id", {"$literal": after}]}}},
            {"$sort": {"_id": 1}},
            {"$limit": limit},
        ]
        return self._standings_by(pipeline)

    def count_unmarked(self, group: str) -> int:
        """Return how many rows of a group are marked succeeded and lack the time of it."""
        with self._mongo.reading("count the inbox"):
            # Null alone: an index serves it, and no writer puts anything but a date or null there.
            unmarked = {**UNMARKED, "completed_at": None}
            return self._claims.count_documents({GROUP: {"$eq": group}, **unmarked})

    def suspects(self, max_attempts: int) -> Iterator[tuple[ClaimRow, Document]]:
        """Yield every row that may be stuck, streamed; the domain judges each."""
        query: Document = {
            "$or": [
                {"status": {"$ne": ClaimStatus.SUCCEEDED.value}},
                {"completed_at": NOT_A_DATE},
                {"deliveries": {"$gt": max_attempts}},
                {"$expr": {"$gt": ["$last_seen_at", "$completed_at"]}},
            ]
        }
        with self._mongo.reading("read the inbox"):
            now = self._mongo.now()
            for document in self._claims.find(query, batch_size=1_000):
                yield to_standing(document, now), document

    def newest(
        self, *, status: str | None, group: str | None, limit: int
    ) -> tuple[list[Document], int]:
        """Return the rows first seen last, and how many there are; `limit` 0 gives all."""
        query: Document = {}
        if status is not None:
            query["status"] = status
        if group is not None:
            query[GROUP] = {"$eq": group}
        with self._mongo.reading("list the inbox"):
            order = [("first_seen_at", -1), ("_id", -1)]
            found = list(self._claims.find(query).sort(order).limit(limit).allow_disk_use(True))
            return found, self._claims.count_documents(query)

    def unmarked(self, group: str | None) -> list[Any]:
        """Return the rows marked succeeded that lack the time of it."""
        query = UNMARKED if group is None else {GROUP: {"$eq": group}, **UNMARKED}
        with self._mongo.reading("read the inbox"):
            return [row["_id"] for row in self._claims.find(query, {"_id": 1}).sort("_id", 1)]

    def settle(self, rows: Sequence[Any]) -> int:
        """Complete rows that are marked succeeded as of their last delivery; how many were."""
        with self._mongo.writing("settle claims"):
            found = self._claims.update_many(
                {"_id": {"$in": list(rows)}, **UNMARKED}, [{"$set": {"completed_at": SEEN_LAST}}]
            )
        return found.modified_count

    # how far a group has read

    def mark(self, group: str, topic: str | None) -> datetime | None:
        """Return up to when every message of this topic has had a row; None when never read."""
        with self._mongo.reading("read the consumer's mark"):
            found = self._marks.find_one({"_id": mark_id(group)})
        if found is None or found.get("topic") != topic:
            return None
        return to_time(found.get("mark"))

    def advance_mark(self, group: str, topic: str | None, at: datetime) -> None:
        """Move the mark forward, never beyond the server's now; another topic starts its own."""
        same_topic = {"$eq": [{"$ifNull": ["$topic", None]}, {"$literal": topic}]}
        reached = {"$min": [at, "$$NOW"]}
        with self._mongo.writing("move the consumer's mark"), suppress(DuplicateKeyError):
            self._marks.update_one(
                {"_id": mark_id(group)},
                [
                    {
                        "$set": {
                            "mark": {"$cond": [same_topic, {"$max": ["$mark", reached]}, reached]},
                            "topic": {"$literal": topic},
                            "marked_at": "$$NOW",
                        }
                    }
                ],
                upsert=True,
            )

    # the audit

    def count(self) -> int:
        """Count rows."""
        with self._mongo.reading("count the inbox"):
            return self._claims.count_documents({})

    def filled(self, fields: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Count rows, and in how many each field holds something."""
        with self._mongo.reading("measure the inbox"):
            return measure(self._claims.aggregate(measuring(fields), allowDiskUse=True), fields)

    def by_group_and_key(self, fields: Sequence[str]) -> Iterator[Document]:
        """Yield every row, by group and key, with only these fields; streamed."""
        projection = dict.fromkeys([GROUP, KEY, *fields], 1) | {"_id": 0}
        with self._mongo.reading("read the inbox"):
            cursor = self._claims.find({}, without_collisions(projection), batch_size=5_000)
            yield from cursor.sort([(GROUP, 1), (KEY, 1)]).allow_disk_use(True)

    def _standings(self, query: Document) -> list[ClaimRow]:
        return self._standings_by([{"$match": query}])

    def _standings_by(self, pipeline: list[Document]) -> list[ClaimRow]:
        with self._mongo.reading("read the inbox"):
            found = self._claims.aggregate(
                [*pipeline, {"$set": {"_now": "$$NOW"}}], batchSize=ONE_REPLY
            )
            return [to_standing(document, document["_now"]) for document in found]


def last_claimed(claims: Sequence[Claim]) -> datetime:
    """Return when the last of these claims was made."""
    return max(claim.claimed_at for claim in claims)


def mark_id(group: str) -> str:
    """Return the `_id` of a group's mark, which is among the leases."""
    return f"consumer:{group}"


# what the server computes


def later(term: timedelta) -> Document:
    """Return the server's now plus a duration."""
    return {"$add": ["$$NOW", int(min(term, DELAY_MAX).total_seconds() * 1000)]}


def one_more(field: str) -> Document:
    """Return a count plus one; what is no number counts as nothing."""
    return {"$add": [{"$cond": [{"$isNumber": f"${field}"}, f"${field}", 0]}, 1]}


def date_or(field: str, other: Any) -> Document:
    """Return a field that is a date, or something else."""
    return {"$cond": [{"$eq": [{"$type": f"${field}"}, "date"]}, f"${field}", other]}


SEEN_LAST: Document = date_or("last_seen_at", date_or("first_seen_at", "$$NOW"))
# Up to when a row is nobody's to take: a superset, which `judge` decides exactly.
WAITS_UNTIL: Document = {
    "$cond": [
        {"$eq": ["$status", ClaimStatus.FAILED.value]},
        date_or("not_before", None),
        date_or("claimed_until", None),
    ]
}


# reading what is stored


def to_standing(document: Document, now: datetime) -> ClaimRow:
    """Return an inbox document as our record."""
    return ClaimRow(
        row=document["_id"],
        group=to_text(document.get(GROUP)) or "",
        message=to_id(document.get(KEY)),
        status=to_text(document.get("status")) or "",
        attempts=to_count(document.get("attempts")),
        deliveries=to_count(document.get("deliveries")),
        first_seen_at=to_time(document.get("first_seen_at")),
        last_seen_at=to_time(document.get("last_seen_at")),
        claimed_until=to_time(document.get("claimed_until")),
        not_before=to_time(document.get("not_before")),
        completed_at=to_time(document.get("completed_at")),
        last_error=to_text(document.get("last_error")),
        now=now,
        fence={name: document.get(name) for name in FENCED},
        claimed_by=to_text(document.get("claimed_by")),
    )


def to_count(value: object) -> int:
    """Return a count as it is stored; 0 where it is no whole number from 0 on."""
    amount = to_amount(value)
    return amount if isinstance(amount, int) and amount >= 0 else 0
