"""How long the program takes to start, as ratios to `python -c pass` in the same run.

Measured on an installed copy: compiled, and started by the launcher that the wheel brings. The
minimum of six runs, taken in turns. On a machine that is busy with something else a long start
is interrupted more often than a short one: then the processor's time is compared, since no start
waits for anything (tests/cli/test_terminal.py). The caches suffer too, and so does the floor that
Typer and the drivers set: what we add to it must stay small.
"""

import compileall
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, Runner

RUNS = 6
CASES: dict[str, tuple[list[str], float, str]] = {
    "--version": (["--version"], 1.5, "pass"),
    "--help": (["--help"], 1.5, "pass"),
    "config path": (["config", "path", "-o", "json"], 7, "typer"),
    "config show": (["config", "show", "-o", "json"], 7, "typer"),
    "job refund --help": (["job", "refund", "--help"], 7, "typer"),
    "balance show": (["balance", "list", "-o", "json"], 16, "typer, pymongo"),
    "queue stats": (["queue", "stats", "-o", "json"], 16, "typer, redis"),
    "job show": (["job", "show", "job-1", "-o", "json"], 20, "typer, pymongo, redis"),
}
BUSY = 1.15  # the clock of a start of Python, in its processor time
OURS_MAX = 4.5  # what we may add to the floor, in starts of Python


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as a wheel installs it."""
    place = tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT / "ledgerctl", place / "ledgerctl", ignore=shutil.ignore_patterns("*.pyc"))
    compileall.compile_dir(place / "ledgerctl", quiet=1)
    script = place / "bin" / "ledgerctl"
    script.parent.mkdir()
    source = (ROOT / "ledgerctl" / "launcher.py").read_text()
    script.write_text(f"#!{sys.executable}\n" + source.partition("\n")[2])
    script.chmod(0o755)
    return script


@pytest.mark.alone
def test_start_up_keeps_its_ratios(
    launcher: Path, environment: dict[str, str], run: Runner
) -> None:
    charged = run("job", "charge", "job-1", "--account", "acct-1", "--cost", "1")
    assert charged.code == 0
    environment |= {"PYTHONPATH": str(launcher.parent.parent)}
    commands = {"pass": [sys.executable, "-c", "pass"]}
    for _, _, floor in CASES.values():
        if floor != "pass":
            commands[floor] = [sys.executable, "-c", f"import {floor}"]
    commands |= {name: [str(launcher), *words] for name, (words, _, _) in CASES.items()}
    best = dict.fromkeys(commands, (float("inf"), float("inf")))
    for _ in range(RUNS):
        for name, words in commands.items():
            wall_s, cpu_s = seconds(words, environment)
            best[name] = min(best[name][0], wall_s), min(best[name][1], cpu_s)
    is_busy = best["pass"][0] > BUSY * best["pass"][1]
    ratios = {name: took[is_busy] / best["pass"][is_busy] for name, took in best.items()}
    print(f"by {'processor time' if is_busy else 'the clock'}:")
    for name, ratio in ratios.items():
        print(f"{name:24} {best[name][is_busy] * 1000:7.1f} ms {ratio:6.2f}")
    missed = {
        name: round(ratios[name], 2)
        for name, (_, limit, floor) in CASES.items()
        if ratios[name] > max(limit, ratios[floor] + (OURS_MAX if floor != "pass" else 0))
    }
    assert not missed


def seconds(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """By the clock, and of the processor."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return took, used.ru_utime + used.ru_stime
