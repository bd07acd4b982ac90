"""The peak of memory of one run of the program, by itself."""

import subprocess
import sys
from collections.abc import Mapping

from tests.conftest import ROOT

# A process inherits its parent's peak, so the program's parent has to be a small one.
MEASURED = """
import os, subprocess, sys
program = subprocess.Popen([sys.executable, "-m", "ledgerctl", *sys.argv[1:]])
_, status, usage = os.wait4(program.pid, 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run_measured(environment: Mapping[str, str], *words: str) -> tuple[bytes, int]:
    """The output of one run of the program, and its peak resident memory in KB."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words], env=dict(environment), cwd=ROOT,
        capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout, int(done.stderr.splitlines()[-1])
