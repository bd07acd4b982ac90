"""Every bench runs through at a tiny size, so that it cannot rot; what it measures there is noise."""

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.__main__ import NAMES
from tests.conftest import ROOT

TIMEOUT_S = 600  # takes about forty seconds on a machine with nothing else to do


def test_every_bench_runs_through_at_a_tiny_size(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench", "--size", "tiny", "--json", "--data"]
    ran = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    print(ran.stderr.decode())
    assert ran.returncode in {0, 1}, ran.stderr  # 1: some figure misses what it must reach
    figures = json.loads(ran.stdout)["figures"]
    assert [name for name in NAMES if not any(one["bench"] == name for one in figures)] == []
