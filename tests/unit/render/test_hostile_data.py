"""Whatever the data holds, each format prints it letter for letter and nothing acts."""

import csv
import io
import json
import re
import unicodedata
from itertools import product

import pytest

from ledgerctl.cli.files import read_ids
from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Column, Kind, Record, Report, listing, record
from ledgerctl.render.text import encodable, visible
from tests.corpus import HOSTILE, HUGE_NUMBER
from tests.unit.render.printing import printed

ENCODINGS = ("ascii", "latin-1", "utf-8")
WIDTHS = (40, 80, 200)
COLUMNS = (
    Column("job_id", kind=Kind.ID),
    Column("amount", kind=Kind.AMOUNT),
    Column("error"),
)
LOOKS = tuple(product(ENCODINGS, WIDTHS, (False, True)))
STYLE = re.compile(r"\x1b\[[0-9;]*m")
SHORT = {name: text for name, text in HOSTILE.items() if len(text) < 100}


def of_all(texts: dict[str, str]) -> Report:
    return listing(
        [{"job_id": text, "amount": -40, "error": text} for text in texts.values()],
        columns=COLUMNS,
    )


def shown(text: str, encoding: str) -> str:
    return encodable(visible(text), encoding)


def cell(text: str, encoding: str) -> str:
    return shown(text.replace("\\", "\\\\"), encoding)


def acting(text: str) -> set[str]:
    """The characters that a terminal, a viewer or a reader of lines would act on."""
    return {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}


@pytest.mark.parametrize("format", OutputFormat)
@pytest.mark.parametrize(("encoding", "width", "color"), LOOKS)
def test_no_character_of_the_data_acts_on_the_terminal(
    format: str, encoding: str, width: int, color: bool
) -> None:
    out = printed(of_all(SHORT), format, encoding=encoding, width=width, color=color).out
    if color and format == "table":
        out = STYLE.sub("", out)
    allowed = {"\n", "\t"} if format == "plain" else {"\n"}
    if format.startswith("json"):
        allowed |= {"\u200b", "\u200d", "\ufeff", "\u00ad", "\U000e0041"}  # invisible, but inert
    assert acting(out) <= allowed


@pytest.mark.parametrize(("encoding", "width", "color"), LOOKS)
def test_a_table_holds_every_id_whole_on_one_line(encoding: str, width: int, color: bool) -> None:
    records: list[Record] = [{"job_id": text, "amount": -40} for text in SHORT.values()]
    report = listing(records, columns=COLUMNS[:2])
    out = printed(report, "table", encoding=encoding, width=width, color=color).out
    lines = [STYLE.sub("", line).removeprefix("job id ").strip() for line in out.split("\n")]
    for text in SHORT.values():
        whole = shown(text, encoding).strip()
        assert [line for line in lines if line.removesuffix("amount -40").startswith(whole)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["long line", "long word", "200,000 digits"])
def test_a_table_grows_as_far_as_an_id_needs(name: str, width: int) -> None:
    report = listing([{"job_id": HOSTILE[name]}], columns=COLUMNS[:1])
    assert printed(report, "table", width=width).out.split("\n")[2] == HOSTILE[name].rstrip()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_holds_every_id_whole_on_one_line(encoding: str, width: int) -> None:
    page = record(SHORT, columns=[Column(name, "id", Kind.ID) for name in SHORT])
    lines = printed(page, "table", encoding=encoding, width=width).out.split("\n")
    assert lines[:-1] == [f"id  {shown(text, encoding)}".rstrip() for text in SHORT.values()]


@pytest.mark.parametrize("width", WIDTHS)
def test_folded_words_lose_no_letter(width: int) -> None:
    report = listing([{"error": text} for text in HOSTILE.values()], columns=[Column("error")])
    out = printed(report, "table", width=width).out
    assert max(map(len, out.split("\n"))) <= max(width, 64)  # a word up to 64 may be an id
    folded = re.sub(r"\s", "", "".join(out.split("\n")[2:]))
    assert folded == re.sub(r"\s", "", "".join(map(visible, HOSTILE.values())))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_table_without_a_width_folds_nothing(encoding: str) -> None:
    lines = printed(of_all(SHORT), "table", encoding=encoding).out.split("\n")[2:-1]
    for text, line in zip(SHORT.values(), lines, strict=True):
        assert line.endswith(shown(text, encoding).rstrip())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("separators", ["json", "jsonl"])
def test_json_reads_back_as_the_very_data(encoding: str, separators: str) -> None:
    out = printed(of_all(HOSTILE), separators, encoding=encoding).out
    if separators == "json":
        items = json.loads(out)["items"]
    else:
        items = [json.loads(line) for line in out.splitlines()]
    assert [item["error"] for item in items] == list(HOSTILE.values())


