"""Summaries over every kind of row: ids of all types, odd amounts, undated, late, unnamed accounts."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId

from ledgerctl.operations.rebuild import MARK, RebuildRequest, preview, rebuild
from ledgerctl.operations.summaries import Window, drift, recompute_days
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.daily import Grouping
from tests.builders import make_job, make_row, without
from tests.integration.test_summary_rules import (
    FIGURES,
    NOTHING,
    append,
    figures,
    noon,
    on,
    put,
    stored,
    today,
)

DAY = "2026-03-05"
AT = noon(DAY)


def recompute(stores: Stores, pairs: Iterable[tuple[str, str]]) -> Any:
    """Recompute as a consumer does: in a transaction where there are any."""
    some = list(pairs)
    if not stores.mongo.transactions:
        return recompute_days(stores, some)
    return stores.mongo.transaction("x", lambda session: recompute_days(stores, some, session))


def everything(stores: Stores) -> list[dict[str, Any]]:
    """All summaries without as_of."""
    found = stores.mongo.collection("usage_daily").find().sort("_id", 1)
    return [without(one, "as_of") for one in found]


MIXED = [
    make_row("job-1", account_id="42", created_at=AT),
    make_row("job-2", account_id=42, created_at=AT),
    make_row("job-3", account_id=42.0, created_at=AT),
    make_row("job-3", "refund", account_id="42", created_at=AT),
    make_row(7, account_id="acct-1", created_at=AT),
    make_row("7", "refund", _id="x", account_id="acct-1", created_at=AT),
    make_row(Int64(8), account_id=ObjectId("65f0a1b2c3d4e5f601234567"), created_at=AT),
]
ODD = [
    make_row("job-1", amount=-40.0, created_at=AT),
    make_row("job-2", amount=Decimal128("-9007199254740993"), created_at=AT),
    make_row("job-3", amount=-9007199254740992.0, created_at=AT),
    make_row("job-4", amount=-1, created_at=AT),
]
UNNAMED = [
    without(make_row("job-1", created_at=AT), "account_id"),
    make_row("job-1", "refund", created_at=AT),
    without(make_row("job-2", created_at=AT), "account_id"),
    without(make_row("unknown", created_at=AT), "account_id"),
    without(make_row("5", created_at=AT), "account_id"),
]
PLAIN = [
    make_row("job-1", created_at=AT),
    make_row("job-1", "refund", created_at=AT),
    make_row("job-1", "reclaim", created_at=AT),
    make_row("job-2", created_at=AT),
    make_row("job-3", "grant", amount=Int64(500), created_at=AT),
    make_row("job-4", "correction", amount=Int64(5), created_at=AT),
    make_row(None, _id="none", created_at=AT),
]
EXPECTED: dict[str, tuple[list[dict[str, Any]], dict[str, dict[str, int]]]] = {
    "plain": (
        PLAIN,
        {"acct-1": {"charged": 120, "refunded": 40, "reclaimed": 40, "net": 120, "jobs": 2, "rows": 5}},
    ),
    "mixed ids": (
        MIXED,
        {
            "42": {"charged": 120, "refunded": 40, "reclaimed": 0, "net": 80, "jobs": 3, "rows": 4},
            "acct-1": {"charged": 40, "refunded": 40, "reclaimed": 0, "net": 0, "jobs": 1, "rows": 2},
            "65f0a1b2c3d4e5f601234567": {
                "charged": 40, "refunded": 0, "reclaimed": 0, "net": 40, "jobs": 1, "rows": 1,
            },
        },
    ),
    "odd amounts": (
        ODD,
        {
            "acct-1": {
                "charged": 18014398509482026, "refunded": 0, "reclaimed": 0,
                "net": 18014398509482026, "jobs": 4, "rows": 4,
            }
        },
    ),
    "unnamed accounts": (
        UNNAMED,
        {
            "acct-1": {"charged": 40, "refunded": 40, "reclaimed": 0, "net": 0, "jobs": 1, "rows": 2},
            "acct-2": {"charged": 80, "refunded": 0, "reclaimed": 0, "net": 80, "jobs": 2, "rows": 2},
        },
    ),
}  # fmt: skip


def seed(stores: Stores, rows: list[dict[str, Any]]) -> None:
    stores.mongo.collection("jobs").insert_many(
        [
            make_job("job-1"),
            make_job("job-2", account_id="acct-2"),
            make_job(5, account_id="acct-2"),
        ]
    )
    append(stores, *rows)


@pytest.mark.parametrize("kind", EXPECTED)
def test_every_kind_of_row_is_summed_exactly_under_its_account(stores: Stores, kind: str) -> None:
    rows, expected = EXPECTED[kind]
    seed(stores, rows)
    assert rebuild(stores, on(DAY)).days_written == len(expected)
    assert {one["_id"]: {n: one[n] for n in FIGURES} for one in everything(stores)} == {
        f"{account}:{DAY}": found for account, found in expected.items()
    }
    found = drift(stores, Window(explicit=(DAY, DAY)))
    assert (found.days_compared, found.drifted) == (len(expected), [])


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_consumer_writes_what_the_rebuild_writes(stores: Stores, kind: str) -> None:
    rows, expected = EXPECTED[kind]
    seed(stores, rows)
    rebuild(stores, on(DAY))
    before = everything(stores)
    stores.mongo.collection("usage_daily").delete_many({})
    assert recompute(stores, [(account, DAY) for account in expected]).written == len(expected)
    assert everything(stores) == before


@pytest.mark.parametrize("kind", EXPECTED)
def test_one_account_is_rebuilt_alone(stores: Stores, kind: str) -> None:
    rows, expected = EXPECTED[kind]
    seed(stores, rows)
    account = next(iter(expected))
    assert rebuild(stores, RebuildRequest(Window(explicit=(DAY, DAY)), account)).accounts == 1
    assert [one["_id"] for one in everything(stores)] == [f"{account}:{DAY}"]
    assert figures(stores, f"{account}:{DAY}") == expected[account]


@pytest.mark.parametrize("kind", EXPECTED)
def test_grouping_on_disk_gives_the_same(
    stores: Stores, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a set of job ids beyond the server's memory falls back to."""
    rows, _ = EXPECTED[kind]
    seed(stores, rows)
    rebuild(stores, on(DAY))
    before = everything(stores)
    stores.mongo.collection("usage_daily").delete_many({})
    monkeypatch.setattr(
        stores.daily_rows, "shape", lambda *_, odd, **__: Grouping(odd=odd, by_text=True)
    )
    rebuild(stores, on(DAY))
    assert everything(stores) == before


