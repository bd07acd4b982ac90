"""`ledgerctl sandbox`, run as people run it."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerctl.sandbox import servers
from tests.conftest import ROOT, Run, Runner
from tests.servers import wait_until


@pytest.fixture
def sandbox(bare_environment: dict[str, str], run_bare: Runner) -> Iterator[Runner]:
    """Runs `sandbox …` in a home of its own, and stops what it started."""

    def run(*args: str, **options: object) -> Run:
        return run_bare("sandbox", *args, **options)  # type: ignore[arg-type]  # passed on as given

    yield run
    servers.stop(servers.default_directory(bare_environment))


def test_the_whole_life_of_a_sandbox(sandbox: Runner, home: Path) -> None:
    assert sandbox("status", "-o", "json").json()["running"] is False

    started = sandbox("start", "-o", "json")
    assert (started.code, started.err) == (0, "")
    assert started.json()["started"] == ["mongod", "valkey-server"]
    assert started.json()["directory"] == str(home / ".local/share/ledgerctl/sandbox")

    status = sandbox("status", "-o", "json").json()
    assert status["running"] is True
    assert status["servers"] == started.json()["servers"]
    assert [server["state"] for server in status["servers"]] == ["running", "running"]

    again = sandbox("start", "-o", "json").json()
    assert (again["started"], again["servers"]) == ([], status["servers"])

    fresh = sandbox("reset", "-o", "json").json()
    assert fresh["running"] is True
    assert fresh["started"] == ["mongod", "valkey-server"]

    stopped = sandbox("stop", "-o", "json").json()
    assert (stopped["stopped"], stopped["running"]) == (["mongod", "valkey-server"], False)
    assert sandbox("stop", "-o", "json").json()["stopped"] == []


def test_env_points_a_shell_at_the_sandbox(
    sandbox: Runner, bare_environment: dict[str, str], tmp_path: Path
) -> None:
    started = sandbox("start", "-o", "json").json()
    uris = {server["name"]: server["uri"] for server in started["servers"]}
    program = shlex.join([sys.executable, "-m", "ledgerctl"])
    script = f'eval "$({program} sandbox env)"; {program} db init >&2; env'
    shell = subprocess.run(
        ["/bin/sh", "-ec", script],
        env=bare_environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"LEDGERCTL_MONGO_URI={uris['mongod']}" in shell.stdout.splitlines()
    assert f"LEDGERCTL_REDIS_URL={uris['valkey-server']}" in shell.stdout.splitlines()
    assert sandbox("env", "-o", "json").json() == {
        "LEDGERCTL_MONGO_URI": uris["mongod"],
        "LEDGERCTL_REDIS_URL": uris["valkey-server"],
        "LEDGERCTL_DATABASE": "ledger",
    }


def test_env_without_a_running_sandbox_prints_nothing_and_says_why(sandbox: Runner) -> None:
    answer = sandbox("env")
    assert (answer.code, answer.out) == (6, "")
    assert "sandbox start" in answer.err


def test_without_a_home_there_is_one_clear_error(sandbox: Runner) -> None:
    answer = sandbox("start", env={"HOME": None})
    assert (answer.code, answer.out) == (2, "")
    assert "XDG_DATA_HOME" in answer.err
    assert "Traceback" not in answer.err


def test_a_read_only_profile_refuses_to_start_one(sandbox: Runner, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[profiles.default]\nread_only = true\n")
    answer = sandbox("start", "--config", str(config))
    assert (answer.code, answer.out) == (3, "")
    assert sandbox("status", "-o", "json").json()["running"] is False


def test_a_broken_configuration_is_found_before_anything_starts(
    sandbox: Runner, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("not toml")
    assert sandbox("start", "--config", str(config)).code == 2
    assert sandbox("status", "-o", "json").json()["running"] is False


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupted_start_exits_as_interrupted_and_leaves_nothing(
    bare_environment: dict[str, str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    marker = tmp_path / "pid"
    fake = tmp_path / "bin" / "mongod"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\necho $$ > "{marker}.new"; mv "{marker}.new" "{marker}"\nsleep 60\n'
    )
    fake.chmod(0o755)
    environment = bare_environment | {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    starter = subprocess.Popen(
        [sys.executable, "-m", "ledgerctl", "sandbox", "start"],
        env=environment | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    wait_until(marker.exists)
    starter.send_signal(number)
    assert starter.wait(30) == code
    assert servers.stop(servers.default_directory(environment)) == ()
