"""Real servers for the session, and a database, empty lists and an environment for each test."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from typer.testing import CliRunner

from ledgerctl.cli.app import app
from ledgerctl.config import load
from ledgerctl.errors import LedgerctlError
from ledgerctl.sandbox.launch import Server
from ledgerctl.stores.connections import Stores
from tests.dead_letters import Incident
from tests.servers import SessionServers, stop_on_sigterm
from tests.sharding import ShardRules

ROOT = Path(__file__).resolve().parent.parent
RUN_TIMEOUT_S = 120.0

Client = MongoClient[dict[str, Any]]
Documents = Database[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """How a run of the program ended and what it printed."""

    args: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def err(self) -> str:
        return self.stderr.decode()

    def json(self) -> Any:
        """The one document on stdout."""
        try:
            return json.loads(self.stdout)
        except ValueError as error:
            raise AssertionError(f"not one JSON document: {self}") from error


class Runner(Protocol):
    """Runs the real program; `env` adds to the test's environment, None removes a name."""

    def __call__(
        self,
        *args: str,
        stdin: str | bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout_s: float = RUN_TIMEOUT_S,
    ) -> Run: ...


class Invoker(Protocol):
    """Runs a command line inside this process."""

    def __call__(self, *args: str, stdin: str | bytes | None = None) -> Run: ...


def pytest_configure() -> None:
    stop_on_sigterm()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # thousands of runs would compile all anew


