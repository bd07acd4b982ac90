"""Dead letters: what each one is worth, which ones a command means, and plans. Pure."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from ledgerctl.domain.error_groups import error_group, masked_error
from ledgerctl.domain.jobs import State
from ledgerctl.domain.payload import (
    Payload,
    Unreadable,
    digest,
    read_payload,
    requeued,
)
from ledgerctl.domain.times import shifted
from ledgerctl.errors import ExitCode

ARCHIVED_BYTES_MAX = 12_000_000  # with the longest id, what a document of MongoDB can hold


class Verdict(StrEnum):
    """What a dead letter is worth, in the order in which the first that holds is taken."""

    UNREADABLE = "unreadable"
    UNKNOWN_JOB = "unknown_job"  # no job of that id, or jobs of two types
    BAD_FLAGS = "bad_flags"  # corrupt ones too
    SETTLED = "settled"  # reclaimed, or its status is succeeded
    QUEUED = "queued"  # it waits on retry or is being processed
    DUPLICATE = "duplicate"  # the same job stands nearer the head
    RETRYABLE = "retryable"


class Action(StrEnum):
    """What can be done to a dead letter."""

    REQUEUE = "requeue"
    RELEASE = "release"


class Standing(NamedTuple):
    """What the job document says of a letter's job."""

    job_id: str
    state: State
    succeeded: bool
    account_id: str | None  # where the letter names none


@dataclass(slots=True)
class Letter:
    """One dead letter: its bytes, where it stands, what it says and what it is worth."""

    raw: bytes
    position: int  # from 0 at the head, letters that a filter passed over first
    key: str  # the list it stands on
    index: int  # its place on that list
    read: Payload | Unreadable
    standing: Standing | None = None
    verdict: Verdict = Verdict.UNREADABLE

    @property
    def fits_archive(self) -> bool:
        """Whether it can be archived, without which nothing takes it."""
        return len(self.raw) <= ARCHIVED_BYTES_MAX

    @property
    def payload(self) -> Payload | None:
        """What it says; None when it cannot be read."""
        return self.read if isinstance(self.read, Payload) else None

    @property
    def digest(self) -> str:
        """Its name: first 12 hex digits of the SHA-256 of its bytes."""
        return digest(self.raw)

    @property
    def job_id(self) -> str | None:
        """The job it is about."""
        return None if isinstance(self.read, Unreadable) else self.read.job_id

    @property
    def account_id(self) -> str | None:
        """The account it names, else its job's."""
        if isinstance(self.read, Unreadable):
            return None
        if self.read.account_id is None and self.standing is not None:
            return self.standing.account_id
        return self.read.account_id

    @property
    def error(self) -> str | None:
        """Why the job failed."""
        return None if isinstance(self.read, Unreadable) else self.read.error

    @property
    def failed_at(self) -> datetime | None:
        """When the job failed."""
        return None if isinstance(self.read, Unreadable) else self.read.failed_at

    @property
    def state(self) -> State | None:
        """The state of its job, where there is one."""
        return None if self.standing is None else self.standing.state

    @property
    def group(self) -> str | None:
        """The group of its error; None when it cannot be read."""
        return None if isinstance(self.read, Unreadable) else error_group(self.read.error)


def letters(entries: Iterable[tuple[str, int, bytes]]) -> Iterator[Letter]:
    """The letters on these places (list, index, bytes), each as it is read, not judged yet."""
    for position, (key, index, raw) in enumerate(entries):
        yield Letter(raw, position, key, index, read_payload(raw))


def judge(found: Iterable[Letter], queued: Collection[str], seen: set[str]) -> None:
    """Give each letter its verdict: the first that holds. Source: contract, section 3, dead.

    Each has its job's standing, if it has one. `queued` are the jobs on retry and processing,
    `seen` those of letters nearer the head, to which these are added; both by the job's own text.
    """
    for letter in found:
        read, standing = letter.read, letter.standing
        if isinstance(read, Unreadable):
            continue
        name = read.job_id if standing is None else standing.job_id
        letter.verdict = verdict(standing, queued=name in queued, seen=name in seen)
        seen.add(name)


BY_STATE = {
    State.BAD_FLAGS: Verdict.BAD_FLAGS,
    State.CORRUPT: Verdict.BAD_FLAGS,
    State.RECLAIMED: Verdict.SETTLED,
}


