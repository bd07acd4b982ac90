"""Dead letters: their verdicts, which ones a command selects, and what it plans to move. Pure."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Protocol

from ledgerctl.domain.audit import JobPage
from ledgerctl.domain.error_groups import error_group
from ledgerctl.domain.jobs import State
from ledgerctl.domain.payload import (
    Payload,
    Unreadable,
    digest,
    read_payload,
    requeued,
)
from ledgerctl.domain.sieve import ContentSieve, HashSet, Sieve, name_of
from ledgerctl.domain.times import shifted

ARCHIVED_BYTES_MAX = 12_000_000  # with the longest id, what a document of MongoDB can hold


class Verdict(StrEnum):
    """Verdicts on a dead letter; the first that holds is given."""

    UNREADABLE = "unreadable"
    UNKNOWN_JOB = "unknown_job"  # no job of that id, or jobs of two types
    BAD_FLAGS = "bad_flags"  # corrupt ones too
    SETTLED = "settled"  # reclaimed, or its status is succeeded
    QUEUED = "queued"  # it waits on retry or is being processed
    DUPLICATE = "duplicate"  # the same job stands nearer the head
    RETRYABLE = "retryable"


ORDINALS = {verdict: number for number, verdict in enumerate(Verdict)}


class Action(StrEnum):
    """Changes of dead letters."""

    REQUEUE = "requeue"
    RELEASE = "release"


class JobStatus(NamedTuple):
    """A dead letter's job as its document describes it."""

    job_id: str
    state: State
    succeeded: bool
    account_id: str | None  # where the letter names none


@dataclass(slots=True)
class Letter:
    """One dead letter: its bytes, its place, its content and its verdict."""

    raw: bytes
    position: int  # from 0 at the head, letters that a filter passed over first
    index: int  # its place on the list on which it stands
    before: int  # bytes of that list that stand before it
    is_aside: bool  # a filter passed it over: it stands on another list than the letters'
    read: Payload | Unreadable
    status: JobStatus | None = None
    verdict: Verdict = Verdict.UNREADABLE
    is_first: bool = False  # of its job's, from the head
    requeues: int | None = None  # how often operations here have put its job back, where asked

    @property
    def fits_archive(self) -> bool:
        """True where the archive can hold it; nothing takes a letter that it cannot hold."""
        return len(self.raw) <= ARCHIVED_BYTES_MAX

    @property
    def payload(self) -> Payload | None:
        """Its content; None when it cannot be read."""
        return self.read if isinstance(self.read, Payload) else None

    @property
    def digest(self) -> str:
        """First 12 hex digits of the SHA-256 of its bytes."""
        return digest(self.raw)

    @property
    def job_id(self) -> str | None:
        """Id of its job, as it spells it."""
        return None if isinstance(self.read, Unreadable) else self.read.job_id

    @property
    def account_id(self) -> str | None:
        """Account that it names, else its job's."""
        if isinstance(self.read, Unreadable):
            return None
        if self.read.account_id is None and self.status is not None:
            return self.status.account_id
        return self.read.account_id

    @property
    def error(self) -> str | None:
        """Error of the job's failure."""
        return None if isinstance(self.read, Unreadable) else self.read.error

    @property
    def failed_at(self) -> datetime | None:
        """Time of the job's failure."""
        return None if isinstance(self.read, Unreadable) else self.read.failed_at

    @property
    def state(self) -> State | None:
        """State of its job, where there is one."""
        return None if self.status is None else self.status.state

    @property
    def group(self) -> str | None:
        """Group of its error; None when it cannot be read."""
        return None if isinstance(self.read, Unreadable) else error_group(self.read.error)


def judge(found: Iterable[Letter], queued: Callable[[str], bool], seen: HashSet) -> None:
    """Give each letter the first verdict that holds. Source: contract, section 3, dead.

    Each has its job's status, if it has one. `queued` tells of the jobs on retry and processing, and
    is asked only where nothing else decides; `seen` holds those of letters nearer the head, to
    which these are added; both by the job's own text.
    """
    for letter in found:
        read, status = letter.read, letter.status
        if isinstance(read, Unreadable):
            continue
        name = read.job_id if status is None else status.job_id
        letter.is_first = seen.add(name)
        verdict = verdict_by_job(status)
        if verdict is None:
            verdict = Verdict.QUEUED if queued(name) else None
        letter.verdict = verdict or (Verdict.RETRYABLE if letter.is_first else Verdict.DUPLICATE)


