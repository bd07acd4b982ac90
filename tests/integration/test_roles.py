"""The printed roles, given to real users: what each needs works, all else the servers refuse."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from redis import Redis
from typer.testing import CliRunner

from ledgerctl.cli.app import app
from ledgerctl.sandbox.launch import Server
from ledgerctl.stores.mongo import missing_right
from tests.builders import NOON, make_job, make_row
from tests.conftest import Run, Runner
from tests.foreign import NESTED, our_documents
from tests.integration import test_foreign_ledgers as foreign
from tests.servers import ROOT, address_of

Client = MongoClient[dict[str, Any]]
LOGIN = "pa55-w0rd"
ROLES = ("support", "on-call", "cron")  # those whose rights are tried out here
READING = (
    ("balance", "show", "acct-1"),
    ("balance", "replay", "acct-1"),
    ("balance", "list"),
    ("balance", "explain", "acct-1"),
    ("ledger", "export", "--format", "hledger"),
    ("summary", "drift"),
    ("summary", "show", "acct-1"),
    ("job", "show", "job-1"),
    ("job", "list"),
    ("dead", "list"),
    ("dead", "stats"),
    ("dead", "show", "job-1"),
    ("queue", "stats"),
    ("queue", "list", "retry"),
    ("inbox", "list"),
    ("inbox", "audit"),
    ("inbox", "stuck"),
    ("ledger", "audit"),
    ("log", "list"),
)
LETTER = b'{"job_id":"job-1","attempts":5,"error":"GPU timed out"}'


@dataclass(frozen=True)
class Town:
    """A guarded database and lists, with one user for each printed role."""

    server: Server
    database: str
    root: Client
    redis: Redis
    environment: dict[str, str]

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> Run:
        """A command line, inside this process, as root unless `env` says otherwise."""
        result = CliRunner(env=env).invoke(app, args)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Run(args, result.exit_code, result.stdout_bytes, result.stderr_bytes)

    def run_as(self, role: str, *args: str) -> Run:
        """A command line as the user of a role."""
        return self.run(*args, env=self.user(role))

    def user(self, role: str) -> dict[str, str]:
        """The environment that makes a run one of this role."""
        name = f"ledgerctl-{role}"
        host = self.environment["LEDGERCTL_REDIS_URL"].partition("://")[2]
        return {
            "LEDGERCTL_MONGO_URI": address_of(self.server, name, LOGIN, source=self.database),
            "LEDGERCTL_REDIS_URL": f"redis://{name}:{LOGIN}@{host}",
        }

    def mongo(self, role: str) -> Client:
        """A driver's own connection as this role."""
        return MongoClient(self.user(role)["LEDGERCTL_MONGO_URI"])

    def state(self) -> tuple[Any, ...]:
        """Every document and every list, to see that nothing moved."""
        database = self.root[self.database]
        names = sorted(set(database.list_collection_names()))
        documents = {name: list(database[name].find().sort("_id")) for name in names}
        lists = {key: self.redis.lrange(key, 0, -1) for key in sorted(self.redis.keys())}
        return documents, lists


@pytest.fixture
def town(request: pytest.FixtureRequest, guarded_mongod: Server) -> Iterator[Town]:
    yield from built(request, guarded_mongod)


@pytest.fixture
def standalone_town(request: pytest.FixtureRequest, guarded_standalone: Server) -> Iterator[Town]:
    yield from built(request, guarded_standalone)


