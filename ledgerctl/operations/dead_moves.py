"""Requeue and release: archive first, then one checked script for each chunk."""

import time
from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import Any

from ledgerctl.domain.dead import Action, Letter, Plan, counted, named_ends
from ledgerctl.domain.payload import read_payload
from ledgerctl.domain.removal import (
    CHUNK_SPAN,
    Pick,
    Piece,
    Placed,
    RemovalStrategy,
    Spread,
    near_head,
    scattered,
    stretches,
)
from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.domain.sieve import name_of
from ledgerctl.errors import LeaseHeld, LedgerctlError, OutcomeUnknown, StoreBusy
from ledgerctl.operations.confirming import lost_letters, undone
from ledgerctl.operations.dead import Request, leased, leased_if_free, plan
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.leases import Lease

BLOCK_ENTRIES, BLOCK_BYTES = 4_000, 4_000_000  # read, archived and taken at once
TOGETHER = 16  # scripts that travel together
STAYING_MAX = 3 * CHUNK_SPAN  # entries before a chunk near the head; more only when others add some
ROUNDS_MAX = 60  # of looking for letters that have moved, in vain
PAUSE_S = 0.2
SLACK = 600  # entries towards the head among which a shifted letter is looked for
UNTRIED, TAKEN, GONE = range(3)

Wanted = defaultdict[int, deque[int]]
"""The orders of letters that are looked for, by the first 8 bytes of their SHA-256."""

Missing = Sequence[int] | None
"""The picks of a piece that are not there; None where others stand at its ends."""


