"""Runs one command and writes how it ended, how long it took and what memory it had at most.

A process of its own, and a small one: what a parent holds counts as its child's memory at the start.
"""

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    """REPORT OUTPUT COMMAND…: run the command with its stdout in OUTPUT, write the REPORT."""
    report, output, *words = sys.argv[1:]
    opened = (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    begun = time.perf_counter()
    process = os.posix_spawnp(words[0], words, os.environ, file_actions=[opened])
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - begun
    figures = {
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_mb": usage.ru_maxrss / 1024,
        "code": os.waitstatus_to_exitcode(status),
    }
    Path(report).write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
