"""The retry queue as a worker uses it: take, then say how it went; nothing is ever stranded."""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from types import TracebackType
from typing import Self, TypeVar

from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import ALREADY, APPLIED, SUCCEEDED, StepResult
from ledgerctl.domain.payload import Payload, Unreadable, failed, read_payload
from ledgerctl.domain.queue import (
    LEASE_PREFIX,
    RENEW_EVERY,
    WORKER_TERM,
    Destination,
    Pushed,
    WorkerCounts,
    failure,
    is_settled,
)
from ledgerctl.errors import (
    JobHeld,
    LedgerctlError,
    OutcomeUnknown,
    StoreBusy,
    StoreUnavailable,
    UsageError,
)
from ledgerctl.operations.handlers import Ending, Handler, ignore
from ledgerctl.operations.log import Operation
from ledgerctl.operations.lookout import Lookout
from ledgerctl.operations.steps import reclaim, refund
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.leases import Lease

FAILED = "failed"
IDLE_S = 5.0  # the longest sleep between two looks at the whole list
POLL_S = 1.0  # how often the list's length is asked meanwhile
HELD_PATIENCE_S = 90.0  # a killed client's transaction holds its job for up to a minute
STORE_PATIENCE_S = 15.0  # an outage that a result in hand is kept through
PAUSE_S = 0.5
NOT_STARTED = {126, 127}  # what shells and `env` exit with where a command cannot be run
IN_HAND_MAX = 100  # one, and what lost replies may have left beside it

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delivery:
    """Hold one job in hand. `attempts` counts the failures before this run; `raw` is its entry."""

    id: Id
    attempts: int
    payload: Payload

    @property
    def job_id(self) -> str:
        """Return the job's id as text."""
        return self.id.text

    @property
    def raw(self) -> bytes:
        """Return the entry, byte for byte."""
        return self.payload.raw


class Passed(Enum):
    """Name what became of an entry that nobody has to run."""

    TAKEN = auto()  # another worker was faster
    DEAD_LETTERED = auto()
    SETTLED = auto()