# Where single tests take longest: begun first, so that no worker ends long after the others.
LONG = (
    "cli/test_readme.py",
    "bench/test_benches.py",
    "faults/test_fault_table.py",
    "integration/test_server_rules.py",
    "faults/test_tidy_storm.py",
    "faults/test_step_faults.py",
    "faults/test_dead_kills.py",
    "faults/test_dead_hostile_servers.py",
    "integration/test_operator_rules.py",
    "topologies/test_elections.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long files first, and what runs alone last, when no other worker waits for it."""

    def turn(item: pytest.Item) -> int:
        name = item.path.relative_to(ROOT / "tests").as_posix()
        if name in LONG:
            return LONG.index(name) - len(LONG)
        return int(name.startswith("bench/"))

    items.sort(key=turn)


def _must_start(start: Callable[[], Server]) -> Server:
    """A server that does not start ends the run at once: it never skips a test."""
    try:
        return start()
    except LedgerctlError as error:
        pytest.exit(f"the test servers did not start: {error.message} ({error.hint})", returncode=3)


SHARD_RULES = ShardRules()


@pytest.fixture(scope="session", autouse=True)
def _watched_client() -> Iterator[None]:
    """Every client that the program opens in this process tells its commands to SHARD_RULES."""

    def opened(*args: Any, event_listeners: list[Any], **options: Any) -> Client:
        return MongoClient(*args, event_listeners=[*event_listeners, SHARD_RULES], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ledgerctl.stores.mongo.MongoClient", opened)
        yield


@pytest.fixture(autouse=True)
def _router_refuses_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test's writes are such as a sharded deployment refuses; wrong versions may write so."""
    SHARD_RULES.refused.clear()
    yield
    assert SHARD_RULES.refused == [] or "wrong_version" in request.node.name


@pytest.fixture(autouse=True)
def _turn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """While a test marked `alone` runs, the workers of pytest-xdist run no other."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    place = tmp_path_factory.getbasetemp().parent  # of all workers
    is_alone = request.node.get_closest_marker("alone") is not None
    with (place / "door.lock").open("w") as door, (place / "room.lock").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)  # nobody enters while one waits to be alone
        fcntl.flock(room, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
        fcntl.flock(room, fcntl.LOCK_UN)  # a child that a test left behind has the file open too


@pytest.fixture(scope="session")
def servers() -> Iterator[SessionServers]:
    """Starts more servers when a test needs its own; all of them end with the session."""
    started = SessionServers()
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="session")
def mongod(servers: SessionServers) -> Server:
    """A single-node replica set with fail points (`enableTestCommands`)."""
    return _must_start(servers.mongod)


@pytest.fixture(scope="session")
def mongod_standalone(servers: SessionServers) -> Server:
    """A mongod without a replica set: it has no transactions."""
    return _must_start(lambda: servers.mongod(replica_set=False))


@pytest.fixture(scope="session")
def guarded_mongod(servers: SessionServers) -> Server:
    """A replica set with access control."""
    return _must_start(servers.guarded_mongod)


@pytest.fixture(scope="session")
def guarded_standalone(servers: SessionServers) -> Server:
    """A standalone mongod with access control."""
    return _must_start(lambda: servers.guarded_mongod(replica_set=False))


@pytest.fixture(scope="session")
def valkey(servers: SessionServers) -> Server:
    return _must_start(servers.valkey)


@pytest.fixture(scope="session")
def _replica_set_client(mongod: Server) -> Iterator[Client]:
    with _open_mongo(mongod) as opened:
        yield opened


@pytest.fixture(scope="session")
def _standalone_client(mongod_standalone: Server) -> Iterator[Client]:
    with _open_mongo(mongod_standalone) as opened:
        yield opened


@pytest.fixture
def database() -> str:
    """The name of this test's own database; `client` and `standalone_client` drop it afterwards."""
    return f"test_{token_hex(6)}"


@pytest.fixture
def client(_replica_set_client: Client, database: str) -> Iterator[Client]:
    """A client of the replica set; times come back aware, in UTC."""
    yield _replica_set_client
    _replica_set_client.drop_database(database)


@pytest.fixture
def documents(client: Client, database: str) -> Documents:
    """This test's database, for what foreign writers write."""
    return client[database]


@pytest.fixture
def standalone_client(_standalone_client: Client, database: str) -> Iterator[Client]:
    """A client of the standalone server."""
    yield _standalone_client
    _standalone_client.drop_database(database)


@pytest.fixture
def redis_client(valkey: Server) -> Iterator[Redis]:
    """A client of an empty valkey-server: bytes come back as they stand, nothing is sent twice."""
    opened = Redis.from_url(valkey.uri, retry=Retry(NoBackoff(), 0), socket_timeout=30)
    with opened:
        opened.flushall()
        yield opened


@pytest.fixture
def redis_url(redis_client: Redis, valkey: Server) -> str:
    """The address of the emptied valkey-server."""
    return valkey.uri


@pytest.fixture
def incident(redis_client: Redis, client: Client, environment: dict[str, str]) -> Incident:
    """Empty lists and jobs, for a test to fill with dead letters."""
    return Incident(redis_client, client, environment)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory."""
    place = tmp_path / "home"
    place.mkdir()
    return place


@pytest.fixture
def bare_environment(home: Path) -> dict[str, str]:
    """An environment that names no server: ours without settings, zone, colours and terminal size."""
    prefixes = ("LEDGERCTL_", "XDG_", "PYTEST_")
    names = {"TZ", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(prefixes) and name not in names
    }
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "LEDGERCTL_OPERATOR": "tester"}


@pytest.fixture
def environment(
    bare_environment: dict[str, str],
    mongod: Server,
    database: str,
    client: Client,
    redis_url: str,
) -> dict[str, str]:
    """The environment of a run against this test's database on the replica set, and empty lists."""
    return bare_environment | _addresses(mongod, redis_url, database)


@pytest.fixture
def standalone_environment(
    bare_environment: dict[str, str],
    mongod_standalone: Server,
    database: str,
    standalone_client: Client,
    redis_url: str,
) -> dict[str, str]:
    """The same against the standalone server."""
    return bare_environment | _addresses(mongod_standalone, redis_url, database)


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Runner:
    """Runs the program against the replica set; its standard input is closed unless given."""
    return _runner(environment, tmp_path)


@pytest.fixture
def run_standalone(standalone_environment: dict[str, str], tmp_path: Path) -> Runner:
    """Runs the program against the standalone server."""
    return _runner(standalone_environment, tmp_path)


@pytest.fixture
def run_bare(bare_environment: dict[str, str], tmp_path: Path) -> Runner:
    """Runs the program where no server is named; it starts none."""
    return _runner(bare_environment, tmp_path)


@pytest.fixture
def invoke(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Invoker:
    """Runs a command line inside this process, against the replica set: quicker, no real streams.

    An exception that the program did not turn into an exit code fails the test as it is.
    """
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def invoke(*args: str, stdin: str | bytes | None = None) -> Run:
        result = CliRunner().invoke(app, args, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code != 1, result.stderr  # 1 is a bug in the program
        return Run(args, result.exit_code, result.stdout_bytes, result.stderr_bytes)

    return invoke


def _addresses(mongod: Server, redis_url: str, database: str) -> dict[str, str]:
    return {
        "LEDGERCTL_MONGO_URI": mongod.uri,
        "LEDGERCTL_REDIS_URL": redis_url,
        "LEDGERCTL_DATABASE": database,
    }


def _open_mongo(server: Server) -> Client:
    return MongoClient(server.uri, tz_aware=True, serverSelectionTimeoutMS=10_000)


def _runner(environment: Mapping[str, str], directory: Path) -> Runner:
    def run(
        *args: str,
        stdin: str | bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout_s: float = RUN_TIMEOUT_S,
    ) -> Run:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        with subprocess.Popen(
            [sys.executable, "-m", "ledgerctl", *args],
            cwd=directory,
            env=_changed(environment, env or {}),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as program:
            try:
                out, err = program.communicate(given, timeout=timeout_s)
            except BaseException:
                program.kill()
                raise
        return Run(args, program.returncode, out, err)

    return run


def _changed(environment: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**environment, **changes}
    return {name: value for name, value in merged.items() if value is not None}


@pytest.fixture
def stores(environment: dict[str, str]) -> Iterator[Stores]:
    """The stores of this test's database on the replica set, opened as a command opens them."""
    with Stores(load(environment=environment)) as opened:
        yield opened


@pytest.fixture
def standalone_stores(standalone_environment: dict[str, str]) -> Iterator[Stores]:
    """The same on the standalone server, which has no transactions."""
    with Stores(load(environment=standalone_environment)) as opened:
        yield opened
