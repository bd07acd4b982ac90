"""What holds of days and summaries whatever the rows look like, by the program's own commands."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Int64
from pymongo import MongoClient

from tests.builders import make_job, make_row, without
from tests.conftest import Invoker, Runner

Client = MongoClient[dict[str, Any]]
WEEK = ("--from", "2026-03-01", "--to", "2026-03-07")
FIRST = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def documents(client: Client, database: str) -> Any:
    """This test's database, its ledger begun on the first day of the week."""
    found = client[database]
    found.ledger.insert_one(make_row("job-0", created_at=FIRST, account_id="acct-0"))
    return found


def net_of(documents: Any, account: str = "acct-1") -> dict[str, int]:
    """An account's net by day."""
    return {one["day"]: one["net"] for one in documents.usage_daily.find({"account_id": account})}


def make_summary(account: str, day: str, net: int) -> dict[str, Any]:
    """A summary that somebody wrote long ago."""
    return {
        "_id": f"{account}:{day}",
        "account_id": account,
        "day": day,
        "timezone": "UTC",
        "charged": Int64(net),
        "refunded": Int64(0),
        "reclaimed": Int64(0),
        "net": Int64(net),
        "jobs": 1,
        "rows": 1,
    }


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("UTC", {"2026-03-07": 1, "2026-03-08": 2}),
        ("Asia/Tokyo", {"2026-03-08": 3}),
        ("America/Phoenix", {"2026-03-07": 3}),
    ],
)
@pytest.mark.parametrize("shell", ["Pacific/Auckland", "America/Los_Angeles"])
def test_a_day_is_the_day_zones_whatever_the_shell_says(
    run: Runner, documents: Any, zone: str, expected: dict[str, int], shell: str
) -> None:
    late, early = datetime(2026, 3, 7, 23, 30), datetime(2026, 3, 8, 0, 10)  # noqa: DTZ001  # the driver takes them as UTC
    documents.ledger.insert_one(make_row("job-1", created_at=late, amount=Int64(-1)))
    documents.ledger.insert_one(make_row("job-2", created_at=early, amount=Int64(-2)))
    settings = {"LEDGERCTL_TIMEZONE": zone, "TZ": shell}
    window = ("--from", "2026-03-05", "--to", "2026-03-10")
    rebuilt = run("summary", "rebuild", *window, "-o", "json", env=settings)
    assert (rebuilt.code, rebuilt.json()["timezone"]) == (0, zone)
    assert net_of(documents) == expected
    assert run("summary", "drift", *window, env=settings).code == 0


def test_a_summary_without_rows_becomes_zero_once(invoke: Invoker, documents: Any) -> None:
    for account in ("acct-1", "acct-gone"):
        documents.usage_daily.insert_one(make_summary(account, "2026-03-05", 240))
    first = invoke("summary", "rebuild", *WEEK, "-o", "json").json()
    assert first["days_cleared"] == 2
    assert net_of(documents) == net_of(documents, "acct-gone") == {"2026-03-05": 0}
    again = invoke("summary", "rebuild", *WEEK, "-o", "json").json()
    assert again["days_cleared"] == 0
    assert invoke("summary", "drift", *WEEK).code == 0


def test_undated_rows_of_the_window_refuse_their_account_and_never_lower_a_day(
    invoke: Invoker, documents: Any
) -> None:
    day = datetime(2026, 3, 5, 9, tzinfo=UTC)
    dated = [make_row(f"job-{at}", created_at=day, recorded_at=day) for at in range(1, 3)]
    text = [make_row(f"job-{at}", created_at="2026-03-05", recorded_at=day) for at in range(3, 5)]
    documents.ledger.insert_many(
        [*dated, *text, without(make_row("job-5", recorded_at=day), "created_at")]
    )
    documents.usage_daily.insert_one(make_summary("acct-1", "2026-03-05", 200))
    done = invoke("summary", "rebuild", *WEEK, "-o", "json")
    assert done.code == 8
    assert "acct-1" in str(done.json()["refused"])
    assert net_of(documents) == {"2026-03-05": 200}
    assert net_of(documents, "acct-0") == {"2026-03-01": 40}
    audited = invoke("ledger", "audit", "--code", "undated_row", "-o", "json").json()
    assert audited["counts"]["undated_row"] == 3


