"""A sweep: every job and every ledger row, side by side in the order of their ids, streamed."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from heapq import merge
from itertools import chain
from typing import Any, cast

from bson import BSON, Decimal128, Int64, ObjectId, decode_all
from pymongo import errors as mongo_errors
from pymongo.client_session import ClientSession

from ledgerctl.domain.amounts import fits_int64
from ledgerctl.domain.ids import chunks
from ledgerctl.domain.jobs import SUCCEEDED
from ledgerctl.stores.codec import DIGITS, Document, to_id
from ledgerctl.stores.jobs import FIELDS as JOB_FIELDS
from ledgerctl.stores.mongo import CODEC, Mongo, is_lost

ROW_FIELDS = dict.fromkeys(
    ("job_id", "account_id", "type", "amount", "created_at", "recorded_at", "operation_id"), 1
)
BATCH = 2_000  # documents a reply: the driver's own 16 MB would be a hundred thousand at once
LOOKED_UP = 500  # ids of one look-up
RESUMES_MAX = 4  # in a row, without one more document read
PAUSE_S = 0.25

# Every type but text, ObjectId, number and null.
OTHER_TYPES = (
    "minKey", "object", "array", "binData", "bool", "date", "timestamp", "regex", "dbPointer",
    "javascript", "symbol", "javascriptWithScope", "maxKey",
)  # fmt: skip

Key = Any  # text or a number: what one leg of the sweep is ordered by
Group = tuple[Key, list[Document]]


@dataclass(slots=True)
class JobDocuments:
    """Hold the stored documents of one id; `text` is None for a row that names no job."""

    text: str | None
    jobs: list[Document] = field(default_factory=list)
    rows: list[Document] = field(default_factory=list)


class Sweep:
    """Walk jobs and ledger once, holding no more than the batch in hand.

    A cursor that is lost is opened again at the id in hand. `steady` says whether all was read as
    of one moment; where it was not, what looks wrong must be read again.
    """

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._collections = {name: mongo.collection(name) for name in ("jobs", "ledger")}
        self._fields = {"jobs": JOB_FIELDS, "ledger": ROW_FIELDS}
        self._session: ClientSession | None = None
        self._sessions: list[ClientSession] = []
        self.steady = mongo.transactions
        self.lost_cursors = 0

    def __enter__(self) -> "Sweep":
        self._open_session()
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions:
            session.end_session()

    def _open_session(self) -> None:
        if self._mongo.transactions:
            with self._mongo.reading("begin the audit"):
                self._session = self._mongo.client.start_session(snapshot=True)
            self._sessions.append(self._session)

    def expected(self) -> tuple[int, int]:
        """Count jobs and rows roughly."""
        with self._mongo.reading("count jobs and rows"):
            jobs, rows = (one.estimated_document_count() for one in self._collections.values())
        return jobs, rows

    def stories(self, *, sifted: bool = False) -> Iterator[JobDocuments]:
        """Yield every job with its rows, then every row that names no job; each exactly once.

        An id that is text here and a number or an ObjectId there is one job's.
        """
        if not sifted:
            yield from self._spelled()
        yield from self._others()
        yield from self._nameless()

    def _spelled(self) -> Iterator[JobDocuments]:
        numbers = self._has("jobs", "_id", "number") or self._has("ledger", "job_id", "number")
        yield from self._texts(numbers=numbers)
        if numbers:
            yield from self._numbers()

    # texts and ObjectIds, which sort alike once an ObjectId is hex

    def _texts(self, *, numbers: bool) -> Iterator[JobDocuments]:
        stories = joined(self._by_text("jobs", "_id"), self._by_text("ledger", "job_id"))
        if not numbers:
            yield from stories
            return
        for chunk in chunks(stories, LOOKED_UP):
            self._add_numbers(chunk)
            yield from chunk

    def _by_text(self, name: str, key: str) -> Iterator[Group]:
        texts = self._groups(name, key, "string")
        if not self._has(name, key, "objectId"):
            return texts
        hexes = ((str(one), found) for one, found in self._groups(name, key, "objectId"))
        return merge(texts, hexes, key=first)

    def _add_numbers(self, chunk: list[JobDocuments]) -> None:
        """Add the jobs and rows that hold the id of one of these stories as a number."""
        spelled: dict[Key, JobDocuments] = {
            int(one.text): one for one in chunk if one.text and is_number(one.text)
        }
        for name, key in (("jobs", "_id"), ("ledger", "job_id")):
            for document in self._among(name, key, [Int64(one) for one in spelled]):
                story = spelled.get(number_key(document[key]))
                if story is not None:
                    (story.jobs if name == "jobs" else story.rows).append(document)

    # numbers

    def _numbers(self) -> Iterator[JobDocuments]:
        stories = joined(self._by_number("jobs", "_id"), self._by_number("ledger", "job_id"))
        for chunk in chunks(stories, LOOKED_UP):
            told = self._told_as_text([story.text for story in chunk if story.text])
            yield from (story for story in chunk if story.text not in told)

    def _by_number(self, name: str, key: str) -> Iterator[Group]:
        return ((number_key(one), found) for one, found in self._groups(name, key, "number"))

    def _told_as_text(self, texts: list[str]) -> set[str]:
        """Return those of these ids that jobs or rows hold as text, which came before."""
        return {
            document[key]
            for name, key in (("jobs", "_id"), ("ledger", "job_id"))
            for document in self._among(name, key, texts)
            if isinstance(document[key], str)
        }

    # everything else

    def _others(self) -> Iterator[JobDocuments]:
        """Jobs under exotic ids (a UUID, a date), and rows that name such."""
        jobs = (found for _, found in self._groups("jobs", "_id", list(OTHER_TYPES)))
        for chunk in chunks(jobs, LOOKED_UP):
            stories = {exactly(one["_id"]): story_of(one) for found in chunk for one in found}
            wanted = [story.jobs[0]["_id"] for story in stories.values()]
            for row in self._among("ledger", "job_id", wanted):
                if (story := stories.get(exactly(row["job_id"]))) is not None:
                    story.rows.append(row)
            yield from stories.values()
        yield from self._orphans_of_others()

    def _orphans_of_others(self) -> Iterator[JobDocuments]:
        groups = self._groups("ledger", "job_id", list(OTHER_TYPES))
        for chunk in chunks(groups, LOOKED_UP):
            wanted = [one for one, _ in chunk if not isinstance(one, list)]
            known = {exactly(job["_id"]) for job in self._among("jobs", "_id", wanted)}
            for one, found in chunk:
                if exactly(one) not in known:
                    yield JobDocuments(to_id(one).text, [], found)

    def _nameless(self) -> Iterator[JobDocuments]:
        for _, found in self._groups("ledger", "_id", None):
            yield JobDocuments(None, [], found)

    # reading

    def _has(self, name: str, key: str, kind: str) -> bool:
        with self._mongo.reading("look at the ids"):
            found = self._collections[name].find_one({key: {"$type": kind}}, {"_id": 1})
        return found is not None

    def _among(self, name: str, key: str, values: list[Any]) -> list[Document]:
        if not values:
            return []
        with self._mongo.reading(f"read {name}"):
            query = {key: {"$in": values}}
            return list(self._collections[name].find(query, self._fields[name], batch_size=BATCH))

    def _groups(self, name: str, key: str, kind: str | list[str] | None) -> Iterator[Group]:
        """Yield the documents of one kind of id, grouped by it; a lost cursor is opened again.

        `kind` None: the rows whose job_id is absent or null, by their own id.
        """
        after: list[Any] = []
        failures = 0
        while True:
            session = self._session
            try:
                for group in grouped(self._cursor(name, key, kind, after, session), key, kind):
                    yield group
                    after[:] = group[:1]
                    failures = 0
                return
            except mongo_errors.PyMongoError as error:
                failures += 1
                if failures > RESUMES_MAX or not is_lost(error):
                    raise self._mongo.translated(error, f"read {name}", sent=False) from None
            self._resume(session, PAUSE_S * failures)

    def _cursor(
        self,
        name: str,
        key: str,
        kind: str | list[str] | None,
        after: list[Any],
        session: ClientSession | None,
    ) -> Iterable[Document]:
        bounds: Document = {} if kind is None else {"$type": kind}
        if after:
            bounds["$gt"] = after[0]
        query = {key: bounds} if bounds else {}
        if kind is None:
            query["job_id"] = None  # type: ignore[assignment]  # a query is not one type of value
        batches = self._collections[name].find_raw_batches(
            query, self._fields[name], session=session, batch_size=BATCH, allow_disk_use=True
        )
        return chain.from_iterable(
            decode_all(cast(bytes, one), CODEC) for one in batches.sort(key, 1)
        )

    def _resume(self, session: ClientSession | None, pause_s: float) -> None:
        """Look at a newer moment from here on, unless the other leg has done so already."""
        time.sleep(pause_s)
        self.steady = False
        self.lost_cursors += 1
        if session is self._session:
            self._open_session()


def first(group: Group) -> Key:
    """Return what a group is ordered by."""
    return group[0]


def grouped(
    documents: Iterable[Document], key: str, kind: str | list[str] | None
) -> Iterator[Group]:
    """Runs of documents that share their id. A list matches by its elements: it is an `array`."""
    lists_too = isinstance(kind, list)
    current: Any = None
    found: list[Document] = []
    for document in documents:
        value = document[key]
        if found and value == current:
            found.append(document)
            continue
        if type(value) is list and not lists_too:
            continue
        if found:
            yield current, found
        current, found = value, [document]
    if found:
        yield current, found


def joined(jobs: Iterator[Group], rows: Iterator[Group]) -> Iterator[JobDocuments]:
    """Jobs and rows of one id together; both sides come in the order of their ids."""
    job, row = next(jobs, None), next(rows, None)
    while job is not None or row is not None:
        key = min(one[0] for one in (job, row) if one is not None)
        story = JobDocuments(key if isinstance(key, str) else None)
        while job is not None and job[0] == key:
            story.jobs.extend(job[1])
            job = next(jobs, None)
        while row is not None and row[0] == key:
            story.rows.extend(row[1])
            row = next(rows, None)
        if story.text is None:
            known = story.jobs[0]["_id"] if story.jobs else story.rows[0]["job_id"]
            story.text = str(key) if type(key) is int else to_id(known).text
        yield story


def story_of(job: Document) -> JobDocuments:
    """Return the documents of one job, its rows to come."""
    return JobDocuments(to_id(job["_id"]).text, [job])


def is_number(text: str) -> bool:
    """Return whether a stored integer can spell this text."""
    return len(text) <= 20 and DIGITS.fullmatch(text) is not None and fits_int64(int(text))  # noqa: PLR2004  # int64 digits


def number_key(value: object) -> int | float | Decimal:
    """Return a number as MongoDB compares it: 42, 42.0 and a decimal 42 are one; NaN is first."""
    number = value.to_decimal() if isinstance(value, Decimal128) else value
    if number != number:  # noqa: PLR0124  # NaN is the one that differs from itself
        return float("-inf")
    whole = cast("int | float | Decimal", number)
    is_whole = isinstance(whole, int) or (abs(whole) != float("inf") and whole == int(whole))
    return int(whole) if is_whole else whole


def exactly(value: object) -> bytes:
    """Return a value that tells exotic ids apart as the server does."""
    return bytes(BSON.encode({"": value}))


PLAIN_STEPS: tuple[tuple[tuple[str, int], ...], ...] = (
    (),
    (("charge", -1),),
    (("charge", -1), ("refund", 1)),
    (("charge", -1), ("reclaim", -1), ("refund", 1)),
)
PLAIN_TYPES = {"charge": 0, "reclaim": 1, "refund": 2}
WHOLE = (int, Int64)


def is_plain(story: JobDocuments, horizon: datetime) -> bool:
    """True only for a story in which no check can find anything; False says nothing.

    This is what nearly every job is, seen without building our records. Messages are not looked
    at. `horizon`: rows dated later are dated in the future.
    """
    if len(story.jobs) != 1:
        return story.text is None and is_plain_grant(story.rows[0], horizon)
    job = story.jobs[0]
    cost = job.get("cost")
    steps = plain_steps(job)
    rows = story.rows
    if steps is None or len(rows) != steps or type(cost) not in WHOLE or cost < 0:  # type: ignore[operator]  # whole
        return steps == 1 and not rows and type(cost) in WHOLE and cost >= 0  # type: ignore[operator]  # whole
    if steps > 1:
        rows = sorted(rows, key=plain_rank)
    return all(
        is_plain_row(row, kind, sign * cost, job["_id"], horizon)  # type: ignore[operator]  # whole
        for row, (kind, sign) in zip(rows, PLAIN_STEPS[steps], strict=True)
    )


def plain_rank(row: Document) -> int:
    """Return the order of a row among a plain job's rows."""
    kind = row.get("type")
    return PLAIN_TYPES.get(kind, 3) if isinstance(kind, str) else 3


