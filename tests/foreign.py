"""Ledgers under other names: each schema writes our documents as another team would hold them."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from bson import DatetimeMS, Decimal128, Int64, ObjectId, json_util

from tests.builders import NOON, Document, make_job, make_row, without
from tests.planted import FAULTS

CENT = 100


@dataclass(frozen=True)
class Schema:
    """One team's names: its map in TOML, and how it writes a row and a job of ours."""

    name: str
    toml: str
    row: Callable[[Document], Document]
    job: Callable[[Document], Document]
    records: bool = False
    """It keeps the time at which a row was written."""


def milliseconds(value: Any) -> Any:
    """A date as a number; what is no date stays."""
    return Int64(int(DatetimeMS(value))) if isinstance(value, datetime) else value


def seconds(value: Any) -> Any:
    """A date as a number of seconds, a float as Python's `time.time()` gives it."""
    return value.timestamp() if isinstance(value, datetime) else value


def placed(names: dict[str, str], document: Document, **changed: Any) -> Document:
    """The document under other names; dotted ones make subdocuments."""
    found: Document = {"_id": document["_id"]}
    for ours, theirs in names.items():
        if ours not in document:
            continue
        place = found
        *outer, last = theirs.split(".")
        for step in outer:
            place = place.setdefault(step, {})
        place[last] = changed.get(ours, document[ours])
    return found


def toml_of(part: str, collection: str, names: dict[str, str], more: str = "") -> str:
    """One table of a map."""
    lines = [f"[map.{part}]", f'collection = "{collection}"', more]
    lines += [f'{ours} = "{theirs}"' for ours, theirs in names.items()]
    return "\n".join(lines) + "\n"


# ids in subdocuments, times in milliseconds, some words of their own

NESTED_ROW = {
    "job_id": "ref.task", "account_id": "customer.id", "type": "meta.kind", "amount": "delta",
    "created_at": "ts", "recorded_at": "inserted.at",
}  # fmt: skip
NESTED_JOB = {
    "account_id": "customer.id", "cost": "price", "is_refunded": "state.refunded",
    "refunded_at": "state.refunded_ts", "is_reclaimed": "state.reclaimed",
    "reclaimed_at": "state.reclaimed_ts", "created_at": "ts", "status": "state.name",
}  # fmt: skip
NESTED_WORDS = {"charge": "debit", "grant": "topup"}


def nested_row(row: Document) -> Document:
    """A row with its ids in subdocuments and its times in milliseconds."""
    times = {one: milliseconds(row.get(one)) for one in ("created_at", "recorded_at")}
    kind = NESTED_WORDS.get(row["type"], row["type"])
    return placed(NESTED_ROW, row, type=kind, **times) | {"type": "not ours", "amount": 7}


def nested_job(job: Document) -> Document:
    """A job with everything in subdocuments."""
    names = ("refunded_at", "reclaimed_at", "created_at")
    return placed(NESTED_JOB, job, **{one: milliseconds(job.get(one)) for one in names})


NESTED = Schema(
    "nested",
    toml_of("ledger", "credit_entries", NESTED_ROW, 'time = "ms"')
    + '[map.ledger.types]\ndebit = "charge"\ntopup = "grant"\n'
    + toml_of("jobs", "tasks", NESTED_JOB),
    nested_row,
    nested_job,
    records=True,
)

# amounts stored positive, the word says which way

WORDED_ROW = {
    "job_id": "job", "account_id": "user", "type": "what", "amount": "credits", "created_at": "at",
}  # fmt: skip
WORDED_JOB = {
    "account_id": "user", "cost": "price", "is_refunded": "refunded", "refunded_at": "refunded_on",
    "is_reclaimed": "reclaimed", "reclaimed_at": "reclaimed_on", "created_at": "at",
    "status": "outcome",
}  # fmt: skip
WORDED_WORDS = {"charge": "spent", "refund": "given back", "reclaim": "taken back"}


def turned(amount: Any) -> Any:
    """The negative of a number; what is none stays."""
    if isinstance(amount, Decimal128):
        return Decimal128(-amount.to_decimal())
    return type(amount)(-amount) if isinstance(amount, int | float) else amount


def worded_row(row: Document) -> Document:
    """A row whose amount is positive where ours is negative."""
    kind = WORDED_WORDS.get(row["type"], row["type"])
    changed = {"amount": turned(row["amount"])} if kind in {"spent", "taken back"} else {}
    return placed(WORDED_ROW, row, type=kind, **changed)


