"""A table may leave out what would not fit or says nothing; no other format leaves out anything."""

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
