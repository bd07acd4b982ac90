"""The writes of the guarded steps: flag, row and message together, or none of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bson.errors import BSONError
from pymongo.client_session import ClientSession

from ledgerctl.domain.rows import NewRow
from ledgerctl.errors import InvariantBroken
from ledgerctl.stores.jobs import Guarded, Jobs
from ledgerctl.stores.mongo import PATIENCE_S, Mongo

Append = Callable[[Sequence[NewRow], ClientSession | None], None]


class GuardMissed(Exception):
    """A guard matched nothing: somebody was faster; the transaction is given up."""


@dataclass(frozen=True, slots=True)
class StepWrite:
    """One step to be written: what it is called, its conditional write on the job, its row."""

    action: str
    guard: Guarded
    row: NewRow


class StepWrites:
    """Lands guarded steps."""

    def __init__(self, mongo: Mongo, jobs: Jobs, append: Append) -> None:
        """`append` appends rows with their messages."""
        self._mongo = mongo
        self._jobs = jobs
        self._append = append

    def land(
        self,
        writes: Sequence[StepWrite],
        *,
        patience_s: float = PATIENCE_S,
        once: bool = False,
    ) -> bool:
        """Write every flag, then every row, then every message; False when a guard matched nothing.

        With transactions all of it lands or none does; without them only one step may be given.
        While somebody else's transaction is in the way it is tried again, for `patience_s` in all;
        with `once` that raises Conflicted.
        Raises RowTaken when a row's identity stands already, JobHeld, StoreUnavailable,
        OutcomeUnknown, NotPermitted.
        """
        rows = [write.row for write in writes]
        guards = [write.guard for write in writes]

        def body(session: ClientSession | None) -> None:
            if self._jobs.pass_guards(guards, session) < len(guards):
                raise GuardMissed
            self._append(rows, session)

        action = writes[0].action if len(writes) == 1 else f"write {len(writes)} steps"
        try:
            self._mongo.together(action, body, patience_s=patience_s, once=once)
        except GuardMissed:
            return False
        except BSONError as error:
            raise InvariantBroken(f"cannot {action}: {error}") from None
        return True
