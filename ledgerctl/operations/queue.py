"""The retry queue for operators: what stands where, push a failed job, recover a dead worker's."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.ids import Id, IdKind
from ledgerctl.domain.jobs import Job
from ledgerctl.domain.payload import Payload, Unreadable, failed, new_payload, read_payload
from ledgerctl.domain.queue import (
    LEASE_PREFIX,
    Destination,
    Failure,
    ListName,
    Pushed,
    QueueEntry,
    QueueStats,
    RetryStats,
    WorkerEntries,
    failure,
    hold_of,
    may_name,
)
from ledgerctl.errors import (
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreBusy,
)
from ledgerctl.operations.cases import only_job
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.queues import Queues
from ledgerctl.stores.retry_queue import ListMove

PUSH_ROUNDS = 20  # lists that change under every look are no reason to lose a failure
CHUNK_ENTRIES = 200
LOST_REPLIES_MAX = 5


# looking


def stats(queues: Queues, *, now: datetime) -> QueueStats:
    """Count the lists, reading retry once in pages; due is judged at `now`."""
    queues.require_lists(queues.keys.retry, queues.keys.dead_letter)
    workers = {worker_of(queues, key): queues.length(key) for key in queues.processing_keys()}
    dead = sum(queues.length(key) for key in dead_letter_keys(queues))
    return QueueStats(retry_stats(queues.read_all(queues.keys.retry), now), dead, workers)


def retry_stats(entries: Iterator[bytes], now: datetime) -> RetryStats:
    """Sort the entries of retry into due, waiting and unreadable."""
    found = RetryStats()
    for raw in entries:
        found.depth += 1
        payload = read_payload(raw)
        if isinstance(payload, Unreadable):
            found.unreadable += 1
        elif payload.not_before is None or payload.not_before <= now:
            found.due += 1
            due = payload.not_before
            if due is not None:
                found.oldest_due_at = min(found.oldest_due_at or due, due)
        else:
            found.waiting += 1
            found.next_due_at = min(found.next_due_at or payload.not_before, payload.not_before)
    return found


def listed(queues: Queues, name: ListName, *, limit: int) -> tuple[list[QueueEntry], int]:
    """Return the first `limit` entries of a list (0: all), and how many there are."""
    keys = keys_of(queues, name)
    queues.require_lists(*keys)
    total = sum(queues.length(key) for key in keys)
    entries = (entry for key in keys for entry in entries_of(queues, key))
    found = list(islice(entries, limit or None))
    return found, max(total, len(found))


def keys_of(queues: Queues, name: ListName) -> list[str]:
    """Return the keys that a list's word stands for."""
    match name:
        case ListName.RETRY:
            return [queues.keys.retry]
        case ListName.DEAD_LETTER:
            return dead_letter_keys(queues)
        case ListName.PROCESSING:
            return queues.processing_keys()


def entries_of(queues: Queues, key: str) -> Iterator[QueueEntry]:
    """Yield every entry of one list, read."""
    worker = worker_of(queues, key) if key.startswith(f"{queues.keys.processing}:") else None
    for position, raw in enumerate(queues.read_all(key)):
        yield QueueEntry(position, key, worker, read_payload(raw), raw)


def dead_letter_keys(queues: Queues) -> list[str]:
    """Return the dead letters: the list, and those that a filter passes over, nearest the head."""
    return [*queues.passed_keys(), queues.keys.dead_letter]


def worker_of(queues: Queues, key: str) -> str:
    """Return the worker whose processing list this is."""
    return key.removeprefix(f"{queues.keys.processing}:")


# pushing


class Spot(NamedTuple):
    """Hold an entry of the job at hand."""

    key: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class QueuedEntries:
    """Hold a job's entries by list; `tails`: what the lists ended with before they were read."""

    processing: list[Spot]
    retry: list[Spot]
    dead: list[Spot]
    tails: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class PushPlan:
    """Hold one push before it is done: the entry it takes, if any, and the bytes it writes."""

    job_id: str
    source: Spot | None
    after: Failure
    new: bytes
    tails: Mapping[str, bytes]

    @property
    def result(self) -> Pushed:
        """Return what the push comes to."""
        return Pushed(self.job_id, self.after.attempts, self.after.place, self.after.not_before)


def plan_push(
    stores: Stores, job_id: str, *, error: str, attempts: int | None, now: datetime
) -> PushPlan:
    """Plan what a failing worker does with its job: one more failure, retry or dead letter.

    The count is that of the job's entry on processing, else on retry, else 0; `attempts` stands
    in for it. Raises Refused when the job is a dead letter already, NotFound and AmbiguousId
    when the job has no entry and its document cannot be told. Source: contract, section 3.
    """
    standing = look(stores.queues, job_id)
    source = most_tried(standing.processing) or most_tried(standing.retry)
    if source is None and standing.dead:
        raise Refused(
            f"{job_id} is a dead letter already: nothing was pushed",
            hint=f"`ledgerctl dead requeue {job_id}` puts it back on the retry queue",
        )
    found = source.payload.attempts if source is not None else 0
    after = failure(found if attempts is None else attempts, policy=stores.settings.retry, now=now)
    if source is not None:
        new = failed(
            source.payload.raw,
            attempts=after.attempts,
            not_before=after.not_before,
            error=error,
            failed_at=now,
        )
    else:
        new = first_payload(required_job(stores, job_id), after, error=error, now=now)
    return PushPlan(job_id, source, after, new, standing.tails)


