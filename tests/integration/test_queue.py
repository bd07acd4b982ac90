"""The retry queue on real servers: pushed, worked, listed and recovered, with nothing stranded."""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from ledgerctl.domain.times import format_time
from ledgerctl.operations.database import build_indexes
from ledgerctl.operations.worker import Delivery, RetryQueue
from ledgerctl.sandbox.launch import Server
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_entry, make_job, make_row
from tests.conftest import Invoker, Run, Runner
from tests.servers import SessionServers, wait_until

RETRY, DEAD, MINE = "jobs:retry", "jobs:dead-letter", "jobs:processing:w1"
LATER = "2999-01-01T00:00:00Z"

Lists = dict[str, list[bytes]]


def lists_of(redis: Any) -> Lists:
    """Every list that is not empty, whole."""
    return {key.decode(): redis.lrange(key, 0, -1) for key in sorted(redis.keys("*"))}


def seed(stores: Stores, *ids: str, **overrides: Any) -> None:
    """Charged jobs with their rows, on a database with its indexes."""
    build_indexes(stores)
    stores.mongo.collection("jobs").insert_many([make_job(one, **overrides) for one in ids])
    stores.mongo.collection("ledger").insert_many([make_row(one) for one in ids])


def types_of(stores: Stores, job: str) -> list[str]:
    """The types of a job's rows, sorted."""
    return sorted(row["type"] for row in stores.mongo.collection("ledger").find({"job_id": job}))


def status_of(stores: Stores, job: str) -> Any:
    found = stores.mongo.collection("jobs").find_one({"_id": job}) or {}
    return found.get("status")


def work(run: Runner | Invoker, command: str, *more: str) -> dict[str, Any]:
    result: Run = run("queue", "work", "--exec", command, "-o", "json", *more)
    assert result.code == 0, result
    found: dict[str, Any] = result.json()
    return found


def counts(found: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
    names = ("ran", "succeeded", "failed", "dead_lettered", "skipped_settled")
    ran, succeeded, failed, dead, settled = (found[name] for name in names)
    return ran, succeeded, failed, dead, settled


# looking


def test_stats_count_due_waiting_and_unreadable_and_name_the_next_due_time(
    invoke: Invoker, redis_client: Redis
) -> None:
    soon = format_time(datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1))
    entries = [make_entry(), make_entry("a", not_before=LATER), make_entry("b", not_before=soon)]
    redis_client.rpush(RETRY, *entries, b"not json")
    redis_client.rpush(DEAD, make_entry("c"))
    redis_client.rpush("jobs:processing:w:1", make_entry("d"))
    assert invoke("queue", "stats", "-o", "json").json() == {
        "retry": {"depth": 4, "due": 1, "waiting": 2, "unreadable": 1, "next_due_at": soon},
        "dead_letter": {"depth": 1},
        "processing": {"depth": 1, "workers": {"w:1": 1}},
    }


def test_stats_of_nothing_are_zeros(invoke: Invoker) -> None:
    found = invoke("queue", "stats", "-o", "json").json()
    assert found["retry"]["next_due_at"] is None
    assert found["processing"] == {"depth": 0, "workers": {}}


@pytest.mark.parametrize(
    ("which", "key", "worker"),
    [("retry", RETRY, None), ("dead-letter", DEAD, None), ("processing", MINE, "w1")],
)
def test_a_list_shows_each_entry_where_it_stands(
    invoke: Invoker, redis_client: Redis, which: str, key: str, worker: str | None
) -> None:
    redis_client.rpush(key, make_entry("a", not_before=LATER), b"\xff", make_entry("b"))
    found = invoke("queue", "list", which, "-o", "json").json()
    assert (found["shown"], found["total"]) == (3, 3)
    keys = ("position", "job_id", "attempts", "due", "worker")
    assert [tuple(item[name] for name in keys) for item in found["items"]] == [
        (0, "a", 2, False, worker),
        (1, None, None, None, worker),
        (2, "b", 2, True, worker),
    ]
    assert found["items"][0]["not_before"] == "2999-01-01T00:00:00.000Z"


def test_a_listing_shows_a_hundred_and_says_of_how_many(
    invoke: Invoker, redis_client: Redis
) -> None:
    redis_client.rpush(RETRY, *(make_entry(f"j{number}") for number in range(250)))
    found = invoke("queue", "list", "retry", "-o", "json").json()
    assert (found["shown"], found["total"]) == (100, 250)
    assert (
        len(invoke("queue", "list", "retry", "-o", "json", "--limit", "0").json()["items"]) == 250
    )


