"""`balance explain` on a real server: the figures add up, the odd is said, long accounts stay short."""

import json
import sys
from datetime import timedelta
from typing import Any

import pexpect
import pytest
from bson import Int64
from pymongo import MongoClient

from ledgerctl.domain.explain import ODDITIES_MAX
from tests.bench.generate import Plan, account_name, generate
from tests.builders import NOON, make_job, make_row, without
from tests.conftest import ROOT, Documents, Invoker

Client = MongoClient[dict[str, Any]]

LATER = NOON + timedelta(seconds=30)


@pytest.fixture
def lost_refund(documents: Documents) -> None:
    documents.jobs.insert_many(
        [
            make_job(is_refunded=True, refunded_at=LATER, status="failed"),
            make_job("job-2", is_refunded=True, refunded_at=LATER, is_reclaimed=True, reclaimed_at=LATER),
        ]
    )  # fmt: skip
    documents.ledger.insert_many(
        [
            make_row(),
            without(make_row("job-2"), "account_id"),
            make_row("job-2", "refund", created_at=LATER),
            make_row("job-2", "reclaim", created_at=LATER),
            make_row(row_type="grant", _id="grant:1", job_id=None, amount=500, reason="welcome"),
        ]
    )


def adds_up(document: dict[str, Any]) -> bool:
    parts = [job["net"] for job in document["jobs"]]
    parts += [row["amount"] for row in document["other_rows"] if isinstance(row["amount"], int)]
    return bool(document["opening_balance"] + sum(parts) == document["closing_balance"])


def test_the_story_adds_up_and_calls_out_what_is_odd(invoke: Invoker, lost_refund: None) -> None:
    told = invoke("balance", "explain", "acct-1", "-o", "json")
    document = told.json()
    assert told.code == 0
    assert (
        document["balance"] == invoke("balance", "show", "acct-1", "-o", "json").json()["balance"]
    )
    assert adds_up(document)
    first, second = document["jobs"]
    assert [row["type"] for row in second["rows"]] == ["charge", "refund", "reclaim"]
    assert (second["net"], second["expected_net"], second["oddities"]) == (-40, -40, [])
    (odd,) = first["oddities"]
    assert odd["sentence"] == (
        "the job is marked refunded but no refund row exists: 40 credits are missing"
    )
    assert odd["command"] == "ledgerctl ledger repair --job job-1"
    assert document["oddities"] == [odd]


def test_json_is_the_same_by_either_option(invoke: Invoker, lost_refund: None) -> None:
    one = invoke("balance", "explain", "acct-1", "-o", "json").json()
    other = invoke("balance", "explain", "acct-1", "--format", "json").json()
    assert one | {"as_of": None} == other | {"as_of": None}
    missing = invoke("balance", "explain", "nobody", "--format", "json")
    assert (missing.code, json.loads(missing.err)["error"]["exit_code"]) == (4, 4)
    assert invoke("balance", "explain", "acct-1", "--format", "html", "-o", "json").code == 2


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_every_format_says_what_happened_and_what_heals(
    invoke: Invoker, lost_refund: None, format: str
) -> None:
    told = invoke("balance", "explain", "acct-1", "--format", format)
    assert told.code == 0
    assert told.err == ""
    for words in (
        "420",
        "40 credits",
        "no refund row exists",
        "ledger repair --job job-1",
        "welcome",
    ):
        assert words in told.out


def test_records_have_a_sentence_each(invoke: Invoker, lost_refund: None) -> None:
    lines = invoke("balance", "explain", "acct-1", "-o", "jsonl").out.splitlines()
    assert len(lines) == 5
    assert all("8 March 2026" in json.loads(line)["sentence"] for line in lines)


def test_a_window_opens_with_what_stood_before(invoke: Invoker, lost_refund: None) -> None:
    words = ("--from", "2026-03-08T12:00:10Z", "-o", "json")
    document = invoke("balance", "explain", "acct-1", *words).json()
    assert document["opening_balance"] == 420
    assert adds_up(document)
    (job,) = [job for job in document["jobs"] if job["job_id"] == "job-2"]
    assert [row["type"] for row in job["rows"]] == ["refund", "reclaim"]
    assert "it has others outside" in job["summary"]


def test_one_job_stands_beside_the_rest_of_the_balance(invoke: Invoker, lost_refund: None) -> None:
    document = invoke("balance", "explain", "acct-1", "--job", "job-2", "-o", "json").json()
    assert (document["net"], document["other_rows_sum"], document["balance"]) == (-40, 460, 420)
    assert [job["job_id"] for job in document["jobs"]] == ["job-2"]


def test_a_job_of_another_account_is_not_found(invoke: Invoker, documents: Documents) -> None:
    documents.jobs.insert_many([make_job(), make_job("job-2", account_id="acct-2")])
    assert invoke("balance", "explain", "acct-1", "--job", "job-2").code == 4
    assert invoke("balance", "explain", "acct-1", "--job", "typo").code == 4
    assert invoke("balance", "explain", "nobody").code == 4


def test_orphans_unknown_types_and_unusable_rows_are_told_apart(
    invoke: Invoker, documents: Documents
) -> None:
    documents.ledger.insert_many(
        [
            make_row("gone"),
            make_row(row_type="promo", _id="p", job_id=None, amount=3),
            make_row(row_type="promo", _id="q", job_id=None, amount="1.5"),
            make_row(row_type="promo", _id="u", job_id=None, amount=4, created_at=None),
        ]
    )
    told = invoke("balance", "explain", "acct-1", "-o", "json")
    document = told.json()
    assert told.code == 5
    assert [row["row_id"] for row in document["unusable_rows"]] == ["q"]
    assert {odd["code"] for odd in document["oddities"]} == {"orphan_row"}
    assert document["balance"] == -33
    assert adds_up(document)


