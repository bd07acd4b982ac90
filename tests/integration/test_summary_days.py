"""Half-hourly rows around clock changes: each counted on one day, and the days sum to the range."""

from datetime import datetime, timedelta

import pytest
from bson import Int64

from ledgerctl.operations.rebuild import rebuild
from ledgerctl.stores.connections import Stores
from tests.builders import make_row
from tests.integration.test_summary_rules import append, in_zone, on
from tests.unit.domain.test_summary import CLOCK_CHANGES


@pytest.mark.parametrize(("zone", "day", "_hours"), CLOCK_CHANGES)
def test_half_hourly_rows_are_each_counted_on_one_day(
    stores: Stores, zone: str, day: str, _hours: float
) -> None:
    first = datetime.fromisoformat(f"{day}T00:00:00+00:00") - timedelta(days=2)
    instants = [first + timedelta(minutes=30 * step) for step in range(4 * 48)]
    append(
        stores,
        *(
            make_row(f"job-{at:%d%H%M}", created_at=at, amount=Int64(-(2**number % 997)))
            for number, at in enumerate(instants)
        ),
    )
    with in_zone(stores, zone) as there:
        local = [at.astimezone(there.settings.zone).date().isoformat() for at in instants]
        done = rebuild(there, on(local[0], local[-1]))
    assert done.rows == len(instants)
    found = {one["day"]: one for one in stores.mongo.collection("usage_daily").find()}
    assert {one: found[one]["rows"] for one in found} == {
        one: local.count(one) for one in set(local)
    }
    assert {one["timezone"] for one in found.values()} == {zone}
    assert sum(one["charged"] for one in found.values()) == sum(
        2**number % 997 for number in range(len(instants))
    )
