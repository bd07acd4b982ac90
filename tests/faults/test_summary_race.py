"""Every summary equals the ledger whatever runs at once; by clients' clocks it would not."""

import os
from collections.abc import Mapping

import pytest

from ledgerctl.config import load
from ledgerctl.domain.summary import Drift
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.faults.race import Race, Skew, client_clocks, no_skew

SECONDS = float(os.environ.get("LEDGERCTL_TEST_RACE_S", "4"))  # the full run: 30
SEEDS = range(int(os.environ.get("LEDGERCTL_TEST_RACE_SEEDS", "1")))  # the full run: 5


def raced(environment: Mapping[str, str], seed: int, skew: Skew) -> Drift:
    def opened() -> Stores:
        return Stores(load(environment=environment))

    with opened() as stores:
        build_indexes(stores)
    race = Race(opened, seed, skew)
    found = race.run(SECONDS)
    print(f"seed {seed}: {race.counts}, {len(found.drifted)} of {found.days_compared} differ")
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_every_summary_equals_the_ledger_after_the_race(
    environment: dict[str, str], seed: int
) -> None:
    found = raced(environment, seed, no_skew)
    assert found.days_compared
    assert not found.drifted


def test_the_race_is_red_when_as_of_comes_from_clients_clocks(environment: dict[str, str]) -> None:
    assert raced(environment, 0, client_clocks).drifted
