"""The built-in group: days recomputed once a batch, overwritten, and marked with their figures."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from bson import Int64

from ledgerctl.domain.inbox import Claim, Left
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.domain.rows import Message
from ledgerctl.errors import JobHeld
from ledgerctl.operations.claims import Claims
from ledgerctl.operations.consume import Backlog, Counts, Until, consume
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.summaries import Recomputed, recompute_days
from ledgerctl.operations.usage_daily import GROUP, UsageDaily
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.outbox import TOPIC
from tests.builders import NOON, make_job, make_message, make_row, without
from tests.conftest import Runner

POLICY = RetryPolicy(base=timedelta(0), cap=timedelta(0), max_attempts=3)


@pytest.fixture(params=["replica set", "standalone"])
def deployment(request: pytest.FixtureRequest) -> Stores:
    """The stores on each kind of server, with the indexes built."""
    name = "stores" if request.param == "replica set" else "standalone_stores"
    opened: Stores = request.getfixturevalue(name)
    build_indexes(opened)
    return opened


def put(stores: Stores, job: str, **overrides: Any) -> None:
    """A charge row of 40 credits and its message."""
    row = make_row(job, recorded_at=NOON, **overrides)
    stores.mongo.collection("ledger").insert_one(row)
    put_message(stores, row["_id"], {name: row[name] for name in ("account_id", "created_at")})


def put_message(stores: Stores, key: str, payload: Any) -> None:
    message = make_message(key, topic=TOPIC, tenant_id=None, payload=payload)
    stores.mongo.collection("outbox").insert_one(message)


def rows(stores: Stores) -> dict[str, Any]:
    return {one["message_key"]: one for one in stores.mongo.collection("inbox").find()}


def nets(stores: Stores) -> dict[str, int]:
    return {one["_id"]: int(one["net"]) for one in stores.mongo.collection("usage_daily").find()}


Recompute = Callable[..., Recomputed]


def consumed(stores: Stores, recompute: Recompute = recompute_days) -> Counts:
    """Consume everything that is due."""
    claims = Claims(stores, GROUP, owner="tester", policy=POLICY)
    work = UsageDaily(stores, claims, stores.settings.zone, recompute)
    backlog = Backlog(stores, GROUP, TOPIC, claims.claim_for)
    counts = Counts()
    consume(backlog, work, counts, until=Until.EMPTY, stopping=lambda: False)
    return counts


class Counted:
    """The real recomputation; counts its calls and their pairs, and may fail on one account."""

    def __init__(self, fails_on: str = "") -> None:
        self.pairs: list[list[tuple[str, str]]] = []
        self._fails_on = fails_on

    def __call__(
        self, stores: Stores, pairs: Iterable[tuple[str, str]], session: Any = None
    ) -> Recomputed:
        self.pairs.append(sorted(pairs))
        if any(account == self._fails_on for account, _ in self.pairs[-1]):
            raise JobHeld("somebody holds it")
        return recompute_days(stores, self.pairs[-1], session)


def test_each_day_of_an_account_is_recomputed_once_and_all_its_messages_are_marked(
    deployment: Stores,
) -> None:
    for at in range(6):
        put(
            deployment,
            f"job-{at}",
            account_id=f"acct-{at % 2}",
            created_at=NOON + timedelta(days=at // 4),
        )
    counted = Counted()
    counts = consumed(deployment, counted)
    assert (counts.handled, counts.succeeded) == (6, 6)
    assert counted.pairs == [
        [
            ("acct-0", "2026-03-08"),
            ("acct-0", "2026-03-09"),
            ("acct-1", "2026-03-08"),
            ("acct-1", "2026-03-09"),
        ]
    ]
    assert nets(deployment) == {
        "acct-0:2026-03-08": 80,
        "acct-0:2026-03-09": 40,
        "acct-1:2026-03-08": 80,
        "acct-1:2026-03-09": 40,
    }
    for row in rows(deployment).values():
        assert (row["status"], row["attempts"]) == ("succeeded", 0)


def test_two_thousand_messages_of_one_day_cost_four_recomputations(stores: Stores) -> None:
    build_indexes(stores)
    jobs = [f"job-{at}" for at in range(2_000)]
    stores.mongo.collection("ledger").insert_many([make_row(job, recorded_at=NOON) for job in jobs])
    payload = {"account_id": "acct-1", "created_at": NOON}
    stores.mongo.collection("outbox").insert_many(
        [make_message(f"{job}:charge", topic=TOPIC, payload=payload) for job in jobs]
    )
    counted = Counted()
    assert consumed(stores, counted).succeeded == 2_000
    assert len(counted.pairs) == 4
    assert nets(stores) == {"acct-1:2026-03-08": 80_000}


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "text",
        {},
        {"account_id": "acct-1"},
        {"account_id": "acct-1", "created_at": "yesterday"},
        {"created_at": NOON},
        {"account_id": "", "created_at": NOON},
    ],
)
def test_an_unusable_payload_holds_nobody_up_and_ends_dead(stores: Stores, payload: Any) -> None:
    build_indexes(stores)
    put_message(stores, "a-poison", payload)
    put(stores, "job-1")
    counts = consumed(stores)
    assert (counts.succeeded, counts.failed, counts.dead) == (1, 3, 1)
    poison = rows(stores)["a-poison"]
    assert (poison["status"], poison["attempts"]) == ("dead", 3)
    assert "unusable payload" in poison["last_error"]
    assert rows(stores)["job-1:charge"]["status"] == "succeeded"


def test_a_day_that_cannot_be_computed_holds_no_other_up(deployment: Stores) -> None:
    for at in range(3):
        put(deployment, f"job-{at}", account_id=f"acct-{at}")
    counts = consumed(deployment, Counted(fails_on="acct-1"))
    assert (counts.succeeded, counts.failed, counts.dead) == (2, 3, 1)
    assert nets(deployment) == {"acct-0:2026-03-08": 40, "acct-2:2026-03-08": 40}
    assert rows(deployment)["job-1:charge"]["last_error"] == "somebody holds it"


def test_a_day_with_a_row_that_cannot_be_summed_fails_its_own_messages(stores: Stores) -> None:
    build_indexes(stores)
    put(stores, "job-1", amount="many")
    put(stores, "job-2", account_id="acct-2")
    counts = consumed(stores)
    assert (counts.succeeded, counts.dead) == (1, 1)
    assert "cannot be summed" in rows(stores)["job-1:charge"]["last_error"]
    assert nets(stores) == {"acct-2:2026-03-08": 40}


def test_a_text_time_and_a_tenant_instead_of_an_account_are_understood(stores: Stores) -> None:
    build_indexes(stores)
    put(stores, "job-1")
    stores.mongo.collection("outbox").update_one(
        {"_id": "job-1:charge"},
        {"$set": {"tenant_id": "acct-1", "payload": {"created_at": "2026-03-08T13:00:00+01:00"}}},
    )
    assert consumed(stores).succeeded == 1
    assert nets(stores) == {"acct-1:2026-03-08": 40}


def test_a_message_without_an_account_is_about_its_jobs_account(deployment: Stores) -> None:
    deployment.mongo.collection("jobs").insert_many(
        [make_job(7, account_id="acct-7"), make_job("7", account_id="other")]
    )
    row = without(make_row(7, _id="foreign", created_at=NOON), "account_id")
    deployment.mongo.collection("ledger").insert_one(row)
    put_message(
        deployment, "foreign", {"account_id": None, "job_id": row["job_id"], "created_at": NOON}
    )
    assert consumed(deployment).succeeded == 1
    assert nets(deployment) == {f"acct-7:{NOON.date().isoformat()}": 40}


def test_figures_and_marks_land_together_or_not_at_all(stores: Stores) -> None:
    build_indexes(stores)
    put(stores, "job-1")

    class Killed(BaseException):
        """Nothing after it runs."""

    def recompute(*given: Any) -> Recomputed:
        recompute_days(*given)
        raise Killed

    with pytest.raises(Killed):
        consumed(stores, recompute)
    assert nets(stores) == {}
    assert rows(stores)["job-1:charge"]["status"] == "claimed"


def test_a_redelivered_message_changes_no_figure(run: Runner, stores: Stores) -> None:
    build_indexes(stores)
    put(stores, "job-1", amount=Int64(-7))
    command = ("inbox", "consume", "--group", GROUP, "--until-empty", "-o", "json")
    assert run(*command).json()["succeeded"] == 1
    for _ in range(5):
        assert run(*command, "--full").json()["handled"] == 0
    assert nets(stores) == {"acct-1:2026-03-08": 7}


def test_other_topics_are_not_read(run: Runner, stores: Stores) -> None:
    build_indexes(stores)
    stores.mongo.collection("outbox").insert_one(make_message("m-1", topic="job.failed"))
    result = run("inbox", "consume", "--group", GROUP, "--until-empty", "-o", "json")
    assert (result.code, result.json()["handled"]) == (0, 0)
    assert rows(stores) == {}


def test_once_takes_at_most_five_hundred_messages(run: Runner, stores: Stores) -> None:
    build_indexes(stores)
    payload = {"account_id": "acct-1", "created_at": NOON}
    stores.mongo.collection("outbox").insert_many(
        [make_message(f"m-{at}", topic=TOPIC, payload=payload) for at in range(600)]
    )
    result = run("inbox", "consume", "--group", GROUP, "--once", "-o", "json")
    assert result.json()["handled"] == 500


# adding up without a claim, as four of the incident's consumers did


def adds_up(stores: Stores, message: Message) -> None:
    """The wrong version: each delivery adds the message's amount to the summary."""
    stores.mongo.collection("usage_daily").update_one(
        {"_id": "acct-1:2026-03-08"}, {"$inc": {"net": 40}}, upsert=True
    )
    claim: Claim | Left = Claims(stores, GROUP, owner="wrong", policy=POLICY).claim(message)
    assert claim is not None


def overwrites(stores: Stores, message: Message) -> None:
    """The product: a delivery overwrites the summary from the ledger, under a claim."""
    claims = Claims(stores, GROUP, owner="tester", policy=POLICY)
    UsageDaily(stores, claims, stores.settings.zone)([message], Counts(), lambda: False)


def five_deliveries_leave_the_ledgers_figure(stores: Stores, consumer: Any) -> None:
    put(stores, "job-1")
    (message,) = stores.outbox.of_keys(["job-1:charge"])
    for _ in range(5):
        consumer(stores, message)
    assert nets(stores) == {"acct-1:2026-03-08": 40}


def test_a_summary_is_overwritten_from_the_ledger(deployment: Stores) -> None:
    five_deliveries_leave_the_ledgers_figure(deployment, overwrites)


def test_adding_without_a_claim_is_caught(stores: Stores) -> None:
    build_indexes(stores)
    with pytest.raises(AssertionError):
        five_deliveries_leave_the_ledgers_figure(stores, adds_up)
