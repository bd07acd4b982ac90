"""Each rule of the guarded steps as a claim: green for the product, red for its wrong version."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from threading import Barrier
from typing import Any

import pytest

from ledgerctl.domain.jobs import Step, StepResult
from ledgerctl.operations import steps
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_job, make_row, without
from tests.wrong_versions import steps as wrong

Take = Callable[..., StepResult]


def product(stores: Stores, job: str, step: Step, **_: Any) -> StepResult:
    """The product's own step."""
    return steps.take(stores, steps.StepRequest(step, job, token_hex(8)))


def seed(stores: Stores, step: Step, **flags: Any) -> None:
    """A job that is ready for the step, with the rows that led there."""
    rows = [make_row()]
    if step is Step.RECLAIM:
        flags = {"is_refunded": True, "refunded_at": NOON} | flags
        rows.append(make_row(row_type="refund"))
    stores.mongo.collection("jobs").insert_one(make_job(**flags))
    stores.mongo.collection("ledger").insert_many(rows)


def amounts(stores: Stores, step: Step) -> list[int]:
    """The amounts of the job's rows of this step."""
    found = stores.mongo.collection("ledger").find({"job_id": "job-1", "type": str(step)})
    return [int(one["amount"]) for one in found]


DUE = {Step.REFUND: [40], Step.RECLAIM: [-40]}


def claim_two_signals_at_once_append_one_row(stores: Stores, take: Take, step: Step) -> None:
    seed(stores, step)
    start = Barrier(2)

    def signal(_: int) -> StepResult:
        start.wait()
        return take(stores, "job-1", step)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(signal, range(2)))
    assert amounts(stores, step) == DUE[step]
    assert sum(result.applied for result in results) == 1


def claim_the_amount_is_the_charge_rows(stores: Stores, take: Take, step: Step) -> None:
    seed(stores, step, cost=99)
    take(stores, "job-1", step, reported=77)
    assert amounts(stores, step) == DUE[step]


def claim_a_second_delivery_appends_nothing(stores: Stores, take: Take, step: Step) -> None:
    seed(stores, step)
    for _ in range(3):
        take(stores, "job-1", step)
    assert amounts(stores, step) == DUE[step]


def claim_a_flag_without_its_row_is_finished(stores: Stores, take: Take, step: Step) -> None:
    build_indexes(stores)
    flag = {"is_refunded": True} if step is Step.REFUND else {"is_reclaimed": True}
    seed(stores, step, **flag)
    for _ in range(2):
        take(stores, "job-1", step)
    assert amounts(stores, step) == DUE[step]


def claim_an_absent_flag_counts_as_false(stores: Stores, take: Take, step: Step) -> None:
    seed(stores, step)
    flag = "is_refunded" if step is Step.REFUND else "is_reclaimed"
    stores.mongo.collection("jobs").replace_one({"_id": "job-1"}, absent(stores, flag))
    take(stores, "job-1", step)
    assert amounts(stores, step) == DUE[step]


def absent(stores: Stores, flag: str) -> dict[str, Any]:
    """The job's document without a flag."""
    return without(stores.mongo.collection("jobs").find_one({"_id": "job-1"}) or {}, flag)


RULES: list[tuple[Callable[[Stores, Take, Step], None], Take]] = [
    (claim_two_signals_at_once_append_one_row, wrong.read_then_write),
    (claim_the_amount_is_the_charge_rows, wrong.amount_from_the_caller),
    (claim_a_second_delivery_appends_nothing, wrong.append_without_guard),
    (claim_a_flag_without_its_row_is_finished, wrong.lost_guard_stops),
    (claim_an_absent_flag_counts_as_false, wrong.absent_flag_is_missed),
]
names = [claim.__name__ for claim, _ in RULES]


@pytest.mark.parametrize("step", [Step.REFUND, Step.RECLAIM])
@pytest.mark.parametrize(("claim", "_wrong"), RULES, ids=names)
def test_each_rule_holds_for_the_product(
    stores: Stores, claim: Callable[..., None], _wrong: Take, step: Step
) -> None:
    claim(stores, product, step)


@pytest.mark.parametrize("step", [Step.REFUND, Step.RECLAIM])
@pytest.mark.parametrize(("claim", "wrong_version"), RULES, ids=names)
def test_each_rule_is_red_against_its_wrong_version(
    stores: Stores, claim: Callable[..., None], wrong_version: Take, step: Step
) -> None:
    with pytest.raises(AssertionError):
        claim(stores, wrong_version, step)
