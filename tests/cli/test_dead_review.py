"""`dead review` through a real pseudo-terminal."""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pexpect
import pytest
from pymongo import MongoClient
from redis import Redis

from ledgerctl.cli.dead_review import COUNTED, KNOWN, Sitting, keys_of
from ledgerctl.cli.session import Session
from ledgerctl.domain.dead import ARCHIVED_BYTES_MAX, RequeuePolicy, Selection
from ledgerctl.operations.dead import listed
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
        dimensions=(24, 80),
    )
    try:
        yield program
    finally:
        program.close(force=True)


def ended(program: "pexpect.spawn[str]") -> tuple[int | None, Any]:
    program.expect(pexpect.EOF)
    text = program.before or ""
    program.close()
    start = text.rfind("{\r\n")  # the document comes after the screen is given back
    return program.exitstatus, json.loads(text[start:]) if start >= 0 else None


class Screen:
    """The terminal as the person sees it: the page that was drawn last."""

    def __init__(self, program: "pexpect.spawn[str]") -> None:
        self.program = program

    def page(self) -> str:
        """The next page that is drawn, and that every page fits and keeps its head in sight."""
        self.program.expect(r"(?s)\x1b\[H(.*?)\x1b\[J")
        lines = SEQUENCES.sub("", str(self.program.match.group(1))).split("\r\n")
        assert len(lines) <= 24
        assert max(map(len, lines)) < 80
        assert re.match(r"letter \d+ of \d+", lines[0])
        assert lines[1].startswith("verdict  ")
        assert lines[2].startswith("job      ")
        assert lines[4].startswith("error    ")
        return "\n".join(lines)

    def press(self, key: str) -> str:
        self.program.send(key)
        return self.page()


SEQUENCES = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")
FUNCTION_KEYS = {
    **{f"F{n} of xterm": f"\x1bO{'PQRS'[n - 1]}" for n in (1, 2, 3, 4)},
    **{
        f"F{n}": f"\x1b[{code}~"
        for n, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)
    },
    **{f"F{n} of rxvt": f"\x1b[{10 + n}~" for n in (1, 2, 3, 4)},
    **{f"F{n} of the console": f"\x1b[[{'ABCDE'[n - 1]}" for n in (1, 2, 3, 4, 5)},
    **{f"Shift-F{n}": f"\x1b[1;2{'PQRS'[n - 1]}" for n in (1, 2, 3, 4)},
}
OTHER_KEYS = {
    **{f"arrow {one}": f"\x1b[{one}" for one in "ABCD"},
    **{f"application arrow {one}": f"\x1bO{one}" for one in "ABCD"},
    **{f"Ctrl-arrow {one}": f"\x1b[1;5{one}" for one in "ABCD"},
    **{f"Alt-arrow {one}": f"\x1b\x1b[{one}" for one in "ABCD"},
    **{f"Alt-{one}": f"\x1b{one}" for one in "rRlsbumqyxO["},
    "Insert": "\x1b[2~", "Delete": "\x1b[3~", "PageDown": "\x1b[6~", "Home": "\x1b[H", "Escape": "\x1b",
    "é": "é", "a tabulator": "\t",
    "a bracketed paste": "\x1b[200~rRylsbuq\nqrl\x1b[201~",
    "a paste that no mark surrounds": "please release all of these",
}  # fmt: skip
NO_KEYS = FUNCTION_KEYS | OTHER_KEYS


@pytest.mark.parametrize("sent", NO_KEYS.values(), ids=list(NO_KEYS))
def test_sequences_and_pastes_are_no_keys_wherever_a_read_cuts_them(sent: str) -> None:
    raw = sent.encode()
    for at in range(len(raw) + 1):
        if sent.startswith("please") and 0 < at < len(raw):
            continue  # only what is read at once can be told from typing
        first, pending = keys_of(b"", raw[:at])
        second, _ = keys_of(pending, raw[at:])
        assert not KNOWN & {*first, *second}


def test_keys_before_and_after_a_sequence_are_keys() -> None:
    assert keys_of(b"", b"s\x1bOR\x1b[200~rl\x1b[201~b") == (["s", "b"], b"")
    assert keys_of(b"", b"ssbbq") == (["s", "s", "b", "b", "q"], b"")


def test_function_keys_arrows_alt_keys_and_pastes_do_nothing(incident: Incident) -> None:
    incident.database.jobs.update_one({"_id": "job-000000"}, {"$set": {"status": "succeeded"}})
    with review(incident, "--all", "-o", "json") as program:
        screen = Screen(program)
        assert "verdict  settled" in screen.page()
        for sent in NO_KEYS.values():
            program.send(sent)
            program.send("\x1b[A")  # a terminal sends nothing in between
            time.sleep(0.05)
        time.sleep(0.5)
        program.send("s")
        while not (page := screen.page()).startswith("letter 2 of 4"):
            assert page.startswith("letter 1 of 4\n")
        assert page.startswith("letter 2 of 4  1 skipped")
        program.send("q")
        code, document = ended(program)
    assert code == 0
    assert [document[name] for name in COUNTED] == [0, 0, 1, 3]
    assert (incident.dead(), incident.retry()) == (incident.original, [])


