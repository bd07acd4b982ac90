"""Balances: sums of rows, exact, with every row that could not be summed named."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.rows import Entry, rank


@dataclass(frozen=True, slots=True)
class UnusableRow:
    """Hold a row that no sum contains, and why."""

    row_id: str
    amount: str
    why: str


class TypeSum(NamedTuple):
    """Hold the rows of one type: how many, and their sum; None where it is not known exactly."""

    type: str
    rows: int
    total: int | None


class AccountSum(NamedTuple):
    """Hold some rows of one account (None: of none), as TypeSum."""

    account_id: str | None
    rows: int
    total: int | None


@dataclass(slots=True)
class BalanceTally:
    """Hold the running totals of an account's rows; amounts in whole credits, exact at any size."""

    rows: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    first_row_at: datetime | None = None
    last_row_at: datetime | None = None
    unusable: list[UnusableRow] = field(default_factory=list)

    @property
    def balance(self) -> int:
        """Return the sum of every row that can be summed."""
        return sum(self.by_type.values())

    def add(self, entry: Entry) -> None:
        """Count one row in."""
        self.rows += 1
        self.by_type.setdefault(entry.type, 0)
        if isinstance(entry.amount, Unusable):
            self.unusable.append(unusable(entry.row_id, entry.amount))
        else:
            self.by_type[entry.type] += entry.amount
        if entry.created_at is not None:
            self.seen(entry.created_at)

    def add_sum(self, part: TypeSum) -> None:
        """Count the exact sum of several rows of one type in."""
        self.rows += part.rows
        self.by_type[part.type] = self.by_type.get(part.type, 0) + (part.total or 0)

    def seen(self, moment: datetime) -> None:
        """Take a row's time into the first and last."""
        if self.first_row_at is None or moment < self.first_row_at:
            self.first_row_at = moment
        if self.last_row_at is None or moment > self.last_row_at:
            self.last_row_at = moment


def unusable(row_id: str, amount: Unusable) -> UnusableRow:
    """Return a row that no sum contains."""
    return UnusableRow(row_id, amount.shown, amount.why)


@dataclass(frozen=True, slots=True)
class Balance:
    """Hold an account's balance as of a moment."""

    account_id: str
    as_of: datetime
    jobs: int
    tally: BalanceTally
    undated_rows: int = 0  # without a usable date, and counted
    future_rows: int = 0  # dated after as_of, and counted
    undated_left_out: int = 0  # without a usable date, so that none lies before an end


@dataclass(slots=True)
class AccountBalance:
    """Hold one line of the list of balances; None is the account of rows that belong to none."""

    account_id: str | None
    balance: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Balances:
    """Hold every account's balance, by account; `unusable` rows are in none of them."""

    accounts: Sequence[AccountBalance]
    unusable: Sequence[tuple[str | None, UnusableRow]] = ()
    has_future_rows: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """Hold an account's rows in order, each with the balance after it; read once."""

    account_id: str
    opening_balance: int
    rows: Iterator[tuple[Entry, int]]
    undated_left_out: int = 0
    unusable_before: tuple[UnusableRow, ...] = ()  # rows that the opening balance leaves out


def in_replay_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Rows that come by time and id, put right inside each instant: by type, then by id.

    Holds the rows of one instant at a time; undated rows pass as they come. Source: contract,
    section 3, balance replay.
    """
    tied: list[Entry] = []
    for entry in entries:
        moment = entry.created_at
        if tied and (moment is None or moment != tied[0].created_at):
            yield from ranked(tied)
            tied.clear()
        tied.append(entry)
    yield from ranked(tied)


def ranked(tied: list[Entry]) -> list[Entry]:
    """Return the rows of one instant by type; the order among equals stays, which is by id."""
    return tied if len(tied) == 1 else sorted(tied, key=lambda entry: rank(entry.type))
