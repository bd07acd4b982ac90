"""Two flags make the state; what each step needs; how outcomes end a command."""

from dataclasses import replace

import pytest

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import (
    ALREADY,
    APPLIED,
    Append,
    Flag,
    Job,
    Outcome,
    State,
    Stop,
    decide_charge,
    decide_reclaim,
    decide_refund,
    fate_of,
    state,
)
from ledgerctl.domain.results import Fate
from ledgerctl.domain.rows import Row, RowType
from tests.builders import NOON

ACCOUNT = Id("acct-1")
JOB = Job(Id("job-1"), ACCOUNT, 40, Flag.CLEAR, None, Flag.CLEAR, None, "running", NOON)
CHARGE = Row(Id("job-1:charge"), JOB.id, ACCOUNT, RowType.CHARGE, -40, NOON)
REFUND = replace(CHARGE, id=Id("job-1:refund"), type=RowType.REFUND, amount=40)
RECLAIM = replace(CHARGE, id=Id("job-1:reclaim"), type=RowType.RECLAIM)
REFUNDED = replace(JOB, refunded=Flag.SET, refunded_at=NOON)
RECLAIMED = replace(REFUNDED, reclaimed=Flag.SET, reclaimed_at=NOON)


@pytest.mark.parametrize(
    ("refunded", "reclaimed", "expected"),
    [
        (Flag.CLEAR, Flag.CLEAR, State.CHARGED),
        (Flag.SET, Flag.CLEAR, State.REFUNDED),
        (Flag.SET, Flag.SET, State.RECLAIMED),
        (Flag.CLEAR, Flag.SET, State.CORRUPT),
        (Flag.BAD, Flag.CLEAR, State.BAD_FLAGS),
        (Flag.SET, Flag.BAD, State.BAD_FLAGS),
    ],
)
def test_the_flags_spell_the_state(refunded: Flag, reclaimed: Flag, expected: State) -> None:
    assert state(replace(JOB, refunded=refunded, reclaimed=reclaimed)) is expected


def test_refund_and_reclaim_are_pinned_to_the_charge_row() -> None:
    costlier = replace(JOB, cost=99)
    assert decide_refund(costlier, [CHARGE]) == Append(40, ACCOUNT)
    assert decide_reclaim(replace(REFUNDED, cost=1), [CHARGE, REFUND]) == Append(-40, ACCOUNT)


def test_a_set_flag_without_its_row_is_completed() -> None:
    assert decide_refund(REFUNDED, [CHARGE]) == Append(40, ACCOUNT, complete=True)
    assert decide_reclaim(RECLAIMED, [CHARGE, REFUND]) == Append(-40, ACCOUNT, complete=True)
    assert decide_charge(JOB, [], account=ACCOUNT, cost=40) == Append(-40, ACCOUNT, complete=True)


def test_what_is_done_already_says_so() -> None:
    assert decide_refund(REFUNDED, [CHARGE, REFUND]) == Stop(Outcome.ALREADY_REFUNDED, REFUND)
    done = decide_reclaim(RECLAIMED, [CHARGE, REFUND, RECLAIM])
    assert done == Stop(Outcome.ALREADY_RECLAIMED, RECLAIM)
    assert decide_reclaim(JOB, [CHARGE]) == Stop(Outcome.NEVER_REFUNDED)
    assert decide_charge(JOB, [CHARGE], account=ACCOUNT, cost=40) == Stop(
        Outcome.ALREADY_CHARGED, CHARGE
    )


@pytest.mark.parametrize(
    ("job", "rows", "outcome"),
    [
        (JOB, [], Outcome.NO_CHARGE),
        (JOB, [CHARGE, replace(CHARGE, id=Id("x"))], Outcome.CONFLICT),
        (JOB, [replace(CHARGE, account=Id("acct-2"))], Outcome.CONFLICT),
        (JOB, [replace(CHARGE, amount=1)], Outcome.BAD_COST),
        (JOB, [replace(CHARGE, amount=Unusable("x", "text"))], Outcome.BAD_COST),
        (replace(JOB, account=None), [replace(CHARGE, account=None)], Outcome.NO_ACCOUNT),
        (replace(JOB, status="succeeded"), [CHARGE], Outcome.JOB_SUCCEEDED),
        (replace(JOB, reclaimed=Flag.SET), [CHARGE], Outcome.CORRUPT),
        (replace(JOB, refunded=Flag.BAD), [CHARGE], Outcome.BAD_FLAGS),
        (JOB, [CHARGE, REFUND], Outcome.ROW_EXISTS),
    ],
)
def test_a_refund_is_refused_with_its_reason(job: Job, rows: list[Row], outcome: Outcome) -> None:
    decision = decide_refund(job, rows)
    assert isinstance(decision, Stop)
    assert decision.outcome is outcome


def test_an_account_that_only_the_charge_row_names_is_good_enough() -> None:
    assert decide_refund(replace(JOB, account=None), [CHARGE]) == Append(40, ACCOUNT)


def test_every_outcome_has_a_fate() -> None:
    for outcome in Outcome:
        expected = {Outcome.NOT_FOUND: Fate.NOT_FOUND} | dict.fromkeys(ALREADY, Fate.ALREADY)
        expected |= dict.fromkeys(APPLIED, Fate.DONE)
        assert fate_of(outcome) is expected.get(outcome, Fate.REFUSED)
