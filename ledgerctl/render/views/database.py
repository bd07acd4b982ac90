"""Indexes and roles, as reports."""

from collections.abc import Sequence
from typing import Any, Protocol

from ledgerctl.render.report import Column, Kind, Report

COLUMNS = (Column("name", kind=Kind.ID), Column("status"), Column("in_the_way", kind=Kind.COUNT))


class IndexStatus(Protocol):
    """What became of one index."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def rows(self) -> list[Any]: ...


def indexes(found: Sequence[IndexStatus], *, dry_run: bool, exit_code: int) -> Report:
    """What became of each index, with the rows in the way of those that could not be built."""
    records: list[Any] = [
        {
            "name": one.name,
            "status": one.status,
            "in_the_way": len(one.rows),
            "rows": [{**row, "amount": shown(row.get("amount"))} for row in one.rows],
        }
        for one in found
    ]
    blocked = [f"{one.name}: {row_line(row)} is in the way" for one in found for row in one.rows]
    notes = [f"not protected: {line}" for line in blocked]
    return Report(
        columns=COLUMNS,
        records=records,
        document={"indexes": records, "dry_run": dry_run},
        items_key="indexes",
        notes=notes,
        exit_code=exit_code,
    )


def shown(value: object) -> Any:
    """A stored number as printed; an exotic type by its own text."""
    return value if value is None or isinstance(value, int) else str(value)


def row_line(row: dict[str, Any]) -> str:
    """One blocking row in words."""
    said = [f"{key} {value}" for key, value in row.items() if key != "row_id" and value is not None]
    return f"row {row['row_id']} ({', '.join(said)})"
