"""What an operator may rely on whatever the data look like, by the program's own commands."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId
from pymongo import MongoClient, ReadPreference
from redis import Redis
from redis.exceptions import ResponseError

from ledgerctl.config import load
from ledgerctl.sandbox.launch import Server
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_job, make_row, without
from tests.conftest import Invoker, Runner
from tests.servers import SessionServers

Client = MongoClient[dict[str, Any]]
RETRY, DEAD = "jobs:retry", "jobs:dead-letter"


def letter(job_id: str = "job-1", **members: Any) -> bytes:
    """A dead letter as a worker writes it."""
    return json.dumps(
        {"job_id": job_id, "attempts": 5, "error": "GPU timed out"} | members
    ).encode()


def failed_job(documents: Any, job_id: str = "job-1") -> None:
    """A charged job that failed: its letters are retryable."""
    documents.jobs.insert_one(make_job(job_id, status="failed"))
    documents.ledger.insert_one(make_row(job_id))


def stands(redis_client: Any) -> dict[str, list[bytes]]:
    """Every list as it stands; the notes that a restore needs are none of the jobs'."""
    return {
        key.decode(): redis_client.lrange(key, 0, -1)
        for key in sorted(redis_client.keys())
        if b":op:" not in key
    }


# indexes


def test_rows_in_the_way_of_the_unique_index_are_named_and_left(
    run: Runner, documents: Any
) -> None:
    rows = [make_row("job-55", "refund", _id=name) for name in ("r-1", "r-2")]
    documents.ledger.insert_many(rows)
    before = list(documents.ledger.find())
    done = run("db", "init", "-o", "json")
    blocked = next(one for one in done.json()["indexes"] if one["status"] == "blocked")
    assert done.code == 8
    assert [(row["row_id"], row["amount"]) for row in blocked["rows"]] == [("r-1", 40), ("r-2", 40)]
    assert all(row["created_at"] for row in blocked["rows"])
    again = run("db", "init", "-o", "plain")
    assert again.code == 3  # nothing else was left to build
    assert "not protected" in again.err
    assert "created_at 2026-03-08T12:00:00.000Z) is in the way" in again.err
    assert list(documents.ledger.find()) == before


def test_an_index_whose_name_another_one_has_is_said_and_left(run: Runner, documents: Any) -> None:
    documents.ledger.create_index([("x", 1)], name="ledger_recorded_at")
    assert run("db", "init", "-o", "plain").code == 8
    again = run("db", "init", "-o", "plain")
    assert again.code == 3
    assert "ledger_recorded_at: " in again.err


# ids and amounts


def test_a_typo_a_repeat_and_an_id_of_another_type_are_three_answers(
    invoke: Invoker, documents: Any
) -> None:
    key = ObjectId()
    for job_id in ("job-104", key):
        documents.jobs.insert_one(make_job(job_id))
        documents.ledger.insert_one(make_row(job_id, _id=f"{job_id}:charge"))
    invoke("job", "refund", "job-104")
    answers = [
        (done.code, done.json()["results"][0]["outcome"], done.json()["results"][0]["at"])
        for done in (
            invoke("job", "refund", job_id, "-o", "json")
            for job_id in ("job-typo", "job-104", str(key))
        )
    ]
    assert [(code, outcome) for code, outcome, _ in answers] == [
        (4, "not_found"),
        (0, "already_refunded"),
        (0, "applied"),
    ]
    assert answers[1][2] is not None  # when


@pytest.mark.parametrize("command", [("balance", "show"), ("balance", "explain"), ("job", "show")])
def test_an_id_that_is_no_ones_is_not_found_and_never_a_balance_of_0(
    invoke: Invoker, command: tuple[str, ...]
) -> None:
    done = invoke(*command, "not-an-id")
    assert (done.code, done.stdout) == (4, b"")
    assert "Traceback" not in done.err


def test_a_balance_is_exact_past_64_bits_and_past_doubles(invoke: Invoker, documents: Any) -> None:
    amounts = [Int64(9007199254740993), 0.0, Int64(9223372036854775807), Int64(1), Decimal128("2")]
    documents.ledger.insert_many(
        make_row(f"job-{at}", _id=f"r-{at}", amount=amount) for at, amount in enumerate(amounts)
    )
    done = invoke("balance", "show", "acct-1", "-o", "json")
    assert f'"balance": {9007199254740993 + 9223372036854775807 + 1 + 2},' in done.out
    assert done.code == 0


