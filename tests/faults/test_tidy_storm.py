"""Old messages are removed, killed again and again, while a broker delivers younger ones anew.

LEDGERCTL_TEST_TIDY sets how many messages there are, each with two claims; the full run has
2,000,000. LEDGERCTL_TEST_KILLS sets how often `db tidy` is killed.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pymongo.database import Database

from ledgerctl.operations.claims import Claims
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.usage_daily import GROUP
from ledgerctl.stores.connections import Stores
from tests.conftest import Runner
from tests.faults.storm import COUNTER, EFFECTS, FEED, TERM, add_to
from tests.faults.test_inbox_storm import AT_ONCE, FINISH_S, Appender, Workers, net_by_day

MESSAGES = int(os.environ.get("LEDGERCTL_TEST_TIDY", "6000")) // 1_000 * 1_000
KILLS = int(os.environ.get("LEDGERCTL_TEST_KILLS", "3"))
MINUTES = 60 * 24 * 60  # the oldest message is 60 days old
STRIDE = 7_919  # has no divisor in common with them: every age comes
YOUNG = 29 * 24 * 60
ACCOUNTS = 50
SLICE_MS = 50
AT_A_TIME = 100_000  # planted with one call
TIDY = ("db", "tidy", "--yes", "-o", "json")


def age(number: int) -> int:
    """Return a planted message's age in minutes."""
    return number * STRIDE % MINUTES


def plant(db: Database[Any]) -> None:
    """Let the server write charged jobs of the last 60 days, all summarised by both groups."""
    minute = {"$multiply": [{"$mod": [{"$multiply": ["$n", STRIDE]}, MINUTES]}, 60_000]}
    at = {"$subtract": [datetime.now(UTC), minute]}
    job = {"$concat": ["old-", {"$toString": "$n"}]}
    row = {"$concat": [job, ":charge"]}
    account = {"$concat": ["acct-", {"$toString": {"$mod": ["$n", ACCOUNTS]}}]}
    shapes: dict[str, dict[str, Any]] = {
        "jobs": {
            "_id": job, "account_id": account, "cost": {"$toLong": 40}, "is_refunded": False,
            "is_reclaimed": False, "created_at": at, "status": "succeeded",
        },
        "ledger": {
            "_id": row, "job_id": job, "account_id": account, "type": "charge",
            "amount": {"$toLong": -40}, "created_at": at, "recorded_at": at,
        },
        "outbox": {
            "_id": row, "message_key": row, "tenant_id": account, "topic": "ledger",
            "payload": {
                "row_id": row, "job_id": job, "account_id": account, "type": "charge",
                "amount": {"$toLong": -40}, "created_at": at,
            },
            "created_at": at,
        },
        "inbox": {
            "_id": {"$concat": ["$group", "|", row]}, "consumer_group": "$group",
            "message_key": row, "tenant_id": account, "status": "succeeded", "attempts": 0,
            "deliveries": 1, "first_seen_at": at, "last_seen_at": at, "claimed_until": None,
            "not_before": None, "completed_at": at, "last_error": None,
        },
    }  # fmt: skip
    for name, shape in shapes.items():
        for group in (GROUP, COUNTER) if name == "inbox" else (GROUP,):
            for start in range(0, MESSAGES, AT_A_TIME):
                numbers = [start, min(start + AT_A_TIME, MESSAGES)]
                numbered: list[dict[str, Any]] = [
                    {"$documents": [{"group": group, "n": {"$range": numbers}}]},
                    {"$unwind": "$n"},
                    {"$replaceWith": shape},
                    {"$merge": {"into": name, "whenMatched": "fail"}},
                ]
                db.aggregate(numbered)


def deliver_again(db: Database[Any], until: threading.Event, delivered: list[int]) -> None:
    """Hand messages of the last 29 days to the consumers once more, as a broker does."""
    draw = random.Random(5)
    while not until.is_set():
        young = [n for n in (draw.randrange(MESSAGES) for _ in range(100)) if age(n) < YOUNG]
        db[FEED].insert_many([{"key": f"old-{number}:charge"} for number in young])
        delivered.append(len(young))
        time.sleep(0.1)


def slowest_removal_ms(db: Database[Any]) -> int:
    """Return how long the longest removal held the server, as its profiler has it."""
    found = list(db["system.profile"].find({"op": "remove"}).sort("millis", -1).limit(1))
    return int(found[0]["millis"]) if found else -1


