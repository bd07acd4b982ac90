"""One large account in a large ledger."""

from collections.abc import Iterator

from tests.bench.generate import Plan, account_name
from tests.bench.place import BenchFailed, Claim, Place, ratio

WORK = "an account of 1,000,000 rows in a ledger of 5,000,000: balance show"
LEDGER = 5_000_000
LARGEST = 0.2
ACCOUNT = account_name(0)


def ledger(place: Place) -> str:
    """The ledger of five million rows, a fifth of them one account's."""
    return place.ledger(Plan(rows=place.size.of(LEDGER), largest=LARGEST, all_types=False))


def run(place: Place) -> Iterator[Claim]:
    """Ours against the bare pipeline with the same imports; no document may be fetched for it."""
    name = ledger(place)
    ours = place.ours("balance", "show", ACCOUNT, "-o", "json", database=name)
    best = place.alternately(
        {"ledgerctl": ours, "bare": place.bare("show", ACCOUNT, database=name)}
    )
    yield ratio("of the bare pipeline's time", best["ledgerctl"].seconds, best["bare"].seconds, 1.2)
    database = place.database(name)
    database.command("profile", 2)
    place.run(ours)
    database.command("profile", 0)
    asked = {"ns": f"{name}.ledger", "appName": "ledgerctl"}
    fetched = [one.get("docsExamined", 0) for one in database["system.profile"].find(asked)]
    database.drop_collection("system.profile")
    if not fetched:
        raise BenchFailed("the server's profile does not show the program's queries")
    yield Claim("ledger documents fetched", sum(fetched), 0, unit="")
