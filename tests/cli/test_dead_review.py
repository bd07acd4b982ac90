"""`dead review` through a real pseudo-terminal."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pexpect
import pytest
from pymongo import MongoClient
from redis import Redis

from ledgerctl.cli.dead_review import Sitting
from ledgerctl.cli.session import Session
from ledgerctl.domain.dead import ARCHIVED_BYTES_MAX, RequeuePolicy
from ledgerctl.operations.dead import look
from ledgerctl.operations.dead_review import Review
from ledgerctl.stores.connections import Stores
from tests.dead_letters import DEAD, ROOT, Incident, unchanged


@pytest.fixture
def incident(
    redis_client: Redis, client: MongoClient[dict[str, Any]], environment: dict[str, str]
) -> Incident:
    incident = Incident(redis_client, client, environment)
    incident.load(4)
    return incident


@contextmanager
def review(incident: Incident, *words: str) -> "Iterator[pexpect.spawn[str]]":
    program = pexpect.spawn(
        sys.executable,
        ["-m", "ledgerctl", "dead", "review", *words],
        cwd=str(ROOT),
        env=dict(incident.environment) | {"TERM": "xterm"},
        encoding="utf-8",
        timeout=20,
        dimensions=(60, 200),
    )
    try:
        yield program
    finally:
        program.close(force=True)


def ended(program: "pexpect.spawn[str]") -> tuple[int | None, Any]:
    program.expect(pexpect.EOF)
    text = program.before or ""
    program.close()
    start = text.rfind("{\r\n")  # the document comes after all the pages
    return program.exitstatus, json.loads(text[start:]) if start >= 0 else None


def test_a_letter_that_the_archive_cannot_hold_is_not_taken(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = b'{"job_id":"job-1","note":"%s"}' % (b"x" * ARCHIVED_BYTES_MAX)
    stores.queues.client.rpush(DEAD, raw)
    (letter,) = look(stores)
    review = Review(stores, "operation-1", RequeuePolicy(), datetime.now(UTC))
    sitting = Sitting(cast(Session, None), review, [letter])
    for key in "Rl":
        assert not sitting.do(key)
        assert "which the archive cannot hold" in capsys.readouterr().err
    assert stores.queues.length(DEAD) == 1


def test_each_key_does_what_it_says(incident: Incident) -> None:
    first, second, third, fourth = incident.original
    with review(incident, "--all", "-o", "json") as program:
        program.expect("letter 1 of 4")
        program.expect("job-000000")
        program.expect("quit")
        program.send("r")
        program.expect("requeued")
        program.expect("letter 2 of 4")
        program.expect("quit")
        assert [unchanged(raw) for raw in incident.retry()] == [unchanged(first)]
        program.send("l")
        program.expect("released")
        program.expect("letter 3 of 4")
        assert incident.dead() == [third, fourth]
        program.send("s")
        program.expect("letter 4 of 4")
        program.send("b")
        program.expect("letter 3 of 4")
        program.send("u")
        program.expect("put back")
        program.expect("letter 2 of 4")
        assert incident.dead() == [third, fourth, second]
        program.send("u")
        program.expect("put back")
        program.expect("letter 1 of 4")
        assert (incident.dead(), incident.retry()) == ([third, fourth, second, first], [])
        program.send("u")
        program.expect("nothing to undo")
        program.send("r")
        program.expect("letter 2 of 4")
        program.send("q")
        code, document = ended(program)
    assert code == 0
    assert (document["requeued"], document["released"]) == (1, 0)
    assert incident.dead() == [third, fourth, second]
    log = incident.database.operator_log.find_one({"_id": document["operation_id"]})
    assert (log["command"], log["exit_code"]) == ("dead review", 0)
    code, restored = incident.run("dead", "restore", document["operation_id"], "--yes")
    assert (code, restored["restored"]) == (0, 1)
    assert sorted(incident.dead()) == sorted(incident.original)


def test_enter_after_a_key_and_the_end_of_the_letters(incident: Incident) -> None:
    with review(incident, "--limit", "2", "-o", "json") as program:
        program.expect("letter 1 of 2")
        program.sendline("l")
        program.expect("letter 2 of 2")
        program.sendline("l")
        code, document = ended(program)
    assert (code, document["released"]) == (0, 2)
    assert incident.dead() == incident.original[2:]


def test_a_letter_that_is_not_retryable_wants_a_capital_r(incident: Incident) -> None:
    incident.database.jobs.update_one({"_id": "job-000000"}, {"$set": {"status": "succeeded"}})
    incident.replace(1, b"\xff no json \x1b[31m")
    with review(incident, "--all") as program:
        program.expect("letter 1 of 4")
        program.send("r")
        program.expect("it is settled; R")
        program.send("R")
        program.expect("requeued")
        program.expect("letter 2 of 4")
        program.send("R")
        program.expect("cannot be read")
        program.send("q")
        assert "\x1b[31m" not in (program.read() or "")
    assert len(incident.dead()) == 3


def test_interrupting_it_keeps_what_was_decided(incident: Incident) -> None:
    with review(incident, "--all") as program:
        program.expect("letter 1 of 4")
        program.expect("quit")
        program.send("l")
        program.expect("letter 2 of 4")
        program.expect("quit")
        program.sendintr()
        program.expect(pexpect.EOF)
        program.close()
        assert program.exitstatus == 130
    assert incident.dead() == incident.original[1:]


def test_without_a_terminal_it_is_refused(incident: Incident) -> None:
    program = incident.start("dead", "review", "--all")
    assert program.communicate(timeout=60)[0] == b""
    assert program.returncode == 2
    assert incident.dead() == incident.original
