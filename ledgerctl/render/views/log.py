"""Report the operator log, and what became of the letters that an operation put back."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerctl.domain.error_groups import error_group
from ledgerctl.domain.outcomes import LetterFate, Watched, counted
from ledgerctl.render.report import Column, Kind, Record, Report, columns, listing, members, record
from ledgerctl.render.text import telling_line

if TYPE_CHECKING:
    from ledgerctl.operations.outcomes import Guided, OperationOutcome

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


FATES = tuple(Column(str(fate), kind=Kind.COUNT) for fate in LetterFate)
STEP_COLUMNS = columns("at moved", *FATES)
GROUP_COLUMNS = columns("group", *FATES, "error")
ITEM_COLUMNS = columns("job_id digest fate error", spare="digest")
WHY = {
    "failures": "stopped: too many of the last step died or are failing",
    "no_outcome": "stopped: no outcome is known of more than half of the last step",
}


def guided(report: Report, runs: "Sequence[Guided]") -> Report:
    """Add the steps of a guided requeue, if it was one, to its report."""
    if not runs:
        return report
    (found,) = runs
    steps = [
        {**members(step, "at moved"), **counted(step.fates.elements())} for step in found.steps
    ]
    document = {**(report.document or {}), "steps": steps, "stopped_by": found.stopped_by}
    section = Report(STEP_COLUMNS, steps, head=("Steps:",))
    notes = [WHY[found.stopped_by]] if found.stopped_by in WHY else []
    kept = report.notes if isinstance(report.notes, Sequence) else report.notes()
    return replace(
        report, document=document, sections=[*report.sections, section], notes=[*kept, *notes]
    )


def outcome(found: "OperationOutcome", *, fate: LetterFate | None, limit: int) -> Report:
    """Show what became of what an operation moved; `fate` selects items and narrows no count."""
    chosen = [one for one in found.letters if fate in {None, found.fates[one.order]}]
    items = [item(found, one) for one in (chosen[:limit] if limit else chosen)]
    notes = [] if found.has_notes else [no_notes(found.operation_id)]
    if len(items) < len(chosen):
        notes.append(f"{len(items)} of {len(chosen)} shown; --limit 0 shows all")
    totals, groups = counted(found.fates.values()), by_group(found)
    return Report(
        columns=ITEM_COLUMNS,
        records=items,
        document={
            **members(found, "operation_id command at"),
            "moved": len(found.letters),
            "fates": totals,
            "by_group": groups,
            "items": items,
            "shown": len(items),
            "total": len(chosen),
        },
        items_key="items",
        foot=(", ".join(f"{number} {name}" for name, number in totals.items() if number) or "-",),
        notes=notes,
        sections=group_section(groups),
    )


def no_notes(operation_id: str) -> str:
    """Say that nothing on this server tells what an operation took."""
    return f"this server has no notes of operation {operation_id}"


def item(found: "OperationOutcome", one: Watched) -> Record:
    """Show one letter and its fate."""
    fate = str(found.fates[one.order])
    return {"job_id": one.job_id, "digest": one.digest, "fate": fate, "error": one.error}


def by_group(found: "OperationOutcome") -> list[Any]:
    """Count the fates of each group of errors, the largest first."""
    groups: defaultdict[str, Counter[LetterFate]] = defaultdict(Counter)
    errors: dict[str, str | None] = {}
    for one in found.letters:
        group = error_group(one.error)
        groups[group][found.fates[one.order]] += 1
        errors.setdefault(group, one.error)
    return [
        {"group": group, "error": errors[group], "fates": counted(fates.elements())}
        for group, fates in sorted(groups.items(), key=lambda pair: -pair[1].total())
    ]


def group_section(groups: Sequence[Any]) -> list[Report]:
    """Show the groups as a table of their own."""
    rows = [
        {**one["fates"], "group": one["group"], "error": telling_line(one["error"] or "")}
        for one in groups
    ]
    return [Report(GROUP_COLUMNS, rows, head=("By group:",))] if rows else []
