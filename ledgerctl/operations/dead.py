"""Dead letters: read in pages, judged by their jobs, selected; nothing is changed here."""

import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice

from ledgerctl.domain.audit import JobPage
from ledgerctl.domain.dead import (
    Action,
    Archived,
    JobStatus,
    Letter,
    LetterPage,
    Plan,
    RequeuePolicy,
    Selection,
    Verdict,
    judge,
    letters,
    select,
)
from ledgerctl.domain.dead_stats import Statistics, Tally
from ledgerctl.domain.payload import Unreadable, read_payload
from ledgerctl.domain.sieve import (
    ContentSieve,
    HashSet,
    Sieve,
    by_digest,
    by_hash,
    by_job,
    either,
    name_of,
)
from ledgerctl.errors import AmbiguousId, LeaseHeld, NotFound
from ledgerctl.operations.cases import show_job
from ledgerctl.operations.waiting import Waiting
from ledgerctl.stores.ahead import ahead
from ledgerctl.stores.codec import may_print_otherwise
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.leases import Lease
from ledgerctl.stores.queues import Survey

LEASE = "dead-letters"
TERM = timedelta(seconds=10)
RENEW_EVERY = timedelta(seconds=2)
FIRST_PIECE_LETTERS, PIECE_LETTERS, PIECE_BYTES = 250, 4_000, 4_000_000  # looked up at once
DIGEST = re.compile(r"[0-9A-Fa-f]{12}")
EVERYTHING = Selection(everything=True)


def look(
    stores: Stores,
    selection: Selection = EVERYTHING,
    *,
    verdicts: bool = True,
    survey: Survey | None = None,
) -> Iterator[Letter]:
    """Read the dead letters that may be selected, in order from the head, judged as they come.

    Those that a filter passed over come first. Only the jobs of letters that may be selected are
    looked up, and without `verdicts` only those that the selection itself needs; the other
    letters have no true verdict. Raises WrongKeyType before anything is read.
    """
    return chain.from_iterable(judged(stores, selection, verdicts=verdicts, survey=survey))


def judged(
    stores: Stores,
    selection: Selection = EVERYTHING,
    *,
    verdicts: bool = True,
    survey: Survey | None = None,
) -> Iterator[list[Letter]]:
    """Judge the letters piece by piece; see `look`."""
    lists = survey or stores.queues.survey()
    sieve = sieve_of(stores, selection, lists, verdicts=verdicts)
    pieces = in_pieces(entries(stores, sieve, lists))
    dropped = sieve if isinstance(sieve, ContentSieve) else None
    return in_turn(stores, selection, pieces, lists, verdicts, dropped)


def in_turn(
    stores: Stores,
    selection: Selection,
    pieces: Iterable[list[Letter]],
    lists: Survey,
    verdicts: bool,
    dropped: ContentSieve | None = None,
) -> Iterator[list[Letter]]:
    """Judge pieces in turn; the jobs of one are read while the next one is."""
    waiting, seen = Waiting(stores, lists.processing), HashSet()
    asked = ((piece, to_look_up(piece, selection, verdicts=verdicts)) for piece in pieces)
    for piece in ahead(partial(with_statuses, stores), asked):
        if dropped is not None:
            mark_duplicates(stores, piece, dropped, lists, seen)
        judge(piece, waiting.holds, seen)
        if selection.requeued_under is not None:
            count_requeues(stores, [one for one in piece if selection.may_mean(one)])
        yield piece


def sieve_of(
    stores: Stores, selection: Selection, lists: Survey, *, verdicts: bool
) -> Sieve | None:
    """Choose the sieve for named letters; for their verdicts it keeps all letters of their jobs."""
    if selection.jobs:
        return by_job(selection.jobs)
    digests = selection.digest_names
    if digests is None:
        return selection.content_sieve()
    if not verdicts:
        return by_digest(digests)
    found = entries(stores, by_digest(digests), lists)
    jobs = {one.job_id for one in found if one.job_id is not None}
    return either(by_digest(digests), by_job(jobs))


