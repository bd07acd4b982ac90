"""Valid documents, as foreign writers write them; a test overrides only what it is about."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

from bson import Int64

from ledgerctl.domain.results import Result, Run

NOON = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)

Document = dict[str, Any]


def make_job(job_id: Any = "job-1", **overrides: Any) -> Document:
    """A charged job."""
    return {
        "_id": job_id,
        "account_id": "acct-1",
        "cost": Int64(40),
        "is_refunded": False,
        "is_reclaimed": False,
        "created_at": NOON,
        "status": "running",
    } | overrides


def make_row(job_id: Any = "job-1", row_type: str = "charge", **overrides: Any) -> Document:
    """A ledger row of a job, its amount by the type."""
    amount = {"charge": -40, "refund": 40, "reclaim": -40}.get(row_type, 0)
    return {
        "_id": f"{job_id}:{row_type}",
        "job_id": job_id,
        "account_id": "acct-1",
        "type": row_type,
        "amount": Int64(amount),
        "created_at": NOON,
    } | overrides


def without(document: Document, *names: str) -> Document:
    """The document lacking these fields."""
    return {key: value for key, value in document.items() if key not in names}


def make_message(key: Any = "m-1", **overrides: Any) -> Document:
    """A message of the outbox."""
    return {
        "_id": key,
        "message_key": key,
        "tenant_id": "acct-1",
        "topic": "job.failed",
        "payload": {"job_id": "job-1"},
        "created_at": NOON,
    } | overrides


def make_claim(**overrides: Any) -> Document:
    """A claim of group `mail` that nobody came back to."""
    return {
        "consumer_group": "mail",
        "message_key": "m-1",
        "tenant_id": "acct-1",
        "status": "claimed",
        "attempts": 0,
        "deliveries": 1,
        "first_seen_at": NOON,
        "last_seen_at": NOON,
        "claimed_until": NOON,
        "not_before": None,
        "completed_at": None,
        "last_error": None,
    } | overrides


def make_entry(job_id: Any = "job-1", **overrides: Any) -> bytes:
    """A queue entry of a job that failed twice and is due, as a Go worker spaces it."""
    content = {
        "job_id": job_id,
        "account_id": "acct-1",
        "cost": 40,
        "attempts": 2,
        "not_before": "2026-03-08T12:00:00Z",
        "error": "boom",
        "tags": [],
    }
    return json.dumps(content | overrides, separators=(",", ":")).encode()


def make_letter(job_id: str = "job-1", **overrides: Any) -> bytes:
    """A dead letter as a Python worker writes it; `overrides` replace or add members."""
    members = {
        "job_id": job_id,
        "account_id": "acct-1",
        "cost": 40,
        "attempts": 5,
        "not_before": "2026-03-08T09:15:02.435Z",
        "error": "GPU timed out after 30 s",
        "failed_at": "2026-03-08T09:15:02.435Z",
    }
    return json.dumps(members | overrides).encode()


def make_run(
    operation_id: str = "op-1", *, stopping: Callable[[], bool] = lambda: False
) -> Run[Any]:
    """A run without an entry in the operator log; its result is filled in by the operation."""
    return Run(operation_id, None, Result(), stopping, lambda _text: None)


def days_between(from_day: str, to_day: str) -> list[str]:
    """Every day from the first to the last, both included."""
    first, last = date.fromisoformat(from_day).toordinal(), date.fromisoformat(to_day).toordinal()
    return [date.fromordinal(at).isoformat() for at in range(first, last + 1)]
