"""`summary` as cron and people run it: keys, exit codes, silence, the metrics file."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ledgerctl.operations.rebuild import hold
from ledgerctl.stores.connections import Stores
from tests.builders import make_row
from tests.conftest import ROOT, Runner
from tests.integration.test_summary_rules import append, noon, put, today

DAY = "2026-03-05"
ON_DAY = ("--from", DAY, "--to", DAY)
METRICS = (
    "last_success_timestamp_seconds", "duration_seconds", "rows", "days_written", "days_cleared",
    "late_days", "refused_accounts",
)  # fmt: skip


def values(text: str) -> dict[str, float]:
    """The gauges of a metrics file."""
    found = re.findall(r"^ledgerctl_summary_rebuild_(\w+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_rebuild_prints_the_documents_keys(stores: Stores, run: Runner) -> None:
    append(stores, make_row(created_at=noon(DAY)))
    done = run("summary", "rebuild", "--from", "2026-03-04", "--to", "2026-03-06", "-o", "json")
    document = done.json()
    assert done.code == 0
    assert isinstance(document.pop("duration_s"), float)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", document.pop("as_of"))
    assert isinstance(document.pop("operation_id"), str)
    assert document == {
        "dry_run": False,
        "error": None,
        "not_tried": 0,
        "from": "2026-03-04",
        "to": "2026-03-06",
        "timezone": "UTC",
        "accounts": 1,
        "days_written": 1,
        "days_cleared": 0,
        "rows": 1,
        "late_days": [],
        "refused": [],
        "refused_rows": [],
        "undated": 0,
        "not_rebuilt": [{"from": "2026-03-04", "to": "2026-03-04", "why": "before_first_row"}],
    }


def test_rebuild_leaves_an_entry_in_the_operator_log(stores: Stores, run: Runner) -> None:
    append(stores, make_row(created_at=noon(DAY)))
    run("summary", "rebuild", *ON_DAY, "--reason", "hourly")
    entry = stores.mongo.collection("operator_log").find_one() or {}
    assert (entry["command"], entry["reason"], entry["exit_code"]) == (
        "summary rebuild", "hourly", 0,
    )  # fmt: skip
    assert entry["counts"]["days_written"] == 1


def test_a_refused_account_is_named_and_makes_exit_8(stores: Stores, run: Runner) -> None:
    append(stores, make_row(created_at="text", recorded_at=stores.mongo.now()))
    done = run("summary", "rebuild", "-o", "json")
    assert (done.code, done.json()["refused"], done.err) == (8, ["acct-1"], "")
    assert run("summary", "rebuild", "--quiet").code == 8


@pytest.mark.parametrize(
    "words",
    [
        ("--days", "0"),
        ("--to", DAY),
        ("--days", "3", "--from", DAY),
        ("--from", "2026-03-06", "--to", DAY),
        ("--from", "soon"),
    ],
)
def test_words_that_make_no_sense_are_exit_2(run: Runner, words: tuple[str, ...]) -> None:
    assert run("summary", "rebuild", *words).code == 2


def test_a_dry_run_takes_no_lease_and_lists_the_differences(stores: Stores, run: Runner) -> None:
    append(stores, make_row(created_at=noon(DAY)))
    done = run("summary", "rebuild", *ON_DAY, "--dry-run", "-o", "json")
    assert done.code == 0
    assert [(one["account_id"], one["change"], one["net_after"]) for one in done.json()["items"]] == [
        ("acct-1", "write", 40)
    ]  # fmt: skip
    for name in ("leases", "operator_log", "usage_daily"):
        assert stores.mongo.collection(name).count_documents({}) == 0


def test_drift_prints_exact_numbers_none_that_it_did_not_compute_and_exit_5(
    stores: Stores, run: Runner
) -> None:
    append(stores, make_row(created_at=noon(DAY)))
    put(stores, "acct-1", DAY, net=96, charged=96, refunded=0, reclaimed=0)
    done = run("summary", "drift", *ON_DAY, "-o", "json")
    document = done.json()
    assert done.code == 5
    assert document["days_compared"] == 1
    wanted = {"account_id": "acct-1", "day": DAY, "summary": 96, "ledger": 40, "ratio": 2.4}
    assert document["drifted"][0].items() >= (wanted | {"missing": False}).items()
    assert document["worst"]["account_id"] == "acct-1"
    assert document["drifted"][0]["ledger_figures"] == {
        "charged": 40, "refunded": 0, "reclaimed": 0, "net": 40, "rows": 1,
    }  # fmt: skip
    run("summary", "rebuild", *ON_DAY)
    healed = run("summary", "drift", *ON_DAY, "-o", "json")
    assert (healed.code, healed.json()["drifted"], healed.json()["worst"]) == (0, [], None)


def test_show_lists_the_days(stores: Stores, run: Runner) -> None:
    append(stores, make_row(created_at=noon(DAY)))
    run("summary", "rebuild", *ON_DAY)
    done = run("summary", "show", "acct-1", *ON_DAY, "-o", "json")
    assert done.code == 0
    assert [(one["day"], one["net"]) for one in done.json()["days"]] == [(DAY, 40)]
    assert "bar" not in run("summary", "show", "acct-1", *ON_DAY).out


def test_cron_runs_it_with_an_empty_environment_and_hears_nothing(
    stores: Stores, environment: dict[str, str], tmp_path: Path
) -> None:
    append(stores, make_row(created_at=stores.mongo.now()))
    file = tmp_path / "ledgerctl.prom"
    named = {k: v for k, v in environment.items() if k.startswith("LEDGERCTL_")}
    named = {k: v for k, v in named.items() if k != "LEDGERCTL_OPERATOR"}
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ledgerctl",
            "summary",
            "rebuild",
            "--quiet",
            "--metrics-file",
            file,
        ],
        env=named | {"PYTHONPATH": str(ROOT)},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as program:
        assert (*program.communicate(timeout=60), program.returncode) == (b"", b"", 0)
    found = values(file.read_text())
    assert tuple(found) == METRICS
    assert (found["rows"], found["days_written"], found["refused_accounts"]) == (1, 1, 0)
    age = datetime.now(UTC).timestamp() - found["last_success_timestamp_seconds"]
    assert -5 < age < 60
    assert [one.name for one in tmp_path.iterdir() if "prom" in one.name] == [file.name]


def test_every_metric_says_its_help_and_type(stores: Stores, run: Runner, tmp_path: Path) -> None:
    file = tmp_path / "x.prom"
    run("summary", "rebuild", "--metrics-file", str(file))
    text = file.read_text()
    for name in METRICS:
        assert f"# HELP ledgerctl_summary_rebuild_{name} " in text
        assert f"# TYPE ledgerctl_summary_rebuild_{name} gauge\n" in text
    assert text.endswith("\n")


def test_a_metrics_file_that_cannot_be_written_does_not_look_like_a_failed_rebuild(
    stores: Stores, run: Runner, tmp_path: Path
) -> None:
    append(stores, make_row(created_at=stores.mongo.now()))
    file = tmp_path / "missing" / "x.prom"
    done = run("summary", "rebuild", "--quiet", "--metrics-file", str(file), "-o", "json")
    assert done.code == 8
    assert done.json()["days_written"] == 1
    assert "the rebuild is complete" in json.dumps(done.json()["notes"])
    assert stores.mongo.collection("usage_daily").count_documents({}) == 1


def test_a_full_disk_leaves_the_old_metrics_file(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ledgerctl.cli.files import replace_file

    file = tmp_path / "x.prom"
    file.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(file, "new")
    assert file.read_text() == "old"
    assert [one.name for one in tmp_path.glob("*x.prom*")] == ["x.prom"]


def test_a_failed_rebuild_leaves_the_metrics_file_alone(run: Runner, tmp_path: Path) -> None:
    file = tmp_path / "x.prom"
    file.write_text("old")
    done = run(
        "summary", "rebuild", "--quiet", "--metrics-file", str(file),
        env={"LEDGERCTL_MONGO_URI": "mongodb://127.0.0.1:1"},
    )  # fmt: skip
    assert (done.code, file.read_text()) == (6, "old")


def test_a_second_run_at_the_same_time_is_exit_9(stores: Stores, run: Runner) -> None:
    append(stores, make_row(created_at=stores.mongo.now()))
    with hold(stores):
        done = run("summary", "rebuild", "--quiet", "-o", "json")
    assert (done.code, done.out) == (9, "")
    error: dict[str, Any] = json.loads(done.err)["error"]
    assert error["code"] == "lease_held"
    assert stores.mongo.collection("usage_daily").count_documents({}) == 0
    assert run("summary", "rebuild", "--quiet").code == 0


def test_yesterday_and_today_are_days(stores: Stores, run: Runner) -> None:
    append(stores, make_row(created_at=stores.mongo.now() - timedelta(days=1)))
    done = run("summary", "rebuild", "--from", "yesterday", "--to", "today", "-o", "json")
    assert (done.json()["from"], done.json()["to"]) == (today(stores, 1), today(stores))


@pytest.mark.parametrize(
    "words",
    [("show", "nobody"), ("rebuild", "--account", "nobody"), ("drift", "--account", "nobody")],
)
def test_an_unknown_account_is_exit_4(stores: Stores, run: Runner, words: tuple[str, ...]) -> None:
    append(stores, make_row(created_at=noon(DAY)))
    assert run("summary", *words).code == 4


def test_an_account_without_rows_is_cleared_by_name(stores: Stores, run: Runner) -> None:
    append(stores, make_row(created_at=noon(DAY)))
    put(stores, "gone", DAY)
    done = run("summary", "rebuild", *ON_DAY, "--account", "gone", "-o", "json")
    assert (done.code, done.json()["days_cleared"], done.json()["days_written"]) == (0, 1, 0)
