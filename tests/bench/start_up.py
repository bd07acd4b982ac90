"""How long the program takes to start."""

import sys
from collections.abc import Iterator

from tests.bench.place import Claim, Command, Place, ratio

WORK = "start-up, in starts of `python -c pass`"
ROUNDS = 20
CASES: dict[str, tuple[tuple[str, ...], float]] = {
    "--version": (("--version",), 1.5),
    "--help": (("--help",), 1.5),
    "no store: config path": (("config", "path", "-o", "json"), 7),
    "one store: balance list": (("balance", "list", "-o", "json"), 16),
    "one store: queue stats": (("queue", "stats", "-o", "json"), 16),
    "both: job show": (("job", "show", "job-1", "-o", "json"), 20),
}


def run(place: Place) -> Iterator[Claim]:
    """The installed program against Python alone, the minimum of twenty runs in turns."""
    charge = ("job", "charge", "job-1", "--account", "acct-1", "--cost", "1")
    place.run(place.ours(*charge, database="bench_start_up"))
    place.redis.flushall()  # a job is looked for on the lists, and other benches leave them long
    commands = {"pass": Command([sys.executable, "-c", "pass"])} | {
        name: place.ours(*words, database="bench_start_up", queues=True)
        for name, (words, _) in CASES.items()
    }
    best = place.alternately(commands, rounds=ROUNDS if place.size.rounds > 1 else 1)
    for name, (_, limit) in CASES.items():
        yield ratio(name, best[name].seconds, best["pass"].seconds, limit)
