"""Guided requeue beside simulated workers that know nothing of this program."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from redis import Redis

from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_job, make_letter, make_row
from tests.conftest import Client, Run, Runner
from tests.dead_letters import DEAD

RETRY = "jobs:retry"
LETTERS = int(os.environ.get("LEDGERCTL_TEST_GUIDED", "400"))
KILLS = int(os.environ.get("LEDGERCTL_TEST_KILLS", "3"))
IN_FLIGHT = 40 if LETTERS < 8_000 else 200
PATIENCE_S = 120 + LETTERS / 10  # a step takes about a second, whatever its size


class Workers(threading.Thread):
    """Take entries from retry as a foreign worker does: fail the poisoned, settle the others."""

    def __init__(self, redis: Redis, db: Any, *, down: bool = False, pause_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.redis, self.db, self.down, self.pause_s = redis, db, down, pause_s
        self.stop = threading.Event()
        self.fates: dict[str, str] = {}
        self.taken: Counter[str] = Counter()

    def __enter__(self) -> "Workers":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join()

    def run(self) -> None:
        while not self.stop.is_set():
            raw = self.redis.lpop(RETRY)
            if raw is None:
                time.sleep(0.01)
                continue
            self.handle(json.loads(str(raw, "utf-8") if isinstance(raw, bytes) else "null"))
            time.sleep(self.pause_s)

    def handle(self, payload: dict[str, Any]) -> None:
        job = payload["job_id"]
        self.taken[job] += 1
        if self.down or payload.get("poison"):
            payload |= {"attempts": 5, "failed_at": datetime.now(UTC).isoformat(), "error": "again"}
            self.redis.rpush(DEAD, json.dumps(payload))
            self.fates[job] = "died"
            return
        update = {"$set": {"is_reclaimed": True, "reclaimed_at": NOON}}
        self.db.jobs.update_one({"_id": job, "is_refunded": True}, update)
        self.fates[job] = "succeeded"


@pytest.fixture
def outage(stores: Stores, client: Client, database: str, redis_client: Redis) -> list[bytes]:
    """Refunded jobs, each a dead letter; 3 % are poison of a cause of their own."""
    build_indexes(stores)
    db = client[database]
    names = [f"job-{number:05d}" for number in range(LETTERS)]
    refunded = {"is_refunded": True, "refunded_at": NOON, "status": "failed"}
    db.jobs.insert_many([make_job(name, **refunded) for name in names])
    db.ledger.insert_many([make_row(one, kind) for one in names for kind in ("charge", "refund")])
    letters = [
        make_letter(name, error="no such model", poison=True)
        if number % 33 == 32
        else make_letter(name, error="upstream down")
        for number, name in enumerate(names)
    ]
    redis_client.rpush(DEAD, *letters)
    return letters


def requeue(run: Runner, *words: str) -> Run:
    return run("dead", "requeue", *words, "--yes", "-o", "json", timeout_s=PATIENCE_S)


def whereabouts(redis: Redis) -> Counter[str]:
    lists = [redis.lrange(key, 0, -1) for key in (DEAD, RETRY)]
    return Counter(json.loads(raw)["job_id"] for found in lists for raw in found)


def test_an_outage_that_lasts_costs_one_step_and_leaves_the_rest_as_it_was(
    run: Runner, outage: list[bytes], client: Client, database: str, redis_client: Redis
) -> None:
    with Workers(redis_client, client[database], down=True):
        done = requeue(run, "--all", "--ramp", "20,100,500", "--wait", "30s")
    document = done.json()
    assert (done.code, document["stopped_by"], document["error"]) == (5, "failures", None)
    assert (document["moved"], document["not_tried"]) == (20, LETTERS - 20)
    assert redis_client.lrange(DEAD, 0, LETTERS - 21) == outage[20:]
    (step,) = document["steps"]
    assert (step["moved"], step["died"] + step["failing"]) == (20, 20)
    logged = client[database].operator_log.find_one({"_id": document["operation_id"]}) or {}
    assert (logged["exit_code"], logged["steps"][0]["moved"]) == (5, 20)


def test_poison_is_named_by_its_group_and_all_others_succeed(
    run: Runner, outage: list[bytes], client: Client, database: str, redis_client: Redis
) -> None:
    with Workers(redis_client, client[database]) as workers:
        done = requeue(run, "--all", "--ramp", "33,99,330", "--wait", "60s", "--stop-over", "5%")
        assert (done.code, done.json()["stopped_by"]) == (0, None), done.out
        outcome = run(
            "log", "outcome", done.json()["operation_id"], "--limit", "0", "-o", "json"
        ).json()
    assert {one["job_id"]: one["fate"] for one in outcome["items"]} == workers.fates
    poison = LETTERS // 33
    assert outcome["fates"]["died"] == poison
    assert outcome["fates"]["succeeded"] == LETTERS - poison
    groups = {one["error"]: one["fates"] for one in outcome["by_group"]}
    assert groups["no such model"]["died"] == poison
    assert groups["upstream down"]["succeeded"] == LETTERS - poison
    died = run("log", "outcome", done.json()["operation_id"], "--fate", "died", "-o", "json").json()
    assert (died["total"], died["fates"]) == (poison, outcome["fates"])


def test_never_more_letters_than_allowed_are_without_a_fate(
    run: Runner, outage: list[bytes], client: Client, database: str, redis_client: Redis
) -> None:
    seen, ended = [], threading.Event()

    def sample() -> None:
        while not ended.wait(0.1):
            alive = whereabouts(redis_client)
            open_jobs = client[database].jobs.count_documents({"is_reclaimed": False})
            dead = redis_client.llen(DEAD)
            seen.append(min(open_jobs - dead, sum(alive.values())))

    sampler = threading.Thread(target=sample)
    sampler.start()
    with Workers(redis_client, client[database], pause_s=0.001):
        done = requeue(
            run,
            "--error",
            "upstream",
            "--ramp",
            "200",
            "--in-flight",
            str(IN_FLIGHT),
            "--wait",
            "60s",
        )
    ended.set()
    sampler.join()
    assert done.code == 0, done.out
    assert max(seen) <= IN_FLIGHT


def test_letters_that_nobody_takes_stop_it_at_the_deadline_without_an_outcome(
    run: Runner, outage: list[bytes], redis_client: Redis
) -> None:
    done = requeue(run, "--all", "--ramp", "10", "--wait", "2s")
    document = done.json()
    assert (done.code, document["stopped_by"], document["moved"]) == (5, "no_outcome", 10)
    assert document["steps"][0]["waiting"] == 10


def test_a_success_that_leaves_no_trace_is_left_and_not_succeeded(
    run: Runner, client: Client, database: str, redis_client: Redis
) -> None:
    client[database].jobs.insert_one(make_job("job-1"))
    client[database].ledger.insert_one(make_row("job-1"))
    redis_client.rpush(DEAD, make_letter("job-1"))
    with Workers(redis_client, client[database]):  # reclaims nothing: it was never refunded
        document = requeue(run, "--all", "--ramp", "1", "--wait", "3s").json()
    assert (document["stopped_by"], document["steps"][0]["left"]) == ("no_outcome", 1)


@pytest.mark.parametrize(
    "words",
    [("--wait", "1m"), ("--stop-over", "5%"), ("--in-flight", "5"), ("--ramp", "0"), ("--ramp", "x"),
     ("--ramp", "5", "--stop-over", "many")],
    ids=" ".join,
)  # fmt: skip
def test_options_that_make_no_sense_are_refused_before_anything_moves(
    run: Runner, outage: list[bytes], redis_client: Redis, words: tuple[str, ...]
) -> None:
    assert requeue(run, "--all", *words).code == 2
    assert redis_client.lrange(DEAD, 0, -1) == outage


@pytest.fixture
def workers(client: Client, database: str, redis_client: Redis) -> Iterator[Workers]:
    with Workers(redis_client, client[database]) as found:
        yield found


def test_killed_runs_lose_and_double_nothing_and_the_same_command_ends_it(
    run: Runner,
    environment: Mapping[str, str],
    outage: list[bytes],
    workers: Workers,
    redis_client: Redis,
) -> None:
    words = ("dead", "requeue", "--error", "upstream", "--ramp", "20,60", "--wait", "20s", "--yes")
    draw = random.Random(20)
    for _ in range(KILLS):
        command = [sys.executable, "-m", "ledgerctl", *words, "-o", "json"]
        with subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL) as program:
            time.sleep(0.5 + 2 * draw.random())
            program.kill()
    last = run(*words, "-o", "json", timeout_s=PATIENCE_S)
    for _ in range(3):
        if last.code == 9:  # a killed run's lease lasts ten seconds
            time.sleep(10)
            last = run(*words, "-o", "json", timeout_s=PATIENCE_S)
    assert last.code == 0, last.out + last.err
    assert max(workers.taken.values()) == 1
    left = whereabouts(redis_client)
    assert max(left.values()) == 1
    assert set(left) | set(workers.fates) == {f"job-{number:05d}" for number in range(LETTERS)}


def test_two_guided_runs_and_a_foreign_requeue_between_them_are_each_right(
    run: Runner, outage: list[bytes], workers: Workers, redis_client: Redis
) -> None:
    results: dict[str, Run] = {}

    def guided(error: str) -> None:
        results[error] = requeue(
            run, "--error", error, "--ramp", "10,50,200", "--wait", "60s", "--stop-over", "100%"
        )

    threads = [threading.Thread(target=guided, args=(one,)) for one in ("upstream", "model")]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    last = f"job-{LETTERS - 2:05d}"
    foreign = requeue(run, last)
    for thread in threads:
        thread.join()
    assert {name: one.code for name, one in results.items()} == {"upstream": 0, "model": 0}
    assert foreign.code == 0
    poison = LETTERS // 33
    moved = {name: one.json()["moved"] for name, one in results.items()}
    assert moved["model"] == poison
    assert moved["upstream"] + foreign.json()["moved"] == LETTERS - poison
    assert max(workers.taken.values()) == 1
