"""An audit whose cursor is lost goes on where it was, or says how far it came; never a false total."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.builders import NOON, make_job, make_row
from tests.conftest import Client, Documents, Runner
from tests.servers import wait_until

JOBS = 50_000
CURSOR_NOT_FOUND = 43
SNAPSHOT_TOO_OLD = 239


@pytest.fixture
def documents(client: Client, database: str) -> Documents:
    """Many jobs, the last of which lost its refund; the server sifts them in three ranges."""
    found = client[database]
    found.ledger.create_index([("job_id", 1), ("type", 1)])
    ids = [f"job-{number:06d}" for number in range(JOBS)]
    lost = {"is_refunded": True, "refunded_at": NOON}
    found.jobs.insert_many([make_job(one, **(lost if one == ids[-1] else {})) for one in ids])
    found.ledger.insert_many([make_row(one) for one in ids])
    return found


@pytest.fixture
def fail(client: Client) -> Iterator[Callable[..., None]]:
    """Make commands of the program fail; switched off again afterwards."""

    def configure(mode: Any, **data: Any) -> None:
        command = {"configureFailPoint": "failCommand", "mode": mode}
        client.admin.command(command | {"data": data | {"appName": "ledgerctl"}})

    yield configure
    client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})


@pytest.mark.parametrize("code", [CURSOR_NOT_FOUND, SNAPSHOT_TOO_OLD])
def test_a_lost_cursor_resumes_and_reads_everything_once(
    run: Runner, documents: Documents, fail: Callable[..., None], code: int
) -> None:
    fail({"times": 3}, failCommands=["aggregate"], errorCode=code)
    audit = run("ledger", "audit", "-o", "json")
    found = audit.json()
    assert audit.code == 5
    assert (found["jobs_checked"], found["rows_checked"]) == (JOBS, JOBS)
    assert found["counts"] == {"missing_row": 1}
    assert found["complete"] is True


def test_a_cut_connection_resumes_too(
    run: Runner, documents: Documents, fail: Callable[..., None]
) -> None:
    fail({"times": 2}, failCommands=["aggregate"], closeConnection=True)
    found = run("ledger", "audit", "-o", "json").json()
    assert (found["jobs_checked"], found["rows_checked"]) == (JOBS, JOBS)


def test_a_walk_that_cannot_go_on_says_how_far_it_came_and_gives_no_total(
    run: Runner, documents: Documents, fail: Callable[..., None]
) -> None:
    fail({"skip": 2}, failCommands=["aggregate"], errorCode=1)
    audit = run("ledger", "audit", "-o", "json")
    found = audit.json()
    assert audit.code == 8
    assert found["complete"] is False
    assert 0 < found["rows_checked"] < JOBS
    assert found["error"]["read"] == f"{found['rows_checked']} of about {JOBS} rows"
    fail({"skip": 2}, failCommands=["aggregate"], errorCode=1)
    shown = run("ledger", "audit", "-o", "plain")
    assert shown.code == 8
    assert f"of about {JOBS} rows read, then:" in shown.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_walk_says_how_far_it_came_and_exits_as_interrupted(
    environment: dict[str, str],
    client: Client,
    documents: Documents,
    fail: Callable[..., None],
    number: int,
    code: int,
) -> None:
    def asked() -> int:
        return int(
            client.admin.command("serverStatus")["metrics"]["commands"]["aggregate"]["total"]
        )

    fail({"skip": 2}, failCommands=["aggregate"], blockConnection=True, blockTimeMS=8000)
    before = asked()
    words = [sys.executable, "-m", "ledgerctl", "ledger", "audit", "-o", "json"]
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        wait_until(lambda: asked() >= before + 2)  # the third is counted once it is let go
        time.sleep(3)  # for what has been read by then to be looked at
        program.send_signal(number)
        out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (code, "")
    found = json.loads(out)
    assert found["complete"] is False
    assert 0 < found["rows_checked"] < JOBS


def test_a_store_that_was_never_reached_is_exit_6(run: Runner) -> None:
    nobody = {"LEDGERCTL_MONGO_URI": "mongodb://127.0.0.1:1/"}
    for command in (("ledger", "audit"), ("ledger", "repair", "--yes"), ("job", "show", "j")):
        assert run(*command, env=nobody).code == 6
