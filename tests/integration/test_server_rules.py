"""What a server refuses is an answer and no bug: no command ends with exit 1, whatever it meets."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import MongoClient
from redis import Redis
from typer.testing import CliRunner

from ledgerctl.cli.app import app
from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import make_claim, make_entry, make_job, make_letter, make_message, make_row
from tests.cli.commands import COMMANDS
from tests.conftest import Documents, Invoker, Run, Runner
from tests.proxy import ANY, Fault, Plan, proxied
from tests.servers import SessionServers

NOW = datetime.now(UTC).replace(microsecond=0)
OPERATION = "20260311T031400123Z-5f2c9a01be"
ALLOWED = {0, 2, 3, 4, 5, 6, 7, 8, 9}

WORDS: dict[str, Sequence[str]] = {
    "balance show": ["acct-1"],
    "balance replay": ["acct-1"],
    "balance list": [],
    "balance explain": ["acct-1"],
    "balance grant": ["acct-1", "5", "--key", "k-1"],
    "job show": ["job-1"],
    "job list": [],
    "job charge": ["job-9", "--account", "acct-1", "--cost", "4"],
    "job refund": ["job-1"],
    "job reclaim": ["job-1", "job-2", "--yes"],
    "dead list": [],
    "dead show": ["job-3"],
    "dead stats": [],
    "dead requeue": ["--error", "GPU", "--yes"],
    "dead release": ["--all", "--reason", "x", "--yes"],
    "dead restore": [OPERATION, "--yes"],
    "dead review": ["--all"],
    "queue stats": [],
    "queue list": ["retry"],
    "queue push": ["job-2", "--error", "x"],
    "queue work": ["--exec", "true", "--once"],
    "queue recover": ["--older-than", "0s", "--yes"],
    "summary rebuild": [],
    "summary drift": [],
    "summary show": ["acct-1"],
    "inbox audit": [],
    "inbox stuck": [],
    "inbox list": [],
    "inbox show": ["m-1"],
    "inbox retry": ["m-1", "--group", "mail"],
    "inbox settle": ["--yes"],
    "inbox consume": ["--group", "usage-daily", "--once"],
    "ledger audit": [],
    "ledger repair": ["--grace", "0s", "--yes"],
    "ledger correct": ["job-2", "--reason", "x", "--yes"],
    "ledger export": [],
    "doctor": [],
    "metrics": [],
    "db init": [],
    "db tidy": ["--yes"],
    "log list": [],
    "log outcome": [OPERATION],
    "log show": [OPERATION],
}
# They ask no server of ours, or start their own.
AWAY = ("db roles", "config ", "sandbox ", "demo", "completion ", "help", "metrics rules")


def fill(documents: Documents) -> None:
    """A little of everything, dated now."""
    documents.jobs.insert_many(
        [
            make_job("job-1", created_at=NOW),
            make_job("job-2", created_at=NOW, is_refunded=True, refunded_at=NOW),
            make_job("job-3", created_at=NOW),
        ]
    )
    documents.ledger.insert_many(
        [make_row(one, created_at=NOW, recorded_at=NOW) for one in ("job-1", "job-2", "job-3")]
    )
    documents.outbox.insert_one(make_message())
    documents.inbox.insert_one(make_claim())
    documents.usage_daily.insert_one({"_id": "acct-9:2020-01-01", "day": "2020-01-01"})
    documents.operator_log.insert_one({"_id": OPERATION, "at": NOW, "command": "dead release"})


def a_view(name: str) -> Callable[[Documents], None]:
    """The collection is renamed, and a view bears its name."""

    def make(documents: Documents) -> None:
        documents.drop_collection(f"{name}_0")
        documents[name].rename(f"{name}_0")
        documents.create_collection(name, viewOn=f"{name}_0", pipeline=[])

    return make


def made_with(name: str, **options: Any) -> Callable[[Documents], None]:
    """The collection is made anew with these options; its documents go in again."""

    def make(documents: Documents) -> None:
        found = list(documents[name].find())
        documents.drop_collection(name)
        documents.create_collection(name, **options)
        documents[name].insert_many(found)

    return make


def a_validator(name: str) -> Callable[[Documents], None]:
    """A schema that knows none of our newer fields."""
    names = ("_id", "job_id", "account_id", "type", "amount", "created_at")
    known: dict[str, Any] = {name: {} for name in names}
    schema = {"$jsonSchema": {"additionalProperties": False, "properties": known}}
    return lambda documents: (documents.command("collMod", name, validator=schema), None)[1]


def full_of_indexes(documents: Documents) -> None:
    for number in range(63):
        documents.ledger.create_index(f"x{number}")


def a_name_taken(documents: Documents) -> None:
    documents.ledger.create_index("x", name="ledger_job_id_type_unique")
    documents.inbox.create_index("x", name="inbox_consumer_group_message_key_unique")


MADE: dict[str, Callable[[Documents], None]] = {
    **{f"{name} is a view": a_view(name) for name in ("ledger", "jobs", "inbox", "usage_daily")},
    "operator_log is a view": a_view("operator_log"),
    "ledger is capped": made_with("ledger", capped=True, size=1_000_000),
    "jobs is capped": made_with("jobs", capped=True, size=1_000_000),
    "ledger is a time series": made_with("ledger", timeseries={"timeField": "created_at"}),
    "jobs is a time series": made_with("jobs", timeseries={"timeField": "created_at"}),
    "ledger has a collation": made_with("ledger", collation={"locale": "en", "strength": 2}),
    "jobs has a collation": made_with("jobs", collation={"locale": "en", "strength": 2}),
    **{f"{name} has a validator": a_validator(name) for name in ("ledger", "jobs", "inbox")},
    "operator_log has a validator": a_validator("operator_log"),
    "ledger has all the indexes it may have": full_of_indexes,
    "the names of our indexes are taken": a_name_taken,
}


def test_the_table_has_every_command_that_asks_a_server() -> None:
    paths = [one.path for one in COMMANDS if not one.path.startswith(AWAY)]
    assert list(WORDS) == paths


@pytest.fixture
def go(invoke: Invoker, redis_client: Redis, documents: Documents) -> Callable[..., Run]:
    """Runs a command in this process; an exception that is no exit code fails the test as it is."""
    fill(documents)
    lists(redis_client)

    def go(path: str, *more: str) -> Run:
        args = (*path.split(), *WORDS[path], *more)
        result = CliRunner().invoke(app, args)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Run(args, result.exit_code, result.stdout_bytes, result.stderr_bytes)

    return go


def lists(redis: Redis) -> None:
    """A job on each list."""
    redis.rpush("jobs:dead-letter", make_letter("job-3"), make_letter("job-1", attempts=6))
    redis.rpush("jobs:retry", make_entry("job-1"))
    redis.rpush("jobs:processing:w-1", make_entry("job-2"))


def walk(go: Callable[..., Run], paths: Sequence[str] = tuple(WORDS)) -> dict[str, str]:
    """Run every command; those that end in a way that no command may."""
    ends = {path: go(path, "-o", "json") for path in paths}
    wrong = {path: done for path, done in ends.items() if done.code not in ALLOWED}
    return {path: f"{done.code} {done.err or done.out}" for path, done in wrong.items()}


@pytest.mark.parametrize("made", MADE)
def test_no_command_calls_it_a_bug_however_the_collections_are_made(
    go: Callable[..., Run], documents: Documents, stores: Stores, made: str
) -> None:
    if made.endswith("validator"):
        build_indexes(stores)
    MADE[made](documents)
    assert walk(go) == {}


RENAMED = ("EVAL", "EVALSHA", "SCAN", "LMOVE", "TIME", "LRANGE", "TYPE", "CONFIG")


@pytest.mark.parametrize("command", RENAMED)
def test_no_command_calls_it_a_bug_when_redis_lacks_a_command(
    go: Callable[..., Run],
    servers: SessionServers,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    server = servers.valkey("--rename-command", command, "")
    try:
        lists(Redis.from_url(server.uri))
        monkeypatch.setenv("LEDGERCTL_REDIS_URL", server.uri)
        assert walk(go) == {}
    finally:
        servers.stop(server)


def test_no_command_calls_it_a_bug_when_redis_lacks_the_database(
    go: Callable[..., Run], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGERCTL_REDIS_URL", redis_url.rpartition("/")[0] + "/99")
    assert walk(go) == {}
    assert go("queue stats").code == 2


def test_no_command_calls_it_a_bug_when_the_database_differs_in_case_only(
    go: Callable[..., Run], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGERCTL_DATABASE", database.upper())
    assert walk(go) == {}
    assert {go(path).code for path in ("job refund", "balance list", "db init")} == {2}


@pytest.mark.parametrize("setting", ["LEDGERCTL_MONGO_URI", "LEDGERCTL_REDIS_URL"])
@pytest.mark.parametrize("skip", [0, 4])
def test_a_reply_that_nobody_foresaw_is_quoted_and_is_no_bug(
    go: Callable[..., Run],
    client: MongoClient[dict[str, Any]],
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    skip: int,
) -> None:
    wrong: dict[str, str] = {}
    said = 0
    for path in WORDS:
        plan = Plan(ANY, Fault.ANSWER, skip=skip, times=10_000)
        with proxied(environment[setting], plan) as proxy:
            monkeypatch.setenv(setting, proxy.uri)
            done = go(path, "-o", "json")
        if done.code not in ALLOWED:
            wrong[path] = f"{done.code} {done.err or done.out}"
        said += "weather today" in done.out + done.err
    # The server would keep a transaction that was cut short for a minute.
    client.admin.command("killAllSessions", [])
    assert wrong == {}
    assert said or skip


NOT_ACCT_2 = {"account_id": {"$ne": "acct-2"}}


@pytest.fixture(params=["replica set", "standalone"])
def place(request: pytest.FixtureRequest) -> tuple[Runner, Documents]:
    """The program and the database of a deployment with transactions, and of one without."""
    if request.param == "replica set":
        return request.getfixturevalue("run"), request.getfixturevalue("documents")
    client = request.getfixturevalue("standalone_client")
    database = client[request.getfixturevalue("database")]
    return request.getfixturevalue("run_standalone"), database


def test_a_validator_that_refuses_the_row_leaves_the_flag_as_it_is(
    place: tuple[Runner, Documents],
) -> None:
    run, documents = place
    fill(documents)
    theirs = {"$set": {"account_id": "acct-2"}}
    documents.jobs.update_one({"_id": "job-3"}, theirs)
    documents.ledger.update_one({"job_id": "job-3"}, theirs)
    documents.command("collMod", "ledger", validator=NOT_ACCT_2)
    before = list(documents.jobs.find()), list(documents.ledger.find())
    for words in (
        ["job", "refund", "job-3"],
        ["job", "charge", "job-9", "--account", "acct-2", "--cost", "4"],
    ):
        done = run(*words, "-o", "json")
        (result,) = done.json()["results"]
        assert (done.code, result["outcome"]) == (3, "refused_by_server"), done
        assert "valid" in result["detail"]
        assert done.json()["error"] is None
    assert (list(documents.jobs.find()), list(documents.ledger.find())) == before
    both = run("job", "refund", "job-3", "job-1", "--yes", "-o", "json")
    assert both.code == 8
    assert [one["outcome"] for one in both.json()["results"]] == ["refused_by_server", "applied"]
    refunded = [one["_id"] for one in documents.jobs.find({"is_refunded": True})]
    assert refunded == ["job-1", "job-2"]


@pytest.mark.parametrize("made", [one for one in MADE if one.startswith("ledger is a")])
def test_a_ledger_that_takes_no_rows_is_exit_3_and_no_flag_is_set(
    place: tuple[Runner, Documents], made: str
) -> None:
    run, documents = place
    fill(documents)
    MADE[made](documents)
    assert run("job", "refund", "job-1").code == 3
    assert [one["_id"] for one in documents.jobs.find({"is_refunded": True})] == ["job-2"]
