"""Where a bench runs: its servers, its seeded data, the installed program, and the clock."""

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from pymongo import MongoClient
from pymongo.database import Database
from redis import Redis

from ledgerctl.sandbox.launch import Server, start_mongod, start_valkey
from tests.bench.generate import Document, Plan, build_indexes, generate

ROOT = Path(__file__).resolve().parent.parent.parent
BARE = Path(__file__).with_name("bare.py")
MEASURED = Path(__file__).with_name("measured.py")
CACHE_OF_MONGOD = "cache_size=1G"  # the sandbox's quarter of it would measure the disk
MADE = "bench_made"  # the collection that says that a database is complete


@dataclass(frozen=True)
class Size:
    """How large the work is, as a share of the issue's figures, and how often it is measured."""

    name: str
    share: float
    rounds: int

    def of(self, count: int, least: int = 200) -> int:
        """This many, at this size."""
        return max(int(count * self.share), least)


SIZES = {
    one.name: one for one in (Size("tiny", 0.001, 1), Size("small", 0.2, 3), Size("full", 1, 3))
}


@dataclass(frozen=True)
class Command:
    """A whole process to measure; `codes` are the exit codes that mean it did its work."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[int, ...] = (0,)
    output: Path | None = None  # its stdout is kept here, else thrown away


@dataclass(frozen=True)
class Best:
    """The quickest of several runs, and the most memory that any of them had."""

    seconds: float
    cpu_s: float
    memory_mb: float


@dataclass(frozen=True)
class Claim:
    """One figure beside what it must reach."""

    what: str
    figure: float | None
    limit: float
    at_least: bool = False
    unit: str = "×"
    skipped: str = ""  # why it was not measured
    detail: str = ""

    @property
    def verdict(self) -> str:
        """ok, missed or skipped."""
        if self.figure is None:
            return "skipped"
        reached = self.figure >= self.limit if self.at_least else self.figure <= self.limit
        return "ok" if reached else "missed"


class BenchFailed(Exception):
    """A command that was to be measured did not do its work."""


@dataclass
class Place:
    """One run of the benches. `directory` keeps the servers' files; it goes unless it was given."""

    directory: Path
    size: Size
    _servers: list[Server] = field(default_factory=list)

    @cached_property
    def mongod(self) -> Server:
        """A single-node replica set with a cache that holds the ledgers."""
        server = start_mongod(self.directory / "mongod", replica_set=True)
        self._servers.append(server)
        with MongoClient[Document](server.uri) as client:
            client.admin.command("setParameter", 1, wiredTigerEngineRuntimeConfig=CACHE_OF_MONGOD)
        return server

    @cached_property
    def mongo(self) -> MongoClient[Document]:
        """A client of it."""
        return MongoClient(self.mongod.uri, tz_aware=True)

    @cached_property
    def valkey(self) -> Server:
        """A valkey-server that writes nothing to disk."""
        server = start_valkey(self.directory / "valkey", extra=("--appendonly", "no"))
        self._servers.append(server)
        return server

    @cached_property
    def redis(self) -> Redis:
        """A client of it."""
        return Redis.from_url(self.valkey.uri, socket_timeout=600)

    def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.stop()

    # data

    def ledger(self, *plans: Plan) -> str:
        """The name of a database that holds these plans' rows one after another, with indexes."""
        content = repr(plans)
        name = f"bench_{sha256(content.encode()).hexdigest()[:12]}"
        database = self.mongo[name]
        if database[MADE].find_one() is None:
            say(f"making {' and '.join(f'{plan.rows:,}' for plan in plans)} rows")
            self.mongo.drop_database(name)
            for place, plan in enumerate(plans):
                generate(database, plan, replace=place == 0)
            self.index(name)
            database[MADE].insert_one({"plans": content})
        return name

    def index(self, name: str) -> None:
        """Build the contract's indexes."""
        build_indexes(self.settings(name))

    def database(self, name: str) -> Database[Document]:
        """A database by its name."""
        return self.mongo[name]

    # processes

    def settings(self, database: str = "bench", *, queues: bool = False) -> dict[str, str]:
        """The settings of the program as environment variables."""
        found = {
            "LEDGERCTL_MONGO_URI": self.mongod.uri,
            "LEDGERCTL_DATABASE": database,
            "LEDGERCTL_OPERATOR": "bench",
            "LEDGERCTL_CONFIG": "",
        }
        return found | ({"LEDGERCTL_REDIS_URL": self.valkey.uri} if queues else {})

    @cached_property
    def program(self) -> Path:
        """The program as a wheel installs it: compiled, and started by the wheel's launcher."""
        return install(self.directory / "installed")

    def ours(
        self,
        *words: str,
        database: str = "bench",
        queues: bool = False,
        codes: tuple[int, ...] = (0,),
    ) -> Command:
        """A command line of the program."""
        environment = self.settings(database, queues=queues) | {
            "PYTHONPATH": str(self.program.parent.parent)
        }
        return Command([str(self.program), *words], environment, codes)

    def bare(self, *words: str, database: str = "bench", queues: bool = False) -> Command:
        """A program of `bare.py`; the product is importable, for those that measure it as a library."""
        environment = self.settings(database, queues=queues) | {
            "PYTHONPATH": str(self.program.parent.parent)
        }
        return Command([sys.executable, str(BARE), *words], environment)

    def keeping(self, command: Command, name: str) -> tuple[Command, Path]:
        """The same command with its output kept in a file."""
        path = self.directory / name
        return replace(command, output=path), path

    def run(self, command: Command) -> Best:
        """Run a command once and measure it."""
        report = self.directory / "report.json"
        report.unlink(missing_ok=True)
        output = str(command.output or os.devnull)
        with (self.directory / "stderr.txt").open("w+b") as errors:
            subprocess.run(
                [sys.executable, "-I", "-S", str(MEASURED), str(report), output, *command.words],
                env=plain_environment() | dict(command.environment),
                stdin=subprocess.DEVNULL,
                stderr=errors,
                check=True,
            )
            figures = json.loads(report.read_text(encoding="utf-8"))
            if figures.pop("code") not in command.codes:
                errors.seek(0)
                raise BenchFailed(f"{' '.join(command.words)}: {errors.read().decode()[-2000:]}")
        return Best(**figures)

    def alternately(
        self,
        commands: Mapping[str, Command],
        *,
        rounds: int | None = None,
        before: Callable[[str], None] = lambda _: None,
        after: Callable[[str], None] = lambda _: None,
    ) -> dict[str, Best]:
        """Run the commands in turns; `before` and `after` are told the name around each run."""
        found: dict[str, Best] = {}
        for _ in range(rounds or self.size.rounds):
            for name, command in commands.items():
                before(name)
                found[name] = better(found.get(name), self.run(command))
                after(name)
        for name, best in found.items():
            say(f"{name}: {best.seconds:.3f} s, {best.cpu_s:.3f} s CPU, {best.memory_mb:.0f} MB")
        return found


