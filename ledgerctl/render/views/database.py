"""Report indexes and roles."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ledgerctl.domain.results import Result
from ledgerctl.domain.times import format_time
from ledgerctl.render.report import Report, columns, record

if TYPE_CHECKING:
    from ledgerctl.operations.database import TidyPlan
    from ledgerctl.stores.indexes import IndexStatus

COLUMNS = columns("name status in_the_way")


def indexes(found: Sequence["IndexStatus"]) -> Report:
    """Show what became of each index, with the rows in the way of those that could not be built."""
    records: list[Any] = [
        {
            "name": one.name,
            "status": one.status,
            "in_the_way": len(one.rows),
            "rows": [row_record(row) for row in one.rows],
        }
        for one in found
    ]
    blocked = [f"{one.name}: {row_line(row)}" for one in found for row in one.rows]
    notes = [f"not protected: {line}" for line in blocked]
    return Report(
        columns=COLUMNS,
        records=records,
        document={"indexes": records},
        items_key="indexes",
        notes=notes,
    )


KINDS = ("outbox", "inbox", "dead_archive")


def tidied(plan: "TidyPlan", result: Result[Any]) -> Report:
    """Show what was removed, or would be, and what is kept and why."""
    removed = {kind: result.counts.get(kind, 0) for kind in KINDS}
    document = {
        "removed": removed,
        "kept": {why: number for why, number in plan.kept.items() if number},
        "before": plan.before,
    }
    notes = []
    if plan.before is None:
        notes = ["the age of an entry on a list is not known, so everything is kept"]
    elif plan.before < plan.asked:
        notes = [
            "an entry that waits on a list is older: what is younger than it, and a day, is kept"
        ]
    return record(document, notes=notes)


def shown(value: object) -> Any:
    """Return a stored number as printed; an exotic type by its own text."""
    return value if value is None or isinstance(value, int) else str(value)


def row_record(row: dict[str, Any]) -> dict[str, Any]:
    """Return one blocking row, its amount and date as printed."""
    return {key: shown(value) if key == "amount" else value for key, value in row.items()}


def row_line(row: dict[str, Any]) -> str:
    """Return one blocking row in words; what is no row says why by itself."""
    if "row_id" not in row:
        return str(row.get("why", ""))
    said = [f"{key} {words(value)}" for key, value in row.items() if key != "row_id"]
    return f"row {row['row_id']} ({', '.join(said)}) is in the way"


def words(value: object) -> str:
    """Return a value as a sentence shows it."""
    return str(format_time(value) if isinstance(value, datetime) else value)