def test_fractions_are_left_out_named_and_never_rounded_into_the_balance(
    invoke: Invoker, documents: Any
) -> None:
    amounts = [-0.1, -0.1, -0.1, 0.3, Decimal128("1.5"), Int64(1)]
    documents.ledger.insert_many(
        make_row(f"job-{at}", _id=f"r-{at}", amount=amount) for at, amount in enumerate(amounts)
    )
    done = invoke("balance", "show", "acct-1", "-o", "json")
    document = done.json()
    assert (done.code, document["balance"]) == (5, 1)
    assert [row["row_id"] for row in document["unusable_rows"]] == [f"r-{at}" for at in range(5)]


def test_rows_of_one_instant_come_once_each_in_one_order_with_a_running_balance(
    invoke: Invoker, documents: Any
) -> None:
    documents.ledger.insert_many(
        make_row(f"job-{at}", _id=f"r-{at:03}", amount=Int64(-1)) for at in range(50)
    )
    first = invoke("balance", "replay", "acct-1", "-o", "json").json()["rows"]
    assert [row["row_id"] for row in first] == [f"r-{at:03}" for at in range(50)]
    assert [row["balance"] for row in first] == [-(at + 1) for at in range(50)]
    documents.ledger.insert_one(make_row("job-x", _id="r-0005", amount=Int64(-1)))
    again = invoke("balance", "replay", "acct-1", "-o", "json").json()["rows"]
    assert [row for row in again if row["row_id"] != "r-0005"] != []
    assert [row["row_id"] for row in again] == sorted(row["row_id"] for row in again)


# reads and writes see each other


def test_reads_are_the_primarys_own_whatever_the_uri_prefers(environment: dict[str, str]) -> None:
    uri = f"{environment['LEDGERCTL_MONGO_URI']}&readPreference=secondaryPreferred&readConcernLevel=local"
    with Stores(load(environment=environment | {"LEDGERCTL_MONGO_URI": uri})) as stores:
        for name in ("jobs", "ledger", "usage_daily", "inbox"):
            collection = stores.mongo.collection(name)
            assert collection.read_preference == ReadPreference.PRIMARY
            assert collection.read_concern.level == "majority"
            assert collection.write_concern.document == {"w": "majority", "j": True}


# batches and consent


def test_a_file_of_ids_is_taken_line_by_line_each_id_once(
    run: Runner, documents: Any, tmp_path: Path
) -> None:
    for job_id in ("job-1", "job-2", "job-3"):
        failed_job(documents, job_id)
    run("job", "refund", "job-2")
    path = tmp_path / "ids.txt"
    path.write_bytes(b"job_id\r\njob-1\r\njob-2\r\njob-3\r\n\r\njob-1\r\n")
    done = run("job", "refund", "--from-file", str(path), "--yes", "-o", "json")
    document = done.json()
    assert [(one["job_id"], one["outcome"]) for one in document["results"]] == [
        ("job-1", "applied"),
        ("job-2", "already_refunded"),
        ("job-3", "applied"),
    ]
    assert (done.code, document["applied"], document["unchanged"]) == (0, 2, 1)
    assert documents.ledger.count_documents({"type": "refund"}) == 3


@pytest.mark.parametrize("format", ["csv", "plain", "jsonl"])
def test_a_listing_goes_back_in_and_each_job_gets_its_own_reason(
    run: Runner, documents: Any, format: str
) -> None:
    ids = ["a,b", '"q"', "=1+1", "'=1", " blank ", "tab\there", "back\\tslash"]
    for job_id in ids:
        failed_job(documents, job_id)
    listed = run("job", "list", "-o", format, "--fields", "cost,job_id").out
    done = run("job", "refund", "--from-file", "-", "--yes", "-o", "json", stdin=listed)
    assert (done.code, done.json()["applied"]) == (0, len(ids)), done
    assert {row["job_id"] for row in documents.ledger.find({"type": "refund"})} == set(ids)


def test_a_column_of_reasons_is_written_into_the_rows(run: Runner, documents: Any) -> None:
    for job_id in ("job-1", "job-2"):
        failed_job(documents, job_id)
    given = "reason,job_id\nticket 7,job-1\n ,job-2\n"
    words = ("--from-file", "-", "--yes", "--reason", "outage")
    assert run("job", "refund", *words, stdin=given).code == 0
    found = {row["job_id"]: row["reason"] for row in documents.ledger.find({"type": "refund"})}
    assert found == {"job-1": "ticket 7", "job-2": "outage"}


