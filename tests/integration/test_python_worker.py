"""Run the worker of `help worker` as it is printed; and the seed story delivered three times."""

import json
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from typing import Any

from redis import Redis

from ledgerctl.operations.audit import Audit, Scope
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import make_entry, make_job, make_row
from tests.conftest import ROOT, Run, Runner

RETRY, DEAD = "jobs:retry", "jobs:dead-letter"


def printed_worker() -> str:
    """The Python program in the help."""
    text = (ROOT / "ledgerctl" / "cli" / "help_texts" / "worker.txt").read_text()
    blocks = [
        textwrap.dedent(one)
        for one in re.findall(r"  import json\n.*?(?=\nA job)", text, re.DOTALL)
    ]
    assert len(blocks) == 1
    return str(blocks[0])


def amounts(stores: Stores, job: str) -> list[tuple[str, int]]:
    rows = stores.mongo.collection("ledger").find({"job_id": job}).sort("_id", 1)
    return [(row["type"], int(row["amount"])) for row in rows]


def status(stores: Stores, job: str) -> Any:
    return (stores.mongo.collection("jobs").find_one({"_id": job}) or {})["status"]


def test_the_worker_of_the_help_settles_the_good_and_retries_the_bad(
    stores: Stores, environment: Mapping[str, str], redis_client: Redis
) -> None:
    build_indexes(stores)
    ids = ["good", "late", "bad", "hopeless"]
    stores.mongo.collection("jobs").insert_many([make_job(one) for one in ids])
    stores.mongo.collection("ledger").insert_many([make_row(one) for one in ids])
    redis_client.rpush(RETRY, make_entry("good"), make_entry("bad", poison=True))
    redis_client.rpush(RETRY, make_entry("hopeless", poison=True, attempts=4))
    lines = [line for line in printed_worker().splitlines() if line.strip()]
    assert len(lines) <= 20
    subprocess.run([sys.executable, "-c", printed_worker()], env=dict(environment), check=True)
    assert [status(stores, job) for job in ids] == ["succeeded", "running", "failed", "failed"]
    assert amounts(stores, "good") == [("charge", -40)]
    assert amounts(stores, "bad") == [("charge", -40), ("refund", 40)]
    assert json.loads(redis_client.lrange(RETRY, 0, -1)[0])["attempts"] == 3
    assert json.loads(redis_client.lrange(DEAD, 0, -1)[0])["error"] == "no such model"
    assert stores.operator_log.newest(1)[0][0]["exit_code"] == 0


def deliver(redis: Redis, job: str) -> None:
    """What a broker that delivers at least once may do."""
    redis.rpush(RETRY, *[make_entry(job, attempts=0, not_before=None)] * 3)


def worked(run: Runner, command: str) -> dict[str, Any]:
    """One run of the worker until nothing is due, retries due at once."""
    policy = {
        "LEDGERCTL_RETRY_BASE": "1s",
        "LEDGERCTL_RETRY_MAX": "1s",
        "LEDGERCTL_MAX_ATTEMPTS": "2",
    }
    result: Run = run("queue", "work", "--exec", command, "-o", "json", env=policy)
    assert result.code == 0, result.err
    found: dict[str, Any] = result.json()
    return found


def test_the_story_delivered_three_times_is_paid_as_if_once(
    stores: Stores, run: Runner, redis_client: Redis
) -> None:
    """It fails, is refunded, is retried, recovers late and is reclaimed; a hopeless one dies."""
    build_indexes(stores)
    for job in ("fine", "slow", "hopeless"):
        for _ in range(3):
            assert run("job", "charge", job, "--account", "acct-7", "--cost", "40").code == 0
        deliver(redis_client, job)
    first = worked(run, "sh -c 'echo GPU gave up >&2; test $LEDGERCTL_JOB_ID = fine'")
    assert (first["succeeded"], first["failed"], first["skipped_settled"]) == (1, 6, 2)
    assert [amounts(stores, job)[1:] for job in ("fine", "slow", "hopeless")] == [
        [],
        [("refund", 40)],
        [("refund", 40)],
    ]
    time.sleep(1.5)
    second = worked(run, "sh -c 'echo no weights >&2; test $LEDGERCTL_JOB_ID != hopeless'")
    assert (second["succeeded"], second["failed"], second["dead_lettered"]) == (1, 3, 3)
    assert second["skipped_settled"] == 2
    assert amounts(stores, "fine") == [("charge", -40)]
    assert amounts(stores, "slow") == [("charge", -40), ("reclaim", -40), ("refund", 40)]
    assert amounts(stores, "hopeless") == [("charge", -40), ("refund", 40)]
    assert run("balance", "show", "acct-7", "-o", "json").json()["balance"] == -80
    assert redis_client.llen(RETRY) == 0
    assert not list(Audit(stores, Scope()).findings())
    release = ("dead", "release", "hopeless", "--reason", "model withdrawn", "--yes")
    assert run(*release, "-o", "json").json()["moved"] == 3
    assert redis_client.llen(DEAD) == 0
