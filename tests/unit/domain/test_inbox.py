"""What a claim's state means, what is stuck, and which look-ups can be trusted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledgerctl.domain.ids import Id
from ledgerctl.domain.inbox import (
    ClaimRow,
    ClaimStatus,
    ClaimVerdict,
    Lookup,
    Why,
    attempts_after_take,
    default_lookups,
    every,
    is_enforced,
    judge,
    parse_lookup,
    problems_of,
    short_error,
    why_stuck,
)
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.errors import UsageError

NOW = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MS = timedelta(milliseconds=1)
POLICY = RetryPolicy(base=timedelta(seconds=30), cap=timedelta(hours=1), max_attempts=5)
ENFORCED = ("consumer_group", "message_key")


def standing(**overrides: Any) -> ClaimRow:
    """A claim that lapsed a minute ago."""
    fields: dict[str, Any] = {
        "row": "row-1",
        "group": "mail",
        "message": Id("m-1"),
        "status": "claimed",
        "attempts": 0,
        "deliveries": 1,
        "first_seen_at": NOW - 2 * MINUTE,
        "last_seen_at": NOW - 2 * MINUTE,
        "claimed_until": NOW - MINUTE,
        "not_before": None,
        "completed_at": None,
        "last_error": None,
        "now": NOW,
    }
    return ClaimRow(**fields | overrides)


@pytest.mark.parametrize(
    ("overrides", "verdict"),
    [
        ({"status": "succeeded", "completed_at": NOW}, ClaimVerdict.DONE),
        ({"status": "succeeded"}, ClaimVerdict.UNMARKED),
        ({"status": "dead"}, ClaimVerdict.DEAD),
        ({"status": "dead", "completed_at": NOW}, ClaimVerdict.DEAD),
        ({"status": "failed"}, ClaimVerdict.DUE),
        ({"status": "failed", "not_before": NOW}, ClaimVerdict.DUE),
        ({"status": "failed", "not_before": NOW + MS}, ClaimVerdict.WAITING),
        ({"claimed_until": NOW + MS}, ClaimVerdict.HELD),
        ({"claimed_until": NOW}, ClaimVerdict.EXPIRED),
        ({"claimed_until": None, "last_seen_at": NOW - MINUTE + MS}, ClaimVerdict.HELD),
        ({"claimed_until": None, "last_seen_at": NOW - MINUTE}, ClaimVerdict.EXPIRED),
        ({"claimed_until": None, "last_seen_at": None}, ClaimVerdict.EXPIRED),
        (
            {"claimed_until": None, "last_seen_at": None, "first_seen_at": None},
            ClaimVerdict.EXPIRED,
        ),
        ({"status": "processing", "claimed_until": NOW + MS}, ClaimVerdict.HELD),
        ({"status": ""}, ClaimVerdict.EXPIRED),
    ],
)
def test_a_rejection_has_exactly_one_meaning(
    overrides: dict[str, Any], verdict: ClaimVerdict
) -> None:
    assert judge(standing(**overrides)) is verdict


def test_only_an_abandoned_claim_counts_when_it_is_taken() -> None:
    assert attempts_after_take(standing(attempts=2), ClaimVerdict.EXPIRED) == 3
    assert attempts_after_take(standing(attempts=2), ClaimVerdict.DUE) == 2


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"first_seen_at": NOW - 5 * MINUTE}, (Why.NOT_COMPLETED,)),
        ({"first_seen_at": NOW - 5 * MINUTE + MS}, ()),
        ({"first_seen_at": None, "last_seen_at": None}, (Why.NOT_COMPLETED,)),
        ({"status": "succeeded", "completed_at": NOW, "first_seen_at": NOW - 99 * MINUTE}, ()),
        ({"status": "succeeded", "first_seen_at": NOW - 9 * MINUTE}, (Why.NOT_COMPLETED,)),
        ({"status": "succeeded", "completed_at": NOW - MINUTE, "last_seen_at": NOW}, (Why.DELIVERED_AGAIN,)),
        ({"status": "succeeded", "completed_at": NOW, "last_seen_at": NOW}, ()),
        ({"deliveries": 6}, (Why.TOO_MANY_DELIVERIES,)),
        ({"deliveries": 5}, ()),
        ({"status": "dead", "first_seen_at": NOW - 9 * MINUTE}, (Why.NOT_COMPLETED,)),
        ({"status": "dead", "first_seen_at": NOW - 9 * MINUTE, "completed_at": NOW}, ()),
        (
            {"first_seen_at": NOW - 360 * MINUTE, "last_seen_at": NOW, "deliveries": 480},
            (Why.NOT_COMPLETED, Why.TOO_MANY_DELIVERIES),
        ),
    ],
)  # fmt: skip
def test_stuck_goes_by_age_and_frequency(overrides: dict[str, Any], why: tuple[Why, ...]) -> None:
    assert why_stuck(standing(**overrides), 5 * MINUTE, POLICY) == why


def test_how_often_a_message_comes_back_is_an_average() -> None:
    circling = standing(first_seen_at=NOW - 3 * MINUTE, last_seen_at=NOW, deliveries=5)
    assert every(circling) == timedelta(seconds=45)
    assert every(standing()) is None


@pytest.mark.parametrize("text", ["", "a,", ",a", "a,,b", "a,a", "$where", "a,\x00"])
def test_a_lookup_of_no_sensible_fields_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_lookup(text)


def test_a_lookup_is_a_list_of_fields() -> None:
    assert parse_lookup(" tenant_id , message_key") == ("tenant_id", "message_key")


def test_the_defaults_are_every_unique_index_and_tenant_with_key() -> None:
    assert default_lookups([ENFORCED]) == (ENFORCED, ("tenant_id", "message_key"))
    assert default_lookups([]) == (ENFORCED, ("tenant_id", "message_key"))
    assert default_lookups([("tenant_id", "message_key")]) == (("tenant_id", "message_key"),)


def test_only_exactly_the_same_fields_are_enforced() -> None:
    assert is_enforced(("message_key", "consumer_group"), [ENFORCED])
    assert not is_enforced(("message_key",), [ENFORCED])
    assert not is_enforced((*ENFORCED, "tenant_id"), [ENFORCED])


@pytest.mark.parametrize(
    ("lookup", "given", "fails"),
    [
        (Lookup(ENFORCED, enforced=True, found=3), False, []),
        (Lookup(ENFORCED, enforced=True, found=2, missed=1), False, [True]),
        (Lookup(("t", "k"), enforced=False, found=3), False, []),
        (Lookup(("t", "k"), enforced=False, missed=3), False, [False, False]),
        (Lookup(("t", "k"), enforced=False, missed=3), True, [True, True]),
        (Lookup(("t", "k"), enforced=False, found=3), True, [True]),
        (Lookup(ENFORCED, enforced=True, without_message=3), True, []),
    ],
)
def test_what_makes_the_audit_fail(lookup: Lookup, given: bool, fails: list[bool]) -> None:
    found = problems_of([lookup], [ENFORCED], given=given)
    assert [problem.fails for problem in found] == fails


def test_no_unique_index_and_a_shared_key_make_the_audit_fail() -> None:
    assert [one.fails for one in problems_of([], [], given=False)] == [True]
    shared = problems_of([], [ENFORCED], given=False, conflicting=1, conflicting_keys=["m-1"])
    assert [one.code for one in shared] == ["key_conflict"]


def test_an_error_is_one_bounded_line() -> None:
    assert short_error("a\n  b\t c") == "a b c"
    assert len(short_error("x" * 9_999)) == 500
    assert short_error("  ") == "failed without a word"


def test_statuses_are_the_contracts() -> None:
    assert [str(status) for status in ClaimStatus] == ["claimed", "succeeded", "failed", "dead"]