def plain_steps(job: Document) -> int | None:
    """Return how many rows the flags call for, when flags and their times are in order."""
    refunded, reclaimed = job.get("is_refunded"), job.get("is_reclaimed")
    if refunded is False and reclaimed is False:
        return 1 if job.get("refunded_at") is None and job.get("reclaimed_at") is None else None
    if refunded is not True or not isinstance(job.get("refunded_at"), datetime):
        return None
    if reclaimed is True:
        return 3 if isinstance(job.get("reclaimed_at"), datetime) else None
    untouched = reclaimed is False and job.get("reclaimed_at") is None
    return 2 if untouched and job.get("status") != SUCCEEDED else None


def is_plain_row(row: Document, kind: str, amount: int, job_id: Any, horizon: datetime) -> bool:
    """Return whether a row is exactly the step row that its job calls for."""
    at = row.get("created_at")
    return (
        row.get("type") == kind
        and type(row.get("amount")) in WHOLE
        and row["amount"] == amount
        and isinstance(at, datetime)
        and at <= horizon
        and isinstance(row.get("recorded_at"), datetime | None)
        and isinstance(job_id, str | ObjectId | int)
        and row["job_id"].__class__ is job_id.__class__
    )


def is_plain_grant(row: Document, horizon: datetime) -> bool:
    """Return whether a row that names no job needs none, and can be summed and dated."""
    at = row.get("created_at")
    return (
        row.get("type") == "grant"
        and type(row.get("amount")) in WHOLE
        and isinstance(at, datetime)
        and at <= horizon
        and isinstance(row.get("recorded_at"), datetime | None)
    )
