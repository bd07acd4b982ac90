"""Show audits, repairs, corrections and exports as reports."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.ids import some_of
from ledgerctl.domain.journal import head, transaction
from ledgerctl.domain.repair import Repair, RepairStep
from ledgerctl.domain.results import Fate, Result
from ledgerctl.domain.rows import LedgerRow
from ledgerctl.errors import ExitCode
from ledgerctl.render.report import STREAMED, Record, Report, columns, record
from ledgerctl.render.text import rows as row_words
from ledgerctl.render.views.job import amount_value, finding_record

if TYPE_CHECKING:
    from ledgerctl.operations.audit import Audit
    from ledgerctl.operations.repair import RepairNote

FINDING_COLUMNS = columns(
    "code job_id account_id effect repairable settled row_ids detail",
    spare="repairable",
    not_shown="settled row_ids",
)
TABLE_MAX = 1_000  # findings a table holds; the other formats stream them all
ACCOUNTS_SHOWN = 20


def audit(run: "Audit", *, table: bool) -> Report:
    """Return the findings as they come, then what they come to."""
    records = Findings(run, TABLE_MAX if table else None)
    return Report(
        columns=FINDING_COLUMNS,
        records=records,
        document={
            "findings": STREAMED,
            "jobs_checked": lambda: run.jobs_checked,
            "rows_checked": lambda: run.rows_checked,
            "counts": run.counts_by_code,
            "effects": run.effects_by_code,
            "effect": lambda: sum(run.effects_by_code().values()),
            "accounts": run.by_account,
            "complete": lambda: run.ended_early() is None,
            "error": run.ended_early,
        },
        items_key="findings",
        foot=lambda: summary(run),
        notes=lambda: notes(run, records),
        exit_code=lambda: exit_code(run),
        empty="Nothing is wrong.",
    )


def exit_code(run: "Audit") -> int:
    """Return 0, 5 when something is wrong, 8 (or a signal's) when the walk was not finished."""
    if run.trouble is not None:
        return int(max(ExitCode.PARTIAL, run.trouble.exit_code))
    return int(ExitCode.FOUND if run.open_findings else ExitCode.DONE)


class Findings:
    """Hold the records of an audit; a table's are cut, but the walk goes on to its end."""

    def __init__(self, run: "Audit", shown_max: int | None) -> None:
        self._run = run
        self._max = shown_max
        self.left_out = 0

    def __iter__(self) -> Iterator[Record]:
        findings = self._run.findings()
        for finding in islice(findings, self._max):
            yield finding_record(finding)
        self.left_out = sum(1 for _ in findings)


def summary(run: "Audit") -> tuple[str, ...]:
    """Return the totals below a table: by code, and the accounts that are most off."""
    counts, effects = run.counts_by_code(), run.effects_by_code()
    lines = [f"{run.jobs_checked} jobs and {run.rows_checked} rows checked"]
    if run.ended_early() is not None:
        return (f"{lines[0]} before the audit ended; the totals are of these alone",)
    lines += [f"  {code}: {number}, effect {effects[code]:+d}" for code, number in counts.items()]
    accounts = [one for one in run.by_account() if one["effect"]]
    if accounts:
        lines.append("off by account:")
        lines += [f"  {one['account_id']}: {one['effect']:+d}" for one in accounts[:ACCOUNTS_SHOWN]]
    if len(accounts) > ACCOUNTS_SHOWN:
        lines.append(f"  and {len(accounts) - ACCOUNTS_SHOWN} more accounts")
    return tuple(lines)


def unread(run: "Audit") -> list[str]:
    """Return what an audit that ended early has not seen."""
    if trouble := run.ended_early():
        return [f"{trouble['read']} read, then: {trouble['message']}; nothing here is a total"]
    return []


def notes(run: "Audit", records: Findings) -> list[str]:
    """Return what a reader must know besides the findings."""
    said = unread(run)
    if records.left_out:
        said.append(f"{records.left_out} more findings; -o plain shows all")
    return said


REPAIR_COLUMNS = columns("job_id code action row_type at ripe detail")
CORRECTION_COLUMNS = columns("job_id outcome amount row_id detail")


def repair_plan(repairs: Iterator[tuple[Repair, bool]]) -> Report:
    """Return a dry run: every step that a repair would take, whether ripe or left to the grace."""
    counts = {True: 0, False: 0}

    def items() -> Iterator[Record]:
        for repair, is_ripe in repairs:
            counts[is_ripe] += 1
            for step in repair.steps:
                yield repair_item(repair, step, is_ripe=is_ripe)

    return Report(
        columns=REPAIR_COLUMNS,
        records=items(),
        document={
            "items": STREAMED,
            "repaired": lambda: counts[True],
            "skipped": lambda: counts[False],
            "left": [],
        },
        items_key="items",
        foot=lambda: (f"{counts[True]} would be repaired, {counts[False]} are too young",),
        empty="Nothing to repair.",
    )


def repair_item(repair: Repair, step: RepairStep, *, is_ripe: bool) -> Record:
    """Return one planned step."""
    return {
        "job_id": repair.finding.job_id,
        "account_id": repair.finding.account_id,
        "row_ids": list(repair.finding.row_ids),
        "code": str(repair.finding.code),
        "action": str(step.mend),
        "row_type": str(step.row_type) or None,
        "at": step.at,
        "ripe": is_ripe,
        "detail": repair.finding.detail,
    }


def repaired(run: "Audit", result: Result[Any]) -> Report:
    """Show what a repair did, and what an audit finds now."""
    left = (finding_record(one) for one in run.findings() if not one.settled)
    told: Sequence[RepairNote] = result.items
    refused = [one.text for one in told if one.refused]
    dated_now = [one.text for one in told if not one.refused]
    counts = {"repaired": result.fates[Fate.DONE], "skipped": result.fates[Fate.LEFT]}
    document: dict[str, Any] = {
        **counts,
        "left": STREAMED,
        "left_complete": lambda: run.ended_early() is None,
        "refused": refused,
    }
    said = f"{counts['repaired']} repaired, {counts['skipped']} skipped"
    return Report(
        columns=FINDING_COLUMNS,
        records=left,
        document=document,
        items_key="left",
        foot=lambda: (f"{said}, {run.open_findings} left",),
        notes=lambda: [
            *(
                [f"dated now, as their flags have no time: {some_of(dated_now)}"]
                if dated_now
                else []
            ),
            *refused,
            *unread(run),
        ],
        exit_code=lambda: exit_code(run) if run.ended_early() else 0,
        empty="Nothing is left.",
    )


def correction(job_id: str, result: Result[Any]) -> Report:
    """Show what came of a correction; nulls where an error left no outcome. Source: contract, section 3."""
    found = next(iter(result.items), None)
    keys = ("amount", "row_id", "net", "detail")
    document = {"job_id": job_id, "outcome": None if found is None else str(found.outcome)}
    return record(
        document | {key: getattr(found, key, None) for key in keys}, columns=CORRECTION_COLUMNS
    )


EXPORT_COLUMNS = columns(
    "row_id job_id account_id type amount created_at recorded_at operation_id reason"
)
LEFT_OUT = "rows without a usable date lie outside every window: they are not here"


class Counting:
    """Pass on rows; count those that no sum contains."""

    def __init__(self, rows: Iterable[LedgerRow]) -> None:
        self._rows = rows
        self.unusable = 0

    def __iter__(self) -> Iterator[LedgerRow]:
        for row in self._rows:
            if type(row.amount) is Unusable:
                self.unusable += 1
            yield row


def export(
    rows: Iterable[LedgerRow], *, zone: ZoneInfo | None = None, leaves_out_undated: bool = False
) -> Report:
    """Return the rows as records; with a day zone, as a journal for hledger and Ledger."""
    counting = Counting(rows)

    def notes() -> list[str]:
        said = [LEFT_OUT] if leaves_out_undated else []
        if counting.unusable:
            said.append(f"{row_words(counting.unusable)} cannot be summed: marked in the export")
        return said

    return Report(
        columns=EXPORT_COLUMNS,
        records=records(counting),
        document={"rows": STREAMED},
        items_key="rows",
        text=None if zone is None else journal(counting, zone),
        notes=notes,
        exit_code=lambda: int(ExitCode.FOUND if counting.unusable else ExitCode.DONE),
        empty="No rows.",
    )


def records(rows: Iterable[LedgerRow]) -> Iterator[Record]:
    """Yield each row under the names of its fields."""
    for row_id, job_id, account_id, kind, amount, created, recorded, operation_id, reason in rows:
        yield {
            "row_id": row_id,
            "job_id": job_id,
            "account_id": account_id,
            "type": kind,
            "amount": amount if type(amount) is int else amount_value(amount),
            "created_at": created,
            "recorded_at": recorded,
            "operation_id": operation_id,
            "reason": reason,
        }


def journal(rows: Iterable[LedgerRow], zone: ZoneInfo) -> Iterator[str]:
    """Yield the lines of the journal."""
    yield from head()
    for row in rows:
        yield from transaction(row, zone)
