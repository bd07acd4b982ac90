"""A failover of Sentinel in the middle of a run: nothing is claimed that the new primary lacks."""

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import MongoClient
from redis import Redis

from tests.dead_letters import DEAD, RETRY, Incident
from tests.servers import wait_until
from tests.topologies.conftest import LONG
from tests.topologies.machines import Machine, Sentinels

LETTERS = 20_000
MOMENTS = 10 if LONG else 1
ALL = [
    (command, fault)
    for command in ("requeue", "release", "restore", "work")
    for fault in ("kill", "failover", "cut")
]
CASES = ALL if LONG else [("requeue", "failover"), ("release", "cut")]
WORDS = {
    "requeue": ["dead", "requeue", "--all", "--yes"],
    "release": ["dead", "release", "--all", "--reason", "x", "--yes"],
    "work": ["queue", "work", "--exec", "true", "--until-empty"],
}

LOOKS_MAX = 30


@pytest.fixture
def incident(
    sentinels: Sentinels, environment: dict[str, str], client: MongoClient[dict[str, Any]]
) -> Incident:
    sentinels.settle()
    at_sentinel = environment | {"LEDGERCTL_REDIS_URL": sentinels.url}
    found = Incident(redis_of(sentinels.primary()), client, at_sentinel)
    found.load(LETTERS)
    sentinels.settle()
    return found


def redis_of(machine: Machine) -> Redis:
    return Redis("127.0.0.1", machine.port, socket_timeout=30)


@contextmanager
def struck(sentinels: Sentinels, fault: str) -> Iterator[None]:
    """The primary fails over, is killed, or is killed after its replicas have lost touch with it."""
    old = sentinels.primary()
    if fault == "failover":
        sentinels.failover()
    elif fault == "cut":
        # The replicas ask a port where nobody listens: what follows reaches the primary alone.
        for one in sentinels.nodes:
            if one is not old:
                one.ask("CONFIG", "SET", "repl-timeout", "3600")
                one.ask("CLIENT", "PAUSE", "1500", "ALL")
        time.sleep(0.05)
        old.kill()
    else:
        old.kill()
    try:
        yield
    finally:
        if fault != "failover":
            old.start()


def drained(incident: Incident, command: str) -> int:
    """Return how many letters the command has moved so far."""
    left = incident.redis.llen(RETRY if command == "work" else DEAD)
    return int(left) if command == "restore" else LETTERS - int(left)


def ended(incident: Incident, program: "subprocess.Popen[bytes]") -> tuple[int, Any]:
    out, err = program.communicate(timeout=120)
    if os.environ.get("LEDGERCTL_TEST_TOLD"):
        print(f"\nexit {program.returncode}: {out[:300].decode()} {err.decode()}")
    return program.returncode, json.loads(out) if out else {}


def ended_soon(incident: Incident, words: list[str]) -> tuple[int, Any]:
    """Run it, again while no server answers at all."""
    code, said = ended(incident, incident.start(*words))
    for _ in range(LOOKS_MAX):
        if code != 6:
            break
        time.sleep(1)
        code, said = ended(incident, incident.start(*words))
    return code, said


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize(("command", "fault"), CASES)
def test_a_failover_is_waited_for_and_what_it_undoes_is_not_claimed(
    incident: Incident, sentinels: Sentinels, command: str, fault: str, moment: int
) -> None:
    words = WORDS.get(command)
    if words is None:
        _, first = incident.run(*WORDS["release"])
        words = ["dead", "restore", first["operation_id"], "--yes"]
    if command == "work":
        incident.run(*WORDS["requeue"], "--limit", "300")
    random.seed(f"{command} {fault} {moment}")
    log = incident.database.operator_log
    begun = log.count_documents({})
    program = incident.start(*words)
    wait_until(lambda: log.count_documents({}) > begun)
    part = LETTERS * random.uniform(0, 0.3)  # no secret
    wait_until(lambda: drained(incident, command) >= part or program.poll() is not None)
    with struck(sentinels, fault):
        in_time = program.poll() is None  # what was said before the fault was true when it was said
        code, said = ended(incident, program)
        # The very next look, at whatever answers under the same address.
        again, rest = ended_soon(incident, words)
    sentinels.settle()
    incident.redis = redis_of(sentinels.primary())
    assert code in {0, 7, 8}
    assert again == 0
    if command == "requeue":
        incident.assert_none_lost(incident.retry())
        assert incident.redis.llen(DEAD) == 0
        assert said["moved"] + rest["moved"] == LETTERS or not in_time
    elif command == "release":
        assert incident.redis.llen(DEAD) == 0
        assert sorted(set(incident.taken())) == sorted(incident.original)
        assert said["moved"] + rest["moved"] == LETTERS or not in_time
    elif command == "restore":
        incident.assert_none_lost([])
        assert rest["restored"] + rest["already_back"] == LETTERS
    else:
        assert incident.redis.llen(RETRY) == 0
    if code == 0 and in_time and command in {"requeue", "release"}:
        assert (said["moved"], rest["moved"]) == (LETTERS, 0)