def test_numbers_are_stored_as_int64(stores: Stores) -> None:
    append(stores, make_row(amount=-40, created_at=AT))
    rebuild(stores, on(DAY))
    types = {name: type(stored(stores, f"acct-1:{DAY}")[name]) for name in FIGURES}
    assert set(types.values()) == {Int64}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"created_at": "2026-03-05T12:00:00Z"}, "date"),
        ({"created_at": None}, "date"),
        ({"amount": "-40"}, "amount"),
        ({"amount": None}, "amount"),
        ({"amount": 1.5}, "amount"),
        ({"amount": float("nan")}, "amount"),
        ({"amount": float("inf")}, "amount"),
        ({"amount": Decimal128("1.5")}, "amount"),
    ],
)
def test_an_account_with_a_row_that_cannot_be_summed_is_refused_whole(
    stores: Stores, row: dict[str, Any], why: str
) -> None:
    now = stores.mongo.now()
    append(
        stores,
        make_row("job-1", created_at=now, recorded_at=now),
        make_row("job-2", created_at=now - timedelta(days=1), recorded_at=now),
        make_row("bad", **({"created_at": now, "recorded_at": now} | row)),
        make_row("job-3", account_id="acct-2", created_at=now, recorded_at=now),
    )
    done = rebuild(stores, RebuildRequest())
    assert (done.refused, done.undated) == (["acct-1"], 0)
    assert why in done.refused_rows[0].why
    assert [one["_id"] for one in everything(stores)] == [f"acct-2:{today(stores)}"]


def test_a_row_without_a_date_and_account_refuses_its_jobs_account(stores: Stores) -> None:
    bad = without(make_row(created_at="yesterday", recorded_at=stores.mongo.now()), "account_id")
    stores.mongo.collection("jobs").insert_one(make_job())
    append(stores, bad, make_row("job-2", account_id="acct-2", created_at=stores.mongo.now()))
    assert rebuild(stores, RebuildRequest()).refused == ["acct-1"]