class RetryQueue:
    """Use the retry queue as one worker; a context manager.

    A job is on exactly one list at every instant: taken atomically into this worker's processing
    list, and from there dropped, pushed on or put back. Meanwhile the worker's lease is renewed in
    the background; when the process dies `queue recover` brings the job in hand back. Delivery is
    at least once; the guarded steps make a repeat harmless.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        operation_id: str = "",
        clock: Callable[[], datetime] | None = None,
        say: Callable[[str], None] = ignore,
        tally: WorkerCounts | None = None,
    ) -> None:
        self.stores = stores
        self.worker = worker_name()
        self.tally = tally or WorkerCounts()
        self.say = say
        self.operation_id = operation_id  # carried by this worker's rows
        self._operation: Operation | None = None  # begun here where no run began one
        self._clock = clock or stores.mongo.now
        self._policy = stores.settings.retry
        self._lists = stores.retry_lists
        self._lookout = Lookout(stores.queues, stores.retry_lists)
        self._open = ExitStack()
        self._lease: Lease | None = None

    def __enter__(self) -> Self:
        settings = self.stores.settings
        own = self._lists.processing_key(self.worker)
        self.stores.queues.require_writable(own, settings.keys.retry, settings.keys.dead_letter)
        if not self.operation_id:
            self._operation = self._begin_operation()
            self.operation_id = self._operation.id
        self._lease = self._open.enter_context(
            self.stores.leases.held(
                f"{LEASE_PREFIX}{self.worker}",
                operator=settings.operator,
                term=WORKER_TERM,
                renew_every=RENEW_EVERY,
            )
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put back what is in hand, then let the lease go; an error here is said, never raised.

        Where the own list is not empty, or cannot be read, the lease stays and expires: by it
        `queue recover` knows that the jobs on the list may be taken.
        """
        is_empty = False
        try:
            is_empty = self._sweep()
        finally:
            with suppress(LedgerctlError):
                self._open.close()
            with suppress(LedgerctlError):
                if self._lease is not None and is_empty:
                    self.stores.leases.discard(self._lease)
            if self._operation is not None:
                with suppress(LedgerctlError):
                    self._operation.end(error)

    # taking

    def now(self) -> datetime:
        """Return the Redis server's time, which judges due times; else our own, said once."""
        return self.stores.queues.now(self._clock(), self.say)

    def take(self) -> Delivery | None:
        """Return the next due job, now in hand; None when nothing is due.

        On the way settled jobs are reclaimed and dropped, and unreadable and unknown entries go
        to the dead letters as they are.
        """
        while (step := self.advance()) is not None:
            if isinstance(step, Delivery):
                return step
        return None

    def __iter__(self) -> Iterator[Delivery]:
        """Due jobs one by one, until nothing is due; each must be answered before the next."""
        while (delivery := self.take()) is not None:
            yield delivery

    def advance(self) -> Delivery | Passed | None:
        """Take one step of `take`: a job in hand, an entry passed, None for nothing due."""
        candidate = self.persist(lambda: self._lookout.next(self.now()))
        if candidate is None:
            return None
        if not self._lists.take(self.worker, candidate.raw, within=candidate.within):
            return Passed.TAKEN
        payload = read_payload(candidate.raw)
        if isinstance(payload, Unreadable):
            self._leave_unchanged(candidate.raw)
            self.tally.unreadable += 1
            self.say(f"an unreadable entry went to the dead letters: {payload.why}")
            return Passed.DEAD_LETTERED
        return self._judged(payload)

    def _judged(self, payload: Payload) -> Delivery | Passed:
        found = self.persist(lambda: self.stores.jobs.find(payload.job_id))
        if len(found) != 1:
            self._leave_unchanged(payload.raw)
            self.tally.unknown += 1
            why = "no job has this id" if not found else "two jobs have this id"
            self.say(f"{payload.job_id} went to the dead letters: {why}")
            return Passed.DEAD_LETTERED
        delivery = Delivery(found[0].id, payload.attempts, payload)
        if not is_settled(found[0]):
            return delivery
        self._reclaim(delivery)
        self._drop(delivery)
        self.tally.skipped_settled += 1
        self.say(f"{delivery.job_id} is settled already: not run, dropped")
        return Passed.SETTLED

    def wait(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Sleep until the next due time that was seen or a change of the list's length, at most 5 s."""
        due = self._lookout.next_due
        pause_s = IDLE_S if due is None else (due - self.persist(self.now)).total_seconds()
        deadline = time.monotonic() + min(max(pause_s, 0.0), IDLE_S)
        while not stopping() and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left_s))
            if self.persist(self._length) != self._lookout.length:
                return

    def _length(self) -> int:
        return self.stores.queues.length(self.stores.settings.keys.retry)

    # answering

    def succeeded(self, delivery: Delivery) -> StepResult:
        """Answer that the job succeeded: status, unconditional reclaim, then it leaves the queue.

        The status goes first: from then on no refund can slip in behind the reclaim.
        """
        self.persist(lambda: self.stores.jobs.set_status(delivery.id, SUCCEEDED))
        result = self._reclaim(delivery)
        self._drop(delivery)
        self.tally.ran += 1
        self.tally.succeeded += 1
        return result

    def failed(self, delivery: Delivery, error: str) -> Pushed:
        """Answer that the job failed: guarded refund, status, then back to retry or a dead letter.

        A refused refund is reported and counted, and the push goes on. The status of a job that another
        delivery brought to success meanwhile stays.
        """
        result = self.persist(
            lambda: refund(
                self.stores, delivery.job_id, operation_id=self.operation_id, reason=error
            )
        )
        self._report(result)
        self.persist(lambda: self.stores.jobs.set_status(delivery.id, FAILED, unless=SUCCEEDED))
        pushed = self._push(delivery, error)
        self.tally.ran += 1
        self.tally.failed += 1
        return pushed

    def put_back(self, delivery: Delivery) -> None:
        """Put a job that was not run to its end back to the tail of retry, its bytes untouched."""
        self._put_back(delivery.raw, delivery.job_id)

    def persist(self, act: Callable[[], T]) -> T:
        """Do a repeatable step, again and again through a short outage or a held job."""
        started = time.monotonic()
        while True:
            try:
                return act()
            except JobHeld:
                if time.monotonic() - started > HELD_PATIENCE_S:
                    raise
            except (StoreUnavailable, StoreBusy, OutcomeUnknown):
                if time.monotonic() - started > STORE_PATIENCE_S:
                    raise
            time.sleep(PAUSE_S)

    def _push(self, delivery: Delivery, error: str) -> Pushed:
        now = self.persist(self.now)
        after = failure(delivery.attempts, policy=self._policy, now=now)
        new = failed(
            delivery.raw,
            attempts=after.attempts,
            not_before=after.not_before,
            error=error,
            failed_at=now,
        )
        target = self._key_of(after.place)
        left = self.persist(lambda: self._lists.leave(self.worker, target, delivery.raw, new))
        if not left and not self._lists.stands(target, new):
            self._push_recovered(delivery, target, new)
        if after.place is Destination.DEAD_LETTER:
            self.tally.dead_lettered += 1
        return Pushed(delivery.job_id, after.attempts, after.place, after.not_before)

    def _push_recovered(self, delivery: Delivery, target: str, new: bytes) -> None:
        """Count the failure where the entry is now: it was taken off our list meanwhile."""
        retry = self.stores.settings.keys.retry
        if target == retry:
            found = self._lists.rewrite(retry, delivery.raw, new)
        else:
            found = self._lists.hand_over(retry, target, delivery.raw, new)
        where = "where it waits on retry" if found else "nowhere: somebody else has it in hand"
        self.say(f"{delivery.job_id} was recovered while it ran; this failure is counted {where}")

    def _reclaim(self, delivery: Delivery) -> StepResult:
        result = self.persist(
            lambda: reclaim(self.stores, delivery.job_id, operation_id=self.operation_id)
        )
        self._report(result)
        return result

    def _report(self, result: StepResult) -> None:
        if result.outcome not in APPLIED | ALREADY:
            self.tally.refused += 1
            detail = f" ({result.detail})" if result.detail else ""
            self.say(f"{result.step} of {result.job_id} was refused: {result.outcome}{detail}")

    def _drop(self, delivery: Delivery) -> None:
        self.persist(lambda: self._lists.drop(self.worker, delivery.raw))

    def _leave_unchanged(self, raw: bytes) -> None:
        dead = self.stores.settings.keys.dead_letter
        self.persist(lambda: self._lists.leave(self.worker, dead, raw, raw))
        self.tally.dead_lettered += 1

    def _put_back(self, raw: bytes, name: str) -> None:
        retry = self.stores.settings.keys.retry
        if self._lists.leave(self.worker, retry, raw, raw):
            self.tally.put_back += 1
            self.say(f"{name} was put back on {retry}, untouched")

    def _sweep(self) -> bool:
        """Put back all entries of our own list; True only when it is seen to be empty."""
        own = self._lists.processing_key(self.worker)
        try:
            for raw in self.stores.queues.page(own, 0, IN_HAND_MAX):
                payload = read_payload(raw)
                self._put_back(raw, payload.job_id if isinstance(payload, Payload) else "an entry")
            left = self.stores.queues.length(own)
            why = f"{left} entries could not be put back"
        except LedgerctlError as error:
            left, why = None, error.message
        if left == 0:
            return True
        self.say(
            f"a job may stay on {own} ({why});"
            " `ledgerctl queue recover --older-than 0s` brings it back"
        )
        return False

    def _key_of(self, place: Destination) -> str:
        keys = self.stores.settings.keys
        return keys.dead_letter if place is Destination.DEAD_LETTER else keys.retry

    def _begin_operation(self) -> Operation:
        settings = self.stores.settings
        operation = Operation(
            log=self.stores.operator_log,
            clock=self.stores.mongo.now,
            command=f"worker {self.worker}",
            operator=settings.operator,
            profile=settings.profile,
        )
        operation.begin()
        return operation


