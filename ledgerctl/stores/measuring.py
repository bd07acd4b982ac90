"""Asking for the fields of a collection: how many documents hold one, and only those fields."""

from collections.abc import Iterable, Mapping, Sequence

from ledgerctl.stores.documents import Document


def measuring(fields: Sequence[str]) -> list[Document]:
    """The pipeline that counts documents, and those in which each field holds something."""
    counted: Document = {
        f"f{at}": {"$sum": {"$cond": [is_filled(name), 1, 0]}} for at, name in enumerate(fields)
    }
    return [{"$group": {"_id": None, "rows": {"$sum": 1}, **counted}}]


def is_filled(name: str) -> Document:
    """Whether a field is there and neither null nor the empty text."""
    return {"$not": [{"$in": [{"$ifNull": [f"${name}", ""]}, [""]]}]}


def measure(found: Iterable[Document], fields: Sequence[str]) -> tuple[int, dict[str, int]]:
    """The counts of `measuring`; an empty collection has none."""
    counts = next(iter(found), None) or {}
    filled = {name: int(counts.get(f"f{at}", 0)) for at, name in enumerate(fields)}
    return int(counts.get("rows", 0)), filled


def without_collisions(projection: Mapping[str, int]) -> dict[str, int]:
    """A projection without the parts of fields that it names whole, which MongoDB refuses."""
    return {
        name: keep
        for name, keep in projection.items()
        if not any(name.startswith(f"{other}.") for other in projection)
    }
