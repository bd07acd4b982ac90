"""One account of another team's ledger, by three maps."""

from collections.abc import Iterator
from typing import Any

from tests.bench.place import BenchFailed, Claim, Place, ratio
from tests.foreign import NESTED, SIDES, WORDED, Schema

WORK = "an account of 100,000 rows under other names: balance show"
ROWS = 100_000
THOUSAND = 1_000
ACCOUNT = "acct-1"


def kind(refund: object, charge: object) -> dict[str, Any]:
    """Every fifth row is a refund."""
    return {"$cond": [{"$eq": [{"$mod": ["$n", 5]}, 0]}, refund, charge]}


def shapes() -> dict[str, tuple[Schema, str, tuple[str, str], dict[str, Any]]]:
    """Return each map with its collection, the fields of account and time, and one row in its names."""
    job, at = {"$concat": ["job-", {"$toString": "$n"}]}, {"$toLong": {"$multiply": ["$n", 60_000]}}
    cost = {"$add": [1, {"$mod": ["$n", 90]}]}
    amount = {"$toLong": {"$cond": [kind(True, False), cost, {"$multiply": [cost, -1]}]}}
    return {
        "nested": (NESTED, "credit_entries", ("customer.id", "ts"), {
            "ref": {"task": job}, "customer": {"id": ACCOUNT}, "ts": at, "delta": amount,
            "meta": {"kind": kind("refund", "debit")},
        }),
        "worded": (WORDED, "bookings", ("user", "at"), {
            "job": job, "user": ACCOUNT, "what": kind("given back", "spent"),
            "credits": {"$toLong": cost}, "at": {"$toDate": at},
        }),
        "sides": (SIDES, "moves", ("wallet", "when"), {
            "job": job, "wallet": ACCOUNT, "type": kind("refund", "charge"),
            "when": {"$divide": [at, 1_000]},
            "in": {"$cond": [kind(True, False), {"$divide": [cost, 100]}, 0.0]},
            "out": {"$cond": [kind(True, False), 0.0, {"$divide": [cost, 100]}]},
        }),
    }  # fmt: skip


def plant(
    place: Place, name: str, collection: str, index: tuple[str, str], row: dict[str, Any]
) -> None:
    """Let the server write the rows of one account, and the index that doctor asks for."""
    database = place.database(name)
    database.drop_collection(collection)
    thousands = place.size.of(ROWS, THOUSAND) // THOUSAND
    database.aggregate([
        {"$documents": [{"high": list(range(thousands)), "low": list(range(THOUSAND))}]},
        {"$unwind": "$high"},
        {"$unwind": "$low"},
        {"$set": {"n": {"$add": [{"$multiply": ["$high", THOUSAND]}, "$low"]}}},
        {"$replaceWith": row},
        {"$out": collection},
    ])  # fmt: skip
    database[collection].create_index([(one, 1) for one in index])


def run(place: Place) -> Iterator[Claim]:
    """Ours against the pipeline that one would write by hand for these names, exact as ours is."""
    for label, (schema, collection, index, row) in shapes().items():
        name = f"bench_foreign_{label}"
        plant(place, name, collection, index, row)
        settings = place.directory / f"{label}.toml"
        settings.write_text(schema.toml, encoding="utf-8")
        settings.chmod(0o600)
        words = ("balance", "show", ACCOUNT, "-o", "json", "--config", str(settings))
        ours, said = place.keeping(place.ours(*words, database=name), f"{label}.json")
        bare = place.bare("foreign", label, ACCOUNT, database=name)
        best = place.alternately({"ledgerctl": ours, "by hand": bare})
        balance = sum(
            (-1, 1)[n % 5 == 0] * (1 + n % 90) for n in range(place.size.of(ROWS, THOUSAND))
        )
        if f'"balance": {balance}' not in said.read_text(encoding="utf-8"):
            raise BenchFailed(f"{label}: the balance is not {balance}")
        yield ratio(
            f"{label}: of the time of a pipeline by hand",
            best["ledgerctl"].seconds,
            best["by hand"].seconds,
            1.5,
        )
