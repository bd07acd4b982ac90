"""Looking at dead letters: read once, judged by the ledger's jobs, selected."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial

from ledgerctl.domain.audit import JobPage
from ledgerctl.domain.dead import Letter, Selection, Standing, Statistics, Tally, judge, letters
from ledgerctl.domain.dead_results import Archived, LetterPage
from ledgerctl.domain.payload import Payload, Unreadable, read_payload
from ledgerctl.errors import AmbiguousId, LeaseHeld, NotFound
from ledgerctl.operations.cases import show_job
from ledgerctl.stores.ahead import ahead
from ledgerctl.stores.codec import may_print_otherwise
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.leases import Lease

LEASE = "dead-letters"
TERM = timedelta(seconds=10)
RENEW_EVERY = timedelta(seconds=2)
PIECE_LETTERS, PIECE_BYTES = 1_000, 4_000_000  # read and looked up at once


def look(stores: Stores, selection: Selection | None = None) -> list[Letter]:
    """Every dead letter in order from the head, judged; those a filter passed over first.

    With a selection only the jobs of letters that it may mean are looked up; the other letters
    have no true verdict. Each list is read once. Raises WrongKeyType before anything is read.
    """
    found = [letter for piece in with_standings(stores, selection) for letter in piece]
    judge(found, waiting(stores) if found else set(), set())
    return found


def count(stores: Stores) -> Statistics:
    """The dead letters in figures, each list read once, and no more than a few pieces kept.

    What waits is read when the first piece is there, not after the last as `look` does. Raises
    WrongKeyType before anything is read.
    """
    queued: set[str] | None = None
    seen: set[str] = set()
    tally = Tally()
    for piece in with_standings(stores):
        if queued is None:
            queued = waiting(stores)
        judge(piece, queued, seen)
        tally.add(piece)
    return tally.statistics()


def with_standings(
    stores: Stores, selection: Selection | None = None
) -> Iterator[Sequence[Letter]]:
    """Every dead letter in order from the head with its job's standing, not judged yet.

    The jobs of a piece are looked up while the next one is read; with a selection, only those of
    letters that it may mean. Raises WrongKeyType at once.
    """
    keys = stores.queues.keys
    stores.queues.require_lists(keys.dead_letter, keys.retry)
    pieces = in_pieces(letters(stores.dead_letters.entries()))
    asked = ((piece, to_look_up(piece, selection)) for piece in pieces)
    return ahead(partial(looked_up, stores), asked)


def in_pieces(found: Iterable[Letter]) -> Iterator[list[Letter]]:
    """The letters in pieces, which end with the letter that makes them large."""
    piece: list[Letter] = []
    size = 0
    for letter in found:
        piece.append(letter)
        size += len(letter.raw)
        if len(piece) == PIECE_LETTERS or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def to_look_up(piece: Iterable[Letter], selection: Selection | None) -> set[str]:
    """The ids of the jobs to look up: of the letters meant, and those that may be spelled otherwise.

    Of the others the text is the job's own id, by which a duplicate is known.
    """
    return {
        text
        for letter in piece
        if (text := letter.job_id) is not None
        and (selection is None or may_print_otherwise(text) or selection.may_mean(letter))
    }


def looked_up(stores: Stores, asked: tuple[list[Letter], set[str]]) -> list[Letter]:
    """The letters, those of the jobs that were asked for with their standings."""
    piece, texts = asked
    standings = stores.jobs.standings(texts)
    bare: list[tuple[Letter, Standing]] = []
    for letter in piece:
        read = letter.read
        if isinstance(read, Unreadable):
            continue
        standing = letter.standing = standings.get(read.job_id)
        if read.account_id is None and standing is not None:
            bare.append((letter, standing))
    accounts = stores.jobs.accounts({standing.job_id for _, standing in bare})
    for letter, standing in bare:
        letter.standing = standing._replace(account_id=accounts.get(standing.job_id))
    return piece


def waiting(stores: Stores) -> set[str]:
    """The jobs that wait on retry or are being processed, by their own ids as text."""
    queues = stores.queues
    found: set[str] = set()
    for key in (queues.keys.retry, *queues.processing_keys()):
        for raw in queues.read_all(key):
            payload = read_payload(raw)
            if isinstance(payload, Payload):
                found.add(payload.job_id)
    spelled = stores.jobs.standings(filter(may_print_otherwise, found))
    return found | {standing.job_id for standing in spelled.values()}


@contextmanager
def leased(stores: Stores, *, operator: str, needed: bool) -> Iterator[Lease | None]:
    """Hold the lease of changes by filter, if this is one; put back what a dead owner left.

    Raises LeaseHeld when another run has the lease and this one needs it.
    """
    if needed:
        with stores.leases.held(
            LEASE, operator=operator, term=TERM, renew_every=RENEW_EVERY
        ) as lease:
            put_back_passed(stores)
            yield lease
        return
    if stores.dead_letters.passed_keys():
        try:
            with stores.leases.held(LEASE, operator=operator, term=TERM, renew_every=RENEW_EVERY):
                put_back_passed(stores)
        except LeaseHeld:
            pass  # their owner is alive and puts them back itself
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


def show(stores: Stores, text: str, *, now: datetime) -> LetterPage:
    """The letters that a job id or a digest means, and their job. Raises NotFound."""
    found = tuple(letter for letter in look(stores) if means(letter, text))
    archived = tuple(stores.archive.about(text)) if not found else ()
    if not found and not archived:
        raise NotFound(
            f"no dead letter of job or digest {text!r}, nor in the archive",
            hint="`ledgerctl dead list` shows both",
        )
    job_id = found[0].job_id if found else archived[0].job_id
    page, trouble = job_page(stores, job_id, now)
    return LetterPage(found, archived, page, trouble)


def means(letter: Letter, text: str) -> bool:
    """Whether a job id or a digest means this letter."""
    if text in {letter.job_id, letter.digest}:
        return True
    return letter.standing is not None and letter.standing.job_id == text


def job_page(stores: Stores, job_id: str | None, now: datetime) -> tuple[JobPage | None, str]:
    """The job of a letter, or why there is none to show."""
    if job_id is None:
        return None, "the entry cannot be read, so its job is not known"
    try:
        return show_job(stores, job_id, now=now), ""
    except (NotFound, AmbiguousId) as error:
        return None, error.message


def archived_letter(stores: Stores, archived: Archived) -> Letter:
    """An archived letter judged as if it stood on the list now; it has no position."""
    letter = Letter(archived.payload, -1, "", -1, read_payload(archived.payload))
    judge(looked_up(stores, ([letter], to_look_up([letter], None))), waiting(stores), set())
    return letter


def taken_meanwhile(stores: Stores, digests: Iterable[str], since: datetime | None) -> int:
    """How many of these planned letters another operation took since, by its own notes."""
    left = Counter(digests)
    notes: dict[str, set[str]] = {}
    count = 0
    for name, operation_id, chunk in stores.archive.chunks_with(list(left), since):
        if operation_id not in notes:
            notes[operation_id] = set(stores.dead_letters.noted(operation_id))
        if left[name] > 0 and str(chunk) in notes[operation_id]:
            left[name] -= 1
            count += 1
    return count
