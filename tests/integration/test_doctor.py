"""The doctor on real servers: healthy, wrong in each way, down, silent, narrow of rights."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import Int64
from pymongo import MongoClient
from redis import Redis

from ledgerctl.config import load
from ledgerctl.domain.doctor import Check, CheckStatus
from ledgerctl.operations.doctor import CHECKS, examine
from ledgerctl.sandbox.launch import Server
from ledgerctl.stores.connections import Stores
from tests.builders import make_job, make_row, without
from tests.conftest import Runner
from tests.servers import ROOT, SessionServers, address_of

Client = MongoClient[dict[str, Any]]
CONTRACT = (
    "mongo.reachable", "mongo.transactions", "mongo.collections", "mongo.shard_keys",
    "mongo.write_concern", "mongo.clock",
    "index.ledger_unique", "index.inbox_unique", "index.ledger_account", "index.ledger_created",
    "index.expiry", "ledger.append_only", "jobs.flags", "redis.reachable", "redis.role",
    "redis.commands", "redis.eviction", "redis.persistence", "redis.types", "db.growth",
    "inbox.keys", "inbox.stuck",
    "config.permissions",
)  # fmt: skip
LONG_AGO = datetime.now(UTC) - timedelta(hours=6)


def now() -> datetime:
    return datetime.now(UTC)


def make_claim(key: str = "m-1", **overrides: Any) -> dict[str, Any]:
    """A claim that was completed."""
    return {
        "consumer_group": "billing",
        "message_key": key,
        "tenant_id": "acct-1",
        "status": "succeeded",
        "attempts": 0,
        "deliveries": 1,
        "first_seen_at": LONG_AGO,
        "last_seen_at": LONG_AGO,
        "claimed_until": None,
        "completed_at": LONG_AGO,
    } | overrides


@pytest.fixture
def ready(stores: Stores) -> Stores:
    """A database with all its indexes."""
    from ledgerctl.operations.database import build_indexes

    build_indexes(stores)
    return stores


def look(stores: Stores, clock: Callable[[], datetime] = now) -> dict[str, Check]:
    """Every check by its id."""
    return {check.id: check for check in examine(stores, clock=clock)}


def said(stores: Stores, check: str) -> tuple[CheckStatus, str]:
    """What one check says."""
    finding = look(stores)[check].finding
    return finding.status, finding.detail


# the whole


WHERE_IT_APPLIES = {"redis.failover"}  # with Sentinel or replicas


def test_every_check_of_the_contract_is_made_once() -> None:
    assert [check.id for check in CHECKS if check.id not in WHERE_IT_APPLIES] == list(CONTRACT)


def test_a_database_with_its_indexes_fails_nothing(run: Runner) -> None:
    assert run("db", "init").code == 0
    done = run("doctor", "-o", "json")
    document = done.json()
    assert (done.code, document["failed"]) == (0, 0), document
    assert sorted(one["id"] for one in document["checks"]) == sorted(CONTRACT)
    assert all(set(one) == {"id", "status", "detail", "hint"} for one in document["checks"])
    warned = [one for one in document["checks"] if one["status"] == "warn"]
    assert document["warned"] == len(warned)
    assert all(one["hint"] for one in warned)


def test_a_fresh_database_fails_for_its_unique_indexes_and_says_what_to_run(run: Runner) -> None:
    done = run("doctor", "-o", "json")
    failed = {one["id"]: one["hint"] for one in done.json()["checks"] if one["status"] == "fail"}
    assert failed == dict.fromkeys(
        ("index.ledger_unique", "index.inbox_unique"), "`ledgerctl db init`"
    )
    assert done.code == 5


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"ledger": {"job_id": 1}, "jobs": {"_id": "hashed"}, "outbox": {"message_key": 1}}, ""),
        ({"ledger": {"job_id": 1, "type": 1}, "inbox": {"consumer_group": 1}}, ""),
        ({"ledger": {"_id": 1}}, "ledger is sharded by {_id: 1}, not by {job_id: 1}"),
        ({"ledger": {"job_id": "hashed"}}, "ledger is sharded by {job_id: hashed}"),
        ({"inbox": {"message_key": 1}}, "inbox is sharded by {message_key: 1}"),
        ({"leases": {"owner": 1}}, "leases is sharded by {owner: 1}, not by {_id: 1}"),
        ({"jobs": {"_id": 1}}, "no transaction finds the account"),
    ],
)
def test_a_shard_key_that_breaks_a_guarantee_or_a_command_fails(
    ready: Stores, client: Client, keys: dict[str, Any], problem: str
) -> None:
    assert said(ready, "mongo.shard_keys") == (CheckStatus.OK, "nothing is sharded")
    database = ready.settings.database
    known = client["config"]["collections"]  # a router's list; no router is to be had
    known.insert_many([{"_id": f"{database}.{name}", "key": key} for name, key in keys.items()])
    if "no transaction" in problem:
        client[database].ledger.insert_one(without(make_row("job-1"), "account_id"))
    ready.mongo.hello["msg"] = "isdbgrid"
    try:
        status, detail = said(ready, "mongo.shard_keys")
    finally:
        known.delete_many({"_id": {"$regex": f"^{database}[.]"}})
    assert (status, problem in detail) == (CheckStatus.FAIL if problem else CheckStatus.OK, True)


def test_what_failed_stands_above_the_rest(run: Runner) -> None:
    order = [one["status"] for one in run("doctor", "-o", "json").json()["checks"]]
    assert order == sorted(order, key=["fail", "warn", "unknown", "ok"].index)


def test_the_doctor_changes_nothing(ready: Stores, client: Client, database: str) -> None:
    client[database].jobs.insert_one(make_job())
    client[database].inbox.insert_one(make_claim())
    names = ("jobs", "ledger", "inbox", "operator_log")
    before = {name: list(client[database][name].find()) for name in names}
    look(ready)
    assert {name: list(client[database][name].find()) for name in names} == before


# stores that are down, silent or closed to us


def test_stores_that_are_down_fail_their_check_and_leave_the_others_unknown(
    run: Runner,
) -> None:
    nowhere = {
        "LEDGERCTL_MONGO_URI": "mongodb://127.0.0.1:1",
        "LEDGERCTL_REDIS_URL": "redis://127.0.0.1:1/0",
    }
    done = run("doctor", "-o", "json", env=nowhere)
    status = {one["id"]: one["status"] for one in done.json()["checks"]}
    assert done.code == 5
    assert {name for name, one in status.items() if one == "fail"} == {
        "mongo.reachable",
        "redis.reachable",
    }
    assert {name for name, one in status.items() if one != "unknown"} == {
        "mongo.reachable",
        "redis.reachable",
        "config.permissions",
    }
    assert done.err == ""


@contextmanager
def silenced(server: Server) -> Iterator[None]:
    """A server that accepts connections and never answers."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("store", ["mongo", "redis"])
