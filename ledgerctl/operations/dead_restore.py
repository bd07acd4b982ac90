"""Restore what an operation took, by its own notes, none twice."""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ledgerctl.domain.dead import Archived, Verdict
from ledgerctl.domain.payload import sha256
from ledgerctl.domain.removal import SCATTERED_LETTERS
from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.domain.sieve import by_hash, name_of
from ledgerctl.errors import LedgerctlError, NotFound, Refused
from ledgerctl.operations.confirming import lost_restores, undone
from ledgerctl.operations.dead import archived_letter, entries
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
    is_lost: bool = False  # Redis knows nothing of it; its letters stand on no list

    @property
    def is_release(self) -> bool:
        """True where it was taken off for good, rather than put on retry."""
        return self.letters[0].written_sha256 is None

    @property
    def away(self) -> list[int]:
        """Numbers of the letters that are not back."""
        return [at for at in range(len(self.letters)) if at not in self.back]


def taken_by(stores: Stores, operation_id: str) -> list[Chunk]:
    """List the chunks that an operation took, in order; what the archive alone holds is no proof."""
    return [chunk for chunk in archived_by(stores, operation_id) if chunk.noted]


def archived_by(stores: Stores, operation_id: str) -> list[Chunk]:
    """List the chunks that an operation archived, in order; those that it took are noted."""
    # In this order: a chunk that another restore puts back in between goes from notes to marks.
    noted = {number: number for number in stores.dead_letters.noted(operation_id)}
    marks = {mark.split(":")[0]: mark for mark in stores.dead_letters.restored(operation_id)}
    letters: dict[str, list[Archived]] = {}
    for archived in stores.archive.of_operation(operation_id):
        letters.setdefault(str(archived.chunk), []).append(archived)
    chunks = []
    for number, found in letters.items():
        known = (noted | marks).get(number, "")
        chunks.append(Chunk(int(number), found, known, back_of(known, len(found))))
    return sorted(chunks, key=lambda chunk: chunk.letters[0].order)


def back_of(noted: str, count: int) -> set[int]:
    """Read off a mark which letters are back; a chunk on the notes has none."""
    _, _, numbers = noted.partition(":")
    numbers = numbers.partition(":")[2]
    if numbers == "all":
        return set(range(count))
    return {int(number) for number in numbers.split(",") if number}


def mark_of(chunk: Chunk, restore_id: str, back: set[int]) -> str:
    """Write the mark for the list of restored chunks: `chunk:by:numbers`."""
    complete = len(back) == len(chunk.letters)
    numbers = "all" if complete else ",".join(map(str, sorted(back)))
    return f"{chunk.number}:{restore_id}:{numbers}"


def operation_entry(stores: Stores, operation_id: str) -> Mapping[str, Any]:
    """Return the log's entry of an operation that took dead letters.

    Raises NotFound for an unknown operation, Refused for one that took none.
    """
    entry = stores.operator_log.get(operation_id)
    if entry is None:
        raise NotFound(
            f"no operation {operation_id!r} in the log", hint="`ledgerctl log list` names them"
        )
    if entry.get("command") not in COMMANDS:
        raise Refused(
            f"operation {operation_id} is `{entry.get('command')}`: it took no dead letters",
            hint="`dead requeue`, `dead release` and `dead review` take them",
        )
    return entry


@dataclass(slots=True)
class Restorable:
    """The letters that an operation took, and how many of them Redis knows nothing of any more."""

    operation_id: str
    chunks: Sequence[Chunk]
    lost: int = 0
    put_back: int = 0  # by a failover to a server that had not got the move
    removed: int = 0  # of the lost ones, those that the archive keeps no longer
    has_notes: bool = True  # False: this server knows of nothing that the operation took


