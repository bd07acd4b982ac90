"""Reviewing dead letters one by one: each decision is a chunk of one operation, and can be undone."""

from dataclasses import dataclass, field
from datetime import datetime

from ledgerctl.domain.dead import Action, Letter, RequeuePolicy, Way
from ledgerctl.domain.dead_results import LetterPage
from ledgerctl.operations.dead import job_page
from ledgerctl.operations.dead_moves import Move, writer
from ledgerctl.operations.dead_restore import Restore, taken_by
from ledgerctl.stores.connections import Stores


@dataclass(slots=True)
class Review:
    """One person's review. The operation can also be restored as a whole, with `dead restore`."""

    stores: Stores
    operation_id: str
    policy: RequeuePolicy
    own_now: datetime
    _chunks: list[int] = field(default_factory=list)  # of the decisions that were not undone
    _last: int = 0
    _order: int = 0

    def page(self, letter: Letter) -> LetterPage:
        """The letter with its job and its ledger rows."""
        job, trouble = job_page(self.stores, letter.job_id, self.stores.mongo.now())
        return LetterPage((letter,), (), job, trouble)

    def take(self, letter: Letter, action: Action) -> bool:
        """Requeue or release one letter; False when somebody else has taken it."""
        now = self.stores.queues.now(self.own_now)
        move = Move(
            stores=self.stores,
            operation_id=self.operation_id,
            moving=[letter],
            write=writer(action, self.policy, now, 1),
            found=(),
            at=self.stores.mongo.now(),
            way=Way.SCATTER,
            chunk=self._last,
            first=self._order,
        )
        taken = bool(move.run().taken)
        self._last = move.chunk
        if taken:
            self._order += 1
            self._chunks.append(self._last)
        return taken

    def undo_last(self) -> bool:
        """Put the last decision's letter back; False when it has left the retry queue."""
        number = self._chunks.pop()
        chunks = [
            chunk for chunk in taken_by(self.stores, self.operation_id) if chunk.number == number
        ]
        restore = Restore(
            self.stores, self.operation_id, self.operation_id, chunks, stopping=lambda: False
        )
        return restore.run().restored == 1