def mark_duplicates(
    stores: Stores, piece: Iterable[Letter], dropped: ContentSieve, lists: Survey, seen: HashSet
) -> None:
    """Add to the jobs seen those of letters nearer the head that the sieve has dropped."""
    doubtful: dict[str, Letter] = {}
    for letter in piece:
        name = letter.status.job_id if letter.status is not None else letter.job_id
        if name is not None and dropped.has_dropped(name):
            doubtful.setdefault(name, letter)
    if not doubtful:
        return
    others = [
        one
        for one in entries(stores, by_job(doubtful), lists)
        if one.job_id is not None and not dropped.may_mean(one.raw)
    ]
    texts = {one.job_id for one in others if one.job_id and may_print_otherwise(one.job_id)}
    spelled = stores.jobs.statuses(texts)
    for one in others:
        text = one.job_id or ""
        name = spelled[text].job_id if text in spelled else text
        if name in doubtful and one.position < doubtful[name].position:
            seen.add(name)


def entries(stores: Stores, sieve: Sieve | None, lists: Survey | None = None) -> Iterator[Letter]:
    """Read every letter that the sieve keeps, in order from the head."""
    position = 0
    keys = stores.dead_letters.lists() if lists is None else lists.passed
    for key in keys if lists is None else (*keys, stores.dead_letters.key):
        counted = Counted(stores.queues.pages(key))
        aside = key != stores.dead_letters.key
        yield from letters(counted, sieve, position=position, is_aside=aside)
        position += counted.entries


class Counted:
    """Counts the entries of pages that pass by."""

    def __init__(self, pages: Iterable[list[bytes]]) -> None:
        self._pages = pages
        self.entries = 0

    def __iter__(self) -> Iterator[list[bytes]]:
        for page in self._pages:
            self.entries += len(page)
            yield page


def in_pieces(found: Iterable[Letter]) -> Iterator[list[Letter]]:
    """Cut letters into growing pieces, each ending with the letter that makes it large."""
    piece: list[Letter] = []
    size, most = 0, min(FIRST_PIECE_LETTERS, PIECE_LETTERS)
    for letter in found:
        piece.append(letter)
        size += len(letter.raw)
        if len(piece) == most or size >= PIECE_BYTES:
            yield piece
            piece, size, most = [], 0, min(4 * most, PIECE_LETTERS)
    if piece:
        yield piece


def to_look_up(piece: Iterable[Letter], selection: Selection, *, verdicts: bool) -> set[str]:
    """Name the jobs to look up: of letters that may be selected, and ids of several spellings.

    Of the others the text is the job's own id, by which a duplicate is known.
    """
    if verdicts and selection == EVERYTHING:
        return {one.read.job_id for one in piece if not isinstance(one.read, Unreadable)}
    wanted = verdicts or bool(selection.jobs) or selection.state is not None
    account = selection.account is not None
    return {
        text
        for letter in piece
        if (text := letter.job_id) is not None
        and (
            may_print_otherwise(text)
            or (
                (wanted or not letter.fits_archive or (account and letter.account_id is None))
                and selection.may_mean(letter)
            )
        )
    }


def with_statuses(stores: Stores, asked: tuple[list[Letter], set[str]]) -> list[Letter]:
    """Give the letters of the jobs that were asked for their jobs' statuses."""
    piece, texts = asked
    statuses = stores.jobs.statuses(texts) if texts else {}
    bare: list[tuple[Letter, JobStatus]] = []
    for letter in piece:
        read = letter.read
        if isinstance(read, Unreadable):
            continue
        status = letter.status = statuses.get(read.job_id)
        if read.account_id is None and status is not None:
            bare.append((letter, status))
    if bare:
        accounts = stores.jobs.accounts({status.job_id for _, status in bare})
        for letter, status in bare:
            letter.status = status._replace(account_id=accounts.get(status.job_id))
    return piece


def listed(stores: Stores, selection: Selection, *, limit: int | None) -> tuple[list[Letter], int]:
    """Give the first `limit` selected letters (all without), and how many are selected.

    Without selectors only the pages that are shown are read.
    """
    survey = stores.queues.survey()
    found = selection.of(look(stores, selection, survey=survey))
    depth = stores.dead_letters.depth(survey)
    shown = count_requeues(
        stores, list(islice(found, None if limit is None else min(limit, sys.maxsize)))
    )
    if selection.names or selection.is_filter:
        return shown, len(shown) + sum(1 for _ in found)
    return shown, max(depth, len(shown))


