"""Whatever happens to a ledger, in whatever order: balances are the sum of the rows, and the audit
knows exactly what was done to it.

A hypothesis state machine over the real stores. The model is a dict of jobs, each with its flags
and amounts; the invariants are the audit's own checks and the plain sum.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from bson import ObjectId
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledgerctl.domain.audit import audit
from ledgerctl.domain.findings import MADE_GOOD, Code, Finding
from ledgerctl.domain.jobs import Outcome
from ledgerctl.domain.results import Fate
from ledgerctl.operations import balances, corrections, steps
from ledgerctl.operations.audit import Audit, Scope
from ledgerctl.operations.cases import load
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.repair import Repairer
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_run

FULL = os.environ.get("LEDGERCTL_TEST_SCHEDULES") == "full"
ACCOUNTS = ("acct-1", "acct-2")
COST = st.integers(1, 100)
AMOUNT = st.integers(-120, 120)


@dataclass
class ModelJob:
    """One job as the model knows it: the rows' amounts by type, and the two flags."""

    account: str
    cost: int
    amounts: dict[str, list[int]] = field(default_factory=dict)
    refunded: bool = False
    reclaimed: bool = False
    lost: set[str] = field(default_factory=set)  # rows whose flag alone was written

    @property
    def net(self) -> int:
        return sum(sum(one) for one in self.amounts.values())

    @property
    def right(self) -> int:
        return 0 if self.refunded and not self.reclaimed else -self.cost

    def stands(self, row_type: str) -> bool:
        return bool(self.amounts.get(row_type))

    def add(self, row_type: str, amount: int) -> None:
        self.amounts.setdefault(row_type, []).append(amount)


