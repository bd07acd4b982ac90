"""The incident on a real server, told by the commands: made visible, healed, the rest named."""

from typing import Any

import pytest

from ledgerctl.sandbox.story import DRIFTED, load_incident
from ledgerctl.stores.connections import Stores
from tests.conftest import Runner


@pytest.fixture
def incident(stores: Stores) -> Stores:
    """The incident as of now."""
    load_incident(stores, now=stores.mongo.now())
    return stores


def balances(run: Runner) -> Any:
    """The balances of the accounts whose summaries are wrong."""
    accounts = [one.account for one in DRIFTED]
    return [run("balance", "show", one, "-o", "json").json()["balance"] for one in accounts]


def test_the_audit_prints_the_counts_and_the_verdict_on_tenant_and_key(
    incident: Stores, run: Runner
) -> None:
    result = run("inbox", "audit", "-o", "json")
    found = result.json()
    assert result.code == 0, "the enforced look-up is sound; the other one is only reported"
    assert found["inbox"]["rows"] == 3_344
    assert found["inbox"]["fields"]["tenant_id"] == {"filled": 0, "empty": 3_344}
    assert found["outbox"]["rows"] == 1_451
    assert found["outbox"]["fields"]["tenant_id"] == {"filled": 1_174, "empty": 277}
    enforced, by_tenant = found["lookups"]
    assert enforced == {
        "fields": ["consumer_group", "message_key"],
        "found": 3_344,
        "missed": 0,
        "without_message": 0,
        "enforced": True,
        "ok": True,
    }
    assert (by_tenant["found"], by_tenant["missed"], by_tenant["ok"]) == (0, 3_344, False)
    assert len(found["unclaimed"]) == 26
    assert sum(1_451 - left for left in found["unclaimed"].values()) == 3_344
    assert any("misses 3344 of 3344" in one["detail"] for one in found["problems"])
    assert run("inbox", "audit", "--lookup", "tenant_id,message_key").code == 5


def test_stuck_finds_the_loops_and_the_marks_that_ran_again(incident: Stores, run: Runner) -> None:
    result = run("inbox", "stuck", "--limit", "0", "-o", "json")
    assert result.code == 5
    items = result.json()["items"]
    circling = [one for one in items if one["status"] == "claimed"]
    assert circling
    assert {one["attempts"] for one in items} == {0}
    assert 44 < items[0]["every"] < 46
    again = [
        one
        for one in items
        if one["status"] == "succeeded" and one["consumer_group"] == "usage-totals"
    ]
    assert again
    slowest = [one for one in items if one["completed_at"] and one["deliveries"] > 26_000]
    assert len(slowest) == 1


def test_rebuilding_heals_the_window_names_the_rest_and_moves_no_balance(
    incident: Stores, run: Runner
) -> None:
    before = balances(run)
    drift = run("summary", "drift", "-o", "json")
    assert drift.code == 5
    assert len(drift.json()["drifted"]) == 2
    assert drift.json()["worst"]["ratio"] == 2.4
    assert len(run("summary", "drift", "--days", "4", "-o", "json").json()["drifted"]) == 4

    rebuilt = run("summary", "rebuild", "-o", "json")
    assert rebuilt.code == 0, rebuilt.err
    outside = [one for one in rebuilt.json()["not_rebuilt"] if one["why"] == "outside_window"]
    assert len(outside) == 1

    assert run("summary", "drift").code == 0
    remaining = run("summary", "drift", "--days", "4", "-o", "json")
    assert remaining.code == 5
    assert sorted(one["ratio"] for one in remaining.json()["drifted"]) == [1.5, 2.0]
    for one in remaining.json()["drifted"]:
        assert outside[0]["from"] <= one["day"] <= outside[0]["to"]
    assert balances(run) == before


def test_the_books_behind_the_incident_are_clean(incident: Stores, run: Runner) -> None:
    result = run("ledger", "audit", "-o", "json")
    assert (result.code, result.json()["findings"]) == (0, [])


def test_settling_completes_the_marks_without_a_time(incident: Stores, run: Runner) -> None:
    selected = run("inbox", "settle", "--dry-run", "-o", "json").json()["selected"]
    assert selected > 0
    result = run("inbox", "settle", "--yes", "--expect", str(selected), "-o", "json")
    assert (result.code, result.json()["settled"]) == (0, selected)


def test_loading_again_tells_it_afresh(incident: Stores) -> None:
    incident.mongo.collection("inbox").delete_many({"consumer_group": "archive"})
    load_incident(incident, now=incident.mongo.now())
    assert incident.mongo.collection("inbox").count_documents({}) == 3_344