def better(one: Best | None, other: Best) -> Best:
    """The quicker times and the larger memory of two."""
    if one is None:
        return other
    return Best(
        min(one.seconds, other.seconds),
        min(one.cpu_s, other.cpu_s),
        max(one.memory_mb, other.memory_mb),
    )


def install(place: Path) -> Path:
    """Copy the program as a wheel would lay it out, compiled; return its launcher."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copytree(ROOT / "ledgerctl", place / "ledgerctl", ignore=shutil.ignore_patterns("*.pyc"))
    compileall.compile_dir(place / "ledgerctl", quiet=1)
    script = place / "bin" / "ledgerctl"
    script.parent.mkdir()
    source = (ROOT / "ledgerctl" / "launcher.py").read_text(encoding="utf-8")
    script.write_text(f"#!{sys.executable}\n" + source.partition("\n")[2], encoding="utf-8")
    script.chmod(0o755)
    return script


def plain_environment() -> dict[str, str]:
    """This environment without the program's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LEDGERCTL_")}


def say(text: str) -> None:
    """Tell on stderr what is going on."""
    print(f"  {text}", file=sys.stderr, flush=True)


@contextmanager
def opened(size: Size, directory: Path | None = None) -> Iterator[Place]:
    """A place in a directory that is kept, or in one that goes with it."""
    kept = directory or Path(tempfile.mkdtemp(prefix="ledgerctl-bench-"))
    kept.mkdir(parents=True, exist_ok=True)
    place = Place(kept, size)
    try:
        yield place
    finally:
        place.close()
        if directory is None:
            shutil.rmtree(kept, ignore_errors=True)


def ratio(what: str, one: float, other: float, limit: float, *, at_least: bool = False) -> Claim:
    """A claim about how many times the one is the other."""
    return Claim(what, one / other, limit, at_least)


def skipped(what: str, why: str) -> Claim:
    """A claim that could not be measured."""
    return Claim(what, None, 0, skipped=why)
