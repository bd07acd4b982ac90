"""Restore: put back what an operation took, by its own notes, none twice."""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgerctl.domain.dead import SCATTERED_LETTERS
from ledgerctl.domain.dead_results import Archived, Restored
from ledgerctl.domain.payload import sha256
from ledgerctl.errors import LedgerctlError, NotFound, Refused
from ledgerctl.operations.confirming import lost_restores, undone
from ledgerctl.stores.connections import Stores

COMMANDS = frozenset({"dead requeue", "dead release", "dead review"})
ROUNDS_MAX = 40


@dataclass(slots=True)
class Chunk:
    """One chunk that the operation took: its letters, and which of them are back."""

    number: int
    letters: list[Archived]
    noted: str  # what stands for it on the notes, or the mark of an earlier restore
    back: set[int] = field(default_factory=set)

    @property
    def is_release(self) -> bool:
        """Whether it was taken off for good, rather than put on retry."""
        return self.letters[0].written_sha256 is None

    @property
    def away(self) -> list[int]:
        """The numbers of the letters that are not back."""
        return [at for at in range(len(self.letters)) if at not in self.back]


def taken_by(stores: Stores, operation_id: str) -> list[Chunk]:
    """The chunks that an operation took, in its order; what the archive alone holds is no proof.

    Raises NotFound for an unknown operation, Refused for one that took no dead letters.
    """
    entry = stores.operator_log.get(operation_id)
    if entry is None:
        raise NotFound(
            f"no operation {operation_id!r} in the log", hint="`ledgerctl log list` names them"
        )
    if entry.get("command") not in COMMANDS:
        raise Refused(
            f"operation {operation_id} is `{entry.get('command')}`: it took no dead letters",
            hint="restore undoes `dead requeue`, `dead release` and `dead review`",
        )
    # In this order: a chunk that another restore puts back in between goes from notes to marks.
    noted = {number: number for number in stores.dead_letters.noted(operation_id)}
    marks = {mark.split(":")[0]: mark for mark in stores.dead_letters.restored(operation_id)}
    letters: dict[str, list[Archived]] = {}
    for archived in stores.archive.of_operation(operation_id):
        letters.setdefault(str(archived.chunk), []).append(archived)
    chunks = [
        Chunk(int(number), found, known, back_of(known, len(found)))
        for number, found in letters.items()
        if (known := (noted | marks).get(number)) is not None
    ]
    return sorted(chunks, key=lambda chunk: chunk.letters[0].order)


def back_of(noted: str, count: int) -> set[int]:
    """The numbers of the letters that a mark says are back; a chunk on the notes has none."""
    _, _, numbers = noted.partition(":")
    numbers = numbers.partition(":")[2]
    if numbers == "all":
        return set(range(count))
    return {int(number) for number in numbers.split(",") if number}


def mark_of(chunk: Chunk, restore_id: str, back: set[int]) -> str:
    """What stands on the list of restored chunks: `chunk:by:numbers`."""
    complete = len(back) == len(chunk.letters)
    numbers = "all" if complete else ",".join(map(str, sorted(back)))
    return f"{chunk.number}:{restore_id}:{numbers}"


def preview(stores: Stores, operation_id: str, chunks: Sequence[Chunk]) -> Restored:
    """What a restore would do, changing nothing."""
    said = Restored(operation_id)
    waiting = Waiting(stores, chunks)
    for chunk in chunks:
        said.already_back += len(chunk.back)
        there = len(chunk.away) if chunk.is_release else len(waiting.of(chunk))
        said.restored += there
        said.gone += len(chunk.away) - there
    return said


