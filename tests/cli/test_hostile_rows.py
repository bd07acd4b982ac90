"""Whatever the stored data holds: every reading command in every format, on pipe and terminal.

Nothing crashes, nothing acts on the terminal, json is json, and ids are whole.
"""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pexpect
import pytest
from bson import Int64
from pymongo import MongoClient
from redis import Redis

from ledgerctl.cli.completion import command_table
from ledgerctl.domain.output_format import OutputFormat
from tests.builders import make_job, make_row
from tests.conftest import Invoker, Runner
from tests.corpus import HOSTILE

Client = MongoClient[dict[str, Any]]
NOW = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)
ACCOUNT = "[/]:smile:\x1b[31m"
# BSON text is UTF-8: a lone surrogate can stand in a payload (as an escape), not in a document.
LONG = 5_000  # 200,000 digits stand in one entry, as a number; as words they only take time
STORED = {
    name: text
    for name, text in HOSTILE.items()
    if "\ud800" not in text and text and len(text) < LONG
}
STYLE = re.compile(r"\x1b\[[0-9;]*m")
ALLOWED = {"\n", "\t"}

OPERATION = "20260308T120000000Z-0123456789"
READERS: dict[str, list[str]] = {
    "balance show": [ACCOUNT],
    "balance list": [],
    "balance replay": [ACCOUNT],
    "balance explain": [ACCOUNT],
    "job show": ["=cmd|' /C calc'!A0"],
    "job list": ["--limit", "0"],
    "dead list": ["--limit", "0"],
    "dead show": ["=cmd|' /C calc'!A0"],
    "dead stats": [],
    "queue stats": [],
    "queue list": ["retry", "--limit", "0"],
    "summary drift": ["--from", "2026-03-08", "--to", "2026-03-08"],
    "summary show": [ACCOUNT, "--from", "2026-03-08", "--to", "2026-03-08"],
    "inbox audit": [],
    "inbox stuck": ["--limit", "0"],
    "inbox list": ["--limit", "0"],
    "inbox show": ["[b7c1]"],
    "ledger audit": [],
    "ledger export": [],
    "log list": ["--limit", "0"],
    "log show": ["[red]x[/red]"],
    "log outcome": [OPERATION],
    "metrics": [],
    "doctor": [],
}
NOT_OF_DATA = {"config", "completion", "help", "sandbox", "demo", "db"}


@pytest.fixture
def hostile(client: Client, redis_client: Redis, database: str) -> None:
    """The corpus in every place where a text can stand."""
    place = client[database]
    texts = list(STORED.values())
    jobs = [
        make_job(text, account_id=ACCOUNT, status=text, is_refunded=at % 2 == 0, created_at=NOW)
        for at, text in enumerate(texts)
    ]
    place["jobs"].insert_many(jobs)
    place["ledger"].insert_many(
        make_row(text, account_id=ACCOUNT, reason=text, created_at=NOW) for text in texts
    )
    place["ledger"].insert_many(
        make_row(text, text, _id=f"odd:{text}", account_id=text, amount=text) for text in texts
    )
    place["inbox"].insert_many(
        {
            "consumer_group": text, "message_key": text, "tenant_id": text, "status": "failed",
            "attempts": 1, "deliveries": 99, "first_seen_at": NOW, "last_seen_at": NOW,
            "last_error": text,
        }
        for text in texts
    )  # fmt: skip
    place["outbox"].insert_many(
        {"_id": text, "message_key": text, "tenant_id": text, "topic": text, "payload": {text.replace("\x00", "").replace("$", "_").replace(".", "_") or "k": text},
         "created_at": NOW}
        for text in texts
    )  # fmt: skip
    place["usage_daily"].insert_many(
        {"_id": f"{text}:2026-03-08", "account_id": text, "day": "2026-03-08", "timezone": text, "net": Int64(7)}
        for text in texts
    )  # fmt: skip
    place["operator_log"].insert_many(
        {
            "_id": text, "at": NOW, "finished_at": NOW, "operator": text, "profile": text,
            "command": text, "reason": text, "counts": {"applied": 1}, "exit_code": 0,
        }
        for text in texts
    )  # fmt: skip
    place["operator_log"].insert_one(
        {"_id": OPERATION, "at": NOW, "command": "dead requeue", "counts": {}, "exit_code": 0}
    )
    letters = [text.encode(errors="surrogatepass") for text in texts]
    place["dead_archive"].insert_many(
        {
            "_id": f"{OPERATION}:000001:{at:08d}", "operation_id": OPERATION, "chunk": 1,
            "order": at, "action": "requeue", "digest": "0" * 12, "job_id": text, "payload": raw,
            "written_sha256": raw.ljust(32)[:32], "at": NOW,
        }
        for at, (text, raw) in enumerate(zip(texts, letters, strict=True))
    )  # fmt: skip
    redis_client.rpush(f"jobs:dead-letter:op:{OPERATION}", "1")
    entries = [
        json.dumps({"job_id": text, "account_id": text, "attempts": 5, "error": text})
        for text in HOSTILE.values()
        if len(text) < LONG
    ]
    entries += [f'{{"job_id":"n","attempts":{HOSTILE["200,000 digits"]}}}']
    raw: list[str | bytes] = [*entries, b"\xff\xfe", b"\x1b[2Jnot json", b""]
    for name in ("jobs:dead-letter", "jobs:retry"):
        redis_client.rpush(name, *raw)


