"""Every dead letter at once, beside rq's own requeue of its failed jobs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.letters import load_jobs, load_letters
from tests.bench.place import (
    BenchFailed,
    Claim,
    Command,
    Place,
    plain_environment,
    ratio,
    say,
    skipped,
)
from tests.dead_letters import DEAD, RETRY

WORK = "20,000 letters, verdicts, archive and log included: dead requeue --all"
LETTERS = 20_000
RQ = "rq>=2,<4"
SEED = Path(__file__).with_name("rq_failed.py")


def run(place: Place) -> Iterator[Claim]:
    """Letters a second against rq's jobs a second, from the same number of failed jobs each."""
    count = place.size.of(LETTERS)
    name = load_jobs(place, count)
    words = ("dead", "requeue", "--all", "--yes", "-o", "json")
    commands = {"ledgerctl": place.ours(*words, database=name, queues=True)}
    programs = install_rq()
    if programs is not None:
        rq = str(programs / "rq")
        commands["rq"] = Command(
            [rq, "requeue", "--all", "--queue", "default", "-u", place.valkey.uri]
        )

    def reset(which: str) -> None:
        if which == "ledgerctl":
            load_jobs(place, count)
            load_letters(place, count)
        elif programs is not None:
            place.redis.flushall()
            seed = [str(programs / "python"), str(SEED), place.valkey.uri, str(count)]
            subprocess.run(seed, check=True, env=plain_environment())

    def check(which: str) -> None:
        moved = place.redis.llen(RETRY if which == "ledgerctl" else "rq:queue:default")
        if moved != count or place.redis.exists(DEAD, "rq:failed:default"):
            raise BenchFailed(f"{which} did not requeue everything")

    best = place.alternately(commands, rounds=min(place.size.rounds, 3), before=reset, after=check)
    if programs is None:
        yield skipped("rq", f"{RQ} could not be installed")
        return
    ours, theirs = best["ledgerctl"], best["rq"]
    yield ratio("rq's jobs a second", theirs.seconds, ours.seconds, 6, at_least=True)
    yield ratio("rq's memory", ours.memory_mb, theirs.memory_mb, 2)


def install_rq() -> Path | None:
    """The programs of an environment that has rq; made once and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "ledgerctl-bench" / f"rq-{sys.version_info.major}.{sys.version_info.minor}"
    programs = place / "bin"
    if (programs / "rq").exists():
        return programs
    say(f"installing {RQ} into {place}")
    for words in (
        [sys.executable, "-m", "venv", "--clear", str(place)],
        [str(programs / "python"), "-m", "pip", "install", "--quiet", "--retries", "1", RQ],
    ):
        if subprocess.run(words, stdout=sys.stderr, check=False).returncode:
            return None
    return programs