def test_an_objectid_tells_when_an_undated_row_was_written(stores: Stores) -> None:
    now = stores.mongo.now()
    append(
        stores,
        make_row("job-1", created_at=now),
        make_row("job-2", _id=ObjectId(), created_at=None),
        make_row("job-3", _id=ObjectId.from_datetime(AT), account_id="acct-2", created_at=None),
    )
    done = rebuild(stores, RebuildRequest())
    assert (done.refused, done.undated) == (["acct-1"], 1)


@pytest.mark.parametrize("dated", [AT, noon("2099-01-01")], ids=["long ago", "ahead"])
@pytest.mark.parametrize("generated", [False, True], ids=["recorded_at", "ObjectId"])
def test_a_row_recorded_in_the_window_that_cannot_be_summed_refuses_its_account_wherever_dated(
    stores: Stores, dated: datetime, *, generated: bool
) -> None:
    now = stores.mongo.now()
    recorded = {"_id": ObjectId()} if generated else {"recorded_at": now}
    odd: dict[str, Any] = {"created_at": dated, **recorded}
    append(
        stores,
        make_row("job-1", created_at=now),
        make_row("job-2", amount="text", **odd),
        make_row("job-3", account_id="acct-2", created_at=now),
        make_row("job-4", account_id="acct-2", amount=-40.0, **(odd | {"_id": ObjectId()})),
    )
    done = rebuild(stores, RebuildRequest())
    assert (done.refused, done.undated) == (["acct-1"], 0)
    assert [one["_id"] for one in everything(stores)] == [f"acct-2:{today(stores)}"]
    assert rebuild(stores, RebuildRequest(account="acct-2")).refused == []
    assert rebuild(stores, RebuildRequest(account="acct-1")).refused == ["acct-1"]


def test_a_refused_account_has_all_its_rows_that_refuse_it_counted_once(stores: Stores) -> None:
    rebuild(stores, RebuildRequest())  # leaves the mark that late rows are looked for from
    now = stores.mongo.now()
    odd: dict[str, Any] = {"amount": "text", "recorded_at": now}
    append(
        stores,
        make_row("job-1", created_at=now),
        make_row("job-2", created_at=now, **odd),
        make_row("job-3", created_at=now - timedelta(days=1), **odd),
        make_row("job-4", created_at=now - timedelta(days=9), **odd),  # late, and strayed
        make_row("job-5", created_at=AT, **odd),  # late, and strayed
        make_row("job-6", created_at="yesterday", recorded_at=now),
    )
    (refused,) = rebuild(stores, RebuildRequest()).refused_rows
    assert (refused.account_id, refused.rows) == ("acct-1", 5)


def test_an_account_given_in_capitals_is_the_one_that_is_rebuilt(stores: Stores) -> None:
    account = ObjectId("65f0a1b2c3d4e5f60123abcd")
    append(
        stores,
        make_row("job-1", account_id=account, created_at=AT),
        make_row("job-2", account_id="acct-2", created_at=AT),
    )
    days = on(DAY, DAY)
    for asked in (days, replace(days, account=str(account).upper())):
        assert rebuild(stores, asked).accounts == (2 if asked.account is None else 1)
        assert figures(stores, f"{account}:{DAY}")["charged"] == 40
    assert drift(stores, days.window, str(account).upper()).drifted == []


@pytest.mark.parametrize("row", [{"created_at": "text"}, {"amount": "text"}])
def test_an_odd_row_from_before_the_window_is_counted_and_refuses_nothing(
    stores: Stores, row: dict[str, Any]
) -> None:
    now = stores.mongo.now()
    append(
        stores,
        make_row("job-1", created_at=now),
        make_row("job-2", **({"created_at": now, "recorded_at": AT} | row)),
    )
    done = rebuild(stores, RebuildRequest())
    assert (done.refused, done.undated) == ([], 1)
    assert figures(stores, f"acct-1:{today(stores)}")["rows"] == 1


def test_a_consumer_leaves_a_day_alone_whose_row_cannot_be_summed(stores: Stores) -> None:
    append(stores, make_row(amount="text", created_at=AT), make_row("job-2", created_at=AT))
    put(stores, "acct-1", DAY)
    done = recompute(stores, [("acct-1", DAY)])
    assert (done.written, done.refused) == (0, (("acct-1", DAY),))
    assert figures(stores, f"acct-1:{DAY}") == dict.fromkeys(FIGURES, 240)


