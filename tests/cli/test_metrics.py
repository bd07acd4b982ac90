"""Metrics: figures that agree with the commands, and rules that fire and stay silent."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.builders import make_claim, make_job, make_letter, make_row
from tests.conftest import Client, Invoker
from tests.dead_letters import DEAD

SAMPLE = re.compile(r'^(\w+)(?:\{(\w+)="([^"]*)"\})? (\S+)$')


def samples(text: str) -> dict[tuple[str, str], float]:
    """The samples by metric and label value."""
    found = [SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#")]
    return {(one[1], one[3] or ""): float(one[4]) for one in found if one is not None}


@pytest.fixture
def night(client: Client, database: str, redis_client: Redis) -> None:
    db = client[database]
    db.jobs.insert_many([make_job(f"job-{n}") for n in range(15)])
    db.ledger.insert_many([make_row(f"job-{n}") for n in range(15)])
    errors = [f"cause {'abcdefghijklmn'[n % 14]} is broken" for n in range(15)]
    redis_client.rpush(DEAD, *[make_letter(f"job-{n}", error=errors[n]) for n in range(15)])
    redis_client.rpush("jobs:retry", make_letter("job-3", not_before="2026-03-08T00:00:00Z"))
    redis_client.rpush("jobs:processing:gone", make_letter("job-4"))
    db.inbox.insert_one(make_claim(deliveries=99))


def test_the_figures_are_those_of_the_commands(invoke: Invoker, night: None) -> None:
    found = samples(invoke("metrics").out)
    assert found["ledgerctl_up", "mongo"] == found["ledgerctl_up", "redis"] == 1
    stats = invoke("dead", "stats", "-o", "json").json()
    assert found["ledgerctl_dead_letters", ""] == stats["depth"] == 15
    verdicts = {name[1]: n for name, n in found.items() if name[0].endswith("by_verdict")}
    assert {name: n for name, n in verdicts.items() if n} == stats["by_verdict"]
    groups = [n for name, n in found.items() if name[0].endswith("by_group")]
    assert (len(groups), sum(groups)) == (11, 15)
    assert found["ledgerctl_dead_letters_by_group", "other"] == 4
    assert found["ledgerctl_dead_letter_oldest_age_seconds", ""] > 86_400
    assert found["ledgerctl_retry_due", ""] == found["ledgerctl_retry_entries", ""] == 1
    assert found["ledgerctl_retry_oldest_due_age_seconds", ""] > 86_400
    assert found["ledgerctl_processing_entries", "gone"] == 1
    assert found["ledgerctl_lost_leases", ""] == found["ledgerctl_inbox_stuck", ""] == 1
    assert found["ledgerctl_ledger_rows", ""] == 15
    assert found["ledgerctl_usage_drift", "false"] == 0


@pytest.mark.parametrize("store", ["mongo", "redis"])
def test_a_store_that_is_away_is_told_and_the_other_is_measured(
    invoke: Invoker, night: None, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    away = {
        "mongo": ("MONGO_URI", "mongodb://127.0.0.1:1"),
        "redis": ("REDIS_URL", "redis://127.0.0.1:1"),
    }
    name, address = away[store]
    monkeypatch.setenv(f"LEDGERCTL_{name}", address)
    run = invoke("metrics")
    found = samples(run.out)
    assert run.code == 6
    assert found["ledgerctl_up", store] == 0
    assert found["ledgerctl_up", {"mongo": "redis", "redis": "mongo"}[store]] == 1
    kept = {"mongo": ("ledgerctl_dead_letters", 15), "redis": ("ledgerctl_ledger_rows", 15)}[store]
    assert found[kept[0], ""] == kept[1]


def test_a_file_is_replaced_whole_and_what_is_no_file_is_refused(
    invoke: Invoker, night: None, tmp_path: Path
) -> None:
    file = tmp_path / "night.prom"
    file.write_text("old")
    run = invoke("metrics", "--file", str(file))
    assert (run.code, run.out.strip()) == (0, "")
    assert samples(file.read_text())["ledgerctl_dead_letters", ""] == 15
    assert invoke("metrics", "--file", "/dev/null").code == 2
    assert invoke("metrics", "--file", "").code == 2


RULE = re.compile(
    r"- alert: (?P<alert>\w+)\n +expr: (?P<expr>.+)\n +for: \w+\n"
    r" +labels: {severity: (?P<severity>\w+)}\n +annotations:\n +summary: \"(?P<summary>.+)\"\n"
)


def rules(invoke: Invoker) -> dict[str, Any]:
    """The alerting rules by name."""
    text = invoke("metrics", "rules").out
    found = {one["alert"]: one.groupdict() for one in RULE.finditer(text)}
    assert len(found) == text.count("- alert:")
    return found


def test_the_rules_name_only_metrics_that_are_printed(invoke: Invoker, night: None) -> None:
    invoke("summary", "rebuild")
    printed = {name for name, _ in samples(invoke("metrics").out)}
    for rule in rules(invoke).values():
        assert set(re.findall(r"ledgerctl_\w+", rule["expr"])) <= printed
        assert re.search(r"`ledgerctl [a-z]+", rule["summary"])


FIRING: dict[str, tuple[str, float, float]] = {  # series, a value that fires, one that does not
    "LedgerctlStoreDown": ('ledgerctl_up{store="redis"}', 0, 1),
    "LedgerctlDeadLetters": ('ledgerctl_dead_letters_by_verdict{verdict="retryable"}', 101, 100),
    "LedgerctlDeadLetterOld": ("ledgerctl_dead_letter_oldest_age_seconds", 86_401, 86_400),
    "LedgerctlRetryStalled": ("ledgerctl_retry_oldest_due_age_seconds", 901, 900),
    "LedgerctlLeaseLost": ("ledgerctl_lost_leases", 1, 0),
    "LedgerctlInboxStuck": ("ledgerctl_inbox_stuck", 1, 0),
    "LedgerctlRebuildLate": ("ledgerctl_usage_last_rebuild_timestamp_seconds", 0, 20_000),
    "LedgerctlDriftUnexplained": ('ledgerctl_usage_drift{explained="false"}', 1, 0),
}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_figures_and_rules_and_each_rule_fires_and_stays_silent(
    invoke: Invoker, night: None, tmp_path: Path
) -> None:
    figures = invoke("metrics").out
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=figures, text=True, check=False
    )
    assert checked.returncode == 0
    (tmp_path / "rules.yml").write_text(invoke("metrics", "rules").out)
    known = rules(invoke)
    assert set(FIRING) == set(known)
    tests = []
    for name, (series, fires, silent) in FIRING.items():
        for value, expected in ((fires, True), (silent, False)):
            labels = dict(re.findall(r'(\w+)="(\w+)"', series))
            number = f"{value:g}"
            summary = known[name]["summary"].replace("{{ $value }}", number)
            summary = summary.replace("{{ $labels.store }}", labels.get("store", ""))
            alert = {
                "exp_labels": {**labels, "severity": known[name]["severity"]},
                "exp_annotations": {"summary": summary},
            }
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": series, "values": f"{number}x400"}],
                    "alert_rule_test": [
                        {
                            "eval_time": "5h",
                            "alertname": name,
                            "exp_alerts": [alert] if expected else [],
                        }
                    ],
                }
            )
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": ["rules.yml"], "tests": tests}))
    for words in (["check", "rules", "rules.yml"], ["test", "rules", "test.yml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