class LedgerMachine(RuleBasedStateMachine):
    """Grants, steps, foreign rows, lost rows, flags by hand, repairs and corrections."""

    stores: ClassVar[Stores]
    unique: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, ModelJob] = {}
        self.granted: dict[str, int] = dict.fromkeys(ACCOUNTS, 0)
        self.number = 0
        for name in ("jobs", "ledger", "outbox"):
            self.stores.mongo.collection(name).delete_many({})

    def next_id(self) -> str:
        self.number += 1
        return f"op-{self.number}"

    # what the program does

    @initialize(cost=COST)
    def begin(self, cost: int) -> None:
        self.charge("acct-1", cost)

    @rule(account=st.sampled_from(ACCOUNTS), cost=COST)
    def charge(self, account: str, cost: int) -> None:
        job_id = f"job-{len(self.jobs)}"
        result = steps.charge(
            self.stores, job_id, account=account, cost=cost, operation_id=self.next_id()
        )
        assert result.outcome is Outcome.APPLIED
        self.jobs[job_id] = ModelJob(account, cost, {"charge": [-cost]})

    @rule(account=st.sampled_from(ACCOUNTS), amount=st.integers(1, 10**12))
    def grant(self, account: str, amount: int) -> None:
        key = self.next_id()
        for _ in range(2):  # a repeat changes nothing
            steps.grant(self.stores, account, amount, key=key, operation_id=key)
        self.granted[account] += amount

    @rule(pick=st.randoms(use_true_random=False))
    def refund(self, pick: Any) -> None:
        job_id, job = pick.choice(sorted(self.jobs.items()))
        result = steps.refund(self.stores, job_id, operation_id=self.next_id())
        if result.applied:
            assert not job.stands("refund")
            assert result.amount == job.cost
            job.refunded = True
            job.lost.discard("refund")
            job.add("refund", job.cost)
        elif result.outcome is Outcome.ALREADY_REFUNDED:
            assert job.refunded
            assert job.stands("refund")

    @rule(pick=st.randoms(use_true_random=False))
    def reclaim(self, pick: Any) -> None:
        job_id, job = pick.choice(sorted(self.jobs.items()))
        result = steps.reclaim(self.stores, job_id, operation_id=self.next_id())
        if result.applied:
            assert job.refunded
            assert not job.stands("reclaim")
            assert result.amount == -job.cost
            job.reclaimed = True
            job.lost.discard("reclaim")
            job.add("reclaim", -job.cost)
        elif result.outcome is Outcome.NEVER_REFUNDED:
            assert not job.refunded

    # what others do to it

    @rule(pick=st.randoms(use_true_random=False))
    def lose_a_row(self, pick: Any) -> None:
        """A worker dies between flag and row."""
        job_id, job = pick.choice(sorted(self.jobs.items()))
        if not job.refunded and not job.stands("refund"):
            self.flag(job_id, "refunded")
            job.refunded = True
            job.lost.add("refund")
        elif job.refunded and not job.reclaimed and not job.stands("reclaim"):
            self.flag(job_id, "reclaimed")
            job.reclaimed = True
            job.lost.add("reclaim")

    @rule(pick=st.randoms(use_true_random=False), amount=AMOUNT)
    def foreign_row(self, pick: Any, amount: int) -> None:
        """A row of another program, under an id of its own, of any amount, flag or no flag."""
        job_id, job = pick.choice(sorted(self.jobs.items()))
        row_type = pick.choice(["refund", "reclaim"])
        if self.unique and job.stands(row_type):
            return
        self.insert_row(job_id, job, row_type, amount)
        job.lost.discard(row_type)

    @precondition(lambda self: not self.unique)
    @rule(pick=st.randoms(use_true_random=False))
    def second_row(self, pick: Any) -> None:
        """The same refund once more, where no index keeps it out."""
        job_id, job = pick.choice(sorted(self.jobs.items()))
        if job.stands("refund"):
            self.insert_row(job_id, job, "refund", job.cost)

    @rule(pick=st.randoms(use_true_random=False), absent=st.booleans())
    def drop_flag(self, pick: Any, absent: bool) -> None:
        """An old job document that lacks a flag, or holds null."""
        job_id, job = pick.choice(sorted(self.jobs.items()))
        if not job.refunded:
            change = {"$unset": {"is_refunded": 1}} if absent else {"$set": {"is_refunded": None}}
            self.stores.mongo.collection("jobs").update_one({"_id": job_id}, change)

    def flag(self, job_id: str, name: str) -> None:
        fields = {f"is_{name}": True, f"{name}_at": NOON}
        self.stores.mongo.collection("jobs").update_one({"_id": job_id}, {"$set": fields})

    def insert_row(self, job_id: str, job: ModelJob, row_type: str, amount: int) -> None:
        self.stores.mongo.collection("ledger").insert_one(
            {
                "_id": ObjectId(),
                "job_id": job_id,
                "account_id": job.account,
                "type": row_type,
                "amount": amount,
                "created_at": NOON,
            }
        )
        job.add(row_type, amount)

    # healing

    @rule()
    def repair(self) -> None:
        before = self.rows()
        run = make_run(self.next_id())
        repairer = Repairer(self.stores, Scope(), timedelta(0))
        repairer.apply(repairer.select(), run)
        assert run.result.fates[Fate.REFUSED] == 0
        assert [one for one in self.found() if one.repairable] == []
        assert repairer.select().repairs == 0
        after = self.rows()
        assert all(after[row_id] == row for row_id, row in before.items())  # append-only
        self.learn(after)

    @rule(pick=st.randoms(use_true_random=False))
    def correct(self, pick: Any) -> None:
        job_id, job = pick.choice(sorted(self.jobs.items()))
        result = corrections.correct(self.stores, job_id, operation_id=self.next_id())
        if result.amount is not None:
            job.add("correction", result.amount)
        again = corrections.correct(self.stores, job_id, operation_id=self.next_id())
        assert again.row_id is None
        left = [one for one in audit(load(self.stores, [job_id])[0]) if one.code in MADE_GOOD]
        if result.fate in {Fate.DONE, Fate.ALREADY}:
            assert sum(one.effect for one in left) == 0
        if result.fate in {Fate.DONE, Fate.ALREADY} and not [
            one for one in self.of(job_id) if one.repairable
        ]:
            assert job.net == job.right

    def learn(self, rows: dict[str, Any]) -> None:
        """Take over what a repair wrote: rows under our ids, and the flags that rows prove."""
        for job_id, job in self.jobs.items():
            for row_type in sorted(job.lost):
                row = rows.get(f"{job_id}:{row_type}")
                if row is not None:
                    job.add(row_type, int(row["amount"]))
                    job.lost.discard(row_type)
            stored = self.stores.mongo.collection("jobs").find_one({"_id": job_id}) or {}
            assert stored.get("is_refunded") or not job.refunded
            assert stored.get("is_reclaimed") or not job.reclaimed
            job.refunded = stored.get("is_refunded") is True
            job.reclaimed = stored.get("is_reclaimed") is True
            assert job.refunded or not job.reclaimed

    # invariants

    def rows(self) -> dict[str, Any]:
        return {str(one["_id"]): one for one in self.stores.mongo.collection("ledger").find()}

    def found(self) -> list[Finding]:
        return list(Audit(self.stores, Scope()).findings())

    def of(self, job_id: str) -> list[Finding]:
        return audit(load(self.stores, [job_id])[0])

    @invariant()
    def a_balance_is_the_sum_of_the_rows(self) -> None:
        for account in ACCOUNTS:
            due = self.granted[account]
            due += sum(job.net for job in self.jobs.values() if job.account == account)
            if any(job.account == account for job in self.jobs.values()):
                assert balances.show(self.stores, account).tally.balance == due

    @invariant()
    def effects_add_up_to_what_is_off(self) -> None:
        off = dict.fromkeys(self.jobs, 0)
        for finding in self.found():
            if finding.job_id is not None:
                off[finding.job_id] += finding.effect
        assert off == {job_id: job.net - job.right for job_id, job in self.jobs.items()}

    @invariant()
    def a_job_whose_rows_are_right_has_no_finding_about_money(self) -> None:
        """Nothing is found that the model does not know of, and nothing it knows is missed."""
        lost = {
            (finding.job_id, finding.about)
            for finding in self.found()
            if finding.code is Code.MISSING_ROW
        }
        assert lost == {(job_id, one) for job_id, job in self.jobs.items() for one in job.lost}


@contextmanager
def opened(stores: Stores, *, unique: bool) -> Iterator[type[LedgerMachine]]:
    """The machine over these stores, with or without the unique index."""
    if unique:
        build_indexes(stores)

    class Opened(LedgerMachine):
        pass

    Opened.stores, Opened.unique = stores, unique
    yield Opened


@pytest.mark.parametrize("unique", [True, False], ids=["indexed", "bare"])
def test_the_ledger_keeps_its_promises_whatever_happens(stores: Stores, unique: bool) -> None:
    with opened(stores, unique=unique) as machine:
        case = machine.TestCase
        case.settings = settings(
            max_examples=200 if FULL else 15,
            stateful_step_count=25 if FULL else 12,
            deadline=None,
            phases=tuple(Phase) if FULL else (Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        case("runTest").runTest()
