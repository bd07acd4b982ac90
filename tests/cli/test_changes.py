"""What every changing command keeps to: nothing before consent, and no result is ever lost."""

import json

import pytest

from tests.builders import make_job, make_row
from tests.conftest import Client, Invoker


def put_job(client: Client, database: str) -> None:
    client[database].jobs.insert_one(make_job())
    client[database].ledger.insert_one(make_row())


@pytest.mark.parametrize("output", ["table", "plain", "jsonl", "csv"])
def test_a_change_asked_for_a_field_that_does_not_exist_is_done_and_shown_whole(
    invoke: Invoker, client: Client, database: str, output: str
) -> None:
    put_job(client, database)
    run = invoke("job", "refund", "job-1", "--fields", "nope", "-o", output)
    assert run.code == 0
    assert "job-1:refund" in run.out
    assert "there is no field 'nope'" in run.err


def test_with_json_too_a_change_is_shown_whole_and_stderr_stays_empty(
    invoke: Invoker, client: Client, database: str
) -> None:
    put_job(client, database)
    run = invoke("job", "refund", "job-1", "--fields", "nope", "-o", "json")
    document = json.loads(run.out)
    assert (run.code, run.err, document["applied"]) == (0, "", 1)
    assert any("nope" in note for note in document["notes"])


def test_a_dry_run_and_a_reader_refuse_a_field_that_does_not_exist(
    invoke: Invoker, client: Client, database: str
) -> None:
    put_job(client, database)
    for words in (("job", "refund", "job-1", "--dry-run"), ("job", "list")):
        run = invoke(*words, "--fields", "nope")
        assert (run.code, run.out) == (2, "")


def test_fields_may_stand_apart_in_their_list(
    invoke: Invoker, client: Client, database: str
) -> None:
    put_job(client, database)
    assert invoke("job", "list", "--fields", "cost, job_id", "-o", "csv").out == (
        "cost,job_id\n40,job-1\n"
    )


EMPTY_NAMES = {
    "a job": ("job", "charge", "", "--account", "acct-1", "--cost", "40"),
    "an account": ("job", "charge", "job-1", "--account", "", "--cost", "40"),
    "an account of a grant": ("balance", "grant", "", "5", "--key", "ticket-1"),
    "a key": ("balance", "grant", "acct-1", "5", "--key", ""),
}


@pytest.mark.parametrize("words", EMPTY_NAMES.values(), ids=list(EMPTY_NAMES))
def test_an_unset_variable_names_nothing_that_could_be_written(
    invoke: Invoker, client: Client, database: str, words: tuple[str, ...]
) -> None:
    run = invoke(*words, "-o", "json")
    assert (run.code, run.out) == (2, "")
    assert client[database].list_collection_names() == []