def apply_push(stores: Stores, plan: PushPlan, *, regardless: bool = False) -> bool:
    """Do what was planned in one script; False, and nothing done, when the lists have changed."""
    keys, lists = stores.settings.keys, stores.retry_lists
    target = keys.retry if plan.after.place is Destination.RETRY else keys.dead_letter
    if plan.source is None:
        other = keys.dead_letter if target == keys.retry else keys.retry
        tails = {target: plan.tails[target], other: plan.tails[other]}
        return lists.append(plan.new, tails, regardless=regardless)
    old = plan.source.payload.raw
    if plan.source.key == target:
        return lists.rewrite(target, old, plan.new)
    return lists.hand_over(plan.source.key, target, old, plan.new)


def push(stores: Stores, plan: PushPlan, again: Callable[[], PushPlan]) -> Pushed:
    """Apply a plan; when the lists change under it, look and plan again."""
    for left in reversed(range(PUSH_ROUNDS)):
        if apply_push(stores, plan, regardless=not left):
            return plan.result
        plan = again()
    raise StoreBusy(
        f"the entry of {plan.job_id} kept changing: nothing was pushed", hint="try again"
    )


def look(queues: Queues, job_id: str) -> QueuedEntries:
    """Find every entry of a job; processing is read last, as entries move from retry to there."""
    keys = queues.keys
    queues.require_lists(keys.retry, keys.dead_letter)
    dead_keys = dead_letter_keys(queues)
    tails = {key: tail(queues, key) for key in (keys.retry, keys.dead_letter)}
    return QueuedEntries(
        retry=spots(queues, [keys.retry], job_id),
        dead=spots(queues, dead_keys, job_id),
        processing=spots(queues, queues.processing_keys(), job_id),
        tails=tails,
    )


def tail(queues: Queues, key: str) -> bytes:
    """Return the last entry of a list; empty for an empty list."""
    return (queues.page(key, -1, 1) or [b""])[0]


def spots(queues: Queues, keys: list[str], job_id: str) -> list[Spot]:
    """Return the readable entries of a job on these lists."""
    return [
        Spot(key, payload)
        for key in keys
        for raw in queues.read_all(key)
        if may_name(raw, job_id)
        and isinstance(payload := read_payload(raw), Payload)
        and payload.job_id == job_id
    ]


def most_tried(found: list[Spot]) -> Spot | None:
    """Return the entry with the highest count, the first of equals: a count never goes back."""
    return max(found, key=lambda spot: spot.payload.attempts, default=None)


def required_job(stores: Stores, job_id: str) -> Job:
    """Return the one job of this id. Raises NotFound or AmbiguousId."""
    found = only_job(stores, job_id)
    if found is None:
        raise NotFound(
            f"no job has the id {job_id!r}", hint="`ledgerctl job list` shows the newest"
        )
    return found


def first_payload(job: Job, after: Failure, *, error: str, now: datetime) -> bytes:
    """Return the entry of a job that has none yet."""
    return new_payload(
        job_id=spelled(job.id),
        account_id=None if job.account is None else spelled(job.account),
        cost=None if isinstance(job.cost, Unusable) else job.cost,
        attempts=after.attempts,
        not_before=after.not_before,
        error=error,
        failed_at=now,
    )


def spelled(identity: Id) -> str | int:
    """Return an id as JSON has it: integers as numbers."""
    return int(identity.text) if identity.kind is IdKind.INTEGER else identity.text


# recovering


def plan_recovery(stores: Stores, *, older_than: timedelta, force: bool) -> list[WorkerEntries]:
    """Return every processing list with its entries, and whether its worker is dead.

    Dead: its lease was last renewed longer ago than `older_than`, by the MongoDB server's clock.
    Lists without a lease are left unless `force`. A live worker's job is never recovered.
    """
    queues = stores.queues
    keys = queues.walk(queues.keys.processing) or []
    expiries = stores.leases.expiries(LEASE_PREFIX) if keys else {}
    return [
        WorkerEntries(
            worker := worker_of(queues, key),
            key,
            queues.length(key),
            hold_of(expiries.get(worker), older_than=older_than, force=force),
        )
        for key in keys
    ]


def recover(
    stores: Stores, found: Sequence[WorkerEntries], *, stopping: Callable[[], bool]
) -> Iterator[tuple[str, int]]:
    """Move the entries of dead workers to the tail of retry, byte for byte.

    Yields worker and count of each chunk that was moved; stops between two chunks.
    """
    for worker in found:
        if stores.queues.is_large:
            stores.queues.remember(worker.key)
        if worker.hold is None:
            for moved in recovered_chunks(stores, worker.key, worker.entries):
                yield worker.worker, moved
                if stopping():
                    return


def recovered_chunks(stores: Stores, key: str, entries: int) -> Iterator[int]:
    """Move a list's first `entries` to retry, chunk by chunk; how many each chunk moved.

    When a reply is lost the list itself says what is left.
    """
    queues, lists = stores.queues, stores.retry_lists
    lost = 0
    while entries > 0 and (page := queues.page(key, 0, min(CHUNK_ENTRIES, entries))):
        before = queues.length(key)
        try:
            moved = sum(lists.move(key, queues.keys.retry, [ListMove(raw, raw) for raw in page]))
        except OutcomeUnknown:
            lost += 1
            if lost > LOST_REPLIES_MAX:
                raise
            moved = before - queues.length(key)
        else:
            if not moved:
                return  # somebody else took them all
        entries -= moved
        yield moved