def test_looking_changes_no_list(invoke: Invoker, redis_client: Redis) -> None:
    redis_client.rpush(RETRY, make_entry(), b"not json")
    before = lists_of(redis_client)
    invoke("queue", "stats")
    invoke("queue", "list", "retry")
    assert lists_of(redis_client) == before


def test_a_list_of_another_type_is_exit_3(
    invoke: Invoker, redis_client: Redis, charged: None
) -> None:
    redis_client.zadd(RETRY, {"a": 1})
    for words in (["stats"], ["list", "retry"], ["push", "job-1", "--error", "x"]):
        assert invoke("queue", *words).code == 3
    assert invoke("queue", "work", "--exec", "true").code == 3
    assert redis_client.type(RETRY) == b"zset"


# pushing


def push(invoke: Invoker, job: str = "job-1", *more: str) -> dict[str, Any]:
    result = invoke("queue", "push", job, "--error", "GPU [/x] gone", "-o", "json", *more)
    assert result.code == 0, result
    found: dict[str, Any] = result.json()
    return found


def wait_s(found: Mapping[str, Any]) -> float:
    """How far ahead its due time lies, by the server's clock near enough."""
    due = datetime.fromisoformat(str(found["not_before"]))
    return (due - datetime.now(UTC)).total_seconds()


