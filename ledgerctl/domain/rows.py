"""Ledger rows: their types, their order, their identities and their running balance."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from ledgerctl.domain.amounts import Amount
from ledgerctl.domain.ids import Id


class RowType(StrEnum):
    """Name the types of row that this program writes."""

    CHARGE = "charge"  # −cost, before the job runs
    REFUND = "refund"  # +cost, the job failed
    RECLAIM = "reclaim"  # −cost, a refunded job succeeded later
    GRANT = "grant"  # credits given to an account
    CORRECTION = "correction"  # brings a job to its right net


class OtherType(str):
    """Keep the text of a row type that this program does not know; such rows count all the same."""

    __slots__ = ()

    @property
    def value(self) -> str:
        """Return the plain text, as `RowType.value` does."""
        return str(self)


KindOfRow: TypeAlias = RowType | OtherType  # a `match` on it must name every type
KNOWN_TYPES = {one.value: one for one in RowType}


def kind_of_row(text: str) -> KindOfRow:
    """Return the type that a stored text means."""
    return KNOWN_TYPES.get(text) or OtherType(text)


ORDER: dict[str, int] = {
    RowType.GRANT: 0,
    RowType.CHARGE: 1,
    RowType.REFUND: 2,
    RowType.RECLAIM: 3,
    RowType.CORRECTION: 4,
}
ORDER_OF_OTHERS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one ledger row as it is stored."""

    id: Id
    job: Id | None
    account: Id | None
    type: KindOfRow
    amount: Amount
    created_at: datetime | None  # None: absent, or not a date
    recorded_at: datetime | None = None
    operation_id: str | None = None
    reason: str | None = None
    has_odd_recorded_at: bool = False  # it is there and no date


class Entry(NamedTuple):
    """Describe what a replay needs of a row. A tuple: an account may have a million of them."""

    row_id: str
    created_at: datetime | None  # None: absent, not a date, or of a year that Python has not
    job_id: str | None
    type: KindOfRow
    amount: Amount
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NewRow:
    """Hold a row to append; its identity is fixed before it is written, so once is enough."""

    id: str
    job: Id | None
    account: Id
    type: RowType
    amount: int
    created_at: datetime
    recorded_at: datetime
    operation_id: str
    reason: str | None = None


class LedgerRow(NamedTuple):
    """Hold a whole row as it is exported. A tuple: a ledger may have millions of them."""

    row_id: str
    job_id: str | None
    account_id: str | None  # its own, else its job's
    type: str
    amount: Amount
    created_at: datetime | None
    recorded_at: datetime | None
    operation_id: str | None
    reason: str | None


def rank(row_type: str) -> int:
    """Return the order of a type within an instant; unknown types come last."""
    return ORDER.get(row_type, ORDER_OF_OTHERS)


def row_order(row: Row) -> tuple[bool, float, int, str]:
    """Replay order: by time, undated first; then by type; then by id."""
    moment = row.created_at
    return (moment is not None, moment.timestamp() if moment else 0.0, rank(row.type), row.id.text)


def row_id(job: Id, row_type: RowType) -> str:
    """Return the one id that a job's row of this type can have. Source: contract, section 2."""
    return f"{job.text}:{row_type}"


def grant_id(key: str) -> str:
    """Return the one id of the grant with this key."""
    return f"grant:{key}"


def correction_id(job: Id, number: int) -> str:
    """Return the id of a job's correction; numbers count from 1."""
    return f"{job.text}:{RowType.CORRECTION}:{number}"


def same_row(row: Row, new: NewRow) -> bool:
    """Return True when a stored row has the content that `new` was to have.

    A row that names no account belongs to its job's; one without a job belongs to none.
    """
    return (
        row.type == new.type
        and row.amount == new.amount
        and (row.job is None) == (new.job is None)
        and (row.job is None or new.job is None or row.job.text == new.job.text)
        and (row.job is not None if row.account is None else row.account.text == new.account.text)
    )


def running(entries: Iterable[Entry], opening: int) -> Iterator[tuple[Entry, int]]:
    """Yield each row with the balance after it; a row without a usable amount leaves it alone."""
    balance = opening
    for entry in entries:
        amount = entry.amount
        if isinstance(amount, int):
            balance += amount
        yield entry, balance


KEY = "message_key"
TENANT = "tenant_id"


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one message of the outbox: `key` as stored, `id` as people read and type it."""

    id: Id
    key: Any
    tenant: Any = None
    topic: str | None = None
    payload: Any = None
    created_at: datetime | None = None
