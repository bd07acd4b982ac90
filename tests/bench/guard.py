"""Refunds by one command, beside the two writes for each job that it replaces."""

from collections.abc import Iterator

from tests.bench.place import BenchFailed, Claim, Place, ratio
from tests.builders import make_job, make_row

WORK = (
    "10,000 refunds of distinct jobs: job refund --from-file, beside two bare writes by 8 threads"
)
DATABASE = "bench_guard"


def run(place: Place) -> Iterator[Claim]:
    """Compare the command's refunds a second with those of bare code, both by majority writes."""
    count = place.size.of(10_000)
    ids = [f"job-{number}" for number in range(count)]
    database = place.database(DATABASE)

    place.mongo.drop_database(DATABASE)
    place.index(DATABASE)
    database.jobs.insert_many(make_job(one) for one in ids)
    database.ledger.insert_many(make_row(one) for one in ids)
    file = place.directory / "jobs.txt"
    file.write_text("\n".join(ids))

    def reset(_: str) -> None:
        flags = {"is_refunded": False, "refunded_at": None}
        database.jobs.update_many({}, {"$set": flags})
        database.ledger.delete_many({"type": "refund"})
        database.outbox.delete_many({})

    def check(_: str) -> None:
        if database.ledger.count_documents({"type": "refund"}) != count:
            raise BenchFailed("not every job was refunded once")

    best = place.alternately(
        {
            "command": place.ours(
                "job", "refund", "--from-file", str(file), "--yes", "--quiet", database=DATABASE
            ),
            "two writes": place.bare("two_writes", str(count), database=DATABASE),
        },
        before=reset,
        after=check,
    )
    yield ratio(
        "of the bare code's refunds a second",
        best["two writes"].seconds,
        best["command"].seconds,
        0.8,
        at_least=True,
    )