def test_every_command_that_prints_stored_data_is_driven_here() -> None:
    reading = {
        entry.path
        for entry in command_table()
        if not any("--yes" in option.names for option in entry.options)
        and entry.path.split()[0] not in NOT_OF_DATA
    }
    assert reading == set(READERS)


SCREEN = ("\x1b[?1049h", "\x1b[?1049l", "\x1b[?2004h", "\x1b[?2004l")


def harmless(out: str, *, color: bool) -> None:
    """No control character reaches a terminal; styles only where colour was asked for."""
    text = STYLE.sub("", out) if color else out
    acting = {
        one for one in text if (ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0) and one not in ALLOWED
    }
    assert not acting
    assert not set(text) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029"
    )


@pytest.mark.parametrize("path", READERS)
def test_hostile_rows_are_printed_letter_for_letter_in_every_format(
    invoke: Invoker, hostile: None, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*path.split(), *READERS[path]]
    for form in OutputFormat:
        for width in ("40", "80", "200"):
            monkeypatch.setenv("COLUMNS", width)
            done = invoke(*words, "-o", form)
            assert done.code in {0, 5}, done.err
            harmless(done.out + done.err, color=False)
            if form == "json":
                json.loads(done.stdout)
                assert done.err == ""
                break
            if form == "jsonl":
                assert all(isinstance(json.loads(line), dict) for line in done.out.split("\n")[:-1])
                break
            if form in {"plain", "csv"}:
                break


ENVIRONMENTS: dict[str, Mapping[str, str]] = {
    "NO_COLOR": {"NO_COLOR": "1"},
    "FORCE_COLOR=0": {"FORCE_COLOR": "0"},
    "TERM=dumb": {"TERM": "dumb"},
    "C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "Latin-1": {"PYTHONIOENCODING": "latin-1"},
}


@pytest.mark.parametrize("settings", ENVIRONMENTS.values(), ids=list(ENVIRONMENTS))
@pytest.mark.parametrize("form", ["table", "plain", "json", "csv"])
def test_no_environment_makes_a_printed_row_fail(
    run: Runner, hostile: None, settings: Mapping[str, str], form: str
) -> None:
    done = run("job", "list", "--limit", "0", "-o", form, env=settings)
    assert done.code == 0, done.stderr
    harmless(done.stdout.decode("latin-1" if "latin" in str(settings) else "utf-8"), color=False)


def on_a_terminal(words: list[str], environment: Mapping[str, str]) -> str:
    """What the program writes when both its streams are a terminal."""
    own, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ledgerctl", *words],
        env=dict(environment),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as program:
        os.close(theirs)
        written = b"".join(chunks(own))
        program.wait(timeout=60)
    os.close(own)
    assert program.returncode in {0, 5}
    return written.decode().replace("\r\n", "\n").replace("\r", "")


def chunks(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(descriptor, 65_536)
        except OSError:  # Linux says so when the last writer has closed
            return
        if not chunk:
            return
        yield chunk


@pytest.mark.parametrize(
    ("settings", "color"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "0"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
@pytest.mark.parametrize("words", [["job", "list"], ["dead", "list"], ["ledger", "audit"]])
def test_a_terminal_shows_styles_of_ours_and_nothing_of_the_datas(
    environment: dict[str, str],
    hostile: None,
    settings: dict[str, str],
    color: bool,
    words: list[str],
) -> None:
    shown = on_a_terminal([*words, "--quiet"], environment | settings)
    harmless(shown.replace("\x1b[K", ""), color=color)


@pytest.mark.parametrize("told", ["markdown", "html"])
def test_a_story_for_a_ticket_or_a_page_holds_no_control_character(
    invoke: Invoker, hostile: None, told: str
) -> None:
    done = invoke("balance", "explain", ACCOUNT, "--format", told)
    assert done.code in {0, 5}, done.err
    harmless(done.out + done.err, color=False)
    if told == "html":
        assert "<script" not in done.out.lower()


def test_a_review_shows_every_hostile_letter_and_nothing_of_it_acts(
    environment: dict[str, str], hostile: None
) -> None:
    words = ["-m", "ledgerctl", "dead", "review", "--all", "--color", "never"]
    program = pexpect.spawn(
        sys.executable, words, env=environment | {"TERM": "xterm"}, encoding="utf-8", timeout=60
    )
    shown = ""
    while program.expect(["q quit", pexpect.EOF]) == 0:
        shown += program.before or ""
        program.send("s")
    shown += program.before or ""
    program.close()
    assert program.exitstatus == 0, shown[-500:]
    for own in ("\r", "\x1b[K", "\x1b[J", "\x1b[H", "\x1b[?25l", "\x1b[?25h", *SCREEN):
        shown = shown.replace(own, "")
    harmless(shown, color=False)
    numbers = [int(one) for one in re.findall(r"letter (\d+) of \d+", shown)]
    assert list(dict.fromkeys(numbers)) == list(range(1, max(numbers) + 1))


@pytest.mark.parametrize("width", ["40", "80"])
def test_ids_stay_whole_in_a_narrow_table(
    run: Runner, client: Client, database: str, width: str
) -> None:
    long = [f"0198f4c2-7d31-7c3a-9f2e-{number:012d}" for number in range(20)]
    client[database]["jobs"].insert_many([make_job(one) for one in long])
    done = run("job", "list", "-o", "table", env={"COLUMNS": width})
    assert all(one in done.out for one in long)
