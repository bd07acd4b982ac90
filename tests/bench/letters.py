"""Dead letters with their jobs, for the benches of dead letters."""

from bson import Int64

from tests.bench.place import Place
from tests.dead_letters import DEAD, letter

AT_ONCE = 5_000


def load_jobs(place: Place, count: int) -> str:
    """The name of a database that has the refunded jobs of this many letters."""
    name = f"bench_letters_{count}"
    database = place.database(name)
    for one in ("operator_log", "dead_archive", "leases"):
        database[one].delete_many({})
    if database.jobs.estimated_document_count() != count:
        database.jobs.drop()
        for start in range(0, count, AT_ONCE):
            database.jobs.insert_many(
                {
                    "_id": f"job-{number:06d}",
                    "account_id": f"acct-{number % 97}",
                    "cost": Int64(40),
                    "is_refunded": True,
                    "is_reclaimed": False,
                    "status": "failed",
                }
                for number in range(start, min(start + AT_ONCE, count))
            )
        place.index(name)
    return name


def load_letters(place: Place, count: int) -> None:
    """Empty lists, then this many letters."""
    place.redis.flushall()
    for start in range(0, count, AT_ONCE):
        some = [letter(number) for number in range(start, min(start + AT_ONCE, count))]
        place.redis.rpush(DEAD, *some)
