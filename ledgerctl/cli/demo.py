"""Run `ledgerctl demo`: load the demo story and walk through the main commands.

Each command is run as it is printed, by the real program; no figure comes from anywhere else.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ledgerctl.cli.command import Effect, command, single
from ledgerctl.cli.session import Session, terminal_width
from ledgerctl.errors import ExitCode, SettingsError
from ledgerctl.render.report import Column, Kind, Record, Report, columns
from ledgerctl.render.text import visible

app = single("demo")

COLUMNS = columns(
    "chapter", Column("command", kind=Kind.ID), "exit_code output", not_shown="output"
)
TOUR = Path(__file__).with_name("tour.toml")
PACKAGE_PLACE = Path(__file__).resolve().parent.parent.parent
WIDTH_MAX = 80
INCIDENT_DATABASE = "incident"


@command(app, "demo", effect=Effect.LOOP)
def demo(session: Session) -> Report | None:
    """Start the sandbox if needed, load the demo story and walk through the main commands.

    Each command is printed before its output. The story stands in database `ledger`, the incident
    in database `incident`; both are loaded anew each time. The servers go on running: `ledgerctl
    sandbox stop` ends them. With `-o json` the tour is one document.

    Examples: ledgerctl demo
              ledgerctl demo | less
              ledgerctl demo -o json
    """
    environment = prepare(session)
    if session.format in {"table", "plain"}:
        return Report(columns=(), text=(), exit_code=walk(session, environment))
    return Report(
        columns=COLUMNS, records=list(records(environment)), items_key="steps", document={}
    )


def prepare(session: Session) -> dict[str, str]:
    """Start the servers, load both databases and return the environment of the tour's commands."""
    from ledgerctl.cli.sandbox import changing
    from ledgerctl.sandbox import servers, story

    with (
        suppress(SettingsError),  # it acts on the sandbox alone, and needs no settings
        changing(session, "load the demo story into the sandbox"),
    ):
        pass
    session.progress("starting mongod and valkey-server …")
    running = servers.start(servers.own_directory())
    session.progress("loading the story …")
    story.load(
        mongo_uri=running.mongo_uri,
        redis_url=running.redis_url,
        database=servers.DATABASE,
        now=session.now,
    )
    environment = tour_environment(session.environment, servers.environment(running))
    load_incident(environment, session.now)
    session.progress_done()
    return environment


def load_incident(environment: Mapping[str, str], now: datetime) -> None:
    """Put the incident into its own database on the sandbox."""
    from ledgerctl.config import load
    from ledgerctl.sandbox import story
    from ledgerctl.stores.connections import Stores

    place = {**environment, "LEDGERCTL_DATABASE": INCIDENT_DATABASE}
    with Stores(load(environment=place)) as stores:
        stores.mongo.client.drop_database(INCIDENT_DATABASE)
        story.load_incident(stores, now=now)


def tour_environment(given: Mapping[str, str], sandbox: Mapping[str, str]) -> dict[str, str]:
    """Return the operator's own environment without settings, and the sandbox's addresses.

    Settings of the operator have no place here: the tour changes things, and only in the sandbox.
    """
    kept = {name: text for name, text in given.items() if not name.startswith("LEDGERCTL_")}
    path = os.pathsep.join(filter(None, [str(PACKAGE_PLACE), given.get("PYTHONPATH", "")]))
    own = {"LEDGERCTL_CONFIG": os.devnull, "LEDGERCTL_OUTPUT": "table", "PYTHONPATH": path}
    return {**kept, **sandbox, **own, "LEDGERCTL_OPERATOR": "demo"}


def chapters() -> list[dict[str, Any]]:
    """Read the tour; each step is told in the file's head."""
    tour: list[dict[str, Any]] = tomllib.loads(TOUR.read_text(encoding="utf-8"))["chapters"]
    for step in (step for chapter in tour for step in chapter["steps"]):
        step.setdefault("exit_codes", [0])
        step.setdefault("settings", {})
    return tour


