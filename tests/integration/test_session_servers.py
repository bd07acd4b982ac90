"""What the other tests rely on: real servers, one of each kind, empty for each test."""

from typing import Any

from pymongo import MongoClient
from redis import Redis

from ledgerctl.sandbox.launch import Server
from tests.conftest import Invoker, Runner


def test_the_replica_set_has_transactions(
    client: MongoClient[dict[str, Any]], database: str
) -> None:
    rows = client[database]["rows"]
    with client.start_session() as session, session.start_transaction():
        rows.insert_one({"_id": 1}, session=session)
    assert list(rows.find()) == [{"_id": 1}]


def test_the_standalone_server_is_no_replica_set(
    standalone_client: MongoClient[dict[str, Any]],
) -> None:
    hello = standalone_client.admin.command("hello")
    assert hello["isWritablePrimary"]
    assert "setName" not in hello


def test_fail_points_are_allowed(client: MongoClient[dict[str, Any]]) -> None:
    answer = client.admin.command("configureFailPoint", "failCommand", mode="off", data={})
    assert answer["ok"]


def test_lists_are_empty_and_bytes_stay_bytes(redis_client: Redis) -> None:
    assert redis_client.dbsize() == 0
    redis_client.rpush("jobs:retry", b"\xff")
    assert redis_client.lrange("jobs:retry", 0, -1) == [b"\xff"]


def test_lists_are_empty_again_for_the_next_test(redis_client: Redis) -> None:
    assert redis_client.dbsize() == 0


def test_servers_listen_on_loopback_only(mongod: Server, valkey: Server) -> None:
    assert mongod.uri.startswith("mongodb://127.0.0.1:")
    assert valkey.uri.startswith("redis://127.0.0.1:")


def test_the_environment_names_the_servers_and_nothing_of_ours(
    environment: dict[str, str], mongod: Server, database: str
) -> None:
    ours = {name for name in environment if name.startswith("LEDGERCTL_")}
    assert ours == {
        "LEDGERCTL_DATABASE",
        "LEDGERCTL_MONGO_URI",
        "LEDGERCTL_OPERATOR",
        "LEDGERCTL_REDIS_URL",
    }
    assert environment["LEDGERCTL_DATABASE"] == database
    assert "TZ" not in environment


def test_the_program_runs_the_same_inside_this_process_and_outside(
    run: Runner, invoke: Invoker
) -> None:
    words = ("balance", "show", "nobody", "-o", "json")
    inside, outside = invoke(*words), run(*words)
    assert (outside.code, outside.out) == (4, "")
    assert (inside.code, inside.out, inside.err) == (outside.code, outside.out, outside.err)