@pytest.mark.parametrize("named", [1.0, 0.0])
def test_a_long_account_is_rolled_up_and_its_odd_jobs_are_singled_out(
    invoke: Invoker, documents: Documents, named: float
) -> None:
    plan = Plan(rows=3_000, accounts=2, largest=0.9, named=named, all_types=False)
    totals = generate(documents, plan)
    largest = account_name(0)
    documents.jobs.insert_one(
        make_job("lost", account_id=largest, is_refunded=True, refunded_at=NOON, status="failed")
    )
    documents.ledger.insert_many(
        [make_row("lost", account_id=largest), make_row("gone", account_id=largest)]
    )
    told = invoke("balance", "explain", largest, "-o", "json")
    document = told.json()
    assert told.code == 0
    assert document["balance"] == totals.balances[largest] - 80
    assert sum(one["net"] for one in document["periods"]) == document["balance"]
    assert {odd["job_id"]: odd["code"] for odd in document["oddities"]} == {
        "lost": "missing_row", "gone": "orphan_row",
    }  # fmt: skip
    assert document["oddities_total"] == 2 <= ODDITIES_MAX
    lines = invoke("balance", "explain", largest).out.splitlines()
    assert len(lines) < 60
    late = invoke("balance", "explain", largest, "--from", "2023-01-02", "-o", "json").json()
    assert late["opening_balance"] + sum(one["net"] for one in late["periods"]) == late["balance"]
    assert late["oddities_total"] == 2


def test_sums_beyond_int64_are_told_exactly(invoke: Invoker, documents: Documents) -> None:
    rows = [make_row(f"j{n}", amount=Int64(2**63 - 1), type="promo") for n in range(3)]
    documents.ledger.insert_many(rows)
    for format in ("text", "markdown", "html"):
        told = invoke("balance", "explain", "acct-1", "--format", format)
        assert str(3 * (2**63 - 1)) in told.out


@pytest.mark.parametrize("command", ["show", "explain"])
def test_a_terminal_gets_a_chart_and_a_pipe_gets_none(
    environment: dict[str, str], invoke: Invoker, lost_refund: None, command: str
) -> None:
    words = ["-m", "ledgerctl", "balance", command, "acct-1", "--color", "never"]
    with pexpect.spawn(
        sys.executable, words, env=environment | {"TERM": "xterm", "LC_ALL": "C.UTF-8"},
        cwd=str(ROOT), dimensions=(40, 100), encoding="utf-8", timeout=60,
    ) as terminal:  # fmt: skip
        shown = terminal.read()
    assert "▁" in shown
    assert "420" in shown
    assert "▁" not in invoke("balance", command, "acct-1").out
    assert "▁" not in invoke("balance", command, "acct-1", "-o", "table").out


def test_off_by_is_the_sum_of_the_audits_effects_and_names_the_right_balance(
    invoke: Invoker, lost_refund: None, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job("bare", is_refunded=True, refunded_at=LATER, is_reclaimed=True,
                                       reclaimed_at=LATER))  # fmt: skip
    documents.ledger.insert_many(
        [
            make_row("gone"),
            without(make_row("nobody", "refund", _id="nameless"), "job_id"),
            make_row("job-2", "refund", _id="again", amount=70),
        ]
    )
    effect = invoke("ledger", "audit", "--account", "acct-1", "-o", "json").json()["effect"]
    assert effect != 0
    for range_words in ((), ("--from", "2026-03-09"), ("--from", "2020-01-01")):
        told = invoke("balance", "explain", "acct-1", *range_words, "-o", "json").json()
        assert (told["off_by"], told["right_balance"]) == (effect, told["balance"] - effect)
    said = invoke("balance", "explain", "acct-1").out
    assert f"the right balance would be {420 - 40 + 40 + 70 - effect}." in said
    past = invoke("balance", "explain", "acct-1", "--to", "2026-03-07", "-o", "json").json()
    assert (past["off_by"], past["right_balance"], past["balance"]) == (effect, None, 0)


def test_an_account_without_a_fault_is_off_by_nothing(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_one(make_row())
    told = invoke("balance", "explain", "acct-1", "-o", "json").json()
    assert (told["off_by"], told["oddities"]) == (0, [])
    assert "would be" not in invoke("balance", "explain", "acct-1").out


def test_a_refunded_job_that_succeeded_was_only_reported_as_failed(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job(is_refunded=True, refunded_at=LATER, status="succeeded"))
    documents.ledger.insert_many([make_row(), make_row(row_type="refund", created_at=LATER)])
    for format in ("text", "markdown", "html"):
        said = invoke("balance", "explain", "acct-1", "--format", format).out
        assert "was reported as failed" in said
        assert "it succeeded in the end" in said
        assert "it failed" not in said
        assert "had failed" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "2026-11-30"), "to 30 November 2026"),
        (("--from", "2026-03-01", "--to", "2026-11-30"), "from 1 March 2026 to 30 November 2026"),
        (("--to", "2026-12-01T00:00:00Z"), "to 1 December 2026, 00:00:00 UTC"),
    ],
)
def test_a_range_is_told_in_the_words_that_were_asked(
    invoke: Invoker, lost_refund: None, words: tuple[str, ...], said: str
) -> None:
    for format in ("text", "markdown", "html"):
        page = invoke(
            "balance", "explain", "acct-1", *words, "--for", "customer", "--format", format
        )
        assert said in page.out
    assert said.split("to ")[-1] in invoke("balance", "explain", "acct-1", *words).out
