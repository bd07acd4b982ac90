"""A table may leave out what would not fit or says nothing; no other format leaves out anything."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ledgerctl.render.report import Column, Kind, Record, Report, listing, record
from ledgerctl.render.text import shell_line
from tests.unit.render.printing import printed

COLUMNS = (
    Column("job_id", kind=Kind.ID),
    Column("operation", in_table=False),
    Column("detail", when_filled=True),
)
NOW = datetime(2026, 3, 8, 15, 0, tzinfo=UTC)
UUID = "0198f4c2-7d1e-7c3a-9b1d-2f6f0a9c1e11"
WORDS = "upstream timed out after 30 s and nobody was there to see it happen"


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


def test_spare_columns_go_from_the_right_until_the_rest_fits_and_a_note_names_them() -> None:
    printing = printed(wide(), "table", width=40)
    lines = printing.out.splitlines()
    assert lines[0].split() == ["job", "id", "counts", "why"]
    assert max(map(len, lines)) <= 40
    assert printing.err.startswith("no room for seen_at: ")
    assert printed(wide(), "table", width=30).err.startswith("no room for counts, seen_at: ")
    assert printed(wide(), "table", width=40, quiet=True).err == ""


def test_an_instant_gives_way_to_its_age_before_it_goes() -> None:
    lines = printed(wide(), "table", width=62, now=NOW).out.splitlines()
    assert lines[0].split() == ["job", "id", "seen", "at", "why"]
    assert "2026-03-08T09:15:02.000Z 5h ago" in lines[2]
    lines = printed(wide(), "table", width=45, now=NOW).out.splitlines()
    assert lines[0].split() == ["job", "id", "counts", "seen", "at", "why"]
    assert lines[2].split()[:5] == ["job-1", "moved", "3", "5h", "ago"]


def test_other_formats_have_the_instant_alone() -> None:
    for format in ("plain", "csv", "json", "jsonl"):
        out = printed(wide(), format, width=40, now=NOW).out
        assert "2026-03-08T09:15:02.000Z" in out
        assert "ago" not in out


def test_what_no_table_can_hold_is_a_block_of_lines_for_each_record() -> None:
    records: list[Record] = [
        {
            "pos": 0,
            "digest": "3f2a9c01be77",
            "job_id": UUID,
            "account_id": "a" * 25,
            "error": WORDS,
        },
        {"pos": 1, "digest": "81f523370000", "job_id": UUID, "account_id": None, "error": "short"},
    ]
    columns = [Column(key, kind=Kind.TEXT if key == "error" else Kind.ID) for key in records[0]]
    assert printed(listing(records, columns=columns), "table", width=60).out == (
        "pos 0  digest 3f2a9c01be77\n"
        f"  job id {UUID}\n"
        f"  account id {'a' * 25}\n"
        "  error upstream timed out after 30 s and nobody was there\n"
        "        to see it happen\n"
        "pos 1  digest 81f523370000\n"
        f"  job id {UUID}  error short\n"
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("sizes", [(3, 12, 36, 25), (36, 36), (43, 24, 36, 6, 6), (70, 60)])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int, sizes: tuple[int, ...]) -> None:
    record: Record = {f"c{at}": "x" * size for at, size in enumerate(sizes)} | {"error": WORDS}
    columns = [Column(key, kind=Kind.TEXT if key == "error" else Kind.ID) for key in record]
    out = printed(listing([record] * 3, columns=columns), "table", width=width).out
    assert max(map(len, out.splitlines())) <= max(width, max(sizes) + len("  c0 "))
    assert all(out.count("x" * size) >= 3 for size in sizes)


def test_words_fold_to_no_more_lines_than_their_column_takes() -> None:
    report = listing(
        [{"error": WORDS, "n": 1}], columns=[Column("error", lines_max=2), Column("n")]
    )
    lines = printed(report, "table", width=30).out.splitlines()
    assert lines[2:] == ["upstream timed out after 30  1", "s and nobody was there to…"]


def test_a_command_to_copy_stands_whole_on_one_line_below_everything() -> None:
    command = shell_line(["ledgerctl", "dead", "requeue", "--error", "timed out", "--limit", "20"])
    report = replace(wide(), foot=["foot", command])
    assert printed(report, "table", width=40).out.splitlines()[-1] == command
    assert command.endswith("--error 'timed out' --limit 20")


def test_a_brief_page_takes_as_few_lines_as_hold_it() -> None:
    page = replace(
        record({"depth": 8000, "by_verdict": {"retryable": 7000}, "none": None}), is_brief=True
    )
    assert printed(page, "table", width=60).out == "depth 8000  by verdict retryable 7000\n"


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
