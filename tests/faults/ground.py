"""Real servers, the state of everything that counts, and runs that stop at each write."""

import json
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from pymongo import MongoClient
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ledgerctl.config import load
from ledgerctl.operations.audit import Audit, Scope
from ledgerctl.operations.database import build_indexes
from ledgerctl.sandbox.launch import Server
from ledgerctl.stores.connections import Stores
from tests.builders import NOON
from tests.faults import child
from tests.faults.cases import DEAD, Case
from tests.servers import SessionServers, wait_until

COLLECTIONS = ("jobs", "ledger", "outbox", "inbox", "usage_daily")
OTHERS = ("operator_log", "dead_archive", "leases")
HUNG_S = 100.0
VOLATILE = frozenset({"operation_id", "claimed_by", "completed_by", "attempts", "deliveries", "last_error", "claimed_until", "not_before", "token"})  # fmt: skip
MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z")
ATTEMPTS = re.compile(rb'"attempts": ?\d+')
PASSED = f"{DEAD}:passed:"
NOTES = (f"{DEAD}:op:", f"{DEAD}:restored:")

Findings = Counter[tuple[str, str]]


@dataclass
class State:
    """Money, claims, summaries and lists at one moment; the operator log excepted."""

    collections: dict[str, dict[Any, dict[str, Any]]]
    lists: dict[str, list[bytes]]
    released: list[bytes]  # what the archive holds and the operations' notes name
    indexes: frozenset[str]

    def entries(self, key: str) -> list[bytes]:
        """A list; for the dead letters those passed over come first."""
        passed = sorted(name for name in self.lists if name.startswith(PASSED))
        keys = (*passed, key) if key == DEAD else (key,)
        return [raw for name in keys for raw in self.lists.get(name, [])]

    def whereabouts(self) -> Counter[str]:
        """On how many lists, or in the archive as released, each job stands."""
        keys = [key for key in self.lists if not key.startswith(NOTES)]
        entries = [raw for key in keys for raw in self.lists[key]] + self.released
        return Counter(str(json.loads(raw)["job_id"]) for raw in entries)

    def told_apart(self) -> tuple[Any, ...]:
        """What must be equal for "nothing changed": all of it, letters in their order."""
        keys = {key for key in self.lists if not key.startswith(PASSED)} | {DEAD}
        lists = {key: self.entries(key) for key in sorted(keys) if self.entries(key)}
        return self.collections, lists, self.indexes

    def outcome(self, *, attempts: bool) -> tuple[Any, ...]:
        """What must be equal once a command is complete, however many runs it took.

        Times, owners and operation ids differ from run to run.
        """
        collections = {
            name: {key: settled(one, name) for key, one in documents.items()}
            for name, documents in self.collections.items()
        }
        lists = {
            key: sorted(entry_outcome(raw, attempts=attempts) for raw in entries)
            for key, entries in sorted(self.lists.items())
            if not key.startswith(NOTES)
        }
        return collections, lists, sorted(self.released), self.indexes


def settled(document: Mapping[str, Any], collection: str) -> dict[str, Any]:
    """A document without what differs from run to run."""
    return {
        name: value_outcome(value)
        for name, value in document.items()
        if not (name in VOLATILE or (collection == "inbox" and name == "_id"))
    }


def value_outcome(value: Any) -> Any:
    """A value with its times made equal."""
    if isinstance(value, Mapping):
        return {name: value_outcome(one) for name, one in value.items()}
    if isinstance(value, str):
        return MOMENT.sub(b"T", value.encode()).decode()
    return "T" if isinstance(value, datetime) else value


def entry_outcome(raw: bytes, *, attempts: bool) -> bytes:
    """An entry with its times made equal, and its count left out unless asked for."""
    raw = MOMENT.sub(b"T", raw)
    return raw if attempts else ATTEMPTS.sub(b"", raw)