def test_a_silent_store_ends_the_doctors_wait_long_before_its_driver_would(
    servers: SessionServers, run: Runner, store: str
) -> None:
    server = servers.mongod() if store == "mongo" else servers.valkey()
    setting = "LEDGERCTL_MONGO_URI" if store == "mongo" else "LEDGERCTL_REDIS_URL"
    with silenced(server):
        started = time.monotonic()
        done = run("doctor", "-o", "json", env={setting: server.uri})
        took_s = time.monotonic() - started
    servers.stop(server)
    status = {one["id"]: one["status"] for one in done.json()["checks"]}
    assert (done.code, status[f"{store}.reachable"]) == (5, "fail")
    assert took_s < 30, took_s  # a silent server is let go of by its driver after minutes


def test_a_store_that_falls_silent_between_two_checks_is_not_asked_again(
    servers: SessionServers, environment: dict[str, str]
) -> None:
    server = servers.mongod()
    environment = environment | {"LEDGERCTL_MONGO_URI": server.uri}
    with Stores(load(environment=environment)) as stores:
        look(stores)
        with silenced(server):
            started = time.monotonic()
            found = look(stores)
            took_s = time.monotonic() - started
    servers.stop(server)
    assert found["mongo.reachable"].finding.status is CheckStatus.FAIL
    assert found["jobs.flags"].finding.status is CheckStatus.UNKNOWN
    assert found["redis.reachable"].finding.status is CheckStatus.OK
    assert took_s < 30, took_s


