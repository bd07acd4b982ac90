"""Errors of one cause are one group; causes that want opposite treatment never are."""

from collections.abc import Callable
from itertools import combinations
from random import Random
from time import process_time
from uuid import UUID

import pytest

from ledgerctl.domain.error_groups import error_group, masked_error

SAME: list[list[str | None]] = [
    [
        "GPU timed out after 12 s",
        "GPU timed out after 31.5s",
        "GPU timed out after 1m30s",
        "gpu timed out after 500 ms ",
    ],
    ["disk full on node-3", "disk full on node-17"],
    [
        "cannot open /tmp/tmpab3x9k: gone",
        "cannot open /tmp/tmpzz81qq: gone",
        "cannot open /tmp/x/y.txt: gone",
    ],
    [
        "render-worker-7d9f8b6c5d-x2x4q was evicted",
        "render-worker-7d9f8b6c5d-bkzln was evicted",
        "render-worker-5b8c4d7f69-qqrst was evicted",
    ],
    ["KeyError: 'user_17'", "KeyError: 'bob'"],
    [
        'Traceback (most recent call last):\n  File "/app/w.py", line 12, in run\n    f(x)\nValueError: job 0198f4c2-7d1e-7c3a-9b1d-2f6f0a9c1e11 at 0x7f8a1c2b3d40',
        'Traceback (most recent call last):\n  File "/app/w.py", line 19, in run\n    f(x)\nValueError: job 0198f4c2-7d1e-7c3a-9b1d-2f6f0a9c1e12 at 0x7f8a1c2bffff',
    ],
    [
        '{"code":504,"msg":"upstream timed out after 30 s","request_id":"abc"}',
        '{"request_id":"def","code":504,"msg":"upstream timed out after 31 s"}',
    ],
    ["connect to 10.0.0.12:6379 refused", "connect to 10.1.0.1:6380 refused"],
    [
        "at 2026-03-08T09:15:02.435Z lost",
        "at 2026-03-08 09:15:03,1 lost",
        "at 2025-01-08T09:15:02+01:00 lost",
    ],
    ["lost bebdefdb-0d1f-4d2a-9a1b-aaaaaaaaaaaa", "lost 0198f4c2-7d1e-7c3a-9b1d-2f6f0a9c1e11"],
    ["job job-000123 failed", "job job-7 failed"],
    ["order 507f1f77bcf86cd799439011 lost", "order 507f191e810c19729de860ea lost"],
    ["JOB-00042 failed", "JOB-00043 failed"],
    ["dial tcp [::1]:6379: connection refused", "dial tcp [fe80::12]:6379: connection refused"],
    ["mail to ann@example.com bounced", "mail to bob.x@example.org bounced"],
    ["exit 137: killed after 12 s", "exit 137: killed after 3 s"],
    ["HTTP 503 from upstream", "http 503 FROM upstream", " HTTP 503 from upstream\n"],
    ["ORA-00001: unique constraint (A.B) violated", "ora-00001: UNIQUE constraint (A.B) violated"],
    ["Sun, 08 Mar 2026 09:15:02 GMT: down", "Mon, 09 Mar 2026 10:15:02 GMT: down"],
    ["request 01ARZ3NDEKTSV4RRFFQ69G5FAV failed", "request 01BX5ZZKBKACTAV9WEVGEMMVRZ failed"],
    ["main.go:123 +0x1d", "main.go:140 +0x2f"],
    ["error: 12 items failed", "error: 17 items failed"],
    [
        "sha256:9f86d081884c7d659a2feaa0c55ad015 missing",
        "sha256:60303ae22b998861bce3b28f33eec1be missing",
    ],
    ["bad input at byte 12345", "bad input at byte 9"],
    ["", None, "  "],
]