def test_a_consumer_writes_over_a_later_figure_in_its_transaction(stores: Stores) -> None:
    append(stores, make_row(created_at=AT))
    put(stores, "acct-1", DAY, as_of=stores.mongo.now() + timedelta(hours=1), plan="gold")
    assert recompute(stores, [("acct-1", DAY)]).written == 1
    assert stored(stores, f"acct-1:{DAY}")["charged"] == 40
    assert stored(stores, f"acct-1:{DAY}")["plan"] == "gold"


def test_on_a_standalone_a_consumer_leaves_a_later_figure(standalone_stores: Stores) -> None:
    append(standalone_stores, make_row(created_at=AT))
    put(standalone_stores, "acct-1", DAY, as_of=standalone_stores.mongo.now() + timedelta(hours=1))
    assert recompute(standalone_stores, [("acct-1", DAY), ("acct-2", DAY)]).written == 0
    assert figures(standalone_stores, f"acct-1:{DAY}") == dict.fromkeys(FIGURES, 240)


def test_a_consumer_zeros_a_day_without_rows(stores: Stores) -> None:
    append(stores, make_row("job-9", account_id="acct-9", created_at=AT))
    put(stores, "acct-1", DAY)
    assert recompute(stores, [("acct-1", DAY), ("nobody", DAY)]).written == 1
    assert figures(stores, f"acct-1:{DAY}") == NOTHING


def late_row(stores: Stores, job: str, **overrides: Any) -> dict[str, Any]:
    day = noon(today(stores, days_ago=9))
    return make_row(job, created_at=day, recorded_at=stores.mongo.now(), **overrides)


def test_late_rows_are_found_by_recorded_at_or_by_their_objectid(stores: Stores) -> None:
    nine, eight = today(stores, days_ago=9), today(stores, days_ago=8)
    append(stores, make_row("job-0", created_at=noon(nine), recorded_at=noon(nine)))
    assert rebuild(stores, RebuildRequest()).late_days == ()
    append(
        stores,
        late_row(stores, "job-1"),
        make_row("job-2", _id=ObjectId(), created_at=noon(eight)),
        make_row("job-3", created_at=noon(today(stores, days_ago=7))),  # created_at stands in
    )
    done = rebuild(stores, RebuildRequest())
    assert done.late_days == (nine, eight)
    assert done.days_written == 2
    assert [(one.from_day, one.to_day, one.why) for one in done.not_rebuilt] == [
        (today(stores, days_ago=7), today(stores, days_ago=7), "outside_window")
    ]


def test_the_first_rebuild_has_no_late_rows(stores: Stores) -> None:
    append(stores, late_row(stores, "job-1"))
    assert rebuild(stores, RebuildRequest()).late_days == ()


def mark(stores: Stores) -> Any:
    return (stores.mongo.collection("leases").find_one({"_id": "summary-rebuild"}) or {}).get(MARK)


@pytest.mark.parametrize(
    "request_",
    [
        RebuildRequest(account="acct-1"),
        RebuildRequest(late=False),
        RebuildRequest(Window(3)),
        RebuildRequest(Window(explicit=(DAY, DAY))),
    ],
)
def test_other_runs_do_not_move_the_mark_of_late_rows(
    stores: Stores, request_: RebuildRequest
) -> None:
    append(stores, make_row(created_at=stores.mongo.now()))
    as_of = rebuild(stores, RebuildRequest()).as_of
    rebuild(stores, request_)
    assert mark(stores) == as_of


def test_the_mark_moves_with_each_full_run(stores: Stores) -> None:
    append(stores, make_row(created_at=stores.mongo.now()))
    rebuild(stores, RebuildRequest())
    assert rebuild(stores, RebuildRequest()).as_of == mark(stores)


def test_rows_recorded_more_than_an_hour_before_the_last_run_are_not_late(stores: Stores) -> None:
    append(stores, make_row(created_at=stores.mongo.now()))
    rebuild(stores, RebuildRequest())
    hours_ago = stores.mongo.now() - timedelta(hours=2)
    append(stores, make_row("job-2", created_at=noon(today(stores, 9)), recorded_at=hours_ago))
    assert rebuild(stores, RebuildRequest()).late_days == ()


def test_what_was_not_rebuilt_is_named(stores: Stores) -> None:
    append(
        stores,
        make_row("job-1", created_at=noon("2026-03-05")),
        make_row("job-2", created_at=noon("2026-03-20")),
    )
    done = rebuild(stores, on("2026-03-03", "2026-03-08"))
    assert [(one.from_day, one.to_day, one.why) for one in done.not_rebuilt] == [
        ("2026-03-03", "2026-03-04", "before_first_row"),
        ("2026-03-09", "2026-03-20", "outside_window"),
    ]


