"""Describe the answer of a command, before anybody decides how it looks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Final, TypeAlias, TypeVar

# A float is no Value: a ratio is a Decimal, an amount an int.
Value: TypeAlias = "bool | int | str | Decimal | datetime | timedelta | Mapping[str, Value] | Sequence[Value] | None"
Record: TypeAlias = Mapping[str, Value]
Answer = TypeVar("Answer")


class CommandLine(str):
    """Mark a line that is printed for copying: it is never folded."""

    __slots__ = ()


class Kind(Enum):
    """Name what a column holds, which decides how a table aligns, folds and colours it."""

    TEXT = auto()  # words, which a table may fold
    WORDS = auto()  # a list of words, folded too
    ID = auto()  # whole and on one line in every format
    AMOUNT = auto()  # credits, signed
    COUNT = auto()
    TIME = auto()  # an instant
    FLAG = auto()  # true, false or unknown
    RATIO = auto()
    DURATION = auto()  # a timedelta; seconds for machines, `2h 5m` in a table


class Shape(Enum):
    """Name how many things the report is about: a row each, or one page of `key  value` lines."""

    LIST = auto()
    RECORD = auto()


class Streamed(Enum):
    """Name the mark that says where in a document the records are written as they come."""

    HERE = auto()


STREAMED: Final = Streamed.HERE
DocumentValue: TypeAlias = "Value | Streamed | Callable[[], Value]"
Document: TypeAlias = Mapping[str, DocumentValue]


@dataclass(frozen=True, repr=False)
class Column:
    """Hold one key of each record, as the tabular formats show it.

    A column with `shown=False` appears only when `--fields` asks for it. `title` is the table's
    heading; plain and csv are headed by the key. To fit a terminal, a table leaves out a column
    with `in_table=False` unless `--fields` asks for it, and one with `when_filled=True` that no
    record fills. Where the rest is still too wide, it leaves out those with `spare=True`, the last
    one first, and says so; where that does not help, each record is a block of lines. With
    `lines_max` a table shows the line of a text that tells most, cut to so many lines.
    """

    key: str
    title: str = ""
    kind: Kind = Kind.TEXT
    shown: bool = True
    in_table: bool = True
    when_filled: bool = False
    spare: bool = False
    lines_max: int | None = None

    @property
    def heading(self) -> str:
        """Return the title, by default the key in words."""
        return self.title or self.key.replace("_", " ")


# What a key holds, wherever it stands; all others hold text.
KIND_OF: Final = {
    key: kind
    for kind, keys in {
        Kind.ID: (
            "account_id consumer_group digest field fields group id job_id log message_key "
            "name on operation_id operator path period pid port restores role row_id row_ids "
            "sample_job shell statement tenant_id topic uri value worker"
        ),
        Kind.AMOUNT: (
            "amount balance charged cost effect expected_net ledger net net_after net_before "
            "reclaimed refunded summary"
        ),
        Kind.COUNT: (
            "accounts already_back already_taken attempts count days_cleared days_written "
            "dead deliveries depth due empty entries exit_code failed filled found gone "
            "handled in_the_way jobs missed moved position recovered remaining requeues "
            "restored rows selected succeeded superseded unclaimed undated unreadable waiting "
            "without_message"
        ),
        Kind.TIME: (
            "as_of at claimed_until completed_at created_at failed_at finished_at "
            "first_row_at first_seen_at last_row_at last_seen_at newest newest_failed_at "
            "next_due_at not_before oldest oldest_failed_at reclaimed_at recorded_at "
            "refunded_at"
        ),
        Kind.FLAG: (
            "applied consistent created dry_run enforced exists is_reclaimed is_refunded "
            "missing moves ok repairable ripe settled"
        ),
        Kind.RATIO: "ratio",
        Kind.DURATION: "age every",
    }.items()
    for key in keys.split()
}


def columns(
    *parts: str | Column,
    spare: str = "",
    when_filled: str = "",
    not_shown: str = "",
    not_in_table: str = "",
) -> tuple[Column, ...]:
    """Return columns; a text names several by key, each of the kind that its key has everywhere.

    The others name those of the keys that `Column` treats so.
    """
    return tuple(
        part
        if isinstance(part, Column)
        else Column(
            part,
            kind=KIND_OF.get(part, Kind.TEXT),
            shown=part not in not_shown.split(),
            in_table=part not in not_in_table.split(),
            when_filled=part in when_filled.split(),
            spare=part in spare.split(),
        )
        for one in parts
        for part in ([one] if isinstance(one, Column) else one.split())
    )


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Hold one command's whole answer, the same for every format.

    `records` is read once and never held, so a generator of any length is fine (a table has to hold
    it). `document` is what json prints, in its own order; at `items_key` stand the records, at the
    place marked STREAMED or last when the key is absent. A document value, `foot`, `notes` and
    `exit_code` may be functions without arguments: they are asked after the last record, which is
    when a closing balance is known. Without a document json prints the records under `items`, or
    the one record of a RECORD.

    `text` replaces the body of table and plain; with `is_prose` a terminal gets it folded at words.
    `head` and `foot` stand around a table, `sections` are further tables below it, and `empty` is
    what a table's reader reads on stderr when there are no records. A RECORD that `is_brief` takes as few lines as hold it.
    `notes` go to stderr, in json into the document.
    """

    columns: Sequence[Column]
    records: Iterable[Record] = ()
    document: Document | None = None
    items_key: str | None = None
    shape: Shape = Shape.LIST
    text: Iterable[str] | None = None
    head: Sequence[str] = ()
    foot: Sequence[str] | Callable[[], Sequence[str]] = ()
    notes: Sequence[str] | Callable[[], Sequence[str]] = ()
    exit_code: int | Callable[[], int] = 0
    empty: str = ""
    sections: Sequence["Report"] = ()
    is_prose: bool = False
    is_brief: bool = False