APART = [
    "HTTP 503 from upstream",
    "HTTP 404 from upstream",
    "exit 137",
    "exit 1",
    "errno 28",
    "[Errno 28] No space left on device",
    "[Errno 32] No space left on device",
    "ORA-00001: x",
    "ORA-12541: x",
    "SQLSTATE 23505",
    "SQLSTATE 40001",
    "SQLSTATE[40P01]",
    "SQLSTATE[57P01]",
    "E11000 duplicate",
    "E11001 duplicate",
    "0x80070005 denied",
    "0x80004005 denied",
    "status 503",
    "status=404",
    "status_code: 429",
    "exit code 137",
    "exited with 1",
    "upstream returned 503",
    "upstream returned 404",
    "503 Service Unavailable",
    "404 Not Found",
    "error 1213",
    "error 1062",
    "ERROR 1213 (40001)",
    "ERROR 1062 (23000)",
    '{"code":504,"msg":"x"}',
    '{"code":503,"msg":"x"}',
    '{"status":"timeout"}',
    '{"status":"denied"}',
    '{"error":{"code":1}}',
    '{"error":{"code":2}}',
    "signal 9",
    "signal 11",
    "CUDA error 719",
    "CUDA error 2",
    "code 14",
    "code = 4",
    "rc=1",
    "rc=2",
    "HTTP/1.1 503",
    "HTTP/1.1 404",
    "504",
    "404",
    "XYZ-00042 x",
    "XYZ-00043 x",
    "WinError 10054",
    "WinError 10060",
    "Error: 502 Bad Gateway",
    "Error: 403 Forbidden",
    "killed by SIGKILL",
    "killed by SIGTERM",
    "grpc status 14",
    "grpc status 4",
    "got status code 500",
    "got status code 400",
    "(code=137)",
    "(code=139)",
    "AADSTS50058 x",
    "AADSTS70008 x",
    "MySQL error code 1205",
    "MySQL error code 1040",
    "statusCode 500",
    "statusCode 400",
    "exit status 2",
    "exit status 3",
    "request failed: 502",
    "request failed: 403",
    "Response code 502",
    "Response code 404",
    "{'code': 504, 'type': 'Timeout'}",
    "{'code': 504, 'type': 'Denied'}",
    "http status 500 x",
    "http status 400 x",
    "HTTP error 500",
    "HTTP error 400",
    "HTTPError: 500 Server Error",
    "HTTPError: 404 Client Error",
    "SQL0911N x",
    "SQL0803N x",
    "Xid 79",
    "Xid 31",
    "code: -32603",
    "code: -32700",
    "psycopg: 23505 x",
    "oom exit: 137",
    "oom exit: 139",
    "Fehler 5: x",
]


@pytest.mark.parametrize("errors", SAME)
def test_what_changes_between_two_failures_of_one_cause_makes_no_group(
    errors: list[str | None],
) -> None:
    assert len({error_group(error) for error in errors}) == 1, [
        masked_error(e or "") for e in errors
    ]


def test_codes_and_causes_are_never_one_group() -> None:
    groups = {error: error_group(error) for error in APART}
    merged = [pair for pair in combinations(APART, 2) if groups[pair[0]] == groups[pair[1]]]
    assert merged == []


def test_no_error_and_a_lone_surrogate_have_groups() -> None:
    assert error_group(None) == error_group("") == "e3b0c442"
    assert len(error_group("\ud800")) == 8


HOSTILE = ("a" * 100_000, "a1" * 50_000, "0" * 100_000, "1." * 50_000, "1s" * 50_000, "a-" * 50_000,
    "1:" * 50_000, "'" * 100_000, '"a' * 50_000, "exit " * 20_000, 'code="' * 15_000, "a@" * 50_000,
    "{" * 100_000, "/var" * 25_000, "jan " * 25_000)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:6] for text in HOSTILE])
def test_masking_takes_linear_time(text: str) -> None:
    start = process_time()
    masked_error(text)
    assert process_time() - start < 2


def test_a_night_of_six_causes_with_uuids_and_two_tracebacks_is_six_groups() -> None:
    draw = Random(7)  # the same night each time
    groups = {error_group(cause(draw)) for cause in CAUSES for _ in range(200)}
    assert len(groups) == len(CAUSES) == 6


def uuid(draw: Random) -> str:
    return str(UUID(int=draw.getrandbits(128), version=4))


def traceback(draw: Random, last: str) -> str:
    frames = [
        f'  File "/srv/render-{draw.randint(1, 9)}/app/step{at}.py", line {draw.randint(1, 999)}, in run\n'
        f"    return run(job, timeout={draw.randint(1, 60)})"
        for at in range(7)
    ]
    return "\n".join(["Traceback (most recent call last):", *frames, last])


CAUSES: list[Callable[[Random], str]] = [
    lambda draw: f"HTTP 503 from render-7d9f8b6c5d-x{draw.choice('24567')}x4q after {draw.randint(1, 60)} s",
    lambda draw: f"HTTP 404 from upstream: model /models/{uuid(draw)} not found",
    lambda draw: f"GPU timed out after {draw.uniform(1, 90):.1f} s (job {uuid(draw)})",
    lambda draw: f"exit 137: killed (worker-{draw.randint(0, 50)})",
    lambda draw: traceback(draw, f"OutOfMemoryError: tried to allocate {draw.randint(1, 9)} GiB (GPU {draw.randint(0, 7)})"),
    lambda draw: traceback(draw, f"ValueError: frame of {uuid(draw)} at 0x{draw.getrandbits(44):x}"),
]  # fmt: skip
