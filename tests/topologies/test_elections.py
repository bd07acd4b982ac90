"""An election in the middle of a run costs time and not the run: exit 0, exact counts, a whole log."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import pytest
from redis import Redis

from tests.builders import make_job, make_row
from tests.dead_letters import RETRY, ROOT, Incident
from tests.servers import wait_until
from tests.topologies.conftest import LONG
from tests.topologies.machines import ReplicaSet

LETTERS = 20_000 if LONG else 4_000
JOBS = 3_000 if LONG else 400
ENDS_WITHIN_S = 60.0
MOMENTS = 10 if LONG else 1
LATEST_S = {"rebuild": 0.1}  # a short run is struck soon
FAULTS = ("kill", "step_down", "freeze")
COMMANDS = ("requeue", "release", "reclaim", "repair", "rebuild", "work")
ALL = [(command, fault) for command in COMMANDS for fault in FAULTS]
CASES = ALL if LONG else [("requeue", "kill"), ("reclaim", "step_down"), ("work", "freeze")]


@dataclass
class Ground:
    """One database on the replica set, its lists, and a run of the program against them."""

    replica_set: ReplicaSet
    redis: Redis
    environment: dict[str, str]

    @property
    def documents(self) -> Any:
        return self.replica_set.client[self.environment["LEDGERCTL_DATABASE"]]

    def jobs(self, count: int, **fields: Any) -> None:
        """Refunded jobs with a charge and a refund row each."""
        names = [f"job-{number:06d}" for number in range(count)]
        at = make_job()["created_at"]
        state = {"is_refunded": True, "refunded_at": at, "status": "failed"} | fields
        self.documents.jobs.insert_many([make_job(_id=name, **state) for name in names])
        self.documents.ledger.insert_many(
            [
                row
                for name in names
                for row in (
                    make_row(name),
                    make_row(name, "refund"),
                )
            ]
        )

    def rows(self, kind: str) -> int:
        return int(self.documents.ledger.count_documents({"type": kind}))

    def run(self, *words: str, stdin: bytes = b"") -> "subprocess.Popen[bytes]":
        program = subprocess.Popen(
            [sys.executable, "-m", "ledgerctl", *words, "-o", "json"],
            cwd=ROOT, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert program.stdin is not None
        program.stdin.write(stdin)
        program.stdin.close()
        program.stdin = None
        return program


@pytest.fixture
def ground(
    replica_set: ReplicaSet, redis_client: Redis, redis_url: str, bare_environment: dict[str, str]
) -> Iterator[Ground]:
    database = f"test_{token_hex(6)}"
    replica_set.settle()
    yield Ground(
        replica_set,
        redis_client,
        bare_environment
        | {
            "LEDGERCTL_MONGO_URI": replica_set.uri,
            "LEDGERCTL_REDIS_URL": redis_url,
            "LEDGERCTL_DATABASE": database,
        },
    )
    replica_set.settle()
    replica_set.client.drop_database(database)


@contextmanager
def struck(ground: Ground, fault: str, after_s: float) -> Iterator[None]:
    """The primary meets its fault once the run has begun; later all members are there again."""
    replica_set = ground.replica_set
    primary = replica_set.primary()
    log = ground.documents.operator_log
    wait_until(lambda: log.count_documents({"exit_code": None}) > 0)
    time.sleep(after_s)
    if fault == "step_down":
        replica_set.step_down()
    elif fault == "kill":
        primary.kill()
    else:
        primary.freeze()
        time.sleep(15)
        primary.thaw()
    try:
        yield
    finally:
        if fault == "kill":
            primary.start()


def requeue(ground: Ground) -> tuple[list[str], bytes, Callable[[dict[str, Any]], Any], Any]:
    incident = Incident(ground.redis, ground.replica_set.client, ground.environment)
    incident.load(LETTERS)
    return (
        ["dead", "requeue", "--all", "--yes"],
        b"",
        lambda said: (said["moved"], len(incident.retry()), len(incident.dead())),
        (LETTERS, LETTERS, 0),
    )


def release(ground: Ground) -> tuple[list[str], bytes, Callable[[dict[str, Any]], Any], Any]:
    incident = Incident(ground.redis, ground.replica_set.client, ground.environment)
    incident.load(LETTERS)
    return (
        ["dead", "release", "--all", "--reason", "x", "--yes"],
        b"",
        lambda said: (said["moved"], len(incident.taken()), len(incident.dead())),
        (LETTERS, LETTERS, 0),
    )


def reclaim(ground: Ground) -> tuple[list[str], bytes, Callable[[dict[str, Any]], Any], Any]:
    ground.jobs(JOBS)
    names = "\n".join(f"job-{number:06d}" for number in range(JOBS)).encode()
    return (
        ["job", "reclaim", "--from-file", "-", "--yes"],
        names,
        lambda said: (said["applied"] + said["unchanged"], ground.rows("reclaim")),
        (JOBS, JOBS),
    )


def repair(ground: Ground) -> tuple[list[str], bytes, Callable[[dict[str, Any]], Any], Any]:
    ground.jobs(JOBS)
    ground.documents.ledger.delete_many({"type": "refund"})
    return (
        ["ledger", "repair", "--yes", "--grace", "0s"],
        b"",
        lambda _said: ground.rows("refund"),
        JOBS,
    )


def rebuild(ground: Ground) -> tuple[list[str], bytes, Callable[[dict[str, Any]], Any], Any]:
    ground.jobs(JOBS)
    day = make_row()["created_at"].strftime("%Y-%m-%d")

    def net(_said: dict[str, Any]) -> int:
        return sum(int(one["rows"]) for one in ground.documents.usage_daily.find())

    return ["summary", "rebuild", "--from", day, "--to", day], b"", net, 2 * JOBS


def work(ground: Ground) -> tuple[list[str], bytes, Callable[[dict[str, Any]], Any], Any]:
    count = 400 if LONG else 60
    ground.jobs(count)
    for number in range(count):
        ground.redis.rpush(RETRY, json.dumps({"job_id": f"job-{number:06d}", "attempts": 1}))
    return (
        ["queue", "work", "--exec", "true", "--until-empty"],
        b"",
        lambda said: (said["ran"], ground.rows("reclaim"), ground.redis.llen(RETRY)),
        (count, count, 0),
    )


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize(("command", "fault"), CASES)
def test_an_election_in_the_middle_of_a_run_costs_time_and_not_the_run(
    ground: Ground, command: str, fault: str, moment: int
) -> None:
    init = ground.run("db", "init")
    assert init.wait() == 0
    words, stdin, count, expected = globals()[command](ground)
    random.seed(f"{command} {fault} {moment}")
    started = time.monotonic()
    program = ground.run(*words, stdin=stdin)
    with struck(ground, fault, random.uniform(0, LATEST_S.get(command, 0.8))):  # no secret
        out, err = program.communicate(timeout=90)
    took_s = time.monotonic() - started
    if os.environ.get("LEDGERCTL_TEST_TOLD"):
        print(
            f"\n{command} {fault} {moment}: exit {program.returncode}, {took_s:.1f} s, {err.decode()}"
        )
    assert program.returncode == 0, (out, err)
    assert took_s < ENDS_WITHIN_S
    ground.replica_set.settle()
    assert count(json.loads(out)) == expected
    newest = ground.documents.operator_log.find_one(sort=[("_id", -1)])
    assert newest["exit_code"] == 0
    assert newest["finished_at"] is not None
