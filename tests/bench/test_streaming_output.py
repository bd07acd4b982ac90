"""Streaming costs about what the bare standard library costs, in constant memory."""

import io
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ledgerctl.render.emit import emit
from ledgerctl.render.report import Column, Record, listing

ROUNDS = 7  # the machine may have other work in some of them
AT = datetime(2026, 3, 8, 9, 15, tzinfo=UTC)
COLUMNS = [Column(key) for key in ("row_id", "created_at", "job_id", "type", "amount", "balance")]


def rows(count: int) -> Iterator[Record]:
    for n in range(count):
        yield {
            "row_id": f"job-{n}:charge",
            "created_at": AT,
            "job_id": f"job-{n}",
            "type": "charge",
            "amount": -40,
            "balance": -40 * n,
        }


def ratio_of(one: Callable[[], object], other: Callable[[], object]) -> float:
    """The best time of one by the best of the other, taken in turns."""

    def seconds(act: Callable[[], object]) -> float:
        start = time.perf_counter()
        act()
        return time.perf_counter() - start

    pairs = [(seconds(one), seconds(other)) for _ in range(ROUNDS)]
    return min(first for first, _ in pairs) / min(second for _, second in pairs)


@pytest.mark.alone
@pytest.mark.parametrize(("format", "ratio_max"), [("json", 1.3), ("jsonl", 1.3), ("csv", 2.0)])
def test_a_stream_costs_about_a_bare_loop_over_the_encoder(format: str, ratio_max: float) -> None:
    encode = json.JSONEncoder(default=lambda at: at.isoformat(timespec="milliseconds")).encode
    with Path("/dev/null").open("w", encoding="utf-8") as out:

        def bare() -> None:
            out.writelines(encode(row) + "\n" for row in rows(50_000))

        def ours() -> None:
            report = listing(rows(50_000), columns=COLUMNS)
            emit(report, format=format, out=out, err=io.StringIO())

        ratio = ratio_of(ours, bare)
    print(f"{format}: {ratio:.2f} times a bare json loop")
    assert ratio < ratio_max


@pytest.mark.parametrize("format", ["json", "jsonl", "plain", "csv"])
def test_the_memory_of_a_stream_does_not_grow_with_it(format: str) -> None:
    def peak(count: int) -> int:
        with Path("/dev/null").open("w", encoding="utf-8") as out:
            tracemalloc.start()
            emit(listing(rows(count), columns=COLUMNS), format=format, out=out, err=io.StringIO())
            try:
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert peak(20_000) < peak(2_000) * 1.5