def test_a_wrong_password_fails_with_the_reason_and_without_the_password(
    guarded_mongod: Server, redis_client: Redis, redis_url: str, run: Runner
) -> None:
    redis_client.acl_setuser("narrow", enabled=True, passwords=["+right"], commands=["+@all"])
    wrong = "s3cr3t-w0rd"
    done = run(
        "doctor",
        "-o",
        "json",
        env={
            "LEDGERCTL_MONGO_URI": address_of(guarded_mongod, ROOT[0], wrong),
            "LEDGERCTL_REDIS_URL": redis_url.replace("://", f"://narrow:{wrong}@"),
        },
    )
    redis_client.acl_deluser("narrow")
    found = {one["id"]: one for one in done.json()["checks"]}
    assert done.code == 5
    for check in ("mongo.reachable", "redis.reachable"):
        assert found[check]["status"] == "fail"
        assert "password" in found[check]["detail"]
    assert wrong not in done.out + done.err


def test_a_server_that_wants_a_user_fails_when_none_is_given(
    guarded_mongod: Server, run: Runner
) -> None:
    done = run("doctor", "-o", "json", env={"LEDGERCTL_MONGO_URI": guarded_mongod.uri})
    found = {one["id"]: one for one in done.json()["checks"]}
    assert found["mongo.reachable"]["status"] == "fail"
    assert "wants a user" in found["mongo.reachable"]["detail"]
    assert found["ledger.append_only"]["status"] == "unknown"


def test_a_user_who_may_do_nothing_is_let_in_and_told_what_is_not_known(
    guarded_mongod: Server, redis_client: Redis, redis_url: str, run: Runner, database: str
) -> None:
    word = "w0rd"
    redis_client.acl_setuser("nobody", enabled=True, passwords=[f"+{word}"], commands=["-@all"])
    with MongoClient[dict[str, Any]](address_of(guarded_mongod, *ROOT)) as root:
        root[database].command("createUser", "nobody", pwd=word, roles=[])
        done = run(
            "doctor",
            "-o",
            "json",
            env={
                "LEDGERCTL_MONGO_URI": address_of(guarded_mongod, "nobody", word, source=database),
                "LEDGERCTL_REDIS_URL": redis_url.replace("://", f"://nobody:{word}@"),
            },
        )
        root[database].command("dropAllUsersFromDatabase")
    redis_client.acl_deluser("nobody")
    status = {one["id"]: one["status"] for one in done.json()["checks"]}
    assert done.code == 0, done
    assert {name for name, one in status.items() if one != "unknown"} == {
        "mongo.reachable",
        "mongo.transactions",
        "mongo.shard_keys",
        "mongo.clock",
        "ledger.append_only",
        "redis.commands",
        "redis.reachable",
        "config.permissions",
    }


def test_a_check_that_takes_too_long_is_unknown_and_its_store_is_still_reachable(
    ready: Stores, client: Client
) -> None:
    slow = {
        "failCommands": ["aggregate"],
        "blockConnection": True,
        "blockTimeMS": 10_000,
        "appName": "ledgerctl",
    }
    client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=slow)
    started = time.monotonic()
    try:
        found = look(ready)
    finally:
        client.admin.command("configureFailPoint", "failCommand", mode="off")
    assert found["jobs.flags"].finding.status is CheckStatus.UNKNOWN
    assert found["mongo.reachable"].finding.status is CheckStatus.OK
    assert found["index.ledger_unique"].finding.status is CheckStatus.OK
    assert time.monotonic() - started < 60


# MongoDB


def test_a_standalone_server_is_warned_about_its_transactions(standalone_stores: Stores) -> None:
    assert said(standalone_stores, "mongo.transactions")[0] is CheckStatus.WARN
    assert said(standalone_stores, "mongo.write_concern")[0] is CheckStatus.OK


