"""Backoff stays between nothing and its cap, and one rule says when attempts are used up."""

from datetime import UTC, datetime, timedelta

import pytest

from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.errors import UsageError

NOW = datetime(2026, 3, 8, 9, 15, tzinfo=UTC)


def policy(*, base_s: float = 30, cap_s: float = 3600, max_attempts: int = 5) -> RetryPolicy:
    return RetryPolicy(timedelta(seconds=base_s), timedelta(seconds=cap_s), max_attempts)


@pytest.mark.parametrize(
    ("attempts", "delay_s"),
    [(0, 30), (1, 60), (2, 120), (6, 1920), (7, 3600), (46, 3600), (47, 3600)]
    + [(count, 3600) for count in (1024, 1_000_000, 10**400)],
)
def test_the_delay_doubles_with_each_attempt_up_to_the_cap(attempts: int, delay_s: int) -> None:
    assert policy().delay(attempts) == timedelta(seconds=delay_s)


@pytest.mark.parametrize("attempts", [0, 46, 47, 1024, 1_000_000])
def test_a_base_of_zero_never_waits(attempts: int) -> None:
    assert policy(base_s=0).delay(attempts) == timedelta(0)
    assert policy(cap_s=0).delay(attempts) == timedelta(0)


@pytest.mark.parametrize("attempts", [0, 46, 1_000_000])
def test_a_base_beyond_the_cap_waits_for_the_cap(attempts: int) -> None:
    assert policy(base_s=7200).delay(attempts) == timedelta(hours=1)


@pytest.mark.parametrize("attempts", [1, 46, 47, 1024, 1_000_000])
def test_the_longest_policy_there_is_does_not_overflow(attempts: int) -> None:
    longest = RetryPolicy(timedelta.max, timedelta.max, 5)
    assert longest.delay(attempts) == timedelta.max
    assert longest.due_at(NOW, attempts).year == 9999
    slowest = RetryPolicy(timedelta(microseconds=1), timedelta.max, 5)
    assert timedelta(0) < slowest.delay(attempts) <= timedelta.max


def test_a_job_is_due_a_delay_after_now() -> None:
    assert policy().due_at(NOW, 3) == NOW + timedelta(minutes=4)


@pytest.mark.parametrize(
    ("limit", "exhausted"),
    [(3, {2: False, 3: True, 4: True}), (1, {0: False, 1: True}), (0, {0: True, 1: True})],
)
def test_a_job_is_a_dead_letter_once_its_count_reaches_the_limit(
    limit: int, exhausted: dict[int, bool]
) -> None:
    found = {count: policy(max_attempts=limit).is_exhausted(count) for count in exhausted}
    assert found == exhausted


@pytest.mark.parametrize(("base_s", "cap_s", "max_attempts"), [(-1, 1, 1), (1, -1, 1), (1, 1, -1)])
def test_a_negative_policy_is_refused(base_s: int, cap_s: int, max_attempts: int) -> None:
    with pytest.raises(UsageError):
        policy(base_s=base_s, cap_s=cap_s, max_attempts=max_attempts)