def built(request: pytest.FixtureRequest, server: Server) -> Iterator[Town]:
    """The database and the lists with their roles made; all of it goes again."""
    database: str = request.getfixturevalue("database")
    redis_client: Redis = request.getfixturevalue("redis_client")
    environment = request.getfixturevalue("bare_environment") | {
        "LEDGERCTL_MONGO_URI": address_of(server, *ROOT),
        "LEDGERCTL_REDIS_URL": request.getfixturevalue("redis_url"),
        "LEDGERCTL_DATABASE": database,
    }
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name in set(os.environ) - set(environment):
        patch.delenv(name)
    for name, value in environment.items():
        patch.setenv(name, value)
    with MongoClient[dict[str, Any]](address_of(server, *ROOT), tz_aware=True) as root:
        town = Town(server, database, root, redis_client, environment)
        assert town.run("db", "init").code == 0
        give_roles(town.run("db", "roles", "-o", "json").json(), root[database], redis_client)
        root[database].jobs.insert_many([make_job(), make_job("job-2")])
        root[database].ledger.insert_many([make_row(), make_row("job-2")])
        redis_client.rpush("jobs:dead-letter", LETTER)
        yield town
        for role in ROLES:
            redis_client.acl_deluser(f"ledgerctl-{role}")
        root[database].command("dropAllUsersFromDatabase")
        root[database].command("dropAllRolesFromDatabase")
        root.drop_database(database)


def give_roles(document: Any, database: Any, redis_client: Redis) -> None:
    """Make the printed roles and users, as an administrator would."""
    for role in document["roles"]:
        database.command(role["mongodb"])
        database.command("createUser", role["user"], pwd=LOGIN, roles=[role["user"]])
        send(redis_client, "ACL", "SETUSER", role["user"], *role["redis"])
        send(redis_client, "ACL", "SETUSER", role["user"], f">{LOGIN}")


def revoke(town: Town, action: str, *, collection: str) -> None:
    """Take a right from on call; the empty name stands for the database itself."""
    right = {"resource": {"db": town.database, "collection": collection}, "actions": [action]}
    town.root[town.database].command(
        "revokePrivilegesFromRole", "ledgerctl-on-call", privileges=[right]
    )


def send(client: Any, *command: str) -> None:
    """Send a command word by word."""
    client.execute_command(*command)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads_everything(town: Town, role: str) -> None:
    before = town.state()
    for command in READING:
        done = town.run_as(role, *command)
        assert done.code in {0, 5}, done
    assert town.state() == before


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_change_or_remove_a_ledger_row(town: Town, role: str) -> None:
    before = town.state()
    with town.mongo(role) as client:
        ledger = client[town.database].ledger
        for change in (
            lambda: ledger.update_one({}, {"$set": {"amount": 0}}),
            lambda: ledger.delete_one({}),
            lambda: ledger.replace_one({}, {"amount": 0}),
            lambda: ledger.find_one_and_delete({}),
            ledger.drop,
            lambda: ledger.create_index([("created_at", 1)], expireAfterSeconds=1),
            lambda: client.drop_database(town.database),
        ):
            with pytest.raises(OperationFailure) as refusal:
                change()
            assert refusal.value.code == 13
    assert town.state() == before


def test_support_may_change_nothing_and_is_told_which_right_is_missing(town: Town) -> None:
    before = town.state()
    done = town.run_as("support", "job", "refund", "job-1", "-o", "json")
    assert done.code == 6, done
    error = json.loads(done.err)["error"]
    assert error["code"] == "not_permitted"
    for right in ("insert on", "operator_log", f"update on {town.database}.jobs"):
        assert right in error["message"]
    assert LOGIN not in done.err
    assert town.state() == before


def test_a_user_without_any_right_is_told_to_ask_for_the_one_to_find() -> None:
    refusal = 'not authorized on shop to execute command { %s: "jobs", pipeline: [] }'
    for command in ("aggregate", "find", "count"):
        assert missing_right(refusal % command) == "the user lacks the right to find on shop.jobs"
    assert missing_right(refusal % "insert") == "the user lacks the right to insert on shop.jobs"


@pytest.mark.parametrize("kind", ["town", "standalone_town"])
def test_on_call_refunds_a_job_and_takes_it_back(request: pytest.FixtureRequest, kind: str) -> None:
    town: Town = request.getfixturevalue(kind)
    refund = town.run_as("on-call", "job", "refund", "job-1", "-o", "json")
    assert (refund.code, refund.json()["applied"]) == (0, 1), refund
    reclaim = town.run_as("on-call", "job", "reclaim", "job-1", "-o", "json")
    assert (reclaim.code, reclaim.json()["applied"]) == (0, 1), reclaim
    rows = town.root[town.database].ledger.find({"job_id": "job-1"}).sort("recorded_at")
    assert [row["type"] for row in rows] == ["charge", "refund", "reclaim"]


