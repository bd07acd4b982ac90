"""The incident's data: the figures of the story, whatever the moment and the day zone."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from ledgerctl.domain.days import day_of, window
from ledgerctl.domain.inbox import is_empty
from ledgerctl.sandbox.story import ACCUMULATING, DRIFTED, GROUPS, LONGEST, Incident, incident
from tests.builders import days_between

UTC_ZONE = ZoneInfo("UTC")
MOMENTS = [
    (datetime(2026, 3, 11, 3, 14, tzinfo=UTC), "UTC"),
    (datetime(2026, 3, 11, 0, 0, tzinfo=UTC), "UTC"),
    (datetime(2026, 4, 5, 23, 59, 59, 999000, tzinfo=UTC), "Europe/Berlin"),
    (datetime(2026, 11, 8, 4, 59, tzinfo=UTC), "America/New_York"),
]


@pytest.fixture(params=MOMENTS, ids=str)
def made(request: pytest.FixtureRequest) -> tuple[Incident, datetime, ZoneInfo]:
    now, zone = request.param[0], ZoneInfo(request.param[1])
    return incident(now, zone), now, zone


def test_the_counts_are_the_storys(made: tuple[Incident, datetime, ZoneInfo]) -> None:
    found, now, _ = made
    assert len(found.inbox) == 3_344
    assert all(is_empty(one.get("tenant_id")) for one in found.inbox)
    assert Counter(type(one.get("tenant_id", 0)) for one in found.inbox).keys() == {
        int,
        str,
        type(None),
    }
    assert len(found.outbox) == 1_451
    assert sum(not is_empty(one.get("tenant_id")) for one in found.outbox) == 1_174
    assert {one["consumer_group"] for one in found.inbox} == set(GROUPS)
    assert (len(GROUPS), len(ACCUMULATING)) == (26, 4)
    assert len({(one["consumer_group"], one["message_key"]) for one in found.inbox}) == 3_344
    slowest = [
        one for one in found.inbox
        if one["completed_at"] and one["completed_at"] - one["first_seen_at"] == LONGEST
    ]  # fmt: skip
    assert len(slowest) == 1
    assert slowest[0]["completed_at"] <= now


def test_nothing_lies_in_the_future(made: tuple[Incident, datetime, ZoneInfo]) -> None:
    found, now, _ = made
    for documents in vars(found).values():
        for one in documents:
            times = [value for value in one.values() if isinstance(value, datetime)]
            assert all(value <= now for value in times), one


def test_no_claim_was_counted_and_marked_ones_ran_again(
    made: tuple[Incident, datetime, ZoneInfo],
) -> None:
    found, _, _ = made
    assert {one["attempts"] for one in found.inbox} == {0}
    marked = [one for one in found.inbox if one["consumer_group"] in ACCUMULATING]
    assert all(one["status"] == "succeeded" and one["deliveries"] > 1 for one in marked)
    assert any(one["completed_at"] is None for one in marked)


def test_four_days_are_drifted_and_every_other_figure_is_the_ledgers(
    made: tuple[Incident, datetime, ZoneInfo],
) -> None:
    found, now, zone = made
    net: Counter[tuple[str, str]] = Counter()
    for row in found.ledger:
        if row["type"] != "grant":
            net[row["account_id"], day_of(row["created_at"], zone)] -= row["amount"]
    ratios = {
        (one["account_id"], one["day"]): one["net"] / net[one["account_id"], one["day"]]
        for one in found.usage_daily
        if one["net"] != net[one["account_id"], one["day"]]
    }
    days = days_between(*window(4, now, zone))[::-1]
    assert ratios == {(one.account, days[one.days_ago]): one.tenths / 10 for one in DRIFTED}
    assert max(ratios.values()) == 2.4
    worst = max(ratios, key=lambda pair: net[pair] * (ratios[pair] - 1))
    assert worst == ("acct-017", days[1])


def test_jobs_and_rows_agree(made: tuple[Incident, datetime, ZoneInfo]) -> None:
    found, _, _ = made
    types = Counter((row.get("job_id"), row["type"]) for row in found.ledger)
    for job in found.jobs:
        assert types[job["_id"], "charge"] == 1
        assert types[job["_id"], "refund"] == job["is_refunded"]
        assert types[job["_id"], "reclaim"] == job["is_reclaimed"]


def test_the_same_moment_tells_the_same_story() -> None:
    now = datetime(2026, 3, 11, 3, 14, tzinfo=UTC)
    assert incident(now, UTC_ZONE) == incident(now, UTC_ZONE)
    later = incident(now + timedelta(days=30), UTC_ZONE)
    assert len(later.inbox) == 3_344
