"""Everything the stores hold under some job ids, put together for the audit."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from ledgerctl.domain.audit import JobPage, judge, unmessaged
from ledgerctl.domain.findings import Case
from ledgerctl.domain.jobs import Job
from ledgerctl.domain.rows import Row
from ledgerctl.errors import (
    AmbiguousId,
    NotFound,
    NotPermitted,
    StoreBusy,
    StoreUnavailable,
    WrongKeyType,
)
from ledgerctl.stores.connections import Stores


def only_job(stores: Stores, job_id: str) -> Job | None:
    """Return the one job of this id, None without one.

    Raises AmbiguousId, naming both, when jobs of two types answer to the text.
    """
    found = stores.jobs.find(job_id)
    if len(found) > 1:
        kinds = " and ".join(sorted(f"{job.id.kind} {job.id.text}" for job in found))
        raise AmbiguousId(
            f"two jobs have the id {job_id!r}: {kinds}",
            hint="`ledgerctl ledger audit --code mixed_id_types` lists such ids",
        )
    return found[0] if found else None


def load(
    stores: Stores, texts: Sequence[str], *, now: datetime | None = None, session: Any = None
) -> list[Case]:
    """Load the cases of these job ids, in order; an unknown id has an empty case.

    Jobs are read before rows: a row that is missing here was missing after its flag was seen.
    """
    jobs: dict[str, list[Job]] = {text: [] for text in texts}
    rows: dict[str, list[Row]] = {text: [] for text in texts}
    for job in stores.jobs.named(texts, session):
        jobs.setdefault(job.id.text, []).append(job)
    for row in stores.ledger.of_jobs(texts, session):
        if row.job is not None:
            rows.setdefault(row.job.text, []).append(row)
    missing = without_message(stores, (row for some in rows.values() for row in some))
    moment = now or stores.mongo.now()
    return [
        Case(text, tuple(jobs[text]), tuple(rows[text]), moment, missing & ids(rows[text]))
        for text in texts
    ]


def without_message(stores: Stores, rows: Iterable[Row]) -> frozenset[str]:
    """Return the ids of those rows that carry an operation id and whose message does not stand."""
    carrying = [row for row in rows if row.operation_id is not None]
    standing = stores.outbox.standing([row.id.text for row in carrying])
    return unmessaged(carrying, standing)


def ids(rows: Iterable[Row]) -> set[str]:
    """Return the ids of these rows."""
    return {row.id.text for row in rows}


def show_job(stores: Stores, job_id: str, *, now: datetime, queues: bool = True) -> JobPage:
    """Return one job as the stores hold it, judged by the audit's own checks.

    Where Redis cannot be asked `queues` is None, with the reason. Raises NotFound, AmbiguousId,
    StoreUnavailable.
    """
    job = only_job(stores, job_id)
    case = load(stores, [job.id.text if job else job_id], now=now)[0]
    if not case.jobs:
        raise NotFound(f"no job has the id {job_id!r}", hint=where_to_look(case.rows))
    counts, why = queue_counts(stores, case.jobs[0].id.text) if queues else (None, "")
    return JobPage(case.jobs[0], case.rows, judge(case), counts, why)


def where_to_look(rows: tuple[Row, ...]) -> str:
    """Return what to do about an id that no job has."""
    if rows:
        return f"{len(rows)} ledger rows name it: `ledgerctl ledger audit --job {rows[0].job}`"
    return "`ledgerctl job list` shows the newest"


def queue_counts(stores: Stores, job_id: str) -> tuple[dict[str, int] | None, str]:
    """Return where the job is queued, or why nobody can say."""
    try:
        return stores.retry_lists.counts_of(job_id), ""
    except (NotPermitted, StoreBusy, StoreUnavailable, WrongKeyType) as error:
        return None, error.message
