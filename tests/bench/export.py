"""The whole ledger, printed."""

from collections.abc import Iterator

from tests.bench.generate import Plan
from tests.bench.place import Claim, Place, ratio

WORK = "1,000,000 rows to jsonl: ledger export"


def run(place: Place) -> Iterator[Claim]:
    """Ours against a bare cursor loop that prints the same fields."""
    name = place.ledger(Plan(rows=place.size.of(1_000_000)))
    best = place.alternately(
        {
            "ledgerctl": place.ours("ledger", "export", database=name),
            "bare": place.bare("export", database=name),
        }
    )
    yield ratio("of the bare loop's time", best["ledgerctl"].seconds, best["bare"].seconds, 1.5)
