"""Handlers that hang, die, fork, flood or ignore their input end as they should, and in time."""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from ledgerctl.errors import UsageError
from ledgerctl.operations.handlers import Ending, Handler, handler_words
from tests.servers import wait_until


def run(
    command: str, payload: bytes = b"{}", timeout_s: float | None = None, **variables: str
) -> Ending:
    timeout = None if timeout_s is None else timedelta(seconds=timeout_s)
    return Handler(handler_words(command), dict(os.environ), timeout).run(payload, variables)


def python(code: str) -> str:
    return f'{sys.executable} -c "{code}"'


def test_exit_0_is_success_and_the_payload_arrives_whole(tmp_path: Path) -> None:
    payload = bytes(range(256)) * 4_000
    assert run(f"sh -c 'cat > {tmp_path}/got'", payload).succeeded
    assert (tmp_path / "got").read_bytes() == payload


def test_the_last_line_of_standard_error_tells_why() -> None:
    ending = run("sh -c 'echo noise; echo Traceback >&2; echo ValueError: bad >&2; exit 3'")
    assert ending.error == "exit 3: ValueError: bad"


def test_a_death_by_signal_is_named() -> None:
    assert run("sh -c 'kill -KILL $$'").error == "killed by SIGKILL"


def test_words_are_not_given_to_a_shell(tmp_path: Path) -> None:
    assert run("echo a;touch stray $HOME").succeeded
    assert not Path("stray").exists()


def test_a_handler_that_ignores_its_input_is_no_failure() -> None:
    assert run("true", b"x" * 5_000_000).succeeded


def test_a_flood_of_output_blocks_nobody_and_its_end_is_kept() -> None:
    code = (
        "import sys; [sys.stderr.write('y' * 99 + chr(10)) for _ in range(400000)]; sys.exit('end')"
    )
    assert run(python(code)).error == "exit 1: end"


def test_a_hanging_handler_is_ended_with_all_it_forked(tmp_path: Path) -> None:
    began = time.monotonic()
    command = f"sh -c 'trap \"\" TERM; sleep 60 & echo $! > {tmp_path}/child; sleep 60; sleep 60'"
    ending = run(command, timeout_s=0.4)
    assert ending.error == "timed out after 0.4s"
    assert time.monotonic() - began < 60  # the handler itself would take two minutes
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not alive(child), timeout_s=5)


def test_a_fork_that_keeps_the_output_open_does_not_hold_the_worker() -> None:
    began = time.monotonic()
    assert run("sh -c 'sleep 60 & exit 0'").succeeded
    assert time.monotonic() - began < 60  # what the fork would take


def test_a_handler_that_closes_its_output_is_still_waited_for() -> None:
    assert run("sh -c 'exec >&- 2>&-; sleep 0.3; exit 4'").error == "exit 4"


def test_variables_reach_it_in_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    assert run(f"sh -c 'printf %s \"$A\" > {tmp_path}/got'", A="jöb-✓").succeeded
    assert (tmp_path / "got").read_bytes() == "jöb-✓".encode()


def test_an_id_that_no_environment_can_hold_is_that_jobs_failure() -> None:
    assert "cannot be handed" in run("true", A="a\0b").error
    assert "cannot be handed" in run("true", A="x" * 3_000_000).error


@pytest.mark.parametrize(
    "command", ["", "   ", "'unclosed", "/no/such/command", "no-such-command-x"]
)
def test_a_command_that_cannot_be_run_is_refused_before_any_job(command: str) -> None:
    with pytest.raises(UsageError):
        handler_words(command)


def test_output_is_shown_line_by_line_when_asked_for() -> None:
    shown: list[str] = []
    handler = Handler(["sh", "-c", "echo one; echo two"], dict(os.environ), show=shown.append)
    assert handler.run(b"", {}).succeeded
    assert shown == ["one", "two"]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except OSError:
        return False
    return state != "Z"
