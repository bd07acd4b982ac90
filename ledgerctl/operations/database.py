"""Look after the database: build the indexes of the guarantees, remove what nobody needs any more."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ledgerctl.domain.ids import chunks
from ledgerctl.domain.payload import Payload, digest, read_payload
from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.domain.rows import KEY, RowType
from ledgerctl.stores.codec import Document, to_time
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import INDEXES, Index, IndexStatus
from ledgerctl.stores.retention import DONE, ArchivedChunk, Reader

FATES = {
    "created": Fate.DONE,
    "shown_again": Fate.DONE,
    "blocked": Fate.REFUSED,
    "conflict": Fate.REFUSED,
}


def build_indexes(stores: Stores) -> list[IndexStatus]:
    """Build what is missing; an index whose rows are in the way leaves the others alone."""
    return [stores.indexes.build(index) for index in INDEXES]


def apply(stores: Stores, run: Run[IndexStatus]) -> None:
    """Build the indexes as part of a run."""
    for built in map(stores.indexes.build, INDEXES):
        run.result.items.append(built)
        run.result.count(built.status, fate=FATES.get(built.status, Fate.LEFT))


def plan_indexes(stores: Stores) -> Result[IndexStatus]:
    """Say what `build_indexes` would do, changing nothing; what is in the way is no failure yet."""
    found = [
        IndexStatus(index.name, "exists")
        if stores.indexes.exists(index)
        else blocked_or_missing(stores, index)
        for index in INDEXES
    ]
    return Result(found, fates=Counter({Fate.LEFT: len(found)}))


def blocked_or_missing(stores: Stores, index: Index) -> IndexStatus:
    """Say whether a missing index could be built."""
    rows = list(stores.indexes.in_the_way(index)) if index.unique else []
    return IndexStatus(index.name, "blocked" if rows else "would_create", rows)


MARGIN = timedelta(days=1)  # beyond the oldest entry that waits on a list
LOOKED_UP = 1_000


@dataclass(slots=True)
class TidyPlan:
    """Hold what a run would remove, counted exactly, and what it keeps and why."""

    before: datetime | None  # None: everything is kept, because an entry's age is not known
    asked: datetime
    readers: set[Reader] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)  # digests of the entries on the lists
    removed: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)

    @property
    def size(self) -> int:
        """Count what would be removed."""
        return self.removed.total()

    def preview(self) -> Result[None]:
        """Say what a run would remove."""
        return Result(counts=dict(self.removed))


@dataclass(frozen=True, slots=True)
class Tidy:
    """Remove what is older than `keep` and done with; safe to kill and to run again.

    A message goes when every group that reads its topic has completed it, a claim when its
    message is gone, an archived chunk when none of its letters waits. Source: contract, section 3.
    """

    stores: Stores
    keep: timedelta
    progress: Callable[[str], None] = lambda _text: None

    def plan(self) -> TidyPlan:
        """Look at everything and count what would go; changes nothing."""
        now = self.stores.mongo.now()
        digests, oldest = self._lists()
        asked = now - self.keep
        before = None if oldest is None else min(asked, oldest - MARGIN)
        plan = TidyPlan(before, asked, waiting=digests)
        if before is None:
            return plan
        plan.readers = self._readers()
        for messages in self.stores.retention.messages(older(before)):
            plan.removed["outbox"] += len(self._removable(messages, plan, plan.kept))
        for claims in self.stores.retention.claims(before):
            plan.removed["inbox"] += len(self._orphaned(claims, plan, plan.kept))
        plan.kept["inbox_unfinished"] = self.stores.retention.count_unfinished(before)
        for chunk in self._old_chunks(plan, plan.kept):
            plan.removed["dead_archive"] += chunk.letters
        return plan

    def apply(self, plan: TidyPlan, run: Run[None]) -> None:
        """Remove what the plan found, page by page; each removal checks again under its own guard."""
        before = plan.before
        if before is None:
            return
        run.result.not_tried = plan.size
        self.stores.retention.remember(before, plan.readers)
        for kind, removed in self._removals(plan, before):
            run.result.count(kind, removed, fate=Fate.DONE)
            run.result.not_tried = max(0, plan.size - run.result.fates[Fate.DONE])
            run.progress(f"{run.result.fates[Fate.DONE]} of {plan.size} removed")
            if run.stopping():
                return
        run.result.not_tried = 0

    def _removals(self, plan: TidyPlan, before: datetime) -> Iterator[tuple[str, int]]:
        retention = self.stores.retention
        nowhere: Counter[str] = Counter()
        for messages in retention.messages(older(before)):
            ids = self._removable(messages, plan, nowhere)
            yield from (("outbox", one) for one in retention.remove_messages(ids, before))
        for claims in retention.claims(before):
            ids = self._orphaned(claims, plan, nowhere, removed=True)
            yield from (("inbox", one) for one in retention.remove_claims(ids, before))
        for chunk in self._old_chunks(plan, nowhere):
            # The notes go first: a chunk without notes was never taken, as far as restore can tell.
            self.stores.dead_letters.forget(chunk.operation_id, chunk.number)
            yield "dead_archive", retention.remove_chunk(chunk)

    # which

    def _removable(
        self, messages: Sequence[Document], plan: TidyPlan, kept: Counter[str]
    ) -> list[Any]:
        """Return the messages that every group which reads their topic has completed."""
        groups = {one: self._groups_of(one, plan) for one in {m.get("topic") for m in messages}}
        keys = [key_of(one) for one in messages]
        completed = {
            group: self.stores.retention.with_rows(group, keys, DONE)
            for group in {group for found in groups.values() for group in found}
        }
        removable = []
        for message in messages:
            readers = groups[message.get("topic")]
            if not readers:
                kept["outbox_no_reader"] += 1
            elif all(key_of(message) in completed[group] for group in readers):
                removable.append(message["_id"])
            else:
                kept["outbox_not_completed"] += 1
        return removable

    def _groups_of(self, topic: Any, plan: TidyPlan) -> set[Any]:
        """Return the groups that read a topic; a consumer's mark may stand for every topic."""
        return {group for one, group in plan.readers if one in {topic, None}}

    def _orphaned(
        self,
        claims: Sequence[Document],
        plan: TidyPlan,
        kept: Counter[str],
        *,
        removed: bool = False,
    ) -> list[Any]:
        """Return the completed rows whose message is gone, or goes with this plan."""
        before = plan.before
        present = self.stores.retention.present([one.get(KEY) for one in claims])
        if not removed:
            old = [one for one in present if is_before(one.get("created_at"), before)]
            going = set(self._removable(old, plan, Counter()))
            present = [one for one in present if one["_id"] not in going]
        standing = {key_of(one) for one in present}
        orphaned = []
        for claim in claims:
            if claim.get(KEY) in standing:
                kept["inbox_message_kept"] += 1
            elif not is_before(claim.get("last_seen_at"), before, absent=True):
                kept["inbox_delivered_since"] += 1
            else:
                orphaned.append(claim["_id"])
        return orphaned

    def _old_chunks(self, plan: TidyPlan, kept: Counter[str]) -> Iterator[ArchivedChunk]:
        for chunk in self.stores.retention.archived_chunks():
            if chunk.newest is None or plan.before is None or chunk.newest >= plan.before:
                continue
            if chunk.digests & plan.waiting:
                kept["dead_archive_waiting"] += chunk.letters
            else:
                yield chunk

    # looking

    def _readers(self) -> set[Reader]:
        """Find the groups that read each topic: by their marks, by earlier runs, or by any row."""
        retention = self.stores.retention
        readers, groups = retention.known_readers(), retention.groups()
        for messages in retention.messages({}):
            by_topic: dict[Any, list[Any]] = {}
            for one in messages:
                by_topic.setdefault(one.get("topic"), []).append(key_of(one))
            readers |= {
                (topic, group)
                for topic, keys in by_topic.items()
                for group in groups
                if not {(topic, group), (None, group)} & readers
                and retention.with_rows(group, keys)
            }
        return readers

    def _lists(self) -> tuple[set[str], datetime | None]:
        """Read every list once: the digests of all entries, and when the oldest one failed.

        None when an entry's age cannot be told.
        """
        queues, keys = self.stores.queues, self.stores.queues.keys
        names = (keys.retry, keys.dead_letter, *queues.passed_keys(), *queues.processing_keys())
        digests: set[str] = set()
        oldest, undated, is_known = self.stores.mongo.now(), set[str](), True
        for name in names:
            for raw in queues.read_all(name):
                digests.add(digest(raw))
                payload = read_payload(raw)
                if not isinstance(payload, Payload):
                    is_known = False
                elif payload.failed_at is not None:
                    oldest = min(oldest, payload.failed_at)
                else:
                    undated.add(payload.job_id)
        charged = [self._charged_at(some) for some in chunks(sorted(undated), LOOKED_UP)]
        if not is_known or None in charged:
            return digests, None
        return digests, min([oldest, *(one for one in charged if one is not None)])

    def _charged_at(self, jobs: Sequence[str]) -> datetime | None:
        """Return the time of the oldest charge of these jobs; None unless each has one."""
        times = {
            row.job.text: row.created_at
            for row in self.stores.ledger.of_jobs(jobs)
            if row.type is RowType.CHARGE and row.job is not None and row.created_at is not None
        }
        return min(times.values()) if set(times) >= set(jobs) else None


def older(before: datetime) -> Document:
    """Match messages older than a moment."""
    return {"created_at": {"$lt": before}}


def key_of(message: Document) -> Any:
    """Return a message's key; its `_id` stands in for one that is absent."""
    return message.get(KEY, message["_id"])


def is_before(value: object, moment: datetime | None, *, absent: bool = False) -> bool:
    """Compare a stored time; what is no time is `absent`."""
    time = to_time(value)
    return absent if time is None or moment is None else time < moment