@dataclass
class Ending:
    """How a run ended: its code (negative: killed by that signal) and what it said."""

    code: int
    out: str
    err: str
    events: list[child.Event]
    took_s: float

    def document(self) -> Any:
        """The one document on stdout, or None."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    def error(self) -> dict[str, Any] | None:
        """The error in the document on stdout, or the one on stderr."""
        document = self.document()
        found: dict[str, Any] | None = None if document is None else document.get("error")
        return self.error_document() if document is None else found

    def error_document(self) -> dict[str, Any] | None:
        """The error on stderr, the last line; what is said of waiting comes before it."""
        last = self.err.strip().rpartition("\n")[2]
        found: dict[str, Any] | None = json.loads(last)["error"] if last.startswith("{") else None
        return found


Act = Callable[[child.Event, "multiprocessing.process.BaseProcess"], None]


@dataclass
class Ground:
    """One MongoDB deployment and one valkey-server, set to a case's stock again and again."""

    kind: str
    servers: SessionServers
    mongod: Server
    valkey: Server
    environment: Mapping[str, str]
    directory: Path
    database: str = "faults"

    def __post_init__(self) -> None:
        self.client: MongoClient[dict[str, Any]] = MongoClient(
            self.mongod.uri, tz_aware=True, serverSelectionTimeoutMS=20_000, appname="the test",
            journal=True,  # the stock has to outlive a server that is killed at once
        )  # fmt: skip
        self.redis = Redis.from_url(self.valkey.uri, retry=Retry(NoBackoff(), 0), socket_timeout=30)
        self.stores = Stores(load(environment=self.variables({})))
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.faults.child"])
        self._snapshot: dict[str, list[dict[str, Any]]] = {}
        self._lists: dict[str, list[bytes]] = {}
        self._indexed = True
        self.operation_id = ""

    def variables(self, changes: Mapping[str, str]) -> dict[str, str]:
        """The environment of a run."""
        places = {
            "LEDGERCTL_MONGO_URI": self.mongod.uri,
            "LEDGERCTL_REDIS_URL": self.valkey.uri,
            "LEDGERCTL_DATABASE": self.database,
        }
        return {**self.environment, **places, **changes}

    @property
    def db(self) -> Any:
        return self.client[self.database]

    def close(self) -> None:
        """Give the connections back."""
        self.stores.close()
        self.client.close()
        self.redis.close()

    # stock

    def prepare(self, case: Case) -> None:
        """Put a case's stock in place and remember it."""
        self.client.drop_database(self.database)
        self.redis.flushall()
        self._indexed = case.indexed
        if case.indexed:
            build_indexes(self.stores)
        stock = case.stock()
        for name, documents in stock.collections.items():
            self.db[name].insert_many(documents)
        for key, entries in stock.lists.items():
            self.redis.rpush(key, *entries)
        for words in case.first:
            ending = self.run(words)
            assert ending.code == 0, ending.err
            self.operation_id = ending.document()["operation_id"]
        self._snapshot = {name: list(self.db[name].find()) for name in (*COLLECTIONS, *OTHERS)}
        self._lists = self.lists()

    def reset(self) -> None:
        """Put everything back to what `prepare` left."""
        if not self._indexed:
            self.client.drop_database(self.database)
        for name, documents in self._snapshot.items():
            if list(self.db[name].find()) != documents:
                self.db[name].delete_many({})
                if documents:
                    self.db[name].insert_many(documents)
        if self.lists() != self._lists:
            self.redis.flushall()
            for key, entries in self._lists.items():
                self.redis.rpush(key, *entries)

    def lapse(self) -> None:
        """Let time pass: leases and claims run out, open transactions are ended by the server."""
        self.client.admin.command("killAllSessions", [])
        past = [{"$set": {"expires_at": {"$subtract": ["$$NOW", 1]}}}]
        self.db.leases.update_many({}, past)
        self.db.inbox.update_many({"status": "claimed"}, {"$set": {"claimed_until": NOON}})
        self.db.inbox.update_many({"not_before": {"$ne": None}}, {"$set": {"not_before": NOON}})

    # state

    def lists(self) -> dict[str, list[bytes]]:
        """Every list as it stands."""
        keys = sorted(cast(list[bytes], self.redis.keys("*")))
        return {key.decode(): cast(list[bytes], self.redis.lrange(key, 0, -1)) for key in keys}

    def state(self) -> State:
        """Everything that counts, read with nothing of the program."""
        lists = self.lists()
        notes = {
            (key.rsplit(":", 1)[1], int(number))
            for key, numbers in lists.items()
            if key.startswith(NOTES[0])
            for number in numbers
        }
        released = [
            bytes(one["payload"])
            for one in self.db.dead_archive.find(
                {"operation_id": {"$in": [operation for operation, _ in notes]}}
            )
            if (one["operation_id"], one["chunk"]) in notes and not one.get("written_sha256")
        ]
        collections = {
            name: {document_key(one, name): one for one in self.db[name].find()}
            for name in COLLECTIONS
        }
        indexes = frozenset(
            f"{name}.{index}"
            for name in (COLLECTIONS if not self._indexed else ())
            for index in self.db[name].index_information()
            if index != "_id_"
        )
        return State(collections, lists, released, indexes)

    def logged(self) -> dict[str, Any] | None:
        """The entry of the operator log that the last run began, or None."""
        entry: dict[str, Any] | None = self.db.operator_log.find_one(sort=[("_id", -1)])
        before = {one["_id"] for one in self._snapshot["operator_log"]}
        return None if entry is None or entry["_id"] in before else entry

    def findings(self) -> Findings:
        """What the audit finds, by code and job."""
        found = Audit(self.stores, Scope()).findings()
        return Counter((str(one.code), str(one.job_id)) for one in found)

    # running

    def run(
        self,
        words: tuple[str, ...],
        act: Act = lambda _event, _process: None,
        changes: Mapping[str, str] | None = None,
    ) -> Ending:
        """Run a command line; `act` is called at each write while the run waits."""
        out, err = self.directory / "out", self.directory / "err"
        ours, theirs = self.context.Pipe()
        words = tuple(self.operation_id if word == "OPERATION" else word for word in words)
        arguments = ((*words, "-o", "json"), self.variables(changes or {}), theirs, out, err)
        process = self.context.Process(target=child.run, args=arguments)
        began = time.monotonic()
        process.start()
        theirs.close()
        events: list[child.Event] = []
        try:
            follow(process, ours, act, events)
            process.join(HUNG_S)
        finally:
            hung = process.is_alive()
            process.kill()
            process.join()
        code = -999 if hung else int(process.exitcode or 0)
        took_s = time.monotonic() - began
        return Ending(code, out.read_text(), err.read_text(), events, took_s)

    # what faults need

    def await_servers(self) -> None:
        """Wait until both servers take writes again."""
        if not self.mongod.alive():
            self.mongod = self.servers.again(self.mongod)
        if not self.valkey.alive():
            self.valkey = self.servers.again(self.valkey)
        wait_until(self._is_primary)

    def _is_primary(self) -> bool:
        with suppress(Exception):
            return bool(self.client.admin.command("hello")["isWritablePrimary"])
        return False


def document_key(document: Mapping[str, Any], collection: str) -> Any:
    """What tells a document from the others; a claim's own id differs from run to run."""
    if collection == "inbox":
        return document["consumer_group"], document["message_key"]
    return document["_id"]


def follow(process: Any, pipe: Connection, act: Act, events: list[child.Event]) -> None:
    """Answer a run at each write until it ends or seems to hang."""
    deadline = time.monotonic() + HUNG_S
    while time.monotonic() < deadline:
        ready = wait([pipe, process.sentinel], timeout=1)
        if pipe in ready:
            try:
                event = pipe.recv()
            except (EOFError, OSError):
                return
            events.append(event)
            act(event, process)
            with suppress(OSError):
                pipe.send(None)
        elif ready:
            return
