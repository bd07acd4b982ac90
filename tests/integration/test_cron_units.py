"""Cron takes the README's crontab line, and systemd the units of `help cron`."""

import re
import shlex
import shutil
import subprocess
import textwrap
from configparser import ConfigParser
from pathlib import Path

from tests.cli.commands import COMMANDS
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
HELP = (ROOT / "ledgerctl" / "cli" / "help_texts" / "cron.txt").read_text()


def block(language: str, holding: str) -> str:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return next(one for one in found if holding in one)


def unit(name: str) -> str:
    """The unit that the help prints below its path."""
    text = HELP.partition(f"/{name}:\n\n")[2].partition("\n\nand /etc")[0]
    return textwrap.dedent(text)


def command_of(words: list[str]) -> list[str]:
    at = next(n for n, word in enumerate(words) if word.endswith("ledgerctl"))
    return words[at + 1 :]


def units() -> dict[str, str]:
    return {name: unit(name) for name in ("ledgerctl-summary.service", "ledgerctl-summary.timer")}


def test_the_crontab_line_has_five_fields_and_a_command_that_exists() -> None:
    line = block("cron", "summary rebuild").strip()
    fields, words = line.split(None, 5)[:5], shlex.split(line.split(None, 5)[5])
    assert all(re.fullmatch(r"[0-9*/,-]+", field) for field in fields)
    assert "%" not in line, "cron reads % as a line break"
    given = command_of(words)
    assert " ".join(given[:2]) in {leaf.path for leaf in COMMANDS}
    assert given[2:4] == ["--quiet", "--metrics-file"]


def test_the_service_runs_what_cron_runs() -> None:
    service = ConfigParser(interpolation=None)
    service.read_string(units()["ledgerctl-summary.service"])
    cron = shlex.split(block("cron", "summary rebuild").strip().split(None, 5)[5])
    assert command_of(
        shlex.split(service["Service"]["ExecStart"].replace("\\\n", " "))
    ) == command_of(cron)


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Where systemd is; elsewhere their sections and lines are at least well formed."""
    for name, text in units().items():
        # The check wants the program to be there.
        (tmp_path / name).write_text(text.replace("/usr/local/bin/ledgerctl", "/bin/true"))
        ConfigParser(interpolation=None).read_string(text)
    if verify := shutil.which("systemd-analyze"):
        done = subprocess.run(
            [verify, "verify", *(str(tmp_path / name) for name in units())],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr.strip()) == (0, "")
