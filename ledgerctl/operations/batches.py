"""One guarded step for many jobs: several at a time, each counted, stopped between two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import ALREADY, Outcome, Step, StepResult, fate_of
from ledgerctl.domain.results import Result, Run
from ledgerctl.errors import JobHeld
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


@dataclass(frozen=True, slots=True)
class Batch:
    """Take one step for several jobs."""

    stores: Stores
    step: Step
    ids: Sequence[str]
    force: bool = False
    account: str | None = None
    cost: int | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)  # by id; "" takes the operation's

    def preview(self) -> Result[StepResult]:
        """Say what each step would do, changing nothing."""
        owner = self._owner()
        result: Result[StepResult] = Result()
        for job_id in self.ids:
            keep(result, preview(self.stores, self._request(job_id, "", None, owner)))
        return result

    def apply(self, run: Run[StepResult]) -> None:
        """Take the steps, several at a time; a job that is held is passed over, any other error ends it."""
        owner = self._owner()
        requests = [
            self._request(job_id, run.operation_id, run.reason, owner) for job_id in self.ids
        ]
        try:
            for start in range(0, len(requests), TOGETHER_MAX):
                self._chunk(list(map(Taking, requests[start : start + TOGETHER_MAX])), run)
        finally:
            run.result.not_tried = len(requests) - len(run.result.items)

    def _chunk(self, takings: Sequence[Taking], run: Run[StepResult]) -> None:
        try:
            if len(takings) > 1 and self.stores.mongo.transactions and not run.stopping():
                take_together(self.stores, takings)
            for taking in takings:
                if taking.error is not None:
                    raise taking.error
                if taking.result is None and not run.stopping():
                    self._alone(taking, run.result)
        finally:
            for taking in takings:
                if taking.result is not None:
                    keep(run.result, taking.result)

    def _alone(self, taking: Taking, result: Result[StepResult]) -> None:
        """Take one step; a killed client may hold a whole chunk, so only the first is waited for long."""
        patience_s = PATIENCE_S if result.error is None else NEXT_PATIENCE_S
        try:
            taking.result = take_alone(self.stores, taking, patience_s=patience_s)
        except JobHeld as error:
            result.error = error

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


def keep(result: Result[StepResult], item: StepResult) -> None:
    """Add one step's result, and count its outcome for the log and for the exit code."""
    result.items.append(item)
    result.count(count_name(item.outcome), fate=fate_of(item.outcome))


def count_name(outcome: Outcome) -> str:
    """The count of the operator log that an outcome goes into."""
    if outcome in ALREADY:
        return "unchanged"
    return {Outcome.APPLIED: "applied", Outcome.COMPLETED: "applied"}.get(outcome, str(outcome))
