"""The retry queue's rules: what a failure makes of a job, what is settled, whose worker is dead."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ledgerctl.domain.jobs import SUCCEEDED, Job, State, state
from ledgerctl.domain.payload import Payload, Unreadable
from ledgerctl.domain.retry import RetryPolicy

LEASE_PREFIX = "worker:"
WORKER_TERM = timedelta(seconds=5)  # a worker that did not renew for this long is not live
RENEW_EVERY = timedelta(seconds=2)


class Destination(StrEnum):
    """Name where the entry of a job is."""

    RETRY = "retry"
    PROCESSING = "processing"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Failure:
    """Describe a job after one more failure. `not_before` is None for a dead letter."""

    attempts: int
    place: Destination
    not_before: datetime | None


def failure(found: int, *, policy: RetryPolicy, now: datetime) -> Failure:
    """Count one more failure of a job that had `found`, and only then look at the cap.

    The new count is used against the cap and in `min(base · 2^attempts, max)`, so every failure
    advances it and the cap always ends it. Source: contract, section 3, `queue push`.
    """
    attempts = found + 1
    if policy.is_exhausted(attempts):
        return Failure(attempts, Destination.DEAD_LETTER, None)
    return Failure(attempts, Destination.RETRY, policy.due_at(now, attempts))


def is_settled(job: Job) -> bool:
    """Return whether the job's work is done: it is not run again. Source: contract, section 3."""
    return job.status == SUCCEEDED or state(job) is State.RECLAIMED


class Hold(StrEnum):
    """Name why a worker's entries are left where they are."""

    LIVE = "live"
    RECENT = "recent"  # silent, but not yet for as long as asked
    NO_LEASE = "no_lease"


def hold_of(expired_for: timedelta | None, *, older_than: timedelta, force: bool) -> Hold | None:
    """Return why the entries of a worker are not recovered; None when they are.

    `expired_for` is how long ago its lease ran out, negative while it is live, None without one.
    A live worker is never recovered, whatever is asked; force takes lists without a lease only.
    """
    if expired_for is None:
        return None if force else Hold.NO_LEASE
    if expired_for < timedelta(0):
        return Hold.LIVE
    # It was last renewed one term before it ran out.
    return None if expired_for >= older_than - WORKER_TERM else Hold.RECENT


def may_name(raw: bytes, job_id: str) -> bool:
    """False only when the entry cannot be of this job: a cheap sieve before it is read."""
    return b"\\" in raw or job_id.encode(errors="surrogatepass") in raw


# what commands find and do


class ListName(StrEnum):
    """Name the lists by the words that the command line has for them."""

    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    PROCESSING = "processing"


@dataclass(slots=True)
class RetryStats:
    """Hold the retry list at one moment; `depth` = `due` + `waiting` + `unreadable`."""

    depth: int = 0
    due: int = 0
    waiting: int = 0
    unreadable: int = 0
    next_due_at: datetime | None = None
    oldest_due_at: datetime | None = None  # of the due entries that have a time


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Count the entries of every list; `workers` counts those of each processing list."""

    retry: RetryStats
    dead_letters: int
    workers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """Hold one entry where it is; position 0 is the head."""

    position: int
    key: str
    worker: str | None
    payload: Payload | Unreadable
    raw: bytes


@dataclass(frozen=True, slots=True)
class Pushed:
    """Report where a failed job went; `not_before` is None for a dead letter."""

    job_id: str
    attempts: int
    to: Destination
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerEntries:
    """Hold one worker's processing list, and why it is left alone (None: it is recovered)."""

    worker: str
    key: str
    entries: int
    hold: Hold | None


def recoverable(found: Iterable[WorkerEntries]) -> int:
    """Count the entries of dead workers."""
    return sum(worker.entries for worker in found if worker.hold is None)


@dataclass(slots=True)
class WorkerCounts:
    """Count what a run did: `ran` = `succeeded` + `failed`; `dead_lettered` counts every kind."""

    ran: int = 0
    succeeded: int = 0
    failed: int = 0
    dead_lettered: int = 0  # at the cap, unreadable or unknown
    skipped_settled: int = 0
    unreadable: int = 0
    unknown: int = 0
    refused: int = 0  # guarded steps that said no
    put_back: int = 0

    @property
    def jobs(self) -> int:
        """Return the jobs that were dealt with: run or found settled."""
        return self.ran + self.skipped_settled

    @property
    def counts(self) -> dict[str, int]:
        """Give the counts that are not zero, by name."""
        return {name: number for name, number in asdict(self).items() if number}
