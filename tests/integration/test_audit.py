"""`ledger audit` on real servers: every code planted and found, and nothing else."""

from collections import defaultdict
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from bson import Binary, Int64, ObjectId
from pymongo import MongoClient

from ledgerctl.domain.findings import Code
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.job_sieve import JobSieve
from tests.builders import NOON, make_job, make_row
from tests.conftest import Documents, Invoker, Run, Runner
from tests.planted import FAULTS, REFUNDED, SETTLED, Fault, plant

Client = MongoClient[dict[str, Any]]


@pytest.fixture
def planted(documents: Documents) -> Documents:
    plant(lambda name, found: documents[name].insert_many(found), FAULTS)
    return documents


def findings(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.json()["findings"]
    return found


def said(found: list[dict[str, Any]]) -> dict[Any, list[tuple[str, int, bool]]]:
    """Code, effect and repairable of each finding, by job, or by row where there is no job."""
    by_job: dict[Any, list[tuple[str, int, bool]]] = defaultdict(list)
    for one in found:
        key = one["job_id"] or one["row_ids"][0]
        by_job[key].append((one["code"], one["effect"], one["repairable"]))
    return by_job


def expected() -> dict[Any, list[tuple[str, int, bool]]]:
    return {
        fault.text or fault.rows[0]["_id"]: sorted(fault.said) for fault in FAULTS if fault.said
    }


def test_every_code_has_a_planted_fault() -> None:
    by_name_alone = {Code.STRANDED_CHARGE}
    assert {code for fault in FAULTS for code, _, _ in fault.said} == set(Code) - by_name_alone


def test_every_planted_fault_is_found_with_its_effect_and_nothing_else_is(
    invoke: Invoker, planted: Documents
) -> None:
    audit = invoke("ledger", "audit", "-o", "json")
    assert audit.code == 5
    assert {key: sorted(one) for key, one in said(findings(audit)).items()} == expected()
    document = audit.json()
    assert document["jobs_checked"] == sum(len(fault.jobs) for fault in FAULTS)
    assert document["rows_checked"] == sum(len(fault.rows) for fault in FAULTS)
    assert sum(document["counts"].values()) == len(document["findings"])
    assert document["effect"] == sum(one["effect"] for one in document["findings"])


def is_spelled(fault: Fault) -> bool:
    """Whether every id of this fault is a text: only then does the server sort out what is right."""
    ids = [job["_id"] for job in fault.jobs] + [row.get("job_id", "") for row in fault.rows]
    return all(isinstance(one, str) for one in ids if one is not None)


@pytest.mark.parametrize("kind", ["string", "objectId"])
def test_what_the_server_sorts_out_is_right(
    invoke: Invoker,
    stores: Stores,
    documents: Documents,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ledgerctl.stores.job_sieve.RANGE", 7)
    spelled = [fault for fault in FAULTS if is_spelled(fault)]
    assert len(spelled) > len(FAULTS) * 2 // 3
    documents.ledger.create_index([("job_id", 1), ("type", 1)])
    plant(lambda name, found: documents[name].insert_many(renamed(found, kind)), spelled)
    assert JobSieve(stores.mongo, stores.outbox).kind() == kind
    audit = invoke("ledger", "audit", "-o", "json")
    names = {str(renamed([{"_id": fault.name}], kind)[0]["_id"]): fault.name for fault in spelled}
    found = {names.get(key, key): sorted(one) for key, one in said(findings(audit)).items()}
    assert found == {key: one for key, one in expected().items() if key in found}
    assert set(found) == {fault.text or fault.rows[0]["_id"] for fault in spelled if fault.said}
    document = audit.json()
    assert document["jobs_checked"] == sum(len(fault.jobs) for fault in spelled)
    assert document["rows_checked"] == sum(len(fault.rows) for fault in spelled)


def renamed(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The documents under ids of this type."""
    if kind == "string":
        return found
    keys = ("_id", "job_id")
    return [
        one | {key: ObjectId(sha256(one[key].encode()).digest()[:12]) for key in keys
               if isinstance(one.get(key), str) and ":" not in one[key]}
        for one in found
    ]  # fmt: skip


def test_a_standalone_server_says_the_same(
    run_standalone: Runner, standalone_client: Client, database: str
) -> None:
    plant(lambda name, found: standalone_client[database][name].insert_many(found), FAULTS)
    audit = run_standalone("ledger", "audit", "-o", "json")
    assert {key: sorted(one) for key, one in said(findings(audit)).items()} == expected()


@pytest.mark.parametrize(
    "scope",
    [("--account", "acct-1"), ("--since", "2026-03-01"), ("--account", "acct-1", "--since", "2026-03-01")],
)  # fmt: skip
def test_an_account_or_a_window_that_holds_everything_says_the_same(
    invoke: Invoker, planted: Documents, scope: tuple[str, ...]
) -> None:
    undated = {"dated-in-words", "dated-never"}  # found by their jobs, which are dated
    audit = invoke("ledger", "audit", *scope, "-o", "json")
    found = {key: sorted(one) for key, one in said(findings(audit)).items()}
    assert found == expected()
    assert undated <= set(found)


def test_one_job_is_judged_alone(invoke: Invoker, planted: Documents) -> None:
    for fault in FAULTS[:12]:
        audit = invoke("ledger", "audit", "--job", fault.name, "-o", "json")
        assert sorted(said(findings(audit)).get(fault.name, [])) == sorted(fault.said)
        assert audit.code == (5 if fault.said else 0)
        shown = invoke("job", "show", fault.name, "-o", "json").json()
        assert set(shown["problems"]) == {code for code, _, _ in fault.said}


def test_each_finding_names_the_command_that_heals_it(invoke: Invoker, planted: Documents) -> None:
    for one in findings(invoke("ledger", "audit", "-o", "json")):
        heals = "ledger repair" if one["repairable"] else ""
        assert heals in one["detail"]
        assert "`ledgerctl " in one["detail"] or one["code"] in {
            "orphan_row", "undated_row", "future_row", "bad_amount", "duplicate_row",
            "odd_recorded_at",
        }, one  # fmt: skip


def test_codes_choose_findings_and_the_exit_code(invoke: Invoker, planted: Documents) -> None:
    some = invoke("ledger", "audit", "--code", "bad_cost", "--code", "future_row", "-o", "json")
    assert {one["code"] for one in findings(some)} == {"bad_cost", "future_row"}
    assert set(some.json()["counts"]) == {"bad_cost", "future_row"}
    assert invoke("ledger", "audit", "--code", "no_such_code").code == 2


def test_a_corrected_job_alarms_nobody(invoke: Invoker, documents: Documents) -> None:
    settled = [fault for fault in FAULTS if fault.name in SETTLED]
    plant(lambda name, found: documents[name].insert_many(found), settled)
    audit = invoke("ledger", "audit", "-o", "json")
    assert audit.code == 0
    assert [one["effect"] for one in findings(audit)] == [0]


def test_reclaim_candidates_go_through_a_pipe_into_reclaim(
    invoke: Invoker, planted: Documents
) -> None:
    candidates = invoke(
        "ledger", "audit", "--code", "refunded_but_succeeded", "-o", "plain", "--fields", "job_id"
    )
    assert candidates.out.split() == ["job_id", "recovered"]
    reclaimed = invoke(
        "job", "reclaim", "--from-file", "-", "--yes", "-o", "json", stdin=candidates.stdout
    )
    assert reclaimed.json()["applied"] == 1
    assert invoke("ledger", "audit", "--job", "recovered", "-o", "json").json()["findings"] == []


def test_an_unknown_job_or_account_is_exit_4(invoke: Invoker, planted: Documents) -> None:
    assert invoke("ledger", "audit", "--job", "job-typo").code == 4
    assert invoke("ledger", "audit", "--account", "acct-typo").code == 4


def test_an_empty_ledger_is_clean(invoke: Invoker) -> None:
    audit = invoke("ledger", "audit", "-o", "json")
    assert audit.code == 0
    assert audit.json()["findings"] == []


def test_ids_of_every_type_meet_their_rows_once(invoke: Invoker, documents: Documents) -> None:
    """Jobs under text, ObjectId, integer, double and UUID, each charged and refunded by flag alone."""
    uuid = Binary(b"0123456789abcdef", 4)
    identities: list[Any] = [
        "a",
        "b",
        "7",
        ObjectId("65f0aa00bb11cc22dd33ee55"),
        Int64(9),
        12,
        13.0,
        uuid,
    ]
    documents.jobs.insert_many([make_job(one, **REFUNDED) for one in identities])
    documents.ledger.insert_many([make_row(one) for one in identities])
    documents.ledger.insert_many([make_row("b", "refund"), make_row(Int64(12), "refund")])
    audit = invoke("ledger", "audit", "-o", "json").json()
    assert audit["jobs_checked"] == 8
    assert audit["rows_checked"] == 10
    assert audit["counts"] == {"missing_row": 6}


def test_a_job_is_counted_once_however_a_scope_comes_by_it(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_many([make_job(one, **REFUNDED) for one in ("job-1", "job-2")])
    documents.jobs.insert_one(make_job("job-3", account_id="acct-2"))
    steps = [make_row(one, kind) for one in ("job-1", "job-2") for kind in ("charge", "refund")]
    grant = make_row(None, "grant", _id="grant:1", amount=Int64(100))
    documents.ledger.insert_many([*steps, grant, make_row("job-3", account_id="acct-2")])
    own, all_of_them = (2, 5), (3, 6)
    for scope, checked in (
        (("--account", "acct-1"), own),
        (("--account", "acct-1", "--since", "2026-03-01"), own),
        (("--since", "2026-03-01"), all_of_them),
        ((), all_of_them),
    ):
        audit = invoke("ledger", "audit", *scope, "-o", "json").json()
        assert (audit["jobs_checked"], audit["rows_checked"]) == checked, scope


def test_an_id_that_two_types_hold_is_told_once_in_every_scope(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_many([make_job("42"), make_job(Int64(42), **REFUNDED)])
    documents.ledger.insert_many([make_row("42"), make_row(Int64(42), _id="other")])
    for scope in ((), ("--job", "42"), ("--account", "acct-1"), ("--since", "2026-03-01")):
        found = said(findings(invoke("ledger", "audit", *scope, "-o", "json")))
        assert sorted(found["42"]) == [("missing_row", -40, True), ("mixed_id_types", 0, False)], (
            scope
        )


def test_a_window_leaves_out_what_happened_before_it(invoke: Invoker, documents: Documents) -> None:
    old: dict[str, Any] = {"created_at": NOON.replace(year=2025)}
    documents.jobs.insert_many([make_job("old", is_refunded=True, refunded_at=old["created_at"], **old), make_job("new", **REFUNDED), make_job("touched", **old)])  # fmt: skip
    documents.ledger.insert_many([make_row("old", **old), make_row("new"), make_row("touched", **old), make_row("touched", "refund")])  # fmt: skip
    found = findings(invoke("ledger", "audit", "--since", "2026-01-01", "-o", "json"))
    assert {one["job_id"] for one in found} == {"new", "touched"}


def test_the_fault_table_has_unique_names() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names))
    assert all(isinstance(fault, Fault) for fault in FAULTS)


def test_an_account_given_in_capitals_is_audited_once(
    invoke: Invoker, documents: Documents
) -> None:
    account = ObjectId("65f0aa00bb11cc22dd33ee55")
    documents.jobs.insert_one(make_job("job-1", account_id=account, **REFUNDED))
    documents.ledger.insert_one(make_row("job-1", account_id=account))
    found = invoke("ledger", "audit", "--account", str(account).upper(), "-o", "json").json()
    assert (found["jobs_checked"], found["counts"]) == (1, {"missing_row": 1})


def test_a_window_leaves_out_an_accounts_older_rows_without_a_job(
    invoke: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job("job-1"))
    old = datetime(2020, 1, 1, tzinfo=UTC)
    row = make_row(None, "grant", _id="grant:1", amount=1.5, created_at=old, recorded_at=old)
    documents.ledger.insert_many([make_row("job-1"), row])
    for scope in (("--since", "2026-01-01"), ("--account", "acct-1", "--since", "2026-01-01")):
        assert invoke("ledger", "audit", *scope).code == 0, scope
    assert invoke("ledger", "audit", "--account", "acct-1").code == 5
