"""One appender, two consumers, five-fold redelivery and random kills: everything adds up.

LEDGERCTL_TEST_STORM_S sets how long it blows; the full run is 60.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ledgerctl.domain.days import day_of
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.operations import steps
from ledgerctl.operations.claims import Claims
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.usage_daily import GROUP
from ledgerctl.stores.connections import Stores
from tests.conftest import ROOT, Runner
from tests.faults.storm import COUNTER, EFFECTS, FEED, TERM, add_to

STORM_S = float(os.environ.get("LEDGERCTL_TEST_STORM_S", "6"))
FINISH_S = 120
AT_ONCE = RetryPolicy(base=timedelta(0), cap=timedelta(0), max_attempts=99)
REDELIVERIES = 5
ACCOUNTS = 3
SEED = 3344


class Appender(threading.Thread):
    """Charges jobs, refunds some, reclaims some, and hands each message to the feed five times."""

    def __init__(self, stores: Stores, until: float) -> None:
        super().__init__(daemon=True)
        self._stores = stores
        self._until = until
        self._random = random.Random(SEED)
        self.jobs = 0
        self.deliveries = 0

    def run(self) -> None:
        while time.monotonic() < self._until:
            self.jobs += 1
            job = f"job-{self.jobs}"
            account = f"acct-{self.jobs % ACCOUNTS}"
            cost = self._random.randrange(1, 100)
            steps.charge(self._stores, job, account=account, cost=cost, operation_id="storm")
            kinds = ["charge"]
            if self._random.random() < 0.4:
                steps.refund(self._stores, job, operation_id="storm")
                kinds.append("refund")
                if self._random.random() < 0.5:
                    steps.reclaim(self._stores, job, operation_id="storm")
                    kinds.append("reclaim")
            self._feed([f"{job}:{kind}" for kind in kinds])
            time.sleep(0.02)

    def _feed(self, keys: list[str]) -> None:
        deliveries = [{"key": key} for key in keys for _ in range(REDELIVERIES)]
        self._random.shuffle(deliveries)
        self._stores.mongo.database[FEED].insert_many(deliveries)
        self.deliveries += len(deliveries)


class Workers:
    """Two consumers; a killed one is started again."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._processes = [self._start() for _ in range(2)]
        self.kills = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.storm_worker"],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def kill_at_random(self, until: float) -> None:
        chance = random.Random(SEED)
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.8, 2.5))
            at = chance.randrange(2)
            self._end(self._processes[at])
            self._processes[at] = self._start()
            self.kills += 1

    def stop(self) -> None:
        for process in self._processes:
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        assert process.poll() is None, process.communicate()[1].decode()
        process.kill()
        process.communicate()


def finish(stores: Stores, run: Runner, patient: Mapping[str, str]) -> None:
    """Consume what is left, for as long as the killed hold anything: claims, or documents.

    The server lets go of a killed client's transaction after a minute at most; what meets it
    before counts as a failed attempt and comes again.
    """
    deadline = time.monotonic() + FINISH_S
    command = (
        "inbox",
        "consume",
        "--group",
        GROUP,
        "--until-empty",
        "--claim-for",
        "2s",
        "-o",
        "json",
    )
    counter = Claims(stores, COUNTER, owner="the last", claim_for=TERM, policy=AT_ONCE)
    while not finished(stores):
        assert time.monotonic() < deadline, unfinished(stores)
        time.sleep(TERM.total_seconds() / 2)
        result = run(*command, env=patient)
        assert result.code == 0, result.err
        for message in stores.outbox.of_keys(stores.mongo.collection("outbox").distinct("_id")):
            counter.deliver(message, lambda claim, session: add_to(stores, claim.message, session))


def finished(stores: Stores) -> bool:
    """Whether both groups have processed every message."""
    messages = stores.mongo.collection("outbox").count_documents({})
    done = {"status": "succeeded", "completed_at": {"$ne": None}}
    return stores.mongo.collection("inbox").count_documents(done) == 2 * messages


def unfinished(stores: Stores) -> list[Any]:
    """The rows that are not processed."""
    return list(stores.mongo.collection("inbox").find({"status": {"$ne": "succeeded"}}))


def net_by_day(stores: Stores) -> Counter[tuple[str, str]]:
    """The ledger's net usage of each account and day."""
    net: Counter[tuple[str, str]] = Counter()
    for row in stores.mongo.collection("ledger").find():
        net[row["account_id"], day_of(row["created_at"], stores.settings.zone)] -= row["amount"]
    return net


def test_every_summary_equals_the_ledger_and_every_message_succeeded_once(
    stores: Stores, run: Runner, environment: Mapping[str, str]
) -> None:
    build_indexes(stores)
    patient = {**environment, "LEDGERCTL_MAX_ATTEMPTS": "99", "LEDGERCTL_RETRY_BASE": "0s"}
    until = time.monotonic() + STORM_S
    workers, appender = Workers(patient), Appender(stores, until)
    appender.start()
    workers.kill_at_random(until)
    appender.join()
    workers.stop()
    finish(stores, run, patient)

    rows = list(stores.mongo.collection("ledger").find())
    claims = list(stores.mongo.collection("inbox").find())
    summaries = {
        (one["account_id"], one["day"]): int(one["net"])
        for one in stores.mongo.collection("usage_daily").find()
    }
    effects: dict[Any, Any] = {one["_id"]: one for one in stores.mongo.database[EFFECTS].find()}
    taken_over = sum(claim["attempts"] > 0 for claim in claims)
    print(
        f"{STORM_S:g} s: {appender.jobs} jobs, {len(rows)} rows, {appender.deliveries} deliveries,"
        f" {workers.kills} kills, {taken_over} claims taken over, {len(summaries)} summaries"
    )
    assert appender.deliveries == REDELIVERIES * len(rows) > 0
    assert workers.kills > 0
    assert summaries == net_by_day(stores)
    assert len(claims) == 2 * len(rows)
    assert {(one["consumer_group"], one["message_key"]) for one in claims} == {
        (group, row["_id"]) for group in (GROUP, COUNTER) for row in rows
    }
    assert all(one["status"] == "succeeded" and one["completed_at"] for one in claims)
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["account_id"]] += row["amount"]
    assert {account: one["total"] for account, one in effects.items()} == totals
    assert sum(one["messages"] for one in effects.values()) == len(rows)
