"""Jobs that are plainly right, told from their stored documents without building our records."""

from datetime import datetime
from typing import Any

from bson import Int64, ObjectId

from ledgerctl.domain.jobs import SUCCEEDED
from ledgerctl.stores.documents import Document
from ledgerctl.stores.sweep import Story

PLAIN_STEPS: tuple[tuple[tuple[str, int], ...], ...] = (
    (),
    (("charge", -1),),
    (("charge", -1), ("refund", 1)),
    (("charge", -1), ("reclaim", -1), ("refund", 1)),
)
PLAIN_TYPES = {"charge": 0, "reclaim": 1, "refund": 2}
WHOLE = (int, Int64)


def is_plain(story: Story, horizon: datetime) -> bool:
    """True only for a story in which no check can find anything; False says nothing.

    This is what nearly every job is, seen without building our records. Messages are not looked
    at. `horizon`: rows dated later are dated in the future.
    """
    if len(story.jobs) != 1:
        return story.text is None and is_plain_grant(story.rows[0], horizon)
    job = story.jobs[0]
    cost = job.get("cost")
    steps = plain_steps(job)
    rows = story.rows
    if steps is None or len(rows) != steps or type(cost) not in WHOLE or cost < 0:  # type: ignore[operator]  # whole
        return steps == 1 and not rows and type(cost) in WHOLE and cost >= 0  # type: ignore[operator]  # whole
    if steps > 1:
        rows = sorted(rows, key=plain_rank)
    return all(
        is_plain_row(row, kind, sign * cost, job["_id"], horizon)  # type: ignore[operator]  # whole
        for row, (kind, sign) in zip(rows, PLAIN_STEPS[steps], strict=True)
    )


def plain_rank(row: Document) -> int:
    """Where a row stands among a plain job's rows."""
    kind = row.get("type")
    return PLAIN_TYPES.get(kind, 3) if isinstance(kind, str) else 3


def plain_steps(job: Document) -> int | None:
    """How many rows the flags call for, when flags and their times are in order."""
    refunded, reclaimed = job.get("is_refunded"), job.get("is_reclaimed")
    if refunded is False and reclaimed is False:
        return 1 if job.get("refunded_at") is None and job.get("reclaimed_at") is None else None
    if refunded is not True or not isinstance(job.get("refunded_at"), datetime):
        return None
    if reclaimed is True:
        return 3 if isinstance(job.get("reclaimed_at"), datetime) else None
    untouched = reclaimed is False and job.get("reclaimed_at") is None
    return 2 if untouched and job.get("status") != SUCCEEDED else None


def is_plain_row(row: Document, kind: str, amount: int, job_id: Any, horizon: datetime) -> bool:
    """Whether a row is exactly the step row that its job calls for."""
    at = row.get("created_at")
    return (
        row.get("type") == kind
        and type(row.get("amount")) in WHOLE
        and row["amount"] == amount
        and isinstance(at, datetime)
        and at <= horizon
        and isinstance(job_id, str | ObjectId | int)
        and row["job_id"].__class__ is job_id.__class__
    )


def is_plain_grant(row: Document, horizon: datetime) -> bool:
    """Whether a row that names no job needs none, and can be summed and dated."""
    at = row.get("created_at")
    return (
        row.get("type") == "grant"
        and type(row.get("amount")) in WHOLE
        and isinstance(at, datetime)
        and at <= horizon
    )
