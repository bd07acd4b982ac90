"""Looking at one job: its document, its rows, what is wrong, and where it is queued."""

from datetime import datetime

from ledgerctl.domain.audit import JobPage, judge
from ledgerctl.domain.rows import Row
from ledgerctl.errors import (
    NotFound,
    NotPermitted,
    StoreBusy,
    StoreUnavailable,
    WrongKeyType,
)
from ledgerctl.operations.cases import load, only_job
from ledgerctl.stores.connections import Stores


def show(stores: Stores, job_id: str, *, now: datetime, queues: bool = True) -> JobPage:
    """One job as the stores hold it, judged by the audit's own checks.

    The story of the money is in MongoDB, so a Redis that cannot be asked leaves `queues` empty
    and is said, no more. Raises NotFound, AmbiguousId, StoreUnavailable.
    """
    job = only_job(stores, job_id)
    case = load(stores, [job.id.text if job else job_id], now=now)[0]
    if not case.jobs:
        raise NotFound(f"no job has the id {job_id!r}", hint=where_to_look(case.rows))
    counts, why = queue_counts(stores, case.jobs[0].id.text) if queues else (None, "")
    return JobPage(case.jobs[0], case.rows, judge(case), counts, why)


def where_to_look(rows: tuple[Row, ...]) -> str:
    """What to do about an id that no job has."""
    if rows:
        return f"{len(rows)} ledger rows name it: `ledgerctl ledger audit --job {rows[0].job}`"
    return "`ledgerctl job list` shows the newest"


def queue_counts(stores: Stores, job_id: str) -> tuple[dict[str, int] | None, str]:
    """Where the job is queued, or why nobody can say."""
    try:
        return stores.retry_lists.counts_of(job_id), ""
    except (NotPermitted, StoreBusy, StoreUnavailable, WrongKeyType) as error:
        return None, error.message
