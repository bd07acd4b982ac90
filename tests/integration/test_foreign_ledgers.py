"""Another team's ledger read through a map: the figures of the same rows in our own shape."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from bson import Int64

from tests.builders import make_row, without
from tests.conftest import Documents, Invoker, Run
from tests.foreign import (
    MEDICI_MAP,
    NESTED,
    SCHEMAS,
    Schema,
    medici_fixture,
    medici_row,
    our_documents,
    planted_by_medici,
)

LETTERS = (
    b'{"job_id":"task-0","attempts":5,"error":"GPU timed out"}',
    b'{"job_id":"clean-reclaimed","attempts":5,"error":"GPU timed out"}',
    b'{"job_id":"nobody-knows","attempts":5,"error":"GPU timed out"}',
)
DAYS = ("--from", "2026-03-07", "--to", "2026-03-11")
READING: tuple[tuple[str, ...], ...] = (
    ("balance", "list"),
    ("balance", "list", "--at", "2026-03-08T20:00:00Z"),
    ("balance", "show", "acct-0"),
    ("balance", "show", "acct-1"),
    ("balance", "show", "acct-2", "--at", "2026-03-09T01:00:00.074Z"),
    ("balance", "show", "acct-2", "--known-at", "2026-03-08T22:10:00Z"),
    ("balance", "show", "nobody"),
    ("balance", "replay", "acct-1"),
    ("balance", "replay", "acct-0", *DAYS),
    ("balance", "replay", "acct-3", "--from", "2026-03-09T01:15:00Z"),
    ("balance", "explain", "acct-1", "--format", "json"),
    ("balance", "explain", "acct-2", "--format", "json", *DAYS),
    ("job", "list", "--limit", "0"),
    ("job", "list", "--account", "acct-2"),
    ("job", "list", "--state", "refunded"),
    ("job", "list", "--state", "bad_flags"),
    ("job", "list", "--since", "2026-03-09", "--until", "2026-03-10"),
    ("job", "show", "task-0"),
    ("job", "show", "twice-refunded"),
    ("job", "show", "4711"),
    ("ledger", "audit"),
    ("ledger", "audit", "--since", "2026-03-09"),
    ("ledger", "audit", "--account", "acct-1"),
    ("ledger", "audit", "--job", "lost-refund"),
    ("ledger", "export", "--format", "jsonl"),
    ("ledger", "export", "--format", "csv", "--account", "acct-2"),
    ("ledger", "export", "--format", "hledger", "--account", "acct-0"),
    ("summary", "show", "acct-1", *DAYS),
    ("summary", "drift", *DAYS),
    ("summary", "drift", *DAYS, "--account", "acct-2"),
    ("dead", "list"),
    ("dead", "stats"),
    ("dead", "show", "task-0"),
)


@pytest.fixture(params=SCHEMAS, ids=lambda schema: schema.name)
def schema(request: pytest.FixtureRequest, documents: Documents, redis_client: Any) -> Schema:
    """The same rows twice in one database: in our shape, and in theirs."""
    found: Schema = request.param
    jobs, rows = our_documents(found)
    documents.jobs.insert_many(jobs)
    documents.ledger.insert_many(rows)
    tables = collections_of(found)
    documents[tables["jobs"]].insert_many([found.job(job) for job in jobs])
    documents[tables["ledger"]].insert_many([found.row(row) for row in rows])
    redis_client.rpush("jobs:dead-letter", *LETTERS)
    return found


def collections_of(schema: Schema) -> dict[str, str]:
    return {part: table["collection"] for part, table in tomllib.loads(schema.toml)["map"].items()}


@pytest.fixture
def mapped(schema: Schema, invoke: Invoker, tmp_path: Path) -> Invoker:
    """Runs a command with the schema's map."""
    config = tmp_path / "map.toml"
    config.write_text(schema.toml)
    config.chmod(0o600)

    def run(*args: str, stdin: str | bytes | None = None) -> Run:
        return invoke(*args, "--config", str(config), stdin=stdin)

    return run


def told(run: Run) -> Any:
    """What a run said, without the moment at which it was asked."""
    out = re.sub(r"dated after \S+", "dated after now", run.out)
    return run.code, re.sub(r'"as_of": ?"[^"]+"', '"as_of": "now"', out), run.err


def test_every_reading_command_gives_the_figures_of_our_own_shape(
    schema: Schema, mapped: Invoker, invoke: Invoker
) -> None:
    differing = {}
    for command in READING:
        form = () if "--format" in command else ("-o", "json")
        theirs, ours = told(mapped(*command, *form)), told(invoke(*command, *form))
        if theirs != ours:
            differing[command] = {"theirs": theirs, "ours": ours}
    assert differing == {}


