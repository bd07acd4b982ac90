"""Consumers killed, frozen, stopped and doubled: no message is lost, and none ends twice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_message
from tests.conftest import ROOT, Runner
from tests.servers import wait_until

STEPS = ("before_claim", "after_claim", "in_handler", "before_mark")


@pytest.fixture
def inbox(stores: Stores) -> Stores:
    """An empty inbox with its indexes."""
    build_indexes(stores)
    return stores


def put(stores: Stores, *keys: str) -> None:
    stores.mongo.collection("outbox").insert_many([make_message(key) for key in keys])


def rows(stores: Stores) -> list[Any]:
    return list(stores.mongo.collection("inbox").find().sort("message_key", 1))


def lapse(stores: Stores) -> None:
    """Let every claim lapse, as if its time had passed."""
    stores.mongo.collection("inbox").update_many(
        {"status": "claimed"}, {"$set": {"claimed_until": NOON}}
    )


def started(environment: Mapping[str, str], *words: str, module: str = "ledgerctl") -> Any:
    """A consumer in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def killed_at(step: str, environment: Mapping[str, str], command: str) -> None:
    """Run a consumer of one message that dies at this step."""
    words = ("inbox", "consume", "--group", "mail", "--exec", command, "--until-empty")
    with started(environment, step, *words, module="tests.faults.dying_consumer") as process:
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, step


@pytest.mark.parametrize("step", STEPS)
def test_a_consumer_killed_at_any_step_loses_no_message(
    inbox: Stores, environment: Mapping[str, str], run: Runner, tmp_path: Path, step: str
) -> None:
    put(inbox, "m-1")
    command = "sh -c 'kill -9 $PPID'" if step == "in_handler" else "true"
    killed_at(step, environment, command)
    claimed = [row["status"] for row in rows(inbox)]
    assert claimed == ([] if step == "before_claim" else ["claimed"])
    again = ("inbox", "consume", "--group", "mail", "--exec", "true", "--until-empty", "-o", "json")
    if claimed:
        assert run(*again).json()["handled"] == 0, "the claim still stands"
        lapse(inbox)
    assert run(*again).json()["succeeded"] == 1
    (row,) = rows(inbox)
    assert (row["status"], row["attempts"]) == ("succeeded", len(claimed))
    assert row["completed_at"] is not None


def test_a_message_that_kills_its_consumer_every_time_ends_dead(
    inbox: Stores, environment: Mapping[str, str], run: Runner, tmp_path: Path
) -> None:
    put(inbox, "m-1", "m-2")
    log = tmp_path / "log"
    script = f'echo "$LEDGERCTL_MESSAGE_KEY" >> {log}; test $LEDGERCTL_MESSAGE_KEY = m-2 || kill -9 $PPID'
    words = ("inbox", "consume", "--group", "mail", "--exec", f"sh -c '{script}'", "--until-empty")
    deaths = 0
    for _ in range(10):
        deaths += run(*words).code == -signal.SIGKILL
        lapse(inbox)
    poison, other = rows(inbox)
    assert (poison["status"], poison["attempts"], deaths) == ("dead", 5, 5)
    assert other["status"] == "succeeded"
    assert sorted(log.read_text().split()) == ["m-1"] * 5 + ["m-2"]
    assert run("inbox", "list", "--status", "dead", "-o", "json").json()["total"] == 1


def test_two_consumers_of_one_group_handle_each_message_once(
    inbox: Stores, environment: Mapping[str, str], tmp_path: Path
) -> None:
    put(inbox, *(f"m-{at:03d}" for at in range(60)))
    log = tmp_path / "log"
    command = f"sh -c 'echo $LEDGERCTL_MESSAGE_KEY >> {log}'"
    words = ("inbox", "consume", "--group", "mail", "--exec", command, "--until-empty")
    both = [started(environment, *words) for _ in range(2)]
    for process in both:
        with process:
            process.communicate(timeout=120)
            assert process.returncode == 0
    handled = log.read_text().split()
    assert sorted(handled) == [f"m-{at:03d}" for at in range(60)]
    assert {(row["status"], row["attempts"], row["deliveries"]) for row in rows(inbox)} == {
        ("succeeded", 0, 1)
    }


def test_a_frozen_consumers_late_finish_leaves_the_newer_one_as_it_is(
    inbox: Stores, environment: Mapping[str, str], run: Runner, tmp_path: Path
) -> None:
    put(inbox, "m-1")
    go, at_work = tmp_path / "go", tmp_path / "at-work"
    script = f"touch {at_work}; while ! test -e {go}; do sleep 0.05; done"
    slow = ("inbox", "consume", "--group", "mail", "--exec", f"sh -c '{script}'", "--once")
    with started(environment, *slow, "--claim-for", "2s", "-o", "json") as frozen:
        wait_until(at_work.exists)
        frozen.send_signal(signal.SIGSTOP)
        quick = ("inbox", "consume", "--group", "mail", "--exec", "true", "--once", "-o", "json")
        wait_until(lambda: run(*quick).json()["succeeded"] == 1)
        before = rows(inbox)
        go.touch()
        frozen.send_signal(signal.SIGCONT)
        out, _ = frozen.communicate(timeout=60)
    assert frozen.returncode == 0, out
    assert b'"superseded": 1' in out or b'"superseded":1' in out
    assert rows(inbox) == before
    assert (before[0]["attempts"], before[0]["status"]) == (1, "succeeded")


def test_a_lapsed_claim_that_nobody_took_is_finished_late(
    inbox: Stores, environment: Mapping[str, str], tmp_path: Path
) -> None:
    put(inbox, "m-1")
    go, at_work = tmp_path / "go", tmp_path / "at-work"
    script = f"touch {at_work}; while ! test -e {go}; do sleep 0.05; done"
    words = ("inbox", "consume", "--group", "mail", "--exec", f"sh -c '{script}'", "--once")
    with started(environment, *words) as slow:
        wait_until(at_work.exists)
        lapse(inbox)
        go.touch()
        slow.communicate(timeout=60)
    (row,) = rows(inbox)
    assert (slow.returncode, row["status"], row["attempts"]) == (0, "succeeded", 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_finishes_the_message_in_hand(
    inbox: Stores,
    environment: Mapping[str, str],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    put(inbox, "m-1", "m-2")
    at_work = tmp_path / "at-work"
    words = ("inbox", "consume", "--group", "mail", "--exec", f"sh -c 'touch {at_work}; sleep 1'")
    with started(environment, *words, "-o", "json") as process:
        wait_until(at_work.exists)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert b'"succeeded": 1' in out or b'"succeeded":1' in out
    (row,) = rows(inbox)
    assert (row["message_key"], row["status"]) == ("m-1", "succeeded")


def test_an_idle_consumer_sleeps_and_sees_a_new_message_within_seconds(
    inbox: Stores, environment: Mapping[str, str]
) -> None:
    words = ("inbox", "consume", "--group", "mail", "--exec", "true")
    with started(environment, *words) as process:
        time.sleep(2.5)
        put(inbox, "m-1")
        wait_until(lambda: [row["status"] for row in rows(inbox)] == ["succeeded"], timeout_s=60)
        before_s = cpu_s(process.pid)
        time.sleep(3)
        spent_s = cpu_s(process.pid) - before_s
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert spent_s < 0.5


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
