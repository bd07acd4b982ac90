"""A quarter of the dead letters, by their error."""

from collections.abc import Iterator

from tests.bench.letters import load_jobs, load_letters
from tests.bench.place import BenchFailed, Claim, Place, ratio, say
from tests.dead_letters import RETRY

WORK = "25,000 of 100,000 letters, and of 200,000: dead requeue --error"
LETTERS = 100_000
PATTERN = "disk full"


def run(place: Place) -> Iterator[Claim]:
    """Ours against one LREM per letter; cost must grow as the list, and no call may block."""
    count = place.size.of(LETTERS)
    words = ("dead", "requeue", "--error", PATTERN, "--yes", "-o", "json")
    names = {many: load_jobs(place, many) for many in (count, 2 * count)}
    commands = {
        f"{many:,}": place.ours(*words, database=name, queues=True) for many, name in names.items()
    }

    def reset(name: str) -> None:
        load_letters(place, 2 * count if name == f"{2 * count:,}" else count)
        load_jobs(place, count)
        place.redis.config_set("slowlog-log-slower-than", 1000)
        place.redis.config_set("slowlog-max-len", 10_000)
        place.redis.slowlog_reset()

    longest_us: list[int] = []

    def keep_longest(name: str) -> None:
        calls = [(one["duration"], one["command"][:60]) for one in place.redis.slowlog_get(10_000)]
        took, call = max(calls, default=(0, b"none above 1 ms"))
        say(f"{name}: the longest call took {took / 1000:.1f} ms: {call!r}")
        longest_us.append(took)

    best = place.alternately(commands, before=reset, after=keep_longest)
    if place.redis.llen(RETRY) != count // 2:
        raise BenchFailed("not every matching letter was moved")
    bare = place.alternately(
        {"LREM": place.bare("lrem", PATTERN, queues=True)}, rounds=1, before=reset
    )
    ours = best[f"{count:,}"].seconds
    yield ratio("as fast as one LREM a letter", bare["LREM"].seconds, ours, 15, at_least=True)
    yield ratio("from 100,000 to 200,000", best[f"{2 * count:,}"].seconds, ours, 2.4)
    # The kernel may take the processor away from Redis in the middle of a call: the quietest run.
    yield Claim("longest Redis call", min(longest_us) / 1000, 10, unit="ms")
