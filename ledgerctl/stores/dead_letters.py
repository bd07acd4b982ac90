"""The dead letters on Redis: taken, put back and restored by scripts that name exact bytes."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from redis import exceptions as redis_errors

from ledgerctl.domain.dead import CHUNK_BYTES, Pick
from ledgerctl.errors import InvariantBroken, LedgerctlError, OutcomeUnknown
from ledgerctl.stores.queues import Queues

TRIES = 4  # of one script whose reply was lost; each waits for a reply of its own
PAUSE_S = 0.1
PUT_BACK_MAX = 1_000  # letters that one script puts back, each by one move from end to end
SLACK = 600  # entries towards the head among which a shifted letter is looked for
TAKEN, BEFORE, MISSING = 1, 2, 0
DONE: tuple[int, ...] = ()


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

    def entries(self) -> Iterator[tuple[str, int, bytes]]:
        """Every letter with its list and its place there: passed ones first, then the list."""
        for key in (*self._queues.passed_keys(), self.key):
            for index, raw in enumerate(self._queues.read_all(key)):
                yield key, index, raw

    def count(self) -> int:
        """How many letters there are, passed ones included."""
        keys = (*self._queues.passed_keys(), self.key)
        return sum(self._queues.length(key) for key in keys)

    def head(self, count: int) -> list[bytes]:
        """The letters nearest the head."""
        return self._queues.page(self.key, 0, count)

    def noted(self, operation_id: str) -> list[str]:
        """The chunk numbers that an operation took and nobody restored."""
        return [raw.decode() for raw in self._queues.read_all(self.notes_key(operation_id))]

    def restored(self, operation_id: str) -> list[str]:
        """The marks of what was restored of an operation: `chunk:by:numbers`."""
        return [raw.decode() for raw in self._queues.read_all(self.restored_key(operation_id))]

    def forget(self, operation_id: str, chunk: int) -> None:
        """Take a chunk off an operation's notes: nothing of it will be restored any more."""
        self._run("drop", [self.notes_key(operation_id)], [str(chunk)])
        for mark in self.restored(operation_id):
            if mark.partition(":")[0] == str(chunk):
                self._run("drop", [self.restored_key(operation_id)], [mark])

    # checks

    def require(self) -> None:
        """Raise, before anything is changed, whatever would stop a change of these lists."""
        trial = self.notes_key(f"trial-{secrets.token_hex(6)}")
        self._queues.require_writable(trial, self.key, self.retry)

    # taking

    def take_near_head(
        self,
        operation_id: str,
        chunk: int,
        picks: Sequence[Pick],
        *,
        span: int,
        set_aside: bool,
    ) -> Sequence[int]:
        """Take letters out of the first `span`; returns the numbers of those not there.

        All are taken, or, when some are not there, none. Letters between them keep their
        order: at the head, or with `set_aside` on the operation's list of passed ones.
        """
        notes = self.notes_key(operation_id)
        old, new = texts(picks)
        return self._taken(
            "take_near_head",
            [
                self.key,
                self.retry if new else notes,
                notes,
                self.passed_key(operation_id) if set_aside else self.key,
            ],
            [chunk, span, len(old), *old, *new],
        )

    def take_scattered(
        self,
        operation_id: str,
        chunk: int,
        picks: Sequence[Pick],
        *,
        key: str,
        places: Sequence[int],
    ) -> Sequence[int]:
        """Take letters at these places of a list; returns the numbers of those not there.

        All are taken, or, when some are not there, none. The order of the others stays.
        """
        notes = self.notes_key(operation_id)
        old, new = texts(picks)
        head = [chunk, "take", "", tombstone(operation_id, chunk), SLACK, len(old)]
        return self._taken(
            "take_scattered",
            [key, self.retry if new else notes, notes, notes],
            [*head, *places, *old, *new],
        )

    def pass_over(self, operation_id: str, stretch: int, first: bytes, last: bytes) -> bool:
        """Set the first `stretch` letters aside; False when others stand at its ends."""
        keys = [self.key, self.passed_key(operation_id)]
        return bool(self._run("pass_over", keys, [stretch, first, last]))

    def put_back(self, passed_key: str) -> None:
        """Put passed letters back before the head, in their order."""
        while self._run("put_back", [passed_key, self.key], [PUT_BACK_MAX, CHUNK_BYTES]):
            pass

    def passed_keys(self) -> list[str]:
        """The lists of passed letters, in the order in which they are read."""
        return self._queues.passed_keys()

    # restoring

    def restore_released(
        self, operation_id: str, chunk: str, mark: str, letters: Iterable[bytes]
    ) -> bool:
        """Put a released chunk back at the tail; False when it is not on the notes."""
        keys = [self.key, self.notes_key(operation_id), self.restored_key(operation_id)]
        answer = self._run("restore_released", keys, [chunk, mark, *letters])
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
        answer = self._run(
            "take_scattered", [self.retry, self.key, notes, back], [*head, *places, *old, *new]
        )
        if answer[0] == BEFORE and not self._is_marked(operation_id, mark):
            return None
        self._queues.changes += answer[0] != MISSING
        return DONE if answer[0] != MISSING else [number - 1 for number in answer[1:]]

    def _is_marked(self, operation_id: str, mark: str) -> bool:
        """Whether our own earlier run of the script, whose reply was lost, has restored."""
        return mark in self.restored(operation_id)

    # running scripts

    def _taken(self, name: str, keys: list[str], arguments: list[Any]) -> Sequence[int]:
        answer = self._run(name, keys, arguments)
        self._queues.changes += answer[0] != MISSING
        return DONE if answer[0] != MISSING else [number - 1 for number in answer[1:]]

    def _run(self, name: str, keys: list[str], arguments: list[Any]) -> Any:
        """A script's answer; run again when the reply was lost, which moves nothing twice.

        A refusal after a lost reply leaves the outcome unknown: the lost one may have been done.
        """
        lost: LedgerctlError | None = None
        for left in range(TRIES - 1, -1, -1):
            try:
                return self._call(name, keys, arguments)
            except redis_errors.RedisError as error:
                found = self._queues.translated(error, "move dead letters", sent=True)
                if not isinstance(found, OutcomeUnknown) or not left:
                    raise (lost or found) from None
                lost = lost or found
            time.sleep(PAUSE_S)
        raise InvariantBroken("a script was run no time at all")

    def _call(self, name: str, keys: list[str], arguments: list[Any]) -> Any:
        return self._queues.run_script(name, keys, arguments)


def texts(picks: Sequence[Pick]) -> tuple[list[bytes], list[bytes]]:
    """The bytes to take, and those to put on retry: none for a release."""
    old = [pick.letter.raw for pick in picks]
    return old, [pick.written for pick in picks if pick.written is not None]


def tombstone(operation_id: str, chunk: object) -> str:
    """A text that no entry has; it stands on a list only inside one script."""
    return f"taken by {operation_id}:{chunk}"