def verdict(standing: Standing | None, *, queued: bool, seen: bool) -> Verdict:
    """The verdict on a readable letter."""
    if standing is None:
        return Verdict.UNKNOWN_JOB
    found = BY_STATE.get(standing.state)
    if found is not None:
        return found
    if standing.succeeded:
        return Verdict.SETTLED
    if queued:
        return Verdict.QUEUED
    return Verdict.DUPLICATE if seen else Verdict.RETRYABLE


def movable(action: Action, found: Verdict, *, force: bool) -> bool:
    """Whether this action takes a letter of that verdict. Source: contract, section 3, dead."""
    match action:
        case Action.RELEASE:
            return True
        case Action.REQUEUE:
            return found is Verdict.RETRYABLE or (force and found is not Verdict.UNREADABLE)


# --- selecting -----------------------------------------------------------------------------


class PlanItem(NamedTuple):
    """One letter of a plan, and whether the plan meant to move it."""

    digest: str
    meant: bool


@dataclass(frozen=True)
class Selection:
    """Which letters a command means; what is given is combined by AND."""

    jobs: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    everything: bool = False
    group: str | None = None
    error: "re.Pattern[str] | None" = None
    account: str | None = None
    state: State | None = None
    verdict: Verdict | None = None
    failed_before: datetime | None = None
    failed_after: datetime | None = None
    limit: int | None = None
    plan: tuple[PlanItem, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no selector was given at all."""
        return not (
            self.jobs
            or self.digests
            or self.everything
            or self.is_filter
            or self.limit is not None
            or self.plan is not None
        )

    @property
    def is_filter(self) -> bool:
        """Whether letters are chosen by what they say: such a change holds the lease."""
        chosen = (self.group, self.error, self.account, self.state, self.verdict)
        return any(one is not None for one in (*chosen, self.failed_before, self.failed_after))

    @property
    def names(self) -> bool:
        """Whether letters are named one by one: by id, digest or plan."""
        return bool(self.jobs or self.digests or self.plan is not None)

    def named(self, letter: Letter, planned: "Counter[str]") -> bool:
        """Whether ids, digests and the plan mean this letter; takes it off what is planned."""
        if self.jobs and not (letter.job_id in self.jobs or self._is_job(letter)):
            return False
        if self.digests and letter.digest not in self.digests:
            return False
        if self.plan is None:
            return True
        if planned[letter.digest] <= 0:
            return False
        planned[letter.digest] -= 1
        return True

    def _is_job(self, letter: Letter) -> bool:
        return letter.standing is not None and letter.standing.job_id in self.jobs

    def may_mean(self, letter: Letter) -> bool:
        """Whether it can be meant, as far as its own bytes tell: only then is its job looked up."""
        text = letter.job_id
        if text is None:
            return True
        if self.jobs and text.lower() not in self._job_names:
            return False
        if self._digest_names is not None and letter.digest not in self._digest_names:
            return False
        return (
            (self.group is None or letter.group == self.group)
            and (self.error is None or self._errs(letter))
            and (self.account is None or letter.account_id in {None, self.account})
            and self._failed(letter.failed_at)
        )

    @cached_property
    def _job_names(self) -> frozenset[str]:
        return frozenset(job.lower() for job in self.jobs)

    @cached_property
    def _digest_names(self) -> frozenset[str] | None:
        if not self.digests and self.plan is None:
            return None
        return frozenset(self.digests) | {item.digest for item in self.plan or ()}

    def passes(self, letter: Letter) -> bool:
        """Whether the filters let this letter through; one without `failed_at` matches neither."""
        return self._says(letter) and self._failed(letter.failed_at)

    def _says(self, letter: Letter) -> bool:
        return (
            (self.verdict is None or letter.verdict is self.verdict)
            and (self.state is None or letter.state is self.state)
            and (self.account is None or letter.account_id == self.account)
            and (self.group is None or letter.group == self.group)
            and (self.error is None or self._errs(letter))
        )

    def _errs(self, letter: Letter) -> bool:
        readable = letter.payload is not None
        return readable and bool(self.error and self.error.search(letter.error or ""))

    def _failed(self, at: datetime | None) -> bool:
        if self.failed_before is None and self.failed_after is None:
            return True
        if at is None:
            return False
        return (self.failed_before is None or at < self.failed_before) and (
            self.failed_after is None or at >= self.failed_after
        )


@dataclass(slots=True)
class Selected:
    """The letters that a command means, fixed at its start, and what is said of the named ones."""

    letters: list[Letter] = field(default_factory=list)
    moving: list[Letter] = field(default_factory=list)
    left: list[Letter] = field(default_factory=list)  # named, and left by a filter or the limit
    missing: list[str] = field(default_factory=list)  # ids and digests of no letter

    @property
    def too_large(self) -> int:
        """How many of them nothing takes, because the archive cannot hold them."""
        return sum(not one.fits_archive for one in self.letters)

    @property
    def skipped(self) -> dict[str, int]:
        """Those that the action does not take, counted by verdict."""
        moving = {id(letter) for letter in self.moving}
        return counted(str(one.verdict) for one in self.letters if id(one) not in moving)


def select(
    found: Sequence[Letter], selection: Selection, action: Action | None, *, force: bool = False
) -> Selected:
    """The letters that are meant, in order from the head; without an action all of them move.

    With `--limit N` it ends with the Nth letter that the action takes.
    """
    planned = Counter(item.digest for item in selection.plan or ())
    chosen = Selected()
    full = False
    for letter in found:
        if not selection.named(letter, planned):
            continue
        if full or not selection.passes(letter):
            chosen.left.append(letter)
            continue
        chosen.letters.append(letter)
        if action is None or (letter.fits_archive and movable(action, letter.verdict, force=force)):
            chosen.moving.append(letter)
            full = len(chosen.moving) == selection.limit
        if full and not selection.names:
            break
    chosen.missing = missing(selection, chosen, planned)
    return chosen


def missing(selection: Selection, chosen: Selected, planned: "Counter[str]") -> list[str]:
    """What was named and is no dead letter; of a plan only what it meant to move."""
    known = [*chosen.letters, *chosen.left]
    jobs = {letter.job_id for letter in known}
    jobs |= {letter.standing.job_id for letter in known if letter.standing}
    gone = [job for job in dict.fromkeys(selection.jobs) if job not in jobs]
    if selection.digests:
        digests = {letter.digest for letter in known}
        gone += [one for one in dict.fromkeys(selection.digests) if one not in digests]
    meant = Counter(item.digest for item in selection.plan or () if item.meant)
    return gone + [one for one, left in planned.items() for _ in range(min(left, meant[one]))]


def exit_code(
    selection: Selection, chosen: Selected, *, done: Collection[int], already: int
) -> ExitCode:
    """How the things that were named ended. Source: contract, section 1, the last paragraph.

    `done` are the ids of the letter objects that were moved or are where they belong already;
    `already` counts missing ones that another operator took meanwhile.
    """
    if not selection.names:
        return ExitCode.DONE
    good, bad = outcomes(selection, chosen, done)
    absent = len(chosen.missing) - already
    good += already + len(chosen.left)
    if not bad and not absent:
        return ExitCode.DONE
    if good:
        return ExitCode.PARTIAL
    return ExitCode.REFUSED if bad else ExitCode.NOT_FOUND


def outcomes(selection: Selection, chosen: Selected, done: Collection[int]) -> tuple[int, int]:
    """How many named things were done and how many not: a job is done with its first letter."""
    meant = Counter(item.digest for item in selection.plan or () if item.meant)
    unmeant = Counter(item.digest for item in selection.plan or () if not item.meant)
    well: dict[str, bool] = {}
    good = bad = 0
    for letter in chosen.letters:
        ok = id(letter) in done
        if selection.jobs:
            name = letter.job_id or ""
            well[name] = well.get(name, False) or ok
        elif ok:
            good += 1
            meant[letter.digest] -= 1
        elif selection.plan is not None and unmeant[letter.digest] > 0:
            unmeant[letter.digest] -= 1  # as the plan foresaw
            good += 1
        else:
            bad += 1
    return good + sum(well.values()), bad + sum(not ok for ok in well.values())


# --- what is written -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequeuePolicy:
    """How a requeued payload is rewritten: attempts (None: kept) and when it is due."""

    attempts: int | None = 0
    delay: timedelta = timedelta(0)
    spread: timedelta = timedelta(0)
    force: bool = False

    def due(self, now: datetime, at: int, count: int) -> datetime:
        """When the letter number `at` of `count` is due: delay + at · spread / count."""
        return shifted(shifted(now, self.delay), self.spread * at / max(1, count))

    def written(self, raw: bytes, now: datetime, at: int, count: int) -> bytes:
        """The payload to put on retry; nothing but attempts and the due time differs."""
        return requeued(raw, attempts=self.attempts, due=self.due(now, at, count), now=now)


class Pick(NamedTuple):
    """One letter to take: its place in the operation, its bytes, and what goes on retry."""

    order: int
    letter: Letter
    written: bytes | None  # None: released


# --- chunks --------------------------------------------------------------------------------

CHUNK_LETTERS = 250
CHUNK_SPAN = 300  # entries of the list, those that stay included
CHUNK_BYTES = 256_000
SCATTERED_LETTERS = 100  # each costs a walk along the list
# What one call may walk along a list: an entry is a step, and so are 1,000 bytes, or 50,000 that
# are jumped over to reach a letter. 40,000 steps kept a server busy for 5 ms on a slow machine.
SCATTERED_STEPS = 40_000


class Piece(NamedTuple):
    """Letters that one script takes, and the stretch from the head in which they stand.

    `first` and `last` are the entries at the ends of the stretch; without picks it is only
    passed over.
    """

    picks: tuple[Pick, ...]
    span: int
    first: bytes = b""
    last: bytes = b""


class Way(StrEnum):
    """How letters are taken out of the list."""

    KEEP = "keep"  # near the head; the few that stay are put back by the same script
    SCATTER = "scatter"  # one by one, wherever they stand
    SET_ASIDE = "set aside"  # from the head on; those that stay wait on a list of their own


def best_way(found: Sequence[bytes], moving: Sequence[Letter], *, leased: bool) -> Way:
    """The way that holds the server shortest: see `Way`. Only a leased run may pass letters over.

    With the lease no call walks further than SCATTERED_STEPS. Without it one may have to.
    """
    if not moving:
        return Way.KEEP
    end = moving[-1].index + 1
    if end - len(moving) <= CHUNK_SPAN and bytes_staying(found, moving, end) <= CHUNK_BYTES:
        return Way.KEEP
    if not leased:
        return Way.SCATTER
    return Way.SET_ASIDE if are_many(moving) or is_deep(found, moving) else Way.SCATTER


def are_many(moving: Sequence[Letter]) -> bool:
    """Whether walking to each of them costs more than passing over those between them."""
    return len(moving) > 2 * SCATTERED_LETTERS


def wants_lease(found: Sequence[bytes], moving: Sequence[Letter]) -> bool:
    """Whether without the lease some call would walk further than SCATTERED_STEPS."""
    return best_way(found, moving, leased=False) is Way.SCATTER and is_deep(found, moving)


def is_deep(found: Sequence[bytes], moving: Sequence[Letter]) -> bool:
    """Whether taking these letters where they stand lets a call walk too far along the list."""
    size = sum(map(len, found)) / max(1, len(found))  # bytes of an entry
    at_once = min(len(moving), SCATTERED_LETTERS)
    walked = max(
        min(letter.index - before, len(found) - letter.index)
        for before, letter in enumerate(moving)
    )
    steps = SCATTERED_STEPS // 4 if are_many(moving) else SCATTERED_STEPS  # each call walks anew
    return walked * (1 + size / 1_000 + at_once * size / 50_000) > steps


def bytes_staying(found: Sequence[bytes], moving: Sequence[Letter], end: int) -> int:
    """The bytes of the letters that stay before the last one to take."""
    return sum(map(len, found[:end])) - sum(len(letter.raw) for letter in moving)


def pieces(found: Sequence[bytes], picks: Iterable[Pick], chosen: Way) -> Iterator[Piece]:
    """Cut the letters to take into pieces that are bounded in number, span and bytes.

    The letters are asked for as the pieces are.

    `found` are the entries of the list from its head on, as they stood when it was read.
    """
    match chosen:
        case Way.KEEP:
            count = 0
            for run in runs(picks, CHUNK_LETTERS):
                count += len(run)
                staying = run[-1].letter.index + 1 - count
                yield Piece(tuple(run), staying + len(run))
        case Way.SCATTER:
            placed = ((pick.letter.index, pick) for pick in picks)
            for run in scattered(placed, len(found)):
                yield Piece(tuple(run), 0)
        case Way.SET_ASIDE:
            yield from stretches(found, picks)


def runs(picks: Iterable[Pick], letters_max: int) -> Iterator[list[Pick]]:
    """Runs of letters to take, bounded in number and bytes."""
    run: list[Pick] = []
    size = 0
    for pick in picks:
        grown = len(pick.letter.raw) + len(pick.written or b"")
        if run and (len(run) >= letters_max or size + grown > CHUNK_BYTES):
            yield run
            run, size = [], 0
        run.append(pick)
        size += grown
    if run:
        yield run


def scattered(placed: Iterable[tuple[int, Pick]], length: int) -> Iterator[list[Pick]]:
    """Runs of letters that stand at these places of a list, each nearer to one of its ends.

    A script walks to all letters of a run from the end that is nearer, so half the list at most.
    """

    def is_near_tail(one: tuple[int, tuple[int, Pick]]) -> bool:
        before, (place, _) = one  # those before it are gone when its turn comes
        return 2 * (place - before) > length - before

    for _, half in groupby(enumerate(placed), is_near_tail):
        yield from runs((pick for _, (_, pick) in half), SCATTERED_LETTERS)


def stretches(found: Sequence[bytes], picks: Iterable[Pick]) -> Iterator[Piece]:
    """The list up to its last letter to take, cut into stretches that end with one or hold none."""
    coming = iter(picks)
    pick = next(coming, None)
    start = 0
    while pick is not None:
        end, size = start, 0
        taken: list[Pick] = []
        while pick is not None and end - start < CHUNK_SPAN and len(taken) < CHUNK_LETTERS:
            size += len(found[end])
            if end > start and size > CHUNK_BYTES:
                break
            if end == pick.letter.index:
                taken.append(pick)
                pick = next(coming, None)
            end += 1
        if taken:
            end = taken[-1].letter.index + 1
        yield Piece(tuple(taken), end - start, found[start], found[end - 1])
        start = end


# --- statistics ----------------------------------------------------------------------------


@dataclass(slots=True)
class ErrorGroup:
    """Letters whose errors differ only in numbers and ids."""

    group: str
    error: str
    sample_job: str
    count: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None

    def add(self, at: datetime | None) -> None:
        """Count one more letter, of a job that failed then."""
        self.count += 1
        if at is not None:
            if self.oldest is None or at < self.oldest:
                self.oldest = at
            if self.newest is None or at > self.newest:
                self.newest = at


@dataclass(frozen=True, slots=True)
class Statistics:
    """The dead letters in figures."""

    depth: int
    unreadable: int
    jobs: int
    by_error: tuple[ErrorGroup, ...]
    by_verdict: dict[str, int]

    @property
    def oldest_failed_at(self) -> datetime | None:
        """The earliest failure that a letter names."""
        return min((one.oldest for one in self.by_error if one.oldest), default=None)

    @property
    def newest_failed_at(self) -> datetime | None:
        """The latest failure that a letter names."""
        return max((one.newest for one in self.by_error if one.newest), default=None)


# Texts whose group is known, of which many letters share one: how many are kept, and how long ones.
ERRORS_KEPT, ERROR_KEPT_LENGTH = 1_000, 1_000


class Tally:
    """Counts letters by error and by verdict; keeps their jobs' ids, and no letter."""

    def __init__(self, found: Sequence[Letter] = ()) -> None:
        self._jobs: set[str] = set()
        self._verdicts: Counter[Verdict] = Counter()
        self._groups: dict[str, ErrorGroup] = {}
        self._of_error: dict[str, ErrorGroup] = {}
        self.add(found)

    def add(self, found: Sequence[Letter]) -> None:
        """Count these judged letters too."""
        self._verdicts.update([letter.verdict for letter in found])
        for letter in found:
            read = letter.read
            if isinstance(read, Unreadable):
                continue
            self._jobs.add(read.job_id)
            error = read.error or ""
            group = self._of_error.get(error)
            if group is None:
                group = self._group_of(error, read.job_id)
            group.add(read.failed_at)

    def _group_of(self, error: str, job_id: str) -> ErrorGroup:
        name = error_group(error)
        if name not in self._groups:
            self._groups[name] = ErrorGroup(name, masked_error(error), job_id)
        if len(self._of_error) == ERRORS_KEPT:
            self._of_error.clear()
        if len(error) <= ERROR_KEPT_LENGTH:
            self._of_error[error] = self._groups[name]
        return self._groups[name]

    def error_groups(self) -> list[ErrorGroup]:
        """The groups of errors among the readable letters, the most frequent first."""
        return sorted(self._groups.values(), key=lambda one: (-one.count, one.group))

    def statistics(self) -> Statistics:
        """What was counted; the most frequent error first."""
        return Statistics(
            depth=self._verdicts.total(),
            unreadable=self._verdicts[Verdict.UNREADABLE],
            jobs=len(self._jobs),
            by_error=tuple(self.error_groups()),
            by_verdict=counted(self._verdicts),
        )


def counted(names: Iterable[str]) -> dict[str, int]:
    """How often each verdict occurs, in the order of the verdicts; from a Counter as well."""
    counts = Counter(names)
    return {str(one): counts[str(one)] for one in Verdict if counts[str(one)]}
