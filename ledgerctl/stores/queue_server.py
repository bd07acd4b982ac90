"""The Redis server itself, read only: its role, its memory, its saving, the types of its keys."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast

from redis import exceptions as redis_errors

from ledgerctl.errors import NotPermitted
from ledgerctl.stores.queues import Queues
from ledgerctl.stores.replies import NO_COMMAND, redis_answer

SCAN_COUNT = 1_000
# No one of them takes four more words of this kind, so that nothing is changed.
NEEDED = (
    "TYPE", "LLEN", "LRANGE", "LINDEX", "LPOS", "LSET", "LREM", "LTRIM", "LINSERT", "LMOVE", "LPOP",
    "RPOP", "SMEMBERS", "SCAN", "EVAL", "EVALSHA", "TIME",
)  # fmt: skip
KEYS_MAX = 1_000  # lists of our own that are looked at one by one


class QueueServer:
    """Ask the Redis server about itself; nothing here changes anything."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._client = queues.client
        self._facts: Mapping[str, Any] | None = None

    def ping(self) -> None:
        """Return when the server lets us in, whether or not we may ping."""
        with (
            self._queues.reading("ping"),
            suppress(redis_errors.NoPermissionError),  # refused by name: it knows us, and answers
        ):
            self._client.ping()

    def facts(self) -> Mapping[str, Any]:
        """Return the server's INFO, asked once. Raises NotPermitted where we may not."""
        if self._facts is None:
            with self._queues.reading("ask for INFO"):
                self._facts = cast(Mapping[str, Any], self._client.info())
        return self._facts

    def role(self) -> str:
        """`master`, `slave` or `sentinel`."""
        try:
            return str(self.facts()["role"])
        except NotPermitted:
            with self._queues.reading("ask for the ROLE"):
                answer = self._client.role()
            return text(answer[0])

    def setting(self, name: str) -> str | None:
        """Return one of the server's settings by CONFIG GET; None where we may not ask."""
        with suppress(NotPermitted), self._queues.reading(f"ask for {name}"):
            found = cast(Mapping[Any, Any], self._client.config_get(name))
            return next((text(value) for value in found.values()), None)
        return None

    def failover_trouble(self) -> str | None:
        """Return why the sentinels could not elect, empty when they could; None without Sentinel."""
        with self._queues.reading("ask the sentinels"):
            return self._queues.client.route.election_trouble()

    def clock_offset(self, clock: Callable[[], datetime]) -> timedelta | None:
        """Return the server's time minus ours; None where we may not ask."""
        with suppress(NotPermitted):
            before = clock()
            heard = self._queues.server_time()
            return heard - (before + (clock() - before) / 2)
        return None

    def missing_commands(self) -> list[str]:
        """List the commands we need that the server does not know; each is tried with wrong words."""
        key = self._queues.keys.dead_letter
        with self._queues.reading("try the commands"):
            answers = self._queues.attempts((name, key, "x", "x", "x", "x") for name in NEEDED)
        return [
            name
            for name, answer in zip(NEEDED, answers, strict=True)
            if isinstance(answer, Exception) and redis_answer(answer, str(answer))[0] is NO_COMMAND
        ]

    def own_keys(self, *, within: Callable[[], bool]) -> tuple[list[str], bool]:
        """Return the configured lists and those under their names; False where some are left out."""
        keys = self._queues.keys
        stems = (keys.processing, keys.dead_letter)
        walks = [self._queues.walk(stem, within=within) for stem in stems]
        found = {keys.retry, keys.dead_letter}.union(*filter(None, walks))
        found -= self._queues.names_keys
        return sorted(found)[:KEYS_MAX], None not in walks and len(found) <= KEYS_MAX

    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the type of each key that exists."""
        with self._queues.reading("ask the lists' types"):
            kinds = map(text, self._queues.together(("TYPE", name) for name in names))
        return {name: kind for name, kind in zip(names, kinds, strict=True) if kind != "none"}

    def expiring(self, names: Iterable[str]) -> list[str]:
        """Return those of these keys that the server will delete; none where we may not ask."""
        with suppress(NotPermitted), self._queues.reading("ask when the lists expire"):
            names = list(names)
            left_ms = self._queues.together(("PTTL", name) for name in names)
            return [name for name, left in zip(names, left_ms, strict=True) if left >= 0]
        return []


def text(value: object) -> str:
    """Return a reply as text."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
