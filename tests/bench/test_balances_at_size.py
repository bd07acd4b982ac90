"""A generated account, small and ten times larger: right figures, and the same peak of memory.

LEDGERCTL_BENCH_ROWS sets the larger size; CI runs a small one.
"""

import json
import os
from typing import Any

import pytest
from pymongo import MongoClient

from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import INDEXES
from tests.bench.generate import Plan, Totals, account_name, generate
from tests.bench.peak import run_measured

ROWS = int(os.environ.get("LEDGERCTL_BENCH_ROWS", "30000"))
LARGEST = account_name(0)
GROWTH_KB_MAX = 8 * 1024  # what a few batches of rows may differ by
PEAK_KB_MAX = 120 * 1024


@pytest.fixture(params=[1.0, 0.0], ids=["named", "joined"])
def named(request: pytest.FixtureRequest) -> float:
    return float(request.param)


def load(client: MongoClient[dict[str, Any]], stores: Stores, rows: int, named: float) -> Totals:
    plan = Plan(rows=rows, accounts=20, largest=0.8, named=named)
    totals = generate(client[stores.settings.database], plan)
    for index in INDEXES:
        stores.indexes.build(index)
    return totals


def test_show_and_replay_are_right_and_memory_does_not_grow(
    environment: dict[str, str], client: MongoClient[dict[str, Any]], stores: Stores, named: float
) -> None:
    peaks: dict[str, list[int]] = {"show": [], "replay": [], "export": []}
    for rows in (ROWS // 10, ROWS):
        totals = load(client, stores, rows, named)
        shown, peak = run_measured(environment, "balance", "show", LARGEST, "-o", "json")
        peaks["show"].append(peak)
        page = json.loads(shown)
        assert (page["balance"], page["rows"]) == (totals.balances[LARGEST], totals.rows[LARGEST])
        replayed, peak = run_measured(environment, "balance", "replay", LARGEST, "-o", "jsonl")
        peaks["replay"].append(peak)
        lines = replayed.splitlines()
        assert len(lines) == totals.rows[LARGEST]
        assert json.loads(lines[-1])["balance"] == totals.balances[LARGEST]
        exported, peak = run_measured(environment, "ledger", "export")
        peaks["export"].append(peak)
        assert exported.count(b"\n") == sum(totals.rows.values())
    print(f"\n{ROWS // 10} and {ROWS} rows, peak KB: {peaks}")
    for small, large in peaks.values():
        assert large - small < GROWTH_KB_MAX
        assert large < PEAK_KB_MAX