@pytest.mark.parametrize("format", ["json", "jsonl"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_escapes_every_control_bidi_and_surrogate_character_as_u(
    format: str, encoding: str
) -> None:
    codes = [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F)]
    codes += [*range(0x2066, 0x206A), 0xD800, 0xDBFF, 0xDC00, 0xDFFF]
    text = "".join(f"{chr(code)}|" for code in codes)
    out = printed(record({"text": text}), format, encoding=encoding).out
    assert "|".join(f"\\u{code:04x}" for code in codes) in out


def test_json_leaves_quotes_and_backslashes_in_their_short_form() -> None:
    out = printed(record({"text": 'a\\nb"\\u0041\\\n'}), "jsonl").out
    assert out == '{"text":"a\\\\nb\\"\\\\u0041\\\\\\u000a"}\n'


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_json_leaves_other_characters_as_they_are_where_the_stream_has_them(format: str) -> None:
    assert "顧客の残高" in printed(record({"text": "顧客の残高"}), format).out
    assert "\\u9867" in printed(record({"text": "顧客の残高"}), format, encoding="latin-1").out


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_plain_gives_one_line_a_record_and_one_cell_a_column(encoding: str) -> None:
    lines = printed(of_all(HOSTILE), "plain", encoding=encoding).out.split("\n")
    assert lines[0] == "job_id\tamount\terror"
    assert lines[-1] == ""
    expected = [cell(text, encoding) for text in HOSTILE.values()]
    assert [line.split("\t") for line in lines[1:-1]] == [[one, "-40", one] for one in expected]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_csv_reads_back_and_runs_nothing(encoding: str) -> None:
    csv.field_size_limit(1_000_000)
    out = printed(of_all(HOSTILE), "csv", encoding=encoding).out
    assert out.count("\n") == len(HOSTILE) + 1
    assert "\r" not in out
    rows = list(csv.reader(io.StringIO(out, newline="")))[1:]
    for text, (job_id, amount, error) in zip(HOSTILE.values(), rows, strict=True):
        guard = "'" if text[:1] in {"=", "+", "-", "@", "\t", "\r", "\n"} and text else ""
        assert job_id == error == guard + cell(text, encoding)
        assert amount == "-40"


LOOK_ALIKES = {
    "tab": "\t",
    "spelled": "\\t",
    "run": "=x",
    "guarded": "'=x",
    "blank": " x ",
    "quoted": '"a,b"',
}


@pytest.mark.parametrize("format", ["plain", "csv"])
def test_no_two_texts_print_alike(format: str) -> None:
    texts = HOSTILE | LOOK_ALIKES
    lines = printed(of_all(texts), format).out.split("\n")[1:-1]
    assert len(set(lines)) == len(set(texts.values()))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("fields", [["job_id"], ["error", "job_id", "amount"]])
@pytest.mark.parametrize("format", ["plain", "csv", "jsonl"])
def test_what_is_printed_is_read_back_as_ids(format: str, fields: list[str], encoding: str) -> None:
    texts = {text for text in (HOSTILE | LOOK_ALIKES).values() if text.strip()}
    report = listing(
        [{"job_id": one, "amount": -40, "error": one} for one in texts], columns=COLUMNS
    )
    out = printed(report, format, encoding=encoding, fields=fields).out
    assert [one for one, _ in read_ids(out.split("\n"), "job_id")] == [*texts]


@pytest.mark.parametrize("format", ["plain", "csv"])
def test_without_a_header_ids_are_read_back_too(format: str) -> None:
    texts = [text for text in (HOSTILE | LOOK_ALIKES).values() if text.strip()]
    report = listing([{"job_id": one} for one in texts], columns=COLUMNS[:1])
    out = printed(report, format, header=False).out
    assert [one for one, _ in read_ids(out.split("\n"), "job_id")] == texts


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("job-1\r\n\r\njob-2\r\n", [("job-1", ""), ("job-2", "")]),
        ("reason,job_id\n late ,a\n,b\n", [("a", "late"), ("b", "")]),
        ("job_id\treason\na\tshouted, twice\n", [("a", "shouted, twice")]),
        ('{"job_id":7,"reason":null}\n{"reason":"x","job_id":"b"}\n', [("7", ""), ("b", "x")]),
        ('a,b\n\'=x\n"c"\n', [("a,b", ""), ("'=x", ""), ('"c"', "")]),
        ('"a,b"\n\'=x\nc\n', [("a,b", ""), ("=x", ""), ("c", "")]),
    ],
)
def test_a_column_job_id_counts_and_a_column_reason_is_the_job_s(
    text: str, read: list[tuple[str, str]]
) -> None:
    assert list(read_ids(text.split("\n"), "job_id")) == read


@pytest.mark.parametrize("text", ["job_id,reason\na\n", '{"job_id":"a"}\nb\n'])
def test_a_line_that_is_no_record_of_the_file_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError):
        list(read_ids(text.split("\n"), "job_id"))


@pytest.mark.parametrize("format", ["json", "plain"])
def test_a_number_of_200_000_digits_is_printed_to_the_last_digit(format: str) -> None:
    out = printed(record({"amount": 10**199_999}), format).out
    assert re.findall(r"\d+", out) == [HUGE_NUMBER]


@pytest.mark.parametrize("format", OutputFormat)
def test_a_number_beyond_the_limit_of_python_is_printed_exactly(format: str) -> None:
    report = listing([{"amount": -(10**6_000)}], columns=[Column("amount", kind=Kind.AMOUNT)])
    assert "-1" + "0" * 6_000 in printed(report, format, width=40).out


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["closing tag", "emoji code", "clear screen", "CJK", "newline"])
def test_titles_heads_feet_notes_and_text_lines_are_data_too(name: str, encoding: str) -> None:
    text = HOSTILE[name]
    report = Report(
        columns=[Column("key", title=text)],
        records=[{"key": 1}],
        head=[text],
        foot=[text],
        notes=[text],
    )
    result = printed(report, "table", encoding=encoding, width=80)
    lines = result.out.split("\n")
    expected = shown(text, encoding)
    assert (lines[0], lines[-2]) == (expected, expected)
    assert lines[1].startswith(expected)
    assert result.err == f"{expected}\n"
    own = printed(Report(columns=(), text=[text]), "plain", encoding=encoding)
    assert own.out == f"{expected}\n"
