"""The README's blocks: found, run, and compared with what stands there."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
README: Final = ROOT / "README.md"
BLOCK: Final = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
VARYING: Final = (
    (re.compile(r"\d{8}T\d{9}Z-[0-9a-f]{10}"), "OPERATION"),
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]{12}Z"), "TIME"),
    (re.compile(r"\d{1,2} \w+ \d{4}, [0-9:]{8} UTC"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "DAY"),
    (re.compile(r"\b\d+[smhd] ago"), "AGE"),
    (re.compile(r"database '[^']*'"), "DATABASE"),
    (re.compile(r"(duration s\s+)[0-9.]+"), r"\1SECONDS"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ ]+"), " "),
)


@dataclass(frozen=True)
class Shown:
    """One command of a console block and the output that stands below it."""

    command: str
    output: str


def blocks(kind: str) -> list[str]:
    """The text of each block of a kind."""
    return [text for name, text in BLOCK.findall(README.read_text()) if name == kind]


def console() -> list[Shown]:
    """Every command of the tour, in order."""
    return [shown for block in blocks("console") for shown in commands(block)]


def commands(block: str) -> Iterator[Shown]:
    """The commands of one block."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Shown(command, output)


def run(command: str, environment: Mapping[str, str]) -> str:
    """What a terminal would show of a command: both streams together, as tables of 80 columns."""
    line = re.sub(r"\bledgerctl\b", f"{sys.executable} -m ledgerctl", command, count=1)
    settings = {"LEDGERCTL_OUTPUT": "table", "COLUMNS": "80"}
    done = subprocess.run(
        ["bash", "-c", line], env={**environment, **settings}, check=False, encoding="utf-8",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    ended = f"(exit {done.returncode})\n" if done.returncode else ""
    return done.stdout + ended


def alike(output: str) -> str:
    """The output without what differs from run to run: instants, ids of operations, widths."""
    for pattern, name in VARYING:
        output = pattern.sub(name, output)
    return "\n".join(line.rstrip() for line in output.rstrip().split("\n"))
