"""The changing commands of the fault table: what stands before each, and what it says it did."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bson import Int64

from tests.builders import NOON, Document, make_claim, make_job, make_message, make_row, without

RETRY, DEAD = "jobs:retry", "jobs:dead-letter"
REFUNDED: Document = {"is_refunded": True, "refunded_at": NOON, "status": "failed"}
LETTERS = 420  # two scripts of 250 at most; half of them are more than is picked one by one
ERRORS = ("GPU timed out", "disk full")
DAYS = ("--from", "2026-03-08", "--to", "2026-03-09")


@dataclass
class Stock:
    """What stands before a command: documents by collection, entries by list."""

    collections: dict[str, list[Document]] = field(default_factory=dict)
    lists: dict[str, list[bytes]] = field(default_factory=dict)

    def put(self, collection: str, *documents: Document) -> "Stock":
        """Add documents."""
        self.collections.setdefault(collection, []).extend(documents)
        return self

    def push(self, key: str, *entries: bytes) -> "Stock":
        """Add entries at the tail."""
        self.lists.setdefault(key, []).extend(entries)
        return self


Counting = Callable[[Any], int]


@dataclass(frozen=True)
class Case:
    """One changing command over a small stock.

    `said` is the count of its result document, `did` the same count by what has changed from one
    state to another. `first` are commands that belong to what stands before it.
    """

    name: str
    words: tuple[str, ...]
    stock: Callable[[], Stock]
    said: Counting
    did: Callable[[Any, Any], int]
    on: tuple[str, ...] = ("replica set",)
    stores: tuple[str, ...] = ("mongo",)
    first: tuple[tuple[str, ...], ...] = ()
    before_again: tuple[tuple[str, ...], ...] = ()
    indexed: bool = True
    counts_again: bool = False  # a repeat is another event by its nature: a failure pushed again


BOTH = ("replica set", "standalone")
TWO = ("mongo", "redis")


def charged(*names: str) -> Stock:
    """Charged jobs."""
    stock = Stock()
    for name in names:
        stock.put("jobs", make_job(name)).put("ledger", make_row(name))
    return stock


def refunded(*names: str) -> Stock:
    """Refunded jobs."""
    stock = Stock()
    for name in names:
        stock.put("jobs", make_job(name, **REFUNDED))
        stock.put("ledger", make_row(name), make_row(name, "refund"))
    return stock


def entry(name: str, **members: Any) -> bytes:
    """A queue entry or a dead letter of this job."""
    content = {"job_id": name, "account_id": "acct-1", "cost": 40, "attempts": 0, "tags": []}
    return json.dumps(content | members).encode()


def letters() -> Stock:
    """Dead letters of refunded jobs, every other one with another error."""
    names = [f"job-{number:03d}" for number in range(LETTERS)]
    stock = refunded(*names)
    for number, name in enumerate(names):
        stock.push(DEAD, entry(name, attempts=5, error=ERRORS[number % 2]))
    return stock


def waiting() -> Stock:
    """Due jobs on retry: two refunded ones, one charged."""
    stock = refunded("job-1", "job-2")
    stock.put("jobs", make_job("job-3")).put("ledger", make_row("job-3"))
    return stock.push(RETRY, *[entry(f"job-{number}") for number in (1, 2, 3)])


def in_dead_hands() -> Stock:
    """Jobs on the processing list of a worker without a lease."""
    names = [f"job-{number}" for number in range(5)]
    return charged(*names).push("jobs:processing:gone", *map(entry, names))


def usage() -> Stock:
    """Rows of three accounts on two days, with their messages."""
    stock = Stock()
    for number in range(6):
        name, account = f"job-{number}", f"acct-{number % 3}"
        at = NOON + timedelta(days=number % 2)
        stock.put("jobs", make_job(name, account_id=account, created_at=at))
        row = make_row(name, account_id=account, created_at=at)
        stock.put("ledger", row)
        payload = {"row_id": row["_id"], "account_id": account, "created_at": at}
        stock.put("outbox", make_message(row["_id"], topic="ledger.appended", tenant_id=account, payload=payload))  # fmt: skip
    return stock


def mail() -> Stock:
    """Messages for a group that handles each by a command."""
    return Stock().put("outbox", *[make_message(f"m-{number}") for number in range(3)])


def claims(**overrides: Any) -> Stock:
    """Rows of the inbox with their messages."""
    stock = mail()
    keys = [one["_id"] for one in stock.collections["outbox"]]
    return stock.put("inbox", *[make_claim(message_key=key, **overrides) for key in keys])


def broken() -> Stock:
    """Jobs that a repair heals: a row, a flag, both flags and a message missing."""
    stock = Stock()
    stock.put("jobs", make_job("lost-1", **REFUNDED)).put("ledger", make_row("lost-1"))
    stock.put("jobs", make_job("lost-2", **REFUNDED)).put("ledger", make_row("lost-2"))
    stock.put("jobs", make_job("unflagged")).put(
        "ledger", make_row("unflagged"), make_row("unflagged", "refund")
    )
    stock.put("jobs", without(make_job("flagless"), "is_refunded", "is_reclaimed"))
    stock.put("ledger", make_row("flagless"))
    stock.put("jobs", make_job("untold"))
    return stock.put("ledger", make_row("untold", operation_id="op-1", recorded_at=NOON))


def twice_refunded() -> Stock:
    """A job with a refund too many, as foreign writers leave it where no index kept it out."""
    stock = refunded("job-1")
    return stock.put("ledger", make_row("job-1", "refund", _id="foreign", amount=Int64(-7), type="correction"))  # fmt: skip


def without_indexes() -> Stock:
    """A database that nobody has prepared."""
    return charged("job-1", "job-2")


# what has changed


def more(collection: str) -> Callable[[Any, Any], int]:
    """How many documents a collection has gained; a step is done with its message, the last of it."""
    return lambda before, after: (
        len(after.collections[collection]) - len(before.collections[collection])
    )


def gone(key: str) -> Callable[[Any, Any], int]:
    """How many entries a list has lost."""
    return lambda before, after: len(before.entries(key)) - len(after.entries(key))


def gained(key: str) -> Callable[[Any, Any], int]:
    """How many entries a list has gained."""
    return lambda before, after: len(after.entries(key)) - len(before.entries(key))


def completed(before: Any, after: Any) -> int:
    """How many rows of the inbox were completed."""
    return processed(after) - processed(before)


def processed(state: Any) -> int:
    return sum(one.get("completed_at") is not None for one in state.collections["inbox"].values())


def succeeded_jobs(before: Any, after: Any) -> int:
    """How many jobs have succeeded and left the queue, which is the last step."""
    return off_the_queue(after) - off_the_queue(before)


def off_the_queue(state: Any) -> int:
    there = state.whereabouts()
    jobs = state.collections["jobs"]
    return sum(one["status"] == "succeeded" and not there[name] for name, one in jobs.items())


def tried(before: Any, after: Any) -> int:
    """How many more failures the retry list counts."""
    return attempts(after) - attempts(before)


def attempts(state: Any) -> int:
    return sum(int(json.loads(raw).get("attempts", 0)) for raw in state.entries(RETRY))


def said(name: str) -> Counting:
    """A count of the document by its key; one whose result says what it did counts as one."""
    return lambda document: int(document.get(name) or 0)


def result_applied(document: Any) -> int:
    return sum(bool(one.get("applied")) for one in document["results"])


def written(document: Any) -> int:
    return int(document["outcome"] == "applied")


def built(document: Any) -> int:
    return sum(one["status"] == "created" for one in document["indexes"])


def more_indexes(before: Any, after: Any) -> int:
    found: set[str] = set(after.indexes) - set(before.indexes)
    return len(found)


def healed(before: Any, after: Any) -> int:
    """How many of the broken jobs are whole."""
    return whole(after) - whole(before)


def whole(state: Any) -> int:
    jobs, messages = state.collections["jobs"], state.collections["outbox"]
    return sum(
        (
            "lost-1:refund" in messages,
            "lost-2:refund" in messages,
            jobs["unflagged"]["is_refunded"] is True,
            "is_reclaimed" in jobs["flagless"],
            "untold:charge" in messages,
        )
    )


def unsaid(_document: Any) -> int:
    """What the state alone cannot show."""
    return 0


def unseen(_before: Any, _after: Any) -> int:
    return 0


FOUR = ("job-1", "job-2", "job-3", "job-4")
RECOVER = ("queue", "recover", "--force", "--older-than", "0s", "--yes")
CASES: tuple[Case, ...] = (
    Case("job charge", ("job", "charge", "new", "--account", "acct-1", "--cost", "40"),
         lambda: charged("job-1"), result_applied, more("outbox"), BOTH),
    Case("job refund (one)", ("job", "refund", "job-1"),
         lambda: charged("job-1", "job-2"), result_applied, more("outbox"), BOTH),
    Case("job refund (four)", ("job", "refund", *FOUR, "--yes"),
         lambda: charged(*FOUR), result_applied, more("outbox"), BOTH),
    Case("job reclaim (one)", ("job", "reclaim", "job-1"),
         lambda: refunded("job-1", "job-2"), result_applied, more("outbox"), BOTH),
    Case("job reclaim (four)", ("job", "reclaim", *FOUR, "--yes"),
         lambda: refunded(*FOUR), result_applied, more("outbox"), BOTH),
    Case("balance grant", ("balance", "grant", "acct-1", "500", "--key", "k-1"),
         lambda: charged("job-1"), result_applied, more("outbox"), BOTH),
    Case("dead requeue --all", ("dead", "requeue", "--all", "--yes"),
         letters, said("moved"), gained(RETRY), stores=TWO),
    Case("dead requeue --error", ("dead", "requeue", "--error", "disk", "--yes"),
         letters, said("moved"), gained(RETRY), stores=TWO),
    Case("dead release", ("dead", "release", "--all", "--reason", "x", "--yes"),
         letters, said("moved"), gone(DEAD), stores=TWO),
    Case("dead restore (released)", ("dead", "restore", "OPERATION", "--yes"),
         letters, said("restored"), gained(DEAD), stores=TWO,
         first=(("dead", "release", "--all", "--reason", "x", "--yes"),)),
    Case("dead restore (requeued)", ("dead", "restore", "OPERATION", "--yes"),
         letters, said("restored"), gained(DEAD), stores=TWO,
         first=(("dead", "requeue", "--all", "--yes"),)),
    Case("queue push (new)", ("queue", "push", "job-1", "--error", "boom"),
         lambda: charged("job-1"), said("attempts"), tried, stores=TWO, counts_again=True),
    Case("queue push (again)", ("queue", "push", "job-1", "--error", "boom"),
         lambda: charged("job-1").push(RETRY, entry("job-1")), said("attempts"), tried, stores=TWO,
         counts_again=True),
    Case("queue work (succeeding)", ("queue", "work", "--exec", "true", "--until-empty"),
         waiting, said("succeeded"), succeeded_jobs, stores=TWO, before_again=(RECOVER,)),
    Case("queue work (failing)", ("queue", "work", "--exec", "false", "--until-empty"),
         waiting, said("failed"), tried, stores=TWO, before_again=(RECOVER,), counts_again=True),
    Case("queue recover", RECOVER, in_dead_hands, said("recovered"), gained(RETRY), stores=TWO),
    Case("summary rebuild", ("summary", "rebuild", *DAYS),
         usage, said("days_written"), more("usage_daily"), BOTH),
    Case("inbox retry", ("inbox", "retry", "m-1", "--group", "mail", "--yes"),
         lambda: claims(status="failed", attempts=3), unsaid, unseen),
    Case("inbox settle", ("inbox", "settle", "--yes"),
         lambda: claims(status="succeeded"), said("settled"), completed, BOTH),
    Case("inbox consume", ("inbox", "consume", "--group", "mail", "--exec", "true", "--until-empty"),
         mail, said("succeeded"), completed, BOTH),
    Case("inbox consume usage-daily", ("inbox", "consume", "--group", "usage-daily", "--until-empty"),
         usage, said("succeeded"), completed, BOTH),
    Case("ledger repair", ("ledger", "repair", "--grace", "0s", "--yes"),
         broken, said("repaired"), healed, BOTH),
    Case("ledger correct", ("ledger", "correct", "job-1", "--reason", "x", "--yes"),
         twice_refunded, written, more("outbox"), BOTH),
    Case("db init", ("db", "init"), without_indexes, built, more_indexes, BOTH, indexed=False),
)  # fmt: skip
