"""Audits, repairs and corrections, as reports."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

from ledgerctl.domain.audit import Finding
from ledgerctl.render.report import STREAMED, Column, Kind, Record, Report
from ledgerctl.render.views.job_page import finding_record

FINDING_COLUMNS = (
    Column("code"),
    Column("job_id", kind=Kind.ID),
    Column("account_id", kind=Kind.ID),
    Column("effect", kind=Kind.AMOUNT),
    Column("repairable", kind=Kind.FLAG),
    Column("settled", kind=Kind.FLAG, shown=False),
    Column("row_ids", kind=Kind.ID, shown=False),
    Column("detail"),
)
TABLE_MAX = 1_000  # findings a table holds; the other formats stream them all
ACCOUNTS_SHOWN = 20


class AuditTotals(Protocol):
    """What is known of an audit once its last finding has passed."""

    jobs_checked: int
    rows_checked: int
    open_findings: int

    @property
    def exit_code(self) -> int: ...

    def findings(self) -> Iterator[Finding]: ...

    def counts_by_code(self) -> dict[str, int]: ...

    def effects_by_code(self) -> dict[str, int]: ...

    def by_account(self) -> list[dict[str, Any]]: ...

    def ended_early(self) -> dict[str, Any] | None: ...


def audit(run: AuditTotals, *, table: bool) -> Report:
    """The findings as they come, then what they come to."""
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
        exit_code=lambda: run.exit_code,
        empty="Nothing is wrong.",
    )


class Findings:
    """The records of an audit; a table's are cut, and the walk goes on to its end all the same."""

    def __init__(self, run: AuditTotals, shown_max: int | None) -> None:
        self._run = run
        self._max = shown_max
        self.left_out = 0

    def __iter__(self) -> Iterator[Record]:
        findings = self._run.findings()
        for finding in islice(findings, self._max):
            yield finding_record(finding)
        self.left_out = sum(1 for _ in findings)


def summary(run: AuditTotals) -> tuple[str, ...]:
    """The totals below a table: by code, and the accounts that are most off."""
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


def notes(run: AuditTotals, records: Findings) -> list[str]:
    """What a reader must know besides the findings."""
    said = []
    if trouble := run.ended_early():
        said.append(f"{trouble['read']} read, then: {trouble['message']}; nothing here is a total")
    if records.left_out:
        said.append(f"{records.left_out} more findings; -o plain shows all")
    return said
