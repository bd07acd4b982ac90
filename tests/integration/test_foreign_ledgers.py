"""Another team's ledger read through a map: the figures of the same rows in our own shape."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Documents, Invoker, Run
from tests.foreign import SCHEMAS, Schema, our_documents

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
    import tomllib

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
    if run.out[:1] == "{" and "\n{" not in run.out:
        found = run.json()
        return run.code, {key: one for key, one in found.items() if key != "as_of"}, run.err
    return run.code, run.out, run.err


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
