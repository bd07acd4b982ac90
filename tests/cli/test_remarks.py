"""What a result says beside itself: nothing that a reader needs is missing in a pipe."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_claim, make_job, make_letter, make_row
from tests.conftest import Invoker
from tests.dead_letters import DEAD


def test_what_was_named_and_is_no_letter_is_said_in_every_format(
    invoke: Invoker, redis_client: Redis, documents: Any
) -> None:
    documents.jobs.insert_one(make_job(is_refunded=True))
    redis_client.rpush(DEAD, make_letter("job-1"))
    names = [f"gone-{n}" for n in range(12)]
    for output in ("plain", "csv", "table"):
        run = invoke("dead", "requeue", *names, "--yes", "-o", output)
        assert run.code == 4
        assert "not found: gone-0, gone-1" in run.err
        assert "gone-9 and 2 more" in run.err
    run = invoke("dead", "requeue", "job-1", "gone", "--yes", "-o", "plain")
    assert (run.code, "not found: gone" in run.err) == (8, True)


def test_a_dry_run_of_one_job_says_that_it_is_one(invoke: Invoker, documents: Any) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_one(make_row())
    for words in (
        ("job", "refund", "job-1"),
        ("job", "charge", "job-2", "--account", "acct-1", "--cost", "3"),
        ("balance", "grant", "acct-1", "5", "--key", "k"),
    ):
        for output in ("table", "plain", "csv", "jsonl"):
            assert "dry run: nothing was written" in invoke(*words, "--dry-run", "-o", output).err
    assert documents.ledger.count_documents({}) == 1


@pytest.mark.parametrize("output", ["plain", "csv", "jsonl"])
def test_a_format_of_lines_says_where_the_rest_is(
    invoke: Invoker, redis_client: Redis, documents: Any, output: str
) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_one(make_row())
    redis_client.rpush(DEAD, make_letter("job-1"))
    for words in (("dead", "stats"), ("job", "show", "job-1"), ("dead", "show", "job-1")):
        assert "-o table and -o json show it all" in invoke(*words, "-o", output).err
        assert invoke(*words, "-o", output, "--quiet").err == ""
    assert invoke("job", "list", "-o", output).err == ""


def test_undated_rows_that_a_time_leaves_out_are_said(invoke: Invoker, documents: Any) -> None:
    documents.ledger.insert_many([make_row(), make_row("job-2", created_at="soon")])
    assert "1 row without a usable date: counted" in invoke("balance", "show", "acct-1").err
    run = invoke("balance", "show", "acct-1", "--at", "now")
    assert "1 row without a usable date: not counted with --at" in run.err


def test_summaries_of_another_day_zone_are_said_to_be(
    invoke: Invoker, stores: Stores, documents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_indexes(stores)
    documents.ledger.insert_one(make_row())
    days = ("--from", "2026-03-07", "--to", "2026-03-09")
    show, drift = ("summary", "show", "acct-1", *days), ("summary", "drift", *days)
    assert invoke("summary", "rebuild", *days).code == 0
    for words in (show, drift):
        assert "are of days of" not in invoke(*words).err
    monkeypatch.setenv("LEDGERCTL_TIMEZONE", "Asia/Tokyo")
    for words in (show, drift):
        assert "1 of these are of days of UTC, not of Asia/Tokyo" in invoke(*words).err
    assert invoke("summary", "rebuild", *days).code == 0
    for words in (show, drift):
        assert "are of days of" not in invoke(*words).err


def test_inbox_rows_come_by_when_they_were_first_seen(invoke: Invoker, documents: Any) -> None:
    for number, hours in enumerate([2, 0, 3, 1]):
        at = NOON + timedelta(hours=hours)
        documents.inbox.insert_one(make_claim(message_key=f"m-{number}", first_seen_at=at))
    items = invoke("inbox", "list", "-o", "json").json()["items"]
    assert [one["message_key"] for one in items] == ["m-2", "m-0", "m-3", "m-1"]


def test_the_doctor_prints_times_as_all_else_does(invoke: Invoker, documents: Any) -> None:
    documents.ledger.insert_many([make_row(), make_row(_id="twin", created_at=NOON)])
    said = invoke("doctor", "-o", "json").stdout.decode()
    assert "created_at=2026-03-08T12:00:00.000Z" in said


def test_a_row_of_nothing_is_not_called_wrong(invoke: Invoker, documents: Any) -> None:
    documents.ledger.insert_one(make_row(row_type="refund", amount=0))
    said = invoke("balance", "explain", "acct-1", "--format", "text").out
    assert "a refund row moved no credits" in said
    assert "nature" not in said


def test_no_finding_names_a_command_that_refuses_it(invoke: Invoker, documents: Any) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_one(make_row(amount="forty"))
    (finding,) = invoke("ledger", "audit", "--code", "bad_amount", "-o", "json").json()["findings"]
    assert "ledger correct" not in finding["detail"]
    assert "no command can tell what was charged" in finding["detail"]


def test_a_charge_that_is_completed_speaks_of_no_flag(
    invoke: Invoker, stores: Stores, documents: Any
) -> None:
    build_indexes(stores)
    documents.jobs.insert_one(make_job())
    run = invoke("job", "charge", "job-1", "--account", "acct-1", "--cost", "40", "-o", "table")
    assert (run.code, "flag" in run.out) == (0, False)


def test_a_hint_names_no_option_that_the_command_lacks(
    invoke: Invoker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("read_only = true\n")
    file.chmod(0o600)
    monkeypatch.setenv("LEDGERCTL_CONFIG", str(file))
    for words in (
        ("queue", "work", "--exec", "true"),
        ("inbox", "consume", "--group", "g", "--exec", "true"),
    ):
        run = invoke(*words)
        assert (run.code, "dry-run" in run.err) == (3, False)
    assert "look with --dry-run" in invoke("job", "refund", "job-1").err