WORDED = Schema(
    "worded",
    toml_of("ledger", "bookings", WORDED_ROW)
    + '[map.ledger.types]\nspent = "charge"\n"given back" = "refund"\n"taken back" = "reclaim"\n'
    + '[map.ledger.signs]\nspent = -1\n"taken back" = -1\n'
    + toml_of("jobs", "orders", WORDED_JOB),
    worded_row,
    lambda job: placed(WORDED_JOB, job),
)

# two fields in and out, cents as doubles, times in seconds

SIDES_ROW = {"job_id": "job", "account_id": "wallet", "type": "type", "created_at": "when"}


def sides_row(row: Document) -> Document:
    """A row with what came in and what went out, in units of a hundred."""
    found = placed(SIDES_ROW, row, created_at=seconds(row["created_at"]))
    amount = row["amount"]
    if isinstance(amount, Decimal128):
        amount = float(amount.to_decimal())
    if amount is None:
        return found | {"in": None}
    if not isinstance(amount, int | float):
        return found | {"in": amount, "out": 0}
    if amount < 0:
        return found | {"in": 0.0, "out": -amount / CENT}
    return found | {"in": amount / CENT}


SIDES = Schema(
    "sides",
    toml_of("ledger", "moves", SIDES_ROW, 'credit = "in"\ndebit = "out"\nscale = 100\ntime = "s"')
    + toml_of("jobs", "jobs_of_ours", {one: one for one in WORDED_JOB}),
    sides_row,
    lambda job: job,
)

SCHEMAS = (NESTED, WORDED, SIDES)


def our_documents(schema: Schema) -> tuple[list[Document], list[Document]]:
    """Jobs and rows with every fault that the audit knows, as far as this schema holds them."""
    lacking = ("operation_id", "reason") + (() if schema.records else ("recorded_at",))
    jobs = [job for fault in FAULTS for job in fault.jobs]
    rows = [without(row, *lacking) for fault in FAULTS for row in fault.rows]
    for index in range(40):
        owner = f"acct-{index % 4}"
        at = NOON + timedelta(hours=index, milliseconds=index * 37)
        flags = {"is_refunded": index % 5 == 0, "refunded_at": at if index % 5 == 0 else None}
        job = ObjectId(f"{index:024x}") if index % 3 else f"task-{index}"
        jobs.append(make_job(job, account_id=owner, created_at=at, **flags))
        row = make_row(job, account_id=owner, created_at=at)
        if schema.records:
            row["recorded_at"] = at + timedelta(minutes=index)
        rows.append(without(row, "account_id") if index % 7 == 0 else row)
        if index % 5 == 0:
            rows.append(make_row(job, "refund", account_id=owner, created_at=at, _id=ObjectId()))
    rows.append(make_row("task-0", "grant", _id="odd", amount=29, created_at=NOON + timedelta(1)))
    return jobs, rows


# what the npm package medici writes: an entry a side, credit and debit as doubles

MEDICI = Path(__file__).parent / "medici"
MEDICI_WORDS = {"topup": "grant", "usage": "charge"}
MEDICI_MAP = """
[map.ledger]
collection = "medici_transactions"
account_id = "accounts"
job_id = "meta.job"
type = "meta.type"
credit = "credit"
debit = "debit"
created_at = "datetime"
recorded_at = "timestamp"
scale = 100
[map.ledger.types]
topup = "grant"
usage = "charge"
"""


def medici_row(entry: Document) -> Document:
    """A row of ours for an entry of medici."""
    credit, debit = (Decimal(repr(entry[side])) for side in ("credit", "debit"))
    row = {
        "_id": entry["_id"],
        "account_id": entry["accounts"],
        "type": MEDICI_WORDS[entry["meta"]["type"]],
        "amount": Int64(int((credit - debit) * CENT)),
        "created_at": entry["datetime"],
        "recorded_at": entry["timestamp"],
    }
    return row | ({"job_id": entry["meta"]["job"]} if "job" in entry["meta"] else {})


def medici_fixture() -> list[Document]:
    """The entries that the package wrote when `python -m tests.medici.write` was run last."""
    found: list[Document] = json_util.loads((MEDICI / "transactions.json").read_text())
    return found


def planted_by_medici(uri: str, place: Path) -> bool:
    """Let the package itself write its collections; False where it cannot be installed here."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return False
    shutil.copy(MEDICI / "plant.js", place)
    try:
        words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "medici@7.4.0"]
        subprocess.run(words, cwd=place, check=True, timeout=90, capture_output=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    subprocess.run(["node", "plant.js", uri], cwd=place, check=True, timeout=90)
    return True