@dataclass(slots=True)
class Move:
    """Moves the letters of a plan, each at most once, in one or several steps of one operation.

    Each letter is on a list, or for a release in the archive, at every instant. Letters are told
    by their exact bytes, so whatever others did meanwhile, nothing else is moved.
    """

    stores: Stores
    operation_id: str
    plan: Plan
    now: datetime  # due times count from it
    at: datetime  # of the archive
    lease: Lease | None = None
    stopping: Callable[[], bool] = lambda: False
    progress: Callable[[int], None] = lambda _count: None
    strategy: RemovalStrategy | None = None  # by the letters, unless given
    chunk: int = 0  # the number of the last chunk
    first: int = 0  # the number of the plan's first letter in the operation
    moved: int = 0
    gone: int = 0  # another operator took them meanwhile
    interrupted: bool = False
    fates: bytearray = field(init=False)  # of each letter of the plan: UNTRIED, TAKEN or GONE
    _next: int = 0  # the order of the next step's first letter
    _left: int = 0  # letters that have left the list before this step
    _taken: set[int] = field(default_factory=set)  # the numbers of the chunks that were taken
    _astray: list[int] = field(default_factory=list)  # not where they were: looked for at the end

    def __post_init__(self) -> None:
        self.fates = bytearray(len(self.plan.moving))

    @property
    def not_tried(self) -> int:
        """Letters of the plan that were not reached."""
        return len(self.fates) - self.moved - self.gone

    def run(self, letters_max: int | None = None) -> None:
        """Take the next letters of the plan, all by default; what it comes to is true at any moment."""
        end = len(self.fates) if letters_max is None else self._next + letters_max
        orders = range(self._next, min(end, len(self.fates)))
        self._left = max(0, self._next - self.plan.moving.aside)
        self._next = orders.stop
        error: LedgerctlError | None = None
        for act in (partial(self._take_all, orders), self._confirm):
            try:
                act()
            except LedgerctlError as failed:
                error = error or failed
        if error is not None:
            raise error

    def _confirm(self) -> None:
        """Count as not moved what a failover has undone. Raises PartlyDone."""
        lost = lost_letters(self.stores, self.operation_id, self._taken) if self._taken else set()
        for number in lost:
            self.fates[number - self.first] = UNTRIED
        self.moved -= len(lost)
        if lost:
            raise undone(len(lost), "moved")

    def _take_all(self, orders: range) -> None:
        aside = self.plan.moving.aside
        self._astray = list(range(orders.start, min(aside, orders.stop)))
        near = range(max(orders.start, aside), orders.stop)
        strategy = self.strategy or spread_of(self.plan, near, left=self._left).strategy(
            leased=self.lease is not None
        )
        if strategy is RemovalStrategy.SET_ASIDE:
            self.stores.dead_letters.begin_passing(self.operation_id)
        try:
            for pieces in self._archived(self._cut(near, strategy)):
                self._take(pieces, set_aside=strategy is RemovalStrategy.SET_ASIDE)
                if self.interrupted:
                    return
            self._find_astray()
        finally:
            if strategy is RemovalStrategy.SET_ASIDE and not self._is_lost():
                store = self.stores.dead_letters
                store.put_back(store.passed_key(self.operation_id))

    def _must_stop(self) -> bool:
        if self._is_lost():
            raise LeaseHeld(
                "the lease was lost to another run",
                hint="run the same command again: what stays over is put back first",
            )
        if self.stopping():
            self.interrupted = True
        return self.interrupted

    def _is_lost(self) -> bool:
        return self.lease is not None and self.lease.is_lost()

    # reading

    def _cut(self, near: range, strategy: RemovalStrategy) -> Iterator[list[Piece]]:
        """Read the letters block by block, each cut into pieces; one block ahead of the taking."""
        if strategy is RemovalStrategy.SCATTER:
            return self._cut_scattered(near)
        return self._cut_from_head(near, set_aside=strategy is RemovalStrategy.SET_ASIDE)

    def _cut_from_head(self, near: range, *, set_aside: bool) -> Iterator[list[Piece]]:
        """Cut the stretch of the list that ends with the last letter.

        When a block is read, the one before it still stands there.
        """
        moving, left = self.plan.moving, self._left
        size = self.plan.at_once(BLOCK_ENTRIES, BLOCK_BYTES)
        end = moving.at[near.stop - 1] - left + 1 if near else 0
        begins = read_to = read_at = 0 if set_aside or not near else moving.at[near.start] - left
        wanted: Wanted = defaultdict(deque)
        coming = near.start
        while read_to < end:
            length = min(size, end - read_to)
            entries = self.stores.dead_letters.stretch(read_at, length, self.plan.entry_bytes)
            if not entries:
                break
            read_to += len(entries)
            last = bisect_left(moving.at, read_to + left, coming, near.stop)
            for order in range(coming, last):
                wanted[moving.names[order]].append(order)
            coming = last
            placed = list(self._placed(enumerate(entries), wanted))
            if begins > STAYING_MAX and not set_aside:
                self._astray += [pick.order - self.first for _, pick in placed]
                placed = []
            yield self._numbered(
                stretches(entries, placed) if set_aside else near_head(placed, begins)
            )
            read_at = begins + len(entries)
            begins += 0 if set_aside else len(entries) - len(placed)
        self._astray += [*chain.from_iterable(wanted.values()), *range(coming, near.stop)]

    def _cut_scattered(self, near: range) -> Iterator[list[Piece]]:
        """Cut letters that stand here and there; when a block is read, the one before still stands."""
        names, store = self.plan.moving.names, self.stores.dead_letters
        left, standing = self._left, 0
        size = self.plan.at_once(BLOCK_ENTRIES, BLOCK_BYTES)
        for start in range(near.start, near.stop, size):
            orders = range(start, min(start + size, near.stop))
            wanted = self._wanted(orders)
            places = [max(0, self.plan.moving.at[order] - left) for order in orders]
            found = store.at(places, self.plan.entry_bytes)
            if name_of(found.get(places[0], b"")) != names[start]:
                shift = self._shift(places[0], names[start])
                places = [max(0, place - shift) for place in places]
                found = store.at(places, self.plan.entry_bytes)
            placed = [
                (place - standing, pick) for place, pick in self._placed(found.items(), wanted)
            ]
            self._astray += chain.from_iterable(wanted.values())
            yield self._numbered(scattered(placed, self.plan.length - left - standing))
            left, standing = left + standing, len(placed)

    def _shift(self, place: int, name: int) -> int:
        """Tell how far towards the head a letter stands from this place; 0 where it is not found."""
        first = max(0, place - SLACK)
        near = self.stores.dead_letters.stretch(
            first, place - first + CHUNK_SPAN, self.plan.entry_bytes
        )
        found = (place - first - at for at, raw in enumerate(near) if name_of(raw) == name)
        return min(found, key=abs, default=0)

    def _wanted(self, orders: Iterable[int]) -> Wanted:
        wanted: Wanted = defaultdict(deque)
        for order in orders:
            wanted[self.plan.moving.names[order]].append(order)
        return wanted

    def _placed(self, entries: Iterable[tuple[int, bytes]], wanted: Wanted) -> Iterator[Placed]:
        """Find the wanted letters among these entries; they are wanted no more."""
        for place, raw in entries:
            orders = wanted.get(name := name_of(raw))
            if orders:
                order = orders.popleft()
                if not orders:
                    del wanted[name]
                yield place, self._pick(order, raw, place)

    def _pick(self, order: int, raw: bytes, place: int) -> Pick:
        letter = Letter(raw, place, place, 0, False, read_payload(raw))
        plan, number = self.plan, self.first + order
        written = None
        if plan.action is Action.REQUEUE:
            count = self.first + len(plan.moving)
            written = plan.policy.written(raw, self.now, number, count)
        return Pick(number, letter, written)

    def _numbered(self, pieces: Iterable[Piece]) -> list[Piece]:
        numbered = []
        for piece in pieces:
            self.chunk += 1
            numbered.append(piece._replace(chunk=self.chunk))
        return numbered

    # archiving

    def _archived(self, blocks: Iterator[list[Piece]]) -> Iterator[list[Piece]]:
        """Archive each block durably before it is given; the next one while this one is taken."""
        with ThreadPoolExecutor(1) as archivist:
            ready: list[Piece] = []
            for block in blocks:
                written = archivist.submit(self._archive, block)
                if ready:
                    yield ready
                written.result()
                ready = block
            if ready:
                yield ready

    def _archive(self, pieces: Iterable[Piece]) -> None:
        try:
            self.stores.archive.keep(self.operation_id, pieces, at=self.at)
        except OutcomeUnknown as error:  # an archive without its script changes nothing
            raise StoreBusy(error.message, hint=error.hint) from None

    # taking

    def _take(self, pieces: Sequence[Piece], *, set_aside: bool) -> None:
        for start in range(0, len(pieces), TOGETHER):
            if self._must_stop():
                return
            group = pieces[start : start + TOGETHER]
            is_behind = False  # a piece was not taken, so those after it stand further back
            for piece, missing in zip(group, self._send(group, set_aside=set_aside), strict=True):
                if missing and is_behind:
                    wider = piece._replace(span=piece.span + CHUNK_SPAN)
                    self._settle(wider, self._send([wider], set_aside=set_aside)[0], set_aside)
                else:
                    self._settle(piece, missing, set_aside)
                is_behind |= missing is None or bool(missing)
            self.progress(self.moved)

    def _send(self, pieces: Sequence[Piece], *, set_aside: bool = False) -> list[Missing]:
        """Send these pieces together and count those that are taken; raise the first refusal."""
        answers = self.stores.dead_letters.take(self.operation_id, pieces, set_aside=set_aside)
        missing: list[Missing] = []
        refusal: LedgerctlError | None = None
        for piece, answer in zip(pieces, answers, strict=True):
            if isinstance(answer, LedgerctlError):
                refusal = refusal or answer
                continue
            missing.append(answer)
            if answer is not None and not answer:
                self._took(piece)
        if refusal is not None:
            raise refusal
        return missing

    def _took(self, piece: Piece) -> None:
        for pick in piece.picks:
            self.fates[pick.order - self.first] = TAKEN
        self.moved += len(piece.picks)
        self._taken.add(piece.chunk)

    def _settle(self, piece: Piece, missing: Missing, set_aside: bool) -> None:
        """Take what is there of a piece that was not taken whole; the rest is looked for later."""
        while missing:
            lost = set(missing)
            self._astray += [piece.picks[at].order - self.first for at in missing]
            picks = tuple(pick for at, pick in enumerate(piece.picks) if at not in lost)
            places = tuple(place for at, place in enumerate(piece.places) if at not in lost)
            if not picks:
                missing = None
                break
            span = piece.span + CHUNK_SPAN
            (piece,) = self._numbered([piece._replace(picks=picks, places=places, span=span)])
            self._archive([piece])
            (missing,) = self._send([piece], set_aside=set_aside)
        if missing is None and set_aside:
            self._pass_unwanted()

    def _pass_unwanted(self) -> None:
        """Set aside what stands at the head and is not wanted; others have changed the list."""
        store = self.stores.dead_letters
        head = store.head(CHUNK_SPAN)
        lowest = max(0, self.fates.find(UNTRIED))
        orders = range(lowest, min(len(self.fates), lowest + 3 * BLOCK_ENTRIES))
        wanted = {self.plan.moving.names[one] for one in orders if self.fates[one] == UNTRIED}
        stretch = next((at for at, raw in enumerate(head) if name_of(raw) in wanted), len(head))
        if stretch:
            store.take(
                self.operation_id, [Piece((), stretch, head[0], head[stretch - 1])], set_aside=True
            )

    # letters that are not where they were

    def _find_astray(self) -> None:
        """Look for the letters that had moved, wherever they stand; the rest others have taken."""
        in_vain = 0
        while self._astray and in_vain < ROUNDS_MAX and not self._must_stop():
            before = len(self._astray)
            places = self._places()
            if not places and not self._others_pass_over():
                break
            for key, placed in places.items():
                self._take_found(key, placed)
            if len(self._astray) == before:
                in_vain += 1
                time.sleep(PAUSE_S)
        if self.interrupted:
            return
        if self._astray and self._places():
            raise StoreBusy(
                f"{len(self._astray)} letters moved each time they were to be taken",
                hint="run the same command again once the other operation has ended",
            )
        for order in self._astray:
            self.fates[order] = GONE
        self.gone += len(self._astray)
        self._astray = []

    def _others_pass_over(self) -> bool:
        """Tell if letters may be on their way between two lists, so that one read can miss them."""
        store = self.stores.dead_letters
        return any(key != store.passed_key(self.operation_id) for key in store.passed_keys())

    def _places(self) -> dict[str, list[Placed]]:
        """Find the missing letters, as many as one block holds, by list, in order of place."""
        wanted = self._wanted(self._astray)
        places: dict[str, list[Placed]] = {}
        found = 0
        for key in self.stores.dead_letters.lists():
            entries = enumerate(self.stores.queues.read_all(key))
            placed = list(islice(self._placed(entries, wanted), BLOCK_ENTRIES - found))
            found += len(placed)
            if placed:
                places[key] = placed
        return places

    def _take_found(self, key: str, placed: Sequence[Placed]) -> None:
        shift = 0  # letters that were counted as taken and still stand there
        for piece in scattered(placed, self.stores.queues.length(key)):
            if self._must_stop():
                return
            moved = tuple(place + shift for place in piece.places)
            (numbered,) = self._numbered([piece._replace(places=moved)])
            self._archive([numbered])
            (answer,) = self.stores.dead_letters.take(self.operation_id, [numbered], key=key)
            if isinstance(answer, LedgerctlError):
                raise answer
            if answer:
                shift += len(piece.picks)  # moved again: another round
            else:
                self._took(numbered)
        self._astray = [one for one in self._astray if self.fates[one] == UNTRIED]


