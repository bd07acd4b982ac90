"""Report one job's page: document, rows, verdict and queues."""

from typing import Any

from ledgerctl.domain.audit import JobPage
from ledgerctl.domain.findings import Finding
from ledgerctl.render.report import Record, Report, columns, record
from ledgerctl.render.text import command_words
from ledgerctl.render.views.job import job_record, row_record

COLUMNS = columns(
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
        "code": str(finding.code),
        "job_id": finding.job_id,
        "account_id": finding.account_id,
        "row_ids": list(finding.row_ids),
        "effect": finding.effect,
        "repairable": finding.repairable,
        "settled": finding.settled,
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
    return record(document, columns=COLUMNS, notes=notes, sections=sections)


def rows(document: dict[str, Any]) -> list[Record]:
    """Return the job's rows."""
    return list(document["rows"])