def test_a_batch_without_a_terminal_and_without_a_yes_is_refused_before_any_work(
    run: Runner, documents: Any
) -> None:
    failed_job(documents)
    failed_job(documents, "job-2")
    for given in (None, "job-1\njob-2\n", "y\n"):
        args = ("--from-file", "-") if given else ("job-1", "job-2")
        done = run("job", "refund", *args, stdin=given, timeout_s=20)
        assert (done.code, done.stdout) == (2, b""), done
    assert documents.ledger.count_documents({"type": "refund"}) == 0
    assert documents.operator_log.count_documents({}) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"},
    ],
    ids=["C", "Latin-1", "ASCII"],
)
@pytest.mark.parametrize("output", ["table", "plain", "json"])
def test_an_output_that_cannot_hold_a_character_never_looks_like_a_failed_refund(
    run: Runner, documents: Any, settings: dict[str, str], output: str
) -> None:
    failed_job(documents, "job-☃")
    done = run("job", "refund", "job-☃", "-o", output, "--reason", "─ snow", env=settings)
    assert done.code == 0, done
    assert b"Traceback" not in done.stderr
    assert documents.ledger.count_documents({"type": "refund"}) == 1


# dead letters


@pytest.mark.parametrize("kind", ["zset", "stream", "string"])
@pytest.mark.parametrize("wrong", [RETRY, DEAD])
def test_a_key_of_another_type_is_refused_before_anything_moves(
    invoke: Invoker, documents: Any, redis_client: Redis, kind: str, wrong: str
) -> None:
    failed_job(documents)
    other = RETRY if wrong == DEAD else DEAD
    redis_client.rpush(other, letter())
    if kind == "zset":
        redis_client.zadd(wrong, {"x": 1})
    elif kind == "stream":
        redis_client.xadd(wrong, {"x": "1"})
    else:
        redis_client.set(wrong, "x")
    before = redis_client.dump(wrong), redis_client.lrange(other, 0, -1)
    done = invoke("dead", "requeue", "job-1", "--yes")
    assert (done.code, f"expected list, found {kind}" in done.err) == (3, True), done
    assert (redis_client.dump(wrong), redis_client.lrange(other, 0, -1)) == before
    assert documents.dead_archive.count_documents({}) == 0


def test_a_go_workers_bytes_are_moved_as_they_are_but_for_the_two_members(
    invoke: Invoker, documents: Any, redis_client: Redis
) -> None:
    failed_job(documents, "a1")
    raw = b'{"job_id":"a1", "url":"?a=1\\u0026b=2","cost":12.50,"tags":[],"n":9007199254740993,"attempts":5}'
    redis_client.rpush(DEAD, raw)
    assert invoke("dead", "requeue", "a1", "--yes").code == 0
    assert stands(redis_client) == {RETRY: [raw.replace(b'"attempts":5', b'"attempts":0')]}


def test_a_second_requeue_finds_nothing_and_pushes_nothing(
    invoke: Invoker, documents: Any, redis_client: Redis
) -> None:
    failed_job(documents)
    redis_client.rpush(DEAD, letter())
    moved = [
        invoke("dead", "requeue", "--all", "--yes", "-o", "json").json()["moved"] for _ in range(2)
    ]
    assert moved == [1, 0]
    assert redis_client.llen(RETRY) == 1


def test_a_letter_chosen_by_digest_is_that_letter_though_the_list_has_moved_on(
    invoke: Invoker, documents: Any, redis_client: Redis
) -> None:
    for at in range(5):
        failed_job(documents, f"job-{at}")
        redis_client.rpush(DEAD, letter(f"job-{at}"))
    third = invoke("dead", "list", "-o", "json").json()["items"][2]
    redis_client.lpush(DEAD, letter("new-1"), letter("new-2"))
    done = invoke("dead", "requeue", "--digest", third["digest"], "--yes", "-o", "json")
    assert done.json()["moved"] == 1
    queued = redis_client.lrange(RETRY, 0, -1)
    assert [json.loads(one)["job_id"] for one in queued] == ["job-2"]
    gone = invoke("dead", "requeue", "--digest", third["digest"], "--yes", "-o", "json")
    assert redis_client.llen(RETRY) == 1
    assert gone.code in {0, 4}


