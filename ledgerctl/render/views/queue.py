"""Report the retry queue's lists and what was done to them."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from ledgerctl.domain.jobs import StepResult
from ledgerctl.domain.payload import Payload, Unreadable
from ledgerctl.domain.queue import Pushed, QueueEntry, QueueStats, WorkerCounts, WorkerEntries
from ledgerctl.domain.results import Result
from ledgerctl.domain.times import format_time
from ledgerctl.render.report import Column, Kind, Record, Report, columns, listing, members, record
from ledgerctl.render.text import age_text, duration_text

STATS_COLUMNS = columns("list worker depth due waiting unreadable next_due_at")
ENTRY_COLUMNS = columns(
    "position job_id attempts not_before",
    Column("due", kind=Kind.FLAG),
    "worker",
    Column("unreadable"),
)
PUSHED_COLUMNS = columns("job_id attempts to not_before operation_id")
WORKED_COLUMNS = (
    *(
        Column(name, kind=Kind.COUNT)
        for name in (
            "ran",
            "succeeded",
            "failed",
            "dead_lettered",
            "skipped_settled",
            "unreadable",
            "unknown",
            "refused",
            "put_back",
        )
    ),
    Column("operation_id", kind=Kind.ID),
)
RECOVERED_COLUMNS = columns("worker entries recovered left")
WHY_LEFT = {
    "live": "live: never recovered",
    "recent": "silent, but not for as long as --older-than",
    "no_lease": "no lease; --force recovers it",
}


def stats_report(found: QueueStats) -> Report:
    """Return how many entries each list has."""
    retry = found.retry
    counts: Record = members(retry, "depth due waiting unreadable next_due_at")
    bare: Record = {
        "worker": None,
        "due": None,
        "waiting": None,
        "unreadable": None,
        "next_due_at": None,
    }
    return Report(
        columns=STATS_COLUMNS,
        records=[
            {"list": "retry", "worker": None, **counts},
            {**bare, "list": "dead-letter", "depth": found.dead_letters},
            *(
                {**bare, "list": "processing", "worker": worker, "depth": depth}
                for worker, depth in found.workers.items()
            ),
        ],
        document={
            "retry": counts,
            "dead_letter": {"depth": found.dead_letters},
            "processing": {"depth": sum(found.workers.values()), "workers": dict(found.workers)},
        },
    )


@dataclass(slots=True)
class LastMinute:
    """Keep the counts of the last minute, to show beside those of now."""

    samples: deque[tuple[datetime, dict[str, int]]] = field(default_factory=deque)

    def page(self, found: QueueStats, now: datetime) -> list[str]:
        """Add these counts and lay out the page that shows them."""
        retry = found.retry
        counts = {
            "due": retry.due,
            "waiting": retry.waiting,
            "dead": found.dead_letters,
            "in hand": sum(found.workers.values()),
            "unreadable": retry.unreadable,
        }
        self.samples.append((now, counts))
        while len(self.samples) > 1 and now - self.samples[1][0] >= MINUTE:
            self.samples.popleft()
        since, before = self.samples[0]
        span = f"last {min(now - since, MINUTE) // timedelta(seconds=1)} s"
        due = retry.next_due_at
        return [
            f"{format_time(now)}  Ctrl-C ends",
            "",
            f"{'':<12}{'now':>12}{span:>14}",
            *(
                f"{name:<12}{count:>12,}{count - before[name]:>+14,}"
                for name, count in counts.items()
            ),
            "",
            f"next due {age_text(due, now)}" if due is not None else "nothing waits",
            *(f"{count:>6} in hand of {worker}" for worker, count in found.workers.items()),
        ]


MINUTE: Final = timedelta(minutes=1)


def entries_report(found: Sequence[QueueEntry], total: int, *, now: datetime) -> Report:
    """Return a listing of entries as they stand."""
    return listing(
        [entry_record(entry, now) for entry in found],
        columns=ENTRY_COLUMNS,
        total=total,
        empty="the list is empty",
    )


def entry_record(entry: QueueEntry, now: datetime) -> Record:
    """Return one entry; what cannot be read is null, and `unreadable` says why."""
    payload = entry.payload
    read = payload if isinstance(payload, Payload) else None
    return {
        "position": entry.position,
        "job_id": None if read is None else read.job_id,
        "attempts": None if read is None else read.attempts,
        "not_before": None if read is None else read.not_before,
        "due": None if read is None else read.is_due(now),
        "worker": entry.worker,
        "unreadable": payload.why if isinstance(payload, Unreadable) else None,
    }


def pushed_report(job_id: str, result: Result[Pushed], *, dry_run: bool) -> Report:
    """Show where a failed job went; nulls where an error left that open."""
    went = "would go" if dry_run else "went"
    document: dict[str, Any] = {"job_id": job_id, "attempts": None, "to": None, "not_before": None}
    for pushed in result.items:
        document |= members(pushed, "attempts to not_before")
    foot = [f"{went} to {pushed.to.replace('_', ' ')}" for pushed in result.items]
    return record(document, columns=PUSHED_COLUMNS, foot=foot)


def worked_report(tally: WorkerCounts) -> Report:
    """Show what a run of the worker loop did."""
    from dataclasses import asdict

    return record(asdict(tally), columns=WORKED_COLUMNS, foot=(worked_line(tally),))


def run_line(
    at: datetime,
    job_id: str,
    attempt: int,
    error: str,
    duration: timedelta,
    result: StepResult | Pushed,
) -> str:
    """Describe one run of a handler on one line: time, job, attempt, exit, duration, what followed."""
    if isinstance(result, StepResult):
        followed = "succeeded" + (", refund taken back" if result.applied else "")
    elif result.not_before is None:
        followed = "failed, to the dead letters"
    else:
        followed = f"failed, due again at {format_time(result.not_before)}"
    how = error or "exit 0"
    return f"{format_time(at)} {job_id} attempt {attempt} {how} ({duration_text(duration)}): {followed}"


def worked_line(tally: WorkerCounts) -> str:
    """Return the run in one line."""
    line = f"{tally.ran} ran, {tally.succeeded} succeeded, {tally.failed} failed"
    more = [
        f"{number} {word}"
        for number, word in (
            (tally.skipped_settled, "settled already"),
            (tally.dead_lettered, "to the dead letters"),
            (tally.put_back, "put back"),
        )
        if number
    ]
    return f"{line}; {', '.join(more)}" if more else line


def recovered_report(
    found: Sequence[WorkerEntries], moved: Sequence[tuple[str, int]], *, dry_run: bool
) -> Report:
    """Show what went back to retry; a dry run shows what would go."""
    by_worker: Counter[str] = Counter()
    for worker, entries in moved:
        by_worker[worker] += entries
    records = [recovered_record(worker, by_worker[worker.worker]) for worker in found]
    recovered = by_worker.total()
    return Report(
        columns=RECOVERED_COLUMNS,
        records=records,
        document={"recovered": recovered, "workers": records},
        foot=(f"{recovered} {'would be recovered' if dry_run else 'recovered'}",),
        notes=left_notes(found),
        empty="No worker has anything in hand.",
    )


def recovered_record(worker: WorkerEntries, moved: int) -> Record:
    """Show one worker's list."""
    return {
        "worker": worker.worker,
        "entries": worker.entries,
        "recovered": moved,
        "left": None if worker.hold is None else str(worker.hold),
    }


def left_notes(found: Sequence[WorkerEntries]) -> tuple[str, ...]:
    """Return the lists that are left alone, by name, with the reason."""
    return tuple(
        f"{worker.key} is left: {WHY_LEFT[worker.hold]} ({worker.entries} entries)"
        for worker in found
        if worker.hold is not None
    )
