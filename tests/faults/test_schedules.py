"""Refund, reclaim, redelivery, repair and a crash in every order: one row each, for ever.

    LEDGERCTL_TEST_SCHEDULES=full python -m pytest tests/faults/test_schedules.py -s

explores the large scenarios too.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pymongo import WriteConcern

from ledgerctl.domain.audit import audit
from ledgerctl.domain.jobs import Step, StepResult
from ledgerctl.operations import steps
from ledgerctl.operations.audit import Scope
from ledgerctl.operations.cases import load
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.repair import Repairer, RepairSelection
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_job, make_row, make_run
from tests.faults.explorer import Action, Actor, Explored, Explorer, Scheduler, WatchedMongo
from tests.wrong_versions import schedules as wrong

FULL = os.environ.get("LEDGERCTL_TEST_SCHEDULES") == "full"
JOB = "job-1"


def watched(stores: Stores) -> tuple[Stores, Scheduler]:
    """The same stores with every command under the scheduler."""
    scheduler = Scheduler()
    opened = Stores(stores.settings)
    opened.__dict__["mongo"] = WatchedMongo(stores, scheduler, NOON)
    return opened, scheduler


@pytest.fixture
def place(
    request: pytest.FixtureRequest, stores: Stores, standalone_stores: Stores
) -> Iterator[tuple[Stores, Scheduler]]:
    opened, scheduler = watched(standalone_stores if request.param == "standalone" else stores)
    with opened:
        build_indexes(opened)
        yield opened, scheduler


@pytest.fixture
def bare(standalone_stores: Stores) -> Iterator[tuple[Stores, Scheduler]]:
    """A standalone server without any index: nothing but the program's own rules."""
    opened, scheduler = watched(standalone_stores)
    with opened:
        yield opened, scheduler


def refund(operation_id: str) -> Action:
    return lambda stores: steps.refund(stores, JOB, operation_id=operation_id)


def reclaim(operation_id: str) -> Action:
    return lambda stores: steps.reclaim(stores, JOB, operation_id=operation_id)


def repair(stores: Stores) -> Any:
    """A repair that waits for nobody."""
    run = make_run("r")
    repairer = Repairer(stores, Scope(job=JOB), timedelta(0))
    repairer.apply(RepairSelection(jobs=[JOB], repairs=1), run)
    return run.result


def charged(stores: Stores) -> None:
    """A charged job, its row and nothing else."""
    seeded(stores)


def refunded(stores: Stores) -> None:
    """A refunded job with both rows."""
    seeded(stores, "refund", is_refunded=True, refunded_at=NOON)


def half_refunded(stores: Stores) -> None:
    """A refund that died between flag and row."""
    seeded(stores, is_refunded=True, refunded_at=NOON)


def seeded(stores: Stores, *row_types: str, **flags: Any) -> None:
    quick = WriteConcern(w=1)  # the last write waits for all of them
    for name in ("jobs", "ledger", "outbox"):
        stores.mongo.collection(name).with_options(write_concern=quick).delete_many({})
    jobs = stores.mongo.collection("jobs").with_options(write_concern=quick)
    jobs.insert_one(make_job(JOB, **flags))
    stores.mongo.collection("ledger").insert_many(
        [make_row(JOB, one) for one in ("charge", *row_types)]
    )


def judge(stores: Stores, actors: list[Actor], died: bool) -> list[str]:
    """What the audit says; after a death, what it says after one repair."""
    if died:
        repair(stores)
    wrong = [str(one.code) for one in audit(load(stores, [JOB])[0])]
    told = [one.result for one in actors if isinstance(one.result, StepResult)]
    for step in (Step.REFUND, Step.RECLAIM):
        rows = stores.mongo.collection("ledger").count_documents({"job_id": JOB, "type": step})
        if sum(one.applied and one.step == step for one in told) > rows:
            wrong.append(f"told of a {step} that is not there")
    return wrong


Scenario = tuple[Callable[[Stores], None], list[Action]]

SMALL: dict[str, Scenario] = {
    "two refunds": (charged, [refund("a"), refund("b")]),
    "refund, reclaim": (charged, [refund("a"), reclaim("b")]),
    "refund, repair": (charged, [refund("a"), repair]),
    "redelivery, repair of a half": (half_refunded, [refund("a"), repair]),
}
LARGE: dict[str, Scenario] = {
    "reclaim, repair of a half": (half_refunded, [reclaim("a"), repair]),
    "two repairs of a half": (half_refunded, [repair, repair]),
    "two reclaims": (refunded, [reclaim("a"), reclaim("b")]),
    "two refunds, reclaim": (charged, [refund("a"), refund("b"), reclaim("c")]),
    "refund, reclaim, repair": (charged, [refund("a"), reclaim("b"), repair]),
    "refund, redelivery, repair": (charged, [refund("a"), refund("b"), repair]),
    "two workers, redelivery, repair": (
        charged,
        [refund("a"), reclaim("b"), refund("c"), repair],
    ),
}
SCENARIOS = SMALL | LARGE
BOTH = ("refund, reclaim", "refund, repair")  # quick enough on a replica set for every run
CASES = [("standalone", one) for one in SMALL] + [("replica set", one) for one in BOTH]
if FULL:
    CASES = [(server, one) for one in SCENARIOS for server in ("standalone", "replica set")]


@pytest.mark.parametrize(("place", "name"), CASES, indirect=["place"])
def test_every_schedule_leaves_one_row_each_and_a_clean_audit(
    place: tuple[Stores, Scheduler], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stores, scheduler = place
    seed, actions = SCENARIOS[name]
    found = Explorer(stores, scheduler, actions, seed, judge).explore()
    with capsys.disabled():
        kind = "replica set" if stores.mongo.transactions else "standalone"
        print(f"\n{name} on a {kind}: {found.line()}", end="")
    assert found.complete
    assert found.wrong == {}, found.example


@pytest.mark.parametrize("name", wrong.VERSIONS)
def test_each_wrong_version_is_found(
    bare: tuple[Stores, Scheduler], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stores, scheduler = bare
    version = wrong.VERSIONS[name]
    seed = refunded if version.starts_refunded else charged
    found = Explorer(stores, scheduler, version.actions, seed, version.judge(judge)).explore()
    with capsys.disabled():
        print(f"\n{name}: {found.line()}", end="")
    assert set(found.wrong) & version.shows, found


def test_without_any_index_the_products_own_ids_are_enough(
    bare: tuple[Stores, Scheduler], capsys: pytest.CaptureFixture[str]
) -> None:
    stores, scheduler = bare
    found: Explored = Explorer(
        stores, scheduler, [refund("a"), repair], charged, judge, may_die=False
    ).explore()
    with capsys.disabled():
        print(f"\nrefund, repair without an index: {found.line()}", end="")
    assert found.wrong == {}
