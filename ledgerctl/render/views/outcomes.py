"""What became of requeued letters, as reports."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerctl.domain.error_groups import error_group
from ledgerctl.domain.outcomes import LetterFate, RampStep, Watched, counted
from ledgerctl.render.report import Column, Kind, Record, Report, columns
from ledgerctl.render.text import telling_line
from ledgerctl.render.views.dead import no_notes

if TYPE_CHECKING:
    from ledgerctl.operations.outcomes import Guided, OperationOutcome

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
    steps = [step_record(step) for step in found.steps]
    document = {**(report.document or {}), "steps": steps, "stopped_by": found.stopped_by}
    section = Report(STEP_COLUMNS, steps, head=("Steps:",))
    notes = [WHY[found.stopped_by]] if found.stopped_by in WHY else []
    kept = report.notes if isinstance(report.notes, Sequence) else report.notes()
    return replace(
        report, document=document, sections=[*report.sections, section], notes=[*kept, *notes]
    )


def step_record(step: RampStep) -> Record:
    """Show one step."""
    return {"at": step.at, "moved": step.moved, **counted(step.fates.elements())}


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
            "operation_id": found.operation_id,
            "command": found.command,
            "at": found.at,
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
