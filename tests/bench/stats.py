"""What the dead letters are, by error and by verdict."""

from collections.abc import Iterator

from tests.bench.letters import load_jobs, load_letters
from tests.bench.place import Claim, Place, ratio

WORK = "100,000 letters by error and verdict: dead stats"


def run(place: Place) -> Iterator[Claim]:
    """Ours against reading the letters and parsing their JSON."""
    count = place.size.of(100_000)
    name = load_jobs(place, count)
    load_letters(place, count)
    best = place.alternately(
        {
            "ledgerctl": place.ours("dead", "stats", "-o", "json", database=name, queues=True),
            "bare": place.bare("parse", queues=True),
        }
    )
    yield ratio("of reading and parsing them", best["ledgerctl"].seconds, best["bare"].seconds, 3)
