"""Each rule of the inbox as a claim: green for the product, red for its wrong version."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest

from ledgerctl.domain.inbox import Claim, ClaimVerdict, Finish, Left
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.domain.rows import Message
from ledgerctl.errors import Refused
from ledgerctl.operations.claims import Claims, message_of
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_claim, without
from tests.wrong_versions import inbox as wrong

AT_ONCE = RetryPolicy(base=timedelta(0), cap=timedelta(0), max_attempts=3)
MESSAGE = message_of("m-1", tenant="acct-1", payload={"amount": 1})


class Effects(list[str]):
    """Counts what a handler did; may raise, or die like a killed process."""

    def __init__(self, trouble: BaseException | None = None) -> None:
        super().__init__()
        self.trouble = trouble

    def __call__(self, claim: Claim, _session: Any) -> None:
        self.append(claim.message.id.text)
        if self.trouble is not None:
            raise self.trouble


class Killed(BaseException):
    """Nothing after it runs, as after kill -9."""


def consumer(stores: Stores, kind: type[Claims]) -> Claims:
    """A consumer of group `mail`, whose failures are due again at once."""
    return kind(stores, "mail", owner="tester", policy=AT_ONCE)


def row(stores: Stores) -> Any:
    """The only row of the inbox."""
    (only,) = stores.mongo.collection("inbox").find()
    return only


def lapse(stores: Stores) -> None:
    """Let every claim lapse, as if its time had passed."""
    stores.mongo.collection("inbox").update_many({}, {"$set": {"claimed_until": NOON}})


def put(stores: Stores, **overrides: Any) -> None:
    """A claim as the service of the incident wrote it: without a tenant."""
    claim = without(make_claim(**overrides), "tenant_id")
    stores.mongo.collection("inbox").insert_one(claim)


def taken(stores: Stores, kind: type[Claims]) -> Claim:
    """A claim in hand."""
    claim = consumer(stores, kind).claim(MESSAGE)
    assert isinstance(claim, Claim)
    return claim


def a_processed_message_is_found_by_group_and_key(stores: Stores, kind: type[Claims]) -> None:
    put(stores, status="succeeded", completed_at=NOON)
    answer = consumer(stores, kind).claim(MESSAGE)
    assert isinstance(answer, Left)
    assert answer.verdict is ClaimVerdict.DONE


def nine_deliveries_have_one_effect(stores: Stores, kind: type[Claims]) -> None:
    effects = Effects()
    for _ in range(9):
        consumer(stores, kind).deliver(MESSAGE, effects)
    assert effects == ["m-1"]


def a_failed_message_is_taken_when_it_is_due(stores: Stores, kind: type[Claims]) -> None:
    put(stores, status="failed", attempts=1, not_before=NOON)
    effects = Effects()
    consumer(stores, kind).deliver(MESSAGE, effects)
    assert effects == ["m-1"]
    assert (row(stores)["status"], row(stores)["attempts"]) == ("succeeded", 1)


def every_failure_is_counted(stores: Stores, kind: type[Claims]) -> None:
    for attempts in (1, 2):
        consumer(stores, kind).deliver(MESSAGE, Effects(ValueError("no")))
        assert row(stores)["attempts"] == attempts
    assert row(stores)["last_error"] == "ValueError: no"


def the_cap_ends_a_poison_message(stores: Stores, kind: type[Claims]) -> None:
    effects = Effects(ValueError("no"))
    for _ in range(9):
        consumer(stores, kind).deliver(MESSAGE, effects)
    assert len(effects) == AT_ONCE.max_attempts
    assert (row(stores)["status"], row(stores)["attempts"]) == ("dead", 3)


def an_abandoned_claim_is_taken_over(stores: Stores, kind: type[Claims]) -> None:
    put(stores, claimed_until=NOON)
    effects = Effects()
    consumer(stores, kind).deliver(MESSAGE, effects)
    assert effects == ["m-1"]
    assert row(stores)["status"] == "succeeded"


def a_message_that_kills_its_consumer_ends_dead(stores: Stores, kind: type[Claims]) -> None:
    effects = Effects(Killed())
    for _ in range(9):
        try:
            consumer(stores, kind).deliver(MESSAGE, effects)
        except Killed:
            lapse(stores)
    assert len(effects) == AT_ONCE.max_attempts
    assert (row(stores)["status"], row(stores)["attempts"]) == ("dead", 3)


def a_live_claim_is_left(stores: Stores, kind: type[Claims]) -> None:
    taken(stores, kind)
    before = row(stores)
    answer = consumer(stores, kind).claim(MESSAGE, delivered=False)
    assert isinstance(answer, Left)
    assert answer.verdict is ClaimVerdict.HELD
    assert row(stores) == before


def a_late_success_overwrites_no_newer_one(stores: Stores, kind: type[Claims]) -> None:
    slow = taken(stores, kind)
    lapse(stores)
    newer = taken(stores, kind)
    assert consumer(stores, kind).succeeded([newer]) == [newer]
    before = row(stores)
    assert consumer(stores, kind).succeeded([slow]) == []
    assert row(stores) == before


def a_late_failure_overwrites_no_newer_end(stores: Stores, kind: type[Claims]) -> None:
    slow = taken(stores, kind)
    lapse(stores)
    newer = taken(stores, kind)
    before = row(stores)
    assert consumer(stores, kind).failed(slow, "late") is Finish.SUPERSEDED
    assert row(stores) == before
    consumer(stores, kind).succeeded([newer])
    assert consumer(stores, kind).failed(slow, "late") is Finish.SUPERSEDED
    assert (row(stores)["status"], row(stores)["last_error"]) == ("succeeded", None)


def a_late_success_is_not_lost(stores: Stores, kind: type[Claims]) -> None:
    slow = taken(stores, kind)
    lapse(stores)
    newer = taken(stores, kind)
    consumer(stores, kind).succeeded([slow])
    assert row(stores)["status"] == "succeeded"
    assert consumer(stores, kind).failed(newer, "no") is Finish.SUPERSEDED
    assert row(stores)["completed_at"] is not None


def a_crash_before_the_mark_loses_nothing(stores: Stores, kind: type[Claims]) -> None:
    with pytest.raises(Killed):
        consumer(stores, kind).deliver(MESSAGE, Effects(Killed()))
    lapse(stores)
    effects = Effects()
    consumer(stores, kind).deliver(MESSAGE, effects)
    assert effects == ["m-1"]


def two_consumers_at_once_claim_a_message_once(stores: Stores, kind: type[Claims]) -> None:
    start = Barrier(4)

    def compete(_: int) -> Claim | Left:
        start.wait()
        return consumer(stores, kind).claim(MESSAGE)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(compete, range(4)))
    assert sum(isinstance(answer, Claim) for answer in answers) == 1


Rule = Callable[[Stores, type[Claims]], None]
RULES: list[tuple[Rule, list[type[Claims]]]] = [
    (a_processed_message_is_found_by_group_and_key, [wrong.LookupByTenant]),
    (nine_deliveries_have_one_effect, [wrong.AugustGuard]),
    (a_failed_message_is_taken_when_it_is_due, [wrong.DuplicateSwallowed, wrong.LookupByTenant]),
    (every_failure_is_counted, [wrong.FailureFindsNoRow]),
    (the_cap_ends_a_poison_message, [wrong.CapForgotten, wrong.FailureFindsNoRow]),
    (an_abandoned_claim_is_taken_over, [wrong.ExpiredNeverTaken, wrong.DuplicateSwallowed]),
    (a_message_that_kills_its_consumer_ends_dead, [wrong.TakeoverNotCounted]),
    (a_live_claim_is_left, [wrong.LiveClaimTaken]),
    (a_late_success_overwrites_no_newer_one, [wrong.LateFinishOverwrites]),
    (a_late_failure_overwrites_no_newer_end, [wrong.LateFinishOverwrites]),
    (a_late_success_is_not_lost, [wrong.LateFinishLost]),
    (a_crash_before_the_mark_loses_nothing, [wrong.MarkedBeforeHandling]),
    (two_consumers_at_once_claim_a_message_once, [wrong.LooksThenClaims]),
]
WRONG = [(rule, kind) for rule, kinds in RULES for kind in kinds]


@pytest.fixture(params=["replica set", "standalone"])
def deployment(request: pytest.FixtureRequest) -> Stores:
    """The stores on each kind of server, with the indexes built."""
    name = "stores" if request.param == "replica set" else "standalone_stores"
    opened: Stores = request.getfixturevalue(name)
    build_indexes(opened)
    return opened


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES], ids=lambda rule: rule.__name__)
def test_each_rule_holds(deployment: Stores, rule: Rule) -> None:
    rule(deployment, Claims)


@pytest.mark.parametrize(
    ("rule", "kind"), WRONG, ids=[f"{rule.__name__}-{kind.__name__}" for rule, kind in WRONG]
)
def test_each_rule_is_red_against_its_wrong_version(
    stores: Stores, rule: Rule, kind: type[Claims]
) -> None:
    build_indexes(stores)
    with pytest.raises((AssertionError, Killed, pytest.fail.Exception)):
        rule(stores, kind)


def test_a_message_named_twice_in_one_batch_is_claimed_once(stores: Stores) -> None:
    build_indexes(stores)
    answers = consumer(stores, Claims).claim_many([MESSAGE] * 5)
    assert len(answers) == 1
    assert row(stores)["deliveries"] == 1


def test_each_delivery_of_a_processed_message_is_counted(stores: Stores) -> None:
    build_indexes(stores)
    for _ in range(3):
        consumer(stores, Claims).deliver(MESSAGE, Effects())
    assert row(stores)["deliveries"] == 3
    assert row(stores)["last_seen_at"] > row(stores)["completed_at"]


def test_an_operators_retry_is_not_undone_by_a_late_success(stores: Stores) -> None:
    build_indexes(stores)
    slow = taken(stores, Claims)
    lapse(stores)
    (standing,) = stores.inbox.of_key("m-1")
    assert stores.inbox.retry(standing) is not None
    assert consumer(stores, Claims).succeeded([slow]) == []
    assert row(stores)["status"] == "failed"


def test_a_message_put_back_is_handled_once_even_under_a_limit_of_0(stores: Stores) -> None:
    build_indexes(stores)
    put(stores, status="failed", attempts=0)
    none_allowed = RetryPolicy(base=timedelta(0), cap=timedelta(0), max_attempts=0)
    claims = Claims(stores, "mail", owner="tester", policy=none_allowed)
    assert claims.deliver(MESSAGE, Effects(ValueError("no"))) is Finish.DEAD
    assert (row(stores)["status"], row(stores)["attempts"]) == ("dead", 1)


def test_what_a_handler_writes_in_its_session_lands_with_the_mark_or_not_at_all(
    stores: Stores,
) -> None:
    build_indexes(stores)
    effects = stores.mongo.database["effects"]
    effects.insert_one({"_id": "total", "count": 0})

    def add(fails: bool) -> Callable[[Claim, Any], None]:
        def handler(_claim: Claim, session: Any) -> None:
            effects.update_one({"_id": "total"}, {"$inc": {"count": 1}}, session=session)
            if fails:
                raise ValueError

        return handler

    assert consumer(stores, Claims).deliver(MESSAGE, add(fails=True)) is Finish.FAILED
    assert consumer(stores, Claims).deliver(MESSAGE, add(fails=False)) is Finish.SUCCEEDED
    assert effects.find_one() == {"_id": "total", "count": 1}


def test_a_kept_claim_outlives_its_term_and_a_shortened_one_is_not_lengthened(
    stores: Stores,
) -> None:
    build_indexes(stores)
    claims = Claims(stores, "mail", owner="tester", policy=AT_ONCE, claim_for=timedelta(seconds=1))
    claim = claims.claim(MESSAGE)
    assert isinstance(claim, Claim)
    renewed = claims.renewed([claim])
    assert renewed[0].until > claim.until
    lapse(stores)
    claims.renewed(renewed)
    assert row(stores)["claimed_until"] == NOON


def test_a_claim_that_another_unique_index_rejects_is_never_taken_for_done(stores: Stores) -> None:
    build_indexes(stores)
    stores.mongo.collection("inbox").create_index("message_key", unique=True)
    put(stores, consumer_group="other", status="succeeded", completed_at=NOON)
    with pytest.raises(Refused, match="was rejected"):
        consumer(stores, Claims).claim(Message(MESSAGE.id, MESSAGE.key))
