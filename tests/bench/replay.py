"""One large account row by row."""

from collections.abc import Iterator

from tests.bench.generate import Plan
from tests.bench.place import Claim, Place, ratio
from tests.bench.show import ACCOUNT, ledger

WORK = "1,000,000 rows of one account to jsonl: balance replay"


def run(place: Place) -> Iterator[Claim]:
    """Ours against a bare cursor loop that prints the same fields; its memory must not grow."""
    name = ledger(place)
    words = ("balance", "replay", ACCOUNT, "-o", "jsonl")
    best = place.alternately(
        {
            "ledgerctl": place.ours(*words, database=name),
            "bare": place.bare("replay", ACCOUNT, database=name),
        }
    )
    yield ratio("of the bare loop's time", best["ledgerctl"].seconds, best["bare"].seconds, 1.3)
    yield Claim("memory", best["ledgerctl"].memory_mb, 120, unit="MB")
    tenth = place.ledger(Plan(rows=place.size.of(100_000), accounts=1, all_types=False))
    small = place.run(place.ours(*words, database=tenth))
    yield ratio("of the memory at 100,000", best["ledgerctl"].memory_mb, small.memory_mb, 1.1)
