"""How often a job stands on each of the queues: paged reads, nothing taken."""

from collections.abc import Iterator
from typing import cast

from ledgerctl.domain.payload import Payload, read_payload
from ledgerctl.stores.queues import Queues

PAGE = 500  # entries a read: no call holds Redis for long


def counts_of(queues: Queues, job_id: str) -> dict[str, int]:
    """How many entries on retry, processing and dead letters carry this job id.

    Entries that move while this reads may be counted twice or not at all.
    """
    keys = queues.keys
    with queues.reading("look for the job on the queues"):
        return {
            "retry": count_on(queues, [keys.retry.encode()], job_id),
            "processing": count_on(queues, processing_lists(queues), job_id),
            "dead_letter": count_on(queues, dead_letter_lists(queues), job_id),
        }


def processing_lists(queues: Queues) -> list[bytes]:
    """The processing list of each worker."""
    pattern = escaped(queues.keys.processing) + ":*"
    return list(dict.fromkeys(queues.client.scan_iter(match=pattern, count=1000, _type="list")))


def dead_letter_lists(queues: Queues) -> list[bytes]:
    """The dead letters, those first that a filter has passed over."""
    names = [*queues.passed_keys(), queues.keys.dead_letter]
    return [name.encode(errors="surrogateescape") for name in names]


def escaped(key: str) -> str:
    """A key's name as a pattern that matches it alone."""
    return "".join(f"\\{letter}" if letter in "*?[]\\^" else letter for letter in key)


def count_on(queues: Queues, lists: list[bytes], job_id: str) -> int:
    """How many entries of these lists carry this job id."""
    return sum(1 for key in lists for raw in entries(queues, key) if names(raw, job_id))


def entries(queues: Queues, key: bytes) -> Iterator[bytes]:
    """Every entry of a list, head first, a page at a time."""
    start = 0
    while page := cast("list[bytes]", queues.client.lrange(key, start, start + PAGE - 1)):
        yield from page
        start += PAGE


def names(raw: bytes, job_id: str) -> bool:
    """Whether an entry carries this job id; one that cannot hold it is not parsed."""
    if job_id.encode() not in raw and b"\\" not in raw:
        return False
    payload = read_payload(raw)
    return isinstance(payload, Payload) and payload.job_id == job_id
