"""Completion in the real shells: static words start no Python, ids are safe, silent and quick."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from pymongo import MongoClient
from redis import Redis

from ledgerctl.cli.completion import FILE_NAMES, command_table, completion_file
from ledgerctl.cli.ids import BOUND_S, offered
from ledgerctl.domain.error_groups import error_group
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.recent import Recent
from tests.builders import make_job, make_row
from tests.conftest import ROOT, Runner
from tests.write_generated import generated

Client = MongoClient[dict[str, Any]]
COMPLETIONS = ROOT / "completions"
HOSTILE_IDS = [
    "*",
    "$(id)",
    "`id`",
    'a"b',
    "a'b",
    "a\\b",
    "a b",
    "a\nb",
    "-rf",
    "~root",
    "é",
    "a;b",
]

STATIC: dict[str, tuple[str, set[str]]] = {
    "a noun": ("ledgerctl dea", {"dead"}),
    "every noun": ("ledgerctl ", {"balance", "job", "dead", "doctor", "help", "demo"}),
    "a command": ("ledgerctl balance gr", {"grant"}),
    "every command of a noun": ("ledgerctl config ", {"show", "init", "path"}),
    "an option": ("ledgerctl job list --acc", {"--account"}),
    "a common option": ("ledgerctl job list --out", {"--output"}),
    "a choice": ("ledgerctl job list --state ref", {"refunded"}),
    "a format after -o": ("ledgerctl job list -o js", {"json", "jsonl"}),
    "a topic": ("ledgerctl help exit", {"exit-codes"}),
    "a shell": ("ledgerctl completion show fi", {"fish"}),
    "a list of the queue": ("ledgerctl queue list dead", {"dead-letter"}),
    "an option of a command without a noun": ("ledgerctl doctor --verb", {"--verbose"}),
}


@pytest.fixture
def program(tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """An environment whose PATH has `ledgerctl`, each start of which leaves a line in a file."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "starts"
    file = folder / "ledgerctl"
    file.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {sys.executable} -m ledgerctl "$@"\n')
    file.chmod(0o755)
    return environment | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "STARTS": str(log),
        "TERM": "dumb",
    }


def starts(environment: dict[str, str]) -> list[str]:
    log = Path(environment["STARTS"])
    return log.read_text().splitlines() if log.exists() else []


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    return found


