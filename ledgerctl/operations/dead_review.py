"""Review of dead letters one by one: each decision is a chunk of one operation, and can be undone."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from ledgerctl.domain.dead import Action, Letter, LetterPage, Plan, RequeuePolicy, Selection
from ledgerctl.domain.removal import RemovalStrategy
from ledgerctl.domain.results import Result, Run
from ledgerctl.operations.dead import job_page
from ledgerctl.operations.dead_moves import Move
from ledgerctl.operations.dead_restore import Restorable, restore, taken_by
from ledgerctl.stores.connections import Stores


@dataclass(slots=True)
class Review:
    """One person's review; the operation can also be restored as a whole, with `dead restore`."""

    stores: Stores
    operation_id: str
    policy: RequeuePolicy
    own_now: datetime
    reason: str | None = None
    _chunks: list[int] = field(default_factory=list)  # of the decisions that were not undone
    _last: int = 0
    _order: int = 0

    def page(self, letter: Letter) -> LetterPage:
        """Give the letter with its job and its ledger rows."""
        job, error = job_page(self.stores, letter.job_id, self.stores.mongo.now())
        return LetterPage((letter,), (), job, error)

    def take(self, letter: Letter, action: Action) -> bool:
        """Requeue or release one letter; False when somebody else has taken it."""
        made = Plan(action, Selection(everything=True), replace(self.policy, force=True))
        made.entry_bytes = len(letter.raw)
        made.length = self.stores.queues.length(self.stores.dead_letters.key)
        made.add(letter)
        move = Move(
            self.stores,
            self.operation_id,
            made,
            now=self.stores.queues.now(self.own_now),
            at=self.stores.mongo.now(),
            strategy=RemovalStrategy.SCATTER,
            chunk=self._last,
            first=self._order,
        )
        move.run()
        self._last = move.chunk
        if move.moved:
            self._order += 1
            self._chunks.append(self._last)
        return move.moved == 1

    def keep_reason(self, reason: str) -> None:
        """Keep the reason of all releases of this review, in the operator log."""
        self.stores.operator_log.set_reason(self.operation_id, reason)
        self.reason = reason

    def undo_last(self) -> bool:
        """Put the last decision's letter back; False when it has left the retry queue."""
        number = self._chunks.pop()
        chunks = [
            chunk for chunk in taken_by(self.stores, self.operation_id) if chunk.number == number
        ]
        run: Run[None] = Run(
            self.operation_id, None, Result(), stopping=lambda: False, progress=lambda _text: None
        )
        restore(self.stores, Restorable(self.operation_id, chunks), run)
        return run.result.counts.get("restored") == 1
