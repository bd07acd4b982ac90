"""Reading balances: the sum as of a moment, and the rows behind it with a running balance."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from ledgerctl.domain.balances import (
    AccountBalance,
    AccountSum,
    Balance,
    Balances,
    BalanceTally,
    Replay,
    UnusableRow,
    in_replay_order,
)
from ledgerctl.domain.rows import Entry, LedgerRow, running
from ledgerctl.errors import NotFound
from ledgerctl.stores.codec import Document
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.ledger import window_filter


def show(
    stores: Stores, account: str, *, at: datetime | None = None, known_at: datetime | None = None
) -> Balance:
    """Return the exact balance of an account: the sum of its rows.

    `at` goes by created_at and includes; `known_at` counts only rows recorded by then. Without
    `at` every row counts, also undated and future ones, with a note. Raises NotFound for an
    account without a row and without a job.
    """
    now = stores.mongo.now()
    window = window_filter(at=at, known_at=known_at)
    # Jobs and rows are in two collections: both are counted at once.
    with ThreadPoolExecutor(max_workers=1) as beside:
        counting = beside.submit(stores.jobs.count_of_account, account, until=at)
        tally = tally_of(stores, account, window)
        jobs = counting.result()
    if not tally.rows and not jobs:
        require_account(stores, account)
    left_out, future = 0, 0
    undated = stores.account_rows.undated(account, window_filter(known_at=known_at))
    if at is not None:
        undated, left_out = 0, undated
    elif tally.last_row_at is not None and tally.last_row_at > now:
        future = stores.account_rows.count(account, {**window, "created_at": {"$gt": now}})
    return Balance(account, at or now, jobs, tally, undated, future, left_out)


def require_account(stores: Stores, account: str) -> None:
    """Raise NotFound for an account that has neither a row nor a job, at any time."""
    if stores.ledger.account_id(account) is None and not stores.jobs.count_of_account(account):
        raise NotFound(
            f"account {account!r} has no row and no job",
            hint="`ledgerctl balance list` names the accounts",
        )


def tally_of(stores: Stores, account: str, window: Document) -> BalanceTally:
    """Return the totals of an account's rows in a window, from the server where that is exact."""
    rows = stores.account_rows
    tally = BalanceTally()
    sums = rows.sums(account, window)
    if all(one.total is not None for one in sums):
        for one in sums:
            tally.add_sum(one)
        for moment in rows.span(account, window):
            if moment is not None:
                tally.seen(moment)
    else:
        add_all(tally, rows.named_entries(account, window))
    add_all(tally, rows.joined_entries(account, window))
    return tally


def add_all(tally: BalanceTally, entries: Iterable[Entry]) -> None:
    """Count every row in."""
    for entry in entries:
        tally.add(entry)


# every account


def balances(stores: Stores, *, at: datetime | None = None, below: int | None = None) -> Balances:
    """Return the exact balance of every account that has rows, by account; `below` filters.

    Summed by the server; an account whose sum it cannot give exactly is summed here, row by row.
    Rows whose job is unknown come last, under no account.
    """
    window = window_filter(at=at)
    totals: dict[str | None, AccountBalance] = {}
    inexact: dict[str | None, None] = {}
    for part in parts(stores, window):
        total = totals.setdefault(part.account_id, AccountBalance(part.account_id))
        total.rows += part.rows
        total.balance += part.total or 0
        if part.total is None:
            inexact[part.account_id] = None
    left_out = [
        (account, row)
        for account in sorted(inexact, key=account_order)
        for row in sum_again(stores, totals[account], window)
    ]
    shown = [one for one in totals.values() if below is None or one.balance < below]
    shown.sort(key=lambda one: account_order(one.account_id))
    future = at is None and stores.account_rows.any_after(stores.mongo.now())
    return Balances(shown, left_out, future)


def parts(stores: Stores, window: Document) -> Iterator[AccountSum]:
    """Yield the sums of the rows that name an account, then of those whose job does."""
    yield from stores.account_rows.sums_of_all(window)
    if stores.account_rows.any_without_account():
        yield from stores.account_rows.joined_sums(window)


def sum_again(stores: Stores, total: AccountBalance, window: Document) -> list[UnusableRow]:
    """Put an account's exact sum into its line; return the rows that no sum can contain."""
    if total.account_id is not None:
        tally = tally_of(stores, total.account_id, window)
    else:
        tally = BalanceTally()
        add_all(tally, stores.account_rows.unowned_entries(window))
    total.balance, total.rows = tally.balance, tally.rows
    return tally.unusable


def account_order(account: str | None) -> tuple[bool, str]:
    """Order by the account's text; no account comes last."""
    return account is None, account or ""


# one account's rows


def replay(
    stores: Stores, account: str, *, since: datetime | None = None, before: datetime | None = None
) -> Replay:
    """Return the rows of an account in their order, streamed: memory does not grow with them.

    `since` is inclusive, `before` exclusive. Rows without a date stand first where no end is given,
    so that the closing balance is the account's; else they are outside, and counted. Raises
    NotFound as `show` does.
    """
    require_account(stores, account)
    opening = BalanceTally()
    if since is not None:
        opening = tally_of(stores, account, window_filter(before=since))
    entries = stores.account_rows.entries(account, since=since, before=before)
    left_out = 0 if before is None else stores.account_rows.undated(account)
    rows = running(in_replay_order(entries), opening.balance)
    return Replay(account, opening.balance, rows, left_out, tuple(opening.unusable))


@dataclass(frozen=True, slots=True)
class Export:
    """Hold the rows, read once; `leaves_out_undated` when a window has no place for some."""

    rows: Iterator[LedgerRow]
    leaves_out_undated: bool = False


def export(
    stores: Stores,
    *,
    account: str | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
) -> Export:
    """Return the rows of one account or of all; `since` is inclusive, `before` exclusive.

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