def kill_at_random(db: Database[Any], environment: Mapping[str, str]) -> int:
    """Kill one run after another in the middle of its work; return how often that came in time."""
    draw = random.Random(7)
    kills = 0
    while kills < KILLS:
        command = [sys.executable, "-m", "ledgerctl", *TIDY]
        with subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL) as program:
            before = db.outbox.estimated_document_count()
            while program.poll() is None and db.outbox.estimated_document_count() >= before:
                time.sleep(0.005)  # fresh messages may hide the first removal
            time.sleep(draw.random() * MESSAGES / 200_000)
            kills += program.poll() is None
            program.kill()
        if program.returncode == 0:
            break
    return kills


def finish(stores: Stores, run: Runner, patient: Mapping[str, str]) -> None:
    """Let both groups consume what is left."""
    db = stores.mongo.database
    counter = Claims(stores, COUNTER, owner="the last", claim_for=TERM, policy=AT_ONCE)
    words = ("--until-empty", "--claim-for", "2s", "-o", "json")
    deadline = time.monotonic() + FINISH_S
    while True:
        assert run("inbox", "consume", "--group", GROUP, *words, env=patient).code == 0
        fresh = db.outbox.find({"_id": {"$regex": "^job-"}}, {"_id": 1})
        for message in stores.outbox.of_keys([one["_id"] for one in fresh]):
            counter.deliver(message, lambda claim, session: add_to(stores, claim.message, session))
        if not db.inbox.count_documents({"status": {"$ne": "succeeded"}}):
            return
        assert time.monotonic() < deadline
        time.sleep(TERM.total_seconds() / 2)


def test_what_is_removed_under_redelivery_is_neither_missed_nor_handled_twice(
    stores: Stores, run: Runner, environment: Mapping[str, str]
) -> None:
    db = stores.mongo.database
    plant(db)
    build_indexes(stores)
    patience_s = 120 + MESSAGES / 2_000
    rebuild = ("summary", "rebuild", "--days", "62", "--yes", "-o", "json")
    assert run(*rebuild, timeout_s=patience_s).code == 0
    patient = {**environment, "LEDGERCTL_MAX_ATTEMPTS": "99", "LEDGERCTL_RETRY_BASE": "0s"}
    db.create_collection("system.profile", capped=True, size=64 << 20)
    db.command("profile", 1, filter={"op": "remove"})
    began = time.monotonic()
    dry = run("db", "tidy", "--dry-run", "-o", "json", timeout_s=patience_s)
    counted = dry.json()["removed"]
    print(f"\ndry run in {time.monotonic() - began:.1f} s")
    over, delivered = threading.Event(), list[int]()
    storm = threading.Thread(target=deliver_again, args=(db, over, delivered))
    workers = Workers(patient)
    appender = Appender(stores, time.monotonic() + 5)
    storm.start()
    appender.start()
    kills = kill_at_random(db, environment)
    began = time.monotonic()
    left = run(*TIDY, timeout_s=patience_s).json()["removed"]
    print(f"last run in {time.monotonic() - began:.1f} s")
    appender.join()
    over.set()
    storm.join()
    workers.stop()
    finish(stores, run, patient)
    slowest = slowest_removal_ms(db)
    db.command("profile", 0)
    old = sum(age(n) > 30 * 24 * 60 for n in range(MESSAGES))
    print(
        f"{MESSAGES} messages, {kills} kills, {sum(delivered)} delivered again, counted {counted},"
        f" the last run removed {left}, the longest removal held the server {slowest} ms"
    )
    assert abs(counted["outbox"] - old) <= MESSAGES // MINUTES + 1
    fresh = db.ledger.count_documents({"_id": {"$regex": "^job-"}})
    assert abs(MESSAGES + fresh - db.outbox.count_documents({}) - old) <= 60 * (
        MESSAGES // MINUTES + 1
    )
    assert db.inbox.count_documents({}) == 2 * db.outbox.count_documents({})
    effects = sum(one["messages"] for one in db[EFFECTS].find())
    assert effects == fresh > 0  # of what was delivered again nothing was handled again
    found = {(one["account_id"], one["day"]): int(one["net"]) for one in db.usage_daily.find()}
    assert found == net_by_day(stores)
    assert slowest >= 0
    assert slowest <= SLICE_MS or MESSAGES < 1_000_000  # a small run says nothing of that
    assert run("ledger", "audit", "-o", "json").json()["counts"] == {}
    assert run("ledger", "repair", "--dry-run", "-o", "json").json()["repaired"] == 0
    looked = run("inbox", "audit", "-o", "json")
    assert (looked.code, {one["without_message"] for one in looked.json()["lookups"]}) == (0, {0})
