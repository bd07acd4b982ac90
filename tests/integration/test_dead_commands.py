"""The dead-letter commands on real servers: verdicts, selectors, plans, exit codes, restore."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ledgerctl.domain.payload import digest
from ledgerctl.operations.dead import look
from ledgerctl.stores.connections import Stores
from tests.builders import make_job, make_letter
from tests.conftest import Invoker, Runner
from tests.dead_letters import DEAD, RETRY, Incident

ITEM_KEYS = {
    "digest", "position", "job_id", "account_id", "attempts",
    "not_before", "error", "failed_at", "state", "verdict",
}  # fmt: skip


@pytest.fixture
def mixed(incident: Incident) -> Incident:
    """One letter of each verdict, in the order of the verdicts, and a second retryable one."""
    incident.database.jobs.insert_many(
        [
            make_job("bad", is_refunded="false"),
            make_job("corrupt", is_reclaimed=True),
            make_job("reclaimed", is_refunded=True, is_reclaimed=True),
            make_job("delivered", status="succeeded"),
            make_job("waiting", is_refunded=True),
            make_job("running", is_refunded=True),
            make_job("good", is_refunded=True, account_id="acct-2"),
            make_job("other", is_refunded=True),
            make_job(42),
            make_job("42"),
        ]
    )
    incident.redis.rpush(RETRY, make_letter("waiting"))
    incident.redis.rpush("jobs:processing:w1", make_letter("running"))
    incident.put(
        [
            b'{"job_id":"good","attempts":-1}',
            make_letter("nobody"),
            make_letter("42"),
            make_letter("bad"),
            make_letter("corrupt"),
            make_letter("reclaimed"),
            make_letter("delivered"),
            make_letter("waiting"),
            make_letter("running"),
            make_letter("good", account_id="acct-2", error="disk full on node-7"),
            make_letter("good", account_id="acct-2", error="disk full on node-8"),
            make_letter("other", failed_at=None),
        ]
    )
    return incident


VERDICTS = [
    "unreadable", "unknown_job", "unknown_job", "bad_flags", "bad_flags", "settled", "settled",
    "queued", "queued", "retryable", "duplicate", "retryable",
]  # fmt: skip


def test_each_letter_gets_the_first_verdict_that_holds(mixed: Incident) -> None:
    code, document = mixed.run("dead", "list")
    assert code == 0
    assert [item["verdict"] for item in document["items"]] == VERDICTS
    assert [item["position"] for item in document["items"]] == list(range(12))
    assert all(set(item) >= ITEM_KEYS for item in document["items"])
    assert (document["shown"], document["total"]) == (12, 12)
    assert mixed.run("dead", "list", "--limit", "3")[1]["shown"] == 3


def test_statistics_count_by_error_and_by_verdict(mixed: Incident) -> None:
    code, document = mixed.run("dead", "stats")
    assert code == 0
    assert (document["depth"], document["unreadable"], document["jobs"]) == (12, 1, 10)
    assert document["by_verdict"]["retryable"] == 2
    assert sum(document["by_verdict"].values()) == 12
    first, second = document["by_error"]
    assert (first["count"], second["count"]) == (9, 2)
    assert second["error"] == "disk full on node-#"
    assert set(first) == {
        "group", "error", "count", "oldest", "newest", "sample_job", "by_verdict", "sample_error"
    }  # fmt: skip
    assert document["selected"] == 12
    assert document["undated"] == 0
    assert document["other_groups"] == {"groups": 0, "count": 0}
    assert second["by_verdict"] == {"duplicate": 1, "retryable": 1}
    assert second["sample_error"].startswith("disk full on node-")
    assert document["oldest_failed_at"] == "2026-03-08T09:15:02.435Z"
    assert mixed.run("dead", "stats", "--fail-over", "12")[0] == 0
    assert mixed.run("dead", "stats", "--fail-over", "11")[0] == 5
    assert mixed.run("dead", "stats", "--fail-age", "1h")[0] == 5
    listed = mixed.run("dead", "list", "--group", second["group"])[1]
    assert [item["job_id"] for item in listed["items"]] == ["good", "good"]


@pytest.mark.parametrize(
    ("words", "positions"),
    [
        (("--all",), list(range(12))),
        (("good",), [9, 10]),
        (("good", "other", "--account", "acct-2"), [9, 10]),
        (("--error", "node-[78]$"), [9, 10]),
        (("--account", "acct-2"), [9, 10]),
        (("--state", "reclaimed"), [5]),
        (("--digest", digest(make_letter("bad")), digest(make_letter("corrupt"))), [3, 4]),
        (("--digest", f"{digest(make_letter('bad'))},{digest(make_letter('corrupt'))}"), [3, 4]),
        (("--verdict", "unreadable"), [0]),
        (("--failed-before", "2026-03-08T09:15:02.436Z", "--account", "acct-2"), [9, 10]),
        (("--failed-before", "2026-03-08T09:15:02.435Z"), []),
        (("--failed-after", "2026-03-08T09:15:02.435Z", "--account", "acct-2"), [9, 10]),
        (("--failed-after", "2026-03-08"), list(range(1, 11))),
    ],
)
def test_selectors_are_combined_by_and(
    mixed: Incident, words: tuple[str, ...], positions: list[int]
) -> None:
    code, document = mixed.run("dead", "list", *words)
    assert (code, [item["position"] for item in document["items"]]) == (0, positions)


def test_requeue_moves_the_retryable_and_leaves_every_other_byte(mixed: Incident) -> None:
    before = mixed.redis.llen(RETRY)
    code, document = mixed.run("dead", "requeue", "--all", "--yes")
    assert code == 0
    assert (document["selected"], document["moved"], document["remaining"]) == (12, 2, 10)
    assert document["skipped"] == {
        "unreadable": 1, "unknown_job": 2, "bad_flags": 2, "settled": 2, "queued": 2, "duplicate": 1,
    }  # fmt: skip
    assert mixed.dead() == [raw for at, raw in enumerate(mixed.original) if at not in {9, 11}]
    moved = mixed.retry()[before:]
    for old, new in zip((mixed.original[9], mixed.original[11]), moved, strict=True):
        expected = json.loads(old) | {"attempts": 0, "not_before": json.loads(new)["not_before"]}
        assert json.loads(new) == expected
        assert old.startswith(new[: new.index(b'"attempts"')])
    log = mixed.database.operator_log.find_one({"_id": document["operation_id"]})
    assert (log["command"], log["exit_code"], log["counts"]["moved"]) == ("dead requeue", 0, 2)
    assert log["operator"] == "tester"


def test_force_moves_all_but_the_unreadable(mixed: Incident) -> None:
    code, document = mixed.run("dead", "requeue", "--all", "--force", "--yes")
    assert (code, document["moved"], document["skipped"]) == (0, 11, {"unreadable": 1})
    assert mixed.dead() == [mixed.original[0]]


def test_due_times_are_spread_evenly_after_the_delay(incident: Incident) -> None:
    incident.load(4)
    code, _ = incident.run(
        "dead", "requeue", "--all", "--delay", "1h", "--spread", "4m", "--keep-attempts", "--yes"
    )
    assert code == 0
    from datetime import datetime

    entries = [json.loads(raw) for raw in incident.retry()]
    due = [datetime.fromisoformat(one["not_before"]) for one in entries]
    assert [(at - due[0]).total_seconds() for at in due] == [0, 60, 120, 180]
    assert {one["attempts"] for one in entries} == {5}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("other",), 0),
        (("good",), 0),  # its first letter moves, its duplicate stays
        (("other", "missing"), 8),
        (("missing",), 4),
        (("delivered",), 3),
        (("other", "delivered"), 8),
        (("delivered", "missing"), 3),
        (("delivered", "--verdict", "retryable"), 0),  # left by a filter
        (("--digest", digest(make_letter("delivered"))), 3),
        (("--digest", "0123456789ab"), 4),
        (("--verdict", "settled"), 0),
        (("--account", "nobody"), 0),
        ((), 2),
        (("--error", "("), 2),
        (("--all", "--attempts", "1", "--keep-attempts"), 2),
        (("--all", "--delay", "soon"), 2),
        (("--all", "--expect", "11"), 3),
        (("--all", "--expect", "12"), 0),
    ],
)
def test_exit_codes_of_a_requeue(mixed: Incident, words: tuple[str, ...], code: int) -> None:
    program = mixed.start("dead", "requeue", *words, "--yes")
    program.communicate(timeout=60)
    assert program.returncode == code


def test_nothing_moves_without_a_yes_and_a_terminal(mixed: Incident, run: Runner) -> None:
    answer = run("dead", "requeue", "--all")
    assert (answer.code, "consent_missing" in answer.err) == (2, True)
    assert run("dead", "release", "--all", "--yes").code == 2  # no reason
    assert mixed.dead() == mixed.original
    assert mixed.database.operator_log.count_documents({}) == 0


def test_the_limit_counts_what_will_move(mixed: Incident) -> None:
    code, document = mixed.run("dead", "requeue", "--limit", "1", "--yes")
    assert (code, document["moved"], document["selected"]) == (0, 1, 10)
    assert json.loads(mixed.retry()[-1])["job_id"] == "good"


def test_a_dry_run_writes_nothing_and_is_a_plan(mixed: Incident, tmp_path: Path) -> None:
    code, plan = mixed.run("dead", "requeue", "--account", "acct-2", "--delay", "1h", "--dry-run")
    assert (code, plan["dry_run"], plan["moved"], plan["operation_id"]) == (0, True, 1, None)
    assert (plan["command"], plan["profile"]) == ("dead requeue", "default")
    assert plan["database"] == mixed.environment["LEDGERCTL_DATABASE"]
    assert [item["position"] for item in plan["items"]] == [9, 10]
    assert mixed.dead() == mixed.original
    for name in ("operator_log", "dead_archive", "leases"):
        assert mixed.database[name].count_documents({}) == 0

    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    mixed.redis.rpush(DEAD, make_letter("other", error="newer"))
    program = mixed.start("dead", "release", "--plan", str(file), "--reason", "x", "--yes")
    program.communicate(timeout=60)
    assert program.returncode == 2  # another command
    file.write_text(json.dumps(plan | {"database": "elsewhere"}))
    program = mixed.start("dead", "requeue", "--plan", str(file), "--yes")
    program.communicate(timeout=60)
    assert program.returncode == 2
    file.write_text(json.dumps(plan))
    code, document = mixed.run("dead", "requeue", "--plan", str(file), "--yes")
    assert (code, document["selected"], document["moved"]) == (0, 2, 1)
    assert len(mixed.dead()) == 12
    entry = json.loads(mixed.retry()[-1])
    assert entry["job_id"] == "good"
    assert entry["not_before"] > "2026-03-08T09:15:02.435Z"
    code, document = mixed.run("dead", "requeue", "--plan", str(file), "--yes")
    assert (code, document["moved"], document["already_taken"]) == (0, 0, 1)


def test_a_plan_takes_equal_letters_as_often_as_listed(incident: Incident, tmp_path: Path) -> None:
    incident.put([make_letter("same")] * 5)
    plan = incident.run("dead", "release", "--all", "--limit", "3", "--reason", "x", "--dry-run")[1]
    assert len(plan["items"]) == 3
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    code, document = incident.run("dead", "release", "--plan", str(file), "--reason", "x", "--yes")
    assert (code, document["moved"], document["remaining"]) == (0, 3, 2)
    assert incident.dead() == [make_letter("same")] * 2


def test_release_takes_every_verdict_and_restore_brings_the_bytes_back(mixed: Incident) -> None:
    code, document = mixed.run("dead", "release", "--all", "--reason", "enough", "--yes")
    assert (code, document["moved"], document["remaining"]) == (0, 12, 0)
    archived = list(mixed.database.dead_archive.find().sort("_id", 1))
    assert [bytes(one["payload"]) for one in archived] == mixed.original
    assert {one["operation_id"] for one in archived} == {document["operation_id"]}
    operation_id = document["operation_id"]
    mixed.redis.rpush(DEAD, b"newcomer")
    code, dry = mixed.run("dead", "restore", operation_id, "--dry-run")
    assert (code, dry["restored"], mixed.dead()) == (0, 12, [b"newcomer"])
    code, restored = mixed.run("dead", "restore", operation_id, "--yes")
    assert (code, restored["restores"], restored["restored"]) == (0, operation_id, 12)
    assert mixed.dead() == [b"newcomer", *mixed.original]
    code, again = mixed.run("dead", "restore", operation_id, "--yes")
    assert (code, again["restored"], again["already_back"]) == (0, 0, 12)
    assert mixed.dead() == [b"newcomer", *mixed.original]


def test_restore_leaves_what_a_worker_has_taken_or_changed(incident: Incident) -> None:
    incident.load(10)
    operation_id = incident.run("dead", "requeue", "--all", "--yes")[1]["operation_id"]
    incident.redis.lpop(RETRY)
    changed = incident.redis.rpop(RETRY)
    incident.redis.lpush(RETRY, bytes(changed or b"") + b" ")  # type: ignore[arg-type]  # one entry
    code, document = incident.run("dead", "restore", operation_id, "--yes")
    assert (code, document["restored"], document["gone"]) == (0, 8, 2)
    assert incident.dead() == incident.original[1:9]
    assert incident.redis.llen(RETRY) == 1
    again = incident.run("dead", "restore", operation_id, "--yes")[1]
    assert (again["restored"], again["already_back"], again["gone"]) == (0, 8, 2)


def test_restore_of_an_unknown_operation_or_of_another_command(incident: Incident) -> None:
    program = incident.start("dead", "restore", "20260311T031400123Z-5f2c9a01be", "--yes")
    program.communicate(timeout=60)
    assert program.returncode == 4


def test_show_adds_payload_and_job_also_from_the_archive(mixed: Incident) -> None:
    code, document = mixed.run("dead", "show", "other")
    assert (code, document["position"], document["verdict"]) == (0, 11, "retryable")
    assert json.loads(document["payload"]) == json.loads(mixed.original[11])
    assert document["job"]["job_id"] == "other"
    assert document["job"]["queues"] == {"retry": 0, "processing": 0, "dead_letter": 1}
    by_digest = mixed.run("dead", "show", document["digest"])[1]
    assert by_digest == document
    mixed.run("dead", "release", "other", "--reason", "x", "--yes")
    code, archived = mixed.run("dead", "show", "other")
    assert (code, archived["position"], archived["payload"]) == (0, None, document["payload"])
    program = mixed.start("dead", "show", "missing")
    program.communicate(timeout=60)
    assert program.returncode == 4


def test_a_read_only_profile_refuses_changes_before_it_looks(
    mixed: Incident, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[profiles.look]\nread_only = true\n")
    words = ("--config", str(file), "--profile", "look")
    program = mixed.start("dead", "requeue", "--all", "--yes", *words)
    program.communicate(timeout=60)
    assert program.returncode == 3
    assert mixed.run("dead", "requeue", "--all", "--dry-run", *words)[0] == 0
    assert mixed.dead() == mixed.original


def test_hundred_kilobyte_letters_are_moved_and_restored(incident: Incident) -> None:
    letters = [make_letter(f"big-{n}", note="y" * 100_000) for n in range(60)]
    incident.database.jobs.insert_many([make_job(f"big-{n}", is_refunded=True) for n in range(60)])
    incident.put(letters)
    incident.redis.config_set("slowlog-log-slower-than", 100)
    incident.redis.slowlog_reset()
    code, document = incident.run(
        "dead", "requeue", "--error", "timed out", "--limit", "50", "--yes"
    )
    assert (code, document["moved"]) == (0, 50)
    assert incident.dead() == letters[50:]
    code, restored = incident.run("dead", "restore", document["operation_id"], "--yes")
    assert (code, restored["restored"]) == (0, 50)
    assert incident.dead() == [*letters[50:], *letters[:50]]
    calls: Any = incident.redis.slowlog_get(1_000)
    incident.redis.config_set("slowlog-log-slower-than", 10_000)
    print("longest call", max((call["duration"] for call in calls), default=0), "us")


def test_object_ids_and_integers_are_found_by_their_text(incident: Incident) -> None:
    from bson import Int64, ObjectId

    name = ObjectId("65f0a1b2c3d4e5f60718293a")
    incident.database.jobs.insert_many(
        [make_job(name, is_refunded=True), make_job(Int64(7), is_refunded=True)]
    )
    incident.put([make_letter(str(name)), b'{"id":7,"attempts":1}', make_letter(str(name).upper())])
    items = incident.run("dead", "list")[1]["items"]
    assert [item["verdict"] for item in items] == ["retryable", "retryable", "duplicate"]
    code, document = incident.run("dead", "requeue", "7", "--yes")
    assert (code, document["moved"]) == (0, 1)
    assert incident.retry() == [b'{"id":7,"attempts":0}']


def test_an_id_in_capitals_is_the_text_or_the_object_id_and_neither_where_both_exist(
    incident: Incident,
) -> None:
    from bson import ObjectId

    names = ["65f0a1b2c3d4e5f60718293a", "65f0a1b2c3d4e5f60718293b", "65f0a1b2c3d4e5f60718293c"]
    upper = [name.upper() for name in names]
    for value in (ObjectId(names[0]), upper[1], ObjectId(names[2]), upper[2]):
        incident.database.jobs.insert_one(make_job(value, is_refunded=True))
    incident.put([make_letter(name) for name in (*upper, *names)])
    items = incident.run("dead", "list")[1]["items"]
    assert [(item["job_id"], item["verdict"]) for item in items] == [
        (upper[0], "retryable"),
        (upper[1], "retryable"),
        (upper[2], "unknown_job"),
        (names[0], "duplicate"),
        (names[1], "unknown_job"),
        (names[2], "retryable"),
    ]


def test_a_number_is_found_as_a_double_and_not_under_an_exotic_type(incident: Incident) -> None:
    from bson import Decimal128

    incident.database.jobs.insert_one(make_job(42.0, is_refunded=True))
    incident.database.jobs.insert_one(make_job(Decimal128("43"), is_refunded=True))
    incident.put([b'{"id":42}', b'{"id":"43"}', b'{"id":"042"}'])
    items = incident.run("dead", "list")[1]["items"]
    assert [item["verdict"] for item in items] == ["retryable", "unknown_job", "unknown_job"]


def test_statistics_say_what_the_listing_says_however_many_pieces_they_are_counted_in(
    incident: Incident, monkeypatch: pytest.MonkeyPatch, invoke: Invoker
) -> None:
    incident.load(300)
    incident.redis.rpush(RETRY, make_letter("job-000007"))
    incident.database.jobs.delete_one({"_id": "job-000003"})
    incident.database.jobs.update_many(
        {"_id": {"$gt": "job-000200"}}, {"$set": {"status": "succeeded"}}
    )
    incident.redis.rpush(DEAD, b"no json", make_letter("job-000001"), make_letter("job-000150"))
    items = incident.run("dead", "list", "--limit", "0")[1]["items"]
    for size in (7, 100, 1_000):
        monkeypatch.setattr("ledgerctl.operations.dead.PIECE_LETTERS", size)
        found = json.loads(invoke("dead", "stats", "-o", "json").stdout)
        assert found["by_verdict"] == Counter(item["verdict"] for item in items)
        assert sum(one["count"] for one in found["by_error"]) == 302
        assert (found["depth"], found["unreadable"], found["jobs"]) == (303, 1, 300)


def test_a_letter_that_the_archive_cannot_hold_stops_nobody_and_is_not_taken(
    incident: Incident, invoke: Invoker
) -> None:
    incident.database.jobs.insert_one(make_job("a", is_refunded=True))
    large = b'{"job_id":"b","note":"%s"}' % (b"x" * 12_000_000)
    endless = b'{"job_id":%s}' % (b"9" * 17_000_000)
    incident.put([large, endless, make_letter("a")])
    words = ("dead", "requeue", "--all", "--force")
    code, plan = incident.run(*words, "--dry-run")
    assert (code, plan["moved"]) == (8, 1)
    assert [item["moves"] for item in plan["items"]] == [False, False, True]
    assert "which the archive cannot hold" in plan["items"][0]["why"]
    for output in ("table", "plain", "csv", "jsonl"):
        done = invoke(*words, "--dry-run", "-o", output)
        assert f"{digest(large)} is not moved: it has more than 12,000,000 bytes" in done.err
    code, document = incident.run(*words, "--yes")
    assert (code, document["moved"]) == (8, 1)
    assert document["skipped"] == {"unreadable": 1, "unknown_job": 1}
    assert [one["digest"] for one in document["too_large"]] == [digest(large)]
    code, document = incident.run(*words, "--yes")
    assert (code, document["moved"]) == (3, 0)
    for raw in (large, endless):
        named = ("--digest", digest(raw), "--reason", "x", "--yes")
        code, document = incident.run("dead", "release", *named)
        assert (code, document["moved"]) == (3, 0)
    assert incident.dead() == [large, endless]


def test_a_letter_that_names_no_account_is_its_jobs(incident: Incident) -> None:
    from bson import Code

    incident.database.jobs.insert_many(
        make_job(f"job-{n}", is_refunded=True, account_id=account)
        for n, account in enumerate(["acct-7", 7, None, Code("acct-7")])
    )
    incident.put([b'{"job_id":"job-%d"}' % n for n in range(4)])
    items = incident.run("dead", "list")[1]["items"]
    assert [item["account_id"] for item in items] == ["acct-7", "7", None, "acct-7"]
    code, document = incident.run("dead", "requeue", "--account", "acct-7", "--yes")
    assert (code, document["moved"], document["skipped"]) == (0, 2, {})


def test_a_duplicate_is_one_whatever_selects_it_and_however_ids_are_spelled(
    incident: Incident, monkeypatch: pytest.MonkeyPatch, invoke: Invoker
) -> None:
    from bson import Int64, ObjectId

    monkeypatch.setattr("ledgerctl.operations.dead.PIECE_LETTERS", 3)
    name = "65f0a1b2c3d4e5f60718293a"
    incident.database.jobs.insert_many(
        [make_job(ObjectId(name), is_refunded=True), make_job(Int64(0), is_refunded=True)]
    )
    for first, second in [(name.upper(), name), (name, name.upper()), (name.upper(),) * 2]:
        others = [make_letter(f"job-{n}", error="gamma") for n in range(5)]
        zeros = [b'{"id":"-0","error":"alpha"}', b'{"id":0,"error":"beta"}']
        incident.put([make_letter(first, error="alpha"), zeros[0], *others])
        incident.redis.rpush(DEAD, zeros[1], make_letter(second, error="beta"))
        for words in ((), ("--error", "beta")):
            items = json.loads(invoke("dead", "list", *words, "-o", "json").stdout)["items"]
            assert [item["verdict"] for item in items[-2:]] == ["duplicate", "duplicate"]


def test_a_job_that_waits_is_queued_however_its_id_is_spelled(incident: Incident) -> None:
    from bson import ObjectId

    names = ["65f0a1b2c3d4e5f60718293a", "65f0a1b2c3d4e5f60718293b"]
    incident.database.jobs.insert_many(
        [make_job(ObjectId(name), is_refunded=True) for name in names]
    )
    incident.redis.rpush(RETRY, make_letter(names[0].upper()), make_letter(names[1]))
    incident.put([make_letter(names[0]), make_letter(names[1].upper())])
    items = incident.run("dead", "list")[1]["items"]
    assert [item["verdict"] for item in items] == ["queued", "queued"]


def test_a_range_of_failures_from_after_to_is_a_usage_error(incident: Incident) -> None:
    incident.load(1)
    words = ("--failed-after", "2026-03-10", "--failed-before", "2026-03-09")
    for command in (("list",), ("requeue", "--yes"), ("release", "--reason", "x", "--yes")):
        program = incident.start("dead", *command, *words)
        program.communicate(timeout=60)
        assert program.returncode == 2


@pytest.mark.parametrize(
    "words",
    [("--error", ""), ("--digest", "", "--error", "boom"), ("--group", ""), ("--account", "")],
)
def test_an_empty_selector_is_a_usage_error_whatever_stands_beside_it(
    incident: Incident, words: tuple[str, ...]
) -> None:
    incident.load(3)
    for command in (("requeue",), ("release", "--reason", "x")):
        program = incident.start("dead", *command, *words, "--yes")
        _, err = program.communicate(timeout=60)
        assert (program.returncode, b"is empty" in err) == (2, True)
    assert incident.dead() == incident.original


def test_last_is_the_operators_own_last_requeue_or_release(incident: Incident) -> None:
    incident.load(4)
    incident.run("dead", "release", "job-000001", "--reason", "x", "--yes")
    last = incident.run("dead", "requeue", "job-000002", "--yes")[1]["operation_id"]
    code, document = incident.run("dead", "restore", "--last", "--yes")
    assert (code, document["restores"], document["restored"]) == (0, last, 1)


def test_what_redis_has_lost_is_gone_and_comes_back_from_the_archive_once(
    incident: Incident,
) -> None:
    incident.load(300)
    words = ("dead", "release", "--all", "--reason", "x", "--yes")
    operation_id = incident.run(*words)[1]["operation_id"]
    incident.redis.flushall()
    restore = ("dead", "restore", operation_id, "--yes")
    code, document = incident.run(*restore)
    assert (code, document["restored"], document["gone"]) == (0, 0, 300)
    code, document = incident.run(*restore, "--from-archive")
    assert (code, document["restored"], document["gone"]) == (0, 300, 0)
    assert incident.dead() == incident.original
    code, document = incident.run(*restore, "--from-archive")
    assert (document["restored"], document["already_back"]) == (0, 300)
    assert incident.dead() == incident.original


def test_in_a_large_database_passed_letters_are_known_by_name(
    incident: Incident, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident.load(10)
    passed = f"{DEAD}:passed:20260311T031400123Z-5f2c9a01be"
    monkeypatch.setattr("ledgerctl.stores.queues.WALK_ROUNDS", 0)
    stores.queues.is_large = True
    stores.queues.remember(passed)
    for _ in range(4):
        incident.redis.lmove(DEAD, passed, "LEFT", "RIGHT")
    assert stores.queues.passed_keys() == [passed]
    assert [one.raw for one in look(stores)] == incident.original
    stores.dead_letters.put_back(passed)
    assert stores.queues.passed_keys() == []
    assert incident.entries(DEAD) == incident.original


def test_a_pattern_that_takes_for_ever_is_stopped_and_costs_neither_letters_nor_lease(
    incident: Incident, run: Runner
) -> None:
    runaway = make_letter("job-1", error="a" * 60 + "!")
    incident.redis.delete(DEAD)
    incident.redis.rpush(DEAD, runaway)
    stopped = run("dead", "requeue", "--error", "(a+)+$", "--yes")
    assert (stopped.code, stopped.out) == (2, "")
    assert "longer than 5 s" in stopped.err
    assert incident.redis.lrange(DEAD, 0, -1) == [runaway]
    assert incident.run("dead", "release", "--error", "a+!$", "--reason", "x", "--yes")[0] == 0