@dataclass(slots=True)
class Restore:
    """One run of `dead restore`; every letter is on a list at every instant, or in the archive."""

    stores: Stores
    restore_id: str
    operation_id: str
    chunks: Sequence[Chunk]
    stopping: Callable[[], bool]
    outcome: Restored = field(init=False)
    _ours: dict[int, set[int]] = field(default_factory=dict)  # restored by this run, by chunk

    def __post_init__(self) -> None:
        self.outcome = Restored(self.operation_id)

    def run(self) -> Restored:
        """Put back whatever is not back; trouble before the first change is raised."""
        said = self.outcome
        said.already_back = sum(len(chunk.back) for chunk in self.chunks)
        try:
            self._restore_all()
        except LedgerctlError as error:
            if not said.restored:
                raise
            said.trouble = error
        self._confirm()
        if said.trouble is not None or said.interrupted:
            away = sum(len(chunk.away) for chunk in self.chunks)
            said.not_tried = away - said.gone
        return said

    def _confirm(self) -> None:
        """Count as not restored what a failover has undone."""
        if not self._ours:
            return
        try:
            lost = lost_restores(self.stores, self.operation_id, self._ours)
        except LedgerctlError as error:
            self.outcome.trouble = self.outcome.trouble or error
            return
        if lost:
            self.outcome.restored -= lost
            self.outcome.trouble = self.outcome.trouble or undone(lost, "restored")

    def _restore_all(self) -> None:
        waiting = Waiting(self.stores, self.chunks)
        for chunk in self.chunks:
            if self.stopping():
                self.outcome.interrupted = True
                return
            if chunk.away:
                if chunk.is_release:
                    self._put_back(chunk)
                else:
                    self._take_back(chunk, waiting)

    def _put_back(self, chunk: Chunk) -> None:
        mark = mark_of(chunk, self.restore_id, set(chunk.away))
        payloads = [archived.payload for archived in chunk.letters]
        restored = self.stores.dead_letters.restore_released(
            self.operation_id, str(chunk.number), mark, payloads
        )
        self._count(chunk, set(chunk.away), ours=restored)

    def _take_back(self, chunk: Chunk, waiting: "Waiting") -> None:
        """Take a requeued chunk back from retry, as much of it as still waits there."""
        for _ in range(ROUNDS_MAX):
            found = waiting.of(chunk)[:SCATTERED_LETTERS]
            if not found:
                break
            numbers = {one.number for one in found}
            mark = mark_of(chunk, self.restore_id, chunk.back | numbers)
            missing = self.stores.dead_letters.restore_requeued(
                self.operation_id,
                chunk.noted,
                mark,
                [
                    (waiting.place(one), one.text, chunk.letters[one.number].payload)
                    for one in found
                ],
            )
            if missing is None:
                self._look_again(chunk)
            elif missing:
                waiting.read_again()
            else:
                chunk.noted = mark
                waiting.taken(found)
                self._count(chunk, numbers, ours=True)
        if chunk.away:  # no longer on retry: run, or restored by somebody else just now
            self._look_again(chunk)
        self.outcome.gone += len(chunk.away)

    def _look_again(self, chunk: Chunk) -> None:
        """Another restore was quicker: see what it put back."""
        for mark in self.stores.dead_letters.restored(self.operation_id):
            if mark.split(":")[0] == str(chunk.number):
                chunk.noted = mark
                self._count(chunk, back_of(mark, len(chunk.letters)) - chunk.back, ours=False)

    def _count(self, chunk: Chunk, numbers: set[int], *, ours: bool) -> None:
        chunk.back |= numbers
        if ours:
            self._ours[chunk.number] = self._ours.get(chunk.number, set()) | numbers
            self.outcome.restored += len(numbers)
        else:
            self.outcome.already_back += len(numbers)


class Found(NamedTuple):
    """A letter of a chunk that waits on retry: its number there, its place when read, its text."""

    number: int
    place: int
    text: bytes


class Waiting:
    """Where the texts that an operation wrote stand on retry; read once, and again on demand."""

    def __init__(self, stores: Stores, chunks: Sequence[Chunk]) -> None:
        self._stores = stores
        self._wanted = {
            letter.written_sha256
            for chunk in chunks
            if chunk.away
            for letter in chunk.letters
            if letter.written_sha256 is not None
        }
        self._places: defaultdict[bytes, deque[tuple[int, bytes]]] = defaultdict(deque)
        self._given: dict[tuple[int, int], Found] = {}
        self._taken: list[int] = []
        self.read_again()

    def read_again(self) -> None:
        """Read the retry list anew."""
        self._places.clear()
        self._given.clear()
        self._taken.clear()
        if not self._wanted:
            return
        for place, text in enumerate(self._stores.queues.read_all(self._stores.queues.keys.retry)):
            name = sha256(text)
            if name in self._wanted:
                self._places[name].append((place, text))

    def of(self, chunk: Chunk) -> list[Found]:
        """The chunk's letters that are not back and wait on retry, in the operation's order."""
        found = (self._find(chunk, number) for number in chunk.away)
        return [one for one in found if one is not None]

    def _find(self, chunk: Chunk, number: int) -> Found | None:
        key = (chunk.number, number)
        places = self._places.get(chunk.letters[number].written_sha256 or b"")
        if key not in self._given and places:
            self._given[key] = Found(number, *places.popleft())
        return self._given.get(key)

    def place(self, found: Found) -> int:
        """Where the letter stands now, as far as our own taking goes."""
        return found.place - bisect_left(self._taken, found.place)

    def taken(self, found: Sequence[Found]) -> None:
        """Remember that these places are empty now."""
        self._taken = sorted([*self._taken, *(one.place for one in found)])
