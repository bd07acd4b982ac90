"""The Redis lists: retry, dead letters, and one processing list a worker."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, cast

from redis import exceptions as redis_errors

from ledgerctl.addresses import redis_place
from ledgerctl.config import Settings
from ledgerctl.errors import (
    LedgerctlError,
    NotPermitted,
    OutcomeUnknown,
    StoreUnavailable,
    WrongKeyType,
)
from ledgerctl.secrets import display, redact
from ledgerctl.stores.outages import Notice, Outage
from ledgerctl.stores.redis_client import LOST, NotSent, PatientRedis
from ledgerctl.stores.replies import UNKNOWN, redis_answer

PAGE_ENTRIES_MAX = 1_000
PAGE_BYTES = 400_000  # what a page aims at, by the size of the page before it
FIRST_PAGE_ENTRIES = 10  # whose size nobody knows yet
RECENT_MAX = 4_000  # entries by whose hashes a border that has moved is found again
OVERLAP = 2  # entries that two pages share, to see that the list has not moved in between
SCAN_COUNT = 1_000
OWN_CLOCK_USED = "Redis may not be asked for its time: due times are judged by our own clock"


class Queues:
    """Read and write the lists on Redis; nothing that may have been applied is sent again."""

    def __init__(self, settings: Settings, notice: Notice = lambda _text: None) -> None:
        self._settings = settings
        self.keys = settings.keys
        self.client: PatientRedis = PatientRedis(
            redis_place(settings.redis_url.reveal()),
            (self.keys.retry, self.keys.dead_letter, self.keys.processing),
            Outage("Redis", notice),
        )
        self._clock_said = False
        self.changes = 0  # scripts that have moved, written or dropped an entry

    @contextmanager
    def reading(self, action: str) -> Iterator[None]:
        """Turn a failed read into ours; nothing was changed by it."""
        try:
            yield
        except redis_errors.RedisError as error:
            raise self.translated(error, action, sent=False) from None

    @contextmanager
    def writing(self, action: str) -> Iterator[None]:
        """Say of a failed write whether it may have landed.

        Raises OutcomeUnknown when it was sent and no reply came; refusals of the server are
        StoreBusy, NotPermitted, WrongKeyType, ReadOnlyReplica or CrossSlot, and changed nothing.
        """
        try:
            yield
        except redis_errors.RedisError as error:
            raise self.translated(error, action, sent=True) from None

    def translated(self, error: Exception, action: str, *, sent: bool) -> LedgerctlError:
        """Our error for a driver's; `sent` says whether the action was a write."""
        answer, words = redis_answer(error, redact(str(error), self._settings.secrets)[:300])
        if answer is UNKNOWN and isinstance(error, LOST):
            return self._lost(words, action, sent=sent and not isinstance(error, NotSent))
        return answer.error(f"cannot {action}: Redis says {words}", hint=answer.hint)

    def _lost(self, words: str, action: str, *, sent: bool) -> LedgerctlError:
        if sent:
            return OutcomeUnknown(
                f"cannot tell whether this was done: {action} ({words})",
                hint="run the same command again: a second run is safe",
            )
        return StoreUnavailable(
            f"cannot {action}: Redis at {display(self._settings.redis_url)} cannot be reached"
            f" ({words})",
            hint="`ledgerctl doctor` shows what can be reached",
        )

    # reading

    def read_all(self, key: str) -> Iterator[bytes]:
        """Yield every entry of a list from its head on, in pages that hold the server about 1 ms.

        That is by the size of the entries just read: where much larger ones begin, it takes longer.
        Nothing that stays on the list is left out or given twice while others take from it or
        add to it: two pages share their border, and a border that has moved is looked for.
        """
        recent: list[int] = []  # the hashes of the entries last given, the newest last
        start, size = 0, FIRST_PAGE_ENTRIES
        while True:
            shared = min(OVERLAP, start)
            page = self.page(key, start - shared, size + shared)
            marks = [hash(entry) for entry in page]
            if marks[:shared] != recent[len(recent) - shared :]:
                start, recent = self._border(key, start, recent, size)
                continue
            fresh = page[shared:]
            yield from fresh
            if len(fresh) < size:
                return
            start += len(fresh)
            recent = (recent + marks[shared:])[-RECENT_MAX:]
            size = page_size(fresh)

    def page(self, key: str, start: int, count: int) -> list[bytes]:
        """`count` entries of a list from position `start` on, or as many as there are."""
        with self.reading(f"read {key}"):
            return cast(list[bytes], self.client.lrange(key, start, start + count - 1))

    def _border(self, key: str, start: int, recent: list[int], size: int) -> tuple[int, list[int]]:
        """Return where reading goes on, after the last entry that was given and still exists.

        Also the hashes of what is before it now, which the next page is compared with.
        """
        known, tail = set(recent), recent[-OVERLAP:]
        while True:
            low = max(0, start - 2 * size)
            found = [hash(entry) for entry in self.page(key, low, start - low + size)]
            for end in range(len(found), len(tail) - 1, -1):
                if found[end - len(tail) : end] == tail:
                    return low + end, found[:end]
            for end in range(len(found), 0, -1):
                if found[end - 1] in known:
                    return low + end, found[:end]
            if low == 0:
                return 0, []
            start = low

    def length(self, key: str) -> int:
        """Return how many entries a list has."""
        with self.reading(f"count {key}"):
            return self.client.llen(key)

    def keys_under(self, stem: str, *, kind: str | None = None) -> list[str]:
        """Return the names of the keys that start with `stem:`, sorted; of one type, or of all."""
        pattern = glob_escaped(stem) + ":*"
        found: set[bytes] = set()
        with self.reading(f"look for {stem}:*"):
            cursor: Any = 0
            while True:
                cursor, names = cast(
                    tuple[Any, list[bytes]],
                    self.client.scan(cursor, match=pattern, count=SCAN_COUNT, _type=kind),
                )
                found.update(names)
                if not int(cursor):
                    return sorted(name.decode(errors="surrogateescape") for name in found)

    def processing_keys(self) -> list[str]:
        """Return the processing lists that exist, one a worker, sorted by name."""
        return self.keys_under(self.keys.processing)

    def passed_keys(self) -> list[str]:
        """Return the lists of letters that a filter passes over, sorted by operation."""
        return self.keys_under(f"{self.keys.dead_letter}:passed")

    def server_time(self) -> datetime:
        """Return the server's time, aware UTC. Raises NotPermitted where it may not be asked."""
        with self.reading("ask the time"):
            seconds, microseconds = self.client.time()
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)

    def now(self, own: datetime, say: Callable[[str], None] | None = None) -> datetime:
        """Return the server's time in milliseconds; `own`, said once, where it may not be asked."""
        try:
            moment = self.server_time()
        except NotPermitted:
            if say is not None and not self._clock_said:
                self._clock_said = True
                say(OWN_CLOCK_USED)
            return own
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def run_script(self, name: str, keys: Sequence[str], words: Sequence[Any]) -> Any:
        """Run a script of `scripts/` by its SHA-1, and whole where the server does not know it.

        A driver's error goes on: only the caller knows whether to run the script again.
        """
        source, sha = script(name)
        try:
            return self.client.evalsha(sha, len(keys), *keys, *words)
        except redis_errors.NoScriptError:
            return self.client.eval(source, len(keys), *keys, *words)

    # checks before a change

    def require_lists(self, *keys: str) -> None:
        """Raise WrongKeyType unless each of these keys is a list or does not exist."""
        for key in keys:
            with self.reading(f"ask the type of {key}"):
                found = cast(bytes, self.client.type(key)).decode()
            if found not in {"list", "none"}:
                raise WrongKeyType(
                    f"{key}: expected list, found {found}; nothing was moved",
                    hint="look at the key by hand, or give another name in [keys]",
                )

    def require_writable(self, own_key: str, *keys: str) -> None:
        """Raise unless lists of these names can be changed together in one script.

        `own_key` must not exist: every command that changes a list is tried on it, which does
        nothing and meets every refusal: a read-only replica, a full server, a missing right,
        lists on two slots of a cluster. Raises WrongKeyType, ReadOnlyReplica, CrossSlot,
        StoreBusy or NotPermitted.
        """
        self.require_lists(*keys)
        with self.reading("check that the lists can be changed"):
            self.run_script("try_all", [own_key, *keys], [])

    def settle(self) -> None:
        """Return once no failover is under way and the server in use is the primary."""
        with self.reading("learn which server is the primary"):
            self.client.settle()

    def close(self) -> None:
        """Give the connection back."""
        self.client.close()


@cache
def script(name: str) -> tuple[str, str]:
    """Return a script with the common part before it, and its SHA-1 as the server computes it."""
    import hashlib

    folder = files("ledgerctl.stores") / "scripts"
    source = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in ("common", name))
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


def page_size(entries: list[bytes]) -> int:
    """Return how many entries the next page asks for, so that it is of about PAGE_BYTES."""
    average = sum(map(len, entries)) // max(1, len(entries)) + 1
    return max(1, min(PAGE_ENTRIES_MAX, PAGE_BYTES // average))


def glob_escaped(text: str) -> str:
    """Return the text as a pattern that matches it alone."""
    return "".join(f"\\{one}" if one in "*?[]^-\\" else one for one in text)
