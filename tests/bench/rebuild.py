"""Two days' summaries out of a million rows."""

from collections.abc import Iterator
from datetime import UTC, datetime

from tests.bench.generate import Plan
from tests.bench.place import BenchFailed, Claim, Place, ratio

WORK = "two days with 1,000,000 rows in them, ledger of 1 and of 5 million: summary rebuild"
DAYS = ("2026-03-07", "2026-03-08")
ROWS = 1_000_000
SAME = ("account_id", "day", "charged", "refunded", "reclaimed", "net", "jobs", "rows")


def window(place: Place) -> Plan:
    """A million rows within two days."""
    start = datetime.fromisoformat(DAYS[0]).replace(tzinfo=UTC)
    return Plan(rows=place.size.of(ROWS), all_types=False, days=2, start=start)


def older(place: Place) -> Plan:
    """Four million rows of the years before."""
    rows = place.size.of(4 * ROWS)
    return Plan(rows=rows, all_types=False, seed=2, first=10_000_000)


def run(place: Place) -> Iterator[Claim]:
    """Ours against the bare $group and $merge, and against a loop in the client with upserts."""
    alone, large = place.ledger(window(place)), place.ledger(older(place), window(place))
    words = ("summary", "rebuild", "--from", DAYS[0], "--to", DAYS[1], "-o", "json")
    best = place.alternately(
        {
            "1 million": place.ours(*words, database=alone),
            "5 million": place.ours(*words, database=large),
            "$merge": place.bare("merge", *DAYS, database=alone),
        }
    )
    compare(place, alone)
    loop = place.alternately(
        {
            "upserts": place.bare("upserts", *DAYS, database=alone),
            "ledgerctl": place.ours(*words, database=alone),
        },
        rounds=min(place.size.rounds, 2),
    )
    ours = best["1 million"].seconds
    yield ratio("of the bare $merge's time", ours, best["$merge"].seconds, 1.25)
    yield ratio(
        "as fast as upserts in a loop",
        loop["upserts"].seconds,
        loop["ledgerctl"].seconds,
        5,
        at_least=True,
    )
    yield ratio("from 1 to 5 million rows", best["5 million"].seconds, ours, 1.2)


def compare(place: Place, name: str) -> None:
    """Both wrote the same figures, or the race is void."""
    database = place.database(name)
    fields = dict.fromkeys(SAME, 1)
    ours, bare = (
        list(database[one].find({"rows": {"$gt": 0}}, fields).sort("_id", 1))
        for one in ("usage_daily", "usage_bare")
    )
    if ours != bare:
        raise BenchFailed("the summaries differ from those of the bare pipeline")