@pytest.mark.parametrize("option", ["w=1", "w=0", "journal=false"])
def test_a_uri_that_asks_for_less_is_named(environment: dict[str, str], option: str) -> None:
    uri = f"{environment['LEDGERCTL_MONGO_URI']}&{option}"
    with Stores(load(environment=environment | {"LEDGERCTL_MONGO_URI": uri})) as stores:
        status, detail = said(stores, "mongo.write_concern")
    assert (status, option in detail) == (CheckStatus.WARN, True)


def test_a_default_that_a_failover_undoes_is_named(
    servers: SessionServers, environment: dict[str, str]
) -> None:
    server = servers.mongod()
    with MongoClient[dict[str, Any]](server.uri) as client:
        client.admin.command("setDefaultRWConcern", 1, defaultWriteConcern={"w": 1})
    with Stores(load(environment=environment | {"LEDGERCTL_MONGO_URI": server.uri})) as stores:
        status, detail = said(stores, "mongo.write_concern")
    servers.stop(server)
    assert (status, "w=1" in detail) == (CheckStatus.WARN, True)


@pytest.mark.parametrize(
    ("minutes", "words"), [(-5, "ahead of this machine"), (5, "behind this machine")]
)
def test_a_clock_that_is_off_is_told_with_the_figure(
    stores: Stores, minutes: int, words: str
) -> None:
    found = look(stores, lambda: now() + timedelta(minutes=minutes))
    for check in ("mongo.clock", "redis.reachable"):
        assert found[check].finding.status is CheckStatus.WARN
        assert words in found[check].finding.detail
        assert found[check].finding.detail.split(" is ")[1].startswith(("300.", "299."))


def test_rows_that_keep_the_unique_index_from_being_built_are_named(
    stores: Stores, client: Client, database: str
) -> None:
    for at, row in enumerate(("r-1", "r-2")):
        client[database].ledger.insert_one(
            make_row("job-55", "refund", _id=row, amount=Int64(40 + at))
        )
    status, detail = said(stores, "index.ledger_unique")
    assert status is CheckStatus.FAIL
    for word in ("not protected", "r-1", "r-2", "amount=40", "amount=41", "2026-03-08"):
        assert word in detail


def test_an_index_that_is_not_unique_or_has_other_fields_does_not_count(
    stores: Stores, client: Client, database: str
) -> None:
    client[database].ledger.create_index([("job_id", 1), ("type", 1)])
    client[database].inbox.create_index([("tenant_id", 1), ("message_key", 1)], unique=True)
    assert said(stores, "index.ledger_unique")[0] is CheckStatus.FAIL
    status, detail = said(stores, "index.inbox_unique")
    assert (status, "unique instead: tenant_id, message_key" in detail) == (CheckStatus.FAIL, True)


def test_absent_indexes_of_the_ledger_only_warn(stores: Stores) -> None:
    found = look(stores)
    for check in ("index.ledger_account", "index.ledger_created"):
        assert found[check].finding.status is CheckStatus.WARN


@pytest.mark.parametrize("collection", ["ledger", "jobs", "inbox"])
def test_an_index_that_lets_money_or_state_expire_fails(
    ready: Stores, client: Client, database: str, collection: str
) -> None:
    client[database][collection].create_index([("last_seen_at", 1)], expireAfterSeconds=3600)
    status, detail = said(ready, "index.expiry")
    assert status is CheckStatus.FAIL
    assert f"{collection} expires 3600 s after last_seen_at" in detail


def test_a_capped_ledger_fails(stores: Stores, client: Client, database: str) -> None:
    client[database].create_collection("ledger", capped=True, size=4096)
    assert said(stores, "index.expiry") == (
        CheckStatus.FAIL,
        "ledger is capped: old documents are overwritten",
    )


def test_history_that_expires_only_warns(ready: Stores, client: Client, database: str) -> None:
    client[database].operator_log.create_index([("at", 1)], expireAfterSeconds=3600)
    assert said(ready, "index.expiry")[0] is CheckStatus.WARN


