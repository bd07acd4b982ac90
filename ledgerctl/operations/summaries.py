"""Daily summaries out of the ledger: rebuild, recompute, compare, show."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ledgerctl.stores.connections import Stores

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What became of some (account, day) pairs."""

    as_of: datetime
    written: int
    refused: tuple[tuple[str, str], ...] = ()  # pairs left alone: a row of theirs cannot be summed


def recompute_days(
    stores: Stores, pairs: Iterable[tuple[str, str]], session: "ClientSession | None" = None
) -> Recomputed:
    """Overwrite the summaries of these (account text, `YYYY-MM-DD`) pairs from the ledger.

    Inside a transaction (`session`) each is written in every case, with `as_of` read in it; a
    write conflict is the caller's to restart (`Mongo.transaction` does). Call it before anything
    else in the transaction: then no row that `as_of` covers is missing from the figures. Without
    a session (a standalone server) the rebuild's rule holds: written only where the stored
    `as_of` is absent or earlier; mark the messages afterwards. A pair without rows gets zeros if
    it had figures. Days are those of the settings' zone. Source: contract, section 3, summary.
    """
    raise NotImplementedError
