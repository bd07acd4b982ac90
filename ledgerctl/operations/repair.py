"""Repairs: what the audit finds and the rows prove is put right, each step under its own guard."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Any, TypeAlias, TypeVar, assert_never

from ledgerctl.domain.findings import Case, Code
from ledgerctl.domain.ids import chunks
from ledgerctl.domain.jobs import (
    ALREADY,
    Append,
    Flag,
    Job,
    Step,
    StepResult,
    decide_reclaim,
    decide_refund,
)
from ledgerctl.domain.repair import Mend, Repair, RepairStep, plan
from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.domain.rows import RowType, row_id
from ledgerctl.errors import InvariantBroken
from ledgerctl.operations.audit import Audit, Scope
from ledgerctl.operations.cases import ids, load, without_message
from ledgerctl.operations.steps import (
    IN_FLIGHT,
    LOOK_AGAIN_S,
    TOGETHER_MAX,
    StepRequest,
    complete_row,
    flag_time,
    look,
    missing_row,
    shared_errors,
    side_by_side,
)
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import LEDGER_UNIQUE

T = TypeVar("T")
RepairRun: TypeAlias = "Run[RepairNote]"
LOADED = TOGETHER_MAX * IN_FLIGHT  # jobs read together before their repairs
ROUNDS_MAX = 4  # looks at one job: a row appended in one is what proves a flag's time in the next
STEP_OF = {RowType.REFUND: Step.REFUND, RowType.RECLAIM: Step.RECLAIM}
FLAG_OF = {RowType.REFUND: "refunded", RowType.RECLAIM: "reclaimed"}


@dataclass(slots=True)
class RepairSelection:
    """Describe what a repair would touch: the ids of jobs, and of rows that name none, in order."""

    jobs: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    repairs: int = 0
    young: int = 0  # younger than the grace: left to whoever is at work

    def preview(self) -> "Result[RepairNote]":
        """Say what a repair of this selection counts before it has done anything."""
        return Result(fates=Counter({Fate.LEFT: self.young}))


@dataclass(frozen=True, slots=True)
class RepairNote:
    """Hold one thing that a repair has to tell: a row dated now, or why a step was refused."""

    text: str
    refused: bool = False


@dataclass(slots=True)
class Repairer:
    """Repair a scope; leave findings younger than `grace` to live workers.

    Rows are appended by the code of the guarded steps, under the same ids, so that a repair, a
    second repair and a worker can only ever write one.
    """

    stores: Stores
    scope: Scope
    grace: timedelta
    progress: Callable[[str], None] | None = None
    _unique: bool | None = None
    _selected_at: float = field(default_factory=time.monotonic)

    @property
    def index_is_unique(self) -> bool:
        """Return whether the server itself keeps a second row out."""
        if self._unique is None:
            self._unique = self.stores.indexes.guards(LEDGER_UNIQUE)
        return self._unique

    # looking

    def planned(self) -> Iterator[Repair]:
        """Yield every repair of the scope, ripe or not; changes nothing."""
        for case in Audit(self.stores, self.scope, self.progress).cases():
            yield from self._wanted(case)

    def select(self) -> RepairSelection:
        """Return what is ripe for repair now."""
        selection = RepairSelection()
        now = self.stores.mongo.now()
        for repair in self.planned():
            if not self.is_ripe(repair, now):
                selection.young += 1
                continue
            selection.repairs += 1
            job_id = repair.finding.job_id
            ids, name = (
                (selection.rows, repair.finding.row_ids[0])
                if job_id is None
                else (selection.jobs, job_id)
            )
            if not ids or ids[-1] != name:
                ids.append(name)
        self._selected_at = time.monotonic()
        return selection

    def _wanted(self, case: Case) -> Iterator[Repair]:
        for repair in plan(case):
            if not self.scope.codes or repair.finding.code in self.scope.codes:
                yield repair

    def judged(self) -> Iterator[tuple[Repair, bool]]:
        """Yield every repair of the scope, and whether it is older than the grace."""
        now = self.stores.mongo.now()
        return ((one, self.is_ripe(one, now)) for one in self.planned())

    def is_ripe(self, repair: Repair, now: datetime) -> bool:
        """Return whether it is older than the grace."""
        return repair.is_ripe(now, self.grace)

    # doing

    def apply(self, selection: RepairSelection, run: RepairRun) -> None:
        """Heal what was selected; each job is read again, and each step keeps its guard."""
        run.result.fates[Fate.LEFT] += selection.young
        run.result.not_tried = len(selection.jobs) + len(selection.rows)
        for cases in self._cases(selection):
            if run.stopping():
                return
            self._mend(cases, run)
            run.result.not_tried -= len(cases)

    def _cases(self, selection: RepairSelection) -> Iterator[list[Case]]:
        for some in chunks(selection.jobs, LOADED):
            yield self.stores.mongo.patiently(partial(load, self.stores, some))
        for some in chunks(selection.rows, LOADED):
            rows = self.stores.ledger.among(some)
            missing = without_message(self.stores, rows)
            now = self.stores.mongo.now()
            yield [Case(None, (), (row,), now, missing & ids([row])) for row in rows]

    def _mend(self, cases: list[Case], run: RepairRun) -> None:
        """Heal cases, looking again after each round for what has become provable."""
        done: set[tuple[str | None, Code, str]] = set()
        for _ in range(ROUNDS_MAX):
            fresh = [
                [one for one in self._ripe(case, run) if key_of(one) not in done] for case in cases
            ]
            healings = [[Healing(one) for one in some] for some in fresh if some]
            if not healings:
                return
            done.update(key_of(one) for some in fresh for one in some)
            self._heal(healings, run)
            texts = [
                case.job_id for case, some in zip(cases, fresh, strict=True) if some and case.job_id
            ]
            cases = self.stores.mongo.patiently(partial(load, self.stores, texts)) if texts else []

    def _ripe(self, case: Case, run: RepairRun) -> Iterator[Repair]:
        for one in self._wanted(case):
            if self.is_ripe(one, case.now) or rests_on(one, run.operation_id):
                yield one

    def _heal(self, by_case: "list[list[Healing]]", run: RepairRun) -> None:
        """Heal each case, several at a time; count what was done, whatever ends it."""
        healings = [one for some in by_case for one in some]
        rows = [one for one in healings if one.repair.steps[0].mend is Mend.APPEND_ROW]
        try:
            if len(rows) > 1 and self.stores.mongo.transactions and self.index_is_unique:
                groups = list(chunks(rows, TOGETHER_MAX))
                side_by_side(partial(self._append_together, run), groups)
            side_by_side(partial(self._heal_case, run), by_case)
        finally:
            for one in healings:
                one.count(run.result)

    def _append_together(self, run: RepairRun, healings: "Sequence[Healing]") -> None:
        """Append rows of several jobs in one transaction; `_append` does what hinders it."""
        steps = [one.repair.steps[0] for one in healings]
        with shared_errors([]):
            requests = [self._request(one, run) for one in steps]
            looks = zip(healings, requests, look(self.stores, requests), strict=True)
            rows = [
                (one, missing_row(self.stores, request, job, decision))
                for one, request, (job, decision) in looks
                if job is not None and isinstance(decision, Append) and decision.complete
            ]
            if rows:
                append = partial(self.stores.ledger.append, [row for _, row in rows])
                self.stores.mongo.together(f"append {len(rows)} rows", append, once=True)
                for one, _ in rows:
                    one.effects.append(RepairEffect.WROTE)

    def _heal_case(self, run: RepairRun, healings: "Sequence[Healing]") -> None:
        for one in healings:
            for step in one.steps_left:
                effect = self.stores.mongo.patiently(partial(self._apply, step, run))
                one.effects.append(effect)
                if isinstance(effect, Refusal):
                    break

    def _apply(self, step: RepairStep, run: RepairRun) -> "RepairEffect | Refusal":
        """Do one step under its guard."""
        match step.mend:
            case Mend.APPEND_ROW:
                return self._append(step, run)
            case Mend.PUT_MESSAGE:
                wrote = self.stores.outbox.add([required(step.row)])
            case Mend.SET_FLAG:
                wrote = self._set_flag(step)
            case Mend.CLEAR_FLAG:
                wrote = self.stores.jobs.clear_absent_flag(required(step.job).id, flag_of(step))
            case Mend.SET_FLAG_TIME:
                at = required(step.at)
                wrote = self.stores.jobs.date_flag(required(step.job).id, flag_of(step), at=at)
            case other:
                assert_never(other)
        return RepairEffect.WROTE if wrote else RepairEffect.NEEDLESS

    def _set_flag(self, step: RepairStep) -> bool:
        """Set a flag that a row proves; never a reclaim's on a job that is not refunded."""
        seen = self.stores.jobs.get(required(step.job).id)  # the step before it may have set one
        if seen is None:
            return False
        if step.row_type == RowType.RECLAIM and seen.refunded is not Flag.SET:
            return False
        at = None if flag_time(step_of(step), seen) else step.at
        return self.stores.jobs.set_proven_flag(seen, flag_of(step), at=at)

    def _append(self, step: RepairStep, run: RepairRun) -> "RepairEffect | Refusal":
        """Append the row that a set flag calls for, by the code of the guarded steps."""
        job_id = required(step.job).id
        if step.at is None and not self.index_is_unique:
            self._wait_for_the_slow()
        job = self.stores.jobs.get(job_id)
        decision = self._decision(step, job)
        if job is None or not isinstance(decision, Append) or not decision.complete:
            return RepairEffect.NEEDLESS  # another writer has done it
        return effect_of(complete_row(self.stores, self._request(step, run), job, decision))

    def _request(self, step: RepairStep, run: RepairRun) -> StepRequest:
        return StepRequest(step_of(step), required(step.job).id.text, run.operation_id, run.reason)

    def _wait_for_the_slow(self) -> None:
        """Wait until a worker between flag and row has had time: such a flag has no age."""
        time.sleep(max(0.0, self._selected_at + LOOK_AGAIN_S - time.monotonic()))

    def _decision(self, step: RepairStep, job: Job | None) -> Any:
        if job is None:
            return None
        rows = self.stores.ledger.of_job(job.id.text)
        return (decide_refund if step.row_type == RowType.REFUND else decide_reclaim)(job, rows)


