"""A run of the program in a process of its own that stops at each write and lets its parent act.

The parent is told before a write is sent and after its reply has come, and the run waits for it:
so a fault can be placed at any write, and nothing in the program has to be changed for it.
"""

import os
import pkgutil
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from pymongo import monitoring
from redis import Redis

import ledgerctl
from ledgerctl.stores import mongo, outages

WRITES = frozenset({"insert", "update", "delete", "findAndModify", "commitTransaction", "createIndexes"})  # fmt: skip
SCRIPTS = frozenset({"EVALSHA", "EVAL"})
CHANGING_STAGES = frozenset({"$merge", "$out"})

# A run is forked from a process that has loaded all of it once.
for found in pkgutil.walk_packages(ledgerctl.__path__, "ledgerctl."):
    if not found.name.endswith("__main__"):
        import_module(found.name)

# An outage "from there on" lasts longer than any run waits; only the full table waits as long.
if os.environ.get("LEDGERCTL_TEST_FAULTS") != "all":
    outages.OUTAGE_S = 5.0
    mongo.SELECTION_TIMEOUT_MS = 5_000


class Event(NamedTuple):
    """A write that is about to be sent, or whose reply has come."""

    store: str  # "mongo" or "redis"
    moment: str  # "before" or "after"
    command: str
    target: str  # the collection or the first list


class Told:
    """Tells the parent of each write and waits for its answer; one write at a time."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def __call__(self, *event: str) -> None:
        try:
            with self._lock:
                self._pipe.send(Event(*event))
                self._pipe.recv()
        except (OSError, EOFError):  # the parent has gone or wants to hear no more
            return


class Listener(monitoring.CommandListener):
    """Hears of the driver's commands in the thread that sends them."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._sent: dict[int, str] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if is_write(event.command_name, event.command):
            target = str(event.command.get(event.command_name))
            self._sent[event.request_id] = target
            self._told("mongo", "before", event.command_name, target)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        target = self._sent.pop(event.request_id, None)
        if target is not None:
            self._told("mongo", "after", event.command_name, target)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        self._sent.pop(event.request_id, None)


def is_write(name: str, command: Mapping[str, Any]) -> bool:
    """Whether a command changes anything."""
    if name == "aggregate":
        stages = command.get("pipeline") or [{}]
        return bool(CHANGING_STAGES & set(stages[-1]))
    return name in WRITES


def listen_to_redis(told: Told) -> None:
    """Hear of every script, before it is sent and after its reply has come."""
    original: Any = Redis._send_command_parse_response

    def heard(self: Redis, connection: Any, name: str, *words: Any, **options: Any) -> Any:
        if name.upper() not in SCRIPTS:
            return original(self, connection, name, *words, **options)
        target = words[3] if len(words) > 3 else b""
        told("redis", "before", name.upper(), target.decode() if isinstance(target, bytes) else str(target))  # fmt: skip
        answer = original(self, connection, name, *words, **options)
        told("redis", "after", name.upper(), str(target))
        return answer

    setattr(Redis, original.__name__, heard)


def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    pipe: Connection,
    out: str,
    err: str,
) -> None:
    """Run one command line as the shell would; stdout and stderr go to these files."""
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    told = Told(pipe)
    monitoring.register(Listener(told))
    listen_to_redis(told)
    from ledgerctl.cli.app import run as run_command

    sys.exit(run_command(list(words)))
