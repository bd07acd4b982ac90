"""Each rule of the daily summaries as a claim: green for the product, red for its wrong version."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, Int64

from ledgerctl.domain.days import day_bounds, day_of, previous_day
from ledgerctl.operations import rebuild as product
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.rebuild import RebuildRequest
from ledgerctl.operations.summaries import Window
from ledgerctl.stores.connections import Stores
from tests.builders import make_row
from tests.wrong_versions import summary as wrong

Rebuild = Callable[[Stores, RebuildRequest], Any]
FIGURES = ("charged", "refunded", "reclaimed", "net", "jobs", "rows")
NOTHING = dict.fromkeys(FIGURES, 0)
LONG_AGO = datetime(2001, 1, 1)  # noqa: DTZ001  # BSON has no zones


def append(stores: Stores, *rows: dict[str, Any]) -> None:
    build_indexes(stores)
    stores.mongo.collection("ledger").insert_many(rows)


def stored(stores: Stores, key: str) -> dict[str, Any]:
    return stores.mongo.collection("usage_daily").find_one({"_id": key}) or {}


def figures(stores: Stores, key: str) -> dict[str, Any]:
    return {name: stored(stores, key).get(name) for name in FIGURES}


def put(stores: Stores, account: str, day: str, **fields: Any) -> None:
    document = {"_id": f"{account}:{day}", "account_id": account, "day": day, "timezone": "UTC"}
    stores.mongo.collection("usage_daily").insert_one(
        document | dict.fromkeys(FIGURES, 240) | {"as_of": LONG_AGO} | fields
    )


def today(stores: Stores, days_ago: int = 0) -> str:
    day = day_of(stores.mongo.now(), stores.settings.zone)
    for _ in range(days_ago):
        day = previous_day(day)
    return day


def noon(day: str) -> datetime:
    return datetime.fromisoformat(f"{day}T12:00:00+00:00")


def in_zone(stores: Stores, name: str) -> Stores:

    return Stores(replace(stores.settings, timezone=name))


def on(day: str, last: str | None = None) -> RebuildRequest:
    return RebuildRequest(Window(explicit=(day, last or day)))


def claim_a_second_rebuild_changes_nothing(stores: Stores, rebuild: Rebuild) -> None:
    append(stores, make_row(created_at=noon("2026-03-05")))
    for _ in range(2):
        rebuild(stores, on("2026-03-05"))
    assert figures(stores, "acct-1:2026-03-05") == NOTHING | {
        "charged": 40, "net": 40, "jobs": 1, "rows": 1,
    }  # fmt: skip


def claim_a_day_without_rows_gets_zeros(stores: Stores, rebuild: Rebuild) -> None:
    append(stores, make_row(created_at=noon("2026-03-01")))
    put(stores, "acct-7", "2026-03-05")
    rebuild(stores, on("2026-03-05"))
    assert figures(stores, "acct-7:2026-03-05") == NOTHING


def claim_a_later_figure_stays(stores: Stores, rebuild: Rebuild) -> None:
    append(stores, make_row(created_at=noon("2026-03-05")))
    put(stores, "acct-1", "2026-03-05", as_of=stores.mongo.now() + timedelta(minutes=1))
    rebuild(stores, on("2026-03-05"))
    assert figures(stores, "acct-1:2026-03-05") == dict.fromkeys(FIGURES, 240)


def claim_a_short_day_ends_with_its_own_midnight(stores: Stores, rebuild: Rebuild) -> None:
    """2026-03-29 has 23 hours in Berlin: 22:30 UTC is half past midnight of the 30th."""
    at = datetime.fromisoformat("2026-03-29T22:30:00+00:00")
    append(
        stores,
        make_row("job-1", created_at=at - timedelta(hours=1)),
        make_row("job-2", created_at=at),
    )
    with in_zone(stores, "Europe/Berlin") as berlin:
        rebuild(berlin, on("2026-03-29"))
    assert figures(stores, "acct-1:2026-03-29")["rows"] == 1


def claim_no_day_is_overwritten_by_its_half(stores: Stores, rebuild: Rebuild) -> None:
    day = today(stores, days_ago=2)
    start, end = day_bounds(day, stores.settings.zone)
    append(
        stores,
        make_row("job-1", created_at=start),
        make_row("job-2", created_at=end - timedelta(milliseconds=1)),
    )
    put(stores, "acct-1", day, rows=2)
    rebuild(stores, RebuildRequest())
    assert figures(stores, f"acct-1:{day}")["rows"] == 2


def claim_foreign_fields_stay(stores: Stores, rebuild: Rebuild) -> None:
    append(stores, make_row(created_at=noon("2026-03-05")))
    put(stores, "acct-1", "2026-03-05", plan="gold", charged=1)
    rebuild(stores, on("2026-03-05"))
    assert stored(stores, "acct-1:2026-03-05").get("plan") == "gold"
    assert stored(stores, "acct-1:2026-03-05")["charged"] == 40


def claim_no_sum_passes_through_a_double(stores: Stores, rebuild: Rebuild) -> None:
    append(
        stores,
        make_row("job-1", amount=Int64(-9007199254740993), created_at=noon("2026-03-05")),
        make_row("job-2", amount=-0.0, created_at=noon("2026-03-05")),
    )
    rebuild(stores, on("2026-03-05"))
    assert figures(stores, "acct-1:2026-03-05")["charged"] == 9007199254740993


def claim_days_before_the_ledger_are_left_alone(stores: Stores, rebuild: Rebuild) -> None:
    append(stores, make_row(created_at=noon("2026-03-05")))
    put(stores, "acct-7", "2026-03-03")
    rebuild(stores, on("2026-03-03", "2026-03-06"))
    assert figures(stores, "acct-7:2026-03-03") == dict.fromkeys(FIGURES, 240)


def claim_late_rows_reach_their_day(stores: Stores, rebuild: Rebuild) -> None:
    late = today(stores, days_ago=9)
    append(stores, make_row("job-1", created_at=noon(late), recorded_at=noon(late)))
    rebuild(stores, RebuildRequest())
    append(stores, make_row("job-2", created_at=noon(late), recorded_at=stores.mongo.now()))
    rebuild(stores, RebuildRequest())
    assert figures(stores, f"acct-1:{late}")["rows"] == 2


def claim_no_low_number_is_written(stores: Stores, rebuild: Rebuild) -> None:
    at = stores.mongo.now()
    append(
        stores,
        make_row("job-1", created_at=at, recorded_at=at),
        make_row("job-2", amount="-40", created_at=at, recorded_at=at),
    )
    rebuild(stores, RebuildRequest())
    assert stored(stores, f"acct-1:{today(stores)}") == {}


RULES: list[tuple[Callable[[Stores, Rebuild], None], Rebuild]] = [
    (claim_a_second_rebuild_changes_nothing, wrong.accumulate_without_a_claim),
    (claim_a_day_without_rows_gets_zeros, wrong.only_the_groups_found),
    (claim_a_later_figure_stays, wrong.overwrite_a_newer_figure),
    (claim_a_short_day_ends_with_its_own_midnight, wrong.fixed_24_hours),
    (claim_no_day_is_overwritten_by_its_half, wrong.window_from_48_hours_ago),
    (claim_foreign_fields_stay, wrong.replace_the_document),
    (claim_no_sum_passes_through_a_double, wrong.sum_through_a_double),
    (claim_days_before_the_ledger_are_left_alone, wrong.zero_days_before_the_ledger),
    (claim_late_rows_reach_their_day, wrong.late_rows_are_never_seen),
    (claim_no_low_number_is_written, wrong.text_amounts_are_skipped),
]
names = [claim.__name__ for claim, _ in RULES]


@pytest.mark.parametrize(("claim", "_wrong"), RULES, ids=names)
def test_each_rule_holds_for_the_product(
    stores: Stores, claim: Callable[..., None], _wrong: Rebuild
) -> None:
    claim(stores, product.rebuild)


@pytest.mark.parametrize(("claim", "_wrong"), RULES, ids=names)
def test_each_rule_holds_on_a_standalone(
    standalone_stores: Stores, claim: Callable[..., None], _wrong: Rebuild
) -> None:
    claim(standalone_stores, product.rebuild)


@pytest.mark.parametrize(("claim", "wrong_version"), RULES, ids=names)
def test_each_rule_is_red_against_its_wrong_version(
    stores: Stores, claim: Callable[..., None], wrong_version: Rebuild
) -> None:
    with pytest.raises(AssertionError):
        claim(stores, wrong_version)


def test_a_sum_beyond_int64_is_kept_exactly(stores: Stores) -> None:
    at = noon("2026-03-05")
    append(
        stores,
        make_row("job-1", amount=Int64(-(2**63)), created_at=at),
        make_row("job-2", amount=Int64(-1), created_at=at),
    )
    product.rebuild(stores, on("2026-03-05"))
    assert stored(stores, "acct-1:2026-03-05")["charged"] == Decimal128("9223372036854775809")
