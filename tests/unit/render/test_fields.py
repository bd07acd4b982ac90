"""`--fields` selects and orders, the same in every format, and refuses what is not there."""

import json

import pytest

from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Column, Report, listing, record
from tests.unit.render.printing import printed

COLUMNS = (Column("job_id"), Column("state"), Column("digest", shown=False))
ITEM = {"job_id": "j-1", "state": "charged", "digest": "ab12", "raw": "{}"}


def items() -> Report:
    return listing([ITEM], columns=COLUMNS)


@pytest.mark.parametrize(
    ("format", "written"),
    [
        ("plain", "state\tjob_id\ncharged\tj-1\n"),
        ("csv", "state,job_id\ncharged,j-1\n"),
        ("jsonl", '{"state":"charged","job_id":"j-1"}\n'),
        ("table", "state    job id\n───────────────\ncharged  j-1\n"),
    ],
)
def test_fields_are_selected_and_ordered(format: str, written: str) -> None:
    assert printed(items(), format, fields=["state", "job_id"]).out == written


def test_in_json_the_fields_are_those_of_the_items() -> None:
    document = json.loads(printed(items(), "json", fields=["state"]).out)
    assert document == {"items": [{"state": "charged"}], "shown": 1, "total": 1}


def test_items_that_are_already_in_the_document_are_cut_too() -> None:
    report = Report(COLUMNS, [ITEM], document={"results": [ITEM], "n": 1}, items_key="results")
    document = json.loads(printed(report, "json", fields=["state"]).out)
    assert document == {"results": [{"state": "charged"}], "n": 1}


def test_in_json_the_fields_of_one_thing_are_its_own_keys() -> None:
    out = printed(
        record({"balance": -40, "rows": 1, "jobs": 2}), "json", fields=["jobs", "rows"]
    ).out
    assert out == '{\n  "jobs": 2,\n  "rows": 1\n}\n'
    page = printed(record({"balance": -40, "rows": 1}), "plain", fields=["rows"]).out
    assert page == "rows\n1\n"


@pytest.mark.parametrize("format", ["plain", "csv", "table"])
def test_a_column_that_is_not_shown_waits_to_be_asked_for(format: str) -> None:
    assert "ab12" not in printed(items(), format).out
    assert "ab12" in printed(items(), format, fields=["digest"]).out


@pytest.mark.parametrize("format", OutputFormat)
def test_a_key_of_the_records_is_a_field_without_being_a_column(format: str) -> None:
    assert "{}" in printed(items(), format, fields=["raw"]).out


@pytest.mark.parametrize("format", OutputFormat)
def test_an_unknown_field_is_refused_and_the_fields_are_named(format: str) -> None:
    with pytest.raises(UsageError) as refusal:
        printed(items(), format, fields=["job_id", "jobid"])
    assert refusal.value.message == "there is no field 'jobid'"
    assert refusal.value.hint == "The fields are job_id, state, digest, raw."


@pytest.mark.parametrize("format", OutputFormat)
def test_an_empty_listing_knows_its_fields(format: str) -> None:
    printed(listing([], columns=COLUMNS), format, fields=["digest"])
    with pytest.raises(UsageError):
        printed(listing([], columns=COLUMNS), format, fields=["jobid"])


def test_no_field_at_all_is_refused() -> None:
    with pytest.raises(UsageError):
        printed(items(), "plain", fields=[])


def test_a_record_that_lacks_a_field_has_none_there() -> None:
    report = listing([ITEM, {"job_id": "j-2"}], columns=COLUMNS)
    assert printed(report, "jsonl", fields=["state"]).out == '{"state":"charged"}\n{"state":null}\n'
