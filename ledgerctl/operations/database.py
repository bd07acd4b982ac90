"""Look after the database: build the indexes of the guarantees, remove what nobody needs any more."""

from collections import Counter

from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import INDEXES, Index, IndexStatus

FATES = {
    "created": Fate.DONE,
    "shown_again": Fate.DONE,
    "blocked": Fate.REFUSED,
    "conflict": Fate.REFUSED,
}


def build_indexes(stores: Stores) -> list[IndexStatus]:
    """Build what is missing; an index whose rows are in the way leaves the others alone."""
    return [stores.indexes.build(index) for index in INDEXES]


def apply(stores: Stores, run: Run[IndexStatus]) -> None:
    """Build the indexes as part of a run."""
    for built in map(stores.indexes.build, INDEXES):
        run.result.items.append(built)
        run.result.count(built.status, fate=FATES.get(built.status, Fate.LEFT))


def plan_indexes(stores: Stores) -> Result[IndexStatus]:
    """Say what `build_indexes` would do, changing nothing; what is in the way is no failure yet."""
    found = [
        IndexStatus(index.name, "exists")
        if stores.indexes.exists(index)
        else blocked_or_missing(stores, index)
        for index in INDEXES
    ]
    return Result(found, fates=Counter({Fate.LEFT: len(found)}))


def blocked_or_missing(stores: Stores, index: Index) -> IndexStatus:
    """Say whether a missing index could be built."""
    rows = list(stores.indexes.in_the_way(index)) if index.unique else []
    return IndexStatus(index.name, "blocked" if rows else "would_create", rows)