def tail(stores: Stores, selection: Selection, *, limit: int | None) -> tuple[list[Letter], int]:
    """Give the last `limit` selected letters, the last one first, and how many are selected.

    All letters are read: one is a duplicate by what stands nearer the head.
    """
    found = deque[Letter](maxlen=limit)
    total = 0
    for letter in selection.of(look(stores, selection)):
        found.append(letter)
        total += 1
    return count_requeues(stores, list(reversed(found))), total


def count(stores: Stores, selection: Selection = EVERYTHING) -> Statistics:
    """Count the selected letters by error and by verdict; each list is read once, none is kept."""
    is_part = selection.names or selection.is_filter
    tally = Tally(are_all=not is_part)
    survey = stores.queues.survey()
    planned = selection.planned()
    for piece in judged(stores, selection, survey=survey):
        tally.add(list(selection.of(piece, planned)) if is_part else piece)
    return tally.statistics(stores.dead_letters.depth(survey) if is_part else None)


def count_undated(stores: Stores, selection: Selection) -> int:
    """Count the letters that no bound of a failure time can judge: theirs is no time."""
    timeless = replace(selection, failed_before=None, failed_after=None)
    lists = stores.queues.survey()
    sieve = sieve_of(stores, timeless, lists, verdicts=False)
    return sum(
        one.payload is not None and one.payload.undated and timeless.may_mean(one)
        for one in entries(stores, sieve, lists)
    )


def count_requeues(stores: Stores, found: list[Letter]) -> list[Letter]:
    """Fill in how often operations here have put each letter's job back."""
    counts = stores.archive.requeues([one.job_id for one in found if one.job_id is not None])
    for letter in found:
        letter.requeues = None if letter.job_id is None else counts.get(letter.job_id, 0)
    return found


# --- planning ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One requeue or release as the operator asks for it."""

    action: Action
    selection: Selection
    policy: RequeuePolicy = field(default_factory=RequeuePolicy)
    planned_at: datetime | None = None

    @property
    def needs_verdicts(self) -> bool:
        """True where the letters that move depend on their verdicts."""
        by_verdict = self.action is Action.REQUEUE and not self.policy.force
        return by_verdict or self.selection.verdict is not None


def plan(
    stores: Stores,
    request: Request,
    *,
    shown: bool = True,
    only: Callable[[bytes], bool] | None = None,
) -> Plan:
    """Select the letters of one operation: places and digests, fixed from here on.

    Verdicts that neither the operation needs nor anybody sees (`shown`) are not looked up.
    """
    with ThreadPoolExecutor(1) as beside:
        surveyed = beside.submit(stores.queues.survey)
        stores.mongo.now()  # both servers are greeted at the same time
        survey = surveyed.result()
    verdicts = shown or request.needs_verdicts
    found = look(stores, request.selection, verdicts=verdicts, survey=survey)
    depth = stores.dead_letters.depth(survey)
    made = select(found, request.selection, request.action, request.policy, only=only)
    made.depth, made.length = depth, survey.length
    if request.selection.plan is not None and made.missing:
        made.already = taken_meanwhile(stores, made.missing, request.planned_at)
    return made


def planned_letters(stores: Stores, made: Plan, *, requeues: bool = False) -> Iterator[Letter]:
    """Read the selected letters of a plan once more, those that still stand there, as judged."""
    places, verdicts = made.selected, list(Verdict)
    size = made.at_once(PIECE_LETTERS, PIECE_BYTES)
    for start in range(0, len(places), size):
        orders = range(start, min(start + size, len(places)))
        piece: list[Letter] = []
        for order, letter in again(stores, made, orders):
            letter.verdict = verdicts[made.judged[order]]
            piece.append(letter)
        with_statuses(stores, (piece, to_look_up(piece, EVERYTHING, verdicts=True)))
        yield from count_requeues(stores, piece) if requeues else piece


def again(stores: Stores, made: Plan, orders: range) -> Iterator[tuple[int, Letter]]:
    """Read the selected letters of these orders by their places, not judged."""
    places = made.selected
    near = range(max(orders.start, min(places.aside, orders.stop)), orders.stop)
    aside = {places.names[order]: order for order in range(orders.start, near.start)}
    if aside:
        for letter in entries(stores, by_hash(aside)):
            yield aside[name_of(letter.raw)], letter
    found = stores.dead_letters.at([places.at[order] for order in near], made.entry_bytes)
    for order in near:
        raw = found.get(places.at[order], b"")
        if name_of(raw) == places.names[order]:
            index = places.at[order]
            position = index + made.depth - made.length
            yield order, Letter(raw, position, index, 0, False, read_payload(raw))


