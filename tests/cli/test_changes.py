"""What every changing command keeps to: nothing before consent, and no result is ever lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledgerctl.cli.session import Session
from tests.builders import make_job, make_row
from tests.conftest import Client, Invoker
from tests.servers import wait_until


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


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupted_change_says_how_far_it_came_and_the_command_that_goes_on(
    environment: dict[str, str], client: Client, database: str, number: int, code: int
) -> None:
    ids = [f"job-{one}" for one in range(500)]
    client[database].jobs.insert_many([make_job(one) for one in ids])
    client[database].ledger.insert_many([make_row(one) for one in ids])
    refunds = {"type": "refund"}
    words = ["job", "refund", "--from-file", "-", "--yes", "--expect", "500", "-o", "plain"]
    with subprocess.Popen(
        [sys.executable, "-m", "ledgerctl", *words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        program.stdin.write("\n".join(ids))
        program.stdin.close()
        program.stdin = None
        wait_until(lambda: client[database].ledger.count_documents(refunds) > 0)
        program.send_signal(number)
        _, err = program.communicate(timeout=60)
    done = client[database].ledger.count_documents(refunds)
    assert program.returncode == code
    assert f"stopped; {500 - done} not tried; to continue, run:" in err
    assert "\nledgerctl job refund --from-file - --yes -o plain\n" in err


def test_a_file_of_ids_may_hold_any_character_but_a_line_feed(
    invoke: Invoker, client: Client, database: str, tmp_path: Path
) -> None:
    ids = ["a\u2028b", "c\x85d", "e\x0cf", "g h", "--force", "\u00a0i"]
    client[database].jobs.insert_many([make_job(one) for one in ids])
    client[database].ledger.insert_many([make_row(one) for one in ids])
    file = tmp_path / "ids"
    file.write_bytes(("\ufeffjob_id\r\n\r\n" + "\r\n".join([*ids, ids[0]])).encode())
    done = invoke("job", "refund", "--from-file", str(file), "--yes", "-o", "json").json()
    assert [one["job_id"] for one in done["results"]] == ids
    assert done["applied"] == len(ids)


def test_ids_so_long_that_no_query_holds_several_are_taken_all_the_same(
    invoke: Invoker, client: Client, database: str
) -> None:
    ids = [f"{n:06d}" + "x" * 125_000 for n in range(12)]
    client[database].jobs.insert_many([make_job(one) for one in ids])
    client[database].ledger.insert_many([make_row(one) for one in ids])
    words = ("job", "refund", "--from-file", "-", "--yes", "-o", "json")
    assert invoke(*words, stdin="\n".join(ids)).json()["applied"] == 12
    too_long = invoke(*words, stdin="x" * 1_000_001)
    assert too_long.code == 2
    assert "more than 1,000,000 characters" in too_long.err


def test_quiet_says_nothing_beside_a_good_result_and_what_is_amiss_beside_another(
    invoke: Invoker, client: Client, database: str
) -> None:
    assert invoke("db", "roles", "--quiet", "-o", "csv").err == ""
    client[database].ledger.insert_one(make_row(amount="forty"))
    run = invoke("balance", "show", "acct-1", "--quiet", "-o", "csv")
    assert run.code == 5
    assert "cannot be summed" in run.err


NAMED_BY_ID = {
    "show": ("job", "show", "42"),
    "refund": ("job", "refund", "42"),
    "reclaim": ("job", "reclaim", "42"),
    "charge": ("job", "charge", "42", "--account", "acct-1", "--cost", "40"),
    "explain": ("balance", "explain", "acct-1", "--job", "42"),
    "repair": ("ledger", "repair", "--job", "42", "--yes"),
    "correct": ("ledger", "correct", "42", "--reason", "ticket", "--yes"),
    "push": ("queue", "push", "42", "--error", "timeout"),
}


@pytest.mark.parametrize("words", NAMED_BY_ID.values(), ids=list(NAMED_BY_ID))
def test_a_text_that_jobs_of_two_types_answer_to_is_exit_3_and_names_both(
    invoke: Invoker, client: Client, database: str, words: tuple[str, ...]
) -> None:
    client[database].jobs.insert_many([make_job("42"), make_job(42)])
    client[database].ledger.insert_many([make_row("42"), make_row(42, _id="other")])
    run = invoke(*words, "-o", "json")
    assert run.code == 3
    assert "integer" in run.out + run.err
    assert "string" in run.out + run.err
    assert client[database].ledger.count_documents({}) == 2


@pytest.mark.parametrize("noun", ["job", "balance", "inbox", "log", "dead"])
def test_a_limit_beyond_every_number_shows_all(invoke: Invoker, noun: str) -> None:
    run = invoke(noun, "list", "--limit", "9" * 30, "-o", "json")
    assert (run.code, run.json()["items"]) == (0, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_change_leaves_its_one_result_and_the_exit_code_of_the_log(
    invoke: Invoker,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    put_job(client, database)
    emit = Session.emit

    def struck(session: Session, report: Any) -> int:
        os.kill(os.getpid(), number)
        return emit(session, report)

    monkeypatch.setattr(Session, "emit", struck)
    run = invoke("job", "refund", "job-1", "-o", "json")
    assert (run.code, run.err, run.json()["applied"]) == (0, "", 1)
    logged = client[database].operator_log.find_one({}) or {}
    assert logged["exit_code"] == 0
