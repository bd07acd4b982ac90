"""One guarded step for many jobs: several at a time, each counted, stopped between two."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import ALREADY, APPLIED, Outcome, Step, StepResult, exit_code
from ledgerctl.errors import ExitCode, JobHeld, LedgerctlError, OutcomeUnknown
from ledgerctl.operations.log import Operation
from ledgerctl.operations.steps import (
    TOGETHER_MAX,
    Request,
    Taking,
    preview,
    take_alone,
    take_together,
)
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.mongo import PATIENCE_S

NEXT_PATIENCE_S = 0.5  # with a job that is held, after one that was


@dataclass(slots=True)
class BatchOutcome:
    """What came of each id, and what ended the run before the last one, if anything."""

    done: dict[int, StepResult] = field(default_factory=dict)  # by the id's place
    not_tried: list[str] = field(default_factory=list)
    trouble: LedgerctlError | None = None

    @property
    def exit_code(self) -> int:
        """0, 3, 4 or 8 by the outcomes; 7, 8 or 9 when trouble came in between."""
        if isinstance(self.trouble, OutcomeUnknown) or (self.trouble and not self.reached):
            return int(self.trouble.exit_code)
        if self.trouble is not None:
            return int(ExitCode.PARTIAL)
        return int(exit_code(result.outcome for result in self.results))

    @property
    def results(self) -> list[StepResult]:
        """What came of the ids that were tried, in their order."""
        return [self.done[place] for place in sorted(self.done)]

    @property
    def ended(self) -> bool:
        """Whether the run must not go on: a job that is held is no reason."""
        return self.trouble is not None and not isinstance(self.trouble, JobHeld)

    @property
    def patience_s(self) -> float:
        """How long a job that is held is waited for: a killed client may hold a whole chunk."""
        return PATIENCE_S if self.trouble is None else NEXT_PATIENCE_S

    @property
    def reached(self) -> bool:
        """Whether any job is now as it was asked to be."""
        return any(one.outcome in APPLIED | ALREADY for one in self.done.values())

    def keep(self, error: LedgerctlError, left: Sequence[str]) -> None:
        """Keep trouble that came after the first success; raise it when nothing was reached."""
        if not self.reached and not isinstance(error, JobHeld):
            raise error
        self.trouble = error
        self.not_tried.extend(left)

    def trouble_document(self) -> dict[str, object] | None:
        """The trouble as a document, with the ids that were not tried."""
        if self.trouble is None:
            return None
        return {**self.trouble.document(), "not_tried": len(self.not_tried)}


@dataclass(frozen=True, slots=True)
class Batch:
    """One step to be taken for several jobs."""

    stores: Stores
    step: Step
    ids: Sequence[str]
    force: bool = False
    account: str | None = None
    cost: int | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)  # by id; "" takes the operation's

    def preview(self) -> list[StepResult]:
        """What each step would do, changing nothing."""
        owner = self._owner()
        return [preview(self.stores, self._request(job_id, "", None, owner)) for job_id in self.ids]

    def run(self, operation: Operation, *, stopping: Callable[[], bool]) -> BatchOutcome:
        """Take the steps, several at a time; a job that is held is passed over, other trouble ends it.

        Trouble is raised while nothing is done, and reported with the results afterwards.
        """
        outcome = BatchOutcome()
        owner = self._owner()
        requests = [
            self._request(job_id, operation.id, operation.reason, owner) for job_id in self.ids
        ]
        try:
            for start in range(0, len(requests), TOGETHER_MAX):
                chunk = dict(enumerate(map(Taking, requests[start : start + TOGETHER_MAX]), start))
                self._together(chunk, outcome, stopping)
                for place, taking in chunk.items():
                    if taking.result is None:
                        self._alone(place, taking, outcome, stopping)
        finally:
            for result in outcome.results:
                operation.count(count_name(result.outcome))
        if isinstance(outcome.trouble, JobHeld) and not outcome.results:
            raise outcome.trouble
        operation.exit_code = outcome.exit_code
        return outcome

    def _together(
        self, chunk: Mapping[int, Taking], outcome: BatchOutcome, stopping: Callable[[], bool]
    ) -> None:
        """Take in one transaction the steps that nothing is in the way of."""
        if len(chunk) == 1 or outcome.ended or stopping() or not self.stores.mongo.transactions:
            return
        take_together(self.stores, list(chunk.values()))
        for place, taking in chunk.items():
            if taking.result is not None:
                outcome.done[place] = taking.result
        for taking in chunk.values():
            if taking.error is not None:
                outcome.keep(taking.error, [])

    def _alone(
        self, place: int, taking: Taking, outcome: BatchOutcome, stopping: Callable[[], bool]
    ) -> None:
        job_id = taking.request.job_id
        if outcome.ended or stopping():
            outcome.not_tried.append(job_id)
            return
        try:
            outcome.done[place] = take_alone(self.stores, taking, patience_s=outcome.patience_s)
        except LedgerctlError as error:
            outcome.keep(error, [job_id])

    def _owner(self) -> Id | None:
        if self.account is None:
            return None
        return self.stores.ledger.account_id(self.account) or Id(self.account)

    def _request(
        self, job_id: str, operation_id: str, reason: str | None, owner: Id | None
    ) -> Request:
        return Request(
            step=self.step,
            job_id=job_id,
            operation_id=operation_id,
            reason=self.reasons.get(job_id) or reason,
            force=self.force,
            account=owner,
            cost=self.cost,
        )


def count_name(outcome: Outcome) -> str:
    """The count of the operator log that an outcome goes into."""
    if outcome in ALREADY:
        return "unchanged"
    return {Outcome.APPLIED: "applied", Outcome.COMPLETED: "applied"}.get(outcome, str(outcome))
