"""Refunds and reclaims under lost replies, killed processes and held jobs: one row, or none."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ledgerctl.config import load
from ledgerctl.operations import steps
from ledgerctl.operations.audit import moment
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import make_job, make_row
from tests.conftest import Client, Runner
from tests.proxy import Fault, Plan, proxied
from tests.servers import SessionServers

KILLS = int(os.environ.get("LEDGERCTL_TEST_KILLS", "4"))  # the full run: 30
EXIT_UNKNOWN = 7


def seed(stores: Stores, *ids: str) -> None:
    """Charged jobs with their rows."""
    build_indexes(stores)
    stores.mongo.collection("jobs").insert_many([make_job(one) for one in ids])
    stores.mongo.collection("ledger").insert_many([make_row(one) for one in ids])


def refund_rows(stores: Stores, job: str) -> int:
    return stores.mongo.collection("ledger").count_documents({"job_id": job, "type": "refund"})


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.CUT])
@pytest.mark.parametrize("command", ["update", "insert", "commitTransaction"])
def test_a_lost_reply_on_a_replica_set_is_resolved_and_never_a_second_row(
    stores: Stores, run: Runner, environment: Mapping[str, str], command: str, fault: Fault
) -> None:
    seed(stores, "job-1")
    skip = 1 if command == "insert" else 0  # the operator log's own insert comes first
    plan = Plan(command, fault, skip=skip)
    with proxied(environment["LEDGERCTL_MONGO_URI"], plan) as proxy:
        result = run("job", "refund", "job-1", env={"LEDGERCTL_MONGO_URI": proxy.uri})
    assert plan.landed == 1
    assert result.code in {0, EXIT_UNKNOWN}, result.err
    assert run("job", "refund", "job-1").code == 0
    assert refund_rows(stores, "job-1") == 1


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.CUT])
@pytest.mark.parametrize(("command", "skip"), [("update", 0), ("insert", 1), ("update", 1)])
def test_a_lost_reply_on_a_standalone_is_resolved_and_never_a_second_row(
    standalone_stores: Stores,
    run_standalone: Runner,
    standalone_environment: Mapping[str, str],
    command: str,
    skip: int,
    fault: Fault,
) -> None:
    seed(standalone_stores, "job-1")
    plan = Plan(command, fault, skip=skip)
    with proxied(standalone_environment["LEDGERCTL_MONGO_URI"], plan) as proxy:
        result = run_standalone("job", "refund", "job-1", env={"LEDGERCTL_MONGO_URI": proxy.uri})
    assert plan.landed == 1
    assert result.code in {0, EXIT_UNKNOWN}, result.err
    assert run_standalone("job", "refund", "job-1").code == 0
    assert refund_rows(standalone_stores, "job-1") == 1
    assert standalone_stores.outbox.has("job-1:refund")


def test_a_job_held_by_a_killed_clients_transaction_is_exit_9_in_about_five_seconds(
    stores: Stores, client: Client, database: str, run: Runner
) -> None:
    seed(stores, "job-1")
    with client.start_session() as session:
        session.start_transaction()
        client[database].jobs.update_one({"_id": "job-1"}, {"$set": {"x": 1}}, session=session)
        began = time.monotonic()
        result = run("job", "refund", "job-1")
        took = time.monotonic() - began
        session.abort_transaction()
    assert result.code == 9
    assert "another operation holds it" in result.err
    assert 4 < took < 60
    assert refund_rows(stores, "job-1") == 0
    assert run("job", "refund", "job-1").code == 0
    assert refund_rows(stores, "job-1") == 1


def test_a_held_job_beside_one_that_does_not_exist_may_be_tried_again(
    stores: Stores, client: Client, database: str, run: Runner
) -> None:
    seed(stores, "job-1")
    with client.start_session() as session:
        session.start_transaction()
        client[database].jobs.update_one({"_id": "job-1"}, {"$set": {"x": 1}}, session=session)
        result = run("job", "refund", "job-1", "job-typo", "--yes", "-o", "json")
        session.abort_transaction()
    assert result.code == 9
    assert (result.json()["not_found"], result.json()["error"]["code"]) == (1, "job_held")


def test_twenty_processes_refund_one_job_once(stores: Stores, environment: dict[str, str]) -> None:
    seed(stores, "job-1")
    command = [sys.executable, "-m", "ledgerctl", "job", "refund", "job-1", "-o", "plain"]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(20)
    ]
    outputs = [process.communicate(timeout=120)[0].decode() for process in running]
    assert [process.returncode for process in running] == [0] * 20
    assert sum("\trefund\ttrue\t" in output for output in outputs) == 1
    assert refund_rows(stores, "job-1") == 1


def kill_in_the_middle(
    stores: Stores, environment: dict[str, str], step: str, jobs: list[str], folder: Path
) -> bool:
    """Kill a run of many steps at a random moment after its first write; True if it landed."""
    ids = folder / "ids.txt"
    ids.write_text("\n".join(jobs))
    process = subprocess.Popen(
        [sys.executable, "-m", "ledgerctl", "job", step, "--from-file", str(ids), "--yes"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    flag = {"refund": "is_refunded", "reclaim": "is_reclaimed"}[step]
    wanted: dict[str, Any] = {"_id": {"$in": jobs}, flag: True}
    while process.poll() is None and not stores.mongo.collection("jobs").find_one(wanted):
        time.sleep(0.002)
    time.sleep(random.random() * 0.05)
    landed = process.poll() is None
    os.kill(process.pid, signal.SIGKILL) if landed else None
    process.wait()
    return landed


def half_done(stores: Stores, step: str, jobs: list[str]) -> list[str]:
    """The jobs whose flag is set and whose row is missing."""
    flag = {"refund": "is_refunded", "reclaim": "is_reclaimed"}[step]
    ledger, documents = (stores.mongo.collection(name) for name in ("ledger", "jobs"))
    with moment(stores) as session:  # what the killed client had sent may be done any time
        written: dict[str, Any] = {"job_id": {"$in": jobs}, "type": step}
        rows = {one["job_id"] for one in ledger.find(written, session=session)}
        marked: dict[str, Any] = {"_id": {"$in": jobs}, flag: True}
        flagged = {one["_id"] for one in documents.find(marked, session=session)}
    assert rows <= flagged, "a row without its flag"
    return sorted(flagged - rows)


@pytest.mark.parametrize("kind", ["replica set", "standalone"])
def test_kill_9_leaves_nothing_that_the_next_delivery_does_not_finish_once(
    servers: SessionServers, bare_environment: dict[str, str], kind: str, tmp_path: Path
) -> None:
    # A killed client's transaction holds its job until the server's limit, a minute by default.
    server = servers.mongod("transactionLifetimeLimitSeconds=2", replica_set=kind == "replica set")
    environment = bare_environment | {"LEDGERCTL_MONGO_URI": server.uri}
    with Stores(load(environment=environment)) as stores:
        kill_and_finish(stores, environment, kind, tmp_path)
    servers.stop(server)


def again(environment: dict[str, str], step: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The next delivery of every id."""
    words = ["job", step, "--from-file", str(folder / "ids.txt"), "--yes"]
    return subprocess.run(
        [sys.executable, "-m", "ledgerctl", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def kill_and_finish(stores: Stores, environment: dict[str, str], kind: str, tmp_path: Path) -> None:
    """Kill, count what is half done, deliver again, count again."""
    landed = left = 0
    count = 600 if kind == "replica set" else 200  # there sixteen at a time are written
    for number in range(KILLS):
        jobs = [f"{number}-{at}" for at in range(count)]
        seed(stores, *jobs)
        for step in ("refund", "reclaim"):
            landed += kill_in_the_middle(stores, environment, step, jobs, tmp_path)
            unfinished = half_done(stores, step, jobs)
            left += len(unfinished)
            if kind == "replica set":
                assert unfinished == []
            finish = again(environment, step, tmp_path)
            assert finish.returncode == 0, finish.stderr
            assert half_done(stores, step, jobs) == []
        rows = list(stores.mongo.collection("ledger").find({"job_id": {"$in": jobs}}))
        assert len(rows) == len({row["_id"] for row in rows}) == 3 * len(jobs)
        assert sum(row["amount"] for row in rows) == -40 * len(jobs)
        missing = [row["_id"] for row in rows if row["type"] != "charge"]
        messages = stores.mongo.collection("outbox").count_documents({"_id": {"$in": missing}})
        assert messages == len(missing)
    print(f"{kind}: {landed} kills landed, {left} steps left half done and finished once")
    assert landed >= KILLS
    assert steps.refund(stores, "0-0", operation_id="late").applied is False
