"""The jobs that wait on any list, known by hashes of their ids."""

import json
import re
from collections.abc import Iterator
from itertools import chain

from ledgerctl.domain.payload import ID_NAMES, Payload, read_payload
from ledgerctl.stores.codec import candidates, may_print_otherwise, to_id
from ledgerctl.stores.queues import FIRST_PAGE_ENTRIES, Queues, page_size

# The first of the names, in first place: no later member can change what the id is.
_LEADING_ID = re.compile(rb'\s*\{\s*"job_id"\s*:\s*"([^"\\]+)"')
_NAMED_ID = re.compile(
    rb'"(?:%s)"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9]+)' % "|".join(ID_NAMES).encode()
)


OVERLAP = 10  # a tenth of a page


def listed_jobs(queues: Queues) -> set[int]:
    """Return the hash of each job id on retry, processing, dead letters and the pending lists.

    An entry that cannot be read counts by every id that it names. A job that moves from list to
    list while this reads is found at the ends of the lists, which are read at one moment before
    and at one after; one that moves and lies deep in a list by then may be left out.
    """
    entries = chain(ends(queues), whole(queues), ends(queues))
    return {hash(text) for raw in entries for text in ids(raw)}


def keys(queues: Queues) -> list[str]:
    """Return the names of the lists on which a job may wait, as they are now."""
    names = queues.keys
    others = (names.dead_letter, names.retry, *names.pending)
    return [*queues.processing_keys(), *queues.passed_keys(), *others]


def whole(queues: Queues) -> Iterator[bytes]:
    """Yield every entry of every list, page by page."""
    return (raw for key in keys(queues) for raw in from_tail(queues, key))


def from_tail(queues: Queues, key: str) -> Iterator[bytes]:
    """Yield every entry, some twice, counted from the tail: what goes from the head hides none.

    What is added at the tail meanwhile makes pages overlap, and so do a few entries in any case:
    as many may go from the middle between two pages.
    """
    last, size = -1, FIRST_PAGE_ENTRIES
    while page := queues.page(key, last - size + 1, size):
        yield from page
        if len(page) < size:
            return
        last -= size - size // OVERLAP
        size = page_size(page)


def ends(queues: Queues) -> Iterator[bytes]:
    """Yield a page of entries from both ends of every list, all read at one moment.

    The requests lie in one packet, which the server works off before it listens to anybody else.
    """
    names = keys(queues)
    with queues.reading("read the ends of the lists"):
        heads = queues.together(("LRANGE", name, 0, FIRST_PAGE_ENTRIES - 1) for name in names)
        sizes = zip(names, map(page_size, heads), strict=True)
        both = [((name, 0, size - 1), (name, -size, -1)) for name, size in sizes]
        found = queues.together(("LRANGE", *span) for span in chain.from_iterable(both))
    return chain.from_iterable(found)


def ids(raw: bytes) -> Iterator[str]:
    """Yield the texts of the job ids that an entry, or a bare id, may mean."""
    for text in entry_ids(raw):
        yield text
        if may_print_otherwise(text):
            yield from (to_id(value).text for value in candidates(text))


def entry_ids(raw: bytes) -> list[str]:
    """Return the id of an entry; of one that cannot be read, all that it could mean."""
    if (leading := _LEADING_ID.match(raw)) is not None:
        return [leading[1].decode(errors="replace")]
    payload = read_payload(raw)
    if isinstance(payload, Payload):
        return [payload.job_id]
    return [scalar(one) for one in (raw, *_NAMED_ID.findall(raw))]


def scalar(raw: bytes) -> str:
    """Return the text of a JSON string or number, or of whatever else stands there."""
    text = raw.decode(errors="replace").strip()
    try:
        value = json.loads(text) if text.startswith('"') else text
    except ValueError:
        return text
    return str(value)
