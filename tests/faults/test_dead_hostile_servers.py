"""Servers that refuse, stall, lose replies or are not what they should be: nothing is half done."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
from pymongo import MongoClient
from redis import Redis
from redis import exceptions as redis_errors

from ledgerctl.sandbox.launch import Server
from tests.dead_letters import DEAD, RETRY, Incident
from tests.proxy import Fault, Plan, proxied
from tests.servers import SessionServers

COUNT = 1_000
ALL = ("dead", "requeue", "--all", "--yes")
RELEASE = ("dead", "release", "--all", "--reason", "x", "--yes")


@pytest.fixture
def incident(
    redis_client: Redis, client: MongoClient[dict[str, Any]], environment: dict[str, str]
) -> Incident:
    incident = Incident(redis_client, client, environment)
    incident.load(COUNT)
    return incident


def command(redis: Redis, *words: str) -> Any:
    """A command for which the driver has no typed method."""
    return cast(Any, redis).execute_command(*words)


def against(incident: Incident, url: str) -> Incident:
    """The same incident, with the program pointed at another address."""
    environment = dict(incident.environment) | {"LEDGERCTL_REDIS_URL": url}
    return Incident(incident.redis, incident.mongo, environment, incident.original)


def refused(incident: Incident, *words: str) -> tuple[int, str]:
    program = incident.start(*words)
    out, err = program.communicate(timeout=60)
    assert out == b""
    return program.returncode, err.decode()


def assert_untouched(incident: Incident) -> None:
    assert incident.entries(DEAD) == incident.original
    assert incident.redis.llen(RETRY) == 0
    assert incident.redis.keys(f"{DEAD}:*") == []
    assert incident.database.operator_log.count_documents({}) == 0
    assert incident.database.dead_archive.count_documents({}) == 0


@pytest.mark.parametrize("words", [ALL, RELEASE], ids=["requeue", "release"])
@pytest.mark.parametrize("kind", ["zset", "stream", "string"])
def test_a_retry_key_of_another_type_is_refused_before_anything(
    incident: Incident, words: tuple[str, ...], kind: str
) -> None:
    put: dict[str, Any] = {
        "zset": lambda: incident.redis.zadd(RETRY, {"a": 1}),
        "stream": lambda: incident.redis.xadd(RETRY, {"a": 1}),
        "string": lambda: incident.redis.set(RETRY, "a"),
    }
    put[kind]()
    code, err = refused(incident, *words)
    assert code == 3
    assert f"expected list, found {kind}" in err
    incident.redis.delete(RETRY)
    assert_untouched(incident)


def test_dead_letters_of_another_type_are_refused_by_every_command(incident: Incident) -> None:
    incident.redis.delete(DEAD)
    incident.redis.set(DEAD, "text")
    for words in (ALL, RELEASE, ("dead", "list"), ("dead", "stats")):
        code, err = refused(incident, *words)
        assert (code, "expected list, found string" in err) == (3, True)
    assert incident.redis.get(DEAD) == b"text"


def test_a_full_server_refuses_and_nothing_changes(incident: Incident) -> None:
    incident.redis.config_set("maxmemory", "1mb")
    try:
        code, err = refused(incident, *ALL)
    finally:
        incident.redis.config_set("maxmemory", "0")
    assert (code, "store_busy" in err) == (6, True)
    assert_untouched(incident)


def test_a_server_running_somebodys_script_is_busy(incident: Incident) -> None:
    incident.redis.config_set("busy-reply-threshold", "50")
    stuck = Redis.from_url(incident.environment["LEDGERCTL_REDIS_URL"])

    def loop() -> None:
        with suppress(redis_errors.RedisError):
            stuck.eval("while true do end", 0)

    thread = threading.Thread(target=loop)
    thread.start()
    time.sleep(0.3)
    try:
        code, err = refused(incident, *ALL)
    finally:
        command(incident.redis, "SCRIPT", "KILL")
        thread.join()
        incident.redis.config_set("busy-reply-threshold", "5000")
    assert (code, "try again" in err) == (6, True)
    assert_untouched(incident)


def test_a_pause_that_ends_is_waited_for(incident: Incident) -> None:
    incident.redis.client_pause(8_000, all=False)
    code, document = incident.run(*ALL)
    assert (code, document["moved"]) == (0, COUNT)
    incident.assert_none_lost(incident.retry())


def test_a_pause_that_does_not_end_is_exit_6_with_nothing_done(incident: Incident) -> None:
    incident.redis.client_pause(120_000, all=False)
    try:
        code, _ = refused(incident, *ALL)
    finally:
        incident.redis.client_unpause()
    assert code == 6
    assert_untouched(incident)


def test_a_pause_in_the_middle_moves_each_letter_once(incident: Incident) -> None:
    program = incident.start(*ALL)
    while incident.redis.llen(RETRY) == 0 and program.poll() is None:
        time.sleep(0.001)
    incident.redis.client_pause(4_000, all=False)
    program.communicate(timeout=60)
    assert program.returncode == 0
    assert incident.redis.llen(RETRY) == COUNT
    incident.assert_none_lost(incident.retry())


def test_killed_connections_in_the_middle_move_each_letter_once(incident: Incident) -> None:
    program = incident.start(*ALL)
    while program.poll() is None:
        incident.redis.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.02)
    program.communicate(timeout=60)
    assert program.returncode in {0, 6, 7, 8}
    incident.assert_none_lost(incident.retry())
    assert incident.run(*ALL)[0] == 0
    assert incident.redis.llen(RETRY) == COUNT
    incident.assert_none_lost(incident.retry())


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.CUT])
@pytest.mark.parametrize("words", [ALL, RELEASE, ("dead", "requeue", "--error", "disk", "--yes")])
def test_a_lost_reply_is_resolved_and_moves_nothing_twice(
    incident: Incident, words: tuple[str, ...], fault: Fault
) -> None:
    moved = COUNT // 4 if "--error" in words else COUNT
    plan = Plan("EVAL", fault, skip=2)
    with proxied(incident.environment["LEDGERCTL_REDIS_URL"], plan) as proxy:
        code, document = against(incident, proxy.uri).run(*words)
    assert (code, document["moved"], plan.landed) == (0, moved, 1)
    assert document["remaining"] == COUNT - moved
    incident.assert_none_lost(incident.taken() if words is RELEASE else incident.retry())
    incident.assert_order_kept()


def test_a_lost_reply_of_a_restore_restores_none_twice(incident: Incident) -> None:
    operation_id = incident.run(*RELEASE)[1]["operation_id"]
    plan = Plan("EVAL", Fault.DROP, skip=2)
    with proxied(incident.environment["LEDGERCTL_REDIS_URL"], plan) as proxy:
        code, document = against(incident, proxy.uri).run("dead", "restore", operation_id, "--yes")
    assert (code, document["restored"], document["already_back"]) == (0, COUNT, 0)
    assert plan.landed == 1
    assert incident.dead() == incident.original


def test_replies_lost_for_good_are_exit_7_and_the_next_run_ends_it(incident: Incident) -> None:
    plan = Plan("EVAL", Fault.DROP, skip=1, times=99)
    with proxied(incident.environment["LEDGERCTL_REDIS_URL"], plan) as proxy:
        program = against(incident, proxy.uri).start(*ALL)
        program.communicate(timeout=60)
    assert program.returncode == 7
    incident.assert_none_lost(incident.retry())
    code, document = incident.run(*ALL)
    assert (code, document["remaining"], incident.redis.llen(RETRY)) == (0, 0, COUNT)
    incident.assert_none_lost(incident.retry())


def test_a_mongodb_that_goes_away_in_the_middle_is_exit_8_and_nothing_is_lost(
    incident: Incident,
) -> None:
    incident.load(6_000)
    plan = Plan("insert", Fault.DROP, skip=2, times=99)
    with proxied(incident.environment["LEDGERCTL_MONGO_URI"], plan) as proxy:
        environment = dict(incident.environment) | {
            "LEDGERCTL_MONGO_URI": proxy.uri + "&retryWrites=false"
        }
        away = Incident(incident.redis, incident.mongo, environment, incident.original)
        code, document = away.run(*ALL)
    assert code == 8
    assert 0 < document["moved"] < 6_000
    assert document["moved"] + document["not_tried"] == 6_000
    assert "error" in document
    incident.assert_none_lost(incident.retry())
    assert incident.run(*ALL)[1]["remaining"] == 0


# --- rights --------------------------------------------------------------------------------


@pytest.fixture
def narrow(incident: Incident) -> Iterator[Incident]:
    """A user with only what the contract names, on keys that start with the configured names."""
    command(incident.redis, "ACL", "SETUSER", "narrow", "on", ">secret", "resetkeys", "~jobs:retry*",
        "~jobs:dead-letter*", "~jobs:processing*", "resetchannels", "-@all",
        "+@list", "-@blocking", "+type", "+scan", "+eval", "+evalsha", "+script|load",
    )  # fmt: skip
    url = incident.environment["LEDGERCTL_REDIS_URL"].replace("redis://", "redis://narrow:secret@")
    try:
        yield against(incident, url)
    finally:
        command(incident.redis, "ACL", "DELUSER", "narrow")


def test_list_commands_type_scan_and_scripts_are_all_it_needs(narrow: Incident) -> None:
    code, document = narrow.run("dead", "requeue", "--error", "timed out", "--yes")
    assert (code, document["moved"]) == (0, COUNT // 4)
    assert any("clock" in note for note in document["notes"])
    code, restored = narrow.run("dead", "restore", document["operation_id"], "--yes")
    assert (code, restored["restored"]) == (0, COUNT // 4)
    assert narrow.run(*RELEASE)[0] == 0
    assert narrow.run("dead", "list")[0] == 0
    assert narrow.run("dead", "stats")[0] == 0


@pytest.mark.parametrize("missing", ["-ltrim", "-rpush", "-lrange", "-eval -evalsha", "-type"])
def test_a_missing_right_is_exit_6_and_nothing_changes(narrow: Incident, missing: str) -> None:
    command(narrow.redis, "ACL", "SETUSER", "narrow", *missing.split())
    code, err = refused(narrow, *ALL)
    assert (code, "not_permitted" in err, "secret" in err) == (6, True, False)
    assert_untouched(narrow)


def test_no_right_to_the_retry_list_is_exit_6_and_nothing_changes(narrow: Incident) -> None:
    command(narrow.redis, "ACL", "SETUSER", "narrow", "resetkeys", "~jobs:dead-letter*")
    assert refused(narrow, *ALL)[0] == 6
    assert_untouched(narrow)


# --- replicas and clusters -----------------------------------------------------------------


def test_a_read_only_replica_is_refused_and_can_be_read(
    incident: Incident, servers: SessionServers, valkey: Server
) -> None:
    port = valkey.uri.rsplit(":", 1)[1].split("/")[0]
    replica = servers.valkey("--replicaof", "127.0.0.1", port)
    try:
        with Redis.from_url(replica.uri) as redis:
            deadline = time.monotonic() + 30
            while redis.llen(DEAD) != COUNT and time.monotonic() < deadline:
                time.sleep(0.05)
        aside = against(incident, replica.uri)
        code, err = refused(aside, *ALL)
        assert (code, "read_only_replica" in err) == (3, True)
        assert aside.run("dead", "stats")[1]["depth"] == COUNT
        assert_untouched(incident)
    finally:
        servers.stop(replica)


@pytest.fixture
def cluster(servers: SessionServers) -> Iterator[Server]:
    """One node that holds all slots."""
    node = servers.valkey("--cluster-enabled", "yes")
    with Redis.from_url(node.uri) as redis:
        command(redis, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        deadline = time.monotonic() + 30
        while b"cluster_state:ok" not in command(redis, "CLUSTER", "INFO") and (
            time.monotonic() < deadline
        ):
            time.sleep(0.05)
    try:
        yield node
    finally:
        servers.stop(node)


def test_lists_that_share_no_slot_of_a_cluster_are_refused_with_the_reason(
    incident: Incident, cluster: Server, tmp_path: Any
) -> None:
    with Redis.from_url(cluster.uri) as redis:
        redis.rpush(DEAD, *incident.original)
        code, err = refused(against(incident, cluster.uri), *ALL)
        assert (code, "cross_slot" in err, "hash tag" in err) == (3, True, True)
        assert redis.llen(DEAD) == COUNT

        names = 'retry = "{jobs}:retry"\ndead_letter = "{jobs}:dead-letter"\n'
        file = tmp_path / "config.toml"
        file.write_text(f'[keys]\n{names}processing = "{{jobs}}:processing"\n')
        redis.rpush("{jobs}:dead-letter", *incident.original)
        tagged = against(incident, cluster.uri)
        code, document = tagged.run("dead", "requeue", "--error", "disk", "--yes", "--config", str(file))  # fmt: skip
        assert (code, document["moved"]) == (0, COUNT // 4)
        assert redis.llen("{jobs}:retry") == COUNT // 4