def restorable(stores: Stores, operation_id: str, *, from_archive: bool = False) -> Restorable:
    """Look up what an operation took: what its log counts beyond its notes is lost.

    With `from_archive` the lost letters that stand on no list are taken from the archive. Raises
    NotFound for an unknown operation, Refused for one that took no dead letters.
    """
    entry = operation_entry(stores, operation_id)
    counts = entry.get("counts") or {}
    moved = sum(counts.get(name, 0) for name in ("moved", "requeued", "released"))
    archived = archived_by(stores, operation_id)
    found = [chunk for chunk in archived if chunk.noted]
    known = bool(found)
    lost = max(0, moved - sum(len(one.letters) for one in found))
    removed = max(0, moved - sum(len(one.letters) for one in archived))
    unknown = [chunk for chunk in archived if not chunk.noted]
    standing = min(lost, standing_again(stores, unknown)) if lost else 0
    lost -= standing
    if from_archive and lost:
        again = [one for chunk in unknown if (one := on_no_list(stores, chunk, found)).letters]
        lost = max(0, lost - sum(len(one.letters) for one in again))
        found += again
    seen = known or not archived
    return Restorable(operation_id, found, lost, standing, min(removed, lost), seen)


def standing_again(stores: Stores, unknown: Sequence[Chunk]) -> int:
    """Count the letters of chunks that Redis knows nothing of and that stand on the dead letters."""
    wanted = Counter(name_of(letter.payload) for chunk in unknown for letter in chunk.letters)
    found = Counter(name_of(letter.raw) for letter in entries(stores, by_hash(wanted)))
    return (wanted & found).total()


def on_no_list(stores: Stores, chunk: Chunk, known: Sequence[Chunk]) -> Chunk:
    """Give what is lost of a chunk that Redis knows nothing of: on no list, its job not settled."""
    orders = {letter.order for one in known for letter in one.letters}
    raws = {name_of(one.payload) for one in chunk.letters}
    dead = {name_of(one.raw) for one in entries(stores, by_hash(raws))}
    judged = [(one, archived_letter(stores, one)) for one in chunk.letters]
    letters = [
        one
        for one, letter in judged
        if one.order not in orders
        and name_of(one.payload) not in dead
        and letter.verdict not in {Verdict.QUEUED, Verdict.SETTLED}
    ]
    return replace(chunk, letters=letters, is_lost=True)


def preview(stores: Stores, found: Restorable) -> Result[None]:
    """Tell what a restore would do, changing nothing."""
    result = begun(found)
    waiting = Waiting(stores, found.chunks)
    for chunk in found.chunks:
        stays = chunk.is_release or chunk.is_lost
        there = len(chunk.away) if stays else len(waiting.of(chunk))
        result.count("restored", there, fate=Fate.DONE)
        result.count("gone", len(chunk.away) - there, fate=Fate.LEFT)
    result.not_tried = 0
    return result


def begun(found: Restorable, result: Result[None] | None = None) -> Result[None]:
    """Start a result with what is known before anything is put back."""
    result = result or Result()
    back = found.put_back + sum(len(chunk.back) for chunk in found.chunks)
    result.count("restored", 0)
    result.count("already_back", back, fate=Fate.ALREADY)
    result.count("gone", found.lost, fate=Fate.LEFT)
    result.not_tried = sum(len(chunk.away) for chunk in found.chunks)
    return result


def restore(stores: Stores, found: Restorable, run: Run[None]) -> None:
    """Put back whatever is not back; every letter is on a list at every instant, or in the archive."""
    begun(found, run.result)
    ours: dict[int, set[int]] = {}
    error: LedgerctlError | None = None
    for act in (
        partial(restore_all, stores, found, run, ours),
        partial(confirm, stores, found, run, ours),
    ):
        try:
            act()
        except LedgerctlError as failed:
            error = error or failed
    if error is not None:
        raise error


def restore_all(
    stores: Stores, found: Restorable, run: Run[None], ours: dict[int, set[int]]
) -> None:
    """Restore one chunk after the other; `ours` gets the numbers of what this run put back."""
    waiting = Waiting(stores, found.chunks)
    for chunk in found.chunks:
        if run.stopping():
            return
        if chunk.away:
            ours[chunk.number] = set()
            Restore(stores, found.operation_id, run, chunk, ours[chunk.number]).restore(waiting)