def test_a_push_of_a_job_on_no_list_writes_its_first_entry(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    found = push(invoke)
    assert (found["job_id"], found["attempts"], found["to"]) == ("job-1", 1, "retry")
    assert 50 < wait_s(found) <= 60
    entry = json.loads(lists_of(redis_client)[RETRY][0])
    assert lists_of(redis_client).keys() == {RETRY}
    assert {name: entry[name] for name in ("job_id", "account_id", "cost", "attempts")} == {
        "job_id": "job-1",
        "account_id": "acct-1",
        "cost": 40,
        "attempts": 1,
    }
    assert entry["error"] == "GPU [/x] gone"
    assert entry["not_before"] == found["not_before"]


@pytest.fixture
def charged(stores: Stores) -> None:
    """The job that is pushed, in MongoDB."""
    stores.mongo.collection("jobs").insert_one(make_job("job-1"))


def test_a_push_of_a_job_that_does_not_exist_is_exit_4_whatever_is_queued(
    invoke: Invoker, redis_client: Redis
) -> None:
    redis_client.rpush(MINE, make_entry("ghost"))
    before = lists_of(redis_client)
    for dry in ([], ["--dry-run"]):
        assert invoke("queue", "push", "ghost", "--error", "x", *dry).code == 4
    assert lists_of(redis_client) == before


def test_a_push_takes_the_count_of_the_entry_on_processing_and_moves_it(
    invoke: Invoker, redis_client: Redis, charged: None
) -> None:
    other, waiting = make_entry("other"), make_entry(attempts=0, not_before=LATER)
    redis_client.rpush(MINE, other, make_entry(attempts=2, extra=[1.50, "✓"]))
    redis_client.rpush(RETRY, waiting)
    found = push(invoke)
    assert (found["attempts"], found["to"]) == (3, "retry")
    after = lists_of(redis_client)
    assert after[MINE] == [other]
    assert after[RETRY][0] == waiting
    assert json.loads(after[RETRY][1])["extra"] == [1.5, "✓"]
    assert len(after[RETRY]) == 2


def test_a_push_rewrites_an_entry_on_retry_in_place(
    invoke: Invoker, redis_client: Redis, charged: None
) -> None:
    first, last = make_entry("first"), make_entry("last")
    redis_client.rpush(RETRY, first, make_entry(attempts=1), last)
    assert push(invoke)["attempts"] == 2
    after = lists_of(redis_client)
    assert [after[RETRY][0], after[RETRY][2]] == [first, last]
    assert json.loads(after[RETRY][1])["attempts"] == 2
    assert len(after[RETRY]) == 3


@pytest.mark.parametrize("job_id", ["x" * 131_000, "9" * 131_000])
def test_a_push_counts_failures_of_a_job_with_the_longest_id_a_shell_lets_pass(
    invoke: Invoker, redis_client: Redis, stores: Stores, job_id: str
) -> None:
    charged = invoke("job", "charge", job_id, "--account", "acct-1", "--cost", "40", "--yes")
    assert charged.code == 0
    for attempts in (1, 2, 3):
        found = invoke("queue", "push", job_id, "--error", "x", "-o", "json").json()
        assert (found["attempts"], len(lists_of(redis_client)[RETRY])) == (attempts, 1)
    assert invoke("job", "show", job_id, "-o", "json").json()["queues"]["retry"] == 1
    assert invoke("job", "refund", job_id, "--yes", "-o", "json").json()["applied"] == 1


@pytest.mark.parametrize("key", [MINE, RETRY])
def test_a_push_at_the_cap_moves_to_the_dead_letters(
    invoke: Invoker, redis_client: Redis, charged: None, key: str
) -> None:
    redis_client.rpush(key, make_entry(attempts=4))
    found = push(invoke)
    assert (found["attempts"], found["to"], found["not_before"]) == (5, "dead_letter", None)
    after = lists_of(redis_client)
    assert after.keys() == {DEAD}
    assert json.loads(after[DEAD][0])["attempts"] == 5
    assert json.loads(after[DEAD][0])["error"] == "GPU [/x] gone"


@pytest.mark.parametrize(
    ("given", "attempts", "to"), [("0", 1, "retry"), ("3", 4, "retry"), ("4", 5, "dead_letter")]
)
def test_attempts_given_stand_in_for_the_count_found(
    invoke: Invoker, redis_client: Redis, charged: None, given: str, attempts: int, to: str
) -> None:
    redis_client.rpush(MINE, make_entry(attempts=1))
    found = push(invoke, "job-1", "--attempts", given)
    assert (found["attempts"], found["to"]) == (attempts, to)


@pytest.mark.parametrize("given", ["45", "46", "1023", "999999"])
def test_no_count_overflows_the_wait(
    invoke: Invoker,
    redis_client: Redis,
    charged: None,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
) -> None:
    monkeypatch.setenv("LEDGERCTL_MAX_ATTEMPTS", "100000000")
    redis_client.rpush(RETRY, make_entry())
    found = push(invoke, "job-1", "--attempts", given)
    assert found["attempts"] == int(given) + 1
    assert 3_590 < wait_s(found) <= 3_600


@pytest.mark.parametrize("limit", ["0", "1"])
def test_a_limit_of_0_or_1_makes_the_first_failure_a_dead_letter(
    stores: Stores, run: Runner, redis_client: Redis, limit: str
) -> None:
    seed(stores, "job-1")
    result = run(
        *("queue", "push", "job-1", "--error", "boom", "-o", "json"),
        env={"LEDGERCTL_MAX_ATTEMPTS": limit},
    )
    assert (result.code, result.json()["attempts"], result.json()["to"]) == (0, 1, "dead_letter")
    assert list(lists_of(redis_client)) == [DEAD]


def test_a_push_of_a_dead_letter_is_exit_3_and_moves_nothing(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(DEAD, make_entry())
    before = lists_of(redis_client)
    assert invoke("queue", "push", "job-1", "--error", "x").code == 3
    assert lists_of(redis_client) == before


@pytest.mark.parametrize("key", [RETRY, DEAD])
def test_a_push_beside_a_key_of_another_type_names_it_and_pushes_nothing(
    stores: Stores, invoke: Invoker, redis_client: Redis, key: str
) -> None:
    seed(stores, "job-1")
    redis_client.zadd(key, {"x": 1})
    result = invoke("queue", "push", "job-1", "--error", "boom")
    assert result.code == 3
    assert f"{key}: expected list, found zset" in result.err
    assert redis_client.keys("*") == [key.encode()]


def test_a_push_of_an_unknown_job_is_exit_4(invoke: Invoker, redis_client: Redis) -> None:
    assert invoke("queue", "push", "nobody", "--error", "x").code == 4
    assert lists_of(redis_client) == {}


def test_a_dry_run_of_a_push_shows_and_writes_nothing(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(MINE, make_entry(attempts=2))
    before = lists_of(redis_client)
    assert push(invoke, "job-1", "--dry-run")["attempts"] == 3
    assert lists_of(redis_client) == before
    assert stores.operator_log.newest(0)[1] == 0


def test_an_integer_id_is_found_and_spelled_as_a_number(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    build_indexes(stores)
    stores.mongo.collection("jobs").insert_one(make_job(42))
    push(invoke, "42")
    assert b'"job_id":42,' in lists_of(redis_client)[RETRY][0]
    assert push(invoke, "42")["attempts"] == 2
    assert len(lists_of(redis_client)[RETRY]) == 1


def test_an_empty_base_makes_a_failed_job_due_at_once(
    invoke: Invoker, redis_client: Redis, charged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGERCTL_RETRY_BASE", "0s")
    redis_client.rpush(MINE, make_entry())
    assert wait_s(push(invoke)) <= 0


# working


def test_success_reclaims_sets_the_status_and_leaves_the_queue(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1", "job-2")
    invoke("job", "refund", "job-1")
    redis_client.rpush(RETRY, make_entry("job-1"), make_entry("job-2"))
    assert counts(work(invoke, "true")) == (2, 2, 0, 0, 0)
    assert types_of(stores, "job-1") == ["charge", "reclaim", "refund"]
    assert types_of(stores, "job-2") == ["charge"]
    assert [status_of(stores, job) for job in ("job-1", "job-2")] == ["succeeded"] * 2
    assert lists_of(redis_client) == {}


def test_failure_refunds_once_sets_the_status_and_pushes(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1", "job-2")
    redis_client.rpush(RETRY, make_entry("job-1", attempts=2), make_entry("job-2", attempts=4))
    assert counts(work(invoke, "sh -c 'echo no GPU >&2; exit 3'")) == (2, 0, 2, 1, 0)
    after = lists_of(redis_client)
    assert after.keys() == {RETRY, DEAD}
    assert [json.loads(raw)["attempts"] for raw in after[RETRY] + after[DEAD]] == [3, 5]
    assert json.loads(after[DEAD][0])["error"] == "exit 3: no GPU"
    for job in ("job-1", "job-2"):
        assert types_of(stores, job) == ["charge", "refund"]
        assert status_of(stores, job) == "failed"


def test_the_handler_gets_payload_id_and_attempts(
    invoke: Invoker, stores: Stores, redis_client: Redis, tmp_path: Path
) -> None:
    seed(stores, "job-1")
    entry = make_entry(attempts=3, note="  ✓\u2028")
    redis_client.rpush(RETRY, entry)
    command = (
        f"sh -c 'cat > {tmp_path}/in; echo $LEDGERCTL_JOB_ID $LEDGERCTL_ATTEMPTS > {tmp_path}/env'"
    )
    work(invoke, command)
    assert (tmp_path / "in").read_bytes() == entry
    assert (tmp_path / "env").read_text() == "job-1 3\n"


@pytest.mark.parametrize(
    "settled",
    [
        {"status": "succeeded"},
        {"status": "succeeded", "is_refunded": True, "refunded_at": NOON},
        {"is_refunded": True, "refunded_at": NOON, "is_reclaimed": True, "reclaimed_at": NOON},
    ],
)
def test_a_settled_job_is_not_run_but_reclaimed_and_dropped(
    invoke: Invoker, stores: Stores, redis_client: Redis, settled: dict[str, Any]
) -> None:
    seed(stores, "job-1", **settled)
    if settled.get("is_refunded"):
        stores.mongo.collection("ledger").insert_one(make_row(row_type="refund"))
    redis_client.rpush(RETRY, make_entry())
    assert counts(work(invoke, "false")) == (0, 0, 0, 0, 1)
    expected = ["charge", "reclaim", "refund"] if settled.get("is_refunded") else ["charge"]
    assert types_of(stores, "job-1") == expected
    assert lists_of(redis_client) == {}


def test_unreadable_and_unknown_entries_go_to_the_dead_letters_unchanged(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    odd = [b"\xff\x00", b"[]", make_entry("nobody", attempts=0), make_entry(attempts=-1)]
    redis_client.rpush(RETRY, odd[0], odd[1], make_entry(), odd[2], odd[3])
    assert counts(work(invoke, "true")) == (1, 1, 0, 4, 0)
    assert lists_of(redis_client) == {DEAD: odd}


def test_an_id_of_two_types_is_an_unknown_job(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    stores.mongo.collection("jobs").insert_many([make_job(42), make_job("42")])
    entry = make_entry(42)
    redis_client.rpush(RETRY, entry)
    assert counts(work(invoke, "true")) == (0, 0, 0, 1, 0)
    assert lists_of(redis_client) == {DEAD: [entry]}


def test_jobs_that_are_not_due_stay_untouched_in_their_order(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    waiting = [make_entry(f"w{number}", not_before=LATER) for number in range(900)]
    redis_client.rpush(RETRY, *waiting[:450], make_entry(), *waiting[450:])
    assert counts(work(invoke, "true")) == (1, 1, 0, 0, 0)
    assert lists_of(redis_client) == {RETRY: waiting}


def test_due_jobs_run_from_the_head_on(
    invoke: Invoker, stores: Stores, redis_client: Redis, tmp_path: Path
) -> None:
    ids = [f"job-{number}" for number in range(30)]
    seed(stores, *ids)
    redis_client.rpush(RETRY, *map(make_entry, ids))
    work(invoke, f"sh -c 'echo $LEDGERCTL_JOB_ID >> {tmp_path}/order'")
    assert (tmp_path / "order").read_text().split() == ids


def test_once_deals_with_one_job_and_max_jobs_with_as_many(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    ids = [f"job-{number}" for number in range(6)]
    seed(stores, *ids)
    redis_client.rpush(RETRY, *map(make_entry, ids))
    assert work(invoke, "true", "--once")["ran"] == 1
    assert work(invoke, "true", "--max-jobs", "2")["ran"] == 2
    assert redis_client.lrange(RETRY, 0, -1) == list(map(make_entry, ids[3:]))


def test_a_refused_refund_is_said_and_the_push_goes_on(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    build_indexes(stores)
    stores.mongo.collection("jobs").insert_one(make_job("job-1"))  # without its charge row
    redis_client.rpush(RETRY, make_entry(attempts=0))
    found = work(invoke, "false")
    assert counts(found) == (1, 0, 1, 0, 0)
    assert any("refund of job-1 was refused: no_charge" in note for note in found["notes"])
    assert json.loads(lists_of(redis_client)[RETRY][0])["attempts"] == 1


def test_a_failure_does_not_undo_the_success_of_another_delivery(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, make_entry(attempts=0))
    mark = f"{sys.executable} -c \"import os, pymongo; c = pymongo.MongoClient(os.environ['LEDGERCTL_MONGO_URI']); c[os.environ['LEDGERCTL_DATABASE']].jobs.update_one({{'_id': 'job-1'}}, {{'$set': {{'status': 'succeeded'}}}}); raise SystemExit(1)\""
    found = work(invoke, mark)
    assert (found["failed"], found["refused"]) == (1, 1)
    assert status_of(stores, "job-1") == "succeeded"
    assert types_of(stores, "job-1") == ["charge"]


def test_a_handler_over_its_time_is_a_failure(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, make_entry(attempts=0))
    assert work(invoke, "sleep 30", "--timeout", "1s")["failed"] == 1
    assert json.loads(lists_of(redis_client)[RETRY][0])["error"] == "timed out after 1s"


def test_each_run_leaves_one_entry_in_the_operator_log_and_no_lease(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1", "job-2")
    redis_client.rpush(RETRY, make_entry("job-1"), make_entry("job-2"))
    found = work(invoke, "true")
    entries, total = stores.operator_log.newest(0)
    assert total == 1
    assert entries[0]["_id"] == found["operation_id"]
    assert (entries[0]["command"], entries[0]["exit_code"]) == ("queue work", 0)
    assert entries[0]["counts"] == {"ran": 2, "succeeded": 2}
    assert stores.mongo.collection("leases").count_documents({}) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--once", "--watch"],
        ["--once", "--until-empty"],
        ["--timeout", "0s"],
        ["--timeout", "soon"],
        ["--max-jobs", "0"],
    ],
)
def test_words_that_make_no_sense_are_exit_2(invoke: Invoker, words: list[str]) -> None:
    assert invoke("queue", "work", "--exec", "true", *words).code == 2


def test_each_job_is_one_line_on_stderr_and_none_with_quiet(
    run: Runner, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1", "job-2", "job-3")
    handler = "sh -c 'test $LEDGERCTL_JOB_ID = job-1 || { echo no GPU >&2; exit 3; }'"
    for name in ("table", "json"):
        redis_client.rpush(
            RETRY, make_entry("job-1"), make_entry("job-2"), make_entry("job-3", attempts=4)
        )
        done = run("queue", "work", "--exec", handler, "-o", name)
        lines = [line for line in done.err.splitlines() if " attempt " in line]
        assert done.code == 0
        if name == "table":  # then the job is settled
            assert re.fullmatch(r"\S+Z job-1 attempt 3 exit 0 \(\S+\): succeeded", lines[0])
        assert re.fullmatch(
            r"\S+Z job-2 attempt 3 exit 3: no GPU \(\S+\): failed, due again at \S+Z", lines[-2]
        )
        assert re.fullmatch(
            r"\S+Z job-3 attempt 5 exit 3: no GPU \(\S+\): failed, to the dead letters", lines[-1]
        )
        redis_client.delete(RETRY, DEAD)
    redis_client.rpush(RETRY, make_entry("job-2"))
    done = run("queue", "work", "--exec", handler, "--quiet")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("code", [126, 127])
def test_a_handler_that_cannot_be_started_stops_the_worker_and_its_job_is_put_back(
    invoke: Invoker, stores: Stores, redis_client: Redis, code: int
) -> None:
    seed(stores, "job-1", "job-2")
    redis_client.rpush(RETRY, make_entry("job-1"), make_entry("job-2"))
    done = invoke("queue", "work", "--exec", f"sh -c 'exit {code}'")
    assert done.code == 2
    assert "cannot be started" in done.out + done.err
    assert sorted(lists_of(redis_client)[RETRY]) == [make_entry("job-1"), make_entry("job-2")]
    assert lists_of(redis_client).keys() == {RETRY}
    assert types_of(stores, "job-1") == ["charge"]


def test_a_worker_that_cannot_empty_its_list_leaves_its_lease_to_expire(
    stores: Stores, redis_client: Redis, invoke: Invoker
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, make_entry("job-1"))
    said: list[str] = []
    with RetryQueue(stores, say=said.append) as queue:
        taken(queue)
        redis_client.config_set("maxmemory", 1)  # full: nothing can be put back
    redis_client.config_set("maxmemory", 0)
    assert "`ledgerctl queue recover --older-than 0s` brings it back" in said[-1]
    assert recover(invoke, "--older-than", "0s")["recovered"] == 1
    assert lists_of(redis_client) == {RETRY: [make_entry("job-1")]}


def test_a_command_that_does_not_exist_is_exit_2_before_any_job(
    invoke: Invoker, redis_client: Redis
) -> None:
    redis_client.rpush(RETRY, make_entry())
    before = lists_of(redis_client)
    assert invoke("queue", "work", "--exec", "no-such-command-x").code == 2
    assert lists_of(redis_client) == before


@pytest.fixture
def read_only(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "config.toml"
    file.write_text("read_only = true\n")
    file.chmod(0o600)
    environment["LEDGERCTL_CONFIG"] = str(file)
    return environment


def test_a_read_only_profile_refuses_every_change_before_it_looks(
    charged: None, read_only: dict[str, str], invoke: Invoker, redis_client: Redis
) -> None:
    redis_client.rpush(RETRY, make_entry())
    redis_client.rpush(MINE, make_entry("b"))
    before = lists_of(redis_client)
    for words in (
        ["push", "job-1", "--error", "x"],
        ["work", "--exec", "true"],
        ["recover", "--force", "--yes"],
    ):
        assert invoke("queue", *words).code == 3
    assert invoke("queue", "push", "job-1", "--error", "x", "--dry-run").code == 0
    assert lists_of(redis_client) == before


def test_lists_of_other_names_are_worked_and_recovered(
    environment: dict[str, str],
    invoke: Invoker,
    stores: Stores,
    redis_client: Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[keys]\nretry = "{q}:r"\ndead_letter = "{q}:d"\nprocessing = "{q}:p*[x]"\n')
    file.chmod(0o600)
    monkeypatch.setenv("LEDGERCTL_CONFIG", str(file))
    seed(stores, "job-1", "job-2")
    redis_client.rpush("{q}:p*[x]:w1", make_entry("job-1"))
    redis_client.rpush("{q}:pxx:w2", make_entry("stays"))
    redis_client.rpush(RETRY, make_entry("stays"))
    assert recover(invoke, "--force")["recovered"] == 1
    redis_client.rpush("{q}:r", make_entry("job-2", attempts=4))
    assert counts(work(invoke, "sh -c 'test $LEDGERCTL_JOB_ID = job-1'")) == (2, 1, 1, 1, 0)
    after = lists_of(redis_client)
    assert after.keys() == {"{q}:d", "{q}:pxx:w2", RETRY}


def test_a_standalone_server_is_worked_all_the_same(
    run_standalone: Runner, standalone_stores: Stores, redis_client: Redis
) -> None:
    seed(standalone_stores, "job-1", "job-2")
    redis_client.rpush(RETRY, make_entry("job-1"), make_entry("job-2"))
    assert work(run_standalone, "sh -c 'test $LEDGERCTL_JOB_ID = job-1'")["failed"] == 1
    assert types_of(standalone_stores, "job-1") == ["charge"]
    assert types_of(standalone_stores, "job-2") == ["charge", "refund"]
    assert standalone_stores.outbox.has("job-2:refund")


def test_the_rights_of_the_contract_are_enough(
    invoke: Invoker, stores: Stores, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = ["+@list", "+type", "+scan", "+eval", "+evalsha", "+script|load", "-@blocking"]
    redis_client.acl_setuser(
        "least", enabled=True, passwords=["+pw"], keys=["jobs:*"], commands=["-@all", *allowed]
    )
    url = os.environ["LEDGERCTL_REDIS_URL"].replace("redis://", "redis://least:pw@")
    monkeypatch.setenv("LEDGERCTL_REDIS_URL", url)
    try:
        seed(stores, "job-1", "job-2")
        redis_client.rpush(MINE, make_entry("job-1", attempts=4), make_entry("job-2"))
        assert push(invoke)["to"] == "dead_letter"
        assert recover(invoke, "--force")["recovered"] == 1
        assert work(invoke, "true")["succeeded"] == 1
        assert invoke("queue", "stats", "-o", "json").json()["dead_letter"]["depth"] == 1
    finally:
        redis_client.acl_deluser("least")


def test_a_read_only_replica_is_exit_3_and_nothing_is_written(
    servers: SessionServers,
    valkey: Server,
    invoke: Invoker,
    stores: Stores,
    redis_client: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, make_entry())
    redis_client.rpush(MINE, make_entry("b"))
    port = valkey.uri.rsplit(":", 1)[1].split("/")[0]
    replica = servers.valkey("--replicaof", f"127.0.0.1 {port}")
    try:
        with Redis.from_url(replica.uri) as mirror:
            wait_until(lambda: bool(mirror.llen(RETRY)))
        monkeypatch.setenv("LEDGERCTL_REDIS_URL", replica.uri)
        assert invoke("queue", "stats").code == 0
        for words in (
            ["work", "--exec", "true"],
            ["push", "job-1", "--error", "x"],
            ["recover", "--force", "--yes"],
        ):
            assert invoke("queue", *words).code == 3
        assert stores.operator_log.newest(0)[1] == 0
    finally:
        servers.stop(replica)


# the library


@pytest.fixture
def queue(stores: Stores) -> Iterator[RetryQueue]:
    with RetryQueue(stores) as opened:
        yield opened


def taken(queue: RetryQueue) -> Delivery:
    delivery = queue.take()
    assert delivery is not None
    return delivery


def test_a_job_in_hand_stands_on_this_workers_list_alone(
    queue: RetryQueue, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, make_entry())
    delivery = taken(queue)
    assert (delivery.job_id, delivery.attempts) == ("job-1", 2)
    assert lists_of(redis_client) == {f"jobs:processing:{queue.worker}": [make_entry()]}
    queue.put_back(delivery)
    assert lists_of(redis_client) == {RETRY: [make_entry()]}


def test_a_block_that_ends_in_trouble_puts_the_job_back(
    stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, make_entry())
    queue = RetryQueue(stores)

    def fail_with_a_job_in_hand() -> None:
        with queue:
            taken(queue)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_with_a_job_in_hand()
    assert lists_of(redis_client) == {RETRY: [make_entry()]}
    assert queue.tally.put_back == 1


def test_duplicates_are_taken_one_by_one(
    queue: RetryQueue, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, *[make_entry()] * 3)
    queue.failed(taken(queue), "boom")
    assert [json.loads(raw)["attempts"] for raw in redis_client.lrange(RETRY, 0, -1)] == [2, 2, 3]
    queue.succeeded(taken(queue))
    assert queue.take() is None
    assert queue.tally.skipped_settled == 1
    assert types_of(stores, "job-1") == ["charge", "reclaim", "refund"]


def test_a_job_recovered_while_it_ran_has_its_failure_counted_where_it_stands(
    queue: RetryQueue, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, make_entry(attempts=0))
    delivery = taken(queue)
    redis_client.lmove(f"jobs:processing:{queue.worker}", RETRY, "LEFT", "RIGHT")
    queue.failed(delivery, "boom")
    after = lists_of(redis_client)
    assert after.keys() == {RETRY}
    assert [json.loads(raw)["attempts"] for raw in after[RETRY]] == [1]


def test_a_job_that_comes_due_and_one_that_arrives_end_the_wait(
    queue: RetryQueue, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1", "job-2")
    soon = format_time(datetime.now(UTC) + timedelta(seconds=1.5))
    redis_client.rpush(RETRY, make_entry("job-1", not_before=soon))
    began = time.monotonic()
    assert queue.take() is None
    queue.wait()
    assert taken(queue).job_id == "job-1"
    assert time.monotonic() - began > 1.0  # not before its time
    assert queue.take() is None
    redis_client.rpush(RETRY, make_entry("job-2"))
    queue.wait()
    assert taken(queue).job_id == "job-2"


def test_an_entry_rewritten_in_place_is_seen_at_the_next_look(
    queue: RetryQueue, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, *(make_entry(f"w{n}", not_before=LATER) for n in range(900)))
    assert queue.take() is None
    assert queue.take() is None
    redis_client.lset(RETRY, 500, make_entry("job-1").decode())
    assert taken(queue).job_id == "job-1"


def test_due_is_judged_by_the_servers_clock_not_by_ours(
    stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1", "job-2")
    ahead = format_time(datetime.now(UTC) + timedelta(minutes=3))
    redis_client.rpush(RETRY, make_entry("job-1", not_before=ahead), make_entry("job-2"))
    for skew in (timedelta(minutes=-10), timedelta(minutes=10)):
        clock = datetime.now(UTC) + skew
        with RetryQueue(stores, clock=lambda clock=clock: clock) as queue:  # type: ignore[misc]  # bound
            assert taken(queue).job_id == "job-2"


def test_without_the_right_to_ask_the_time_our_own_clock_is_used_and_said_once(
    invoke: Invoker, stores: Stores, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_client.acl_setuser(
        "noclock", enabled=True, passwords=["+pw"], keys=["jobs:*"], commands=["+@all", "-time"]
    )
    url = os.environ["LEDGERCTL_REDIS_URL"].replace("redis://", "redis://noclock:pw@")
    monkeypatch.setenv("LEDGERCTL_REDIS_URL", url)
    try:
        seed(stores, "job-1", "job-2")
        redis_client.rpush(RETRY, make_entry("job-1"), make_entry("job-2"))
        found = work(invoke, "true")
        assert found["succeeded"] == 2
        assert sum("own clock" in note for note in found["notes"]) == 1
        assert "own clock" in invoke("queue", "stats").err
    finally:
        redis_client.acl_deluser("noclock")


# recovering


def a_lease(stores: Stores, worker: str, renewed_ago: timedelta) -> None:
    """A worker's lease that was last renewed that long ago by the server's clock."""
    stores.mongo.collection("leases").update_one(
        {"_id": f"worker:{worker}"},
        [
            {
                "$set": {
                    "owner": "somebody",
                    "expires_at": {
                        "$subtract": ["$$NOW", int((renewed_ago.total_seconds() - 5) * 1000)]
                    },
                }
            }
        ],
        upsert=True,
    )


def recover(invoke: Invoker, *more: str) -> dict[str, Any]:
    result = invoke("queue", "recover", "--yes", "-o", "json", *more)
    assert result.code == 0, result
    found: dict[str, Any] = result.json()
    return found


def test_a_dead_workers_entries_go_back_and_every_other_list_stays(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    a_lease(stores, "dead", timedelta(minutes=11))
    a_lease(stores, "recent", timedelta(minutes=9))
    entries = [make_entry("a"), b"unreadable", make_entry("a")]
    redis_client.rpush("jobs:processing:dead", *entries)
    redis_client.rpush("jobs:processing:recent", make_entry("b"))
    redis_client.rpush("jobs:processing:stranger", make_entry("c"))
    redis_client.rpush(RETRY, make_entry("d"))
    found = recover(invoke)
    assert found["recovered"] == 3
    assert {one["worker"]: one["left"] for one in found["workers"]} == {
        "dead": None,
        "recent": "recent",
        "stranger": "no_lease",
    }
    assert lists_of(redis_client) == {
        "jobs:processing:recent": [make_entry("b")],
        "jobs:processing:stranger": [make_entry("c")],
        RETRY: [make_entry("d"), *entries],
    }


def test_older_than_and_force_reach_further(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    a_lease(stores, "recent", timedelta(minutes=9))
    redis_client.rpush("jobs:processing:recent", make_entry("b"))
    redis_client.rpush("jobs:processing:stranger", make_entry("c"))
    assert recover(invoke, "--older-than", "5m")["recovered"] == 1
    assert recover(invoke, "--force")["recovered"] == 1
    assert lists_of(redis_client) == {RETRY: [make_entry("b"), make_entry("c")]}


def test_a_live_workers_job_is_never_recovered_whatever_is_asked(
    queue: RetryQueue, invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    seed(stores, "job-1")
    redis_client.rpush(RETRY, make_entry())
    taken(queue)
    time.sleep(6)  # longer than a lease's term: it is renewed in the background
    before = lists_of(redis_client)
    found = recover(invoke, "--older-than", "0s", "--force")
    assert (found["recovered"], found["workers"][0]["left"]) == (0, "live")
    assert lists_of(redis_client) == before


def test_recovery_asks_first_and_keeps_to_the_number_expected(
    invoke: Invoker, stores: Stores, redis_client: Redis
) -> None:
    redis_client.rpush("jobs:processing:w", make_entry("a"), make_entry("b"))
    before = lists_of(redis_client)
    assert invoke("queue", "recover", "--force").code == 2
    assert invoke("queue", "recover", "--force", "--yes", "--expect", "3").code == 3
    dry = invoke("queue", "recover", "--force", "--dry-run", "-o", "json")
    assert (dry.code, dry.json()["recovered"]) == (0, 2)
    assert lists_of(redis_client) == before
    assert recover(invoke, "--force", "--expect", "2")["recovered"] == 2


def test_many_entries_are_recovered_in_their_order(invoke: Invoker, redis_client: Redis) -> None:
    entries = [make_entry(f"j{number % 700}") for number in range(1_500)]
    redis_client.rpush("jobs:processing:w", *entries)
    assert recover(invoke, "--force")["recovered"] == 1_500
    assert lists_of(redis_client) == {RETRY: entries}
