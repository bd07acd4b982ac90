"""`ledger export` on a real server: every row once, and journals that other programs agree on."""

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bson import Int64
from pymongo import MongoClient

from ledgerctl.domain.journal import restored
from ledgerctl.operations.balances import balances
from ledgerctl.stores.connections import Stores
from tests.bench.generate import Plan, generate
from tests.builders import NOON, make_job, make_row, without
from tests.conftest import Documents, Invoker, Runner

Client = MongoClient[dict[str, Any]]

KEYS = [
    "row_id", "job_id", "account_id", "type", "amount", "created_at", "recorded_at",
    "operation_id", "reason",
]  # fmt: skip
NAMES = [
    "two words", "a;b", "a:b", "(virtual)", "[balanced]", "~a", "!a", "*a", "; comment", "  spaced  ",
    "顧客の残高", "שלום", "a\tb", "a\nb", "<script>", "100%", "%41", "=x", "-5", "5", "@", "", "é",
    "x" * 200, "a  b", '"q"', "a,b",
]  # fmt: skip


def journal_balances(program: str, journal: Path) -> dict[str | None, int]:
    """What another program computes from a journal, by the accounts' own names."""
    words = {
        "hledger": ["balance", "--flat", "-N", "-O", "csv", "credits:", "unassigned"],
        "ledger": ["balance", "--flat", "--no-total", "--format", "%(account),%(amount)\n", "^credits:", "^unassigned"],
    }[program]  # fmt: skip
    done = subprocess.run(
        [program, "-f", str(journal), *words], capture_output=True, text=True, check=True,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/local/bin"}, timeout=300,
    )  # fmt: skip
    pairs = [row for row in csv.reader(io.StringIO(done.stdout)) if row and row[0] != "account"]
    return {name_of(account): int(amount) for account, amount in pairs}


def name_of(account: str) -> str | None:
    return None if account == "unassigned" else restored(account.removeprefix("credits:"))


@pytest.fixture(params=["hledger", "ledger"])
def program(request: pytest.FixtureRequest) -> str:
    """A program for plain text accounting; what it computes cannot be compared where it is missing."""
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (Debian package {name}): not compared")
    return name


def test_other_programs_compute_the_same_balances_of_100_000_rows(
    program: str, run: Runner, stores: Stores, documents: Documents, tmp_path: Path
) -> None:
    generate(documents, Plan(rows=100_000, accounts=200, named=0.9, id_kind="mixed"))
    lost = [without(make_row(f"gone-{n}"), "account_id") for n in range(3)]
    documents.ledger.insert_many(
        [*lost, make_row("u", created_at="text", account_id="acct-00001", amount=7)]
    )
    exported = run("ledger", "export", "--format", "hledger")
    assert exported.code == 0
    journal = tmp_path / "ledger.journal"
    journal.write_bytes(exported.stdout)
    ours = {one.account_id: one.balance for one in balances(stores).accounts if one.balance}
    assert journal_balances(program, journal) == ours


def test_any_account_name_survives_in_a_journal(
    program: str, run: Runner, documents: Documents, tmp_path: Path
) -> None:
    huge = 2**63 - 1
    documents.ledger.insert_many(
        [
            make_row(f"{n}-{again}", account_id=name, amount=Int64(huge - n), type=name)
            for n, name in enumerate(NAMES)
            for again in (1, 2)
        ]
    )
    journal = tmp_path / "ledger.journal"
    journal.write_bytes(run("ledger", "export", "--format", "hledger").stdout)
    expected = {name: 2 * (huge - n) for n, name in enumerate(NAMES)}
    assert journal_balances(program, journal) == expected


def test_an_export_holds_every_row_once_with_every_key(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job())
    rows = [
        without(make_row(), "account_id"),
        make_row(row_type="refund", reason="a,b", operation_id="op-1", recorded_at=NOON),
        without(make_row("gone"), "account_id"),
    ]
    documents.ledger.insert_many(rows)
    lines = [json.loads(line) for line in invoke("ledger", "export").out.splitlines()]
    assert all(list(line) == KEYS for line in lines)
    assert {line["row_id"]: line["account_id"] for line in lines} == {
        "job-1:charge": "acct-1", "job-1:refund": "acct-1", "gone:charge": None,
    }  # fmt: skip
    table = list(csv.DictReader(io.StringIO(invoke("ledger", "export", "--format", "csv").out)))
    assert [row["row_id"] for row in table] == [line["row_id"] for line in lines]
    mine = invoke("ledger", "export", "--account", "acct-1", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["type"] for line in mine] == ["charge", "refund"]
    document = invoke("ledger", "export", "-o", "json").json()
    assert [list(row) for row in document["rows"]] == [KEYS] * 3


def test_a_row_that_cannot_be_summed_is_marked_and_makes_exit_5(
    invoke: Invoker, documents: Documents
) -> None:
    documents.ledger.insert_many([make_row(), make_row("bad", amount="x")])
    for format in ("jsonl", "csv", "hledger"):
        exported = invoke("ledger", "export", "--format", format)
        assert exported.code == 5
        assert "1 row cannot be summed" in exported.err
        assert "bad" in exported.out


def test_a_window_says_when_undated_rows_lie_outside(invoke: Invoker, documents: Documents) -> None:
    documents.ledger.insert_many([make_row(), make_row("u", created_at=None)])
    exported = invoke("ledger", "export", "--from", "2026-03-08", "--to", "2026-03-08")
    assert [json.loads(line)["row_id"] for line in exported.out.splitlines()] == ["job-1:charge"]
    assert "without a usable date" in exported.err


def test_two_formats_at_once_are_refused_and_an_unknown_account_is_not_found(
    invoke: Invoker,
) -> None:
    assert invoke("ledger", "export", "--format", "hledger", "-o", "csv").code == 2
    assert invoke("ledger", "export", "--account", "nobody").code == 4
