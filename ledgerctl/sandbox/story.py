"""The demo's story: a few weeks of a small service, and the morning after an outage.

Everything is dated from the moment it is loaded. `acct-7` is the customer who will ask about the
balance; the jobs of three other accounts died in an outage last night; `job-66` never had a chance,
and `job-38` was charged and then lost.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bson import Int64
from pymongo import MongoClient
from redis import Redis

from ledgerctl.domain.times import format_time

Document = dict[str, Any]

RETRY, DEAD_LETTER, PROCESSING = "jobs:retry", "jobs:dead-letter", "jobs:processing"
GIVE_UP_S = 30  # a worker's patience
OPERATION = "story"
OUTAGE = "upstream timed out after 30 s (gpu-3)"
REFUSED = "connect to 10.0.0.7:9000: connection refused"
WEIGHTS = "model weights not found: sdxl-v7"
HOPELESS = "job-66"
RECOVERED = {4, 11, 17}  # of that night
ERRORS_OF_THE_NIGHT = [OUTAGE] * 23 + [REFUSED] * 9 + [WEIGHTS] * 4


@dataclass(frozen=True)
class Past:
    """Hold one job of the past: what it cost, when it began, and what became of it."""

    job_id: str
    account_id: str
    cost: int
    began: datetime
    refunded: bool = False
    reclaimed: bool = False
    error: str | None = None  # the error with which it lies among the dead letters
    lost: bool = False  # charged, and then on no list


def load(*, mongo_uri: str, redis_url: str, database: str, now: datetime) -> None:
    """Empty the database and the lists, and put the story in; only ever on the sandbox's servers."""
    past = list(jobs(now))
    with MongoClient[Document](mongo_uri, tz_aware=True) as client:
        client.drop_database(database)
        place = client[database]
        rows = [*grants(now), *(row for job in past for row in rows_of(job))]
        place["jobs"].insert_many([document_of(job) for job in past])
        place["ledger"].insert_many(rows)
        place["outbox"].insert_many([message_of(row) for row in rows])
    with Redis.from_url(redis_url) as lists:
        for name in (RETRY, DEAD_LETTER, PROCESSING):
            for key in [name, *lists.scan_iter(f"{name}:*")]:
                lists.delete(key)
        lists.rpush(DEAD_LETTER, *letters(past))
        lists.rpush(RETRY, last_try(past, due=now + timedelta(hours=1)))


def jobs(now: datetime) -> Iterator[Past]:
    """Yield every job of the past, oldest first."""
    days = timedelta(days=1)
    yield Past("job-31", "acct-7", 60, now - 8 * days)
    yield Past("job-36", "acct-7", 40, now - 5 * days, refunded=True)
    yield Past("job-38", "acct-12", 25, now - 4 * days, lost=True)
    yield Past("job-40", "acct-7", 40, now - 3 * days)
    night = (now - days).replace(hour=2, minute=10, second=0, microsecond=0)
    for number, error in enumerate(ERRORS_OF_THE_NIGHT):
        yield Past(
            f"job-{201 + number}",
            f"acct-{(12, 15, 19)[number % 3]}",
            (40, 25, 60)[number % 3],
            night + number * timedelta(seconds=41),
            refunded=True,
            reclaimed=number in RECOVERED,
            error=error,
        )
    yield Past(HOPELESS, "acct-19", 60, night + timedelta(hours=3), refunded=True)


def grants(now: datetime) -> Iterator[Document]:
    """Yield the credits that the accounts began with."""
    for account, amount in (
        ("acct-7", 100),
        ("acct-12", 2000),
        ("acct-15", 1500),
        ("acct-19", 2500),
    ):
        at = now - timedelta(days=12)
        yield row(f"grant:welcome-{account}", None, account, "grant", amount, at)


def document_of(job: Past) -> Document:
    """Return the job's document, its flags as the guarded steps leave them."""
    gave_up, recovered = (job.began + timedelta(seconds=s) for s in (GIVE_UP_S, GIVE_UP_S + 95))
    ran = "succeeded" if job.reclaimed or not job.refunded else "failed"
    return {
        "_id": job.job_id,
        "account_id": job.account_id,
        "cost": Int64(job.cost),
        "is_refunded": job.refunded,
        "refunded_at": gave_up if job.refunded else None,
        "is_reclaimed": job.reclaimed,
        "reclaimed_at": recovered if job.reclaimed else None,
        "created_at": job.began,
        "status": "running" if job.lost else ran,
    }


def rows_of(job: Past) -> Iterator[Document]:
    """Yield the ledger rows that the job left."""
    steps = [("charge", -job.cost, 0)]
    steps += [("refund", job.cost, GIVE_UP_S)] if job.refunded else []
    steps += [("reclaim", -job.cost, GIVE_UP_S + 95)] if job.reclaimed else []
    for kind, amount, after_s in steps:
        at = job.began + timedelta(seconds=after_s)
        yield row(f"{job.job_id}:{kind}", job.job_id, job.account_id, kind, amount, at)


def row(
    row_id: str, job_id: str | None, account_id: str, kind: str, amount: int, at: datetime
) -> Document:
    """Return a ledger row, recorded when it counts."""
    return {
        "_id": row_id,
        "job_id": job_id,
        "account_id": account_id,
        "type": kind,
        "amount": Int64(amount),
        "created_at": at,
        "recorded_at": at,
        "operation_id": OPERATION,
    }


def message_of(row: Document) -> Document:
    """Return the outbox message of a row."""
    kept = ("job_id", "account_id", "type", "amount", "created_at")
    return {
        "_id": row["_id"],
        "message_key": row["_id"],
        "tenant_id": row["account_id"],
        "topic": "ledger.appended",
        "payload": {"row_id": row["_id"], **{name: row[name] for name in kept}},
        "created_at": row["recorded_at"],
    }


def letters(past: Sequence[Past]) -> list[bytes]:
    """Return the dead letters of the outage, as a Go worker writes them, and three that are odd."""
    found = [letter(job, attempts=5, error=job.error) for job in past if job.error]
    stranger = Past("job-9f1", "acct-12", 40, past[-2].began)
    return [
        *found,
        letter(past[9], attempts=5, error=OUTAGE),  # the same job twice
        letter(stranger, attempts=5, error=REFUSED),  # a job that nobody knows
        b'{"job_id":"job-2',  # cut off half-way
    ]


def last_try(past: Sequence[Past], *, due: datetime) -> bytes:
    """Return the hopeless job on the retry list, before its last attempt."""
    job = next(job for job in past if job.job_id == HOPELESS)
    return letter(job, attempts=4, error=WEIGHTS, due=due)


def letter(job: Past, *, attempts: int, error: str | None, due: datetime | None = None) -> bytes:
    """Return a queue entry, by default due since its failure."""
    failed_at = job.began + timedelta(minutes=35)
    content = {
        "job_id": job.job_id,
        "account_id": job.account_id,
        "cost": job.cost,
        "attempts": attempts,
        "not_before": format_time(due or failed_at),
        "error": error,
        "failed_at": format_time(failed_at),
    }
    return json.dumps(content, separators=(",", ":")).encode()