@pytest.mark.parametrize("kind", ["town", "standalone_town"])
def test_a_validator_that_refuses_the_row_of_a_role_leaves_the_flag_as_it_is(
    request: pytest.FixtureRequest, kind: str
) -> None:
    town: Town = request.getfixturevalue(kind)
    database = town.root[town.database]
    database.command("collMod", "ledger", validator={"type": {"$ne": "refund"}})
    before = [database.jobs.find().to_list(), database.ledger.find().to_list()]
    refund = town.run_as("on-call", "job", "refund", "job-1", "-o", "json")
    (result,) = refund.json()["results"]
    assert (refund.code, result["outcome"]) == (3, "refused_by_server"), refund
    assert [database.jobs.find().to_list(), database.ledger.find().to_list()] == before


def test_who_may_not_read_the_servers_rules_is_told_of_a_flag_without_its_row(
    standalone_town: Town,
) -> None:
    town, words = standalone_town, ("job", "refund", "job-1", "-o", "json")
    database = town.root[town.database]
    revoke(town, "listCollections", collection="")
    database.command("collMod", "ledger", validator={"type": {"$ne": "refund"}})
    first = town.run_as("on-call", *words)
    assert (first.code, first.json()["not_tried"]) == (8, 1), first
    assert (
        "the flag of job job-1 is set, but its row was refused" in first.json()["error"]["message"]
    )
    database.command("collMod", "ledger", validator={})
    second = town.run_as("on-call", *words)
    assert (second.code, second.json()["applied"]) == (0, 1), second
    assert database.ledger.count_documents({"job_id": "job-1", "type": "refund"}) == 1


def test_on_call_does_all_that_a_night_asks_for(town: Town) -> None:
    place = town.root[town.database]
    place.jobs.insert_one(make_job("job-3", is_refunded=True, refunded_at=NOON))
    place.ledger.insert_one(make_row("job-3"))
    place.inbox.insert_one(
        {"consumer_group": "billing", "message_key": "m-1", "status": "dead", "attempts": 5}
    )
    requeue = town.run_as("on-call", "dead", "requeue", "--all", "--yes", "-o", "json")
    assert (requeue.code, requeue.json()["moved"]) == (0, 1), requeue
    for command in (
        ("dead", "restore", requeue.json()["operation_id"], "--yes"),
        ("dead", "release", "--error", "timed out", "--reason", "gone", "--yes"),
        ("queue", "push", "job-1", "--error", "GPU timed out"),
        ("queue", "recover", "--yes"),
        ("ledger", "repair", "--yes"),
        ("ledger", "correct", "job-1", "--reason", "ticket 1", "--yes"),
        ("inbox", "retry", "m-1", "--group", "billing", "--yes"),
        ("inbox", "settle", "--yes"),
    ):
        done = town.run_as("on-call", *command)
        assert done.code == 0, done
    assert place.ledger.find_one({"_id": "job-3:refund"}) is not None
    assert town.redis.llen("jobs:retry") == 1


def test_on_call_moves_letters_by_filter_and_leaves_work_to_the_workers(town: Town) -> None:
    requeue = ("dead", "requeue", "--error", "timed out", "--spread", "1m", "--yes")
    done = town.run_as("on-call", *requeue)
    assert done.code == 0, done
    before = town.state()
    done = town.run_as("on-call", "queue", "work", "--exec", "true", "--once")
    assert (done.code, f"remove on {town.database}.leases" in done.err) == (6, True), done
    assert town.state() == before


