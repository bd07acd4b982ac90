"""Exporting the ledger: every row once, by time, streamed."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from ledgerctl.domain.rows import LedgerRow
from ledgerctl.operations.balances import require_account
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.ledger import window_filter


@dataclass(frozen=True, slots=True)
class Export:
    """The rows, read once; `leaves_out_undated` when a window has no place for some."""

    rows: Iterator[LedgerRow]
    leaves_out_undated: bool = False


def export(
    stores: Stores,
    *,
    account: str | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
) -> Export:
    """The rows of one account or of all; `since` is inclusive, `before` exclusive.

    Undated rows are part of an export without bounds, and of no other. Raises NotFound for an
    account without row and job.
    """
    window = window_filter(since=since, before=before)
    if account is not None:
        require_account(stores, account)
    left_out = False
    if window:
        rows = stores.account_rows
        left_out = rows.any_undated() if account is None else rows.undated(account) > 0
    return Export(stores.account_rows.exported(account, window), left_out)
