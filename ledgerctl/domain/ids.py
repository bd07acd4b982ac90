"""Ids as people type them and as documents hold them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

LENGTH_MAX = 1_000_000  # characters of an id: a longer one fits in no query
NAMES_SHOWN = 10


class IdKind(StrEnum):
    """Name the type under which a document holds an id."""

    STRING = "string"
    OBJECT_ID = "ObjectId"
    INTEGER = "integer"
    UUID = "UUID"
    LEGACY_UUID = "legacy UUID"  # binary subtype 3
    OTHER = "other"  # shown as compact JSON; no job's, and no account's that gets a summary


@dataclass(frozen=True, slots=True)
class Id:
    """Hold one id: its text, as printed and typed, and the type it is stored under."""

    text: str
    kind: IdKind = IdKind.STRING

    def __str__(self) -> str:
        return self.text


def some_of(names: Sequence[str]) -> str:
    """Return the first few names in a row, and how many more."""
    few, more = ", ".join(names[:NAMES_SHOWN]), len(names) - NAMES_SHOWN
    return f"{few} and {more} more" if more > 0 else few


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`, the last one shorter; read no further than asked."""
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk


def text_of(identity: Id | None) -> str | None:
    """Return the id as printed; None where there is none."""
    return None if identity is None else identity.text
