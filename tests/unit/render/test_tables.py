"""A table serves a person at a terminal: aligned, folded at words only, coloured when told to."""

from datetime import timedelta

import pytest

from ledgerctl.render.report import Column, Kind, Record, Report, listing, record
from tests.unit.render.printing import printed

JOB = "0198f4c2-7d1e-7c3a-9b1d-2f6f0a9c1e11"
COLUMNS = (
    Column("job_id", "job", Kind.ID),
    Column("amount", kind=Kind.AMOUNT),
    Column("error"),
    Column("waited", kind=Kind.DURATION),
)
ITEMS: list[Record] = [
    {"job_id": JOB, "amount": -40, "error": "upstream timed out after 30 s", "waited": None},
    {"job_id": "7", "amount": 1200, "error": "顧客の残高", "waited": timedelta(hours=2, minutes=5)},
]


def test_numbers_stand_right_words_left_and_wide_characters_in_line() -> None:
    assert printed(listing(ITEMS, columns=COLUMNS), "table").out == (
        "job                                   amount  error                          waited\n"
        "───────────────────────────────────────────────────────────────────────────────────\n"
        f"{JOB}     -40  upstream timed out after 30 s\n"
        "7                                       1200  顧客の残高                      2h 5m\n"
    )


def test_an_output_without_box_characters_gets_dashes() -> None:
    out = printed(listing(ITEMS[:1], columns=COLUMNS[1:2]), "table", encoding="latin-1").out
    assert out == "amount\n------\n   -40\n"


def test_words_fold_and_everything_else_stays_whole_on_a_narrow_terminal() -> None:
    assert printed(listing(ITEMS[:1], columns=COLUMNS), "table", width=66).out == (
        "job                                   amount  error         waited\n"
        "──────────────────────────────────────────────────────────────────\n"
        f"{JOB}     -40  upstream\n"
        "                                              timed out\n"
        "                                              after 30 s\n"
    )


def test_an_id_inside_a_sentence_is_not_broken() -> None:
    item: Record = {"error": f"job {JOB} is charged twice", "job_id": JOB}
    report = listing([item], columns=[COLUMNS[0], Column("error")])
    assert printed(report, "table", width=40).out.count(JOB) == 2


def test_a_list_of_ids_is_broken_between_ids_alone() -> None:
    ids = [JOB, f"{JOB}:charge", "x y z"]
    out = printed(record({"row_ids": ids}), "table", width=60).out
    assert out == f"row ids  {JOB},\n         {JOB}:charge,\n         x y z\n"
    report = listing([{"row_ids": ids}], columns=[Column("row_ids")])
    assert ",".join(ids) in printed(report, "table", width=40).out


def test_colour_marks_headings_and_debts_and_nothing_else() -> None:
    report = listing(ITEMS[:1], columns=COLUMNS[1:2])
    out = printed(report, "table", color=True).out
    assert out == "\x1b[1mamount\x1b[0m\n──────\n   \x1b[31m-40\x1b[0m\n"


@pytest.mark.parametrize(
    "environment",
    [
        {"TERM": "dumb", "FORCE_COLOR": "1"},
        {"FORCE_COLOR": "0", "COLUMNS": "10"},
        {"NO_COLOR": "1", "LINES": "1"},
        {"TTY_COMPATIBLE": "1", "GITHUB_ACTIONS": "true"},
    ],
)
@pytest.mark.parametrize("color", [False, True])
def test_the_environment_changes_nothing(
    environment: dict[str, str], color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report(COLUMNS, ITEMS)
    expected = printed(report, "table", color=color, width=120).out
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert printed(report, "table", color=color, width=120).out == expected


def test_a_page_aligns_its_values_and_folds_words_under_themselves() -> None:
    document: Record = {
        "job_id": JOB,
        "last_error": "upstream timed out after 30 s and nobody knows",
        "queues": {"retry": 1, "processing": 0},
        "rows": [{"type": "charge", "amount": -40}, {"type": "refund", "amount": 40}],
        "refunded_at": None,
    }
    assert printed(record(document), "table", width=49).out == (
        "job id       0198f4c2-7d1e-7c3a-9b1d-2f6f0a9c1e11\n"
        "last error   upstream timed out after 30 s and\n"
        "             nobody knows\n"
        "queues       retry 1  processing 0\n"
        "rows         type charge  amount -40\n"
        "             type refund  amount 40\n"
        "refunded at\n"
    )


def test_an_id_that_does_not_fit_beside_its_key_stands_below_it() -> None:
    out = printed(record({"operation_id": JOB, "n": 1}), "table", width=44).out
    assert out == f"operation id\n  {JOB}\nn             1\n"


def test_sections_follow_with_their_own_heads() -> None:
    rows = Report([Column("type")], [{"type": "charge"}], head=["Rows"])
    page = record({"job_id": "j-1"}, sections=[rows], head=["Job"], foot=["Net -40"])
    out = printed(page, "table").out
    assert out == "Job\njob id  j-1\nNet -40\n\nRows\ntype\n──────\ncharge\n"
    assert printed(page, "plain").out == "job_id\nj-1\n"


@pytest.mark.parametrize("format", ["table", "plain"])
def test_a_reports_own_text_replaces_the_body(format: str) -> None:
    report = Report(COLUMNS, ITEMS, text=["Dear customer,", "[/] you owe 40 credits."])
    assert printed(report, format).out == "Dear customer,\n[/] you owe 40 credits.\n"
