"""The doctor's judgements that need no store."""

from datetime import timedelta

import pytest

from ledgerctl.domain.doctor import (
    Check,
    CheckResult,
    CheckStatus,
    FlagCounts,
    judge_clock,
    judge_eviction,
    judge_flags,
    judge_persistence,
    worst_first,
)


@pytest.mark.parametrize(
    ("seconds", "status"), [(0, "ok"), (2.9, "ok"), (-2.9, "ok"), (3.1, "warn"), (-300, "warn")]
)
def test_a_clock_may_be_off_by_three_seconds(seconds: float, status: str) -> None:
    assert judge_clock(timedelta(seconds=seconds), "it").status == status


@pytest.mark.parametrize(
    ("policy", "limit", "used", "status"),
    [
        ("noeviction", 0, 10, "ok"),
        ("volatile-ttl", 100, 50, "ok"),
        ("allkeys-lfu", 0, 10, "warn"),
        ("allkeys-random", 100, 1, "warn"),
        ("noeviction", 100, 90, "ok"),
        ("noeviction", 100, 91, "warn"),
    ],
)
def test_lists_are_dropped_only_by_policies_for_all_keys(
    policy: str, limit: int, used: int, status: str
) -> None:
    assert judge_eviction(policy, limit, used).status == status


@pytest.mark.parametrize(
    ("facts", "save", "status", "words"),
    [
        ({"aof_enabled": 1}, None, "ok", "append-only"),
        ({"aof_enabled": 0}, "", "warn", "nothing is saved"),
        ({"aof_enabled": 0}, "3600 1", "warn", "only snapshots at `3600 1`"),
        ({"aof_enabled": 0}, None, "warn", "only snapshots:"),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, None, "fail", "cannot save"),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "err"}, "60 1", "fail", "cannot save"),
    ],
)
def test_what_a_restart_keeps(
    facts: dict[str, object], save: str | None, status: str, words: str
) -> None:
    finding = judge_persistence(facts, save)
    assert (finding.status, words in finding.detail) == (status, True)


def test_a_sample_says_that_it_is_one() -> None:
    finding = judge_flags(FlagCounts(jobs=10, absent=1, not_boolean=0, corrupt=0, sampled=True))
    assert "1 of a sample of 10 jobs" in finding.detail


def test_what_failed_comes_first_and_the_rest_keeps_its_order() -> None:
    given = [
        Check(name, CheckResult(status, ""))
        for name, status in (
            ("a", CheckStatus.OK), ("b", CheckStatus.FAIL), ("c", CheckStatus.WARN), ("d", CheckStatus.OK), ("e", CheckStatus.UNKNOWN),
        )
    ]  # fmt: skip
    assert [check.id for check in worst_first(given)] == ["b", "c", "e", "a", "d"]
