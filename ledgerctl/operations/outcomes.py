"""Guided requeue and `log outcome`: look at what the money says of requeued letters."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ledgerctl.domain.dead import Archived, Plan
from ledgerctl.domain.jobs import State
from ledgerctl.domain.outcomes import (
    Guide,
    LetterFate,
    RampStep,
    Sighting,
    Watched,
    counted,
    fate_of,
)
from ledgerctl.domain.payload import Payload, digest, read_payload
from ledgerctl.domain.results import Run
from ledgerctl.domain.sieve import name_of
from ledgerctl.errors import LeaseHeld
from ledgerctl.operations.dead import Request, leased, plan
from ledgerctl.operations.dead_moves import TAKEN, Move, report
from ledgerctl.operations.dead_restore import operation_entry, taken_by
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.leases import Lease

LOOK_EVERY_S = 1.0
SLICE_S = 0.1  # how soon a signal is seen
LEASE_PATIENCE_S = 30.0  # another operator's step is short


@dataclass(slots=True)
class Guided:
    """Requeue in steps; after each one wait for the fates of its letters, and go on or stop.

    The lease of a filter is held only while a step moves. Source: contract, section 3, dead.
    """

    stores: Stores
    moving: Move
    guide: Guide
    run: Run[Any]
    lease: Callable[[], AbstractContextManager[Lease | None]]
    clock: Callable[[], datetime]
    steps: list[RampStep] = field(default_factory=list)
    stopped_by: str | None = None
    _stood: frozenset[int] = frozenset()
    _watched: dict[int, list[Watched]] = field(default_factory=dict)  # by step
    _chunk: int = 0

    def carry_out(self) -> None:
        """Move the plan's letters step by step, until none is left or something stops it."""
        self._stood = frozenset(
            name_of(raw)
            for key in self.stores.dead_letters.lists()
            for raw in self.stores.queues.read_all(key)
        )
        try:
            while self.stopped_by is None and self._left:
                self.steps.append(RampStep(self.clock()))
                self._step(self.guide.size(len(self.steps) - 1))
        except BaseException:
            self.stopped_by = "error"
            raise
        finally:
            self._note()

    @property
    def _left(self) -> int:
        return self.moving.not_tried

    def _step(self, size: int) -> None:
        """Move one step, never more than may be in flight, and wait for its letters."""
        due = self.clock()
        tried = 0
        while tried < size and self._left and self.stopped_by is None:
            room = size - tried
            if self.guide.in_flight is not None:
                room = min(room, self.guide.in_flight - sum(one.undecided for one in self.steps))
            if room > 0:
                before = self._left
                due = self._move(room)
                tried += max(1, before - self._left)
            self._look(due + self.guide.wait if room <= 0 else None)
        while self.stopped_by is None and self.steps[-1].undecided:
            self._look(due + self.guide.wait)
            if self.clock() >= due + self.guide.wait:
                break
        self._note()

    def _move(self, letters: int) -> datetime:
        """Move so many letters under the lease; return when the last of them is due."""
        deadline = time.monotonic() + LEASE_PATIENCE_S
        while True:
            try:
                with self.lease() as lease:
                    self.moving.lease, self.moving.now = lease, self.clock()
                    self.moving.at = self.stores.mongo.now()
                    self.moving.run(letters)
                break
            except LeaseHeld:
                if time.monotonic() > deadline or self.run.stopping():
                    raise
                time.sleep(LOOK_EVERY_S / 2)
        moved = list(self._newly_moved())
        self._watched.setdefault(len(self.steps) - 1, []).extend(moved)
        self.steps[-1].moved += len(moved)
        plan = self.moving.plan
        last = max((one.order for one in moved), default=0)
        return plan.policy.due(self.moving.now, last, self.moving.first + len(plan.moving))

    def _newly_moved(self) -> Iterator[Watched]:
        """Yield what the last move has put on retry, from the archive."""
        after, self._chunk = self._chunk, self.moving.chunk
        operation_id, plan = self.moving.operation_id, self.moving.plan
        for archived in self.stores.archive.of_operation(operation_id, after=after):
            one = watched(archived, plan)
            if one is not None and self.moving.fates[one.order] == TAKEN:
                yield one

    def _look(self, deadline: datetime | None) -> None:
        """Wait a second, look at every letter without a fate, and judge the step."""
        began = time.monotonic()
        while time.monotonic() - began < LOOK_EVERY_S and not self.run.stopping():
            time.sleep(SLICE_S)
        open_steps = [at for at, step in enumerate(self.steps) if step.undecided or not step.fates]
        looked = {at: self._watched.get(at, []) for at in {*open_steps, len(self.steps) - 1}}
        letters = [one for some in looked.values() for one in some]
        fates = fates_of(self.stores, letters, stood=self._stood)
        for at, some in looked.items():
            self.steps[at].fates.clear()
            self.steps[at].fates.update(fates[one.order] for one in some)
        self._judge(deadline)

    def _judge(self, deadline: datetime | None) -> None:
        step = self.steps[-1]
        words = ", ".join(f"{number} {fate}" for fate, number in step.fates.items() if number)
        self.run.progress(f"step {len(self.steps)}: {step.moved} moved, {words or 'no fate yet'}")
        if self.run.stopping():
            self.stopped_by = "interrupted"
        elif step.is_over(self.guide.stop_over_percent):
            self.stopped_by = "failures"
        elif deadline is not None and self.clock() >= deadline and step.has_no_outcome:
            self.stopped_by = "no_outcome"

    def _note(self) -> None:
        """Keep the steps in the operator log: a lost terminal loses nothing."""
        documents = [
            {"at": one.at, "moved": one.moved, **counted(one.fates.elements())}
            for one in self.steps
        ]
        self.stores.operator_log.note(self.moving.operation_id, {"steps": documents})


