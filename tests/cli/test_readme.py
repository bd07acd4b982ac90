"""Every block of the README is true: commands run, outputs match, units and settings load."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ledgerctl.cli.help import EXIT_CODES
from ledgerctl.sandbox import story
from ledgerctl.sandbox.launch import Server
from tests.cli.readme import BLOCK, README, alike, blocks, console, run
from tests.conftest import ROOT, Runner

# The crontab line: tests/integration/test_cron_units.py.
KINDS = {"sh", "console", "cron", "toml"}
INSTALL_TIMEOUT_S = 900


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {kind for kind, _ in BLOCK.findall(README.read_text())} == KINDS
    assert README.read_text().count("```") == 2 * len(BLOCK.findall(README.read_text()))


def test_the_tour_prints_what_stands_there(
    environment: dict[str, str], mongod: Server, redis_url: str, database: str
) -> None:
    """After a change: `python -m tests.write_readme`."""
    moment = datetime.now(UTC)
    now = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    story.load(mongo_uri=mongod.uri, redis_url=redis_url, database=database, now=now)
    run("ledgerctl db init", environment)
    for shown in console():
        printed = run(shown.command, environment)
        assert alike(printed) == alike(shown.output), shown.command


def test_the_table_of_exit_codes_is_the_one_of_the_help() -> None:
    table = README.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    rows = [row for row in table.split("\n") if row.startswith("| ") and "exit |" not in row]
    codes = [int(code) for row in rows for code in row.split("|")[1].replace(",", " ").split()]
    assert codes == [code for code, _ in EXIT_CODES]


def test_every_test_that_a_promise_names_exists() -> None:
    promises = README.read_text().partition("## Promises")[2].partition("\n## ")[0]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promises)
    assert len(named) >= 15
    for row in (line for line in promises.split("\n") if line.startswith("| ")):
        assert row.startswith("| promise") or "::test_" in row
    for file, name in named:
        assert f"\ndef {name}(" in (ROOT / file).read_text(), (file, name)


def test_the_settings_are_settings(run_bare: Runner, tmp_path: Path) -> None:
    (block,) = blocks("toml")
    for name in ("support.mongo", "production.mongo", "production.redis"):
        scheme = name.partition(".")[2].replace("mongo", "mongodb")
        (tmp_path / name).write_text(f"{scheme}://127.0.0.1/\n")
    file = tmp_path / "config.toml"
    file.write_text(block.replace("/etc/ledgerctl/", f"{tmp_path}/"))
    for path in tmp_path.iterdir():
        if path.is_file():
            path.chmod(0o600)
    for profile in ["default", *tomllib.loads(block)["profiles"]]:
        done = run_bare("config", "show", "--config", str(file), "--profile", profile)
        assert (done.code, done.err) == (0, "")


@pytest.fixture
def fresh_copy(tmp_path: Path) -> Path:
    """The files of the repository in an empty folder, as a clone has them."""
    copy = tmp_path / "clone"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "ledgerctl", "completions", "tests"):
        source, target = ROOT / name, copy / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return copy


def shell(
    line: str, folder: Path, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=dict(environment), capture_output=True, text=True,
        check=False, timeout=INSTALL_TIMEOUT_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@contextlib.contextmanager
def stopped_afterwards(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """The demo leaves its servers running, which here nobody wants."""
    try:
        yield
    finally:
        shell(".venv/bin/ledgerctl sandbox stop", folder, environment)


def test_the_two_commands_work_in_an_empty_folder(
    fresh_copy: Path, bare_environment: dict[str, str]
) -> None:
    """The first ends in the demo; the second finds every test (running them is this very run)."""
    first, second = blocks("sh")
    environment: dict[str, Any] = {
        name: text for name, text in bare_environment.items() if name != "PYTHONPATH"
    }
    environment["PATH"] = os.pathsep.join([str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]])
    with stopped_afterwards(fresh_copy, environment):
        done = shell(first, fresh_copy, environment)
        if done.returncode and "No matching distribution" in done.stderr:
            pytest.skip(f"the package index cannot be reached: {done.stderr[-200:]}")
        assert done.returncode == 0, done.stderr[-2000:]
        assert "The servers go on running" in done.stdout
    done = shell(second.rstrip() + " --collect-only", fresh_copy, environment)
    assert done.returncode == 0, done.stdout[-2000:]
