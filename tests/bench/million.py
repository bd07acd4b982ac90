"""A million dead letters: what each command costs beside a bare paged read of the list."""

from collections.abc import Iterator

from tests.bench.letters import load_jobs, load_letters
from tests.bench.place import BenchFailed, Best, Claim, Command, Place, ratio, say
from tests.dead_letters import RETRY

WORK = "1,000,000 letters: listing, showing, planning, counting, moving"
LETTERS = 1_000_000
MEMORY_MB, LISTING_MB, CALL_MS = 150, 60, 10


def run(place: Place) -> Iterator[Claim]:
    """Each figure of the contract with its limit; the longest call of all of them."""
    count = place.size.of(LETTERS)
    longest: list[float] = []
    small = figures(place, count // 100, ("list",), longest)
    large = figures(
        place, count, ("list", "show", "one", "filter", "stats", "bare", "parsed"), longest
    )
    yield ratio(
        "dead list --limit 10, as at 10,000", large["list"].seconds, small["list"].seconds, 2
    )
    yield Claim("its memory", large["list"].memory_mb, LISTING_MB, unit="MB")
    for name, what in (
        ("show", "dead show JOB"),
        ("one", "dead requeue JOB --dry-run"),
        ("filter", "a filtered dry run"),
    ):
        yield ratio(f"{what}: bare paged reads", large[name].seconds, large["bare"].seconds, 3)
    yield ratio(
        "dead stats: reading and parsing", large["stats"].seconds, large["parsed"].seconds, 2.5
    )
    most = max(one.memory_mb for name, one in large.items() if name not in {"bare", "parsed"})
    yield Claim("the most memory of these", most, MEMORY_MB, unit="MB")
    tenth = moved(place, count // 10, longest)
    whole = moved(place, count, longest)
    yield ratio("requeue --all, as of a tenth", whole.seconds, tenth.seconds, 12)
    yield Claim("its memory", whole.memory_mb, MEMORY_MB, unit="MB")
    yield Claim("longest Redis call", min(longest), CALL_MS, unit="ms")


def figures(
    place: Place, count: int, names: tuple[str, ...], longest: list[float]
) -> dict[str, Best]:
    """The looking commands, among so many letters."""
    database = load_jobs(place, count)
    load_letters(place, count)
    middle = f"job-{count // 2:06d}"
    words = {
        "list": ("dead", "list", "--limit", "10"),
        "show": ("dead", "show", middle),
        "one": ("dead", "requeue", middle, "--dry-run"),
        "filter": ("dead", "requeue", "--account", "acct-7", "--dry-run"),
        "stats": ("dead", "stats"),
    }
    commands: dict[str, Command] = {
        name: place.ours(*words[name], "-o", "json", database=database, queues=True)
        for name in names
        if name in words
    }
    if "bare" in names:
        commands |= {
            "bare": place.bare("read", queues=True),
            "parsed": place.bare("parse", queues=True),
        }
    watch(place)
    return place.alternately(commands, after=lambda _: longest.append(slowest_ms(place)))


def moved(place: Place, count: int, longest: list[float]) -> Best:
    """Every letter requeued, once."""
    database = load_jobs(place, count)
    load_letters(place, count)
    watch(place)
    best = place.run(
        place.ours(
            "dead", "requeue", "--all", "--yes", "-o", "json", database=database, queues=True
        )
    )
    longest.append(slowest_ms(place))
    say(f"requeue --all of {count:,}: {best.seconds:.1f} s, {best.memory_mb:.0f} MB")
    if place.redis.llen(RETRY) != count:
        raise BenchFailed("not every letter was moved")
    return best


def watch(place: Place) -> None:
    """Note every call that takes longer than a millisecond."""
    place.redis.config_set("slowlog-log-slower-than", 1000)
    place.redis.config_set("slowlog-max-len", 10_000)
    place.redis.slowlog_reset()


def slowest_ms(place: Place) -> float:
    """The longest call of ours since it was asked last."""
    calls = [one["duration"] for one in place.redis.slowlog_get(10_000)]
    place.redis.slowlog_reset()
    return max(calls, default=0) / 1000
