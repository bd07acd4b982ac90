"""The operator log as people read it: by whom, by command, since when, and what never ended."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.builders import NOON
from tests.conftest import Client, Invoker


def entry(name: str, **overrides: Any) -> dict[str, Any]:
    return {
        "_id": name,
        "at": NOON,
        "finished_at": NOON,
        "operator": "ann@desk",
        "profile": "default",
        "command": "dead requeue",
        "reason": None,
        "counts": {"moved": 2},
        "exit_code": 0,
    } | overrides


@pytest.fixture
def logged(client: Client, database: str) -> Any:
    later: datetime = NOON + timedelta(days=2)
    client[database].operator_log.insert_many(
        [
            entry("op-1"),
            entry("op-2", operator="bob@desk"),
            entry("op-3", command="job refund", at=later),
            entry("op-4", exit_code=None, finished_at=None, counts={}, at=later),
            entry("op-5", exit_code=None, counts={}, command="queue work", at=later),
        ]
    )
    return client[database]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), ["op-5", "op-4", "op-3", "op-2", "op-1"]),
        (("--operator", "bob@desk"), ["op-2"]),
        (("--command", "dead requeue"), ["op-4", "op-2", "op-1"]),
        (("--since", "2026-03-09"), ["op-5", "op-4", "op-3"]),
        (("--since", "2026-03-09", "--command", "job refund"), ["op-3"]),
    ],
)
def test_the_log_is_listed_by_operator_command_and_time(
    invoke: Invoker, logged: Any, words: tuple[str, ...], found: list[str]
) -> None:
    document = invoke("log", "list", *words, "-o", "json").json()
    assert [one["operation_id"] for one in document["items"]] == found
    assert document["total"] == len(found)


def test_an_entry_that_was_left_open_says_so_with_what_the_archive_knows(
    invoke: Invoker, logged: Any
) -> None:
    letters = [
        {"_id": f"op-4:000001:{n:08d}", "operation_id": "op-4", "chunk": 1, "at": NOON}
        for n in range(3)
    ]
    logged.dead_archive.insert_many(letters)
    states = {
        one["operation_id"]: (one["state"], one["counts"])
        for one in invoke("log", "list", "-o", "json").json()["items"]
    }
    assert states["op-4"] == ("never ended", {"archived": 3})
    assert states["op-5"] == ("running, or never ended", {})
    assert states["op-3"] == (None, {"moved": 2})
    assert "never ended" in invoke("log", "show", "op-4", "-o", "table").out