@pytest.mark.parametrize(
    ("job", "status", "words"),
    [
        (make_job(), CheckStatus.OK, "both flags are booleans in all of 1 jobs"),
        (without(make_job(), "is_refunded"), CheckStatus.WARN, "1 of 1 jobs lack a flag"),
        (make_job(is_reclaimed=None), CheckStatus.WARN, "1 of 1 jobs lack a flag"),
        (
            make_job(is_refunded="false"),
            CheckStatus.FAIL,
            "1 of 1 jobs have a flag that is no boolean",
        ),
        (make_job(is_refunded=0), CheckStatus.FAIL, "1 of 1 jobs have a flag that is no boolean"),
        (make_job(is_reclaimed=True), CheckStatus.FAIL, "1 are reclaimed without a refund"),
    ],
)
def test_flags_are_counted(
    ready: Stores, client: Client, database: str, job: Any, status: CheckStatus, words: str
) -> None:
    client[database].jobs.insert_one(job)
    found, detail = said(ready, "jobs.flags")
    assert (found, words in detail) == (status, True), detail


# Redis


def test_a_replica_fails_its_role(servers: SessionServers, valkey: Server, run: Runner) -> None:
    replica = servers.valkey("--replicaof", "127.0.0.1", str(valkey.port))
    done = run("doctor", "-o", "json", env={"LEDGERCTL_REDIS_URL": replica.uri})
    servers.stop(replica)
    found = {one["id"]: one for one in done.json()["checks"]}
    assert (done.code, found["redis.role"]["status"]) == (5, "fail")


@contextmanager
def configured(client: Redis, **settings: str) -> Iterator[None]:
    """The server with other settings for a while."""
    before: dict[Any, Any] = {}
    for name, value in settings.items():
        key = name.replace("_", "-")
        before |= client.config_get(key)
        client.config_set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            client.config_set(key, value)


def test_a_policy_that_drops_lists_warns(stores: Stores, redis_client: Redis) -> None:
    with configured(redis_client, maxmemory_policy="allkeys-lru"):
        status, detail = said(stores, "redis.eviction")
    assert (status, "allkeys-lru drops lists" in detail) == (CheckStatus.WARN, True)


def test_a_policy_that_drops_only_what_expires_is_fine(stores: Stores, redis_client: Redis) -> None:
    with configured(redis_client, maxmemory_policy="volatile-lru"):
        assert said(stores, "redis.eviction")[0] is CheckStatus.OK


def test_a_server_that_is_nearly_full_warns(stores: Stores, redis_client: Redis) -> None:
    with configured(redis_client, maxmemory=str(redis_client.info("memory")["used_memory"])):
        status, detail = said(stores, "redis.eviction")
    assert (status, "every push is refused" in detail) == (CheckStatus.WARN, True)


def test_lists_that_a_restart_loses_are_told_from_those_that_it_keeps(
    stores: Stores, redis_client: Redis
) -> None:
    assert "nothing is saved" in said(stores, "redis.persistence")[1]


def test_an_append_only_file_keeps_the_lists(
    servers: SessionServers, environment: dict[str, str]
) -> None:
    server = servers.valkey("--appendonly", "yes")
    with Stores(load(environment=environment | {"LEDGERCTL_REDIS_URL": server.uri})) as stores:
        assert said(stores, "redis.persistence")[0] is CheckStatus.OK
    servers.stop(server)


@pytest.mark.parametrize("key", ["jobs:retry", "jobs:dead-letter", "jobs:processing:w-1"])
def test_a_key_of_another_type_fails(stores: Stores, redis_client: Redis, key: str) -> None:
    redis_client.zadd(key, {"job": 1})
    assert said(stores, "redis.types") == (CheckStatus.FAIL, f"{key}: expected list, found zset")


