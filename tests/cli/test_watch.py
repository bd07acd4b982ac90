"""`queue stats --watch` on a real pseudo-terminal: in place, no trace, Ctrl-C ends it well."""

import re
import sys
from typing import Any

import pexpect
import pytest
from redis import Redis

from tests.builders import make_entry
from tests.conftest import ROOT, Runner


def start(environment: dict[str, str], *words: str, **more: str) -> "pexpect.spawn[str]":
    return pexpect.spawn(
        sys.executable, ["-m", "ledgerctl", "queue", "stats", "--watch", *words], cwd=str(ROOT),
        env={**environment, "TERM": "xterm", **more}, encoding="utf-8", timeout=30,
        dimensions=(24, 80),
    )  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}])
def test_counts_are_shown_in_place_with_what_changed_and_leave_no_trace(
    environment: dict[str, str], redis_client: Redis, more: dict[str, str]
) -> None:
    redis_client.rpush("jobs:retry", make_entry("job-1"), make_entry("job-2"))
    redis_client.rpush("jobs:dead-letter", make_entry("job-3"))
    redis_client.rpush("jobs:processing:" + "w" * 70, make_entry("job-4"))
    program = start(environment, "1s", **more)
    seen = ""

    def until(pattern: str) -> None:
        nonlocal seen
        program.expect(pattern)
        seen += str(program.before) + str(program.after)

    until(r"due +2 +\+0")
    until(r"dead +1 +\+0")
    until(r"in hand +1 +\+0")
    redis_client.rpush("jobs:retry", make_entry("job-5"))
    until(r"due +3 +\+1")
    program.send("typed\n")
    program.sendintr()
    program.expect(pexpect.EOF)
    program.close()
    seen += str(program.before)
    assert program.exitstatus == 0
    first, *_, last = re.split(r"\x1b\[\?1049[hl]", seen)
    assert (first, last.strip()) == ("", "")
    assert "\x1b[2J" not in seen  # nothing is cleared first: no flicker
    assert "typed" not in seen
    lines = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", seen).split("\r\n")
    assert max(map(len, lines)) < 80


def test_bare_it_draws_every_two_seconds(environment: dict[str, str]) -> None:
    program = start(environment)
    program.expect("nothing waits")
    program.sendintr()
    program.expect(pexpect.EOF)
    program.close()
    assert program.exitstatus == 0


@pytest.mark.parametrize("words", [("2s",), ("-o", "json")])
def test_without_a_terminal_it_is_refused(run: Runner, words: Any) -> None:
    done = run("queue", "stats", "--watch", *words)
    assert (done.code, done.out) == (2, "")
    assert "draws on a terminal" in done.err


def test_a_terminal_that_cannot_draw_is_told_so(environment: dict[str, str]) -> None:
    program = start(environment, TERM="dumb")
    program.expect("draws on a terminal")
    program.expect(pexpect.EOF)
    program.close()
    assert program.exitstatus == 2