def test_cron_consumes_the_inbox_and_rebuilds_summaries(town: Town) -> None:
    for command in (
        ("inbox", "consume", "--group", "usage-daily", "--until-empty"),
        ("summary", "rebuild"),
        ("summary", "rebuild", "--from", "2026-03-01", "--to", "2026-03-10"),
        ("dead", "stats", "--fail-over", "100"),
    ):
        done = town.run_as("cron", *command)
        assert done.code == 0, done
    assert town.root[town.database].usage_daily.count_documents({"day": "2026-03-08"}) == 1


@pytest.mark.parametrize("role", ["support", "cron"])
@pytest.mark.parametrize(
    "command",
    [
        ("dead", "requeue", "--all", "--yes"),
        ("dead", "release", "--all", "--reason", "gone", "--yes"),
        ("job", "refund", "job-1"),
        ("ledger", "repair", "--yes"),
        ("balance", "grant", "acct-1", "5", "--key", "k-1"),
    ],
    ids=" ".join,
)
def test_what_is_not_a_roles_to_do_ends_with_6_before_anything_moved(
    town: Town, role: str, command: tuple[str, ...]
) -> None:
    place = town.root[town.database]
    place.jobs.insert_one(make_job("job-3", is_refunded=True, refunded_at=NOON))
    place.ledger.insert_one(make_row("job-3"))  # something to repair
    before = town.state()
    done = town.run_as(role, *command)
    assert done.code == 6, done
    assert "the right to" in done.err or "no permissions to run" in done.err
    assert town.state() == before


@pytest.mark.parametrize(
    "command",
    [
        ("dead", "requeue", "--all", "--yes"),
        ("dead", "requeue", "--error", "timed out", "--yes"),
        ("dead", "release", "--all", "--reason", "gone", "--yes"),
        ("queue", "push", "job-2", "--error", "GPU timed out"),
    ],
    ids=" ".join,
)
def test_a_list_that_may_not_be_changed_ends_with_6_before_anything_is_archived(
    town: Town, command: tuple[str, ...]
) -> None:
    mixed = town.user("on-call") | {
        "LEDGERCTL_REDIS_URL": town.user("support")["LEDGERCTL_REDIS_URL"]
    }
    lists = town.state()[1]
    done = town.run(*command, env=mixed)
    assert (done.code, "no permissions" in done.err) == (6, True), done
    assert town.state()[1] == lists
    assert town.root[town.database].dead_archive.count_documents({}) == 0


@pytest.mark.parametrize("kind", ["town", "standalone_town"])
def test_a_flag_is_not_set_by_a_user_who_may_not_append_the_row(
    request: pytest.FixtureRequest, kind: str
) -> None:
    town: Town = request.getfixturevalue(kind)
    revoke(town, "insert", collection="ledger")
    before = town.state()
    done = town.run("job", "refund", "job-1", env=town.user("on-call"))
    assert done.code == 6
    assert f"insert on {town.database}.ledger" in done.err
    assert town.state() == before


@pytest.mark.parametrize("role", ["support", "cron"])
def test_only_on_call_may_change_a_list(town: Town, role: str) -> None:
    host = town.environment["LEDGERCTL_REDIS_URL"].partition("://")[2]
    with Redis.from_url(f"redis://ledgerctl-{role}:{LOGIN}@{host}") as client:
        assert client.lrange("jobs:dead-letter", 0, -1) == [LETTER]
        for command in (
            ("RPUSH", "jobs:retry", "x"),
            ("LPOP", "jobs:dead-letter"),
            ("DEL", "jobs:dead-letter"),
            ("EVAL", "return redis.call('LPOP', KEYS[1])", "1", "jobs:dead-letter"),
            ("FLUSHALL",),
            ("LRANGE", "somebody:else", "0", "-1"),
        ):
            with pytest.raises(Exception, match=r"(?i)no permissions"):
                send(client, *command)
    assert town.redis.lrange("jobs:dead-letter", 0, -1) == [LETTER]


