"""Seeded ledgers of any size: the same plan always makes the same rows, and says what they sum to.

    python -m tests.bench.generate --rows 1000000 --accounts 2000 --largest 0.2

loads the database that LEDGERCTL_MONGO_URI and LEDGERCTL_DATABASE name, and builds the indexes.
"""

import argparse
import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from bson import Int64, ObjectId
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection
from pymongo.database import Database

Document = dict[str, Any]

START = datetime(2023, 1, 1, tzinfo=UTC)
CHUNK = 20_000
REFUNDED, RECLAIMED = 0.12, 0.4  # of the jobs; of the refunded ones
GRANTS, CORRECTIONS, UNKNOWN = (
    0.02,
    0.004,
    0.004,
)  # chances after each job, when all types are asked
KINDS = ("string", "objectid", "integer")


@dataclass(frozen=True)
class Plan:
    """What to generate. `largest` is the share of jobs that the account `acct-00000` has."""

    rows: int
    accounts: int = 2_000
    largest: float = 0.01
    seed: int = 1
    named: float = 1.0  # the share of jobs whose rows name their account; the others must be joined
    id_kind: str = "string"  # of jobs: string, objectid, integer, or mixed
    all_types: bool = True  # grants, corrections and a type nobody knows, besides the three steps
    days: int = 1_095
    start: datetime = START
    first: int = 0  # the number of the first job; two plans in one ledger must not meet


@dataclass
class Totals:
    """What the generated rows amount to: the figures a reader has to find."""

    balances: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)

    def count(self, account: str, amount: int) -> None:
        self.balances[account] = self.balances.get(account, 0) + amount
        self.rows[account] = self.rows.get(account, 0) + 1


@dataclass(frozen=True)
class Story:
    """One job's document and rows; a grant has rows alone."""

    account: str
    rows: list[Document]
    job: Document | None = None


def account_name(number: int) -> str:
    """The name of the account of this number; number 0 is the largest."""
    return f"acct-{number:05d}"


def job_id(plan: Plan, number: int) -> Any:
    """The id of the job of this number, in the plan's kind."""
    kind = KINDS[number % len(KINDS)] if plan.id_kind == "mixed" else plan.id_kind
    if kind == "objectid":
        return ObjectId(f"{0x65000000 + number // 1000:08x}{number:016x}")
    return Int64(10**9 + number) if kind == "integer" else f"job-{number:08d}"


