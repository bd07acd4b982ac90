"""The demo's two stories as data: a small service after an outage, and an incident.

Everything is dated from the moment it is loaded. `acct-7` is the customer who will ask about the
balance; the jobs of three other accounts died in an outage last night; `job-66` never had a chance,
and `job-38` was charged and then lost.

In the incident a service claimed messages by (group, key) and looked the claims up by (tenant, key).
Its claims had no tenant, so the look-up never found one: consumers ran their backlog again every 45
seconds, and those that add up inflated the usage page. The balances were right all along.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

from bson import Int64
from pymongo import MongoClient
from redis import Redis

from ledgerctl.domain.days import day_bounds, day_of, window
from ledgerctl.domain.rows import RowType
from ledgerctl.domain.times import format_time
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.codec import Document
from ledgerctl.stores.connections import Stores

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
    payload = {"row_id": row["_id"], **{name: row.get(name) for name in kept}}
    at = row["recorded_at"]
    return message(row["_id"], "ledger.appended", payload, at, tenant_id=row["account_id"])


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


CLAIMS: Final = 3_344
MESSAGES_WITHOUT_TENANT: Final = 277  # notices of the service itself, which no group consumes
DAYS: Final = 15  # today included
EVERY: Final = timedelta(seconds=45)  # how often the consumers came by
LONGEST: Final = timedelta(hours=333)  # from arrival to completion of the slowest claim
LEASE: Final = timedelta(minutes=1)

ACCUMULATING: Final = ("credit-meter", "model-totals", "team-usage", "usage-totals")
OVERWRITING: Final = (
    "anomaly-watch", "archive", "audit-trail", "billing-export", "cache-warmer", "crm-sync",
    "data-lake", "email-receipts", "feature-flags", "fraud-score", "gpu-planner", "invoice-draft",
    "job-history", "low-balance-alert", "metrics", "notifications", "partner-webhooks",
    "quota-view", "search-index", "support-timeline", "tax-report", "trial-tracker",
)  # fmt: skip
GROUPS: Final = tuple(sorted(ACCUMULATING + OVERWRITING))

ACCOUNTS: Final = 40
CHARGES: Final = 900
REFUNDS: Final = 180
RECLAIMS: Final = 54
GRANT: Final = 5_000
COSTS: Final = range(10, 100, 10)  # tens: every ratio below gives whole credits


@dataclass(frozen=True, slots=True)
class Inflated:
    """Hold one day of one account whose summary was added to again and again."""

    days_ago: int
    account: str
    charges: int  # of 100 credits each, besides what the account uses anyway
    tenths: int  # the summary is this many tenths of the ledger


DRIFTED: Final = (
    Inflated(days_ago=0, account="acct-004", charges=4, tenths=16),
    Inflated(days_ago=1, account="acct-017", charges=12, tenths=24),
    Inflated(days_ago=2, account="acct-023", charges=5, tenths=20),
    Inflated(days_ago=3, account="acct-031", charges=4, tenths=15),
)


@dataclass
class Incident:
    """Hold the documents of the incident, by the settings name of their collection."""

    jobs: list[Document] = field(default_factory=list)
    ledger: list[Document] = field(default_factory=list)
    outbox: list[Document] = field(default_factory=list)
    inbox: list[Document] = field(default_factory=list)
    usage_daily: list[Document] = field(default_factory=list)


def load_incident(stores: Stores, *, now: datetime) -> Incident:
    """Put the incident into the stores' own database, replacing what its collections hold.

    Dated relative to `now`, the same for the same `now` and day zone. Source: domain, section 5.
    """
    made = incident(now, stores.settings.zone)
    for name in ("operator_log", "dead_archive", "leases"):
        with stores.mongo.writing("empty the incident's database"):
            stores.mongo.collection(name).delete_many({})
    for name, documents in vars(made).items():
        with stores.mongo.writing("load the incident"):
            stores.mongo.collection(name).delete_many({})
            stores.mongo.collection(name).insert_many(documents)
    build_indexes(stores)
    return made


def incident(now: datetime, zone: ZoneInfo) -> Incident:
    """Return the incident as it stood at `now` (aware UTC, milliseconds)."""
    return IncidentStory(now, zone).told()


@dataclass(slots=True)
class IncidentStory:
    """Makes the documents, one collection after the other, from one seeded sequence."""

    now: datetime
    zone: ZoneInfo
    random: Random = field(default_factory=lambda: Random(3344))  # noqa: S311  # a story, not a secret
    made: Incident = field(default_factory=Incident)

    def told(self) -> Incident:
        """Return all of it."""
        self.grants()
        self.all_jobs()
        self.notices()
        self.summaries()
        self.claims()
        return self.made

    # time

    def moment(self, days_ago: int) -> datetime:
        """Return some moment of a day of the day zone, and not after now."""
        first, _ = window(days_ago + 1, self.now, self.zone)
        start, end = day_bounds(first, self.zone)
        length_ms = int((min(end, self.now) - start) / timedelta(milliseconds=1))
        return start + timedelta(milliseconds=self.random.randrange(max(length_ms, 1)))

    def soon_after(self, moment: datetime, seconds: int) -> datetime:
        """Return a little later, but not after now."""
        later = moment + timedelta(milliseconds=self.random.randrange(1_000, seconds * 1_000))
        return min(later, self.now)

    # the ledger

    def grants(self) -> None:
        """Grant each account's first credits, on the first day; the first of them as it begins."""
        day, _ = window(DAYS, self.now, self.zone)
        self.row(account(1), None, RowType.GRANT, GRANT, day_bounds(day, self.zone)[0])
        for at in range(2, ACCOUNTS + 1):
            self.row(account(at), None, RowType.GRANT, GRANT, self.moment(DAYS - 1))

    def all_jobs(self) -> None:
        """Jobs over all days, some refunded, some of those reclaimed, and the busy days' own."""
        busy = [(one.account, one.days_ago, 100) for one in DRIFTED for _ in range(one.charges)]
        usual = [
            (account(at % ACCOUNTS + 1), self.random.randrange(DAYS), self.random.choice(COSTS))
            for at in range(CHARGES - len(busy))
        ]
        refunded = set(self.random.sample(range(len(usual)), REFUNDS))
        reclaimed = set(self.random.sample(sorted(refunded), RECLAIMS))
        for at, (owner, days_ago, cost) in enumerate([*usual, *busy]):
            self.job(at, owner, days_ago, cost, at in refunded, at in reclaimed)

    def job(
        self, at: int, owner: str, days_ago: int, cost: int, refunded: bool, reclaimed: bool
    ) -> None:
        """Add one job and its rows."""
        name = f"job-{at + 1:04d}"
        charged_at = self.moment(days_ago)
        refunded_at = self.soon_after(charged_at, 600) if refunded else None
        reclaimed_at = self.soon_after(refunded_at, 900) if refunded_at and reclaimed else None
        self.made.jobs.append(
            {
                "_id": name,
                "account_id": owner,
                "cost": cost,
                "is_refunded": refunded,
                "refunded_at": refunded_at,
                "is_reclaimed": reclaimed,
                "reclaimed_at": reclaimed_at,
                "created_at": charged_at,
                "status": "failed" if refunded and not reclaimed else "succeeded",
            }
        )
        self.row(owner, name, RowType.CHARGE, -cost, charged_at)
        if refunded_at:
            self.row(owner, name, RowType.REFUND, cost, refunded_at)
        if reclaimed_at:
            self.row(owner, name, RowType.RECLAIM, -cost, reclaimed_at)

    def row(
        self, owner: str, job: str | None, row_type: RowType, amount: int, at: datetime
    ) -> None:
        """Add one ledger row and its message, as the service's own workers write them."""
        row_id = f"grant:{owner}" if job is None else f"{job}:{row_type}"
        named = {} if job is None else {"job_id": job}
        shared = {"account_id": owner, "type": row_type.value, "amount": amount, "created_at": at}
        row = {"_id": row_id, **named, **shared, "recorded_at": at}
        self.made.ledger.append(row)
        self.made.outbox.append(message_of(row))

    def notices(self) -> None:
        """Messages of the service itself: their tenant is null, empty or absent."""
        for at in range(MESSAGES_WITHOUT_TENANT):
            key = f"notice-{at + 1:03d}"
            tenant = ({"tenant_id": None}, {"tenant_id": ""}, {})[at % 3]
            made_at = self.moment(self.random.randrange(DAYS))
            self.made.outbox.append(
                message(key, "service.notice", {"text": key}, made_at, **tenant)
            )

    # the summaries

    def summaries(self) -> None:
        """Tell what the usage page showed: right, but for the days that were added to again."""
        figures: dict[tuple[str, str], list[Document]] = defaultdict(list)
        for one in self.made.ledger:
            if one["type"] != RowType.GRANT:
                figures[one["account_id"], day_of(one["created_at"], self.zone)].append(one)
        inflated = {
            (one.account, window(one.days_ago + 1, self.now, self.zone)[0]): one.tenths
            for one in DRIFTED
        }
        self.made.usage_daily.extend(
            self.summary(owner, day, rows, inflated.get((owner, day), 10))
            for (owner, day), rows in sorted(figures.items())
        )

    def summary(self, owner: str, day: str, rows: Sequence[Document], tenths: int) -> Document:
        """Return one day of one account, its figures multiplied."""
        sums = {
            row_type: sum(abs(row["amount"]) for row in rows if row["type"] == row_type)
            * tenths
            // 10
            for row_type in (RowType.CHARGE, RowType.REFUND, RowType.RECLAIM)
        }
        return {
            "_id": f"{owner}:{day}",
            "account_id": owner,
            "day": day,
            "timezone": self.zone.key,
            "charged": sums[RowType.CHARGE],
            "refunded": sums[RowType.REFUND],
            "reclaimed": sums[RowType.RECLAIM],
            "net": sums[RowType.CHARGE] - sums[RowType.REFUND] + sums[RowType.RECLAIM],
            "jobs": len({row["job_id"] for row in rows}) * tenths // 10,
            "rows": len(rows) * tenths // 10,
            "as_of": self.now - EVERY,
        }

    # the claims

    def claims(self) -> None:
        """Add every group's claims, none with a tenant, each of a message that has one."""
        messages = [one for one in self.made.outbox if one.get("tenant_id")]
        share, rest = divmod(CLAIMS, len(GROUPS))
        for at, group in enumerate(GROUPS):
            for chosen in self.random.sample(messages, share + (at < rest)):
                self.made.inbox.append(self.claim(group, chosen))
        oldest = min(messages, key=lambda one: (one["created_at"], one["_id"]))
        self.make_slowest(oldest)
        for at, one in enumerate(self.made.inbox):
            one.update(({}, {"tenant_id": None}, {"tenant_id": ""})[at % 3])

    def claim(self, group: str, chosen: Document) -> Document:
        """Return one claim: done, circling, or marked as succeeded and run again."""
        first = self.soon_after(chosen["created_at"], 5)
        if group in ACCUMULATING:
            return self.marked_and_run_again(group, chosen, first)
        if self.random.random() < 0.4:  # noqa: PLR2004  # the share of the backlog
            return self.circling(group, chosen, first)
        done = self.soon_after(first, 20)
        return claim(group, chosen, first, first, status="succeeded", completed_at=done)

    def circling(self, group: str, chosen: Document, first: datetime) -> Document:
        """Claimed, never completed, and back every 45 seconds: attempts never rose."""
        last = max(first, self.now - timedelta(milliseconds=self.random.randrange(45_000)))
        return claim(group, chosen, first, last, deliveries=(last - first) // EVERY + 1)

    def marked_and_run_again(self, group: str, chosen: Document, first: datetime) -> Document:
        """Return the guard of August: marked before handling, and never found again by its mark."""
        deliveries = self.random.randrange(2, 10)
        last = min(first + EVERY * (deliveries - 1), self.now)
        marked = first if self.random.random() < 0.7 else None  # noqa: PLR2004  # the share with its time
        return claim(
            group,
            chosen,
            first,
            last,
            status="succeeded",
            deliveries=deliveries,
            completed_at=marked,
        )

    def make_slowest(self, oldest: Document) -> None:
        """Add one claim that was completed 333 hours after it arrived."""
        group = OVERWRITING[0]
        own = {
            one["message_key"]: at
            for at, one in enumerate(self.made.inbox)
            if one["consumer_group"] == group
        }
        at = own.get(oldest["_id"], min(own.values()))
        first = oldest["created_at"]
        done = first + LONGEST
        self.made.inbox[at] = claim(
            group,
            oldest,
            first,
            done,
            status="succeeded",
            deliveries=LONGEST // EVERY + 1,
            completed_at=done,
        )


def account(number: int) -> str:
    """Return an account's id."""
    return f"acct-{number:03d}"


def message(key: str, topic: str, payload: Document, at: datetime, **tenant: Any) -> Document:
    """Return one message of the outbox."""
    return {
        "_id": key,
        "message_key": key,
        **tenant,
        "topic": topic,
        "payload": payload,
        "created_at": at,
    }


def claim(
    group: str, chosen: Document, first: datetime, last: datetime, **overrides: Any
) -> Document:
    """Return one claim as the framework wrote it: no tenant, though a comment said it fills it in."""
    return {
        "_id": f"{group}/{chosen['_id']}",
        "consumer_group": group,
        "message_key": chosen["_id"],
        "status": "claimed",
        "attempts": 0,
        "deliveries": 1,
        "first_seen_at": first,
        "last_seen_at": last,
        "claimed_until": min(first + LEASE, last),
        "completed_at": None,
    } | overrides