def confirm(stores: Stores, found: Restorable, run: Run[None], ours: dict[int, set[int]]) -> None:
    """Count as not restored what a failover has undone. Raises PartlyDone."""
    lost = lost_restores(stores, found.operation_id, ours) if any(ours.values()) else 0
    run.result.count("restored", -lost, fate=Fate.DONE)
    run.result.not_tried += lost
    if lost:
        raise undone(lost, "restored")


@dataclass(slots=True)
class Restore:
    """The restore of one chunk."""

    stores: Stores
    operation_id: str
    run: Run[None]
    chunk: Chunk
    ours: set[int]

    def restore(self, waiting: "Waiting") -> None:
        """Put back what is not back of the chunk; count what has left retry as gone."""
        if self.chunk.is_release or self.chunk.is_lost:
            self._put_back()
        else:
            self._take_back(waiting)

    def _put_back(self) -> None:
        away = set(self.chunk.away)
        restored = self.stores.dead_letters.restore_released(
            self.operation_id,
            str(self.chunk.number),
            mark_of(self.chunk, self.run.operation_id, away),
            [archived.payload for archived in self.chunk.letters],
            is_lost=self.chunk.is_lost,
        )
        self._count(away, ours=restored)

    def _take_back(self, waiting: "Waiting") -> None:
        """Take a requeued chunk back from retry, as much of it as still waits there."""
        chunk = self.chunk
        for _ in range(ROUNDS_MAX):
            found = waiting.of(chunk)[:SCATTERED_LETTERS]
            if not found:
                break
            numbers = {one.number for one in found}
            mark = mark_of(chunk, self.run.operation_id, chunk.back | numbers)
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
                self._look_again()
            elif missing:
                waiting.read_again()
            else:
                chunk.noted = mark
                waiting.taken(found)
                self._count(numbers, ours=True)
        if chunk.away:  # no longer on retry: run, or restored by somebody else just now
            self._look_again()
        self.run.result.count("gone", len(chunk.away), fate=Fate.LEFT)
        self.run.result.not_tried -= len(chunk.away)

    def _look_again(self) -> None:
        """Another restore was quicker: see what it put back."""
        for mark in self.stores.dead_letters.restored(self.operation_id):
            if mark.split(":")[0] == str(self.chunk.number):
                self.chunk.noted = mark
                self._count(back_of(mark, len(self.chunk.letters)) - self.chunk.back, ours=False)

    def _count(self, numbers: set[int], *, ours: bool) -> None:
        self.chunk.back |= numbers
        if ours:
            self.ours |= numbers
        name, fate = ("restored", Fate.DONE) if ours else ("already_back", Fate.ALREADY)
        self.run.result.count(name, len(numbers), fate=fate)
        self.run.result.not_tried -= len(numbers)


class Found(NamedTuple):
    """A letter of a chunk that waits on retry: its number there, its place when read, its text."""

    number: int
    place: int
    text: bytes


class Waiting:
    """Places on retry of the texts that an operation wrote; read once, and again on demand."""

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
        """Find the chunk's letters that are not back and wait on retry, in the operation's order."""
        found = (self._find(chunk, number) for number in chunk.away)
        return [one for one in found if one is not None]

    def _find(self, chunk: Chunk, number: int) -> Found | None:
        key = (chunk.number, number)
        places = self._places.get(chunk.letters[number].written_sha256 or b"")
        if key not in self._given and places:
            self._given[key] = Found(number, *places.popleft())
        return self._given.get(key)

    def place(self, found: Found) -> int:
        """Give the place of the letter now, as far as our own taking goes."""
        return found.place - bisect_left(self._taken, found.place)

    def taken(self, found: Sequence[Found]) -> None:
        """Remember that these places are empty now."""
        self._taken = sorted([*self._taken, *(one.place for one in found)])
