"""Removal of letters from the list: the strategy, and pieces that hold the server shortly. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from ledgerctl.domain.dead import Letter

CHUNK_LETTERS = 250
CHUNK_SPAN = 300  # entries of the list, those that stay included
CHUNK_BYTES = 256_000
SCATTERED_LETTERS = 100  # each costs a walk along the list
# What one call may walk along a list: an entry is a step, and so are 1,000 bytes, or 50,000 that
# are jumped over to reach a letter. 40,000 steps kept a server busy for 5 ms on a slow machine.
SCATTERED_STEPS = 40_000


class Pick(NamedTuple):
    """One letter to take: its order in the operation, its bytes, and what goes on retry."""

    order: int
    letter: Letter
    written: bytes | None  # None: released


Placed = tuple[int, Pick]  # a letter with its place on the list, or among the entries at hand


class Piece(NamedTuple):
    """Letters that one script takes, and the stretch from the head in which they stand.

    `first` and `last` are the entries at the ends of the stretch; without picks it is only
    passed over. `places` are those of scattered letters.
    """

    picks: tuple[Pick, ...]
    span: int
    first: bytes = b""
    last: bytes = b""
    places: tuple[int, ...] = ()
    chunk: int = 0


class RemovalStrategy(StrEnum):
    """Ways to take letters out of the list."""

    KEEP = "keep"  # near the head; the few that stay are put back by the same script
    SCATTER = "scatter"  # one by one, wherever they stand
    SET_ASIDE = "set aside"  # from the head on; those that stay wait on a list of their own


class Spread(NamedTuple):
    """Places on a list of the letters to take, in order, and the size of the list."""

    places: Sequence[int]
    length: int
    entry_bytes: float
    bytes_staying: int  # before the last of them

    @property
    def is_deep(self) -> bool:
        """True where taking these letters where they stand lets a call walk too far."""
        at_once = min(len(self.places), SCATTERED_LETTERS)
        walked = max(
            min(place - before, self.length - place) for before, place in enumerate(self.places)
        )
        steps = SCATTERED_STEPS // 4 if self.are_many else SCATTERED_STEPS  # each call walks anew
        size = self.entry_bytes
        return walked * (1 + size / 1_000 + at_once * size / 50_000) > steps

    @property
    def are_many(self) -> bool:
        """True where walking to each of them costs more than passing over those between them."""
        return len(self.places) > 2 * SCATTERED_LETTERS

    @property
    def wants_lease(self) -> bool:
        """True where without the lease some call would walk further than SCATTERED_STEPS."""
        return self.strategy(leased=False) is RemovalStrategy.SCATTER and self.is_deep

    def strategy(self, *, leased: bool) -> RemovalStrategy:
        """Choose what holds the server shortest; only a leased run may pass letters over.

        With the lease no call walks further than SCATTERED_STEPS. Without it one may have to.
        """
        if not self.places:
            return RemovalStrategy.KEEP
        staying = self.places[-1] + 1 - len(self.places)
        if staying <= CHUNK_SPAN and self.bytes_staying <= CHUNK_BYTES:
            return RemovalStrategy.KEEP
        if leased and (self.are_many or self.is_deep):
            return RemovalStrategy.SET_ASIDE
        return RemovalStrategy.SCATTER


def near_head(placed: Iterable[Placed], staying: int) -> Iterator[Piece]:
    """Cut letters near the head into pieces; `staying` entries stand before those at hand."""
    taken = 0
    for run in runs(placed, CHUNK_LETTERS):
        taken += len(run)
        stays = staying + run[-1][0] + 1 - taken
        yield Piece(tuple(pick for _, pick in run), stays + len(run))


def scattered(placed: Iterable[Placed], length: int) -> Iterator[Piece]:
    """Cut letters at these places into pieces, each nearer to one end of the list.

    A script walks to all letters of a piece from the end that is nearer, so half the list at most.
    Pieces are taken in order: the places of the later ones are those that they have by then.
    """

    def is_near_tail(one: tuple[int, Placed]) -> bool:
        before, (place, _) = one  # those before it are gone when its turn comes
        return 2 * (place - before) > length - before

    before = 0
    for _, half in groupby(enumerate(placed), is_near_tail):
        for run in runs((one for _, one in half), SCATTERED_LETTERS):
            places = tuple(max(0, place - before) for place, _ in run)
            yield Piece(tuple(pick for _, pick in run), 0, places=places)
            before += len(run)


def stretches(entries: Sequence[bytes], placed: Iterable[Placed]) -> Iterator[Piece]:
    """Cut these entries into stretches that end with a letter to take or hold none."""
    picks = dict(placed)
    start = 0
    while start < len(entries):
        end, size = start, 0
        taken: list[int] = []
        while end < len(entries) and end - start < CHUNK_SPAN and len(taken) < CHUNK_LETTERS:
            size += len(entries[end])
            if end > start and size > CHUNK_BYTES:
                break
            if end in picks:
                taken.append(end)
            end += 1
        if taken:
            end = taken[-1] + 1
        yield Piece(tuple(picks[at] for at in taken), end - start, entries[start], entries[end - 1])
        start = end


def runs(placed: Iterable[Placed], letters_max: int) -> Iterator[list[Placed]]:
    """Cut letters into runs that are bounded in number and bytes."""
    run: list[Placed] = []
    size = 0
    for one in placed:
        grown = len(one[1].letter.raw) + len(one[1].written or b"")
        if run and (len(run) >= letters_max or size + grown > CHUNK_BYTES):
            yield run
            run, size = [], 0
        run.append(one)
        size += grown
    if run:
        yield run
