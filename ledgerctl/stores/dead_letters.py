"""Dead letters on Redis: taken, put back and restored by scripts that name exact bytes."""

import secrets
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from redis import exceptions as redis_errors

from ledgerctl.domain.removal import CHUNK_BYTES, Piece
from ledgerctl.errors import InvariantBroken, LedgerctlError, OutcomeUnknown
from ledgerctl.stores.queues import PAGE_BYTES, PAGE_ENTRIES_MAX, Call, Queues, Survey, evaluation

TRIES = 4  # of one script whose reply was lost; each waits for a reply of its own
PAUSE_S = 0.1
PUT_BACK_MAX = 1_000  # letters that one script puts back, each by one move from end to end
SLACK = 600  # entries towards the head among which a shifted letter is looked for
TAKEN, BEFORE, MISSING = 1, 2, 0
DONE: tuple[int, ...] = ()
PUT_BACK_TOGETHER = 24
GAP_MAX = 8  # entries between two letters that are read along with them

Taken = Sequence[int] | None | LedgerctlError
"""The picks of a piece that are not there; None where others stand at its ends; a refusal."""


class DeadLetters:
    """The list of dead letters, the lists of those passed over, and each operation's notes.

    Every change is one script, which checks the exact bytes it moves before it moves any, and
    notes the chunk's number in the same step: run twice it moves nothing twice. A script whose
    reply was lost is therefore simply run again; what stays unknown is OutcomeUnknown.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.key = queues.keys.dead_letter
        self.retry = queues.keys.retry

    # names

    def notes_key(self, operation_id: str) -> str:
        """The list of the chunk numbers that an operation took."""
        return f"{self.key}:op:{operation_id}"

    def passed_key(self, operation_id: str) -> str:
        """The list on which letters stand that an operation passed over."""
        return f"{self.key}:passed:{operation_id}"

    def restored_key(self, operation_id: str) -> str:
        """The list that says which of an operation's chunks were restored."""
        return f"{self.key}:restored:{operation_id}"

    # reading

    def lists(self) -> tuple[str, ...]:
        """The lists of letters, in order: those of passed ones first."""
        return (*self._queues.passed_keys(), self.key)

    def depth(self, survey: Survey | None = None) -> int:
        """Count all letters, those that a filter passed over included."""
        found = survey or self._queues.survey()
        return found.length + (sum(self._queues.lengths(*found.passed)) if found.passed else 0)

    def at(self, places: Sequence[int], entry_bytes: float) -> dict[int, bytes]:
        """Read the letters at these places, in rising order, in one round trip."""
        most = max(1, min(PAGE_ENTRIES_MAX, int(PAGE_BYTES / max(1, entry_bytes))))
        wanted: list[tuple[int, int]] = []
        for place in places:
            start, count = wanted[-1] if wanted else (place, 0)
            if not wanted or place - start >= most or place - start - count > GAP_MAX:
                wanted.append((place, 1))
            else:
                wanted[-1] = (start, place - start + 1)
        pages = self._queues.stretches(self.key, wanted) if wanted else []
        return {
            start + at: raw
            for (start, _), page in zip(wanted, pages, strict=True)
            for at, raw in enumerate(page)
        }

    def stretch(self, start: int, count: int, entry_bytes: float) -> list[bytes]:
        """Read `count` letters from this place on, or as many as there are, in one round trip."""
        most = max(1, min(PAGE_ENTRIES_MAX, int(PAGE_BYTES / max(1, entry_bytes))))
        starts = range(start, start + count, most)
        wanted = [(at, min(most, start + count - at)) for at in starts]
        return list(chain.from_iterable(self._queues.stretches(self.key, wanted)))

    def head(self, count: int) -> list[bytes]:
        """The letters nearest the head."""
        return self._queues.page(self.key, 0, count)

    def noted(self, operation_id: str) -> list[str]:
        """The chunk numbers that an operation took and nobody restored."""
        return [
            raw.decode()
            for raw in self._queues.read_all(self.notes_key(operation_id), PAGE_ENTRIES_MAX)
        ]

    def restored(self, operation_id: str) -> list[str]:
        """The marks of what was restored of an operation: `chunk:by:numbers`."""
        return [raw.decode() for raw in self._queues.read_all(self.restored_key(operation_id), 100)]

    def has_notes(self, operation_id: str) -> bool:
        """Return whether this server knows that the operation took a chunk, restored or not."""
        keys = self.notes_key(operation_id), self.restored_key(operation_id)
        return any(self._queues.lengths(*keys))

    def forget(self, operation_id: str, chunk: int) -> None:
        """Take a chunk off an operation's notes: nothing of it will be restored any more."""
        marks = [one for one in self.restored(operation_id) if one.split(":")[0] == str(chunk)]
        marked = self.restored_key(operation_id)
        drops: list[Call] = [("drop", [self.notes_key(operation_id)], [str(chunk)])]
        self._all([*drops, *(("drop", [marked], [mark]) for mark in marks)])

    # checks

    def require(self) -> None:
        """Raise, before anything is changed, whatever would stop a change of these lists."""
        trial = self.notes_key(f"trial-{secrets.token_hex(6)}")
        self._queues.require_writable(trial, self.key, self.retry)

    # taking

    def take(
        self, operation_id: str, pieces: Sequence[Piece], *, key: str = "", set_aside: bool = False
    ) -> list[Taken]:
        """Take pieces, in order and in one round trip; returns which picks of each are not there.

        All picks of a piece are taken, or, when some are not there, none. The others keep their
        order: at the head, or with `set_aside` on the operation's list of passed ones. A piece
        without picks is set aside; None when others stand at its ends. Pieces with places are
        taken from the list `key`, by default the letters. A refusal is the answer of its piece.
        """
        calls = [
            self._taking(operation_id, one, key or self.key, set_aside=set_aside) for one in pieces
        ]
        return [
            self._taken(piece, one) for piece, one in zip(pieces, self._run(calls), strict=True)
        ]

    def _taken(self, piece: Piece, answer: Any) -> Taken:
        if isinstance(answer, LedgerctlError):
            return answer
        if not piece.picks:
            return DONE if answer else None
        self._queues.changes += answer[0] != MISSING
        return DONE if answer[0] != MISSING else [number - 1 for number in answer[1:]]

    def _taking(self, operation_id: str, piece: Piece, key: str, *, set_aside: bool) -> Call:
        notes, passed = self.notes_key(operation_id), self.passed_key(operation_id)
        if not piece.picks:
            return "pass_over", [key, passed], [piece.span, piece.first, piece.last]
        old = [pick.letter.raw for pick in piece.picks]
        new = [pick.written for pick in piece.picks if pick.written is not None]
        target = self.retry if new else notes
        if piece.places:
            mark = tombstone(operation_id, piece.chunk)
            head = [piece.chunk, "take", "", mark, SLACK, len(old)]
            return "take_scattered", [key, target, notes, notes], [*head, *piece.places, *old, *new]
        keys = [key, target, notes, passed if set_aside else key]
        return "take_near_head", keys, [piece.chunk, piece.span, len(old), *old, *new]

    def put_back(self, passed_key: str) -> None:
        """Put passed letters back before the head, in their order."""
        call: Call = "put_back", [passed_key, self.key], [PUT_BACK_MAX, CHUNK_BYTES]
        together = 1
        while left := self._all([call] * together)[-1]:
            together = min(left // PUT_BACK_MAX + 1, PUT_BACK_TOGETHER)
        self._queues.forget(passed_key)

    def begin_passing(self, operation_id: str) -> None:
        """Keep the name of the operation's list of passed letters before there is one."""
        self._queues.remember(self.passed_key(operation_id))

    def passed_keys(self) -> list[str]:
        """The lists of passed letters, in the order in which they are read."""
        return self._queues.passed_keys()

    # restoring

    def restore_released(
        self,
        operation_id: str,
        chunk: str,
        mark: str,
        letters: Iterable[bytes],
        *,
        is_lost: bool = False,
    ) -> bool:
        """Put a released chunk back at the tail; False when it is not on the notes.

        One that `is_lost` is put back where neither a note nor a mark knows it.
        """
        keys = [self.key, self.notes_key(operation_id), self.restored_key(operation_id)]
        (answer,) = self._all(
            [("restore_released", keys, [chunk, mark, "lost" if is_lost else "noted", *letters])]
        )
        restored = bool(answer[0] == TAKEN or self._is_marked(operation_id, mark))
        self._queues.changes += restored
        return restored

    def restore_requeued(
        self,
        operation_id: str,
        noted: str,
        mark: str,
        found: Sequence[tuple[int, bytes, bytes]],
    ) -> Sequence[int] | None:
        """Move entries (place, text, letter) from retry to the tail of the dead letters.

        Returns the numbers of those that no longer stand there, and then none has moved; None
        when somebody restored them already. `noted` is the chunk's number on the notes, or the
        mark of an earlier restore that found fewer of them.
        """
        back = self.restored_key(operation_id)
        notes = back if ":" in noted else self.notes_key(operation_id)
        places, old, new = zip(*found, strict=True)
        head = [noted, "restore", mark, tombstone(operation_id, mark), SLACK, len(found)]
        keys = [self.retry, self.key, notes, back]
        (answer,) = self._all([("take_scattered", keys, [*head, *places, *old, *new])])
        if answer[0] == BEFORE and not self._is_marked(operation_id, mark):
            return None
        self._queues.changes += answer[0] != MISSING
        return DONE if answer[0] != MISSING else [number - 1 for number in answer[1:]]

    def _is_marked(self, operation_id: str, mark: str) -> bool:
        """Return whether our own earlier run of the script, whose reply was lost, has restored."""
        return mark in self.restored(operation_id)

    # running scripts

    def _run(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts that travel together; an answer may be the error of what was refused.

        When a reply is lost they are run again, which moves nothing twice. A refusal after a lost
        reply leaves the outcome unknown: the lost one may have been done.
        """
        lost: LedgerctlError | None = None
        for left in range(TRIES - 1, -1, -1):
            try:
                answers = [self._told(one) for one in self._queues.attempts(map(evaluation, calls))]
            except redis_errors.RedisError as error:
                found = self._told(error)
                if not isinstance(found, OutcomeUnknown) or not left:
                    raise (lost or found) from None
                lost = lost or found
                time.sleep(PAUSE_S)
                continue
            if lost and any(isinstance(one, LedgerctlError) for one in answers):
                raise lost
            return answers
        raise InvariantBroken("a script was run no time at all")

    def _told(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            return self._queues.translated(answer, "move dead letters", sent=True)
        return answer

    def _all(self, calls: Sequence[Call]) -> list[Any]:
        answers = self._run(calls)
        for answer in answers:
            if isinstance(answer, LedgerctlError):
                raise answer
        return answers


def tombstone(operation_id: str, chunk: object) -> str:
    """A text that no entry has; it stands on a list only inside one script."""
    return f"taken by {operation_id}:{chunk}"
