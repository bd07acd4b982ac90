"""What a tired person sees before a bulk change, and what happens to a closed stdout."""

import subprocess
import sys
from typing import Any

import pexpect
import pytest
from pymongo import MongoClient
from redis import Redis

from tests.dead_letters import ROOT, Incident


@pytest.fixture
def incident(
    redis_client: Redis, client: MongoClient[dict[str, Any]], environment: dict[str, str]
) -> Incident:
    incident = Incident(redis_client, client, environment)
    incident.load(8)
    incident.database.jobs.update_one({"_id": "job-000001"}, {"$set": {"status": "succeeded"}})
    return incident


@pytest.mark.parametrize(("answer", "code", "moved"), [("n", 2, 0), ("", 2, 0), ("y", 0, 7)])
def test_the_question_says_how_many_of_what_where_and_as_whom(
    incident: Incident, answer: str, code: int, moved: int
) -> None:
    program: pexpect.spawn[str] = pexpect.spawn(
        sys.executable,
        ["-m", "ledgerctl", "dead", "requeue", "--all"],
        cwd=str(ROOT),
        env=dict(incident.environment) | {"TERM": "xterm"},
        encoding="utf-8",
        timeout=20,
        dimensions=(40, 160),
    )
    program.expect("requeue 7 of 8 selected dead letters")
    program.expect("by verdict: 1 settled, 7 retryable")
    program.expect("due at once")
    program.expect("GPU timed out after #")
    program.expect("profile default, database test_.*, operator tester")
    program.expect("go on")
    assert incident.dead() == incident.original
    program.sendline(answer)
    program.expect(pexpect.EOF)
    program.close()
    assert program.exitstatus == code
    assert incident.redis.llen("jobs:retry") == moved


def test_a_closed_stdout_does_not_stop_the_change(incident: Incident) -> None:
    command = f"{sys.executable} -m ledgerctl dead requeue --all --yes >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=ROOT,
        env=dict(incident.environment),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, incident.redis.llen("jobs:retry")) == (0, 7)
    assert b"moved 7" in done.stderr


def test_a_protected_profile_wants_its_name(incident: Incident, tmp_path: Any) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[profiles.live]\nprotected = true\n")
    words = ("dead", "requeue", "--all", "--yes", "--config", str(file), "--profile", "live")
    program = incident.start(*words)
    program.communicate(timeout=60)
    assert program.returncode == 2
    assert incident.run(*words, "--confirm", "live")[0] == 0
