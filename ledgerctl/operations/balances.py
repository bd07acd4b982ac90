"""Reading balances: the sum as of a moment, and the rows behind it with a running balance."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from ledgerctl.domain.balances import Balance, Tally, in_replay_order
from ledgerctl.domain.rows import Row, running
from ledgerctl.errors import NotFound
from ledgerctl.stores.connections import Document, Stores
from ledgerctl.stores.ledger import window_filter

INSTANT = timedelta(milliseconds=1)


def show(
    stores: Stores, account: str, *, at: datetime | None = None, known_at: datetime | None = None
) -> Balance:
    """The exact balance of an account: the sum of its rows, with or without their account named.

    `at` goes by created_at and includes; `known_at` counts only rows recorded by then. Without
    `at` every row counts. Raises NotFound for an account without a row and without a job.
    """
    now = stores.mongo.now()
    tally = tally_of(stores, account, window_filter(at=at, known_at=known_at))
    jobs = stores.jobs.count_of_account(account, until=at)
    if not tally.rows and not jobs:
        require_account(stores, account)
    future = 0
    if at is None and tally.last_row_at is not None and tally.last_row_at > now:
        future = stores.ledger.count(account, window_filter(since=now + INSTANT))
    return Balance(account, at or now, jobs, tally, future)


def require_account(stores: Stores, account: str) -> None:
    """Raise NotFound for an account that has neither a row nor a job, at any time."""
    if stores.ledger.account_id(account) is None and not stores.jobs.count_of_account(account):
        raise NotFound(
            f"account {account!r} has no row and no job",
            hint="`ledgerctl balance list` names the accounts",
        )


def tally_of(stores: Stores, account: str, window: Document) -> Tally:
    """The totals of an account's rows inside a window, summed by the server where that is exact."""
    sums = stores.ledger.sums_by_type(account, window)
    tally = Tally()
    if all(is_exact(one) for one in sums):
        for one in sums:
            add_sum(tally, one)
    else:
        for row in stores.ledger.account_rows(account, window):
            tally.add(row)
    if stores.ledger.has_rows_without_account():
        for row in stores.ledger.rows_by_job(account, window):
            tally.add(row)
    return tally


def is_exact(sums: Document) -> bool:
    """Whether the server's sum is whole and complete: a double or a decimal in it is not."""
    return isinstance(sums["sum"], int) and sums["summed"] == sums["rows"]


def add_sum(tally: Tally, sums: Document) -> None:
    """Count the server's sum of one row type in."""
    name = str(sums["_id"]) if sums["_id"] is not None else ""
    tally.rows += sums["rows"]
    tally.by_type[name] = tally.by_type.get(name, 0) + int(sums["sum"])
    tally.undated += sums["rows"] - sums["dated"]
    for moment in (sums["first"], sums["last"]):
        if isinstance(moment, datetime):
            tally.seen(moment)


@dataclass(frozen=True, slots=True)
class Replay:
    """An account's rows in order, each with the balance after it; read once."""

    account_id: str
    opening_balance: int
    rows: Iterator[tuple[Row, int]]
    undated_left_out: int = 0


def replay(
    stores: Stores, account: str, *, since: datetime | None = None, before: datetime | None = None
) -> Replay:
    """The rows of an account in their order, streamed: memory does not grow with them.

    `since` is inclusive, `before` exclusive. Rows without a date stand first, and only where no
    end is given; they are counted otherwise. Raises NotFound as `show` does.
    """
    require_account(stores, account)
    opening = 0
    if since is not None:
        opening = tally_of(stores, account, window_filter(before=since)).balance
    rows = stores.ledger.replay(account, since=since, before=before, undated=before is None)
    left_out = 0 if before is None else stores.ledger.count_undated(account)
    return Replay(account, opening, running(in_replay_order(rows), opening), left_out)
