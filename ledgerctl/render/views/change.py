"""Add what the report of every change tells. Source: contract, section 1."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ledgerctl.domain.results import Result
from ledgerctl.errors import LedgerctlError
from ledgerctl.render.report import Record, Report, Shape, settled

DRY_RUN = "dry run: nothing was written"


def changed(report: Report, result: Result[Any], *, dry_run: bool, exit_code: int) -> Report:
    """Add `operation_id`, `dry_run`, `error` and `not_tried` to the document of a change."""
    document: dict[str, Any] = {
        **(report.document or {}),
        "operation_id": result.operation_id,
        "dry_run": dry_run,
        "error": None if result.error is None else error_document(result.error, exit_code),
        "not_tried": result.not_tried,
    }

    def notes() -> Sequence[str]:
        return [*([DRY_RUN] if dry_run else []), *settled(report.notes)]

    records: Iterable[Record] = (document,) if report.shape is Shape.RECORD else report.records
    return replace(
        report,
        records=records,
        document=document,
        notes=notes,
        exit_code=lambda: exit_code or settled(report.exit_code),
    )


def error_document(error: LedgerctlError, exit_code: int) -> dict[str, Any]:
    """Describe what ended a change; `exit_code` is the process's, which counts what was done."""
    return {**error.document(), "exit_code": exit_code}