CHANGING: tuple[tuple[str, ...], ...] = (
    ("balance", "grant", "acct-1", "5", "--key", "k"),
    ("job", "charge", "job-new", "--account", "acct-1", "--cost", "5"),
    ("job", "refund", "task-1", "--dry-run"),
    ("job", "reclaim", "task-1"),
    ("ledger", "repair", "--dry-run"),
    ("ledger", "correct", "task-1", "--reason", "why"),
    ("summary", "rebuild"),
    ("queue", "push", "task-1", "--error", "x"),
    ("queue", "work", "--exec", "true", "--once"),
    ("queue", "recover"),
    ("inbox", "retry", "m-1", "--group", "mail"),
    ("inbox", "settle"),
    ("inbox", "consume", "--group", "usage-daily", "--once"),
    ("db", "init"),
)


@pytest.mark.parametrize("schema", [NESTED], indirect=True, ids=["nested"])
def test_every_changing_command_but_those_of_the_dead_letters_is_refused_before_it_looks(
    schema: Schema, mapped: Invoker, documents: Documents, redis_client: Any
) -> None:
    before = state(documents, redis_client)
    for command in CHANGING:
        done = mapped(*command, "-o", "json")
        assert done.code == 3, done
        assert json.loads(done.err)["error"]["code"] == "mapped"
    assert state(documents, redis_client) == before
    done = mapped(
        "dead", "release", "nobody-knows", "--reason", "no such job", "--yes", "-o", "json"
    )
    assert (done.code, done.json()["moved"]) == (0, 1), done
    after = state(documents, redis_client)
    assert {name: after[name] for name in ("tasks", "credit_entries", "jobs", "ledger")} == {
        name: before[name] for name in ("tasks", "credit_entries", "jobs", "ledger")
    }


def state(documents: Documents, redis_client: Any) -> dict[str, Any]:
    """Every document and every list."""
    found = {
        name: list(documents[name].find().sort("_id")) for name in documents.list_collection_names()
    }
    return found | {"letters": redis_client.lrange("jobs:dead-letter", 0, -1)}


@pytest.mark.parametrize("schema", [NESTED], indirect=True, ids=["nested"])
def test_without_a_map_of_jobs_there_are_none_and_the_answer_says_so(
    schema: Schema, invoke: Invoker, documents: Documents, tmp_path: Path
) -> None:
    config = tmp_path / "rows_alone.toml"
    config.write_text(schema.toml.partition("[map.jobs]")[0])
    documents.drop_collection("jobs")
    jobs = ("job", "list"), ("ledger", "audit"), ("dead", "list")
    for command in (*jobs, ("balance", "show", "acct-1"), ("balance", "list")):
        theirs = invoke(*command, "-o", "json", "--config", str(config))
        ours = invoke(*command, "-o", "json")
        note = "the map has no [map.jobs]: there are no jobs, so no row has one"
        said = theirs.json()
        notes = said.get("notes", [])
        assert (note in notes) == (command in jobs), theirs
        assert (theirs.code, said | {"notes": 0, "as_of": 0}) == (
            ours.code,
            ours.json() | {"notes": 0, "as_of": 0},
        )


@pytest.mark.parametrize("schema", [NESTED], indirect=True, ids=["nested"])
def test_no_look_up_by_account_or_job_walks_a_collection(
    schema: Schema, mapped: Invoker, documents: Documents
) -> None:
    documents.credit_entries.create_index([("customer.id", 1), ("ts", 1)])
    documents.credit_entries.create_index("ref.task")
    documents.tasks.create_index([("customer.id", 1), ("ts", 1)])
    documents.command("profile", 2)
    for command in (
        ("balance", "show", "acct-1"),
        ("balance", "show", "acct-1", "--at", "2026-03-09"),
        ("balance", "show", "acct-1", "--known-at", "2026-03-09"),
        ("balance", "replay", "acct-1"),
        ("balance", "replay", "acct-1", "--from", "2026-03-08", "--to", "2026-03-09"),
        ("balance", "explain", "acct-1"),
        ("job", "show", "task-0"),
        ("job", "list", "--account", "acct-1"),
        ("ledger", "audit", "--job", "task-0"),
        ("ledger", "audit", "--account", "acct-1"),
        ("ledger", "export", "--account", "acct-1"),
        ("dead", "show", "task-0"),
        ("dead", "list"),
    ):
        assert mapped(*command, "-o", "json" if "export" not in command else "jsonl").code in {0, 5}
    documents.command("profile", 0)
    asked = list(
        documents["system.profile"].find({"appName": "ledgerctl", "op": {"$ne": "getmore"}})
    )
    theirs = [one for one in asked if one["ns"].endswith(("credit_entries", "tasks"))]
    assert len(theirs) > len(READING)
    assert [one["command"] for one in theirs if "COLLSCAN" in one.get("planSummary", "")] == []


