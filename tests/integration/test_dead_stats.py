"""`dead stats` and `dead list`: grouped by cause, narrowed by selectors, with what comes next."""

import json
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from redis import Redis

from ledgerctl.domain.error_groups import error_group
from tests.cli.test_terminal import seen
from tests.dead_letters import Incident

ERRORS = (
    "HTTP 503 from pod-7d9f8b6c5d-x2x4q",
    "HTTP 404 from pod-7d9f8b6c5d-x2x4q",
    "exit 137: killed",
)


@pytest.fixture
def incident(
    redis_client: Redis, client: MongoClient[dict[str, Any]], environment: dict[str, str]
) -> Incident:
    """Twelve letters of three causes; every fourth job is settled."""
    incident = Incident(redis_client, client, environment)
    incident.load(12)
    for position in range(12):
        fields = json.loads(incident.original[position]) | {"error": ERRORS[position % 3]}
        incident.replace(position, json.dumps(fields).encode())
    settled = {"_id": {"$in": [f"job-{number:06d}" for number in (0, 4, 8)]}}
    incident.database.jobs.update_many(settled, {"$set": {"status": "succeeded"}})
    return incident


def test_each_group_has_its_verdicts_and_a_whole_error(incident: Incident) -> None:
    code, document = incident.run("dead", "stats")
    assert code == 0
    assert (document["depth"], document["selected"], document["undated"]) == (12, 12, 0)
    assert {one["sample_error"] for one in document["by_error"]} == set(ERRORS)
    assert {one["group"] for one in document["by_error"]} == {error_group(one) for one in ERRORS}
    for one in document["by_error"]:
        assert one["by_verdict"] == {"settled": 1, "retryable": 3}


def test_selectors_narrow_the_figures_and_the_rest_is_two_figures(incident: Incident) -> None:
    document = incident.run("dead", "stats", "--verdict", "retryable", "--top", "1")[1]
    assert (document["depth"], document["selected"], document["jobs"]) == (12, 9, 9)
    assert len(document["by_error"]) == 1
    assert document["other_groups"] == {"groups": 2, "count": 6}
    document = incident.run("dead", "stats", "job-000003")[1]
    assert (document["selected"], document["by_error"][0]["count"]) == (1, 1)
    assert incident.run("dead", "stats", "--verdict", "settled", "--fail-over", "3")[0] == 0
    assert incident.run("dead", "stats", "--verdict", "settled", "--fail-over", "2")[0] == 5


def test_the_commands_below_the_table_run_as_they_stand(
    incident: Incident, environment: dict[str, str]
) -> None:
    lines = seen(environment, "dead", "stats", "--account", "acct-1", "--color", "never")
    commands = [shlex.split(line) for line in lines if line.startswith("ledgerctl ")]
    assert [one[2] for one in commands] == ["list", "requeue", "requeue"]
    assert all("--account" in one for one in commands)
    code, document = incident.run(*commands[-1][1:], "--yes")
    assert (code, document["moved"]) == (0, 1)


def test_an_undated_letter_may_be_older_than_any_age(
    incident: Incident, environment: dict[str, str]
) -> None:
    fields = json.loads(incident.original[0])
    for position in range(12):
        at = datetime.now(UTC) - timedelta(minutes=1)
        incident.replace(position, json.dumps(fields | {"failed_at": at.isoformat()}).encode())
    assert incident.run("dead", "stats", "--fail-age", "1h")[0] == 0
    undated = json.dumps(fields | {"failed_at": "2020-01-01T00:00:00.123456"}).encode()
    incident.replace(3, undated)
    code, document = incident.run("dead", "stats", "--fail-age", "1h")
    assert (code, document["undated"]) == (5, 1)
    lines = seen(environment, "dead", "list", "--failed-before", "2021-01-01")
    assert "not judged, because failed_at is no time: 1 letter" in lines
    assert "none of 12 dead letters matches" in lines


def test_a_letter_says_how_often_its_job_was_put_back_and_a_guard_stops_a_loop(
    incident: Incident,
) -> None:
    for _ in range(2):
        assert incident.run("dead", "requeue", "job-000001", "--yes")[1]["moved"] == 1
        incident.redis.lmove("jobs:retry", "jobs:dead-letter")
    listed = incident.run("dead", "list", "job-000001")[1]
    assert [(one["requeues"], one["group"]) for one in listed["items"]] == [
        (2, error_group(ERRORS[1]))
    ]
    assert (listed["depth"], listed["total"]) == (12, 1)
    document = incident.run("dead", "requeue", "--all", "--requeued-under", "2", "--dry-run")[1]
    assert document["selected"] == 11
    assert {one["requeues"] for one in document["items"]} == {0}
    document = incident.run("dead", "requeue", "--requeued-under", "3", "--yes")[1]
    assert document["moved"] == 9


@pytest.mark.parametrize("group", ["81f5", "81f52337x", "", "zzzzzzzz"])
def test_what_is_no_key_of_a_group_is_exit_2(incident: Incident, group: str) -> None:
    program = incident.start("dead", "list", "--group", group)
    out, _ = program.communicate(timeout=60)
    assert (program.returncode, out) == (2, b"")


def test_a_group_is_found_in_any_case(incident: Incident) -> None:
    group = error_group(ERRORS[0])
    assert incident.run("dead", "list", "--group", group.upper())[1]["total"] == 4


def test_the_tail_is_listed_from_the_newest_on(incident: Incident) -> None:
    listed = incident.run("dead", "list", "--tail", "--limit", "2")[1]
    assert [one["position"] for one in listed["items"]] == [11, 10]
    assert (listed["shown"], listed["total"], listed["depth"]) == (2, 12, 12)


def test_an_empty_answer_says_none_of_how_many_or_which_list_is_empty(
    incident: Incident, environment: dict[str, str]
) -> None:
    lines = seen(environment, "dead", "list", "--error", "timd out")
    assert "none of 12 dead letters matches" in lines
    incident.redis.flushall()
    text = " ".join(seen(environment, "dead", "list"))
    assert "no dead letters: jobs:dead-letter is empty" in text