# --- the lease of changes by filter --------------------------------------------------------


@contextmanager
def leased(
    stores: Stores, *, operator: str, needed: bool, passed: bool | None = None
) -> Iterator[Lease | None]:
    """Hold the lease of changes by filter, if this is one; put back what a dead owner left.

    `passed` tells of letters that were seen on lists of passed ones; None: look for such lists.

    Raises LeaseHeld when another run has the lease and this one needs it.
    """
    if needed:
        with stores.leases.held(
            LEASE, operator=operator, term=TERM, renew_every=RENEW_EVERY
        ) as lease:
            put_back_passed(stores)
            yield lease
        return
    if stores.dead_letters.passed_keys() if passed is None else passed:
        with leased_if_free(stores, operator=operator, wanted=True) as lease:
            if lease is not None:  # else their owner is alive and puts them back itself
                put_back_passed(stores)
    yield None


@contextmanager
def leased_if_free(stores: Stores, *, operator: str, wanted: bool) -> Iterator[Lease | None]:
    """Hold the lease, if it is wanted and nobody else has it; None without it."""
    with ExitStack() as stack:
        lease = None
        if wanted:
            with suppress(LeaseHeld):
                lease = stack.enter_context(
                    stores.leases.held(LEASE, operator=operator, term=TERM, renew_every=RENEW_EVERY)
                )
        yield lease


def put_back_passed(stores: Stores) -> None:
    """Put every passed letter back before the head, in order; only under the lease."""
    for key in reversed(stores.dead_letters.passed_keys()):
        stores.queues.require_lists(key)
        stores.dead_letters.put_back(key)


# --- one letter ----------------------------------------------------------------------------


def show(stores: Stores, text: str, *, now: datetime) -> LetterPage:
    """Give the letters of a job id or a digest, and their job. Raises NotFound."""
    named = [Selection(jobs=(text,))]
    if DIGEST.fullmatch(text):
        named.insert(0, Selection(digests=(text.lower(),)))
    found = next(filter(None, (tuple(one.of(look(stores, one))) for one in named)), ())
    taken = tuple(stores.archive.about(text))
    if not found and not taken:
        raise NotFound(
            f"no dead letter of job or digest {text!r}, nor in the archive",
            hint="`ledgerctl dead list` shows both",
        )
    job_id = found[0].job_id if found else taken[0].job_id
    page, error = job_page(stores, job_id, now)
    last = taken[0].operation_id if taken else ""
    without_notes = last if last and not stores.dead_letters.has_notes(last) else ""
    shown = count_requeues(stores, list(found))
    return LetterPage(tuple(shown), () if found else taken, page, error, without_notes)


def job_page(stores: Stores, job_id: str | None, now: datetime) -> tuple[JobPage | None, str]:
    """Show the job of a letter, or say why there is none to show."""
    if job_id is None:
        return None, "the entry cannot be read, so its job is not known"
    try:
        return show_job(stores, job_id, now=now), ""
    except (NotFound, AmbiguousId) as error:
        return None, error.message


def archived_letter(stores: Stores, archived: Archived) -> Letter:
    """Judge an archived letter as if it stood on the list now; it has no position."""
    letter = Letter(archived.payload, -1, -1, 0, False, read_payload(archived.payload))
    with_statuses(stores, ([letter], to_look_up([letter], EVERYTHING, verdicts=True)))
    processing = stores.queues.processing_keys()
    judge([letter], Waiting(stores, processing).holds, HashSet())
    count_requeues(stores, [letter])
    return letter


def taken_meanwhile(stores: Stores, digests: Iterable[str], since: datetime | None) -> int:
    """Count the planned letters that another operation took since, by its own notes."""
    left = Counter(digests)
    notes: dict[str, set[str]] = {}
    taken = 0
    for name, operation_id, chunk in stores.archive.chunks_with(list(left), since):
        if operation_id not in notes:
            notes[operation_id] = set(stores.dead_letters.noted(operation_id))
        if left[name] > 0 and str(chunk) in notes[operation_id]:
            left[name] -= 1
            taken += 1
    return taken
