"""Looking at dead letters: read once, judged by the ledger's jobs, selected."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta

from ledgerctl.domain.audit import JobPage
from ledgerctl.domain.dead import Letter, Selection, judge, letters
from ledgerctl.domain.dead_results import Archived, LetterPage
from ledgerctl.domain.payload import Payload, read_payload
from ledgerctl.errors import AmbiguousId, LeaseHeld, NotFound
from ledgerctl.operations.jobs import show as show_job
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.leases import Lease

LEASE = "dead-letters"
TERM = timedelta(seconds=10)
RENEW_EVERY = timedelta(seconds=2)


def look(stores: Stores, selection: Selection | None = None) -> list[Letter]:
    """Every dead letter in order from the head, judged; those a filter passed over first.

    With a selection only the jobs of letters that it may mean are looked up; the other letters
    have no true verdict. Each list is read once, and jobs are looked up while the next letters are
    read. Raises WrongKeyType before anything is read.
    """
    queues, keys = stores.queues, stores.queues.keys
    queues.require_lists(keys.dead_letter, keys.retry)
    found: list[Letter] = []

    def meant() -> Iterator[str]:
        for letter in letters(stores.dead_letters.entries()):
            found.append(letter)
            text = letter.job_id
            if text is not None and (selection is None or selection.may_mean(letter)):
                yield text

    standings = stores.jobs.standings(meant())
    judge(found, standings, waiting(stores) if found else set())
    return found


def waiting(stores: Stores) -> set[str]:
    """The jobs that wait on retry or are being processed, by the text of their ids."""
    queues = stores.queues
    found: set[str] = set()
    for key in (queues.keys.retry, *queues.processing_keys()):
        for raw in queues.read_all(key):
            payload = read_payload(raw)
            if isinstance(payload, Payload):
                found.add(payload.job_id)
    return found


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
    texts = [] if letter.job_id is None else [letter.job_id]
    judge([letter], stores.jobs.standings(texts), waiting(stores))
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
