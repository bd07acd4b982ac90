"""Steps of several jobs in one transaction: each is whole, and none takes another one along."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from bson import Decimal128, ObjectId

from ledgerctl.domain.jobs import Outcome, Step, StepResult
from ledgerctl.errors import JobHeld, OutcomeUnknown, UnexpectedReply
from ledgerctl.operations import steps
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_job, make_row
from tests.conftest import Client, Runner
from tests.wrong_versions import steps as wrong

THREADS = 8


@pytest.fixture
def ready(stores: Stores) -> Stores:
    """A replica set with its indexes."""
    build_indexes(stores)
    return stores


def charged(stores: Stores, *ids: Any) -> None:
    """Charged jobs with their rows."""
    stores.mongo.collection("jobs").insert_many([make_job(one) for one in ids])
    stores.mongo.collection("ledger").insert_many([make_row(one) for one in ids])


def request(job: str) -> steps.StepRequest:
    return steps.StepRequest(Step.REFUND, job, "op-1")


def in_threads(stores: Stores, jobs: Sequence[str]) -> list[StepResult]:
    """Refunds of all of these at one moment through one connection, a thread for each."""
    start = Barrier(len(jobs))

    def refund(job: str) -> StepResult:
        start.wait()
        return steps.take(stores, request(job))

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(refund, jobs))


def outcomes(results: Sequence[StepResult]) -> dict[str, Outcome]:
    return {one.job_id: one.outcome for one in results}


def rows(stores: Stores) -> dict[str, list[int]]:
    """The amounts of the refund rows by job."""
    found: dict[str, list[int]] = {}
    for row in stores.mongo.collection("ledger").find({"type": "refund"}):
        found.setdefault(str(row["job_id"]), []).append(int(row["amount"]))
    return found


def messages(stores: Stores) -> set[str]:
    return {one["_id"] for one in stores.mongo.collection("outbox").find()}


# a rule, and its wrong version

TakeAll = Callable[[Stores, list[str]], Any]


def product(stores: Stores, jobs: list[str]) -> None:
    attempts = [steps.StepAttempt(request(job)) for job in jobs]
    steps.take_together(stores, attempts)
    for one in attempts:
        if one.result is None:
            steps.take_alone(stores, one)


def claim_one_that_was_refunded_meanwhile_gets_no_second_row(
    stores: Stores, take: TakeAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged(stores, "job-1", "job-2", "job-3")
    transaction = stores.mongo.transaction

    def overtaken(*args: Any, **options: Any) -> Any:
        """Another worker refunds a job between the look and the write."""
        monkeypatch.undo()
        with Stores(stores.settings) as other:
            assert steps.refund(other, "job-2", operation_id="faster").applied
        return transaction(*args, **options)

    monkeypatch.setattr(stores.mongo, "transaction", overtaken)
    take(stores, ["job-1", "job-2", "job-3"])
    assert rows(stores) == {"job-1": [40], "job-2": [40], "job-3": [40]}


def test_one_that_was_refunded_meanwhile_gets_no_second_row(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_one_that_was_refunded_meanwhile_gets_no_second_row(stores, product, monkeypatch)


def test_the_rule_is_red_against_its_wrong_version(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError):
        claim_one_that_was_refunded_meanwhile_gets_no_second_row(
            stores, wrong.together_without_counting, monkeypatch
        )


# threads of one process


def test_fifty_threads_refund_one_job_once(ready: Stores) -> None:
    charged(ready, "job-1")
    results = in_threads(ready, ["job-1"] * 50)
    assert sorted(one.outcome for one in results) == [Outcome.ALREADY_REFUNDED] * 49 + [
        Outcome.APPLIED
    ]
    assert rows(ready) == {"job-1": [40]}


def test_a_job_that_is_held_keeps_no_other_waiting(
    ready: Stores, client: Client, database: str
) -> None:
    jobs = [f"job-{number}" for number in range(THREADS)]
    charged(ready, *jobs)
    with client.start_session() as session:
        session.start_transaction()
        client[database].jobs.update_one({"_id": "job-0"}, {"$set": {"x": 1}}, session=session)
        with ThreadPoolExecutor(THREADS) as pool:
            futures = {job: pool.submit(steps.take, ready, request(job)) for job in jobs}
            others = [futures[job].result().outcome for job in jobs[1:]]
            assert not futures["job-0"].done()
            assert isinstance(futures["job-0"].exception(), JobHeld)
        session.abort_transaction()
    assert others == [Outcome.APPLIED] * (THREADS - 1)
    assert rows(ready) == {job: [40] for job in jobs[1:]}
    assert steps.take(ready, request("job-0")).applied


# several in one command


def together(stores: Stores, jobs: Sequence[str]) -> list[StepResult]:
    attempts = [steps.StepAttempt(request(job)) for job in jobs]
    steps.take_together(stores, attempts)
    return [one.result or steps.take_alone(stores, one) for one in attempts]


def test_each_of_several_gets_the_outcome_it_would_get_alone(ready: Stores) -> None:
    charged(ready, "fresh", "done", "bad", "taken", "half", "other")
    put = ready.mongo.collection
    refunded = {"is_refunded": True, "refunded_at": NOON}
    put("jobs").update_one({"_id": "done"}, {"$set": refunded})
    put("ledger").insert_one(make_row("done", "refund"))
    put("jobs").update_one({"_id": "half"}, {"$set": refunded})
    put("jobs").update_one({"_id": "bad"}, {"$set": {"is_refunded": "yes"}})
    put("ledger").insert_one(make_row("else", "grant", _id="taken:refund", amount=7))
    expected = {
        "fresh": Outcome.APPLIED,
        "done": Outcome.ALREADY_REFUNDED,
        "bad": Outcome.BAD_FLAGS,
        "nobody": Outcome.NOT_FOUND,
        "taken": Outcome.CONFLICT,
        "half": Outcome.COMPLETED,
        "other": Outcome.APPLIED,
    }
    assert outcomes(together(ready, list(expected))) == expected
    assert rows(ready) == {"fresh": [40], "done": [40], "half": [40], "other": [40]}


def test_ids_of_every_type_are_told_apart_in_one_look(ready: Stores) -> None:
    object_id = ObjectId("65a0c0ffee65a0c0ffee65a0")
    charged(ready, "job-1", object_id, 42, "43")
    ready.mongo.collection("jobs").insert_one(make_job(43))
    named = ["job-1", str(object_id).upper(), "42", "43"]
    results = together(ready, named)
    assert [one.outcome for one in results] == [Outcome.APPLIED] * 3 + [Outcome.CONFLICT]
    assert rows(ready) == {"job-1": [40], str(object_id): [40], "42": [40]}


def test_an_id_of_an_exotic_type_is_no_job_that_a_text_can_name(ready: Stores) -> None:
    charged(ready, "job-1", Decimal128("7.0"))
    assert steps.take(ready, request("7")).outcome is Outcome.NOT_FOUND
    first, second = together(ready, ["job-1", "7"])
    assert (first.outcome, second.outcome) == (Outcome.APPLIED, Outcome.NOT_FOUND)
    assert rows(ready) == {"job-1": [40]}


def test_one_id_in_two_spellings_is_refunded_once(ready: Stores) -> None:
    object_id = ObjectId("65a0c0ffee65a0c0ffee65a0")
    charged(ready, object_id, "job-1")
    first, second, third = together(ready, [str(object_id), str(object_id).upper(), "job-1"])
    assert [first.outcome, second.outcome] == [Outcome.APPLIED, Outcome.ALREADY_REFUNDED]
    assert third.outcome is Outcome.APPLIED
    assert rows(ready) == {str(object_id): [40], "job-1": [40]}


def refunded(stores: Stores, *ids: Any) -> None:
    """Refunded jobs with both rows."""
    flags = {"is_refunded": True, "refunded_at": NOON}
    stores.mongo.collection("jobs").insert_many([make_job(one, **flags) for one in ids])
    rows = [make_row(one, kind) for one in ids for kind in ("charge", "refund")]
    stores.mongo.collection("ledger").insert_many(rows)


def told(
    stores: Stores, jobs: Sequence[str], **options: Any
) -> dict[str, Outcome | type[Exception]]:
    """What each of several is told, its error included."""
    attempts = [steps.StepAttempt(replace(request(job), **options.get(job, {}))) for job in jobs]
    steps.take_together(stores, attempts)
    said: dict[str, Outcome | type[Exception]] = {}
    for one in attempts:
        if one.error is not None:
            said[one.request.job_id] = type(one.error)
            continue
        try:
            result = one.result or steps.take_alone(stores, one, patience_s=0.2)
        except Exception as error:  # noqa: BLE001  # what it is told is what is tested
            said[one.request.job_id] = type(error)
        else:
            said[one.request.job_id] = result.outcome
    return said


def test_a_held_job_is_the_only_one_that_is_told_so(
    ready: Stores, client: Client, database: str
) -> None:
    charged(ready, "held")
    refunded(ready, "done")
    with client.start_session() as session:
        session.start_transaction()
        client[database].jobs.update_one({"_id": "held"}, {"$set": {"x": 1}}, session=session)
        said = told(ready, ["held", "done", "nobody"])
        session.abort_transaction()
    assert said == {
        "held": JobHeld,
        "done": Outcome.ALREADY_REFUNDED,
        "nobody": Outcome.NOT_FOUND,
    }


def test_a_job_that_cannot_be_written_stops_no_other(
    ready: Stores, client: Client, database: str
) -> None:
    charged(ready, "job-1", "job-2", "job-3", "job-4", "\u00e9")
    client[database].jobs.update_one({"_id": "job-2"}, {"$set": {"odd": 1}})
    client[database].command("collMod", "jobs", validator={"odd": {"$ne": 1}})
    put = ready.mongo.collection("outbox")
    put.insert_one({"_id": ObjectId(), "message_key": "job-3:refund"})
    said = told(
        ready,
        ["job-1", "job-2", "job-3", "job-4", "\u00e9", "\ud800"],
        **{"job-4": {"reason": "\ud800"}},
    )
    assert said == {
        "job-1": Outcome.APPLIED,
        "job-2": Outcome.REFUSED_BY_SERVER,
        "job-3": UnexpectedReply,
        "job-4": UnicodeEncodeError,
        "\u00e9": Outcome.APPLIED,
        "\ud800": UnicodeEncodeError,
    }
    assert rows(ready) == {"job-1": [40], "\u00e9": [40]}


def test_an_unknown_outcome_is_told_to_those_alone_that_were_to_be_written(
    ready: Stores, client: Client
) -> None:
    charged(ready, "fresh", "other")
    refunded(ready, "done")
    point: dict[str, Any] = {"configureFailPoint": "failCommand", "mode": "alwaysOn"}
    data = {"appName": "ledgerctl", "failCommands": ["commitTransaction"], "errorCode": 50}
    client.admin.command(point | {"data": data})
    try:
        said = told(ready, ["fresh", "done", "nobody", "other"])
    finally:
        client.admin.command(point | {"mode": "off"})
        client.admin.command({"killAllSessions": []})  # else it stays open for a minute
    assert said == {
        "fresh": OutcomeUnknown,
        "done": Outcome.ALREADY_REFUNDED,
        "nobody": Outcome.NOT_FOUND,
        "other": OutcomeUnknown,
    }


def test_a_row_under_an_id_of_an_exotic_type_is_whose_it_is_alone(ready: Stores) -> None:
    charged(ready, 7)
    foreign = make_row(7, "refund", _id="foreign-1") | {"job_id": Decimal128("7.0")}
    ready.mongo.collection("ledger").insert_one(foreign)
    assert told(ready, ["7", "7.0"]) == {"7": Outcome.ROW_EXISTS, "7.0": Outcome.NOT_FOUND}
    assert rows(ready) == {"7.0": [40]}


def test_a_text_in_capitals_is_not_the_same_text_in_small_letters(ready: Stores) -> None:
    small = "65a0c0ffee65a0c0ffee65a0"
    refunded(ready, small)
    said = told(ready, [small.upper(), small])
    assert said == {small.upper(): Outcome.NOT_FOUND, small: Outcome.ALREADY_REFUNDED}


def test_many_ids_of_one_command_share_transactions_and_keep_their_order(
    ready: Stores, run: Runner
) -> None:
    jobs = [f"job-{number}" for number in range(40)]
    charged(ready, *jobs)
    refunded = run("job", "refund", "job-7", "-o", "json")
    result = run("job", "refund", *jobs, "nobody", "--yes", "-o", "json")
    assert (refunded.code, result.code) == (0, 8)
    said = result.json()
    assert [one["job_id"] for one in said["results"]] == [*jobs, "nobody"]
    assert (said["applied"], said["unchanged"], said["not_found"]) == (39, 1, 1)
    assert rows(ready) == {job: [40] for job in jobs}
    assert messages(ready) == {f"{job}:refund" for job in jobs}


def test_a_held_job_among_several_of_a_command_is_passed_over_and_named(
    ready: Stores, client: Client, database: str, run: Runner
) -> None:
    charged(ready, "job-1", "job-2", "job-3")
    with client.start_session() as session:
        session.start_transaction()
        client[database].jobs.update_one({"_id": "job-2"}, {"$set": {"x": 1}}, session=session)
        result = run("job", "refund", "job-1", "job-2", "job-3", "--yes", "-o", "json")
        session.abort_transaction()
    said = result.json()
    assert result.code == 8
    assert (said["applied"], said["error"]["code"], said["not_tried"]) == (
        2,
        "job_held",
        1,
    )
    assert rows(ready) == {"job-1": [40], "job-3": [40]}


def test_several_jobs_that_one_killed_client_holds_are_waited_for_once(
    ready: Stores, client: Client, database: str, run: Runner
) -> None:
    jobs = [f"job-{number}" for number in range(16)]
    charged(ready, *jobs, "free")
    with client.start_session() as session:
        session.start_transaction()
        held = client[database].jobs
        held.update_many({"_id": {"$in": jobs}}, {"$set": {"x": 1}}, session=session)
        began = time.monotonic()
        result = run("job", "refund", *jobs, "free", "--yes", "-o", "json")
        took = time.monotonic() - began
        session.abort_transaction()
    said = result.json()
    assert result.code == 8
    assert (said["applied"], said["not_tried"]) == (1, 16)
    assert took < 16 * 5 / 2  # and not five seconds each
    assert rows(ready) == {"free": [40]}
