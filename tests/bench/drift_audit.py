"""The two checks that read everything."""

from collections.abc import Iterator

from tests.bench.place import Claim, Place, ratio
from tests.bench.rebuild import DAYS, window

WORK = "1,000,000 rows: summary drift, ledger audit"


def run(place: Place) -> Iterator[Claim]:
    """Drift against a bare grouping by account and day, the audit against one by job."""
    name = place.ledger(window(place))
    span = ("--from", DAYS[0], "--to", DAYS[1])
    place.run(place.ours("summary", "rebuild", *span, "-o", "json", database=name))
    best = place.alternately(
        {
            "drift": place.ours("summary", "drift", *span, "-o", "json", database=name),
            "by day": place.bare("by_day", *DAYS, database=name),
            "audit": place.ours("ledger", "audit", "-o", "json", database=name),
            "by job": place.bare("by_job", database=name),
        }
    )
    yield ratio("drift of grouping by day", best["drift"].seconds, best["by day"].seconds, 2)
    yield ratio("audit of grouping by job", best["audit"].seconds, best["by job"].seconds, 1.3)
    yield Claim("audit's own processor time", best["audit"].cpu_s, 2, unit="s")
    yield Claim("drift's memory", best["drift"].memory_mb, 150, unit="MB")
    yield Claim("audit's memory", best["audit"].memory_mb, 150, unit="MB")