def test_in_a_large_database_the_side_lists_that_the_walk_finds_are_kept_by_name(
    stores: Stores, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgerctl.stores.queues.WALK_ROUNDS", 0)
    side = ["jobs:dead-letter:passed:one", "jobs:processing:w1"]
    for key in (*side, "jobs:dead-letter:op:one", "jobs:retry"):
        redis_client.rpush(key, "{}")
    assert said(stores, "redis.types") == (CheckStatus.OK, "4 lists, no other type")
    assert (stores.queues.passed_keys(), stores.queues.processing_keys()) == (side[:1], side[1:])
    assert redis_client.smembers("jobs:dead-letter:names") == {side[0].encode()}


def test_a_list_that_expires_fails(stores: Stores, redis_client: Redis) -> None:
    redis_client.rpush("jobs:retry", "{}")
    redis_client.expire("jobs:retry", 3600)
    status, detail = said(stores, "redis.types")
    assert (status, "delete jobs:retry by itself" in detail) == (CheckStatus.FAIL, True)


def test_a_server_that_runs_a_script_is_busy_not_down(
    servers: SessionServers, environment: dict[str, str]
) -> None:
    server = servers.valkey("--busy-reply-threshold", "50")
    busy = Redis.from_url(server.uri)
    connection: Any = busy.connection_pool.get_connection()
    connection.send_command("EVAL", "while true do end", "0")
    time.sleep(0.5)
    with Stores(load(environment=environment | {"LEDGERCTL_REDIS_URL": server.uri})) as stores:
        finding = look(stores)["redis.reachable"].finding
    servers.stop(server)
    assert finding.status is CheckStatus.FAIL
    assert "script" in finding.hint


# the inbox


def test_claims_that_lack_half_of_their_key_fail(
    ready: Stores, client: Client, database: str
) -> None:
    client[database].inbox.insert_many([make_claim("m-1"), make_claim("m-2", consumer_group="")])
    status, detail = said(ready, "inbox.keys")
    assert (status, "1 of 2 claims lack consumer_group" in detail) == (CheckStatus.FAIL, True)


def test_two_claims_of_one_message_fail(stores: Stores, client: Client, database: str) -> None:
    client[database].inbox.insert_many([make_claim(), make_claim()])
    status, detail = said(stores, "inbox.keys")
    assert (status, "claims share a key" in detail) == (CheckStatus.FAIL, True)


def test_claims_without_a_tenant_beside_messages_with_one_warn(
    ready: Stores, client: Client, database: str
) -> None:
    client[database].inbox.insert_one(make_claim(tenant_id=None))
    client[database].outbox.insert_one(
        {"_id": "m-1", "message_key": "m-1", "tenant_id": "acct-1", "created_at": LONG_AGO}
    )
    status, detail = said(ready, "inbox.keys")
    assert (status, "1 of 1 claims have no tenant_id" in detail) == (CheckStatus.WARN, True)


def test_a_message_that_circles_for_hours_fails_whatever_its_attempts(
    ready: Stores, client: Client, database: str
) -> None:
    client[database].inbox.insert_one(
        make_claim(status="failed", deliveries=480, last_seen_at=now(), completed_at=None)
    )
    status, detail = said(ready, "inbox.stuck")
    assert (status, "m-1 of group billing" in detail) == (CheckStatus.FAIL, True)


def test_a_completed_claim_is_not_stuck(ready: Stores, client: Client, database: str) -> None:
    client[database].inbox.insert_one(make_claim())
    assert said(ready, "inbox.stuck")[0] is CheckStatus.OK


# the configuration


@pytest.mark.parametrize(
    ("mode", "status"), [(0o600, "ok"), (0o644, "warn"), (0o622, "fail"), (0o666, "fail")]
)
def test_a_configuration_that_others_may_read_or_change_is_named(
    run: Runner, tmp_path: Path, environment: dict[str, str], mode: int, status: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('mongo_uri = "mongodb://u:p4ss@127.0.0.1:1/"\n')
    path.chmod(mode)
    done = run("doctor", "--config", str(path), "-o", "json")
    found = {one["id"]: one for one in done.json()["checks"]}["config.permissions"]
    assert found["status"] == status
    assert ("chmod 600" in found["hint"]) == (status != "ok")
    assert "p4ss" not in done.out


def test_without_a_file_there_is_nothing_to_protect(stores: Stores) -> None:
    assert said(stores, "config.permissions")[0] is CheckStatus.OK