def test_all_letters_are_counted_shown_and_moved_past_ten_thousand(
    run: Runner, documents: Any, redis_client: Redis
) -> None:
    documents.jobs.insert_many(make_job(f"job-{at}", status="failed") for at in range(12_000))
    documents.ledger.insert_many(make_row(f"job-{at}") for at in range(12_000))
    redis_client.rpush(DEAD, *(letter(f"job-{at}") for at in range(12_000)))
    listed = run("dead", "list", "-o", "json").json()
    assert (listed["shown"], listed["total"]) == (100, 12_000)
    assert "100 of 12000" in run("dead", "list", "-o", "plain").err
    done = run("dead", "requeue", "--all", "--yes", "-o", "json")
    assert (done.json()["moved"], done.json()["remaining"]) == (12_000, 0)
    assert (redis_client.llen(RETRY), redis_client.llen(DEAD)) == (12_000, 0)


def test_a_letter_that_is_not_utf_8_is_shown_escaped_and_left_and_the_good_one_moves(
    invoke: Invoker, documents: Any, redis_client: Redis
) -> None:
    failed_job(documents)
    bad = b'{"a":"\xff"}'
    redis_client.rpush(DEAD, bad, letter())
    items = invoke("dead", "list", "-o", "json").json()["items"]
    assert [one["verdict"] for one in items] == ["unreadable", "retryable"]
    done = invoke("dead", "requeue", "--all", "--yes", "-o", "json").json()
    assert (done["moved"], done["skipped"]) == (1, {"unreadable": 1})
    assert redis_client.lrange(DEAD, 0, -1) == [bad]
    assert "\\xff" in invoke("dead", "show", items[0]["digest"], "-o", "table").out


def test_a_claim_in_the_inbox_does_not_stop_a_requeue(
    invoke: Invoker, documents: Any, redis_client: Redis
) -> None:
    failed_job(documents)
    documents.inbox.insert_one(
        {"consumer_group": "billing", "message_key": "m-9", "status": "dead"}
    )
    redis_client.rpush(DEAD, letter())
    before = list(documents.inbox.find())
    assert invoke("dead", "requeue", "job-1", "--yes", "-o", "json").json()["moved"] == 1
    assert list(documents.inbox.find()) == before


# a Redis that is full, busy, silent or a replica


def test_a_full_server_refuses_and_the_source_list_stays(
    invoke: Invoker, documents: Any, redis_client: Redis
) -> None:
    failed_job(documents)
    redis_client.rpush(DEAD, letter())
    redis_client.config_set("maxmemory", "1")
    try:
        done = invoke("dead", "requeue", "job-1", "--yes")
    finally:
        redis_client.config_set("maxmemory", "0")
    assert (done.code, "full" in done.err) == (6, True), done
    assert stands(redis_client) == {DEAD: [letter()]}


def test_a_server_that_runs_somebodys_script_is_told_as_busy(
    servers: SessionServers, run: Runner, documents: Any
) -> None:
    server = servers.valkey("--busy-reply-threshold", "50")
    failed_job(documents)
    opened = Redis.from_url(server.uri)
    opened.rpush(DEAD, letter())
    connection: Any = opened.connection_pool.get_connection()
    connection.send_command("EVAL", "while true do end", "0")
    threading.Event().wait(0.5)
    done = run("dead", "requeue", "job-1", "--yes", env={"LEDGERCTL_REDIS_URL": server.uri})
    opened.script_kill()
    with pytest.raises(ResponseError):
        connection.read_response()
    left = stands(opened)
    servers.stop(server)
    assert (done.code, "script" in done.err, "try again" in done.err) == (6, True, True), done
    assert left == {DEAD: [letter()]}


def test_a_replica_is_refused_before_the_first_change(
    servers: SessionServers, valkey: Server, redis_client: Redis, run: Runner, documents: Any
) -> None:
    failed_job(documents)
    redis_client.rpush(DEAD, letter())
    replica = servers.valkey("--replicaof", "127.0.0.1", str(valkey.port))
    with Redis.from_url(replica.uri) as opened:
        while not opened.llen(DEAD):
            threading.Event().wait(0.05)
        done = run("dead", "requeue", "--all", "--yes", env={"LEDGERCTL_REDIS_URL": replica.uri})
        listed = run("dead", "list", "-o", "json", env={"LEDGERCTL_REDIS_URL": replica.uri})
    servers.stop(replica)
    assert (done.code, "replica" in done.err) == (3, True), done
    assert listed.json()["total"] == 1
    assert stands(redis_client) == {DEAD: [letter()]}
    assert documents.dead_archive.count_documents({}) == 0


