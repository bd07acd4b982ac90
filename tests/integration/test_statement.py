"""A statement for a customer: figures that add up in every format, nothing internal, any size."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders import NOON, make_job, make_row, without
from tests.conftest import Documents, Invoker

FORMATS = ("text", "markdown", "html")
TAGS = re.compile(r"<(style|script).*?</\1>|<[^>]*>", re.DOTALL)
FIGURE = r"[-+]?\d{1,3}(?:,\d{3})*"


def statement(invoke: Invoker, account: str, *words: str, format: str) -> str:
    """What a reader of the page sees, cells parted by blanks."""
    run = invoke("balance", "explain", account, "--for", "customer", "--format", format, *words)
    assert run.code in {0, 5}
    return re.sub(r"[|*\\]", " ", TAGS.sub(" ", run.out)) if format != "text" else run.out


def figure(page: str, name: str) -> int:
    """The figure beside a name of the strip."""
    found = re.search(rf"{name}\s+({FIGURE})", page)
    assert found, (name, page[:2000])
    return int(found[1].replace(",", ""))


def days_of(page: str) -> list[int]:
    """The balance at the end of each day."""
    table = re.sub(r"[\d,]+ jobs?\b", "jobs", page.split("Day by day")[-1])
    lines = re.findall(rf"\d+ Mar 2026 ((?:\s+{FIGURE})+)\s", table)
    return [int(line.split()[-1].replace(",", "")) for line in lines]


@pytest.fixture
def account(documents: Documents) -> list[dict[str, Any]]:
    """Jobs of every state over three days, a grant, a correction, and two rows of other types."""
    flags: list[dict[str, Any]] = [
        {},
        {"is_refunded": True, "refunded_at": NOON},
        {"is_refunded": True, "refunded_at": NOON, "is_reclaimed": True, "reclaimed_at": NOON},
    ]
    types = ("charge", "refund", "reclaim")
    rows: list[dict[str, Any]] = [
        make_row(
            row_type="grant", _id="grant:1", job_id=None, amount=12_345, reason="shouted at Ann"
        )
    ]
    for n in range(30):
        name, at = f"job-{n}", NOON + timedelta(days=n // 10, minutes=n)
        documents.jobs.insert_one(make_job(name, cost=1_000 + n, created_at=at, **flags[n % 3]))
        for step in types[: n % 3 + 1]:
            amount = (1_000 + n) * (1 if step == "refund" else -1)
            rows.append(make_row(name, step, amount=amount, created_at=at))
    rows += [
        make_row("job-1", "correction", _id="job-1:correction:1", amount=-7),
        make_row(row_type="promo", _id="secret-row", job_id=None, amount=55),
    ]
    documents.ledger.insert_many(rows)
    return rows


@pytest.mark.parametrize("format", FORMATS)
def test_the_figures_are_those_of_an_independent_sum(
    invoke: Invoker, account: list[dict[str, Any]], format: str
) -> None:
    page = statement(invoke, "acct-1", format=format)
    parts = {
        "Charged": "charge", "Refunded": "refund", "Charged again": "reclaim", "Granted": "grant",
        "Corrected": "correction", "Other": "promo",
    }  # fmt: skip
    for name, kind in parts.items():
        assert figure(page, name) == sum(row["amount"] for row in account if row["type"] == kind)
    balance = sum(row["amount"] for row in account)
    assert (figure(page, "Opening balance"), figure(page, "Closing balance")) == (0, balance)
    ends = [
        sum(
            row["amount"]
            for row in account
            if row["created_at"] <= NOON + timedelta(days=n, hours=9)
        )
        for n in range(3)
    ]
    assert days_of(page) == ends
    late = statement(invoke, "acct-1", "--from", "2026-03-09", format=format)
    assert (figure(late, "Opening balance"), figure(late, "Closing balance")) == (ends[0], balance)


@pytest.mark.parametrize("format", FORMATS)
def test_a_customer_sees_each_days_jobs_and_nothing_internal(
    invoke: Invoker, account: list[dict[str, Any]], documents: Documents, format: str
) -> None:
    documents.ledger.insert_one(make_row(row_type="promo", _id="broken", job_id=None, amount="1.5"))
    documents.jobs.insert_one(make_job("lost", is_refunded=True, refunded_at=NOON, status="failed"))
    documents.ledger.insert_one(make_row("lost"))
    run = invoke("balance", "explain", "acct-1", "--for", "customer", "--format", format)
    assert (run.code, run.err) == (5, "")
    page = TAGS.sub(" ", run.out)
    assert "1 entry is being checked" in page
    assert all(f"job-{n}" in page for n in range(30))
    for secret in (
        "Ann", "secret-row", "broken", "grant:1", ":charge", "ledgerctl", "missing", "--", "promo",
        "1.5", "repair", "oddit",
    ):  # fmt: skip
        assert secret not in page.replace("---", ""), secret


def test_records_are_no_statement(invoke: Invoker, account: object) -> None:
    for words in (("-o", "json"), ("-o", "csv"), ("-o", "jsonl"), ("--format", "json")):
        run = invoke("balance", "explain", "acct-1", "--for", "customer", *words)
        assert (run.code, run.out) == (2, "")


@pytest.mark.parametrize("format", FORMATS)
def test_one_job_is_told_alone(invoke: Invoker, account: object, format: str) -> None:
    page = statement(invoke, "acct-1", "--job", "job-2", format=format)
    assert [figure(page, name) for name in ("Charged", "Refunded", "Charged again", "Net")] == [
        -1_002, 1_002, -1_002, -1_002,
    ]  # fmt: skip
    assert "job-1 " not in page
    assert "12,345" not in page


@pytest.mark.parametrize("format", FORMATS)
def test_above_two_thousand_jobs_the_days_stand_alone_and_the_page_says_so(
    invoke: Invoker, documents: Documents, format: str
) -> None:
    rows = [make_row(f"many-{n}", created_at=NOON + timedelta(days=n // 700)) for n in range(2_000)]
    documents.ledger.insert_many(rows)
    assert "many-1999" in statement(invoke, "acct-1", format=format)
    documents.ledger.insert_one(make_row("many-2000"))
    page = statement(invoke, "acct-1", format=format)
    assert "many-" not in page
    assert "More than 2,000 jobs" in page
    assert figure(page, "Closing balance") == -40 * 2_001
    assert days_of(page)[-1] == -40 * 2_001


def test_a_row_without_a_date_comes_first_and_outside_every_range_with_an_end(
    invoke: Invoker, documents: Documents
) -> None:
    documents.ledger.insert_many([without(make_row("a"), "created_at"), make_row("b")])
    assert "Without a date" in statement(invoke, "acct-1", format="text")
    page = statement(invoke, "acct-1", "--to", "2026-03-31", format="text")
    assert "1 entry is without a date" in page
    assert figure(page, "Closing balance") == -40


def test_the_page_carries_the_names_of_the_settings(
    run: Any, account: object, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[statement]\ncompany = "Acme <Render>"\ncontact = "ask@acme.example"\nunit = "tokens"\n'
    )
    for format in FORMATS:
        said = run(
            "balance",
            "explain",
            "acct-1",
            "--for",
            "customer",
            "--format",
            format,
            "--config",
            str(config),
        ).out
        assert re.search(r"Acme (\\?<|&lt;)Render", said)
        assert "Questions: ask" in said
        assert "tokens" in said
        assert "credits" not in said
