"""Servers that stand in for several machines: each may be killed, frozen, thawed and started anew."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from pymongo import MongoClient
from redis import Redis
from redis.exceptions import RedisError

from ledgerctl.sandbox import binaries
from ledgerctl.sandbox.binaries import MONGOD, VALKEY
from tests.servers import SessionServers

LOOPBACK = "127.0.0.1"
READY_S = 60.0


def free_port() -> int:
    """A port that nobody listens on, also 10000 higher, where a cluster's bus listens."""
    while True:
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
            with suppress(OSError, OverflowError):
                bus.bind((LOOPBACK, port + 10_000))
                return port


@dataclass
class Machine:
    """One server process on its own port and directory."""

    command: Sequence[str]
    port: int
    directory: Path
    servers: SessionServers
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def name(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, or start it anew on its files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory.parent / f"{self.directory.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command], cwd=self.directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        self.servers.guard(self.process.pid)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut does."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    @property
    def redis(self) -> Redis:
        """A client of this very node."""
        return Redis(LOOPBACK, self.port, socket_timeout=5)

    def ask(self, *words: object) -> Any:
        """The raw reply to a command for which the driver has no typed method."""
        return cast(Any, self.redis).execute_command(*words, NEVER_DECODE=True)


@dataclass
class Machines:
    """Machines that end together."""

    servers: SessionServers
    directory: Path
    all: list[Machine] = field(default_factory=list)

    def add(self, command: Callable[[Path, int], Sequence[str]]) -> Machine:
        port = free_port()
        place = self.directory / f"machine-{port}"
        machine = Machine(command(place, port), port, place, self.servers)
        machine.start()
        self.all.append(machine)
        return machine

    def close(self) -> None:
        for machine in self.all:
            machine.kill()


def settle(condition: Callable[[], bool], *, timeout_s: float = READY_S) -> None:
    """Return once the condition holds, whatever errors come before that."""
    deadline = time.monotonic() + timeout_s
    while True:
        with suppress(Exception):  # servers that are not up yet
            if condition():
                return
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def mongod(place: Path, port: int) -> list[str]:
    """A member of a replica set of three."""
    return [
        str(binaries.find(MONGOD)), "--dbpath", str(place), "--port", str(port),
        "--bind_ip", LOOPBACK, "--nounixsocket", "--replSet", "three", "--oplogSize", "64",
        "--wiredTigerCacheSizeGB", "0.25", "--quiet",
        "--setParameter", "diagnosticDataCollectionEnabled=false",
    ]  # fmt: skip


def valkey(place: Path, port: int, *extra: str) -> list[str]:
    """A node without persistence."""
    return [
        str(binaries.find(VALKEY)), "--port", str(port), "--dir", str(place), "--bind", LOOPBACK,
        "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0", *extra,
    ]  # fmt: skip


class ReplicaSet:
    """Three mongods, one of them primary; default election timings."""

    def __init__(self, machines: Machines) -> None:
        self.members = [machines.add(mongod) for _ in range(3)]
        config = {
            "_id": "three",
            "members": [{"_id": at, "host": one.name} for at, one in enumerate(self.members)],
        }
        first = self.members[0]
        settle(lambda: self._asks(first, "replSetInitiate", config))
        self.client: MongoClient[dict[str, Any]] = MongoClient(
            self.uri, serverSelectionTimeoutMS=60_000, tz_aware=True
        )
        self.settle()

    @property
    def uri(self) -> str:
        return f"mongodb://{','.join(one.name for one in self.members)}/?replicaSet=three"

    def settle(self) -> None:
        """Return once a primary takes writes and both others follow it."""
        settle(lambda: self._states() == [1, 2, 2])

    def primary(self) -> Machine:
        """The member that takes writes now."""
        while True:
            for one in self.members:
                with (
                    suppress(Exception),
                    MongoClient[dict[str, Any]](
                        LOOPBACK, one.port, directConnection=True, serverSelectionTimeoutMS=1000
                    ) as client,
                ):
                    if client.admin.command("hello")["isWritablePrimary"]:
                        return one
            time.sleep(0.1)

    def step_down(self) -> None:
        """Tell the primary to make room."""
        with MongoClient[dict[str, Any]](
            LOOPBACK, self.primary().port, directConnection=True
        ) as client:
            client.admin.command("replSetStepDown", 20, secondaryCatchUpPeriodSecs=10)

    def _states(self) -> list[int]:
        status = self.client.admin.command("replSetGetStatus")
        return sorted(one["state"] for one in status["members"])

    @staticmethod
    def _asks(machine: Machine, name: str, value: object) -> bool:
        with MongoClient[dict[str, Any]](
            LOOPBACK, machine.port, directConnection=True, serverSelectionTimeoutMS=1000
        ) as client:
            return bool(client.admin.command(name, value)["ok"])


class Sentinels:
    """A primary, two replicas and three sentinels that watch them as `jobs`."""

    def __init__(self, machines: Machines) -> None:
        self.nodes = [machines.add(valkey)]
        first = self.nodes[0]
        settle(partial(first.ask, "PING"))
        self.nodes += [
            machines.add(lambda place, port: valkey(place, port, "--replicaof", LOOPBACK, str(first.port)))
            for _ in range(2)
        ]  # fmt: skip
        settle(lambda: first.redis.info("replication")["connected_slaves"] == 2)
        self.sentinels = [machines.add(self._sentinel) for _ in range(3)]
        settle(lambda: all(self._sees_all(one) for one in self.sentinels))

    def _sentinel(self, place: Path, port: int) -> list[str]:
        place.mkdir(parents=True, exist_ok=True)
        settings = place / "sentinel.conf"
        settings.write_text(
            f"port {port}\nbind {LOOPBACK}\ndir {place}\n"
            f"sentinel monitor jobs {LOOPBACK} {self.nodes[0].port} 2\n"
            "sentinel down-after-milliseconds jobs 3000\nsentinel failover-timeout jobs 10000\n"
        )
        return [str(binaries.find(VALKEY)), str(settings), "--sentinel"]

    def _sees_all(self, machine: Machine) -> bool:
        state = self.master(machine)
        return (state["num-slaves"], state["num-other-sentinels"], state["flags"]) == (
            2,
            2,
            "master",
        )

    @staticmethod
    def master(machine: Machine) -> dict[str, Any]:
        """What one sentinel says of the primary."""
        client = Redis(LOOPBACK, machine.port, decode_responses=True, socket_timeout=5)
        return dict(client.sentinel_master("jobs"))  # type: ignore[arg-type]  # not awaited

    @property
    def url(self) -> str:
        hosts = ",".join(one.name for one in self.sentinels)
        return f"redis+sentinel://{hosts}/jobs/0"

    def primary(self) -> Machine:
        """The node that the first sentinel names now."""
        port = int(self.master(self.sentinels[0])["port"])
        return next(one for one in self.nodes if one.port == port)

    def failover(self) -> None:
        self.sentinels[0].ask("SENTINEL", "FAILOVER", "jobs")

    def settle(self) -> None:
        """Return once all sentinels agree on a primary with two replicas in step."""

        def agreed() -> bool:
            states = [self.master(one) for one in self.sentinels]
            primary = self.primary().redis
            links = primary.info("replication")
            return (
                len({one["port"] for one in states}) == 1
                and {one["flags"] for one in states} == {"master"}
                and primary.role()[0] == b"master"
                and links["connected_slaves"] == 2
                and all(links[f"slave{at}"]["state"] == "online" for at in range(2))
            )

        settle(agreed, timeout_s=90)


class Cluster:
    """Three masters with a replica each; slots are spread evenly."""

    def __init__(self, machines: Machines) -> None:
        self.nodes = [
            machines.add(
                lambda place, port: valkey(
                    place, port, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"
                )
            )
            for _ in range(6)
        ]
        for one in self.nodes:
            settle(partial(one.ask, "PING"))
        for one in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", LOOPBACK, one.port)
        step = 16_384 // 3
        for at, one in enumerate(self.nodes[:3]):
            last = 16_383 if at == 2 else (at + 1) * step - 1
            one.ask("CLUSTER", "ADDSLOTSRANGE", at * step, last)
        settle(lambda: all(b"cluster_known_nodes:6" in self._info(one) for one in self.nodes))
        for at, one in enumerate(self.nodes[3:]):
            master = self.identity(self.nodes[at])
            settle(partial(one.ask, "CLUSTER", "REPLICATE", master))
        settle(lambda: all(b"cluster_state:ok" in self._info(one) for one in self.nodes))

    @staticmethod
    def _info(machine: Machine) -> bytes:
        return bytes(machine.ask("CLUSTER", "INFO"))

    @staticmethod
    def identity(machine: Machine) -> str:
        return str(machine.ask("CLUSTER", "MYID").decode())

    def owner(self, slot: int) -> Machine:
        """The master that holds a slot now, by the view of the nodes that answer."""
        for one in self.nodes:
            with suppress(RedisError):
                for first, last, master, *_ in one.ask("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(node for node in self.nodes if node.port == master[1])
        raise AssertionError("nobody knows the slot")

    def url(self, at: int = 0) -> str:
        return f"redis://{self.nodes[at].name}/0"

    def masters(self) -> list[Machine]:
        """The nodes that hold slots."""
        return [one for one in self.nodes if one.redis.role()[0] == b"master"]

    def migrate(self, slot: int, to: Machine, *, pause_s: float = 0.0) -> None:
        """Move a slot key by key, as `redis-cli --cluster reshard` does."""
        source = self.owner(slot)
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.identity(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.identity(to))
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.ask("MIGRATE", LOOPBACK, to.port, "", 0, 5000, "KEYS", *keys)
            time.sleep(pause_s)
        for one in (to, source, *self.masters()):
            one.ask("CLUSTER", "SETSLOT", slot, "NODE", self.identity(to))

    def migrate_at_once(self, slot: int, to: Machine) -> None:
        """Move a slot as a whole, as Valkey 9 does by itself."""
        self.owner(slot).ask(
            "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.identity(to)
        )
        settle(lambda: self.owner(slot) is to)