def test_a_primary_that_becomes_a_replica_midway_leaves_every_letter_on_one_list(
    servers: SessionServers, run: Runner, documents: Any
) -> None:
    server = servers.valkey()
    number = 6_000
    documents.jobs.insert_many(make_job(f"job-{at}", status="failed") for at in range(number))
    documents.ledger.insert_many(make_row(f"job-{at}") for at in range(number))
    with Redis.from_url(server.uri) as opened:
        opened.rpush(DEAD, *(letter(f"job-{at}") for at in range(number)))

        def demote() -> None:
            while not opened.llen(RETRY):
                pass
            opened.replicaof("127.0.0.1", "1")

        other = threading.Thread(target=demote)
        other.start()
        done = run(
            *("dead", "requeue", "--all", "--yes", "-o", "json"),
            env={"LEDGERCTL_REDIS_URL": server.uri},
        )
        other.join()
        lists = stands(opened)
    servers.stop(server)
    moved = len(lists[RETRY])
    ids = [json.loads(one)["job_id"] for key in (RETRY, DEAD) for one in lists[key]]
    assert sorted(ids) == sorted(f"job-{at}" for at in range(number))
    assert 0 < moved < number
    assert (done.code, done.json()["moved"]) == (8, moved), done
    assert str(number - moved) in done.out  # what is untouched


@contextmanager
def silenced(server: Server) -> Iterator[None]:
    """A server that accepts connections and never answers."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_a_push_that_a_stalled_server_answers_too_late_is_never_sent_twice(
    servers: SessionServers, environment: dict[str, str], documents: Any
) -> None:
    server = servers.valkey()
    with (
        Redis.from_url(server.uri) as opened,
        Stores(load(environment=environment | {"LEDGERCTL_REDIS_URL": server.uri})) as stores,
    ):
        stores.queues.client.ping()
        with silenced(server), pytest.raises(Exception, match=r"(?i)timeout|timed out"):
            stores.queues.client.rpush(RETRY, b"x")
        while not opened.ping():
            threading.Event().wait(0.05)
        assert opened.lrange(RETRY, 0, -1) == [b"x"]
    servers.stop(server)


# money that was counted wrong elsewhere


def test_a_partial_foreign_refund_is_neither_repeated_nor_topped_up(
    invoke: Invoker, documents: Any
) -> None:
    documents.jobs.insert_one(make_job(cost=Int64(27)))
    documents.ledger.insert_many(
        [
            make_row(amount=Int64(-27)),
            make_row(row_type="refund", _id="foreign", amount=Int64(7)),
        ]
    )
    before = list(documents.ledger.find())
    done = invoke("job", "refund", "job-1", "-o", "json")
    assert (done.code, done.json()["results"][0]["outcome"]) == (3, "row_exists")
    assert list(documents.ledger.find()) == before
    findings = invoke("ledger", "audit", "-o", "json").json()["findings"]
    assert "wrong_amount" in {one["code"] for one in findings}


def test_a_missing_flag_is_refunded_once_like_a_false_one(invoke: Invoker, documents: Any) -> None:
    documents.jobs.insert_one(without(make_job("j-101", cost=Int64(25)), "is_refunded"))
    documents.ledger.insert_one(make_row("j-101", amount=Int64(-25)))
    outcomes = [
        invoke("job", "refund", "j-101", "-o", "json").json()["results"][0]["outcome"]
        for _ in range(2)
    ]
    assert outcomes == ["applied", "already_refunded"]
    assert [row["amount"] for row in documents.ledger.find({"type": "refund"})] == [25]


def test_a_row_dated_tomorrow_is_told_apart_and_the_explanation_adds_up(
    invoke: Invoker, documents: Any
) -> None:
    for at in range(5):
        documents.ledger.insert_one(make_row(f"job-{at}"))
    documents.ledger.insert_one(make_row("job-9", created_at=NOON + timedelta(days=20_000)))
    shown = invoke("balance", "show", "acct-1", "-o", "json").json()["balance"]
    rows = invoke("balance", "replay", "acct-1", "-o", "json").json()
    assert rows["closing_balance"] == shown == sum(row["amount"] for row in rows["rows"])
    assert str(shown) in invoke("balance", "explain", "acct-1").out
