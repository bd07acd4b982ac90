"""Every way to go wrong ends in a few words, one code, and never in a trace or a wrong outcome."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledgerctl.addresses import Secret
from ledgerctl.cli.boundary import bug, option_value, wants_json
from ledgerctl.cli.command import run_command
from ledgerctl.cli.session import Session, Words
from ledgerctl.errors import HungUp, Interrupted, InvariantBroken, LedgerctlError, Terminated
from tests.conftest import Run, Runner
from tests.servers import wait_until

MISTAKES = {
    "a noun misspelt": (["ded", "list"], "did you mean dead?"),
    "a command misspelt": (["balance", "shw"], "did you mean show?"),
    "an option misspelt": (["job", "list", "--acount", "a"], "did you mean --account?"),
    "a noun without a command": (["job"], "show, list, charge, refund, reclaim"),
    "a missing argument": (["balance", "show"], "missing argument 'ACCOUNT'"),
    "a missing option": (["job", "charge", "j-1", "--cost", "1"], "missing option '--account'"),
    "a word for a number": (["job", "list", "--limit", "x"], "'x' is not a whole number"),
    "a number below its range": (["job", "list", "--limit", "-1"], "-1 is below 0"),
    "a choice that is none": (["job", "list", "--state", "lost"], "'charged'"),
    "a format that is none": (["job", "list", "-o", "yaml"], "'jsonl'"),
    "too many words": (["balance", "show", "a", "b"], "too many words: (b)"),
    "an option before the command": (["--yes", "job", "list"], "before the command"),
    "nothing like a command": (["frobnicate"], "has no command 'frobnicate'"),
}


def error_lines(run: Run) -> list[str]:
    assert run.stdout == b""
    return run.err.splitlines()


@pytest.mark.parametrize("words", [case[0] for case in MISTAKES.values()], ids=list(MISTAKES))
def test_a_mistake_is_told_in_at_most_three_lines_with_its_code(
    run_bare: Runner, words: list[str]
) -> None:
    run = run_bare(*words)
    lines = error_lines(run)
    assert run.code == 2
    assert len(lines) <= 3
    assert lines[0].startswith("error: ")
    assert lines[-1] == "  [usage, exit 2]"


@pytest.mark.parametrize(("words", "expected"), MISTAKES.values(), ids=list(MISTAKES))
def test_with_json_a_mistake_is_exactly_one_document(
    run_bare: Runner, words: list[str], expected: str
) -> None:
    run = run_bare(*words, env={"LEDGERCTL_OUTPUT": "json"})
    document = json.loads(run.err)
    assert run.stdout == b""
    assert set(document) == {"error"}
    assert set(document["error"]) == {"code", "message", "hint", "exit_code"}
    assert document["error"]["exit_code"] == run.code == 2
    assert expected in document["error"]["message"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["job", "list", "-o", "json"], True),
        (["job", "list", "-ojson"], True),
        (["job", "list", "-qojson"], True),
        (["job", "list", "-qo", "json"], True),
        (["job", "list", "--output=json"], True),
        (["job", "list", "--output", "json"], True),
        (["job", "list", "-o", "plain", "-o", "json"], True),
        (["job", "list", "-o", "json", "-o", "plain"], False),
        (["job", "show", "--", "-o", "json"], False),
        (["job", "list", "-o"], False),
        (["job", "list", "--config", "-ojson"], True),
        (["job", "list", "-vo=json"], True),
        (["job", "list"], False),
        ([], False),
    ],
)
def test_the_format_of_errors_is_judged_from_the_words(words: list[str], expected: bool) -> None:
    assert wants_json(words, {}) is expected


def test_the_words_win_over_the_environment_and_an_empty_variable_is_unset() -> None:
    assert wants_json([], {"LEDGERCTL_OUTPUT": "json"})
    assert not wants_json(["-o", "csv"], {"LEDGERCTL_OUTPUT": "json"})
    assert not wants_json([], {"LEDGERCTL_OUTPUT": ""})


def test_only_long_options_with_a_value_are_found() -> None:
    assert option_value(["--profile", "a", "--profile=b"], "--profile") == "b"
    assert option_value(["--profiles", "a"], "--profile") is None


def test_json_chosen_by_the_file_or_its_profile_holds_for_errors_too(
    run_bare: Runner, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[profiles.machine]\noutput = "json"\n')
    file.chmod(0o600)
    words = ["balance", "shw", "--config", str(file)]
    assert run_bare(*words).err.startswith("error: ")
    assert "error" in json.loads(run_bare(*words, "--profile", "machine").err)


def test_a_broken_file_has_no_say_and_its_own_error_comes_in_the_format_asked_for(
    run_bare: Runner, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("output = ")
    run = run_bare("balance", "show", "a", "--config", str(file), "-o", "json")
    assert json.loads(run.err)["error"]["code"] == "settings"
    assert run_bare("balance", "show", "a", "--config", str(file)).err.startswith("error: ")


@pytest.mark.parametrize(
    "words", [["sandbox", "status"], ["help", "safety"], ["completion", "show", "bash"]]
)
def test_a_broken_file_stops_nothing_that_needs_no_settings(
    run_bare: Runner, tmp_path: Path, words: list[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("output = ")
    run = run_bare(*words, env={"LEDGERCTL_CONFIG": str(file)})
    assert (run.code, run.err) == (0, "")


def test_a_bug_shows_neither_secrets_nor_what_caused_it() -> None:
    secret = Secret("mongodb://ops:s3cr3t%40x@h/")
    error = KeyError("mongodb://ops:s3cr3t%40x@h/ and s3cr3t@x")
    error.__context__ = ValueError("inner s3cr3t@x")
    found = bug(error, [secret])
    assert isinstance(found, InvariantBroken)
    assert "s3cr3t" not in found.message
    assert found.message.startswith("this is a bug in ledgerctl: KeyError")


def test_an_unexpected_exception_is_a_bug_with_its_place_and_exit_1(
    run: Runner, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import ledgerctl.stores.jobs as jobs\n"
        "def newest(self, **_):\n"
        "    raise RuntimeError('at mongodb://u:s3cr' + '3t@h/x')\n"
        "jobs.Jobs.newest = newest\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[2])])
    broken = run("job", "list", env={"PYTHONPATH": path})
    assert broken.code == 1
    assert "s3cr3t" not in broken.err
    assert "in newest" in broken.err
    assert broken.err.splitlines()[-1] == "  [bug, exit 1]"
    as_json = run("job", "list", "-o", "json", env={"PYTHONPATH": path})
    assert json.loads(as_json.err)["error"]["code"] == "bug"


# streams


def shell(environment: dict[str, str], line: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", line.replace("ledgerctl", f"{sys.executable} -m ledgerctl")],
        env=environment, capture_output=True, encoding="utf-8", check=False, timeout=60,
    )  # fmt: skip


READERS = ["--version", "--help", "job list --help", "help safety", "config path", "config show"]


@pytest.mark.parametrize("words", READERS)
@pytest.mark.parametrize("form", ["json", "table", "plain"])
def test_a_closed_stdout_ends_a_reader_quietly(
    bare_environment: dict[str, str], words: str, form: str
) -> None:
    bare_environment["LEDGERCTL_OUTPUT"] = form
    done = shell(bare_environment, f"ledgerctl {words} >&-")
    assert (done.returncode, done.stderr) == (0, "")
    done = shell(bare_environment, f"ledgerctl {words} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", READERS)
def test_a_full_disk_is_an_error_of_its_own(bare_environment: dict[str, str], words: str) -> None:
    done = shell(bare_environment, f"ledgerctl {words} >/dev/full")
    assert done.returncode == 6
    assert done.stderr.endswith("  [output_failed, exit 6]\n")
    assert "No space left" in done.stderr


@pytest.mark.parametrize(
    "words", ["frobnicate", "config show --profile none", "job list --limit x"]
)
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_or_full_stderr_changes_no_exit_code(
    bare_environment: dict[str, str], words: str, redirection: str
) -> None:
    assert shell(bare_environment, f"ledgerctl {words} {redirection}").returncode == 2


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "| true; exit ${PIPESTATUS[0]}"])
@pytest.mark.parametrize("form", ["json", "table", "csv"])
def test_a_change_whose_result_cannot_be_printed_is_a_change_and_its_counts_go_to_stderr(
    environment: dict[str, str], redirection: str, form: str
) -> None:
    words = "balance grant acct-1 5 --key k"
    done = shell(environment, f"ledgerctl {words} -o {form} {redirection}")
    assert done.returncode == 0
    if redirection != "| true; exit ${PIPESTATUS[0]}":  # the pipe may take it before it closes
        assert "applied 1" in done.stderr
    shown = shell(environment, "ledgerctl balance show acct-1 -o json")
    assert json.loads(shown.stdout)["balance"] == 5


def test_the_descriptor_of_a_closed_stream_is_given_to_no_connection(
    environment: dict[str, str],
) -> None:
    done = shell(environment, "ledgerctl balance grant a 5 --key k -o json <&- >&- 2>&-")
    assert done.returncode == 0
    assert json.loads(shell(environment, "ledgerctl balance show a -o json").stdout)["balance"] == 5


# signals


def catches_sigterm(pid: int) -> bool:
    """Whether the program has come so far that it answers SIGTERM itself."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 129, "hung_up"),
    ],
)
@pytest.mark.parametrize("form", ["json", "table"])
def test_a_signal_ends_a_reader_with_its_own_code(
    bare_environment: dict[str, str], number: signal.Signals, code: int, word: str, form: str
) -> None:
    words = [sys.executable, "-m", "ledgerctl", "balance", "show", "a", "-o", form]
    # An address that swallows packets: the command waits for its store.
    bare_environment["LEDGERCTL_MONGO_URI"] = "mongodb://192.0.2.1:27017"
    with subprocess.Popen(
        words, env=bare_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        wait_until(lambda: catches_sigterm(program.pid))
        program.send_signal(number)
        out, err = program.communicate(timeout=30)
    assert (program.returncode, out) == (code, "")
    if form == "json":
        assert json.loads(err)["error"]["code"] == word
    else:
        assert err.splitlines()[-1] == f"  [{word}, exit {code}]"


def test_ctrl_c_while_the_program_still_loads_is_quiet(bare_environment: dict[str, str]) -> None:
    words = [sys.executable, "-c", "import os, signal, sys, ledgerctl.__main__ as m\n"
             "class Interrupting:\n"
             "    def find_spec(self, name, *_):\n"
             "        if name == 'typer': raise KeyboardInterrupt\n"
             "sys.meta_path.insert(0, Interrupting()); sys.argv[1:] = ['job', 'list']; m.main()"]  # fmt: skip
    done = subprocess.run(
        words, env=bare_environment, capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, Interrupted), (signal.SIGTERM, Terminated), (signal.SIGHUP, HungUp)],
)
def test_a_signal_is_a_signal_whatever_a_driver_makes_of_it(
    number: signal.Signals, expected: type[LedgerctlError]
) -> None:
    def decode(session: Session) -> None:
        try:
            signal.raise_signal(number)
        except Exception as error:
            raise ValueError(str(error)) from error

    with pytest.raises(expected), Session(Words(command="job list", effect="read")) as session:
        run_command(session, decode, {})
