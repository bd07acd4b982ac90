"""`job show`: one job's whole page, judged by the audit's own checks."""

from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from redis import Redis

from tests.builders import NOON, make_job, make_row
from tests.conftest import Documents, Runner

Client = MongoClient[dict[str, Any]]


def test_a_refunded_job_shows_its_rows_and_nets_zero(run: Runner, documents: Documents) -> None:
    documents.jobs.insert_one(make_job(is_refunded=True, refunded_at=NOON))
    documents.ledger.insert_many([make_row(), make_row(row_type="refund")])
    page = run("job", "show", "job-1", "-o", "json").json()
    assert page["state"] == "refunded"
    assert [row["amount"] for row in page["rows"]] == [-40, 40]
    assert (page["net"], page["expected_net"], page["consistent"]) == (0, 0, True)
    assert page["problems"] == []
    assert page["queues"] == {"retry": 0, "processing": 0, "dead_letter": 0}


def test_a_lost_refund_is_a_problem_and_shows_what_is_due(
    run: Runner, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job(is_refunded=True, refunded_at=NOON))
    documents.ledger.insert_one(make_row())
    page = run("job", "show", "job-1", "-o", "json").json()
    assert (page["net"], page["expected_net"], page["consistent"]) == (-40, 0, False)
    assert page["problems"] == ["missing_row"]


def test_queues_are_counted_by_the_id_however_it_is_spelled(
    run: Runner, documents: Documents, redis_client: Redis
) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_one(make_row())
    redis_client.rpush(
        "jobs:retry", b'{"job_id":"job-1"}', b'{"ID":"job-\\u0031"}', b'{"id":"job-10"}'
    )
    redis_client.rpush("jobs:processing:w1", b'{"job_id":"job-1"}')
    redis_client.rpush("jobs:dead-letter", b"\xff", b'{"jobId":"job-1"}')
    page = run("job", "show", "job-1", "-o", "json").json()
    assert page["queues"] == {"retry": 2, "processing": 1, "dead_letter": 1}


def test_redis_being_down_costs_the_queues_and_not_the_page(
    run: Runner, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_one(make_row())
    shown = run(
        "job", "show", "job-1", "-o", "json", env={"LEDGERCTL_REDIS_URL": "redis://127.0.0.1:1/0"}
    )
    assert shown.code == 0
    assert shown.json()["queues"] == {"retry": None, "processing": None, "dead_letter": None}
    assert "not known" in shown.json()["notes"][0]


def test_an_object_id_is_found_by_its_text_with_rows_under_text(
    run: Runner, documents: Documents
) -> None:
    identity = ObjectId("65f0aa00bb11cc22dd33ee44")
    documents.jobs.insert_one(make_job(identity))
    documents.ledger.insert_one(make_row(str(identity)))
    page = run("job", "show", str(identity), "-o", "json").json()
    assert page["net"] == -40
    assert page["problems"] == ["mixed_id_types"]


def test_no_such_job_is_exit_4_and_two_of_one_text_exit_3(
    run: Runner, documents: Documents
) -> None:
    documents.jobs.insert_many([make_job("42"), make_job(42)])
    assert run("job", "show", "job-typo").code == 4
    both = run("job", "show", "42")
    assert both.code == 3
    assert "integer 42" in both.err
    assert "string 42" in both.err


@pytest.mark.parametrize("stored", ["false", 0, 1.5, [True], {"a": 1}])
def test_a_bad_flag_is_shown_as_it_stands(run: Runner, documents: Any, stored: Any) -> None:
    documents.jobs.insert_one(make_job(is_refunded=stored))
    shown = run("job", "show", "job-1", "-o", "json").json()
    listed = run("job", "list", "-o", "json").json()["items"][0]
    assert (shown["state"], shown["is_refunded"]) == ("bad_flags", stored)
    assert listed["is_refunded"] == stored
    for output in ("table", "plain", "csv"):
        assert run("job", "show", "job-1", "-o", output).code == 0
