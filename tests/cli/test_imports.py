"""What each path through the program must not import: that is what makes it start at once."""

import subprocess
import sys
from collections.abc import Mapping

import pytest

from ledgerctl import __version__
from tests.conftest import ROOT

DRIVERS = {"pymongo", "bson", "redis"}
HEAVY = {*DRIVERS, "rich", "asyncio", "ssl", "pydantic", "zoneinfo", "sysconfig", "click"}
FAST = {*HEAVY, "typer", "re", "json", "pathlib", "inspect", "dataclasses", "ledgerctl.cli.app"}

PATHS: dict[str, tuple[list[str], set[str]]] = {
    "--version": (["--version"], FAST),
    "-V": (["-V"], FAST),
    "--help": (["--help"], FAST),
    "-h": (["-h"], FAST),
    "nothing": ([], FAST),
    "a command's help": (["job", "refund", "--help"], {*HEAVY, "ledgerctl.config"}),
    "a noun's help": (["dead", "--help"], {*HEAVY, "ledgerctl.config"}),
    "a mistake": (["ded"], HEAVY - {"ssl"}),
    "config path": (["config", "path", "-o", "json"], {*HEAVY, "ledgerctl.config", "csv"}),
    "config show": (["config", "show", "-o", "json"], {*HEAVY, "csv"}),
    "a topic": (["help", "safety"], HEAVY),
    "completion show": (["completion", "show", "bash"], HEAVY),
    "sandbox status": (
        ["sandbox", "status", "-o", "plain"],
        DRIVERS | {"rich", "typer.rich_utils"},
    ),
    "MongoDB alone": (["balance", "list", "-o", "json"], {"redis", "rich", "zoneinfo"}),
    "MongoDB alone, as a table": (["log", "list", "-o", "table"], {"redis"}),
    "Redis alone": (["queue", "stats", "-o", "json"], {"pymongo", "bson", "rich", "zoneinfo"}),
    "both, as json": (["job", "show", "job-1", "-o", "json"], {"rich", "zoneinfo"}),
    "a list without times": (["job", "list", "-o", "json"], {"rich", "redis", "zoneinfo"}),
    "an id from the cache or the store": (["--complete", "group"], {"pymongo", "rich", "typer"}),
}

PROGRAM = """
import sys, atexit
from ledgerctl.__main__ import main
sys.argv = ["ledgerctl", *sys.argv[1:]]
def tell():
    with open("{file}", "w") as out:
        out.write("\\n".join(sys.modules))
import os
leave = os._exit
def vanish(code):
    tell(); leave(code)
os._exit = vanish
try:
    main()
finally:
    tell()
"""


def imported(words: list[str], environment: Mapping[str, str], file: str) -> set[str]:
    subprocess.run(
        [sys.executable, "-c", PROGRAM.format(file=file), *words],
        env=dict(environment), capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    with open(file) as listed:
        return set(listed.read().split())


@pytest.mark.parametrize(("words", "forbidden"), PATHS.values(), ids=list(PATHS))
def test_a_path_imports_nothing_that_it_does_not_need(
    environment: dict[str, str], tmp_path: object, words: list[str], forbidden: set[str]
) -> None:
    names = imported(words, environment, f"{tmp_path}/modules")
    assert "ledgerctl.__main__" in names
    assert not names & forbidden


def test_a_broken_environment_is_not_read_on_the_fast_path(
    bare_environment: dict[str, str],
) -> None:
    bare_environment["LEDGERCTL_CONFIG"] = "/no/such/file"
    done = subprocess.run(
        [sys.executable, "-m", "ledgerctl", "--help"],
        env=bare_environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_launcher_may_be_run_as_it_stands() -> None:
    """The wheel takes the file with its mode. Its launcher is run by tests/cli/test_readme.py."""
    launcher = ROOT / "ledgerctl" / "launcher.py"
    assert launcher.stat().st_mode & 0o111 == 0o111
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-s", str(launcher)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not listed.stdout or listed.stdout.startswith("100755 ")
    done = subprocess.run(
        [str(launcher), "--version"],
        env={"PYTHONPATH": str(ROOT), "PATH": f"{sys.prefix}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"ledgerctl {__version__}\n")