def test_an_empty_ledger_is_left_alone(stores: Stores) -> None:
    put(stores, "acct-1", today(stores))
    done = rebuild(stores, RebuildRequest())
    assert (done.days_written, done.days_cleared) == (0, 0)
    assert [one.why for one in done.not_rebuilt] == ["before_first_row"]
    assert figures(stores, f"acct-1:{today(stores)}") == dict.fromkeys(FIGURES, 240)


def test_clearing_touches_only_days_that_had_figures(stores: Stores) -> None:
    append(stores, make_row(created_at=noon("2026-03-01")))
    put(stores, "acct-1", DAY, note="mine")
    put(stores, "acct-2", DAY, **NOTHING)
    first = rebuild(stores, on(DAY))
    second = rebuild(stores, on(DAY))
    assert (first.days_cleared, second.days_cleared) == (1, 0)
    assert stored(stores, f"acct-1:{DAY}")["note"] == "mine"


def test_a_dry_run_shows_the_differences_and_writes_nothing(stores: Stores) -> None:
    append(stores, make_row(created_at=AT), make_row("job-2", account_id="acct-2", created_at=AT))
    rebuild(stores, on(DAY))
    put(stores, "acct-3", DAY)
    append(stores, make_row("job-3", created_at=AT))
    before = everything(stores)
    leases = list(stores.mongo.collection("leases").find())
    found = preview(stores, on(DAY))
    assert [(one.account_id, one.summary_net, one.ledger_net) for one in found.differences or []] == [
        ("acct-1", 40, 80), ("acct-3", 240, 0),
    ]  # fmt: skip
    assert (found.days_written, found.days_cleared) == (1, 1)
    assert everything(stores) == before
    assert list(stores.mongo.collection("leases").find()) == leases


def test_a_dry_run_counts_no_figure_that_a_rebuild_would_leave_for_being_later(
    stores: Stores,
) -> None:
    append(stores, make_row(created_at=AT))
    later = stores.mongo.now() + timedelta(hours=1)
    put(stores, "acct-1", DAY, as_of=later)
    put(stores, "acct-2", DAY, as_of=later)
    planned, done = preview(stores, on(DAY)), rebuild(stores, on(DAY))
    assert planned.differences == []
    assert (planned.days_written, planned.days_cleared) == (0, 0)
    assert (done.days_written, done.days_cleared) == (0, 0)


def test_drift_names_the_worst_and_what_is_missing(stores: Stores) -> None:
    append(
        stores,
        make_row("job-1", created_at=AT, amount=Int64(-3)),
        make_row("job-2", account_id="acct-2", created_at=AT),
        make_row("job-4", account_id="acct-4", created_at=AT),
    )
    rebuild(stores, on(DAY))
    summaries = stores.mongo.collection("usage_daily")
    summaries.update_one({"_id": f"acct-1:{DAY}"}, {"$set": {"net": Int64(7), "charged": Int64(7)}})
    summaries.delete_one({"_id": f"acct-2:{DAY}"})
    summaries.update_one({"_id": f"acct-4:{DAY}"}, {"$set": {"timezone": "Asia/Tokyo"}})
    put(stores, "acct-3", DAY)
    put(stores, "idle", DAY, **NOTHING)
    found = drift(stores, Window(explicit=(DAY, DAY)))
    assert found.days_compared == 5
    assert [
        (one.account_id, one.summary_net, one.ledger_net, str(one.ratio), one.missing)
        for one in found.drifted
    ] == [
        ("acct-1", 7, 3, "2.333333", False),
        ("acct-2", 0, 40, "0.000000", True),
        ("acct-3", 240, 0, "None", False),
        ("acct-4", 40, 40, "1.000000", False),
    ]
    assert found.worst is not None
    assert found.worst.account_id == "acct-3"
    assert found.found


def test_an_idle_account_is_quiet(stores: Stores) -> None:
    append(stores, make_row(created_at=AT))
    rebuild(stores, on(DAY))
    found = drift(stores, Window(explicit=("2026-03-06", "2026-03-09")))
    assert (found.days_compared, found.drifted, found.found) == (0, [], False)
