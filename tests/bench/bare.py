"""The bare code that each bench is held against: what one would write without the program.

Run as a process of its own: `python bare.py NAME [WORD…]`.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

Document = dict[str, Any]
DEAD, RETRY = "jobs:dead-letter", "jobs:retry"
THREADS = 8
STEPS = ["charge", "refund", "reclaim"]


def database() -> Any:
    """The database that the environment names, times aware."""
    from pymongo import MongoClient

    client: Any = MongoClient(os.environ["LEDGERCTL_MONGO_URI"], tz_aware=True)
    return client[os.environ["LEDGERCTL_DATABASE"]]


def redis() -> Any:
    """The Redis that the environment names."""
    from redis import Redis

    return Redis.from_url(os.environ["LEDGERCTL_REDIS_URL"])


def text_of(moment: datetime) -> str:
    """A time as the program prints it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# reading


def show(account: str) -> None:
    """One account's sums by type, with the imports that the program cannot do without."""
    import typer  # noqa: F401  # what its start costs

    pipeline = [
        {"$match": {"account_id": account}},
        {
            "$group": {
                "_id": "$type",
                "rows": {"$sum": 1},
                "total": {"$sum": "$amount"},
                "first": {"$min": "$created_at"},
                "last": {"$max": "$created_at"},
            }
        },
    ]
    print(json.dumps(list(database().ledger.aggregate(pipeline)), default=text_of))


def foreign(schema: str, account: str) -> None:
    """One account's sums by kind, in another team's names; cents as doubles are summed exactly."""
    import typer  # noqa: F401  # what its start costs

    spent: Document = {"$in": ["$what", ["spent", "taken back"]]}
    cents: Document = {
        "$multiply": [{"$subtract": [{"$ifNull": ["$in", 0]}, {"$ifNull": ["$out", 0]}]}, 100]
    }
    collection, owner, kind, at, amount = {
        "nested": ("credit_entries", "customer.id", "$meta.kind", "$ts", "$delta"),
        "worded": ("bookings", "user", "$what", "$at",
                   {"$cond": [spent, {"$multiply": ["$credits", -1]}, "$credits"]}),
        "sides": ("moves", "wallet", "$type", "$when", {"$toLong": {"$round": [cents, 0]}}),
    }[schema]  # fmt: skip
    pipeline = [
        {"$match": {owner: account}},
        {
            "$group": {
                "_id": kind,
                "rows": {"$sum": 1},
                "total": {"$sum": amount},
                "first": {"$min": at},
                "last": {"$max": at},
            }
        },
    ]
    print(json.dumps(list(database()[collection].aggregate(pipeline)), default=text_of))


def replay(account: str) -> None:
    """One account's rows in order with the running balance, a JSON object a line."""
    fields = {"_id": 1, "created_at": 1, "job_id": 1, "type": 1, "amount": 1}
    rows = database().ledger.find({"account_id": account}, fields)
    balance = 0
    for row in rows.sort([("created_at", 1), ("_id", 1)]):
        balance += row["amount"]
        shown = {
            "row_id": row["_id"],
            "created_at": text_of(row["created_at"]),
            "job_id": row.get("job_id"),
            "type": row["type"],
            "amount": int(row["amount"]),
            "balance": balance,
        }
        sys.stdout.write(json.dumps(shown) + "\n")


def export() -> None:
    """Every row by time, a JSON object a line."""
    rows = database().ledger.find({}).sort([("created_at", 1)])
    for row in rows:
        shown = {
            "row_id": row["_id"],
            "job_id": row.get("job_id"),
            "account_id": row.get("account_id"),
            "type": row["type"],
            "amount": int(row["amount"]),
            "created_at": text_of(row["created_at"]),
            "recorded_at": text_of(row.get("recorded_at", row["created_at"])),
            "operation_id": row.get("operation_id"),
            "reason": row.get("reason"),
        }
        sys.stdout.write(json.dumps(shown) + "\n")


# summaries