def in_bash(line: str, environment: dict[str, str]) -> set[str]:
    """COMPREPLY for a line, its words split as bash splits them, at = and : too."""
    script = f"""
    source {COMPLETIONS / "ledgerctl.bash"}
    COMP_WORDS=({" ".join(_quoted(word) for word in _bash_words(line))})
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    compopt() {{ :; }}
    _ledgerctl_complete ledgerctl
    [ "${{#COMPREPLY[@]}}" -eq 0 ] || printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        [needs("bash"), "--norc", "-c", script], env=environment, capture_output=True,
        encoding="utf-8", check=False, timeout=30,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.splitlines())


def _bash_words(line: str) -> list[str]:
    words: list[str] = []
    for part in line.split(" "):
        piece = ""
        for character in part:
            if character in "=:":
                words += [piece, character] if piece else [character]
                piece = ""
            else:
                piece += character
        if piece or not part or part[-1] not in "=:":
            words.append(piece)
    return words


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def in_fish(line: str, environment: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [needs("fish"), "--no-config", "-c",
         f"source {COMPLETIONS / 'ledgerctl.fish'}; complete -C {_quoted(line)}"],
        env=environment, capture_output=True, encoding="utf-8", check=False, timeout=30,
    )  # fmt: skip
    assert done.stderr == ""
    return {one.split("\t")[0] for one in done.stdout.splitlines()}


def in_zsh(line: str, environment: dict[str, str]) -> set[str]:
    """What a fresh interactive zsh offers at its first TAB, with the file in fpath."""
    folder = Path(environment["HOME"]) / "zsh"
    folder.mkdir(exist_ok=True)
    shutil.copy(COMPLETIONS / "_ledgerctl", folder / "_ledgerctl")
    (folder / ".zshrc").write_text(
        f"fpath=({folder} $fpath)\nautoload -Uz compinit && compinit -u -d {folder}/dump\n"
        "PS1='ready> '; unsetopt zle_bracketed_paste; zstyle ':completion:*' list-colors ''\n"
        "setopt no_list_packed list_rows_first; LISTMAX=10000\n"
        "zstyle ':completion:*' format ''\nzstyle ':completion:*' verbose no\n"
    )
    shell = pexpect.spawn(
        needs("zsh"), ["-i"], env=environment | {"ZDOTDIR": str(folder), "TERM": "vt100"},
        encoding="utf-8", timeout=30, dimensions=(60, 200),
    )  # fmt: skip
    try:
        shell.expect_exact("ready> ")
        shell.send(line)
        time.sleep(0.2)
        shell.send("\t")
        settle(shell)
        return set(shown(shell).split())
    finally:
        shell.close(force=True)


def settle(shell: Any) -> None:
    """Wait until the shell has been silent for a while."""
    seen, deadline = "", time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            seen += shell.read_nonblocking(65536, timeout=2.5)
        except (pexpect.TIMEOUT, pexpect.EOF):
            break
    shell.seen = seen


def shown(shell: Any) -> str:
    """What the terminal was sent, without escape sequences."""
    import re

    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|[\r\x00\x07]", " ", shell.seen)


SHELLS: dict[str, Callable[[str, dict[str, str]], set[str]]] = {
    "bash": in_bash,
    "fish": in_fish,
    "zsh": in_zsh,
}


@pytest.mark.parametrize("path", [path for path in generated() if "completions" in str(path)])
def test_the_stored_files_are_what_the_program_prints(path: Path) -> None:
    """After a change of the command line: `python -m tests.write_generated`."""
    assert path.read_text() == generated()[path]


@pytest.mark.parametrize("shell", FILE_NAMES)
def test_completion_show_prints_the_stored_file(run_bare: Runner, shell: str) -> None:
    run = run_bare("completion", "show", shell)
    assert (run.code, run.err) == (0, "")
    assert run.out == (COMPLETIONS / FILE_NAMES[shell]).read_text()


@pytest.mark.parametrize("shell", FILE_NAMES)
def test_every_command_and_option_stands_in_each_file(shell: str) -> None:
    text = completion_file(shell)
    for entry in command_table():
        assert all(word in text for word in entry.path.split())
        long = [name for one in entry.options for name in one.names if name.startswith("--")]
        assert all((f"-l {name[2:]}" if shell == "fish" else name) in text for name in long)


@pytest.mark.parametrize("shell", FILE_NAMES)
def test_the_shell_itself_finds_no_fault_in_its_file(shell: str) -> None:
    done = subprocess.run(
        [needs(shell), "-n", str(COMPLETIONS / FILE_NAMES[shell])], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("line", "expected"), STATIC.values(), ids=list(STATIC))
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_static_words_are_offered_and_start_no_python(
    program: dict[str, str], shell: str, line: str, expected: set[str]
) -> None:
    found = SHELLS[shell](line, program)
    typed = line.rpartition(" ")[2]
    assert expected <= found
    assert all(one.startswith(typed) for one in found)
    assert starts(program) == []


@pytest.mark.parametrize(
    "line", ["ledgerctl job list --state=ref", "ledgerctl job list --output=j"]
)
def test_values_after_an_equals_sign_are_offered(program: dict[str, str], line: str) -> None:
    assert in_bash(line, program) in ({"refunded"}, {"json", "jsonl"})
    assert {one.rpartition("=")[2] for one in in_fish(line, program)} in (
        {"refunded"},
        {"json", "jsonl"},
    )
    assert starts(program) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ledgerctl de", "dead"),
        ("ledgerctl balance gr", "grant"),
        ("ledgerctl job list --acc", "--account"),
        ("ledgerctl job list --state rec", "reclaimed"),
    ],
)
def test_zsh_completes_at_the_first_tab_of_a_fresh_shell(
    program: dict[str, str], line: str, expected: str
) -> None:
    assert expected in in_zsh(line, program)
    assert starts(program) == []


@pytest.fixture
def stored(client: Client, database: str) -> None:
    ids = ["job-1", "job:2", "job.3", *HOSTILE_IDS]
    client[database]["jobs"].insert_many([make_job(one, account_id=f"of-{one}") for one in ids])
    client[database]["ledger"].insert_many([make_row(one) for one in ids])


def pressed_again(press: Callable[[], set[str]], expected: str) -> set[str]:
    """What TAB offers, pressed again on a machine too busy to answer within the bound."""
    deadline = time.monotonic() + 120
    while expected not in (found := press()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def answer(run: Runner, place: dict[str, str | None]) -> set[str]:
    """The job ids that the program itself offers."""
    return set(run("--complete", "job", env=place).out.split())


@pytest.mark.parametrize("shell", SHELLS)
def test_ids_come_from_the_store_and_only_those_that_no_shell_misreads(
    program: dict[str, str], stored: None, shell: str
) -> None:
    found = pressed_again(lambda: SHELLS[shell]("ledgerctl job show job", program), "job-1")
    if shell == "bash":  # it inserts what follows its own break at the colon
        assert {"job-1", "job:2", "job.3"} == found
    assert {"job-1", "job.3"} <= found
    assert len(starts(program)) >= 1
    assert all(line.startswith("--complete job job show") for line in starts(program))


def test_bash_puts_an_id_with_a_colon_together_again(program: dict[str, str], stored: None) -> None:
    for line in ("ledgerctl job show job:", "ledgerctl job list --account of-job:"):
        assert pressed_again(lambda line=line: in_bash(line, program), "2") == {"2"}  # type: ignore[misc]


def test_dead_commands_are_offered_dead_jobs_and_restore_what_it_can_undo(
    stores: Stores, redis_client: Redis, client: Client, database: str
) -> None:
    redis_client.rpush("jobs:dead-letter", '{"job_id":"job-0"}', "no json", '{"job_id":"job-1"}')
    client[database]["jobs"].insert_one(make_job("job-alive"))
    commands = {"op-1": "dead requeue", "op-2": "job refund", "op-3": "dead release"}
    client[database]["operator_log"].insert_many(
        [{"_id": name, "command": command} for name, command in commands.items()]
    )
    recent = Recent(stores)
    assert list(recent.of("dead")) == ["job-1", "job-0"]
    assert list(recent.of("taken")) == ["op-3", "op-1"]
    assert set(recent.of("operation")) == set(commands)
    kinds = {entry.path: entry.words for entry in command_table()}
    assert (kinds["dead show"], kinds["dead restore"], kinds["log show"]) == (
        "@dead",
        "@taken",
        "@operation",
    )


def test_groups_are_offered_with_their_error_and_inserted_without_it(
    stores: Stores, redis_client: Redis, tmp_path: Path
) -> None:
    for number, error in enumerate(["HTTP 503 from upstream", "disk full\non node-7"]):
        redis_client.rpush(
            "jobs:dead-letter", json.dumps({"job_id": f"job-{number}", "error": error})
        )
    first, second = offered(Recent(stores).of("group"))
    group = error_group("HTTP 503 from upstream")
    assert (first.partition("\t")[2], second) == (
        "disk full on node-#",
        f"{group}\tHTTP 503 from upstream",
    )
    fake = tmp_path / "ledgerctl"
    fake.write_text(f"#!/bin/sh\nprintf '%s\\n' '{first}' '{second}'\n")
    fake.chmod(0o755)
    place = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    shown = in_bash("ledgerctl dead list --group ", place)
    assert f"{group}  HTTP 503 from upstream" in shown
    assert in_bash(f"ledgerctl dead list --group {group[:4]}", place) == {group}


@pytest.mark.parametrize(
    "kind", ["job", "account", "operation", "group", "dead", "taken", "nonsense", ""]
)
def test_every_kind_answers_silently_and_offers_safe_ids_alone(
    run: Runner, stored: None, kind: str, tmp_path: Path
) -> None:
    done = run("--complete", kind, env={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.code, done.err) == (0, "")
    assert not set(done.out.split("\n")) & set(HOSTILE_IDS)


def test_the_cache_answers_for_a_while_is_private_and_names_nobody(
    run: Runner, stored: None, client: Client, database: str, tmp_path: Path
) -> None:
    place: dict[str, str | None] = {"XDG_CACHE_HOME": str(tmp_path)}
    first = pressed_again(lambda: answer(run, place), "job-1")
    client[database]["jobs"].insert_one(make_job("job-9"))
    assert answer(run, place) == first
    (file,) = (tmp_path / "ledgerctl").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    os.utime(file, (time.time() - 60, time.time() - 60))
    assert "job-9" in pressed_again(lambda: answer(run, place), "job-9")


@pytest.mark.parametrize(
    "changes",
    [
        {"LEDGERCTL_MONGO_URI": "mongodb://192.0.2.1:27017"},  # swallows packets
        {"LEDGERCTL_MONGO_URI": "mongodb://127.0.0.1:1"},  # refuses
        {"LEDGERCTL_MONGO_URI": "mongodb://no.such.host.invalid"},
        {"LEDGERCTL_MONGO_URI": "not a URI"},
        {"LEDGERCTL_CONFIG": "/no/such/file"},
        {"LEDGERCTL_PROFILE": "none"},
        {"HOME": None, "XDG_CACHE_HOME": None},
        {"XDG_CACHE_HOME": "/proc"},
    ],
)
def test_trouble_offers_nothing_and_says_nothing(
    run_bare: Runner, changes: dict[str, str | None]
) -> None:
    done = run_bare("--complete", "job", "job", "show", env=changes)
    assert (done.code, done.err, done.out) == (0, "", "")


def test_a_look_up_that_hangs_is_ended_before_the_second_is_over() -> None:
    hang = (
        "import time; from ledgerctl.cli.ids import BOUND_S, offered, end_after; end_after(BOUND_S)"
    )
    done = subprocess.run([sys.executable, "-c", f"{hang}; time.sleep(600)"], check=False)
    assert done.returncode == 0
    assert BOUND_S < 1