class RepairEffect(Enum):
    """Name what came of one repair step."""

    WROTE = auto()
    NEEDLESS = auto()  # somebody else has done it, or the guard found another state


@dataclass(frozen=True, slots=True)
class Refusal:
    """Describe why a repair step could not be done, in one sentence."""

    why: str


@dataclass(slots=True)
class Healing:
    """Hold one repair of a round, and what came of its steps so far."""

    repair: Repair
    effects: list[RepairEffect | Refusal] = field(default_factory=list)

    @property
    def steps_left(self) -> Sequence[RepairStep]:
        """Return the steps that were not tried yet."""
        return self.repair.steps[len(self.effects) :]

    def count(self, result: Result[RepairNote]) -> None:
        """Count the steps that wrote, and the repair if it came to its end."""
        wrote = False
        for step, effect in zip(self.repair.steps, self.effects, strict=False):
            if isinstance(effect, Refusal):
                result.items.append(RepairNote(effect.why, refused=True))
                result.fates[Fate.REFUSED] += 1
                return
            if effect is RepairEffect.WROTE:
                wrote = True
                result.count(str(step.mend))
                if step.mend is Mend.APPEND_ROW and step.at is None:
                    row_type = required(step.row_type)
                    result.items.append(RepairNote(row_id(required(step.job).id, row_type)))
        if wrote and not self.steps_left:
            result.count("repaired", fate=Fate.DONE)
        elif not self.steps_left:
            result.fates[Fate.LEFT] += 1


def effect_of(result: StepResult) -> RepairEffect | Refusal:
    """Return what came of appending a row."""
    if result.applied:
        return RepairEffect.WROTE
    if result.outcome in ALREADY:
        return RepairEffect.NEEDLESS
    return Refusal(f"job {result.job_id}: {result.outcome}, {result.detail}")


def rests_on(repair: Repair, operation_id: str) -> bool:
    """Return whether all of it rests on rows that this very operation wrote."""
    rows = [step.row for step in repair.steps]
    return bool(rows) and all(row and row.operation_id == operation_id for row in rows)


def key_of(repair: Repair) -> tuple[str | None, Code, str]:
    """Return what tells two repairs apart."""
    found = repair.finding
    return found.job_id, found.code, found.about or ",".join(found.row_ids)


def step_of(step: RepairStep) -> Step:
    """Return the guarded step whose flag or row this is about."""
    return STEP_OF[required(step.row_type)]


def flag_of(step: RepairStep) -> str:
    """Return the flag that this is about: `refunded` or `reclaimed`."""
    return FLAG_OF[required(step.row_type)]


def required(value: T | None) -> T:
    """Return what a repair plan always gives."""
    if value is None:
        raise InvariantBroken("a repair step lacks what it is about")
    return value
