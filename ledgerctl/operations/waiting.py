"""Jobs that wait on retry or are being processed, kept as hashes; exact where one is asked for."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ledgerctl.domain.payload import Payload, read_payload
from ledgerctl.domain.queue import LEASE_PREFIX
from ledgerctl.domain.sieve import name_key, possible_names
from ledgerctl.stores.codec import may_print_otherwise
from ledgerctl.stores.connections import Stores

SLACK = 1_000  # entries towards the head where those of a page may stand by now


class Page(NamedTuple):
    """One page of a list as it was read."""

    key: str
    start: int
    entries: int


def processing_lists(stores: Stores, known: Sequence[str]) -> list[str]:
    """Return the processing lists to read; a database too large to walk adds those of the leases."""
    if not stores.queues.is_large:
        return list(known)
    workers = stores.leases.expiries(LEASE_PREFIX)
    return sorted({*known, *map(stores.retry_lists.processing_key, workers)})


class Waiting:
    """Tells if a job waits; the lists are read once, as raw bytes, when the first is asked for.

    A page is parsed only where an entry of it may name a job that is asked for.
    """

    def __init__(self, stores: Stores, processing: Sequence[str]) -> None:
        self._stores = stores
        self._lists = (stores.queues.keys.retry, *processing_lists(stores, processing))
        self._pages: list[Page] = []
        self._page_of: dict[int, int] | None = None  # by the hash of a job that it may name
        self._also_on: defaultdict[int, list[int]] = defaultdict(list)  # further pages
        self._parsed: set[int] = set()  # pages
        self._named: set[str] = set()  # jobs on parsed pages, by their own ids
        self._still_there: set[int] = set()  # hashes of what parsed pages may name by now

    def holds(self, job_id: str) -> bool:
        """Tell if an entry of a list names this job, by the job's own id."""
        key = name_key(job_id)
        first = self._read().get(key)
        if first is None:
            return False
        for number in {first, *self._also_on.get(key, ())} - self._parsed:
            self._parse(number)
        # An entry that moved on between the two looks was there at the first.
        return job_id in self._named or key not in self._still_there

    def _read(self) -> dict[int, int]:
        if self._page_of is None:
            self._page_of = {}
            queues = self._stores.queues
            for key in self._lists:
                start = 0
                for page in queues.pages(key):
                    names = set(possible_names(page))
                    for name in names & self._page_of.keys():
                        self._also_on[name].append(self._page_of[name])
                    self._page_of.update(dict.fromkeys(names, len(self._pages)))
                    self._pages.append(Page(key, start, len(page)))
                    start += len(page)
        return self._page_of

    def _parse(self, number: int) -> None:
        key, start, entries = self._pages[number]
        self._parsed.add(number)
        first = max(0, start - SLACK)
        page = self._stores.queues.page(key, first, start - first + entries)
        self._still_there.update(possible_names(page))
        read = [one.job_id for one in map(read_payload, page) if isinstance(one, Payload)]
        spelled = self._stores.jobs.statuses(filter(may_print_otherwise, read))
        self._named.update(read, (one.job_id for one in spelled.values()))
