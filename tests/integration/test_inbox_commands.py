"""`ledgerctl inbox` on real servers: what each command answers, writes and refuses."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ledgerctl.operations.database import build_indexes
from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_claim, make_message, without
from tests.conftest import Runner

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


@pytest.fixture
def inbox(stores: Stores) -> Stores:
    """An empty inbox and outbox with their indexes."""
    build_indexes(stores)
    return stores


def put(stores: Stores, *, messages: list[Any] = [], claims: list[Any] = []) -> None:  # noqa: B006  # read only
    """Write documents as a foreign writer does."""
    for document in messages:
        stores.mongo.collection("outbox").insert_one(document)
    for document in claims:
        stores.mongo.collection("inbox").insert_one(document)


def rows(stores: Stores) -> list[Any]:
    """Every inbox row, by group and key."""
    found = stores.mongo.collection("inbox").find()
    return sorted(found, key=lambda one: (one["consumer_group"], str(one["message_key"])))


def row(stores: Stores) -> Any:
    """The only inbox row."""
    (only,) = rows(stores)
    return only


# consume


def test_consume_claims_handles_and_marks_each_message_once(inbox: Stores, run: Runner) -> None:
    put(inbox, messages=[make_message(f"m-{at}") for at in range(3)])
    first = run(
        "inbox", "consume", "--group", "mail", "--exec", "true", "--until-empty", "-o", "json"
    )
    again = run(
        "inbox", "consume", "--group", "mail", "--exec", "true", "--until-empty", "-o", "json"
    )
    assert (first.code, again.code) == (0, 0), first.err
    assert {name: first.json()[name] for name in ("handled", "succeeded", "failed", "dead")} == {
        "handled": 3,
        "succeeded": 3,
        "failed": 0,
        "dead": 0,
    }
    assert again.json()["handled"] == 0
    for one in rows(inbox):
        assert (one["status"], one["attempts"], one["deliveries"]) == ("succeeded", 0, 1)
        assert one["completed_at"] >= one["first_seen_at"]
        assert one["tenant_id"] == "acct-1"


def test_the_handler_gets_the_payload_and_who_it_is_about(
    inbox: Stores, run: Runner, tmp_path: Path
) -> None:
    put(inbox, messages=[make_message("m-1", payload={"amount": 2**62, "at": NOON})])
    got = tmp_path / "got"
    script = (
        f'cat > {got}; echo >> {got}; echo "$LEDGERCTL_MESSAGE_KEY $LEDGERCTL_ATTEMPTS" >> {got}'
    )
    result = run("inbox", "consume", "--group", "mail", "--exec", f"sh -c '{script}'", "--once")
    assert result.code == 0, result.err
    payload, who = got.read_text().splitlines()
    assert json.loads(payload) == {"amount": 2**62, "at": "2026-03-08T12:00:00.000Z"}
    assert who == "m-1 0"


def test_once_handles_one_message(inbox: Stores, run: Runner) -> None:
    put(inbox, messages=[make_message("m-1"), make_message("m-2")])
    result = run("inbox", "consume", "--group", "mail", "--exec", "true", "--once", "-o", "json")
    assert result.json()["handled"] == 1
    assert [one["message_key"] for one in rows(inbox)] == ["m-1"]


def test_a_failing_handler_counts_each_attempt_and_ends_dead(inbox: Stores, run: Runner) -> None:
    put(inbox, messages=[make_message("m-1")])
    env = {"LEDGERCTL_RETRY_BASE": "0s", "LEDGERCTL_MAX_ATTEMPTS": "3"}
    command = ("inbox", "consume", "--group", "mail", "--exec", "sh -c 'echo no paper >&2; exit 7'")
    result = run(*command, "--until-empty", "-o", "json", env=env)
    assert result.code == 0
    counts = result.json()
    assert (counts["handled"], counts["succeeded"], counts["failed"], counts["dead"]) == (
        3,
        0,
        3,
        1,
    )
    found = row(inbox)
    assert (found["status"], found["attempts"], found["deliveries"]) == ("dead", 3, 3)
    assert found["last_error"] == "exit 7: no paper"
    assert found["completed_at"] is None


def test_a_failure_waits_out_its_backoff_and_blocks_no_other_message(
    inbox: Stores, run: Runner
) -> None:
    put(inbox, messages=[make_message("m-1"), make_message("m-2")])
    script = 'test "$LEDGERCTL_MESSAGE_KEY" = m-2'
    command = (
        "inbox",
        "consume",
        "--group",
        "mail",
        "--exec",
        f"sh -c '{script}'",
        "--until-empty",
    )
    assert run(*command).code == 0
    first, second = rows(inbox)
    assert (first["status"], first["attempts"], second["status"]) == ("failed", 1, "succeeded")
    waits = first["not_before"] - first["last_seen_at"]
    assert timedelta(seconds=60) <= waits < timedelta(seconds=70)  # min(30s · 2^1, 1h)
    assert run(*command, "-o", "json").json()["handled"] == 0


@pytest.mark.parametrize(
    ("claim", "handled", "attempts"),
    [
        pytest.param(make_claim(status="succeeded", completed_at=NOON), 0, 0, id="done"),
        pytest.param(make_claim(status="succeeded"), 0, 0, id="succeeded without completed_at"),
        pytest.param(make_claim(claimed_until=NOON + 9999 * DAY), 0, 0, id="live claim"),
        pytest.param(make_claim(status="dead", attempts=5), 0, 5, id="dead"),
        pytest.param(
            make_claim(status="failed", attempts=1, not_before=NOON + 9999 * DAY),
            0,
            1,
            id="waiting",
        ),
        pytest.param(make_claim(status="failed", attempts=1, not_before=NOON), 1, 1, id="due"),
        pytest.param(make_claim(attempts=1, claimed_until=NOON), 1, 2, id="expired"),
        pytest.param(
            without(make_claim(), "claimed_until", "attempts"),
            1,
            1,
            id="expired, a foreign writer's",
        ),
    ],
)
def test_every_state_that_rejects_a_claim_is_looked_into(
    inbox: Stores, run: Runner, claim: Any, handled: int, attempts: int
) -> None:
    put(inbox, messages=[make_message("m-1")], claims=[claim])
    before = row(inbox)
    result = run(
        "inbox",
        "consume",
        "--group",
        "mail",
        "--exec",
        "true",
        "--full",
        "--until-empty",
        "-o",
        "json",
    )
    assert result.json()["handled"] == handled, result.err
    after = row(inbox)
    if not handled:
        assert after == before
        return
    assert (after["status"], after["attempts"]) == ("succeeded", attempts)
    assert after["completed_at"] is not None
    assert after["first_seen_at"] == before["first_seen_at"]


def test_an_abandoned_claim_at_the_cap_ends_dead_and_is_not_handled(
    inbox: Stores, run: Runner
) -> None:
    put(inbox, messages=[make_message("m-1")], claims=[make_claim(attempts=4, claimed_until=NOON)])
    command = (
        "inbox",
        "consume",
        "--group",
        "mail",
        "--exec",
        "false",
        "--until-empty",
        "-o",
        "json",
    )
    counts = run(*command).json()
    assert (counts["handled"], counts["dead"]) == (0, 1)
    found = row(inbox)
    assert (found["status"], found["attempts"]) == ("dead", 5)
    assert "did not come back" in found["last_error"]


def test_without_its_unique_index_consume_is_refused(stores: Stores, run: Runner) -> None:
    put(stores, messages=[make_message("m-1")])
    result = run("inbox", "consume", "--group", "mail", "--exec", "true", "--once", "-o", "json")
    assert result.code == 3
    assert json.loads(result.err)["error"]["code"] == "index_missing"
    assert rows(stores) == []
    assert stores.mongo.collection("operator_log").count_documents({}) == 0


def test_a_second_group_handles_every_message_again(inbox: Stores, run: Runner) -> None:
    put(inbox, messages=[make_message("m-1")])
    for group in ("mail", "audit"):
        assert run("inbox", "consume", "--group", group, "--exec", "true", "--once").code == 0
    assert [one["consumer_group"] for one in rows(inbox)] == ["audit", "mail"]


def test_the_mark_spares_what_is_older_than_an_hour_before_it_and_full_reads_it(
    inbox: Stores, run: Runner
) -> None:
    old, late = make_message("m-old", created_at=NOON), make_message("m-late", created_at=NOON)
    put(inbox, messages=[make_message("m-new", created_at=NOON + 2 * 60 * MINUTE), old])
    command = (
        "inbox",
        "consume",
        "--group",
        "mail",
        "--exec",
        "true",
        "--until-empty",
        "-o",
        "json",
    )
    assert run(*command).json()["handled"] == 2
    put(inbox, messages=[late, make_message("m-hour", created_at=NOON + 61 * MINUTE)])
    assert run(*command).json()["handled"] == 1
    assert {one["message_key"] for one in rows(inbox)} == {"m-old", "m-new", "m-hour"}
    assert run(*command, "--full").json()["handled"] == 1


def test_another_topic_of_a_group_starts_its_own_mark(inbox: Stores, run: Runner) -> None:
    put(
        inbox,
        messages=[
            make_message("m-1", topic="a"),
            make_message("m-2", topic="b", created_at=NOON - DAY),
        ],
    )
    for topic, key in (("a", "m-1"), ("b", "m-2")):
        command = ("inbox", "consume", "--group", "mail", "--topic", topic, "--exec", "true")
        assert run(*command, "--until-empty", "-o", "json").json()["handled"] == 1, key


def test_messages_without_a_date_or_with_an_odd_one_are_handled_too(
    inbox: Stores, run: Runner
) -> None:
    odd = [None, "2026-03-08", 7, {"$date": 1}]
    messages = [make_message(f"m-{at}", created_at=value) for at, value in enumerate(odd)]
    put(inbox, messages=[*messages, without(make_message("m-x"), "created_at")])
    command = (
        "inbox",
        "consume",
        "--group",
        "mail",
        "--exec",
        "true",
        "--until-empty",
        "-o",
        "json",
    )
    assert run(*command).json()["handled"] == 5
    assert run(*command).json()["handled"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--group", "mail"),
        ("--group", "usage-daily", "--exec", "true"),
        ("--group", "usage-daily", "--topic", "other"),
        ("--group", "mail", "--exec", "true", "--once", "--until-empty"),
        ("--group", "mail", "--exec", "no-such-command-anywhere"),
        ("--exec", "true"),
    ],
)
def test_words_that_do_not_go_together_are_refused(
    inbox: Stores, run: Runner, words: tuple[str, ...]
) -> None:
    assert run("inbox", "consume", *words).code == 2


def test_a_run_is_one_entry_of_the_operator_log(inbox: Stores, run: Runner) -> None:
    put(inbox, messages=[make_message("m-1"), make_message("m-2")])
    run("inbox", "consume", "--group", "mail", "--exec", "true", "--until-empty")
    (entry,) = inbox.mongo.collection("operator_log").find()
    assert (entry["command"], entry["exit_code"]) == ("inbox consume", 0)
    assert entry["counts"]["succeeded"] == 2


# stuck


def test_stuck_finds_circling_claims_whatever_attempts_says(inbox: Stores, run: Runner) -> None:
    now = inbox.mongo.now()
    put(
        inbox,
        claims=[
            make_claim(
                message_key="circling",
                deliveries=480,
                first_seen_at=now - timedelta(hours=6),
                last_seen_at=now - timedelta(seconds=20),
                claimed_until=now + MINUTE,
            ),
            make_claim(
                message_key="again",
                status="succeeded",
                completed_at=NOON,
                last_seen_at=NOON + MINUTE,
            ),
            make_claim(message_key="often", status="succeeded", completed_at=NOON, deliveries=6),
            make_claim(message_key="unmarked", status="succeeded"),
            make_claim(message_key="fine", status="succeeded", completed_at=NOON, deliveries=5),
            make_claim(message_key="young", first_seen_at=now, last_seen_at=now),
            make_claim(message_key="dead", status="dead", attempts=5),
            make_claim(message_key="let go", status="dead", completed_at=NOON),
        ],
    )
    result = run("inbox", "stuck", "-o", "json")
    assert result.code == 5
    found = result.json()
    assert (found["shown"], found["total"]) == (5, 5)
    assert {one["message_key"]: one["why"] for one in found["items"]} == {
        "circling": ["not_completed", "too_many_deliveries"],
        "again": ["delivered_again"],
        "often": ["too_many_deliveries"],
        "unmarked": ["not_completed"],
        "dead": ["not_completed"],
    }
    assert found["items"][0]["message_key"] == "circling"
    assert 44 < found["items"][0]["every"] < 46


def test_nothing_stuck_is_exit_0(inbox: Stores, run: Runner) -> None:
    assert run("inbox", "stuck", "-o", "json").json() == {"items": [], "shown": 0, "total": 0}
    assert run("inbox", "stuck").code == 0


def test_older_than_moves_the_border(inbox: Stores, run: Runner) -> None:
    now = inbox.mongo.now()
    seen = now - 7 * MINUTE
    put(inbox, claims=[make_claim(first_seen_at=seen, last_seen_at=seen)])
    assert run("inbox", "stuck").code == 5
    assert run("inbox", "stuck", "--older-than", "15m").code == 0


# list and show


def test_list_filters_and_counts(inbox: Stores, run: Runner) -> None:
    put(inbox, claims=[make_claim(message_key=f"m-{at}", status="dead") for at in range(3)])
    put(inbox, claims=[make_claim(consumer_group="other")])
    found = run("inbox", "list", "--status", "dead", "--limit", "2", "-o", "json").json()
    assert (found["shown"], found["total"]) == (2, 3)
    assert found["items"][0]["message_key"] == "m-2"
    assert "_id" not in found["items"][0]
    assert run("inbox", "list", "--group", "other", "-o", "json").json()["total"] == 1


def test_show_names_every_group_of_a_key(inbox: Stores, run: Runner) -> None:
    put(
        inbox, messages=[make_message("m-1")], claims=[make_claim(), make_claim(consumer_group="b")]
    )
    found = run("inbox", "show", "m-1", "-o", "json").json()
    assert [one["consumer_group"] for one in found["rows"]] == ["b", "mail"]
    assert found["message"]["topic"] == "job.failed"
    assert (
        run("inbox", "show", "m-1", "--group", "b", "-o", "json").json()["rows"][0]["status"]
        == "claimed"
    )
    assert run("inbox", "show", "m-2").code == 4
    assert run("inbox", "show", "m-1", "--group", "c").code == 4


# retry


def test_retry_makes_a_dead_message_due_with_no_attempts(inbox: Stores, run: Runner) -> None:
    put(
        inbox,
        messages=[make_message("m-1")],
        claims=[make_claim(status="dead", attempts=5, deliveries=5)],
    )
    assert run("inbox", "retry", "m-1", "--group", "mail", "--yes").code == 0
    found = row(inbox)
    assert (found["status"], found["attempts"], found["claimed_until"]) == ("failed", 0, None)
    command = (
        "inbox",
        "consume",
        "--group",
        "mail",
        "--exec",
        "true",
        "--until-empty",
        "-o",
        "json",
    )
    assert run(*command).json()["succeeded"] == 1
    assert run("inbox", "stuck").code == 0


def test_retry_wants_the_group_when_a_key_is_in_several(inbox: Stores, run: Runner) -> None:
    put(
        inbox, claims=[make_claim(status="failed"), make_claim(consumer_group="b", status="failed")]
    )
    before = rows(inbox)
    assert run("inbox", "retry", "m-1", "--yes").code == 2
    assert rows(inbox) == before
    assert run("inbox", "retry", "m-1", "--group", "b", "--yes").code == 0


def test_retry_is_refused_while_a_claim_is_live(inbox: Stores, run: Runner) -> None:
    put(inbox, claims=[make_claim(claimed_until=NOON + 9999 * DAY)])
    before = rows(inbox)
    assert run("inbox", "retry", "m-1", "--group", "mail", "--yes").code == 3
    assert rows(inbox) == before


@pytest.mark.parametrize("command", ["retry", "settle"])
def test_a_key_that_is_nowhere_is_exit_4(inbox: Stores, run: Runner, command: str) -> None:
    assert run("inbox", command, "m-1", "--group", "mail", "--yes").code == 4


@pytest.mark.parametrize("command", ["retry", "settle"])
def test_a_change_without_consent_is_refused_and_a_dry_run_writes_nothing(
    inbox: Stores, run: Runner, command: str
) -> None:
    put(inbox, claims=[make_claim(status="dead")])
    before = rows(inbox)
    words = ("inbox", command, "m-1", "--group", "mail")
    assert run(*words).code == 2
    assert run(*words, "--yes", "--expect", "2").code == 3
    planned = run(*words, "--dry-run", "-o", "json")
    assert planned.code == 0
    assert planned.json()["dry_run"] is True
    assert planned.json()["selected"] == 1
    assert rows(inbox) == before
    assert inbox.mongo.collection("operator_log").count_documents({}) == 0


# settle


def test_settle_completes_unmarked_rows_as_of_their_last_delivery(
    inbox: Stores, run: Runner
) -> None:
    unmarked = [make_claim(message_key=f"m-{at}", status="succeeded") for at in range(3)]
    others = [make_claim(message_key="claimed"), make_claim(message_key="dead", status="dead")]
    put(inbox, claims=[*unmarked, *others])
    planned = run("inbox", "settle", "--dry-run", "-o", "json").json()
    assert (planned["selected"], len(planned["items"])) == (3, 3)
    result = run("inbox", "settle", "--yes", "--expect", "3", "-o", "json")
    assert (result.code, result.json()["settled"]) == (0, 3)
    for one in rows(inbox):
        expected = one["last_seen_at"] if one["message_key"].startswith("m-") else None
        assert one["completed_at"] == expected
    assert run("inbox", "settle", "--yes", "-o", "json").json()["settled"] == 0


def test_settling_one_key_acknowledges_it(inbox: Stores, run: Runner) -> None:
    claim = make_claim(
        status="succeeded", completed_at=NOON, last_seen_at=NOON + MINUTE, deliveries=9
    )
    put(inbox, claims=[claim])
    assert run("inbox", "stuck").code == 5
    assert run("inbox", "settle", "m-1", "--group", "mail", "--yes").code == 0
    found = row(inbox)
    assert (found["completed_at"], found["deliveries"]) == (NOON + MINUTE, 0)
    assert run("inbox", "stuck").code == 0


@pytest.mark.parametrize("status", ["claimed", "failed"])
def test_what_did_not_succeed_is_not_settled(inbox: Stores, run: Runner, status: str) -> None:
    put(inbox, claims=[make_claim(status=status)])
    before = rows(inbox)
    assert run("inbox", "settle", "m-1", "--group", "mail", "--yes").code == 3
    assert rows(inbox) == before


# audit


def test_the_audit_measures_both_halves_of_every_key(inbox: Stores, run: Runner) -> None:
    put(
        inbox,
        messages=[
            make_message("m-1"),
            make_message("m-2"),
            make_message("m-3", tenant_id=""),
            make_message("m-4"),
        ],
        claims=[
            make_claim(message_key="m-1", tenant_id=None),
            make_claim(message_key="m-2", tenant_id="acct-1"),
            without(make_claim(message_key="m-3"), "tenant_id"),
            make_claim(message_key="gone", consumer_group="b", tenant_id=""),
        ],
    )
    result = run("inbox", "audit", "-o", "json")
    assert result.code == 0
    found = result.json()
    assert found["inbox"]["rows"] == 4
    assert found["inbox"]["fields"]["tenant_id"] == {"filled": 1, "empty": 3}
    assert found["outbox"]["rows"] == 4
    assert found["outbox"]["fields"]["tenant_id"] == {"filled": 3, "empty": 1}
    assert found["unique_indexes"] == [["consumer_group", "message_key"]]
    assert found["lookups"] == [
        {"fields": ["consumer_group", "message_key"], "found": 3, "missed": 0, "without_message": 1, "enforced": True, "ok": True},
        {"fields": ["tenant_id", "message_key"], "found": 2, "missed": 1, "without_message": 1, "enforced": False, "ok": False},
    ]  # fmt: skip
    assert found["unclaimed"] == {"b": 4, "mail": 1}
    assert [one["fails"] for one in found["problems"]] == [False, False]


def test_a_lookup_that_was_asked_for_fails_when_it_misses_or_is_not_enforced(
    inbox: Stores, run: Runner
) -> None:
    put(inbox, messages=[make_message("m-1")], claims=[make_claim(tenant_id="acct-1")])
    assert run("inbox", "audit", "--lookup", "tenant_id,message_key").code == 5
    assert run("inbox", "audit", "--lookup", "message_key,consumer_group").code == 0
    assert run("inbox", "audit", "--lookup", "a,,b").code == 2
    found = run("inbox", "audit", "--lookup", "tenant_id, message_key", "-o", "json").json()
    assert [one["fields"] for one in found["lookups"]] == [["tenant_id", "message_key"]]


def test_the_audit_fails_without_a_unique_index(stores: Stores, run: Runner) -> None:
    put(stores, messages=[make_message("m-1")], claims=[make_claim()])
    result = run("inbox", "audit", "-o", "json")
    assert (result.code, result.json()["unique_indexes"]) == (5, [])


def test_the_audit_fails_when_the_enforced_lookup_misses(stores: Stores, run: Runner) -> None:
    stores.mongo.collection("inbox").create_index(
        [("tenant_id", 1), ("message_key", 1)], unique=True
    )
    put(stores, messages=[make_message("m-1")], claims=[make_claim(tenant_id=None)])
    result = run("inbox", "audit", "-o", "json")
    assert result.code == 5
    assert result.json()["lookups"][0]["enforced"] is True


def test_the_audit_fails_when_two_messages_share_a_key_and_differ(
    stores: Stores, run: Runner
) -> None:
    stores.mongo.collection("inbox").create_index(
        [("consumer_group", 1), ("message_key", 1)], unique=True
    )
    same = [make_message("m-1"), make_message("m-1", _id="copy")]
    put(stores, messages=same, claims=[make_claim()])
    assert run("inbox", "audit").code == 0
    put(stores, messages=[make_message("m-1", _id="other", payload={"amount": 7})])
    result = run("inbox", "audit", "-o", "json")
    assert result.code == 5
    assert result.json()["problems"][-1]["code"] == "key_conflict"