def test_drift_tells_how_many_times_too_high_a_day_is(invoke: Invoker, documents: Any) -> None:
    documents.ledger.insert_one(make_row("job-1", created_at=FIRST, amount=Int64(-100)))
    assert invoke("summary", "rebuild", *WEEK).code == 0
    documents.usage_daily.update_one({"account_id": "acct-1"}, {"$set": {"net": Int64(240)}})
    done = invoke("summary", "drift", *WEEK, "-o", "json")
    worst = done.json()["worst"]
    assert (done.code, worst["summary"], worst["ledger"], worst["ratio"]) == (5, 240, 100, 2.4)


def test_an_account_without_new_rows_does_not_drift(invoke: Invoker, documents: Any) -> None:
    assert invoke("summary", "rebuild", *WEEK).code == 0
    done = invoke("summary", "drift", *WEEK, "-o", "json")
    assert (done.code, done.json()["drifted"]) == (0, [])
    assert invoke("summary", "drift", "--days", "3").code == 0


def test_a_rebuild_beside_an_appender_ends_equal_to_the_ledger(
    invoke: Invoker, documents: Any
) -> None:
    stop = threading.Event()

    def append() -> None:
        at = 0
        while not stop.is_set():
            at += 1
            now = datetime.now(UTC)
            row = make_row(f"live-{at}", created_at=now, recorded_at=now, amount=Int64(-5))
            documents.ledger.insert_one(row)

    appender = threading.Thread(target=append)
    appender.start()
    try:
        codes = {invoke("summary", "rebuild").code for _ in range(5)}
    finally:
        stop.set()
        appender.join()
    assert codes == {0}
    assert invoke("summary", "rebuild").code == 0
    assert invoke("summary", "drift").code == 0
    total = sum(row["amount"] for row in documents.ledger.find({"_id": {"$regex": "^live"}}))
    assert sum(net_of(documents).values()) == -total


# a walk that loses its place


@contextmanager
def lost_cursors(client: Client, mode: Any, *commands: str) -> Iterator[None]:
    """The server forgets our cursor at these commands, as often as `mode` says."""
    spoil = {"failCommands": commands, "errorCode": 43, "appName": "ledgerctl"}
    client.admin.command("configureFailPoint", "failCommand", mode=mode, data=spoil)
    try:
        yield
    finally:
        client.admin.command("configureFailPoint", "failCommand", mode="off")


@pytest.fixture
def long_ledger(documents: Any) -> Any:
    """Jobs and rows of several pages, with one fault near the end."""
    documents.jobs.insert_many(make_job(f"job-{at:05}") for at in range(5_000))
    documents.ledger.insert_many(make_row(f"job-{at:05}") for at in range(5_000))
    documents.ledger.delete_one({"job_id": "job-04990"})
    documents.jobs.update_one({"_id": "job-04990"}, {"$set": {"is_refunded": True}})
    return documents


def test_an_audit_goes_on_where_its_cursor_was_lost(
    invoke: Invoker, client: Client, long_ledger: Any
) -> None:
    whole = invoke("ledger", "audit", "-o", "json").json()
    with lost_cursors(client, {"times": 2}, "getMore"):
        done = invoke("ledger", "audit", "-o", "json")
    told = done.json()
    assert done.code == 5
    assert (told["jobs_checked"], told["rows_checked"]) == (5_000, 5_000)
    assert told["findings"] == whole["findings"]


def test_an_audit_that_cannot_go_on_never_shows_a_part_as_the_whole(
    invoke: Invoker, client: Client, long_ledger: Any
) -> None:
    with lost_cursors(client, {"skip": 12}, "find", "getMore"):
        done = invoke("ledger", "audit", "-o", "json")
    told = done.json()
    assert (done.code, told["complete"]) == (8, False), done
    assert " of about 5000 rows" in told["error"]["read"]
