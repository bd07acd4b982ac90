"""`summary drift --why`: planted summaries are named by their cause, or not at all.

Each cause is planted a few times over the days around a change of the clocks;
LEDGERCTL_TEST_DRIFT=200 for the whole claim.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from bson import Int64

from tests.builders import make_row
from tests.conftest import Documents, Invoker, Run

EACH = int(os.environ.get("LEDGERCTL_TEST_DRIFT", "6"))
BERLIN = ZoneInfo("Europe/Berlin")
DAYS = ["2026-03-28", "2026-03-29", "2026-03-30", "2026-03-31"]  # the clocks go forward on the 29th
SPAN = ("--from", DAYS[0], "--to", DAYS[-1])
HOURS = [datetime(2026, 3, 26, tzinfo=UTC) + timedelta(hours=hour) for hour in range(24 * 8)]
AFTER = datetime(2026, 4, 10, tzinfo=UTC)
SIGNS = {"charge": -1, "refund": 1, "reclaim": -1}
NAMES = {"charge": "charged", "refund": "refunded", "reclaim": "reclaimed"}

Document = dict[str, Any]
Change = Callable[[Random, Document, list[Document]], Document | None]


@pytest.fixture
def berlin(environment: dict[str, str]) -> None:
    environment["LEDGERCTL_TIMEZONE"] = "Europe/Berlin"


def rows_of(account: str, chance: Random) -> list[Document]:
    """A row about every hour over eight days, in tens."""
    found = []
    for number, hour in enumerate(HOURS):
        kind = chance.choice(["charge", "charge", "refund", "reclaim"])
        at = hour + timedelta(minutes=chance.randrange(60))
        amount = Int64(SIGNS[kind] * 10 * chance.randrange(1, 100))
        changes = {"amount": amount, "created_at": at, "recorded_at": at, "account_id": account}
        found.append(make_row(f"{account}-{number}", kind, **changes))
    return found


def on_day(rows: list[Document], day: str, zone: Any = BERLIN) -> list[Document]:
    return [row for row in rows if str(row["created_at"].astimezone(zone).date()) == day]


def four(rows: list[Document]) -> Document:
    """The compared figures of these rows, the plain way."""
    sums: Document = dict.fromkeys(NAMES.values(), 0)
    for row in rows:
        sums[NAMES[row["type"]]] += SIGNS[row["type"]] * row["amount"]
    sums["net"] = sums["charged"] - sums["refunded"] + sums["reclaimed"]
    return {name: Int64(value) for name, value in sums.items()}


# what went wrong with a day's summary; a change returns the fields to set, None deletes it


def missing(chance: Random, summary: Document, rows: list[Document]) -> None:
    return None


def zone(chance: Random, summary: Document, rows: list[Document]) -> Document:
    name = chance.choice(["UTC", "America/New_York", "Asia/Kathmandu"])
    told = chance.choice([name, "Europe/Berlin"]) if name == "UTC" else name
    return four(on_day(rows, summary["day"], ZoneInfo(name))) | {"timezone": told}


def only_zone(chance: Random, summary: Document, rows: list[Document]) -> Document:
    return {"timezone": "Europe/Vienna"}


def part(chance: Random, summary: Document, rows: list[Document]) -> Document:
    day = on_day(rows, summary["day"])
    as_of = day[chance.randrange(3, len(day) - 3)]["created_at"]
    return four([row for row in day if row["created_at"] < as_of]) | {"as_of": as_of}


def late(chance: Random, summary: Document, rows: list[Document]) -> Document:
    day = on_day(rows, summary["day"])
    for row in chance.sample(day, chance.randrange(1, 5)):
        row["recorded_at"] = AFTER + timedelta(days=1)
    return four([row for row in day if row["recorded_at"] <= AFTER]) | {"as_of": AFTER}


def times(chance: Random, summary: Document, rows: list[Document]) -> Document:
    tenths = chance.choice([15, 20, 24, 30, 90])
    right = four(on_day(rows, summary["day"]))
    return {name: Int64(value * tenths // 10) for name, value in right.items()}


def again(chance: Random, summary: Document, rows: list[Document]) -> Document:
    day, in_utc = on_day(rows, summary["day"]), on_day(rows, summary["day"], UTC)
    while True:
        found = four(day + chance.sample(day, chance.choice([1, 2])))
        if found != four(in_utc):  # else both causes explain it, and the other is asked first
            return found


def unknown(chance: Random, summary: Document, rows: list[Document]) -> Document:
    name = chance.choice(["net", "charged", "refunded", "reclaimed"])
    return {name: Int64(summary[name] + chance.choice([7, -10_003]))}


CAUSES: dict[Change, str] = {
    missing: "missing_summary",
    zone: "other_zone",
    only_zone: "other_zone",
    part: "partial_day",
    late: "late_rows",
    times: "added_again",
    again: "added_again",
    unknown: "unknown",
}


def plant(invoke: Invoker, documents: Documents) -> dict[tuple[str, str], str]:
    """Rebuilt summaries of which each cause has spoiled some; what was planted, by pair."""
    chance = Random(22)
    ledger: dict[str, list[Document]] = {}
    planted: dict[tuple[str, str], tuple[Change, str]] = {}
    for change, cause in CAUSES.items():
        for number in range(EACH):
            account = f"{change.__name__}-{number}"
            ledger[account] = rows_of(account, chance)
            planted[account, DAYS[number % len(DAYS)]] = change, cause
    assert invoke("db", "init", "--yes", "-q").code == 0
    for rows in ledger.values():
        documents.ledger.insert_many(rows)
    assert invoke("summary", "rebuild", *SPAN, "--quiet").code == 0
    documents.usage_daily.update_many({}, {"$set": {"as_of": AFTER + timedelta(days=2)}})
    for (account, day), (change, _) in planted.items():
        pair = {"_id": f"{account}:{day}"}
        summary = documents.usage_daily.find_one(pair)
        assert summary is not None
        fields = change(chance, summary, ledger[account])
        if fields is None:
            documents.usage_daily.delete_one(pair)
        else:
            documents.usage_daily.update_one(pair, {"$set": fields})
        for row in ledger[account]:
            if row["recorded_at"] > AFTER:
                fresh = {"$set": {"recorded_at": row["recorded_at"]}}
                documents.ledger.update_one({"_id": row["_id"]}, fresh)
    return {pair: cause for pair, (_, cause) in planted.items()}


def found(run: Run) -> dict[tuple[str, str], str]:
    assert run.code == 5
    return {(one["account_id"], one["day"]): one["cause"] for one in run.json()["drifted"]}


@pytest.mark.usefixtures("berlin")
def test_each_planted_cause_is_named_and_none_is_named_wrongly(
    invoke: Invoker, documents: Documents
) -> None:
    planted = plant(invoke, documents)
    run = invoke("summary", "drift", *SPAN, "--why", "-o", "json")
    named = found(run)
    assert set(named) == set(planted)
    wrong = {
        pair: cause for pair, cause in named.items() if cause not in {planted[pair], "unknown"}
    }
    assert wrong == {}
    missed: dict[str, int] = defaultdict(int)
    for pair, cause in planted.items():
        missed[cause] += named[pair] != cause
    print(f"\n{EACH} of each: missed {dict(missed)}")
    assert all(count * 20 <= EACH for count in missed.values())
    assert run.json()["causes"] == Counter(named.values())


@pytest.mark.usefixtures("berlin")
def test_a_detail_says_what_happened_and_what_heals_it(
    invoke: Invoker, documents: Documents
) -> None:
    plant(invoke, documents)
    for one in invoke("summary", "drift", *SPAN, "--why", "-o", "json").json()["drifted"]:
        rebuild = f"`ledgerctl summary rebuild --from {one['day']} --to {one['day']}`"
        assert one["detail"].endswith(f"outside the window of a plain rebuild, {rebuild} heals it")
        if one["account_id"].startswith("times-"):
            assert f"{float(one['ratio']):g} times the ledger's" in one["detail"]
        if one["account_id"].startswith("again-"):
            assert f"row {one['account_id']}-" in one["detail"]
    assert invoke("summary", "rebuild", *SPAN, "--quiet").code == 0
    assert invoke("summary", "drift", *SPAN, "--why", "-o", "json").json()["causes"] == {}


def test_without_why_no_cause_is_told(invoke: Invoker, documents: Documents) -> None:
    documents.ledger.insert_one(make_row())
    found = invoke("summary", "drift", "--from", "2026-03-08", "--to", "2026-03-08", "-o", "json")
    assert set(found.json()["drifted"][0]) & {"cause", "detail"} == set()
    assert "causes" not in found.json()


def test_the_row_without_an_account_counts_for_its_jobs(
    invoke: Invoker, documents: Documents
) -> None:
    """A summary that lacks such a row was computed before it was recorded."""
    at = datetime(2026, 3, 8, 12, tzinfo=UTC)
    documents.jobs.insert_one({"_id": "job-2", "account_id": "acct-1"})
    documents.ledger.insert_one(make_row(recorded_at=at))
    day = ("--from", "2026-03-08", "--to", "2026-03-08")
    assert invoke("summary", "rebuild", *day, "--quiet").code == 0
    documents.usage_daily.update_one({}, {"$set": {"as_of": at + timedelta(days=2)}})
    unnamed = make_row("job-2", recorded_at=at + timedelta(days=3))
    del unnamed["account_id"]
    documents.ledger.insert_one(unnamed)
    (one,) = invoke("summary", "drift", *day, "--why", "-o", "json").json()["drifted"]
    assert (one["cause"], one["summary"], one["ledger"]) == ("late_rows", 40, 80)
