"""Figures as Prometheus text, and the alerting rules that name them."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledgerctl.operations.metrics import Sample

PREFIX = "ledgerctl_"
HELP = {
    "up": "Whether the store answered.",
    "dead_letters": "Dead letters that wait for a person.",
    "dead_letters_by_group": "Dead letters by group of errors, the ten largest and the others.",
    "dead_letters_by_verdict": "Dead letters by what their job's ledger says.",
    "dead_letter_oldest_age_seconds": "Seconds since the oldest dead letter failed.",
    "retry_entries": "Entries on the retry list.",
    "retry_due": "Entries on the retry list that are due.",
    "retry_oldest_due_age_seconds": "Seconds that the oldest due entry has waited.",
    "processing_entries": "Entries that a worker has in hand.",
    "lost_leases": "Workers with entries in hand and without a live lease.",
    "inbox_stuck": "Claims that are not completed or come back.",
    "usage_last_rebuild_timestamp_seconds": "When the last full rebuild began.",
    "usage_drift": "Summaries of the window that differ from the ledger.",
    "ledger_rows": "Rows of the ledger, as the server estimates them.",
}


def exposition(samples: Iterable["Sample"]) -> str:
    """Return samples as Prometheus text, one gauge a metric."""
    order = list(HELP)
    lines = []
    found = sorted(samples, key=lambda one: order.index(one.name))
    for name, some in groupby(found, key=lambda one: one.name):
        whole = PREFIX + name
        lines += [f"# HELP {whole} {HELP[name]}", f"# TYPE {whole} gauge"]
        lines += [f"{whole}{labels(one.labels)} {one.value}" for one in some]
    return "\n".join(lines) + "\n"


def labels(given: Mapping[str, str]) -> str:
    """Write labels, their values escaped as the text format asks."""
    if not given:
        return ""
    written = (f'{name}="{escaped(value)}"' for name, value in given.items())
    return "{" + ",".join(written) + "}"


def escaped(value: str) -> str:
    """Escape a label's value; what UTF-8 cannot hold becomes a question mark."""
    text = value.encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def rules() -> str:
    """Return the alerting rules, which name only metrics that are printed here."""
    return Path(__file__).with_name("alerting_rules.yml").read_text(encoding="utf-8")