BY_STATE = {
    State.BAD_FLAGS: Verdict.BAD_FLAGS,
    State.CORRUPT: Verdict.BAD_FLAGS,
    State.RECLAIMED: Verdict.SETTLED,
}


def verdict_by_job(status: JobStatus | None) -> Verdict | None:
    """Give the verdict that the job alone decides; None where the lists decide."""
    if status is None:
        return Verdict.UNKNOWN_JOB
    found = BY_STATE.get(status.state)
    return Verdict.SETTLED if found is None and status.succeeded else found


def movable(action: Action, found: Verdict, *, force: bool) -> bool:
    """Tell if this action takes a letter of that verdict. Source: contract, section 3, dead."""
    match action:
        case Action.RELEASE:
            return True
        case Action.REQUEUE:
            return found is Verdict.RETRYABLE or (force and found is not Verdict.UNREADABLE)


# --- selecting -----------------------------------------------------------------------------


class PlanItem(NamedTuple):
    """One letter of a plan file; `meant` tells that the plan moves it."""

    digest: str
    meant: bool


class ErrorPattern(Protocol):
    """Search an error; a regular expression does, with a limit of time or without."""

    def search(self, text: str, /) -> object:
        """Return None where it is not found."""


@dataclass(frozen=True)
class Selection:
    """Selectors of dead letters, combined by AND."""

    jobs: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    everything: bool = False
    group: str | None = None
    error: ErrorPattern | None = None
    account: str | None = None
    state: State | None = None
    verdict: Verdict | None = None
    failed_before: datetime | None = None
    failed_after: datetime | None = None
    requeued_under: int | None = None
    limit: int | None = None
    plan: tuple[PlanItem, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """True where no selector is given at all."""
        return not (self.names or self.everything or self.is_filter or self.limit is not None)

    @property
    def is_filter(self) -> bool:
        """True where letters are chosen by their content: such a change holds the lease."""
        chosen = (self.group, self.error, self.account, self.state, self.verdict)
        bounds = (self.failed_before, self.failed_after, self.requeued_under)
        return any(one is not None for one in (*chosen, *bounds))

    @property
    def names(self) -> bool:
        """True where letters are named one by one: by id, digest or plan."""
        return bool(self.jobs or self.digests or self.plan is not None)

    def named(self, letter: Letter, planned: "Counter[str]") -> bool:
        """Tell if ids, digests and the plan name this letter; take it off the planned ones."""
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
        return letter.status is not None and letter.status.job_id in self.jobs

    def may_mean(self, letter: Letter) -> bool:
        """Tell if its own bytes leave it possible that it is selected: only then its job is read."""
        text = letter.job_id
        if text is None:
            return True
        if self.jobs and text.lower() not in self._job_names:
            return False
        if self.digest_names is not None and letter.digest not in self.digest_names:
            return False
        return (
            (self.group is None or letter.group == self.group)
            and (self.error is None or self._errs(letter))
            and (self.account is None or letter.account_id in {None, self.account})
            and self._failed(letter.failed_at)
        )

    def content_sieve(self) -> ContentSieve | None:
        """Give the sieve by account, error and group; None where none of them is asked for."""
        may_err = None if self.error is None and self.group is None else self._may_err
        return ContentSieve(self.account, may_err) if may_err or self.account else None

    def _may_err(self, error: str) -> bool:
        is_of_group = self.group is None or error_group(error) == self.group
        return is_of_group and (self.error is None or self.error.search(error) is not None)

    @cached_property
    def _job_names(self) -> frozenset[str]:
        return frozenset(job.lower() for job in self.jobs)

    @cached_property
    def digest_names(self) -> frozenset[str] | None:
        """Digests that are named, by themselves or by the plan; None where none is asked for."""
        if not self.digests and self.plan is None:
            return None
        return frozenset(self.digests) | {item.digest for item in self.plan or ()}

    def passes(self, letter: Letter) -> bool:
        """Tell if the filters let this letter through; one without `failed_at` matches neither."""
        return (
            (self.verdict is None or letter.verdict is self.verdict)
            and (self.state is None or letter.state is self.state)
            and (self.account is None or letter.account_id == self.account)
            and (self.group is None or letter.group == self.group)
            and (self.error is None or self._errs(letter))
            and self._failed(letter.failed_at)
            and (self.requeued_under is None or (letter.requeues or 0) < self.requeued_under)
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

    def planned(self) -> "Counter[str]":
        """Count how often the plan lists each digest."""
        return Counter(item.digest for item in self.plan or ())

    def of(
        self, found: Iterable[Letter], planned: "Counter[str] | None" = None
    ) -> Iterator[Letter]:
        """Give the selected ones of these judged letters, in order; take them off the planned ones."""
        planned = self.planned() if planned is None else planned
        for letter in found:
            if self.named(letter, planned) and self.passes(letter):
                yield letter


# --- planning ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequeuePolicy:
    """Attempts (None: kept) and due times that a requeue writes."""

    attempts: int | None = 0
    delay: timedelta = timedelta(0)
    spread: timedelta = timedelta(0)
    force: bool = False

    def due(self, now: datetime, at: int, count: int) -> datetime:
        """Give the due time of letter number `at` of `count`: delay + at · spread / count."""
        return shifted(shifted(now, self.delay), self.spread * at / max(1, count))

    def written(self, raw: bytes, now: datetime, at: int, count: int) -> bytes:
        """Give the payload to put on retry; nothing but attempts and the due time differs."""
        return requeued(raw, attempts=self.attempts, due=self.due(now, at, count), now=now)


class Named(NamedTuple):
    """One letter that is told apart by its digest; `order` is None where it does not move."""

    digest: str
    job_id: str | None
    verdict: Verdict
    order: int | None


@dataclass(slots=True)
class Places:
    """Letters by their places and the first 8 bytes of their SHA-256: no texts."""

    at: "array[int]" = field(default_factory=lambda: array("I"))  # on the list on which each stands
    names: "array[int]" = field(default_factory=lambda: array("Q"))
    aside: int = 0  # so many, the first ones, stand on lists of passed letters

    def __len__(self) -> int:
        return len(self.at)

    def add(self, letter: Letter) -> None:
        """Add one more letter."""
        self.at.append(letter.index)
        self.aside += letter.is_aside
        self.names.append(name_of(letter.raw))

    def once_each(self) -> Callable[[bytes], bool]:
        """Give a test that accepts the bytes of each letter as often as it is here."""
        names = sorted(self.names)
        used = bytearray(len(names))

        def accepts(raw: bytes) -> bool:
            name = name_of(raw)
            at = bisect_left(names, name)
            while at < len(names) and names[at] == name:
                if not used[at]:
                    used[at] = 1
                    return True
                at += 1
            return False

        return accepts


@dataclass(slots=True)
class Plan:
    """The letters that one operation moves, fixed when they are selected."""

    action: Action
    selection: Selection
    policy: RequeuePolicy
    selected: Places = field(default_factory=Places)
    moving: Places = field(default_factory=Places)
    verdicts: "Counter[str]" = field(default_factory=Counter)  # of the selected ones
    skipped: "Counter[str]" = field(default_factory=Counter)  # those that do not move, by verdict
    too_large: list[Named] = field(default_factory=list)  # the archive cannot hold them
    named: list[Named] = field(default_factory=list)  # selected ones, where letters are named
    left: int = 0  # named ones that a filter or the limit leaves
    missing: list[str] = field(default_factory=list)  # ids and digests of no letter
    already: int = 0  # of the missing ones: another operator took them since the plan was made
    depth: int = 0  # all letters there are
    length: int = 0  # those of them that no filter has passed over
    entry_bytes: float = 0  # average of the list
    bytes_staying: int = 0  # of letters that stay before the last one that moves
    judged: bytearray = field(default_factory=bytearray)  # numbers of the verdicts, as selected
    _bytes_moving: int = 0

    def at_once(self, letters_max: int, bytes_max: int) -> int:
        """Give how many letters of average size stay within both bounds."""
        return int(max(1, min(letters_max, bytes_max / max(1.0, self.entry_bytes))))

    def add(self, letter: Letter) -> None:
        """Add a selected letter; it moves where the action takes its verdict and the archive can hold it."""
        self.selected.add(letter)
        self.verdicts[letter.verdict] += 1
        self.judged.append(ORDINALS[letter.verdict])
        wanted = movable(self.action, letter.verdict, force=self.policy.force)
        order = len(self.moving) if wanted and letter.fits_archive else None
        if order is None:
            self.skipped[letter.verdict] += 1
        else:
            self.moving.add(letter)
            self._bytes_moving += len(letter.raw)
            self.bytes_staying = letter.before + len(letter.raw) - self._bytes_moving
        if not self.selection.names and letter.fits_archive:
            return
        one = Named(letter.digest, letter.job_id, letter.verdict, order)
        if self.selection.names:
            self.named.append(one)
        if wanted and order is None:
            self.too_large.append(one)


def select(
    found: Iterable[Letter],
    selection: Selection,
    action: Action,
    policy: RequeuePolicy = RequeuePolicy(),
    *,
    only: Callable[[bytes], bool] | None = None,
) -> Plan:
    """Plan the move of the selected ones among these judged letters, in order from the head.

    With `--limit N` the reading ends with the Nth letter that moves. `only` accepts the bytes of
    letters that were confirmed.
    """
    plan = Plan(action, selection, policy)
    planned = selection.planned()
    known: set[str | None] = set()
    full = False
    letter = None
    for letter in found:
        if not selection.named(letter, planned):
            continue
        if selection.names:
            known |= {letter.job_id, letter.digest, letter.status and letter.status.job_id}
        if full or not selection.passes(letter):
            plan.left += 1
        elif only is None or only(letter.raw):
            plan.add(letter)
            full = len(plan.moving) == selection.limit
            if full and not selection.names:
                break
    if letter is not None:
        plan.entry_bytes = (letter.before + len(letter.raw)) / (letter.index + 1)
    plan.missing = missing(selection, known, planned)
    return plan


def missing(
    selection: Selection, known: Container[str | None], planned: "Counter[str]"
) -> list[str]:
    """List what is named and is no dead letter; of a plan file only what it meant to move."""
    names = dict.fromkeys((*selection.jobs, *selection.digests))
    gone = [one for one in names if one not in known]
    meant = Counter(item.digest for item in selection.plan or () if item.meant)
    return gone + [one for one, left in planned.items() for _ in range(min(left, meant[one]))]


class NamedEnds(NamedTuple):
    """Named things by how they ended; a job is done with its first letter."""

    done: int
    refused: int
    absent: int


def named_ends(plan: Plan, done: Callable[[int], bool]) -> NamedEnds:
    """Count how the named things ended. Source: contract, section 1, the last paragraph.

    `done` tells of an order that its letter was moved or is where it belongs already.
    """
    meant = Counter(item.digest for item in plan.selection.plan or () if not item.meant)
    by_job: dict[str, bool] = {}
    good = bad = 0
    for one in plan.named:
        ok = one.order is not None and done(one.order)
        if plan.selection.jobs:
            by_job[one.job_id or ""] = by_job.get(one.job_id or "", False) or ok
        elif ok:
            good += 1
        elif meant[one.digest] > 0:
            meant[one.digest] -= 1  # as the plan foresaw
            good += 1
        else:
            bad += 1
    good += sum(by_job.values()) + plan.already
    return NamedEnds(
        good, bad + sum(not ok for ok in by_job.values()), len(plan.missing) - plan.already
    )


# --- records -------------------------------------------------------------------------------


class Archived(NamedTuple):
    """One letter that an operation was about to take."""

    operation_id: str
    chunk: int
    order: int  # its place in the operation
    job_id: str | None
    payload: bytes
    written_sha256: bytes | None  # of what a requeue put on retry; None for a release
    at: datetime


@dataclass(frozen=True, slots=True)
class LetterPage:
    """One job's letters, or one letter: on the list, or as an operation took it."""

    letters: tuple[Letter, ...]
    archived: tuple[Archived, ...]
    job: JobPage | None
    error: str = ""  # why there is no job page
    without_notes: str = ""  # the last operation that took it, if this server has no notes of it


def counted(names: Iterable[str]) -> dict[str, int]:
    """Count each verdict, in the order of the verdicts; from a Counter as well."""
    counts = Counter(names)
    return {str(one): counts[str(one)] for one in Verdict if counts[str(one)]}


# --- reading -------------------------------------------------------------------------------


def letters(
    pages: Iterable[Sequence[bytes]],
    sieve: Sieve | None = None,
    *,
    position: int = 0,
    is_aside: bool = False,
) -> Iterator[Letter]:
    """Give the letters on these pages of a list, each as it is read, not judged yet.

    Only what the sieve keeps is parsed and given.
    """
    index = before = 0
    for page in pages:
        last = 0
        for at in range(len(page)) if sieve is None else sieve(page):
            if last < at:
                before += sum(map(len, page[last:at]))
            raw = page[at]
            place = index + at
            yield Letter(raw, position + place, place, before, is_aside, read_payload(raw))
            before += len(raw)
            last = at + 1
        before += sum(map(len, page[last:]))
        index += len(page)
