"""Rebuilds that are killed, held up, robbed of their lease or interrupted: none leaves a wrong figure."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from ledgerctl.domain.summary import DaySpan, Rebuilt
from ledgerctl.errors import LeaseHeld, OutcomeUnknown, StoreBusy
from ledgerctl.operations import rebuild as product
from ledgerctl.operations.rebuild import LEASE, MARK, RebuildRequest, rebuild
from ledgerctl.stores.connections import Stores
from tests.builders import make_row
from tests.conftest import ROOT, Runner
from tests.faults.race import HANG
from tests.integration.test_summary_rules import NOTHING, append, figures, noon, on, put, stored
from tests.servers import wait_until

MARCH = on("2026-03-01", "2026-03-08")


@contextmanager
def held_between_reading_and_writing(stores: Stores) -> Iterator[None]:
    """Every $merge waits inside the server."""
    admin = stores.mongo.client.admin
    admin.command("configureFailPoint", HANG, mode="alwaysOn")
    try:
        yield
    finally:
        admin.command("configureFailPoint", HANG, mode="off")


def start(environment: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ledgerctl", "summary", "rebuild", "--quiet", *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def merging(stores: Stores) -> bool:
    running = stores.mongo.client.admin.aggregate(
        [{"$currentOp": {}}, {"$match": {"failpointMsg": HANG}}]
    )
    return bool(list(running))


def test_after_kill_9_the_next_run_takes_over_when_the_lease_has_expired(
    stores: Stores, environment: dict[str, str], run: Runner
) -> None:
    append(stores, make_row(created_at=stores.mongo.now()))
    with held_between_reading_and_writing(stores):
        with start(environment) as program:
            wait_until(lambda: merging(stores))
            assert run("summary", "rebuild", "--quiet").code == 9
            program.send_signal(signal.SIGKILL)
        assert run("summary", "rebuild", "--quiet").code == 9
    wait_until(lambda: run("summary", "rebuild", "--quiet").code == 0, timeout_s=40)
    assert run("summary", "drift").code == 0
    assert stores.mongo.collection("usage_daily").count_documents({}) == 1


def test_sigterm_finishes_the_day_in_hand_and_names_what_is_left(
    stores: Stores, environment: dict[str, str]
) -> None:
    append(stores, *(make_row(f"job-{n}", created_at=noon(f"2026-03-0{n}")) for n in range(1, 9)))
    put(stores, "ghost", "2026-03-08")
    with held_between_reading_and_writing(stores):
        program = start(environment, "--from", "2026-03-01", "--to", "2026-03-08", "-o", "json")
        wait_until(lambda: merging(stores))
        program.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    out, _ = program.communicate(timeout=30)
    assert program.returncode == 143
    assert b'"days_left"' in out
    assert 1 <= stores.mongo.collection("usage_daily").count_documents({"rows": 1}) < 8
    assert stored(stores, "ghost:2026-03-08")["rows"] == 240, "nothing is cleared before its time"
    assert rebuild(stores, MARCH).days_written == 8
    assert figures(stores, "ghost:2026-03-08") == NOTHING


def test_a_run_that_lost_its_lease_stops_and_moves_no_mark(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = stores.mongo.now()
    append(stores, make_row("job-1", created_at=now), make_row("job-2", created_at=now))
    monkeypatch.setattr(product, "LEASE_RENEWED_EVERY", timedelta(milliseconds=50))
    stolen = {"owner": "thief 1", "expires_at": now + timedelta(minutes=1)}
    real = stores.summaries.clear

    def steal(*words: object) -> int:
        stores.mongo.collection("leases").update_one({"_id": LEASE}, {"$set": stolen})
        time.sleep(0.5)
        return real(*words)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(stores.summaries, "clear", steal)
    with pytest.raises(LeaseHeld, match="lost midway"):
        rebuild(stores, RebuildRequest())
    lease = stores.mongo.collection("leases").find_one({"_id": LEASE}) or {}
    assert lease["owner"] == "thief 1"
    assert MARK not in lease


def test_trouble_after_the_first_day_says_what_was_written(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(stores, *(make_row(f"job-{n}", created_at=noon(f"2026-03-0{n}")) for n in range(1, 9)))
    real = stores.summaries.merge_day

    def full(span: object, *words: object) -> None:
        if getattr(span, "day", "") > "2026-03-05":
            raise StoreBusy("cannot write: disk full")
        real(span, *words)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(stores.summaries, "merge_day", full)
    begun: list[Rebuilt] = []
    with pytest.raises(StoreBusy):
        rebuild(stores, MARCH, begun=begun.append)
    assert begun[0].days_written == stores.mongo.collection("usage_daily").count_documents({})
    assert set(begun[0].days_left) >= {"2026-03-06", "2026-03-07", "2026-03-08"}
    monkeypatch.undo()
    assert rebuild(stores, MARCH).days_written == 8


def test_a_day_whose_outcome_is_unknown_is_not_hidden_by_one_that_changed_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(stores, *(make_row(f"job-{n}", created_at=noon(f"2026-03-0{n}")) for n in (1, 2)))
    refused = threading.Event()

    def no_reply(span: object, *_: object) -> None:
        if getattr(span, "day", "") == "2026-03-01":
            refused.wait(10)
            raise OutcomeUnknown("sent, and no reply came")
        refused.set()
        raise StoreBusy("no connection can be opened")

    monkeypatch.setattr(stores.summaries, "merge_day", no_reply)
    with pytest.raises(OutcomeUnknown):
        rebuild(stores, MARCH)


def test_a_day_that_a_full_server_wrote_in_part_is_not_said_to_be_unchanged(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(stores, make_row(created_at=noon("2026-03-01")))
    real = stores.summaries.merge_day

    def full(*words: object) -> None:
        real(*words)  # type: ignore[arg-type]  # as they came
        raise StoreBusy("cannot write: disk full")

    monkeypatch.setattr(stores.summaries, "merge_day", full)
    begun: list[Rebuilt] = []
    with pytest.raises(StoreBusy):
        rebuild(stores, MARCH, begun=begun.append)
    assert (begun[0].days_written, begun[0].days_left) == (1, ("2026-03-01",))


def test_two_days_that_create_the_collection_at_once_are_both_written(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(stores, *(make_row(f"job-{n}", created_at=noon(f"2026-03-0{n}")) for n in (1, 2)))
    real = stores.summaries._merge
    met: list[str] = []

    def not_there_yet(span: DaySpan, *words: Any) -> None:
        if span.day not in met:
            met.append(span.day)
            raise OperationFailure("Cannot find index to verify that join fields", code=51183)
        real(span, *words)

    monkeypatch.setattr(stores.summaries, "_merge", not_there_yet)
    assert rebuild(stores, MARCH).days_written == 2


def test_metrics_are_not_written_by_an_interrupted_run(
    stores: Stores, environment: dict[str, str], tmp_path: Path
) -> None:
    append(stores, *(make_row(f"job-{n}", created_at=noon(f"2026-03-0{n}")) for n in range(1, 9)))
    file = tmp_path / "x.prom"
    with held_between_reading_and_writing(stores):
        program = start(
            environment, "--from", "2026-03-01", "--to", "2026-03-08", "--metrics-file", str(file)
        )
        wait_until(lambda: merging(stores))
        program.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    program.communicate(timeout=30)
    assert not file.exists()
