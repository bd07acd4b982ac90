"""Report jobs, one job's page, and the results of guarded steps."""

from collections.abc import Sequence
from typing import Any

from ledgerctl.domain.amounts import Amount, Unusable
from ledgerctl.domain.audit import JobPage
from ledgerctl.domain.findings import Finding
from ledgerctl.domain.ids import text_of
from ledgerctl.domain.jobs import Flag, Job, StepResult, state
from ledgerctl.domain.results import Fate, Result
from ledgerctl.domain.rows import Row
from ledgerctl.render.report import Record, Report, columns, listing, members, record
from ledgerctl.render.text import command_words

RESULT_COLUMNS = columns(
    "job_id operation applied outcome state amount row_id at detail",
    spare="row_id",
    when_filled="detail",
    not_in_table="operation applied state",
)
JOB_COLUMNS = columns(
    "job_id account_id cost status state refunded_at reclaimed_at created_at",
    spare="status",
    not_in_table="refunded_at reclaimed_at",
)


def results(result: Result[StepResult], *, dry_run: bool) -> Report:
    """Show several guarded steps together, with their counts."""
    counts = {
        "applied": result.fates[Fate.DONE],
        "unchanged": result.fates[Fate.ALREADY],
        "refused": result.fates[Fate.REFUSED],
        "not_found": result.fates[Fate.NOT_FOUND],
    }
    records = [result_record(one) for one in result.items]
    applied = "would apply" if dry_run else "applied"
    said = ", ".join(
        f"{number} {applied if name == 'applied' else name.replace('_', ' ')}"
        for name, number in counts.items()
        if number
    )
    return Report(
        columns=RESULT_COLUMNS,
        records=records,
        document={"results": records, **counts},
        items_key="results",
        foot=(said,) if len(records) > 1 else (),
    )


def result_record(result: StepResult) -> Record:
    """Return one guarded step."""
    return {
        "job_id": result.job_id or None,
        "operation": str(result.step),
        "applied": result.applied,
        "outcome": str(result.outcome),
        "state": None if result.state is None else str(result.state),
        **members(result, "amount row_id at detail"),
    }


def amount_value(amount: Amount) -> int | str | None:
    """Return an amount as printed: the whole number, or what stands there instead."""
    if isinstance(amount, Unusable):
        return None if amount.shown == "null" else amount.shown
    return amount


def flag_value(flag: Flag, stored: object) -> object:
    """Return a flag as printed: true or false, or what stands there instead."""
    return stored if flag is Flag.BAD else flag is Flag.SET


def job_record(job: Job) -> dict[str, object]:
    """Return the fields of a job document."""
    return {
        "job_id": job.id.text,
        "account_id": text_of(job.account),
        "cost": amount_value(job.cost),
        "status": job.status,
        "state": str(state(job)),
        "is_refunded": flag_value(job.refunded, job.refunded_as),
        "refunded_at": job.refunded_at,
        "is_reclaimed": flag_value(job.reclaimed, job.reclaimed_as),
        "reclaimed_at": job.reclaimed_at,
        "created_at": job.created_at,
    }


def row_record(row: Row) -> dict[str, object]:
    """Return the fields of a ledger row."""
    return {
        "row_id": row.id.text,
        "created_at": row.created_at,
        "job_id": text_of(row.job),
        "account_id": text_of(row.account),
        "type": row.type.value,
        "amount": amount_value(row.amount),
        **members(row, "recorded_at operation_id reason"),
    }


def jobs(found: Sequence[Job], total: int) -> Report:
    """Return a listing of jobs."""
    return listing(
        [job_record(job) for job in found],  # type: ignore[misc]  # JSON values by construction
        columns=JOB_COLUMNS,
        total=total,
        empty="No jobs.",
    )


PAGE_COLUMNS = columns(
    "job_id account_id cost status state is_refunded refunded_at is_reclaimed reclaimed_at",
    "created_at net expected_net consistent problems queues",
)
ROW_COLUMNS = columns("row_id created_at type amount reason", spare="row_id")
FINDING_COLUMNS = columns("code effect detail")
QUEUES = ("retry", "processing", "dead_letter")


def job_document(page: JobPage) -> dict[str, Any]:
    """Return the document of `job show`. Source: contract, section 3, job."""
    verdict = page.verdict
    return job_record(page.job) | {
        "rows": [row_record(row) for row in page.rows],
        "net": verdict.net,
        "expected_net": verdict.expected,
        "consistent": verdict.consistent,
        "problems": list(dict.fromkeys(str(one.code) for one in verdict.findings)),
        "queues": page.queues or dict.fromkeys(QUEUES),
        "findings": [finding_record(one) for one in verdict.findings],
    }


def finding_record(finding: Finding) -> dict[str, Any]:
    """Show one finding of the audit with the command that heals it. Source: contract, section 3, ledger."""
    command = command_words(finding.remedy) if finding.remedy else None
    return {
        **members(finding, "code job_id account_id"),
        "row_ids": list(finding.row_ids),
        **members(finding, "effect repairable settled"),
        "detail": finding.detail if command is None else f"{finding.detail}: `{command}`",
        "command": command,
    }


def job_page(page: JobPage) -> Report:
    """Return one job's whole page; a problem leaves exit 0, because the audit raises alarms."""
    document: dict[str, Any] = job_document(page)
    notes = [f"the queues are not known: {page.queues_why}"] if page.queues_why else []
    sections = [Report(ROW_COLUMNS, rows(document), head=("Rows:",), empty="No rows.")]
    if document["findings"]:
        sections.append(Report(FINDING_COLUMNS, document["findings"], head=("Problems:",)))
    return record(document, columns=PAGE_COLUMNS, notes=notes, sections=sections)


def rows(document: dict[str, Any]) -> list[Record]:
    """Return the job's rows."""
    return list(document["rows"])
