"""What matters at night, as figures: dead letters, queues, workers, inbox, summaries."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from ledgerctl.domain.drift import Cause
from ledgerctl.domain.inbox import why_stuck
from ledgerctl.domain.queue import LEASE_PREFIX
from ledgerctl.errors import LedgerctlError, StoreUnavailable
from ledgerctl.operations.dead import count
from ledgerctl.operations.queue import stats
from ledgerctl.operations.rebuild import mark_of
from ledgerctl.operations.summaries import DEFAULT_DAYS, Window, drift
from ledgerctl.stores.connections import Stores

GROUPS = 10  # groups of errors; the rest is `other`
STUCK_AFTER = timedelta(minutes=5)
MONGO, REDIS = "mongo", "redis"


class Sample(NamedTuple):
    """Hold one value of a metric, by its name and labels; never an id as label."""

    name: str
    value: int | float
    labels: Mapping[str, str] = {}


@dataclass(slots=True)
class Metrics:
    """Hold the samples that could be had; `away` says which stores did not answer, and why."""

    samples: list[Sample] = field(default_factory=list)
    away: dict[str, LedgerctlError] = field(default_factory=dict)


def measure(stores: Stores, *, now: datetime) -> Metrics:
    """Take every figure once; one store away leaves the figures of the other.

    What MongoDB alone is asked is asked beside the rest, which is work of this process.
    `now` is this machine's, for where Redis may not be asked. Source: contract, section 3.
    """
    alone = [one for one in QUESTIONS if one[0] == (MONGO,)]
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(answers, stores, now, alone)
        found = answers(stores, now, [one for one in QUESTIONS if one not in alone])
    found.samples += asked.result().samples
    found.away |= asked.result().away
    up = (Sample("up", int(store not in found.away), {"store": store}) for store in (MONGO, REDIS))
    found.samples += up
    return found


def answers(stores: Stores, now: datetime, questions: Iterable["NeedsAndQuestion"]) -> Metrics:
    """Ask one question after the other, none of a store that has been found to be away."""
    found = Metrics()
    for needs, question in questions:
        if not found.away.keys() & set(needs):
            try:
                found.samples += question(stores, now)
            except StoreUnavailable as error:
                found.away[lost(stores, needs)] = error
    return found


def lost(stores: Stores, needs: tuple[str, ...]) -> str:
    """Tell which of these stores is away."""
    if needs == (MONGO, REDIS):
        try:
            stores.queue_server.ping()
        except LedgerctlError:
            return REDIS
    return needs[0]


def queues(stores: Stores, now: datetime) -> Iterator[Sample]:
    """Yield the depths of the lists, what is due, and what workers have in hand."""
    at = stores.queues.now(now)
    found = stats(stores.queues, now=at)
    yield Sample("dead_letters", found.dead_letters)
    yield Sample("retry_entries", found.retry.depth)
    yield Sample("retry_due", found.retry.due)
    oldest = found.retry.oldest_due_at
    yield Sample("retry_oldest_due_age_seconds", 0 if oldest is None else age(at, oldest))
    for worker, entries in found.workers.items():
        yield Sample("processing_entries", entries, {"worker": worker})


def dead_letters(stores: Stores, now: datetime) -> Iterator[Sample]:
    """Yield dead letters by group and by verdict, and the age of the oldest."""
    found = count(stores)
    groups = found.by_error
    for group in groups[:GROUPS]:
        yield Sample("dead_letters_by_group", group.count, {"group": group.group})
    others = sum(group.count for group in groups[GROUPS:])
    yield Sample("dead_letters_by_group", others, {"group": "other"})
    for verdict, number in found.by_verdict.items():
        yield Sample("dead_letters_by_verdict", number, {"verdict": str(verdict)})
    oldest = found.oldest_failed_at
    at = stores.queues.now(now)
    yield Sample("dead_letter_oldest_age_seconds", 0 if oldest is None else age(at, oldest))


def workers(stores: Stores, _now: datetime) -> Iterator[Sample]:
    """Yield how many workers have something in hand and no live lease."""
    queue = stores.queues
    stem = f"{queue.keys.processing}:"
    holding = [key.removeprefix(stem) for key in queue.processing_keys() if queue.length(key)]
    leases = stores.leases.expiries(LEASE_PREFIX) if holding else {}
    dead = [name for name in holding if leases.get(name, timedelta(0)) >= timedelta(0)]
    yield Sample("lost_leases", len(dead))


def inbox(stores: Stores, _now: datetime) -> Iterator[Sample]:
    """Yield how many claims are stuck."""
    policy = stores.settings.retry
    suspects = stores.inbox.suspects(policy.max_attempts)
    stuck = sum(bool(why_stuck(one, STUCK_AFTER, policy)) for one, _ in suspects)
    yield Sample("inbox_stuck", stuck)


def summaries(stores: Stores, _now: datetime) -> Iterator[Sample]:
    """Yield when summaries were rebuilt last, and how many drift, with and without a cause."""
    rebuilt = mark_of(stores)
    if rebuilt is not None:
        yield Sample("usage_last_rebuild_timestamp_seconds", round(rebuilt.timestamp()))
    drifted = drift(stores, Window(DEFAULT_DAYS), why=True).drifted
    unknown = sum(one.why is None or one.why.cause is Cause.UNKNOWN for one in drifted)
    yield Sample("usage_drift", len(drifted) - unknown, {"explained": "true"})
    yield Sample("usage_drift", unknown, {"explained": "false"})


def ledger(stores: Stores, _now: datetime) -> Iterator[Sample]:
    """Yield how many rows the ledger has, as the server estimates it."""
    with stores.mongo.reading("count the ledger"):
        yield Sample("ledger_rows", stores.mongo.collection("ledger").estimated_document_count())


def age(now: datetime, moment: datetime) -> float:
    """Return the seconds since a moment, never negative."""
    return max(0.0, round((now - moment).total_seconds(), 3))


Question = Callable[[Stores, datetime], Iterator[Sample]]
NeedsAndQuestion = tuple[tuple[str, ...], Question]
QUESTIONS: tuple[NeedsAndQuestion, ...] = (
    ((REDIS,), queues),
    ((MONGO,), inbox),
    ((MONGO,), summaries),
    ((MONGO,), ledger),
    ((MONGO, REDIS), dead_letters),
    ((MONGO, REDIS), workers),
)