def carry_out_guided(
    stores: Stores,
    request: Request,
    made: Plan,
    run: Run[Any],
    *,
    guide: Guide,
    operator: str,
    clock: Callable[[], datetime],
) -> None:
    """Requeue a plan's letters in guided steps; the result is true however it ends.

    Its items are the plan as carried out, and the guided run.
    """
    with leased(stores, operator=operator, needed=False):
        pass  # puts back what a dead owner passed over
    made = plan(stores, request, shown=False, only=made.selected.once_each())
    run.result.items.append(made)
    moving = Move(stores, run.operation_id, made, now=clock(), at=stores.mongo.now())
    moving.stopping = run.stopping
    needed = request.selection.is_filter
    guided = Guided(
        stores,
        moving,
        guide,
        run,
        lease=lambda: leased(stores, operator=operator, needed=needed, passed=False),
        clock=clock,
    )
    try:
        guided.carry_out()
    finally:
        report(made, moving, run.result)
        run.result.alarm = guided.stopped_by in {"failures", "no_outcome"}
        run.result.items.append(guided)


def watched(archived: Archived, plan: Plan | None = None) -> Watched | None:
    """Return what to watch of an archived letter; None for one that did not go to retry.

    Without its plan nobody knows the attempts that were written: any count is one more.
    """
    if archived.written_sha256 is None or archived.job_id is None:
        return None
    payload = read_payload(archived.payload)
    read = payload if isinstance(payload, Payload) else None
    attempts = 0 if plan is None else plan.policy.attempts
    return Watched(
        order=archived.order,
        job_id=archived.job_id,
        attempts=(0 if read is None else read.attempts) if attempts is None else attempts,
        digest=digest(archived.payload),
        error=None if read is None else read.error,
        taken=name_of(archived.payload),
        written=int.from_bytes(archived.written_sha256[:8]),
        at=archived.at,
    )


def fates_of(
    stores: Stores, letters: Sequence[Watched], *, stood: Collection[int] | None
) -> dict[int, LetterFate]:
    """Tell the fate of each letter by one read of the lists and one look at the jobs."""
    wanted = {one.job_id for one in letters}
    queues, keys = stores.queues, stores.queues.keys
    dead = sightings(stores, stores.dead_letters.lists(), wanted)
    alive = sightings(stores, [keys.retry, *queues.processing_keys()], wanted)
    statuses = stores.jobs.statuses(wanted)
    done = {
        text
        for text, status in statuses.items()
        if status.succeeded or status.state is State.RECLAIMED
    }
    return {
        one.order: fate_of(
            one, dead[one.job_id], alive[one.job_id], succeeded=one.job_id in done, stood=stood
        )
        for one in letters
    }


def sightings(
    stores: Stores, lists: Iterable[str], wanted: Collection[str]
) -> "defaultdict[str, list[Sighting]]":
    """Find the entries of these jobs on these lists."""
    found: defaultdict[str, list[Sighting]] = defaultdict(list)
    for key in lists:
        for raw in stores.queues.read_all(key):
            payload = read_payload(raw)
            if isinstance(payload, Payload) and payload.job_id in wanted:
                found[payload.job_id].append(
                    Sighting(name_of(raw), payload.attempts, payload.failed_at)
                )
    return found


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """Hold what became of the letters that one operation put on retry."""

    operation_id: str
    command: str
    at: datetime
    letters: list[Watched]
    fates: dict[int, LetterFate]
    has_notes: bool  # False: this server knows nothing of the operation any more


def outcome_of(stores: Stores, operation_id: str) -> OperationOutcome:
    """Tell the fates of what any requeue moved, whenever it is asked.

    Raises NotFound for an unknown operation, Refused for one that took no dead letters.
    """
    entry = operation_entry(stores, operation_id)
    chunks = taken_by(stores, operation_id)
    away = [chunk.letters[at] for chunk in chunks for at in chunk.away]
    found = [one for one in map(watched, away) if one is not None]
    fates = fates_of(stores, found, stood=None)
    return OperationOutcome(operation_id, entry["command"], entry["at"], found, fates, bool(chunks))
