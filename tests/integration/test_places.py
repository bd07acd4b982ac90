"""Which database is meant, and whether collections and commands are as we need them."""

from typing import Any

import pytest
from redis import Redis

from ledgerctl.config import load, other_database
from ledgerctl.domain.doctor import CheckStatus
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.doctor import examine
from ledgerctl.stores.connections import Stores
from tests.builders import make_job, make_letter, make_row
from tests.conftest import Documents, Invoker
from tests.integration.test_doctor import now
from tests.integration.test_server_rules import MADE, fill
from tests.servers import SessionServers

URI = "mongodb://127.0.0.1:27017"


@pytest.mark.parametrize(
    ("uri", "setting", "database", "said"),
    [
        (f"{URI}/e3", None, "e3", False),
        (f"{URI}/e%33?w=1", None, "e3", False),
        (f"{URI}/admin", None, "ledger", False),
        (URI, None, "ledger", False),
        (f"{URI}/?w=1", "e4", "e4", False),
        (f"{URI}/e3", "e3", "e3", False),
        (f"{URI}/e3", "e4", "e4", True),
    ],
)
def test_the_database_is_the_setting_else_the_uris_else_ledger(
    uri: str, setting: str | None, database: str, said: bool
) -> None:
    given = {"LEDGERCTL_MONGO_URI": uri, "HOME": "/nowhere"}
    settings = load(environment=given | ({"LEDGERCTL_DATABASE": setting} if setting else {}))
    assert settings.database == database
    assert bool(other_database(settings)) is said


def test_a_setting_that_differs_from_the_uri_is_noted(
    invoke: Invoker, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = environment["LEDGERCTL_MONGO_URI"].replace("/?", "/elsewhere?")
    monkeypatch.setenv("LEDGERCTL_MONGO_URI", uri)
    assert "mongo_uri names 'elsewhere'" in invoke("balance", "list").err


@pytest.mark.parametrize(
    "words",
    [["balance", "list"], ["balance", "show", "acct-1"], ["ledger", "audit"], ["job", "list"]],
)
def test_a_database_that_differs_in_case_only_is_exit_2(
    invoke: Invoker,
    documents: Documents,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    documents.ledger.insert_one(make_row())
    assert invoke(*words).code in {0, 5}
    monkeypatch.setenv("LEDGERCTL_DATABASE", database.upper())
    done = invoke(*words)
    assert done.code == 2
    assert repr(database) in done.err


def checked(stores: Stores, check: str) -> tuple[CheckStatus, str]:
    found = {one.id: one.finding for one in examine(stores, clock=now)}
    return found[check].status, found[check].detail


@pytest.mark.parametrize(
    ("made", "status", "said"),
    [
        ("ledger is a view", CheckStatus.FAIL, "ledger is a view"),
        ("jobs is a view", CheckStatus.FAIL, "jobs is a view"),
        ("ledger is capped", CheckStatus.FAIL, "ledger is a capped collection"),
        ("ledger is a time series", CheckStatus.FAIL, "ledger is a timeseries"),
        ("ledger has a validator", CheckStatus.FAIL, "validator of ledger refuses it"),
        ("jobs has a validator", CheckStatus.WARN, "jobs has a validator"),
        ("ledger has a collation", CheckStatus.WARN, "ledger has a collation (en)"),
    ],
)
def test_the_doctor_names_a_collection_that_is_no_plain_one(
    stores: Stores, documents: Documents, made: str, status: CheckStatus, said: str
) -> None:
    fill(documents)
    MADE[made](documents)
    found, detail = checked(stores, "mongo.collections")
    assert (found, said in detail) == (status, True), detail


def test_plain_collections_are_well(stores: Stores, documents: Documents) -> None:
    fill(documents)
    assert checked(stores, "mongo.collections")[0] is CheckStatus.OK


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("EVAL", CheckStatus.FAIL),
        ("SCAN", CheckStatus.FAIL),
        ("LMOVE", CheckStatus.FAIL),
        ("EVALSHA", CheckStatus.WARN),
        ("TIME", CheckStatus.WARN),
    ],
)
def test_the_doctor_names_a_command_that_redis_lacks_and_what_can_be_replaced_is(
    stores: Stores,
    invoke: Invoker,
    documents: Documents,
    servers: SessionServers,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    status: CheckStatus,
) -> None:
    server = servers.valkey("--rename-command", command, "")
    try:
        monkeypatch.setenv("LEDGERCTL_REDIS_URL", server.uri)
        found = invoke("doctor", "-o", "json").json()["checks"]
        told = next(one for one in found if one["id"] == "redis.commands")
        assert (told["status"], command in told["detail"]) == (str(status), True)
        build_indexes(stores)
        documents.jobs.insert_one(make_job())
        with Redis.from_url(server.uri) as redis:
            redis.rpush("jobs:dead-letter", make_letter())
            done = invoke("dead", "requeue", "--all", "--yes")
            moved = redis.llen("jobs:retry")
        assert (done.code, moved) == ((0, 1) if status is CheckStatus.WARN else (6, 0)), done.err
        if command == "TIME":
            assert done.err.count("clock") == 1
    finally:
        servers.stop(server)


def test_the_doctors_try_of_each_command_changes_nothing(
    invoke: Invoker, redis_client: Any
) -> None:
    redis_client.rpush("jobs:dead-letter", *map(str, range(5)))
    before = redis_client.lrange("jobs:dead-letter", 0, -1)
    invoke("doctor")
    assert redis_client.lrange("jobs:dead-letter", 0, -1) == before
    assert redis_client.keys() == [b"jobs:dead-letter"]


def test_a_name_that_does_not_resolve_is_a_store_that_cannot_be_reached(
    invoke: Invoker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGERCTL_MONGO_URI", "mongodb+srv://stores.invalid/ledger")
    monkeypatch.setenv("LEDGERCTL_REDIS_URL", "redis://queues.invalid:6379/0")
    for words in (("balance", "list"), ("queue", "stats")):
        done = invoke(*words, "-o", "json")
        assert done.code == 6
        assert ".invalid" in done.err


def test_a_replica_without_its_primary_says_that_it_has_lost_it(
    servers: SessionServers, invoke: Invoker, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.valkey()
    try:
        client: Any = Redis.from_url(server.uri)
        client.config_set("replica-serve-stale-data", "no")
        client.replicaof("127.0.0.1", 9)
        monkeypatch.setenv("LEDGERCTL_REDIS_URL", server.uri)
        done = invoke("dead", "list", "-o", "json")
    finally:
        servers.stop(server)
    assert done.code == 6
    assert "the replica has lost its primary" in done.err