def test_a_letter_that_the_archive_cannot_hold_is_not_taken(stores: Stores) -> None:
    raw = b'{"job_id":"job-1","note":"%s"}' % (b"x" * ARCHIVED_BYTES_MAX)
    stores.queues.client.rpush(DEAD, raw)
    found, _ = listed(stores, Selection(everything=True), limit=None)
    review = Review(stores, "operation-1", RequeuePolicy(), datetime.now(UTC))
    sitting = Sitting(cast(Session, None), review, list(found))
    for key in "Rl":
        sitting.do(key)
        assert "which the archive cannot hold" in sitting.message
    assert stores.queues.length(DEAD) == 1


def test_each_key_does_what_it_says(incident: Incident) -> None:
    first, second, third, fourth = incident.original
    with review(incident, "--all", "-o", "json") as program:
        screen = Screen(program)
        page = screen.page()
        assert page.startswith("letter 1 of 4\n")
        assert "job-000000" in page
        assert "verdict  retryable" in page
        assert "q quit" in page
        assert screen.press("r").startswith("letter 2 of 4  1 requeued")
        assert [unchanged(raw) for raw in incident.retry()] == [unchanged(first)]
        assert "why? (one reason" in screen.press("l")
        assert "letter 2 released" in screen.press("test entries\n")
        assert incident.dead() == [third, fourth]
        assert screen.press("s").startswith("letter 4 of 4  1 requeued, 1 released, 1 skipped")
        assert screen.press("b").startswith("letter 3 of 4")
        page = screen.press("u")
        assert page.startswith("letter 2 of 4  1 requeued, 1 skipped")
        assert "letter 2 was put back" in page
        assert incident.dead() == [third, fourth, second]
        assert screen.press("u").startswith("letter 1 of 4  1 skipped")
        assert (incident.dead(), incident.retry()) == ([third, fourth, second, first], [])
        assert "nothing to undo" in screen.press("u")
        assert "no such key" in screen.press("x")
        assert screen.press("r").startswith("letter 2 of 4")
        assert screen.press("l").startswith("letter 3 of 4")  # the reason is asked once
        program.send("q")
        code, document = ended(program)
    assert code == 0
    assert [document[name] for name in COUNTED] == [1, 1, 1, 1]
    assert incident.dead() == [third, fourth]
    log = incident.database.operator_log.find_one({"_id": document["operation_id"]})
    assert (log["command"], log["exit_code"], log["reason"]) == ("dead review", 0, "test entries")
    code, restored = incident.run("dead", "restore", document["operation_id"], "--yes")
    assert (code, restored["restored"]) == (0, 2)
    assert sorted(incident.dead()) == sorted(incident.original)


def test_the_counts_add_up_to_what_was_selected(incident: Incident) -> None:
    with review(incident, "--limit", "3", "-o", "json") as program:
        Screen(program).page()
        program.send("ssbbq")
        _, document = ended(program)
    assert [document[name] for name in COUNTED] == [0, 0, 2, 1]


def test_no_reason_releases_nothing(incident: Incident) -> None:
    with review(incident, "--all", "-o", "json") as program:
        screen = Screen(program)
        screen.page()
        assert "why?" in screen.press("l")
        page = screen.press("  \x1b[A\n")
        assert page.startswith("letter 1 of 4\n")
        assert "no reason given: not released" in page
        program.send("q")
        ended(program)
    assert incident.dead() == incident.original


def test_enter_after_a_key_and_the_end_of_the_letters(incident: Incident) -> None:
    with review(incident, "--limit", "2", "-o", "json") as program:
        screen = Screen(program)
        screen.page()
        assert "why?" in screen.press("l")
        assert screen.press("gone\n").startswith("letter 2 of 2")
        program.sendline("l")
        code, document = ended(program)
    assert (code, document["released"]) == (0, 2)
    assert incident.dead() == incident.original[2:]


def test_a_letter_that_is_not_retryable_wants_a_capital_r_and_a_y(incident: Incident) -> None:
    incident.database.jobs.update_one({"_id": "job-000000"}, {"$set": {"status": "succeeded"}})
    incident.replace(1, b"\xff no json \x1b[31m")
    with review(incident, "--all") as program:
        screen = Screen(program)
        screen.page()
        assert "it is settled; R" in screen.press("r")
        assert "requeue it all the same? y/n" in screen.press("R")
        page = screen.press("r")
        assert page.startswith("letter 1 of 4\n")
        assert "not requeued" in page
        assert incident.dead() == incident.original
        screen.press("R")
        page = screen.press("y")
        assert page.startswith("letter 2 of 4  1 requeued")
        assert r"\xff no json \x1b[31m" in page
        assert "cannot be read" in screen.press("R")
        program.send("q")
        assert "\x1b[31m" not in (program.read() or "")
    assert len(incident.dead()) == 3


def test_a_long_payload_is_cut_and_m_shows_more(incident: Incident) -> None:
    text = json.dumps({"job_id": "job-000000", "error": "boom\n" * 300, "note": "n" * 3_000})
    incident.replace(0, text.encode())
    with review(incident, "--all", "-o", "json") as program:
        screen = Screen(program)
        found = re.search(r"… (\d+) more lines of the payload: m more", screen.page())
        assert found is not None
        after = re.search(r"… (\d+) more lines", screen.press("m"))
        assert after is not None
        assert int(after[1]) < int(found[1])
        assert screen.press("s").startswith("letter 2 of 4")
        program.send("q")
        ended(program)


def test_interrupting_it_keeps_what_was_decided(incident: Incident) -> None:
    with review(incident, "--all") as program:
        screen = Screen(program)
        screen.page()
        screen.press("l")
        screen.press("gone\n")
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
