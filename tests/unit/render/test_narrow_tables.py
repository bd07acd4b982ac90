"""A table may leave out what would not fit or says nothing; no other format leaves out anything."""

from datetime import UTC, datetime

import pytest

from ledgerctl.render.report import Column, Kind, Report, listing
from tests.unit.render.printing import printed

COLUMNS = (
    Column("job_id", kind=Kind.ID),
    Column("operation", in_table=False),
    Column("detail", when_filled=True),
)


def results(*details: str) -> Report:
    return listing(
        [{"job_id": "job-1", "operation": "refund", "detail": text} for text in details],
        columns=COLUMNS,
    )


def heading(report: Report, format: str, fields: list[str] | None = None) -> list[str]:
    return printed(report, format, fields=fields).out.splitlines()[0].split()


def test_a_table_leaves_out_what_is_meant_for_machines_and_what_no_record_fills() -> None:
    assert heading(results("", ""), "table") == ["job", "id"]
    assert heading(results("", "paid twice"), "table") == ["job", "id", "detail"]


def test_fields_bring_every_column_back() -> None:
    assert heading(results(""), "table", ["operation", "detail"]) == ["operation", "detail"]


@pytest.mark.parametrize("format", ["plain", "csv"])
def test_other_formats_have_every_column(format: str) -> None:
    first = printed(results(""), format).out.splitlines()[0]
    assert first.replace(",", "\t").split("\t") == ["job_id", "operation", "detail"]


SPARE = (
    Column("job_id", kind=Kind.ID),
    Column("counts", spare=True),
    Column("seen_at", kind=Kind.TIME, spare=True),
    Column("why", kind=Kind.WORDS),
)


def wide() -> Report:
    seen = datetime(2026, 3, 8, 9, 15, 2, tzinfo=UTC)
    reasons = ["not_completed", "too_many_deliveries"]
    return listing(
        [{"job_id": "job-1", "counts": {"moved": 3}, "seen_at": seen, "why": reasons}],
        columns=SPARE,
    )


def test_spare_columns_go_from_the_right_until_the_rest_fits_and_are_named() -> None:
    lines = printed(wide(), "table", width=40).out.splitlines()
    assert lines[0].split() == ["job", "id", "counts", "why"]
    assert lines[-1].startswith("(no room for seen_at: ")
    assert max(map(len, lines[:-1])) <= 40
    assert printed(wide(), "table", width=30).out.splitlines()[0].split() == ["job", "id", "why"]


def test_nothing_is_spare_where_there_is_room_or_no_terminal() -> None:
    for width in (200, None):
        printing = printed(wide(), "table", width=width).out
        assert "seen at" in printing
        assert "no room" not in printing
    assert "seen_at" in printed(wide(), "plain", width=40).out


def test_a_list_of_words_folds_in_a_table() -> None:
    lines = printed(wide(), "table", width=40).out.splitlines()
    assert lines[2].endswith("not_completed,")
    assert lines[3].strip() == "too_many_deliveries"
