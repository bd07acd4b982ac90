"""A rebuild's cost: the window's rows and no others, and a crowded day in bounded memory."""

import json
from datetime import timedelta
from typing import Any

from ledgerctl.operations.rebuild import rebuild
from ledgerctl.stores.connections import Stores
from tests.bench.peak import run_measured
from tests.builders import make_row
from tests.integration.test_summary_rules import append, noon, on, stored

DAY = "2026-03-05"
CROWD = 300_000
PEAK_MB_MAX = 150


def rows(count: int, day: str, prefix: str) -> list[dict[str, Any]]:
    start = noon(day)
    return [
        make_row(f"{prefix}-{n}", created_at=start + timedelta(milliseconds=n))
        for n in range(count)
    ]


def examined(stores: Stores) -> tuple[int, int]:
    """Ledger documents and index keys that one rebuild of the day looks at."""
    database = stores.mongo.database
    database.command("profile", 0)
    database.drop_collection("system.profile")
    database.command("profile", 2)
    rebuild(stores, on("2026-03-05", "2026-03-06"))
    database.command("profile", 0)
    name = stores.mongo.collection("ledger").full_name
    found = list(database["system.profile"].find({"ns": name}))
    assert found
    return (
        sum(one.get("docsExamined", 0) for one in found),
        sum(one.get("keysExamined", 0) for one in found),
    )


def test_a_rebuild_looks_at_the_windows_rows_however_long_the_ledger_is(stores: Stores) -> None:
    append(stores, *rows(500, DAY, "in"), *rows(1, "2026-02-01", "first"))
    documents, keys = examined(stores)
    append(stores, *rows(4000, "2026-02-20", "before"), *rows(1000, "2026-03-20", "after"))
    assert examined(stores)[0] <= documents
    assert examined(stores)[1] <= keys + 10
    assert documents <= 510


def test_a_day_of_300_000_rows_of_one_account_is_rebuilt_in_bounded_memory(
    stores: Stores, environment: dict[str, str]
) -> None:
    for start in range(0, CROWD, 50_000):
        chunk = rows(50_000, DAY, f"job-{start}")
        append(stores, *chunk)
    out, peak_kb = run_measured(
        environment, "summary", "rebuild", "--from", DAY, "--to", DAY, "-o", "json"
    )
    peak_mb = peak_kb / 1024
    print(f"{json.loads(out)['duration_s']} s, client at most {peak_mb:.0f} MB")
    assert peak_mb <= PEAK_MB_MAX
    assert json.loads(out)["rows"] == CROWD
    assert stored(stores, f"acct-1:{DAY}")["jobs"] == CROWD
