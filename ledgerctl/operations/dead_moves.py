"""Requeue and release: archive first, then one checked script for each chunk."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from ledgerctl.domain.dead import (
    CHUNK_SPAN,
    Action,
    Letter,
    Pick,
    Piece,
    RequeuePolicy,
    Way,
    best_way,
    pieces,
    scattered,
)
from ledgerctl.errors import ExitCode, LeaseHeld, LedgerctlError, OutcomeUnknown, StoreBusy
from ledgerctl.operations.confirming import lost_letters, undone
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.leases import Lease

ARCHIVED_AT_ONCE = 2_000  # letters that one durable write stores ahead of their scripts
ARCHIVED_BYTES = 2_000_000
ROUNDS_MAX = 60  # of looking for letters that have moved
PAUSE_S = 0.2


Writer = Callable[[int, Letter], bytes | None]
"""What goes on retry for the letter of this number; None releases it."""


def writer(action: Action, policy: RequeuePolicy, now: datetime, count: int) -> Writer:
    """How `count` letters are rewritten."""
    if action is Action.RELEASE:
        return lambda _order, _letter: None
    return lambda order, letter: policy.written(letter.raw, now, order, count)


@dataclass(slots=True)
class Moved:
    """What came of an operation."""

    taken: list[Pick] = field(default_factory=list)
    gone: list[Pick] = field(default_factory=list)  # another operator took them meanwhile
    chunks: set[int] = field(default_factory=set)  # the numbers of the chunks that were taken
    not_tried: int = 0
    interrupted: bool = False
    trouble: LedgerctlError | None = None

    def took(self, chunk: int, picks: Iterable[Pick]) -> None:
        """Note letters that were taken, without what was written of them, which would fill memory."""
        self.chunks.add(chunk)
        self.taken += [Pick(pick.order, pick.letter, None) for pick in picks]

    @property
    def trouble_code(self) -> int:
        """The exit code when a store failed after the first change."""
        if isinstance(self.trouble, OutcomeUnknown):
            return int(ExitCode.UNKNOWN)
        return int(ExitCode.PARTIAL)


@dataclass(slots=True)
class Move:
    """One operation on letters that were fixed at its start.

    Each letter is on a list, or for a release in the archive, at every instant. Letters are told
    by their exact bytes, so whatever others did meanwhile, nothing else is moved.
    """

    stores: Stores
    operation_id: str
    moving: Sequence[Letter]
    write: Writer
    found: Sequence[bytes]  # the list as it was read, from its head on
    at: datetime
    lease: Lease | None = None
    stopping: Callable[[], bool] = lambda: False
    progress: Callable[[int], None] = lambda _count: None
    way: Way | None = None  # by the letters, unless given
    chunk: int = 0  # the number of the last chunk
    first: int = 0  # the number of the first letter
    outcome: Moved = field(default_factory=Moved)
    _astray: list[Pick] = field(default_factory=list)  # not where they were: looked for at the end
    _handled: int = 0  # letters of the list that are gone from their places, by us or others

    def run(self) -> Moved:
        """Take them all; trouble before the first change is raised, later trouble is kept."""
        try:
            self._take_all()
        except LedgerctlError as error:
            if not self.outcome.taken:
                raise
            self.outcome.trouble = error
        self._confirm()
        self.outcome.not_tried = len(self.moving) - len(self.outcome.taken) - len(self.outcome.gone)
        return self.outcome

    def _confirm(self) -> None:
        """Count as not moved what a failover has undone."""
        if not self.outcome.taken:
            return
        try:
            lost = lost_letters(self.stores, self.operation_id, self.outcome.chunks)
        except LedgerctlError as error:
            self.outcome.trouble = self.outcome.trouble or error
            return
        if lost:
            self.outcome.taken = [pick for pick in self.outcome.taken if pick.order not in lost]
            self.outcome.trouble = self.outcome.trouble or undone(len(lost), "moved")

    def _take_all(self) -> None:
        key = self.stores.dead_letters.key
        near = [(order, one) for order, one in enumerate(self.moving) if one.key == key]
        self._astray = [self._pick(*one) for one in enumerate(self.moving) if one[1].key != key]
        if self.way is None:
            letters = [one for _, one in near]
            self.way = best_way(self.found, letters, leased=self.lease is not None)
        picks = (self._pick(order, one) for order, one in near)
        try:
            for chunk, piece in self._archived(pieces(self.found, picks, self.way)):
                if self._must_stop():
                    return
                self._take(chunk, piece)
                self.progress(len(self.outcome.taken))
            self._find_astray()
        finally:
            if self.way is Way.SET_ASIDE and not self._lost():
                self.stores.dead_letters.put_back(
                    self.stores.dead_letters.passed_key(self.operation_id)
                )

    def _pick(self, order: int, letter: Letter) -> Pick:
        return Pick(self.first + order, letter, self.write(self.first + order, letter))

    def _must_stop(self) -> bool:
        if self._lost():
            raise LeaseHeld(
                "the lease was lost to another run",
                hint="run the same command again: what stays over is put back first",
            )
        if self.stopping():
            self.outcome.interrupted = True
        return self.outcome.interrupted

    def _lost(self) -> bool:
        return self.lease is not None and self.lease.is_lost()

    # archiving

    def _archived(self, cut: Iterator[Piece]) -> Iterator[tuple[int, Piece]]:
        """The pieces, each durably archived before it is given.

        Several go in one write, and the next are archived while these are taken.
        """
        with ThreadPoolExecutor(1) as archivist:
            ready: list[tuple[int, Piece]] = []
            for group in self._groups(cut):
                written = archivist.submit(self._archive, group)
                yield from ready
                written.result()
                ready = group
            yield from ready

    def _groups(self, cut: Iterator[Piece]) -> Iterator[list[tuple[int, Piece]]]:
        """Pieces with their chunk numbers, as many as one write archives."""
        group: list[tuple[int, Piece]] = []
        letters = size = 0
        for piece in cut:
            letters += len(piece.picks)
            size += sum(len(pick.letter.raw) for pick in piece.picks)
            group.append((self._next_chunk(), piece))
            if letters >= ARCHIVED_AT_ONCE or size >= ARCHIVED_BYTES:
                yield group
                group, letters, size = [], 0, 0
        if group:
            yield group

    def _archive(self, group: Sequence[tuple[int, Piece]]) -> None:
        chunks = [(chunk, piece.picks) for chunk, piece in group]
        try:
            self.stores.archive.keep(self.operation_id, chunks, at=self.at)
        except OutcomeUnknown as error:  # an archive without its script changes nothing
            raise StoreBusy(error.message, hint=error.hint) from None

    def _next_chunk(self) -> int:
        self.chunk += 1
        return self.chunk

    # taking

    def _take(self, chunk: int, piece: Piece) -> None:
        if not piece.picks:
            self._pass_over(piece)
            return
        missing = self._try(chunk, piece)
        while missing:
            lost = set(missing)
            self._astray += [piece.picks[at] for at in missing]
            there = tuple(pick for at, pick in enumerate(piece.picks) if at not in lost)
            self._handled += len(lost)
            if not there:
                self._pass_unwanted()
                return
            piece = piece._replace(picks=there, span=piece.span + CHUNK_SPAN)
            chunk = self._next_chunk()
            self._archive([(chunk, piece)])
            missing = self._try(chunk, piece)
        self._handled += len(piece.picks)
        self.outcome.took(chunk, piece.picks)

    def _try(self, chunk: int, piece: Piece) -> Sequence[int]:
        """Run the script of this piece; the numbers of the letters that are not there."""
        store = self.stores.dead_letters
        if self.way is Way.SCATTER:
            places = [max(0, pick.letter.index - self._handled) for pick in piece.picks]
            return store.take_scattered(
                self.operation_id, chunk, piece.picks, key=store.key, places=places
            )
        return store.take_near_head(
            self.operation_id,
            chunk,
            piece.picks,
            span=piece.span,
            set_aside=self.way is Way.SET_ASIDE,
        )

    def _pass_over(self, piece: Piece) -> None:
        store = self.stores.dead_letters
        if not store.pass_over(self.operation_id, piece.span, piece.first, piece.last):
            self._pass_unwanted()

    def _pass_unwanted(self) -> None:
        """Set aside what stands at the head and is not wanted; others have changed the list."""
        if self.way is not Way.SET_ASIDE:
            return
        head = self.stores.dead_letters.head(CHUNK_SPAN)
        taken = {pick.order for pick in self.outcome.taken}
        wanted = Counter(
            letter.raw for order, letter in enumerate(self.moving, self.first) if order not in taken
        )
        stretch = next((at for at, raw in enumerate(head) if wanted[raw]), len(head))
        if stretch:
            self.stores.dead_letters.pass_over(
                self.operation_id, stretch, head[0], head[stretch - 1]
            )

    # letters that are not where they were

    def _find_astray(self) -> None:
        """Look for the letters that had moved, wherever they stand; the rest others have taken."""
        for _ in range(ROUNDS_MAX):
            if not self._astray or self._must_stop():
                return
            before = len(self._astray)
            places = self._places()
            if not places and not self._others_pass_over():
                break
            for key, found in places.items():
                self._take_found(key, found)
            if len(self._astray) == before:
                time.sleep(PAUSE_S)
        if self._places():
            raise StoreBusy(
                f"{len(self._astray)} letters moved each time they were to be taken",
                hint="run the same command again once the other operation has ended",
            )
        self.outcome.gone += self._astray
        self._astray = []

    def _others_pass_over(self) -> bool:
        """Whether letters may be on their way between two lists, so that one read can miss them."""
        own = self.stores.dead_letters.passed_key(self.operation_id)
        return any(key != own for key in self.stores.dead_letters.passed_keys())

    def _places(self) -> dict[str, list[tuple[int, Pick]]]:
        """Where the missing letters stand now, by list, in order of place."""
        wanted: defaultdict[bytes, deque[Pick]] = defaultdict(deque)
        for pick in self._astray:
            wanted[pick.letter.raw].append(pick)
        places: dict[str, list[tuple[int, Pick]]] = {}
        for key, index, raw in self.stores.dead_letters.entries():
            if wanted.get(raw):
                places.setdefault(key, []).append((index, wanted[raw].popleft()))
        return places

    def _take_found(self, key: str, found: Sequence[tuple[int, Pick]]) -> None:
        index = {pick.order: place for place, pick in found}
        before = 0
        for run in scattered(found, self.stores.queues.length(key)):
            if self._must_stop():
                return
            chunk = self._next_chunk()
            self._archive([(chunk, Piece(tuple(run), 0))])
            places = [max(0, index[pick.order] - before) for pick in run]
            if self.stores.dead_letters.take_scattered(
                self.operation_id, chunk, run, key=key, places=places
            ):
                continue  # moved again: another round
            before += len(run)
            self.outcome.took(chunk, run)
            orders = {pick.order for pick in run}
            self._astray = [pick for pick in self._astray if pick.order not in orders]
