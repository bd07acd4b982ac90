"""What a failure makes of a job, which jobs are settled, and whose worker is dead."""

from datetime import UTC, datetime, timedelta

import pytest

from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import Flag, Job
from ledgerctl.domain.queue import Destination, Hold, failure, hold_of, is_settled, may_name
from ledgerctl.domain.retry import RetryPolicy

NOW = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)
POLICY = RetryPolicy(timedelta(seconds=30), timedelta(hours=1), 5)
ENDLESS = RetryPolicy(timedelta(seconds=30), timedelta(hours=1), 10**9)


def a_job(status: str = "failed", refunded: Flag = Flag.CLEAR, reclaimed: Flag = Flag.CLEAR) -> Job:
    return Job(Id("job-1"), Id("acct-1"), 40, refunded, None, reclaimed, None, status, None)


@pytest.mark.parametrize(("found", "wait_s"), [(0, 60), (1, 120), (2, 240), (3, 480)])
def test_a_failure_counts_one_more_and_waits_by_the_new_count(found: int, wait_s: int) -> None:
    after = failure(found, policy=POLICY, now=NOW)
    assert after.attempts == found + 1
    assert after.place is Destination.RETRY
    assert after.not_before == NOW + timedelta(seconds=wait_s)


@pytest.mark.parametrize("found", [4, 5, 46, 10**6])
def test_at_the_cap_a_job_is_a_dead_letter_without_a_due_time(found: int) -> None:
    after = failure(found, policy=POLICY, now=NOW)
    assert (after.attempts, after.place, after.not_before) == (
        found + 1,
        Destination.DEAD_LETTER,
        None,
    )


@pytest.mark.parametrize("found", [45, 46, 1_023, 1_024, 999_999, 10**8])
def test_the_wait_is_the_cap_however_often_a_job_failed(found: int) -> None:
    assert failure(found, policy=ENDLESS, now=NOW).not_before == NOW + timedelta(hours=1)


def test_a_cap_of_one_attempt_never_retries() -> None:
    once = RetryPolicy(timedelta(0), timedelta(0), 1)
    assert failure(0, policy=once, now=NOW).place is Destination.DEAD_LETTER


@pytest.mark.parametrize(
    ("job", "settled"),
    [
        (a_job(), False),
        (a_job("running"), False),
        (a_job("succeeded"), True),
        (a_job("succeeded", Flag.SET), True),
        (a_job("failed", Flag.SET), False),
        (a_job("failed", Flag.SET, Flag.SET), True),
        (a_job("failed", Flag.BAD), False),
    ],
)
def test_reclaimed_and_succeeded_jobs_are_settled(job: Job, settled: bool) -> None:
    assert is_settled(job) is settled


@pytest.mark.parametrize(
    ("expired_for_s", "older_than_s", "force", "hold"),
    [
        (None, 600, False, Hold.NO_LEASE),
        (None, 600, True, None),
        (-3, 0, False, Hold.LIVE),
        (-3, 0, True, Hold.LIVE),
        (60, 600, False, Hold.RECENT),
        (60, 600, True, Hold.RECENT),
        (594, 600, False, Hold.RECENT),
        (595, 600, False, None),
        (0, 5, False, None),
    ],
)
def test_only_workers_silent_for_long_enough_are_dead(
    expired_for_s: int | None, older_than_s: int, force: bool, hold: Hold | None
) -> None:
    expired_for = None if expired_for_s is None else timedelta(seconds=expired_for_s)
    older_than = timedelta(seconds=older_than_s)
    assert hold_of(expired_for, older_than=older_than, force=force) is hold


def test_the_sieve_lets_every_spelling_of_an_id_through() -> None:
    assert may_name(b'{"job_id":"j1"}', "j1")
    assert may_name(b'{"job_id":"\\u006a1"}', "j1")
    assert may_name(b'{"job_id":42}', "42")
    assert not may_name(b'{"job_id":"other"}', "j1")
