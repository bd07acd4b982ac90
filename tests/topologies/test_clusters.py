"""On a cluster any node is address enough, and a slot may move in the middle of a run."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pymongo import MongoClient
from redis import Redis
from redis.crc import key_slot

from tests.conftest import Runner
from tests.dead_letters import letter
from tests.servers import wait_until
from tests.topologies.conftest import LONG
from tests.topologies.machines import Cluster, Machine, settle

LETTERS = 20_000 if LONG else 3_000
RUNS = 25 if LONG else 1
KEYS = {"retry": "{jobs}:retry", "dead_letter": "{jobs}:dead", "processing": "{jobs}:processing"}
SLOT = key_slot(b"jobs")
NAMES = [
    "dead list", "dead stats", "queue stats", "dead requeue --all --yes", "queue work --exec true --once",
]  # fmt: skip


@pytest.fixture
def tagged(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of a run whose lists share a slot."""
    settings = tmp_path / "keys.toml"
    settings.write_text("[keys]\n" + "".join(f'{name} = "{key}"\n' for name, key in KEYS.items()))
    return {"LEDGERCTL_CONFIG": str(settings)}


def lists(cluster: Cluster) -> Redis:
    return Redis("127.0.0.1", cluster.owner(SLOT).port, socket_timeout=30)


def fill(cluster: Cluster, client: MongoClient[dict[str, Any]], database: str, count: int) -> None:
    """Letters on the owner of the slot, and their refunded jobs."""
    redis = lists(cluster)
    redis.delete(*redis.keys("*") or ["none"])
    for start in range(0, count, 1000):
        redis.rpush(KEYS["dead_letter"], *map(letter, range(start, min(count, start + 1000))))
    client[database].jobs.insert_many(
        [
            {"_id": f"job-{n:06d}", "account_id": "a", "cost": 40, "is_refunded": True, "is_reclaimed": False}
            for n in range(count)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("words", NAMES)
def test_lists_that_share_no_slot_are_refused_from_every_node(
    cluster: Cluster, run: Runner, words: str
) -> None:
    for at in range(len(cluster.nodes)) if LONG else (0, 5):
        refused = run(*words.split(), env={"LEDGERCTL_REDIS_URL": cluster.url(at)})
        assert refused.code == 3, refused.err
        assert "share no slot" in refused.err
        assert "hash tag" in refused.err


def test_any_node_is_address_enough(
    cluster: Cluster, client: MongoClient[dict[str, Any]], database: str, run: Runner,
    tagged: dict[str, str],
) -> None:  # fmt: skip
    fill(cluster, client, database, 60)
    lists(cluster).rpush(KEYS["processing"] + ":w1", letter(99))
    for at in range(len(cluster.nodes)):
        env = tagged | {"LEDGERCTL_REDIS_URL": cluster.url(at)}
        stats = run("queue", "stats", "-o", "json", env=env).json()
        assert (stats["processing"]["depth"], stats["retry"]["depth"]) == (1, at * 10)
        moved = run("dead", "requeue", "--all", "--limit", "10", "--yes", "-o", "json", env=env)
        assert (moved.code, moved.json()["moved"]) == (0, 10)
    assert lists(cluster).llen(KEYS["retry"]) == 60


def by_key(cluster: Cluster, to: Machine) -> None:
    cluster.migrate(SLOT, to, pause_s=0.3)


def at_once(cluster: Cluster, to: Machine) -> None:
    cluster.migrate_at_once(SLOT, to)


def owner_killed(cluster: Cluster, _to: Machine) -> None:
    old = cluster.owner(SLOT)
    old.kill()
    settle(lambda: cluster.owner(SLOT) is not old)
    old.start()
    settle(lambda: old.redis.info("replication").get("master_link_status") == "up")


MOVES = {by_key: RUNS, at_once: RUNS, owner_killed: 10 if LONG else 1}


@pytest.mark.parametrize(
    ("move", "number"), [(move, number) for move, runs in MOVES.items() for number in range(runs)]
)
def test_a_slot_that_moves_in_the_middle_of_a_run_costs_no_letter(
    cluster: Cluster, client: MongoClient[dict[str, Any]], database: str, run: Runner,
    tagged: dict[str, str], move: Callable[[Cluster, Machine], None], number: int,
) -> None:  # fmt: skip
    fill(cluster, client, database, LETTERS)
    env = tagged | {"LEDGERCTL_REDIS_URL": cluster.url(number % 6)}
    words = ("dead", "requeue", "--all", "--yes", "-o", "json")
    owner = cluster.owner(SLOT)
    other = next(one for one in cluster.masters() if one is not owner)
    log = client[database].operator_log

    def strike() -> None:
        wait_until(lambda: log.count_documents({}) > 0)
        move(cluster, other)

    mover = threading.Thread(target=strike)
    mover.start()
    first = run(*words, env=env)
    mover.join()
    again = run(*words, env=env)
    if os.environ.get("LEDGERCTL_TEST_TOLD"):
        print(f"\n{move.__name__} {number}: exit {first.code}, then {again.code}; {first.err}")
    assert first.code in {0, 6, 8}, first.err
    assert again.code == 0, again.err
    redis = lists(cluster)
    assert redis.llen(KEYS["dead_letter"]) == 0
    waiting = redis.lrange(KEYS["retry"], 0, -1)
    ids = {cast(bytes, one).split(b'"')[3] for one in waiting}
    assert len(waiting) == len(ids) == LETTERS