def members(one: object, names: str) -> dict[str, Any]:
    """Return these attributes of a result as members of its document, in this order."""
    return {name: getattr(one, name) for name in names.split()}


def settled(answer: Answer | Callable[[], Answer]) -> Answer:
    """Return the value itself, asked for now when it was left for later."""
    return answer() if callable(answer) else answer


@dataclass(eq=False, repr=False)
class Passing:
    """Count records as they pass by."""

    records: Iterable[Record]
    count: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Record]:
        for record in self.records:
            self.count += 1
            yield record


def listing(
    items: Iterable[Record],
    *,
    columns: Sequence[Column],
    total: int | Callable[[], int] | None = None,
    head: Sequence[str] = (),
    foot: Sequence[str] | Callable[[], Sequence[str]] = (),
    notes: Sequence[str] = (),
    exit_code: int | Callable[[], int] = 0,
    empty: str = "",
) -> Report:
    """Return a listing `{"items","shown","total"}`; says on stderr when it does not show all.

    `total` counts all that matched and is by default what is shown. Items may be a generator.
    Source: contract, section 1.
    """
    passing = Passing(items)

    def shown() -> int:
        return len(items) if isinstance(items, Sized) else passing.count

    def of() -> int:
        return shown() if total is None else settled(total)

    def remarks() -> Sequence[str]:
        cut = [f"{shown()} of {of()} shown; --limit 0 shows all"] if shown() < of() else []
        return [*notes, *cut]

    return Report(
        columns=columns,
        records=passing,
        document={"items": STREAMED, "shown": shown, "total": of},
        items_key="items",
        head=head,
        foot=foot,
        notes=remarks,
        exit_code=exit_code,
        empty=empty,
    )


def record(
    document: Record,
    *,
    columns: Sequence[Column] = (),
    head: Sequence[str] = (),
    foot: Sequence[str] = (),
    notes: Sequence[str] = (),
    exit_code: int = 0,
    sections: Sequence[Report] = (),
) -> Report:
    """Return one thing's page: json prints the document as it is, the other formats its columns.

    Without columns every key is one, as free text.
    """
    return Report(
        columns=columns or [Column(key) for key in document],
        records=(document,),
        document=document,
        shape=Shape.RECORD,
        head=head,
        foot=foot,
        notes=notes,
        exit_code=exit_code,
        sections=sections,
    )
