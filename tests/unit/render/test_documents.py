"""json and jsonl carry exact values, stream, and keep the document's shape."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from ledgerctl.render.report import STREAMED, Column, Record, Report, Shape, listing, record
from tests.unit.render.printing import printed

COLUMNS = (Column("job_id"),)


class Plain(Enum):
    APPLIED = "applied"


class Text(StrEnum):
    REFUNDED = "refunded"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (True, "true"),
        (2**63 + 1, "9223372036854775809"),
        (-(10**40), "-1" + "0" * 40),
        (Decimal("2.400000"), "2.400000"),
        (Decimal("0.1"), "0.1"),
        (Decimal(-40), "-40"),
        (Decimal("-0"), "0"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1E-3"), "0.001"),
        (Decimal("1E+999999"), "1E+999999"),
        (Decimal("NaN"), '"NaN"'),
        (Decimal("-Infinity"), '"-Infinity"'),
        (float("nan"), '"NaN"'),
        (datetime(2026, 3, 8, 9, 15, 2, 435999, tzinfo=UTC), '"2026-03-08T09:15:02.435Z"'),
        (datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00.000Z"'),
        (
            datetime(2026, 3, 8, 2, tzinfo=timezone(timedelta(hours=2))),
            '"2026-03-08T00:00:00.000Z"',
        ),
        (datetime(2026, 3, 8), '"2026-03-08T00:00:00.000Z"'),  # noqa: DTZ001  # a naive one is the case
        (timedelta(minutes=2), "120"),
        (timedelta(milliseconds=1250), "1.250000"),
        (Plain.APPLIED, '"applied"'),
        (Text.REFUNDED, '"refunded"'),
        (("a", 1), '["a", 1]'),
        ({"retry": 1, "ratio": Decimal("0.5")}, '{"retry": 1, "ratio": 0.5}'),
        (MappingProxyType({"retry": [Decimal("0.5"), "é"]}), '{"retry": [0.5, "é"]}'),
        ([], "[]"),
    ],
)
def test_a_value_is_written_exactly(value: Any, written: str) -> None:
    assert printed(record({"value": value}), "json").out == f'{{\n  "value": {written}\n}}\n'


def test_one_value_that_needs_care_does_not_change_its_neighbours() -> None:
    items: list[Record] = [
        {"n": 2**70, "at": datetime(2026, 3, 8, tzinfo=UTC), "text": "é\x1b", "ratio": ratio}
        for ratio in (Decimal("0.5"), None)
    ]
    lines = printed(listing(items, columns=COLUMNS), "jsonl").out
    start = '{"n":1180591620717411303424,"at":"2026-03-08T00:00:00.000Z","text":"é\\u001b","ratio":'
    assert lines == f"{start}0.5}}\n{start}null}}\n"


def test_a_listing_has_items_shown_and_total_one_item_a_line() -> None:
    report = listing([{"job_id": "j-1", "more": 1}, {"job_id": "j-2", "more": 2}], columns=COLUMNS)
    assert printed(report, "json").out == (
        "{\n"
        '  "items": [\n'
        '    {"job_id": "j-1", "more": 1},\n'
        '    {"job_id": "j-2", "more": 2}\n'
        "  ],\n"
        '  "shown": 2,\n'
        '  "total": 2\n'
        "}\n"
    )


def test_a_listing_that_is_cut_says_so() -> None:
    report = listing([{"job_id": "j-1"}], columns=COLUMNS, total=5, notes=["one is unreadable"])
    note = "1 of 5 shown; --limit 0 shows all"
    assert printed(report, "plain").err == f"one is unreadable\n{note}\n"
    document = json.loads(printed(report, "json").out)
    assert document == {
        "items": [{"job_id": "j-1"}],
        "shown": 1,
        "total": 5,
        "notes": ["one is unreadable", note],
    }


def test_a_listing_of_a_generator_counts_as_it_goes() -> None:
    report = listing(({"job_id": str(n)} for n in range(1_234)), columns=COLUMNS)
    document = json.loads(printed(report, "json").out)
    assert (len(document["items"]), document["shown"], document["total"]) == (1_234, 1_234, 1_234)


def test_an_empty_listing_is_an_empty_list() -> None:
    report = listing([], columns=COLUMNS, empty="There are no dead letters.")
    assert json.loads(printed(report, "json").out) == {"items": [], "shown": 0, "total": 0}
    assert printed(report, "json").err == ""


def test_what_is_known_at_the_end_is_asked_at_the_end() -> None:
    seen: list[int] = []

    def rows() -> Iterator[Record]:
        for amount in (-40, 40, -40):
            seen.append(amount)
            yield {"amount": amount}

    report = Report(
        columns=[Column("amount")],
        records=rows(),
        document={
            "opening_balance": 0,
            "rows": STREAMED,
            "closing_balance": lambda: sum(seen),
        },
        items_key="rows",
        notes=lambda: [f"{len(seen)} rows"],
        exit_code=lambda: 5 if len(seen) == 3 else 0,
    )
    result = printed(report, "json")
    assert list(json.loads(result.out)) == ["opening_balance", "rows", "closing_balance", "notes"]
    assert json.loads(result.out)["closing_balance"] == -40
    assert json.loads(result.out)["notes"] == ["3 rows"]
    assert (result.err, result.exit_code) == ("", 5)


def test_records_stand_last_when_the_document_does_not_place_them() -> None:
    report = Report(COLUMNS, [{"job_id": "j"}], document={"applied": 1}, items_key="results")
    assert json.loads(printed(report, "json").out) == {"applied": 1, "results": [{"job_id": "j"}]}


def test_without_a_document_json_is_made_of_the_records() -> None:
    one: list[Record] = [{"job_id": "j"}]
    assert json.loads(printed(Report(COLUMNS, one), "json").out) == {"items": one}
    page = Report(COLUMNS, one, shape=Shape.RECORD)
    assert json.loads(printed(page, "json").out) == {"job_id": "j"}
    assert printed(Report(COLUMNS, document={}), "json").out == "{}\n"


def test_jsonl_has_every_key_of_each_record_and_not_only_the_columns() -> None:
    assert printed(Report(COLUMNS, [{"job_id": "j", "more": 1}]), "jsonl").out == (
        '{"job_id":"j","more":1}\n'
    )
    assert printed(Report(COLUMNS), "jsonl").out == ""