def carry_out(
    stores: Stores,
    request: Request,
    made: Plan,
    run: Run[Any],
    *,
    operator: str,
    now: datetime,
    confirmed: bool,
) -> None:
    """Move the letters of a plan in one operation; the result's item is the plan as carried out.

    What somebody has confirmed meanwhile is judged anew, and so is what stood on lists of passed
    letters; nothing is added to it. Raises LeaseHeld when another run holds the lease.
    """
    needed = request.selection.is_filter
    passed = made.depth > made.length
    with leased(stores, operator=operator, needed=needed, passed=passed) as lease:
        if confirmed or passed:
            made = plan(stores, request, shown=False, only=made.selected.once_each())
        run.result.items.append(made)
        deep = lease is None and gains_by_lease(made)
        with leased_if_free(stores, operator=operator, wanted=deep) as own:
            moving = Move(
                stores,
                run.operation_id,
                made,
                now=now,
                at=stores.mongo.now(),
                lease=lease or own,
                stopping=run.stopping,
                progress=lambda count: run.progress(
                    f"{request.action}: {count} of {len(made.moving)}"
                ),
            )
            try:
                moving.run()
            finally:
                report(made, moving, run.result)


def report(made: Plan, moving: Move, result: Result[None]) -> None:
    """Tell in the result what the move came to."""
    result.count("selected", len(made.selected))
    result.count("moved", moving.moved)
    for verdict, count in counted(made.skipped).items():
        result.count(f"skipped_{verdict}", count)
    result.not_tried = moving.not_tried
    result.count("already_taken", made.already + moving.gone)
    count_fates(made, result, lambda order: moving.fates[order] != UNTRIED)


