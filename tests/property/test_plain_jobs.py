"""The audit's short way out is never a way around: a plain job has no finding, whatever it holds."""

from datetime import timedelta
from typing import Any

from bson import Decimal128, Int64, ObjectId
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from ledgerctl.domain.audit import audit
from ledgerctl.domain.findings import FUTURE_SLACK
from ledgerctl.operations.audit import case_of
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.job_sieve import JobSieve
from ledgerctl.stores.sweep import JobDocuments, is_plain
from tests.builders import NOON, make_job, make_row
from tests.conftest import Documents

OID = ObjectId("65f0aa00bb11cc22dd33ee44")
FLAGS = st.sampled_from([False, False, False, True, True, True, None, "true", 0, 1])
TIMES = st.sampled_from([None, NOON, NOON, NOON, "2026-03-08", NOON + timedelta(days=400)])
AMOUNTS = st.sampled_from(
    [-40, 40, Int64(-40), Int64(40), 0, -41, True, -40.0, Decimal128("-40"), None, "40", 1.5]
)
COSTS = st.sampled_from([40, 40, 40, Int64(40), 0, -40, 41, None, "40", 40.0, True])
STATUSES = st.sampled_from(["failed", "running", "succeeded", None, 7])
TYPES = st.sampled_from(["charge", "refund", "reclaim", "correction", "goodwill", None, 3])
IDS = st.sampled_from(["job-1", "job-1", OID, 7, Int64(7), 7.0])

OF_JOBS: dict[str, st.SearchStrategy[Any]] = {
    "cost": COSTS, "refunded_at": TIMES, "reclaimed_at": TIMES,
}  # fmt: skip
OF_ROWS: dict[str, st.SearchStrategy[Any]] = {
    "amount": AMOUNTS, "type": TYPES, "created_at": TIMES, "job_id": IDS,
}  # fmt: skip


@st.composite
def stories(draw: st.DrawFn) -> JobDocuments:
    """A job near the right shape, with one thing or another off."""
    identity = draw(IDS)
    refunded, reclaimed = draw(FLAGS), draw(FLAGS)
    job = make_job(identity, is_refunded=refunded, is_reclaimed=reclaimed, status=draw(STATUSES))
    job |= {
        "refunded_at": NOON if refunded is True else None,
        "reclaimed_at": NOON if reclaimed is True else None,
    }
    called_for = ["charge", *["refund"] * (refunded is True), *["reclaim"] * (reclaimed is True)]
    rows: list[dict[str, Any]] = [make_row(identity, one, amount=40 if one == "refund" else -40) for one in called_for]  # fmt: skip
    for _ in range(draw(st.integers(0, 2))):
        spoil(draw, job, rows)
    return JobDocuments(str(identity), [job], rows)


def spoil(draw: st.DrawFn, job: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Change one thing: of the job, of a row, or the rows themselves."""
    row = draw(st.sampled_from(rows)) if rows else make_row()
    what = draw(st.sampled_from([*OF_JOBS, *OF_ROWS, "drop", "add", "absent"]))
    if what in OF_JOBS:
        job[what] = draw(OF_JOBS[what])
    elif what in OF_ROWS:
        row[what] = draw(OF_ROWS[what])
    elif what == "absent":
        job.pop(draw(st.sampled_from(["is_refunded", "is_reclaimed"])), None)
    elif what == "drop" and rows:
        rows.remove(row)
    else:
        rows.append(dict(row, _id="again"))


@settings(deadline=None, max_examples=800)
@given(stories())
def test_a_plain_job_has_no_finding(story: JobDocuments) -> None:
    now = NOON + timedelta(days=1)
    plain = is_plain(story, now + FUTURE_SLACK)
    event("plain" if plain else "looked at")
    if plain:
        assert audit(case_of(story, now, ())) == []


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(stories(), min_size=60, max_size=60))
def test_what_the_server_finds_plainly_right_has_no_finding(
    stores: Stores, documents: Documents, found: list[JobDocuments]
) -> None:
    """Each job under a text id of its own; whatever has a finding, the server names."""
    ledger, jobs = documents.ledger, documents.jobs
    jobs.delete_many({})
    ledger.delete_many({})
    ledger.create_index([("job_id", 1), ("type", 1)])
    now = NOON + timedelta(days=1)
    wrong = set()
    for number, story in enumerate(found):
        name = f"job-{number}"
        jobs.insert_one(story.jobs[0] | {"_id": name})
        rows = [row | {"_id": f"{name}-{at}", "job_id": name} for at, row in enumerate(story.rows)]
        ledger.insert_many(rows or [make_row(None, "grant", _id=f"{name}-none")])
        if audit(case_of(JobDocuments(name, [story.jobs[0] | {"_id": name}], rows), now, ())):
            wrong.add(name)
    (part,) = JobSieve(stores.mongo, stores.outbox).ranges("string")
    sifted = JobSieve(stores.mongo, stores.outbox).sift(part, now + FUTURE_SLACK)
    event(f"odd: {len(sifted.odd)} of {len(found)}")
    assert wrong <= set(sifted.odd)
    assert sifted.jobs == len(found) - len(sifted.odd)


def test_the_usual_jobs_are_plain() -> None:
    for flags, types in (
        ({}, ["charge"]),
        ({"is_refunded": True, "refunded_at": NOON}, ["charge", "refund"]),
        (
            {"is_refunded": True, "refunded_at": NOON, "is_reclaimed": True, "reclaimed_at": NOON},
            ["reclaim", "charge", "refund"],
        ),
    ):
        story = JobDocuments(
            "job-1", [make_job(**flags)], [make_row(row_type=one) for one in types]
        )
        assert is_plain(story, NOON)
