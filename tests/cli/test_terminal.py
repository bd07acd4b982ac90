"""What a person sees at a real terminal of 80 columns."""

import subprocess
import sys
from collections.abc import Mapping

import pexpect
import pytest

from tests.conftest import ROOT, Runner


def seen(environment: Mapping[str, str], *words: str, columns: int = 80) -> list[str]:
    """The lines that the terminal received, as they stand after what took a line away again."""
    program = pexpect.spawn(
        sys.executable, ["-m", "ledgerctl", *words], cwd=str(ROOT), encoding="utf-8",
        env={**environment, "TERM": "xterm"}, timeout=30, dimensions=(40, columns),
    )  # fmt: skip
    program.expect(pexpect.EOF)
    program.close()
    return [line.rpartition("\x1b[K")[2] for line in (program.before or "").split("\r\n")]


@pytest.fixture
def told(environment: dict[str, str], run: Runner) -> dict[str, str]:
    """A charged and refunded job, with a long reason."""
    assert run("job", "charge", "job-1", "--account", "acct-1", "--cost", "40").code == 0
    reason = "the GPU timed out after thirty seconds, and nobody was there to see it"
    assert run("job", "refund", "job-1", "--reason", reason).code == 0
    return environment


def test_sentences_fold_at_words(told: dict[str, str]) -> None:
    lines = seen(told, "balance", "explain", "acct-1", "--color", "never")
    assert max(map(len, lines)) < 80
    assert any("nobody was there" in line for line in lines)


def test_progress_leaves_nothing_beside_the_result(told: dict[str, str]) -> None:
    assert "1 jobs and 2 rows checked" in seen(told, "ledger", "audit", "--color", "never")
    assert seen(told, "ledger", "audit", "-o", "csv")[0].startswith("code,")


@pytest.mark.parametrize("words", [["log", "list"], ["balance", "list"], ["job", "list"]])
def test_usual_tables_fit(told: dict[str, str], words: list[str]) -> None:
    assert max(map(len, seen(told, *words, "--color", "never"))) <= 80


def test_a_command_ends_at_once_after_its_last_word(told: dict[str, str]) -> None:
    """PyMongo waits for idle threads at a usual end: half a second that nobody should pay."""
    program = (
        "import atexit, sys\n"
        "atexit.register(print, 'a usual end')\n"
        "from ledgerctl.__main__ import main\n"
        "sys.argv = ['ledgerctl', 'balance', 'list', '-o', 'csv']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=told, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("acct-1,0,2\n")


def test_an_empty_answer_names_the_database(environment: dict[str, str]) -> None:
    database = environment["LEDGERCTL_DATABASE"]
    assert f"No jobs in database {database!r}" in seen(environment, "job", "list")
    lines = " ".join(seen(environment, "balance", "show", "acct-x"))
    assert f"account 'acct-x' has no row and no job in database {database!r}" in lines


UUID_JOB = "0198f4c2-7d1e-7c3a-9b1d-2f6f0a9c1e11"
LONG_ACCOUNT = "acct-of-25-characters-abc"


@pytest.mark.parametrize("words", [
    ["job", "list"], ["job", "show", UUID_JOB], ["balance", "replay", LONG_ACCOUNT],
    ["dead", "list"], ["dead", "stats"], ["dead", "show", UUID_JOB], ["log", "list"],
    ["queue", "list", "dead-letter"], ["job", "refund", UUID_JOB, "--dry-run"],
])  # fmt: skip
def test_no_line_is_wider_than_the_terminal_with_uuid_jobs(
    environment: dict[str, str], run: Runner, words: list[str]
) -> None:
    for job in (UUID_JOB, UUID_JOB[:-1] + "2"):
        assert run("job", "charge", job, "--account", LONG_ACCOUNT, "--cost", "40").code == 0
        assert run("job", "refund", job, "--reason", "upstream timed out").code == 0
        assert (
            run("queue", "push", job, "--error", "timed out after 30 s", "--attempts", "9").code
            == 0
        )
    lines = seen(environment, *words, "--color", "never")
    assert max(map(len, lines)) <= 80
    assert any(UUID_JOB in line for line in lines) or words[0] == "log" or "stats" in words