def day_figures(day: str) -> list[Document]:
    """The stages that sum a day by account the plain way: in int64, no zone, no odd rows."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)

    def of(kind: str) -> Document:
        return {"$sum": {"$cond": [{"$eq": ["$type", kind]}, "$amount", 0]}}

    window = {"$gte": start, "$lt": start + timedelta(days=1)}
    return [
        {"$match": {"created_at": window, "type": {"$in": STEPS}}},
        {
            "$group": {
                "_id": "$account_id",
                **{kind: of(kind) for kind in STEPS},
                "rows": {"$sum": 1},
                "jobs": {"$addToSet": "$job_id"},
            }
        },
        {
            "$project": {
                "_id": {"$concat": ["$_id", f":{day}"]},
                "account_id": "$_id",
                "day": {"$literal": day},
                "charged": {"$multiply": ["$charge", -1]},
                "refunded": "$refund",
                "reclaimed": {"$multiply": ["$reclaim", -1]},
                "net": {"$multiply": [{"$add": ["$charge", "$refund", "$reclaim"]}, -1]},
                "rows": 1,
                "jobs": {"$size": "$jobs"},
            }
        },
    ]


def merge(*days: str) -> None:
    """Overwrite the summaries of some days by $group and $merge."""
    ledger = database().ledger
    for day in days:
        stages = [*day_figures(day), {"$merge": {"into": "usage_bare", "on": "_id"}}]
        ledger.aggregate(stages, allowDiskUse=True)


def upserts(*days: str) -> None:
    """Overwrite the summaries of some days by a loop in the client: read, add up, upsert each."""
    bare = database()
    names = {"charge": "charged", "refund": "refunded", "reclaim": "reclaimed"}
    fields = {"account_id": 1, "type": 1, "amount": 1, "job_id": 1}
    for day in days:
        start = datetime.fromisoformat(day).replace(tzinfo=UTC)
        window = {"$gte": start, "$lt": start + timedelta(days=1)}
        figures: dict[str, Document] = {}
        jobs: dict[str, set[Any]] = {}
        for row in bare.ledger.find({"created_at": window, "type": {"$in": STEPS}}, fields):
            account = row["account_id"]
            one = figures.setdefault(account, dict.fromkeys(names.values(), 0) | {"rows": 0})
            one[names[row["type"]]] += abs(row["amount"])
            one["rows"] += 1
            jobs.setdefault(account, set()).add(row["job_id"])
        for account, one in figures.items():
            one |= {"account_id": account, "day": day, "jobs": len(jobs[account])}
            one["net"] = one["charged"] - one["refunded"] + one["reclaimed"]
            bare.usage_bare.update_one({"_id": f"{account}:{day}"}, {"$set": one}, upsert=True)


def by_day(first: str, last: str) -> None:
    """Group a window by account and day: what any comparison has to do at least."""
    start = datetime.fromisoformat(first).replace(tzinfo=UTC)
    end = datetime.fromisoformat(last).replace(tzinfo=UTC) + timedelta(days=1)
    day = {"$dateToString": {"date": "$created_at", "format": "%Y-%m-%d"}}
    stages = [
        {"$match": {"created_at": {"$gte": start, "$lt": end}}},
        {"$group": {"_id": {"account": "$account_id", "day": day}, "net": {"$sum": "$amount"}}},
        {"$count": "pairs"},
    ]
    print(list(database().ledger.aggregate(stages, allowDiskUse=True)))


def by_job() -> None:
    """Group the whole ledger by job: what any audit has to do at least."""
    stages = [
        {"$group": {"_id": "$job_id", "net": {"$sum": "$amount"}, "rows": {"$sum": 1}}},
        {"$count": "jobs"},
    ]
    print(list(database().ledger.aggregate(stages, allowDiskUse=True)))


# dead letters


def pages(bare: Any) -> Iterable[bytes]:
    """The letters, a thousand at a time."""
    start = 0
    while some := bare.lrange(DEAD, start, start + 999):
        yield from some
        start += len(some)


def read() -> None:
    """Read every letter."""
    print(sum(1 for _ in pages(redis())))


def parse() -> None:
    """Read every letter and parse its JSON."""
    letters = 0
    for raw in pages(redis()):
        json.loads(raw)
        letters += 1
    print(letters)


def lrem(pattern: str) -> None:
    """Move the letters whose error matches: one LREM and one RPUSH for each."""
    bare = redis()
    matching = [raw for raw in pages(bare) if re.search(pattern, json.loads(raw)["error"])]
    for raw in matching:
        bare.pipeline(transaction=True).lrem(DEAD, 1, raw).rpush(RETRY, raw).execute()
    print(len(matching))


# the guard


def in_threads(work: Callable[[str], None], jobs: int) -> None:
    """Do the work for each job, eight at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(work, [f"job-{number}" for number in range(jobs)]):
            pass


def two_writes(jobs: str) -> None:
    """Refund each job by a guarded update and an insert, both by majority: what the program replaces."""
    from bson import Int64
    from pymongo.write_concern import WriteConcern

    bare, majority = database(), WriteConcern("majority")
    documents = bare.jobs.with_options(write_concern=majority)
    rows = bare.ledger.with_options(write_concern=majority)

    def refund(job: str) -> None:
        now = datetime.now(UTC)
        charged = {"_id": job, "is_refunded": False}
        fields = {"$set": {"is_refunded": True, "refunded_at": now}}
        if not documents.update_one(charged, fields).modified_count:
            raise RuntimeError(f"{job} was refunded before")
        row = {"job_id": job, "account_id": "acct-1", "type": "refund", "amount": Int64(40)}
        rows.insert_one({**row, "created_at": now})

    in_threads(refund, int(jobs))


PROGRAMS: dict[str, Callable[..., None]] = {
    one.__name__: one
    for one in (
        show,
        foreign,
        replay,
        export,
        merge,
        upserts,
        by_day,
        by_job,
        read,
        parse,
        lrem,
        two_writes,
    )
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