def walk(session: Session, environment: Mapping[str, str]) -> int:
    """Print each chapter, each command and what it says; the exit code tells whether all went well."""
    odd = []
    for number, chapter in enumerate(chapters(), start=1):
        write(["", heading(f"{number}. {chapter['title']}"), *wrapped(chapter["words"])])
        for step in chapter["steps"]:
            line = command_line(step, environment)
            write(["", f"$ {line}"])
            code = run(step, line, environment)
            if code:
                write([f"(exit {code})"])
            odd += [] if code in step["exit_codes"] else [f"`{line}` ended with {code}"]
    write(["", *farewell(session.environment)])
    for sentence in odd:
        session.note(f"not as told: {sentence}")
    return int(ExitCode.PARTIAL if odd else ExitCode.DONE)


def records(environment: Mapping[str, str]) -> Iterator[Record]:
    """Yield each command of the tour with its exit code and its own document."""
    for chapter in chapters():
        for step in chapter["steps"]:
            line = command_line(step, environment)
            done = subprocess.run(
                program(line), env={**environment, **step["settings"], "LEDGERCTL_OUTPUT": "json"},
                capture_output=True, check=False, encoding="utf-8", stdin=subprocess.DEVNULL,
            )  # fmt: skip
            yield {
                "chapter": chapter["title"],
                "command": line,
                "exit_code": done.returncode,
                "output": done.stdout,
            }


def command_line(step: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Return the command as the operator would type it."""
    words = str(step["run"])
    if "{operation}" in words:
        words = words.replace("{operation}", newest_operation(environment))
    before = "".join(f"{name}={shlex.quote(text)} " for name, text in step["settings"].items())
    return f"{before}ledgerctl {words}"


def newest_operation(environment: Mapping[str, str]) -> str:
    """Return the id of the operation just made."""
    done = subprocess.run(
        program("ledgerctl log list --limit 1 --fields operation_id -o plain"),
        env=dict(environment), capture_output=True, check=False, encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout.splitlines()[-1] if done.returncode == 0 else "OPERATION_ID"


def run(step: Mapping[str, Any], line: str, environment: Mapping[str, str]) -> int:
    """Run one command on our own streams and return its exit code."""
    done = subprocess.run(
        program(line), env={**environment, **step["settings"]}, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode


def program(line: str) -> Sequence[str]:
    """Return a printed command line as the words of a process of this program and Python."""
    words = shlex.split(line)
    return [sys.executable, "-P", "-m", *words[words.index("ledgerctl") :]]


def write(lines: Sequence[str]) -> None:
    """Write lines at once, so that they stand before what a command writes."""
    if sys.stdout is not None:
        sys.stdout.write("".join(f"{visible(line)}\n" for line in lines))
        sys.stdout.flush()


def heading(text: str) -> str:
    """Return a chapter's title, drawn to the width of the text."""
    return f"== {text} {'=' * max(0, width() - len(text) - 4)}"


def wrapped(text: str) -> list[str]:
    """Fold sentences for reading."""
    import textwrap

    return textwrap.wrap(text, width())


def width() -> int:
    """Choose the columns of the text: the terminal's, but not more than is good to read."""
    return min(terminal_width(), WIDTH_MAX)


def farewell(environment: Mapping[str, str]) -> list[str]:
    """Say what stays, with lines to paste that end and reach it."""
    program = own_program(environment)
    return [
        "The servers go on running. To end them, or to look around:",
        f"{program} sandbox stop",
        f'eval "$({program} sandbox env)"',
    ]


def own_program(environment: Mapping[str, str]) -> str:
    """Write this program as a shell finds it, whether or not it is on PATH."""
    if shutil.which("ledgerctl", path=environment.get("PATH")):
        return "ledgerctl"
    started_as = Path(sys.argv[0]).absolute()
    is_program = started_as.name == "ledgerctl" and os.access(started_as, os.X_OK)
    return shlex.join([str(started_as)] if is_program else [sys.executable, "-m", "ledgerctl"])
