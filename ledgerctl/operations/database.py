"""Building the indexes that the guarantees stand on."""

from collections.abc import Sequence

from ledgerctl.errors import ExitCode
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import INDEXES, Index, IndexStatus

BUILT = {"created", "shown_again", "would_create"}  # in this run
NOT_BUILT = {"blocked", "conflict"}


def build_indexes(stores: Stores) -> list[IndexStatus]:
    """Build what is missing; an index whose rows are in the way leaves the others alone."""
    return [stores.indexes.build(index) for index in INDEXES]


def plan_indexes(stores: Stores) -> list[IndexStatus]:
    """What `build_indexes` would do, changing nothing."""
    return [
        IndexStatus(index.name, "exists")
        if stores.indexes.exists(index)
        else blocked_or_missing(stores, index)
        for index in INDEXES
    ]


def blocked_or_missing(stores: Stores, index: Index) -> IndexStatus:
    """Whether a missing index could be built."""
    rows = list(stores.indexes.in_the_way(index)) if index.unique else []
    return IndexStatus(index.name, "blocked" if rows else "would_create", rows)


def exit_code(found: Sequence[IndexStatus]) -> ExitCode:
    """0 when all are there, 8 when some were built, 3 when none was and some are missing."""
    statuses = {one.status for one in found}
    if not statuses & NOT_BUILT:
        return ExitCode.DONE
    return ExitCode.PARTIAL if statuses & BUILT else ExitCode.REFUSED