def preview(made: Plan) -> Result[None]:
    """Tell what moving the letters of this plan would come to."""
    result: Result[None] = Result()
    result.count("moved", len(made.moving))
    result.count("already_taken", made.already)
    count_fates(made, result, lambda _order: True)
    return result


def count_fates(made: Plan, result: Result[None], is_done: Callable[[int], bool]) -> None:
    """Count the fates of what was asked for. Source: contract, section 1, the last paragraph."""
    if made.selection.names:
        ends = named_ends(made, is_done)
        result.fates[Fate.DONE] += ends.done
        result.fates[Fate.REFUSED] += ends.refused
        result.fates[Fate.NOT_FOUND] += ends.absent
    else:
        result.fates[Fate.DONE] += result.counts["moved"]
        result.fates[Fate.ALREADY] += result.counts["already_taken"]
        result.fates[Fate.REFUSED] += len(made.too_large)


def spread_of(plan: Plan, orders: range, *, left: int = 0) -> Spread:
    """Give the places of the plan's letters of these orders, after `left` earlier ones have gone."""
    places = plan.moving.at[orders.start : orders.stop]
    if left:
        places = array("I", (place - left for place in places))
    return Spread(places, plan.length - left, plan.entry_bytes, plan.bytes_staying)


def gains_by_lease(plan: Plan) -> bool:
    """Tell if letters stand so deep that passing others over, under the lease, holds Redis less.

    Not while another run passes letters over: then their places are not to be relied on.
    """
    orders = range(len(plan.moving))
    return plan.depth == plan.length and spread_of(plan, orders).wants_lease
