"""The streams: what goes where, and what a full disk, a closed pipe or a failing store leaves."""

import errno
import io
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import OutputFailed, StoreUnavailable, UsageError
from ledgerctl.render.emit import emit
from ledgerctl.render.report import Column, Record, Report, listing
from tests.unit.render.printing import printed

COLUMNS = (Column("n"),)


class Failing(io.StringIO):
    """A stream whose writes, or whose flush alone, end in trouble."""

    def __init__(self, trouble: OSError, *, at: str) -> None:
        super().__init__()
        self._trouble, self._at = trouble, at

    def write(self, text: str) -> int:
        if self._at == "write":
            raise self._trouble
        return super().write(text)

    def flush(self) -> None:
        if self._at == "flush":
            raise self._trouble


def report(count: int = 3) -> Report:
    return listing(({"n": n} for n in range(count)), columns=COLUMNS, notes=["a note"])


@pytest.mark.parametrize("format", OutputFormat)
@pytest.mark.parametrize("at", ["write", "flush"])
def test_a_full_disk_is_told_as_output_failed(format: str, at: str) -> None:
    out = Failing(OSError(errno.ENOSPC, "No space left on device"), at=at)
    with pytest.raises(OutputFailed, match="No space left on device"):
        emit(report(), format=format, out=out, err=io.StringIO())


@pytest.mark.parametrize("format", OutputFormat)
@pytest.mark.parametrize("at", ["write", "flush"])
def test_a_reader_that_went_away_is_the_callers_to_judge(format: str, at: str) -> None:
    with pytest.raises(BrokenPipeError):
        emit(report(), format=format, out=Failing(BrokenPipeError(), at=at), err=io.StringIO())


@pytest.mark.parametrize("format", OutputFormat)
def test_trouble_of_a_store_is_not_taken_for_trouble_of_the_output(format: str) -> None:
    def records() -> Iterator[Record]:
        yield {"n": 1}
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        emit(Report(COLUMNS, records()), format=format, out=io.StringIO(), err=io.StringIO())


@pytest.mark.parametrize("format", OutputFormat)
def test_a_store_that_fails_early_leaves_nothing_half_said(format: str) -> None:
    def records() -> Iterator[Record]:
        yield from ({"n": n} for n in range(400))
        raise StoreUnavailable("MongoDB cannot be reached")

    out = io.StringIO()
    with pytest.raises(StoreUnavailable):
        emit(Report(COLUMNS, records()), format=format, out=out, err=io.StringIO())
    assert out.getvalue() == ""


@pytest.mark.parametrize("format", ["json", "jsonl", "plain", "csv"])
def test_records_are_written_while_later_ones_are_still_to_come(format: str) -> None:
    out = io.StringIO()
    written_halfway: list[int] = []

    def records() -> Iterator[Record]:
        for n in range(50_000):
            if n == 40_000:
                written_halfway.append(len(out.getvalue()))
            yield {"n": n}

    emit(Report(COLUMNS, records()), format=format, out=out, err=io.StringIO())
    assert written_halfway[0] > 100_000


def test_notes_go_to_stderr_and_in_json_into_the_document() -> None:
    for format in ("table", "plain", "jsonl", "csv"):
        assert printed(report(), format).err == "a note\n"
    result = printed(report(), "json")
    assert result.err == ""
    assert '"notes": ["a note"]' in result.out


def test_a_stderr_that_takes_nothing_does_not_spoil_the_result() -> None:
    out = io.StringIO()
    assert emit(report(), format="plain", out=out, err=Failing(BrokenPipeError(), at="write")) == 0
    assert out.getvalue() == "n\n0\n1\n2\n"


def test_an_empty_table_is_a_sentence_on_stderr() -> None:
    empty = listing([], columns=COLUMNS, empty="There are no dead letters.")
    table = printed(empty, "table")
    assert (table.out, table.err) == ("", "There are no dead letters.\n")
    plain = printed(empty, "plain")
    assert (plain.out, plain.err) == ("n\n", "")


def test_the_exit_code_is_the_reports() -> None:
    assert printed(Report(COLUMNS, exit_code=5), "plain").exit_code == 5


def test_an_unknown_format_is_refused_and_the_formats_are_named() -> None:
    with pytest.raises(UsageError) as refusal:
        printed(report(), "yaml")
    assert refusal.value.hint == "The formats are table, plain, json, jsonl, csv."


def test_only_a_table_imports_rich() -> None:
    program = (
        "import io, sys; from ledgerctl.render.emit import emit; from ledgerctl.domain.output_format import OutputFormat;"
        "from ledgerctl.render.report import Column, Report;"
        "[emit(Report([Column('n')], [{'n': '顧'}]), format=f, out=io.StringIO(), err=io.StringIO())"
        " for f in OutputFormat if f != 'table'];"
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