def stories(plan: Plan) -> Iterator[Story]:
    """Jobs and grants without end, by time."""
    chance = random.Random(plan.seed)
    step = timedelta(days=plan.days) / max(plan.rows, 1)
    number = plan.first
    while True:
        at = plan.start + step * (number - plan.first)
        at = at.replace(microsecond=at.microsecond // 1000 * 1000)
        others = plan.accounts - 1
        is_largest = others == 0 or chance.random() < plan.largest
        account = account_name(0 if is_largest else 1 + chance.randrange(others))
        yield job_story(plan, chance, number, account, at)
        if plan.all_types and chance.random() < GRANTS:
            grant = {"_id": f"grant:{number}", "account_id": account, "type": "grant"}
            yield Story(
                account, [{**grant, "amount": Int64(chance.randrange(1, 5000)), "created_at": at}]
            )
        number += 1


def job_story(plan: Plan, chance: random.Random, number: int, account: str, at: datetime) -> Story:
    """One job, refunded or not, reclaimed or not, its flags as its rows say."""
    identity, cost = job_id(plan, number), chance.randrange(1, 200)
    is_refunded = chance.random() < REFUNDED
    is_reclaimed = is_refunded and chance.random() < RECLAIMED
    refunded_at, reclaimed_at = at + timedelta(seconds=30), at + timedelta(seconds=32)
    steps = [("charge", -cost, at)]
    if is_refunded:
        steps.append(("refund", cost, refunded_at))
    if is_reclaimed:
        steps.append(("reclaim", -cost, reclaimed_at))
    if plan.all_types and chance.random() < CORRECTIONS:
        steps.append(("correction:1", chance.randrange(-50, 50), at + timedelta(days=1)))
    if plan.all_types and chance.random() < UNKNOWN:
        steps.append(("goodwill", chance.randrange(1, 50), at + timedelta(days=2)))
    owner = {"account_id": account} if chance.random() < plan.named else {}
    rows: list[Document] = [
        {
            "_id": f"{identity}:{step}",
            "job_id": identity,
            **owner,
            "type": step.partition(":")[0],
            "amount": Int64(amount),
            "created_at": when,
        }
        for step, amount, when in steps
    ]
    job = {
        "_id": identity,
        "account_id": account,
        "cost": Int64(cost),
        "is_refunded": is_refunded,
        "refunded_at": refunded_at if is_refunded else None,
        "is_reclaimed": is_reclaimed,
        "reclaimed_at": reclaimed_at if is_reclaimed else None,
        "status": "failed" if is_refunded and not is_reclaimed else "succeeded",
        "created_at": at,
    }
    return Story(account, rows, job)


def generate(
    database: Database[Document],
    plan: Plan,
    *,
    jobs: str = "jobs",
    ledger: str = "ledger",
    with_jobs: bool = True,
    replace: bool = True,
) -> Totals:
    """Replace both collections by the plan's ledger, or add it, and return what it amounts to.

    The last job may overshoot `plan.rows` by a few rows. Indexes are left to `db init`.
    """
    totals = Totals()
    # A majority write for each chunk would cost more than the data.
    quick = WriteConcern(w=1, j=False)
    targets = {name: database.get_collection(name, write_concern=quick) for name in (jobs, ledger)}
    if replace:
        for collection in targets.values():
            collection.drop()
    source, written = stories(plan), 0
    while written < plan.rows:
        chunk = list(islice(until_rows(source, min(CHUNK, plan.rows - written)), CHUNK))
        rows = [row for story in chunk for row in story.rows]
        insert(targets[ledger], rows)
        if with_jobs:
            insert(targets[jobs], [story.job for story in chunk if story.job])
        count(totals, chunk)
        written += len(rows)
    # A write that matches nothing waits for all before it: readers by majority see every row.
    settled = targets[ledger].with_options(write_concern=WriteConcern("majority"))
    settled.delete_one({"_id": "no row has this id"})
    return totals


def until_rows(source: Iterator[Story], rows: int) -> Iterator[Story]:
    """Stories until they have this many rows."""
    while rows > 0:
        story = next(source)
        rows -= len(story.rows)
        yield story


def insert(collection: Collection[Document], documents: list[Document]) -> None:
    """Insert in any order, several at a time, unchecked: they are ours."""
    if documents:
        collection.insert_many(documents, ordered=False, bypass_document_validation=True)


def count(totals: Totals, chunk: Iterable[Story]) -> None:
    """Add a chunk's figures."""
    for story in chunk:
        for row in story.rows:
            totals.count(story.account, int(row["amount"]))
        if story.job:
            totals.jobs[story.account] = totals.jobs.get(story.account, 0) + 1


def build_indexes(environment: Mapping[str, str]) -> None:
    """The contract's indexes, as `db init` builds them."""
    from ledgerctl.config import load
    from ledgerctl.stores.connections import Stores
    from ledgerctl.stores.indexes import INDEXES

    with Stores(load(environment=environment)) as stores:
        for index in INDEXES:
            stores.indexes.build(index)


def main() -> None:
    """Load the database that the environment names; print the largest account's figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.generate", description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--accounts", type=int, default=2_000)
    parser.add_argument("--largest", type=float, default=0.01, help="share of the largest account")
    parser.add_argument("--named", type=float, default=1.0, help="share of rows with account_id")
    parser.add_argument("--id-kind", choices=(*KINDS, "mixed"), default="string")
    parser.add_argument("--steps-only", action="store_true", help="no grants, corrections, others")
    parser.add_argument("--days", type=int, default=1_095)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-jobs", action="store_true", help="no job documents")
    words = parser.parse_args()
    plan = Plan(
        rows=words.rows,
        accounts=words.accounts,
        largest=words.largest,
        seed=words.seed,
        named=words.named,
        id_kind=words.id_kind,
        all_types=not words.steps_only,
        days=words.days,
    )
    uri = os.environ["LEDGERCTL_MONGO_URI"]
    with MongoClient[Document](uri, tz_aware=True) as client:
        database = client[os.environ.get("LEDGERCTL_DATABASE", "ledger")]
        totals = generate(database, plan, with_jobs=not words.no_jobs)
    build_indexes(os.environ)
    first = account_name(0)
    figures = {
        "rows": sum(totals.rows.values()),
        "accounts": len(totals.rows),
        "account": first,
        "account_rows": totals.rows.get(first, 0),
        "account_balance": totals.balances.get(first, 0),
    }
    print(json.dumps({"plan": asdict(plan), **figures}, default=str))


if __name__ == "__main__":
    main()
