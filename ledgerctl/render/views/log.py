"""Report the operator log."""

from collections.abc import Mapping, Sequence
from typing import Any

from ledgerctl.render.report import Column, Kind, Report, columns, listing, record

NEVER_ENDED = "never ended"
LOOPS = ("queue work", "inbox consume", "dead review")  # may run for days
COLUMNS = columns(
    "operation_id at operator command counts",
    Column("exit_code", title="exit", kind=Kind.COUNT),
    "state reason",
    spare="operator counts",
    when_filled="state",
    not_in_table="at",
)
PAGE_COLUMNS = columns(COLUMNS[0], "at finished_at profile", *COLUMNS[2:])


def entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """Show one operation under its contract name; unknown fields are kept."""
    ended = document.get("exit_code") is not None
    loops = document.get("command") in LOOPS
    state = "" if ended else ("running, or never ended" if loops else NEVER_ENDED)
    return {
        "operation_id": str(document["_id"]),
        "state": state or None,
        **{key: value for key, value in document.items() if key != "_id"},
    }


def operations(found: Sequence[Mapping[str, Any]], total: int) -> Report:
    """Return a listing of operations; one without an exit code did not come to its end."""
    return listing(
        [entry(document) for document in found],
        columns=COLUMNS,
        total=total,
        empty="No operations.",
    )


def operation(found: Mapping[str, Any]) -> Report:
    """Return one operation's page."""
    return record(entry(found), columns=PAGE_COLUMNS)