def test_the_doctor_tells_the_roles_apart(town: Town) -> None:
    found = {}
    for role in ROLES:
        checks = {
            one["id"]: one for one in town.run_as(role, "doctor", "-o", "json").json()["checks"]
        }
        found[role] = checks["ledger.append_only"]
        assert {one["status"] for one in checks.values()} <= {"ok", "warn", "unknown"}, checks
        assert checks["redis.eviction"]["status"] == "unknown"  # INFO is not theirs to ask for
    assert {one["status"] for one in found.values()} == {"ok"}
    assert "only read" in found["support"]["detail"]
    assert "append" in found["on-call"]["detail"]
    root = town.run("doctor", "-o", "json").json()["checks"]
    mine = next(one for one in root if one["id"] == "ledger.append_only")
    assert (mine["status"], "update and remove" in mine["detail"]) == ("warn", True)


def test_the_printed_roles_use_the_configured_names(run_bare: Runner, tmp_path: Any) -> None:
    path = tmp_path / "config.toml"
    path.write_text('database = "money"\n[keys]\nretry = "q[1]"\n[collections]\nledger = "rows"\n')
    done = run_bare("db", "roles", "--config", str(path), "-o", "json").json()
    assert done["database"] == "money"
    for role in done["roles"]:
        actions = {
            one["resource"]["collection"]: one["actions"] for one in role["mongodb"]["privileges"]
        }
        assert not {"update", "remove"} & set(actions["rows"])
        assert r"~q\[1\]:*" in role["redis"]


def test_roles_are_printed_a_statement_a_line(run_bare: Runner) -> None:
    done = run_bare("db", "roles", "-o", "plain", "--fields", "statement")
    head, *lines = done.out.splitlines()
    assert head == "statement"
    assert [line.split("(")[0].split(" ")[0] for line in lines] == 5 * [
        'db.getSiblingDB', 'db.getSiblingDB', "ACL"
    ]  # fmt: skip


def test_a_user_that_may_only_find_in_the_two_collections_reads_all_of_it(
    town: Town, tmp_path: Path
) -> None:
    place = town.root[town.database]
    jobs, rows = our_documents(NESTED)
    for name in ("jobs", "ledger"):
        place.drop_collection(name)
    place.jobs.insert_many(jobs)
    place.ledger.insert_many(rows)
    place.tasks.insert_many([NESTED.job(job) for job in jobs])
    place.credit_entries.insert_many([NESTED.row(row) for row in rows])
    only_find = [
        {"resource": {"db": town.database, "collection": name}, "actions": ["find"]}
        for name in ("tasks", "credit_entries")
    ]
    place.command("createRole", "looks", privileges=only_find, roles=[])
    place.command("createUser", "looker", pwd=LOGIN, roles=["looks"])
    looker = {"LEDGERCTL_MONGO_URI": address_of(town.server, "looker", LOGIN, source=town.database)}
    config = tmp_path / "map.toml"
    config.write_text(NESTED.toml)
    for command in (*foreign.READING, ("log", "list"), ("config", "show")):
        form = () if "--format" in command else ("-o", "json")
        theirs = town.run(*command, *form, "--config", str(config), env=looker)
        if command[0] in {"balance", "job", "ledger", "summary"}:
            ours = town.run(*command, *form)
            note = '"the user may not read usage_daily: it counts as empty"'
            assert (note in theirs.out) == (command[0] == "summary" and theirs.code != 4)
            assert without_notes(theirs) == without_notes(ours)
        assert theirs.code in ({0, 5} if command[-1] not in {"nobody", "task-0"} else {0, 4}), (
            theirs
        )
    config.write_text(NESTED.toml.partition("[map.jobs]")[0])
    for command in (
        ("balance", "show", "acct-1"),
        ("balance", "list"),
        ("ledger", "audit"),
        ("job", "list"),
    ):
        assert town.run(*command, "--config", str(config), env=looker).code in {0, 5}


def without_notes(run: Run) -> Any:
    """What a run said beside its notes."""
    code, out, _ = foreign.told(run)
    return code, re.sub(r',\s*"notes": ?\[[^]]*\]', "", out)
