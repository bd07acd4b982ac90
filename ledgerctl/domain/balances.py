"""Balances: sums of rows, exact, with every row that could not be summed named."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.rows import Row, rank


@dataclass(frozen=True, slots=True)
class UnusableRow:
    """A row that no sum contains, and why."""

    row_id: str
    amount: str
    why: str


@dataclass(slots=True)
class Tally:
    """The running totals of an account's rows; amounts in whole credits, exact at any size."""

    rows: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    first_row_at: datetime | None = None
    last_row_at: datetime | None = None
    undated: int = 0
    unusable: list[UnusableRow] = field(default_factory=list)

    @property
    def balance(self) -> int:
        """The sum of every row that can be summed."""
        return sum(self.by_type.values())

    def add(self, row: Row) -> None:
        """Count one row in."""
        self.rows += 1
        self.by_type.setdefault(row.type, 0)
        if isinstance(row.amount, Unusable):
            self.unusable.append(UnusableRow(row.id.text, row.amount.shown, row.amount.why))
        else:
            self.by_type[row.type] += row.amount
        self.seen(row.created_at)

    def seen(self, moment: datetime | None) -> None:
        """Take a row's time into the first and last."""
        if moment is None:
            self.undated += 1
            return
        if self.first_row_at is None or moment < self.first_row_at:
            self.first_row_at = moment
        if self.last_row_at is None or moment > self.last_row_at:
            self.last_row_at = moment


@dataclass(frozen=True, slots=True)
class Balance:
    """An account's balance as of a moment."""

    account_id: str
    as_of: datetime
    jobs: int
    tally: Tally
    future_rows: int = 0  # dated after as_of, and counted


def in_replay_order(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows that come by time, put right inside each instant: by type, then by id, none twice.

    Holds the rows of one instant at a time. Source: contract, section 3, balance replay.
    """
    for _, together in groupby(rows, key=lambda row: row.created_at):
        tied = sorted(together, key=lambda row: (rank(row.type), row.id.text))
        previous = None
        for row in tied:
            if row.id != previous:
                yield row
            previous = row.id
