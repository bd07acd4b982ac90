"""What a shell, cron and a lost connection meet: files, pipes, quiet runs, signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from ledgerctl.stores.connections import Stores
from tests.builders import make_job, make_letter
from tests.cli.commands import COMMANDS
from tests.conftest import Documents, Invoker, Runner
from tests.dead_letters import DEAD

OPTIMIZED = {"PYTHONOPTIMIZE": "2"}


@pytest.mark.parametrize("kind", ["empty", "fifo", "/dev/null", "folder"])
def test_a_metrics_file_that_is_no_regular_file_is_refused_before_the_rebuild(
    invoke: Invoker, stores: Stores, tmp_path: Path, kind: str
) -> None:
    name = {"empty": "", "/dev/null": "/dev/null"}.get(kind, str(tmp_path / kind))
    if kind == "fifo":
        os.mkfifo(name)
    elif kind == "folder":
        Path(name).mkdir()
    before = os.stat(name) if name else None
    assert invoke("summary", "rebuild", "--metrics-file", name).code == 2
    assert stores.mongo.collection("operator_log").count_documents({}) == 0
    if before is not None:
        assert os.stat(name).st_mode == before.st_mode


def test_a_metrics_file_that_is_a_link_stays_one_and_its_target_is_replaced(
    invoke: Invoker, tmp_path: Path
) -> None:
    target, link = tmp_path / "target.prom", tmp_path / "link.prom"
    target.write_text("old")
    link.symlink_to(target)
    assert invoke("summary", "rebuild", "--metrics-file", str(link)).code == 0
    assert link.is_symlink()
    assert "ledgerctl_summary_rebuild_rows" in target.read_text()


def test_in_a_pipe_config_path_is_the_bare_path(run_bare: Runner) -> None:
    done = run_bare("config", "path")
    assert done.err == ""
    assert done.out.count("\n") == 1
    assert Path(done.out.strip()).name == "config.toml"
    assert set(run_bare("config", "path", "-o", "json").json()) == {"path", "exists"}


@pytest.mark.parametrize("quiet", ["--quiet", "-q", "-qv"])
def test_a_quiet_run_that_another_one_keeps_out_tells_so_by_its_exit_code_alone(
    invoke: Invoker, stores: Stores, quiet: str
) -> None:
    from ledgerctl.operations.rebuild import hold

    with hold(stores):
        done = invoke("summary", "rebuild", quiet)
        assert (done.code, done.out, done.err) == (9, "", "")
        assert "lease" in invoke("summary", "rebuild").err
        assert '"lease_held"' in invoke("summary", "rebuild", quiet, "-o", "json").err


@pytest.mark.parametrize("path", ["job refund", "doctor", "dead requeue"])
def test_help_is_whole_where_python_strips_docstrings(run_bare: Runner, path: str) -> None:
    plain = run_bare(*path.split(), "--help")
    assert run_bare(*path.split(), "--help", env=OPTIMIZED).out == plain.out
    known = next(one for one in COMMANDS if one.path == path)
    assert known.examples[0] in plain.out


def test_a_hang_up_that_is_ignored_at_the_start_stays_ignored() -> None:
    """As under nohup: the run goes on when its terminal is gone."""
    script = (
        "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from ledgerctl.cli.signals import StopSignal as Stop\n"
        "stop = Stop(); stop.install(); os.kill(os.getpid(), signal.SIGHUP)\n"
        "print(stop.requested)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"False\n"
    asked = script.replace("signal.SIG_IGN", "signal.SIG_DFL")
    ended = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=False)
    assert b"HungUp" in ended.stderr
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.parametrize("output", ["plain", "csv", "jsonl"])
def test_a_piped_dry_run_has_its_counts_on_standard_error(
    invoke: Invoker, redis_client: Redis, documents: Documents, output: str
) -> None:
    documents.jobs.insert_one(make_job())
    redis_client.rpush(DEAD, make_letter("job-1"), make_letter("job-2"))
    words = ("dead", "requeue", "--all", "--dry-run", "-o", output)
    done = invoke(*words)
    assert "1 would move, 1 unknown_job left, 1 dead letters would remain" in done.err
    assert "would move" not in done.out
    assert invoke(*words, "--quiet").err == ""