def test_what_medici_writes_has_the_figures_of_the_same_rows_in_our_own_shape(
    invoke: Invoker, documents: Documents, environment: dict[str, str], tmp_path: Path
) -> None:
    uri = environment["LEDGERCTL_MONGO_URI"].replace("/?", f"/{documents.name}?")
    if not planted_by_medici(uri, tmp_path):
        documents.medici_transactions.insert_many(medici_fixture())
    documents.ledger.insert_many([medici_row(one) for one in documents.medici_transactions.find()])
    config = tmp_path / "map.toml"
    config.write_text(MEDICI_MAP)
    for command in (
        ("balance", "list"),
        ("balance", "show", "Users:7"),
        ("balance", "show", "Users:8", "--at", "2026-03-08T15:00:00Z"),
        ("balance", "show", "Users:8", "--known-at", "2026-03-08T15:00:00Z"),
        ("balance", "replay", "Users:7"),
        ("balance", "explain", "Service:Usage", "--format", "json"),
        ("job", "list"),
        ("ledger", "audit"),
        ("ledger", "export", "--format", "hledger"),
        ("summary", "drift", *DAYS),
    ):
        form = () if "--format" in command else ("-o", "json")
        theirs = invoke(*command, *form, "--config", str(config))
        note = "the map has no [map.jobs]: there are no jobs, so no row has one"
        told_theirs = (
            told(theirs)[1].replace(f'"{note}", ', "").replace(f', "notes": ["{note}"]', "")
        )
        ours = told(invoke(*command, *form))
        assert (theirs.code, re.sub(r',\s*"notes": ?\[[^\n]*\]', "", told_theirs)) == (
            ours[0],
            re.sub(r',\s*"notes": ?\[[^\n]*\]', "", ours[1]),
        )
    balances = {
        one["account_id"]: one["balance"]
        for one in invoke("balance", "list", "-o", "json", "--config", str(config)).json()["items"]
    }
    assert balances == {
        "Service:Sales": -11250,
        "Service:Usage": 116,
        "Users:7": 9942,
        "Users:8": 1192,
    }


@pytest.mark.parametrize("kind", ["nested", "worded", "sides", "medici"])
def test_a_proposed_map_gives_the_right_balances_at_once(
    invoke: Invoker, documents: Documents, tmp_path: Path, kind: str
) -> None:
    rows = [
        make_row(
            f"job-{index}", "charge", amount=Int64(-29 - index), account_id=f"user-{index % 3}"
        )
        for index in range(20)
    ]
    rows += [
        make_row("x", "grant", _id=f"g{index}", account_id=f"user-{index % 3}", amount=1000)
        for index in range(6)
    ]
    if kind == "medici":
        documents.medici_transactions.insert_many(medici_fixture())
        rows = [medici_row(one) for one in medici_fixture()]
    else:
        schema = next(one for one in SCHEMAS if one.name == kind)
        theirs = [schema.row(row) for row in rows]
        if kind == "nested":  # its fields of our names that mean something else would be taken
            theirs = [without(row, "type", "amount") for row in theirs]
        documents[collections_of(schema)["ledger"]].insert_many(theirs)
    proposed = invoke("config", "map", "-o", "plain", "--no-header")
    assert proposed.code == 0, proposed
    config = tmp_path / "proposed.toml"
    config.write_text(proposed.out)
    wanted: dict[str, int] = {}
    for row in rows:
        wanted[row["account_id"]] = wanted.get(row["account_id"], 0) + row["amount"]
    found = invoke("balance", "list", "-o", "json", "--config", str(config)).json()
    assert {one["account_id"]: one["balance"] for one in found["items"]} == wanted, proposed.out


def test_a_collection_that_tells_no_account_amount_or_time_is_exit_5(
    invoke: Invoker, documents: Documents
) -> None:
    documents.notes.insert_many([{"text": f"note {index}"} for index in range(5)])
    told_nothing = invoke("config", "map", "-o", "json")
    assert (told_nothing.code, told_nothing.json()["untold"]) == (
        5,
        ["an account", "an amount", "a time"],
    )


@pytest.mark.parametrize("schema", [NESTED], indirect=True, ids=["nested"])
def test_doctor_names_a_wrong_field_an_index_to_build_and_amounts_that_are_not_whole(
    schema: Schema, invoke: Invoker, documents: Documents, tmp_path: Path
) -> None:
    config = tmp_path / "map.toml"
    config.write_text(schema.toml.replace("customer.id", "customer.key", 1))
    checks = {
        one["id"]: one
        for one in invoke("doctor", "-o", "json", "--config", str(config)).json()["checks"]
    }
    assert checks["map.fields"]["status"] == "fail"
    assert "customer.key in credit_entries (account_id)" in checks["map.fields"]["detail"]
    assert checks["map.indexes"]["status"] == "warn"
    assert 'db.credit_entries.createIndex({"ref.task": 1})' in checks["map.indexes"]["hint"]
    assert checks["map.amounts"]["status"] == "fail"
    assert not [one for one in checks if one.startswith(("index.ledger", "index.inbox"))]
    documents.credit_entries.delete_many({"delta": {"$not": {"$type": ["int", "long"]}}})
    documents.credit_entries.create_index("ref.task")
    documents.credit_entries.create_index("customer.id")
    documents.tasks.create_index("customer.id")
    config.write_text(schema.toml)
    checks = {
        one["id"]: one
        for one in invoke("doctor", "-o", "json", "--config", str(config)).json()["checks"]
    }
    assert [checks[one]["status"] for one in ("map.fields", "map.indexes", "map.amounts")] == [
        "ok"
    ] * 3
