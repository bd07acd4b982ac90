"""An incident on real servers, and an independent reader that counts every letter of it."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from bson import Int64
from pymongo import MongoClient
from redis import Redis

ROOT = Path(__file__).resolve().parent.parent
DEAD, RETRY = "jobs:dead-letter", "jobs:retry"
ERRORS = ("GPU timed out after %d s", "disk full on node-%d", "bad input at byte %d", "no route %d")


def letter(number: int) -> bytes:
    """A letter of some 300 bytes that differs from all others; a quarter has each error."""
    return (
        b'{"job_id":"job-%06d","account_id":"acct-%d","cost":40,"attempts":5,'
        b'"not_before":"2026-03-08T09:15:02.435Z","error":"%s",'
        b'"failed_at":"2026-03-08T%02d:15:02.435Z","tags":[],"note":"%s"}'
        % (
            number,
            number % 97,
            (ERRORS[number % 4] % (number % 60)).encode(),
            number % 24,
            b"x" * 120,
        )
    )


@dataclass
class Incident:
    """Letters on the list, their jobs in MongoDB, and what an independent reader finds."""

    redis: Redis
    mongo: MongoClient[dict[str, Any]]
    environment: Mapping[str, str]
    original: list[bytes] = field(default_factory=list)

    @property
    def database(self) -> Any:
        return self.mongo[self.environment["LEDGERCTL_DATABASE"]]

    def load(self, count: int) -> None:
        """Empty lists, then `count` letters; their jobs are refunded ones."""
        self.redis.flushall()
        for name in ("operator_log", "dead_archive", "leases"):
            self.database[name].delete_many({})
        if self.database.jobs.count_documents({}) != count:
            self.database.jobs.delete_many({})
            self.database.jobs.insert_many(
                [
                    {
                        "_id": f"job-{number:06d}",
                        "account_id": f"acct-{number % 97}",
                        "cost": Int64(40),
                        "is_refunded": True,
                        "is_reclaimed": False,
                        "status": "failed",
                    }
                    for number in range(count)
                ]
            )
        self.put([letter(number) for number in range(count)])

    def put(self, letters: list[bytes]) -> None:
        """Add these letters at the tail."""
        self.original = [*self.original, *letters] if self.redis.exists(DEAD) else list(letters)
        for start in range(0, len(letters), 2_000):
            self.redis.rpush(DEAD, *letters[start : start + 2_000])

    def replace(self, position: int, raw: bytes) -> None:
        """Put another entry in a letter's place."""
        self.redis.lset(DEAD, position, cast(str, raw))
        self.original[position] = raw

    # running the program

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """A run in the background."""
        return subprocess.Popen(
            [sys.executable, "-m", "ledgerctl", *words, "-o", "json"],
            cwd=ROOT,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> tuple[int, dict[str, Any]]:
        """A whole run: exit code and document."""
        program = self.start(*words)
        out, err = program.communicate(timeout=120)
        try:
            return program.returncode, json.loads(out)
        except ValueError:
            raise AssertionError(f"{words}: exit {program.returncode}, {err.decode()}") from None

    def expire_lease(self) -> None:
        """What 10 s do to the lease of a killed run."""
        self.database.leases.update_many(
            {}, [{"$set": {"expires_at": {"$subtract": ["$$NOW", 1]}}}]
        )

    # the independent reader

    def dead(self) -> list[bytes]:
        """All letters in order: those passed over first."""
        passed = sorted(self.redis.keys(f"{DEAD}:passed:*"))
        return [raw for key in (*passed, DEAD) for raw in self.entries(key)]

    def retry(self) -> list[bytes]:
        return self.entries(RETRY)

    def entries(self, key: str | bytes) -> list[bytes]:
        """A whole list."""
        return cast(list[bytes], self.redis.lrange(key, 0, -1))

    def taken(self) -> list[bytes]:
        """The letters that the archive holds and the operations' notes name."""
        chunks = {
            (key.decode().rsplit(":", 1)[1], int(number))
            for key in cast(list[bytes], self.redis.keys(f"{DEAD}:op:*"))
            for number in self.entries(key)
        }
        return [
            bytes(document["payload"])
            for document in self.database.dead_archive.find().sort("_id", 1)
            if (document["operation_id"], document["chunk"]) in chunks
        ]

    def assert_none_lost(self, away: Iterable[bytes]) -> None:
        """Each original letter is exactly once among the dead letters or `away`."""
        found = Counter(unchanged(raw) for raw in (*self.dead(), *away))
        expected = Counter(unchanged(raw) for raw in self.original)
        assert found - expected == Counter(), f"{sum((found - expected).values())} doubled"
        assert expected - found == Counter(), f"{sum((expected - found).values())} lost"

    def assert_order_kept(self) -> None:
        """What stays stands in its old order, byte for byte."""
        left = self.dead()
        staying = Counter(left)
        assert left == [raw for raw in self.original if staying[raw]]


def unchanged(raw: bytes) -> bytes:
    """What a requeue may not touch: all but attempts and the due time."""
    head, _, rest = raw.partition(b'"attempts":')
    _, _, tail = rest.partition(b'"error":')
    return head + tail


def kills_wanted(default: int) -> int:
    """How many kills to land: LEDGERCTL_TEST_KILLS, else few enough for every run."""
    return int(os.environ.get("LEDGERCTL_TEST_KILLS", default))