@dataclass(frozen=True, slots=True)
class HandlerRun:
    """Describe one run of a handler: how it ended, how long it took and what followed."""

    job_id: str
    attempt: int  # 1 for the first
    ending: Ending
    duration: timedelta
    result: StepResult | Pushed


def ignore_run(_run: HandlerRun) -> None:
    """Tell nobody about a run."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Describe when a run of the worker loop ends."""

    watch: bool = False  # goes on when nothing is due
    jobs_max: int | None = None


def work(
    queue: RetryQueue,
    handler: Handler,
    *,
    limits: Limits,
    stopping: Callable[[], bool],
    tell: Callable[[HandlerRun], None] = ignore_run,
) -> None:
    """Run a command for each due job until a limit, a stop or, unless watching, nothing is due.

    A job in hand when a stop is asked for is run to its end first; `tell` gets each run. Raises
    what a store raises, and UsageError for a handler that cannot be started; the queue's own exit
    puts back what is in hand.
    """
    while not stopping():
        if limits.jobs_max is not None and queue.tally.jobs >= limits.jobs_max:
            return
        step = queue.advance()
        if isinstance(step, Delivery):
            tell(run_one(queue, handler, step))
        elif step is None:
            if not limits.watch:
                return
            queue.wait(stopping)


def run_one(queue: RetryQueue, handler: Handler, delivery: Delivery) -> HandlerRun:
    """Run the handler for one job in hand and write its outcome. Raises UsageError without a start."""
    started = time.monotonic()
    ending = handler.run(
        delivery.raw,
        {"LEDGERCTL_JOB_ID": delivery.job_id, "LEDGERCTL_ATTEMPTS": str(delivery.attempts)},
    )
    if ending.code in NOT_STARTED:
        queue.put_back(delivery)
        raise UsageError(
            f"the handler cannot be started: {ending.error}",
            hint=f"fix --exec; {delivery.job_id} was put back as it was",
        )
    duration = timedelta(seconds=round(time.monotonic() - started, 3))
    result = queue.succeeded(delivery) if ending.succeeded else queue.failed(delivery, ending.error)
    return HandlerRun(delivery.job_id, delivery.attempts + 1, ending, duration, result)


def worker_name() -> str:
    """Return a name that no other process has or will have: host, process, eight random digits."""
    host = "".join(one if one.isalnum() or one in "-." else "-" for one in socket.gethostname())
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
