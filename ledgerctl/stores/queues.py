"""The Redis lists: retry, dead letters, and one processing list a worker."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import chain, count
from typing import Any, NamedTuple, cast

from redis import exceptions as redis_errors

from ledgerctl.addresses import display, redact, redis_place
from ledgerctl.config import Settings
from ledgerctl.errors import (
    LedgerctlError,
    NotPermitted,
    OutcomeUnknown,
    StoreUnavailable,
    WrongKeyType,
)
from ledgerctl.stores.outages import Notice, Outage
from ledgerctl.stores.redis_client import LOST, NotSent, PatientRedis
from ledgerctl.stores.replies import UNKNOWN, redis_answer

PAGE_ENTRIES_MAX = 1_000
PAGE_BYTES = 400_000  # what a page aims at, by the size of the page before it
FIRST_PAGE_ENTRIES = 10  # whose size nobody knows yet
RECENT_MAX = 4_000  # entries by whose hashes a border that has moved is found again
OVERLAP = 2  # entries that two pages share, to see that the list has not moved in between
OWN_CLOCK_USED = "Redis may not be asked for its time: due times are judged by our own clock"
PAGES_TOGETHER = 16
WALK_ENTRIES, WALK_ROUNDS = 10_000, 10  # a database of up to 100,000 keys is walked

Call = tuple[str, Sequence[str], Sequence[Any]]
"""A script's name, its keys and its arguments."""


class Survey(NamedTuple):
    """Lists that stand beside the dead letters, and how long those are."""

    passed: list[str]  # of letters that a filter passed over, sorted by operation
    processing: list[str]  # one a worker, sorted by name
    length: int


class Queues:
    """Read and write the lists on Redis; nothing that may have been applied is sent again."""

    def __init__(self, settings: Settings, notice: Notice = lambda _text: None) -> None:
        self._settings = settings
        self._notice = notice
        self.keys = settings.keys
        self.client: PatientRedis = PatientRedis(
            redis_place(settings.redis_url.reveal()),
            (self.keys.retry, self.keys.dead_letter, self.keys.processing),
            Outage("Redis", notice),
        )
        self._clock_said = False
        self.is_large = False  # the database has too many keys to walk; lists are known by name
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

    def read_all(self, key: str, first: int = FIRST_PAGE_ENTRIES) -> Iterator[bytes]:
        """Yield every entry of a list from its head on, in pages that hold the server about 1 ms.

        That is by the size of the entries just read: where much larger ones begin, it takes longer.
        Nothing that stays on the list is left out or given twice while others take from it or
        add to it: two pages share their border, and a border that has moved is looked for.
        """
        return chain.from_iterable(self.pages(key, first))

    def pages(self, key: str, first: int = FIRST_PAGE_ENTRIES) -> Iterator[list[bytes]]:
        """Yield every entry of a list from its head on, in pages that hold the server about 1 ms.

        That is by the size of the entries just read: where much larger ones begin, it takes longer.
        The further one reads, the more pages travel together. Nothing that stays on the list is
        left out or given twice while others take from it or add to it: two pages share their
        border, and a border that has moved is looked for.
        """
        recent: list[int] = []  # the hashes of the entries last given, the newest last
        start, size, together = 0, first, 1
        fresh: list[bytes] = []
        while True:
            shared = min(OVERLAP, start)
            starts = range(start - shared, start - shared + together * size, size)
            for page in self.stretches(key, [(one, size + shared) for one in starts]):
                marks = [hash(entry) for entry in page]
                if marks[:shared] != recent[len(recent) - shared :]:
                    start, recent = self._border(key, start, recent, size)
                    together = 1
                    break
                fresh = page[shared:]
                if fresh:
                    yield fresh
                if len(fresh) < size:
                    return
                start += size
                recent = (recent + marks[shared:])[-RECENT_MAX:]
            else:
                size, together = page_size(fresh), min(4 * together, PAGES_TOGETHER)

    def stretches(self, key: str, wanted: Sequence[tuple[int, int]]) -> list[list[bytes]]:
        """Return these stretches (first position, count) of a list, in one round trip."""
        with self.reading(f"read {key}"):
            return self.together(("LRANGE", key, at, at + length - 1) for at, length in wanted)

    def page(self, key: str, start: int, count: int) -> list[bytes]:
        """`count` entries of a list from position `start` on, or as many as there are."""
        return self.stretches(key, [(start, count)])[0]

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

    def together(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Send commands in one round trip; raise the driver's error of the first that fails."""
        answers = self.attempts(commands)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def attempts(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Send commands in one round trip; an answer may be the server's error."""
        return self.client.together(list(commands))

    def length(self, key: str) -> int:
        """Return how many entries a list has."""
        return self.lengths(key)[0]

    def lengths(self, *keys: str) -> list[int]:
        """Return how many entries each of these lists has."""
        with self.reading(f"count {', '.join(keys)}"):
            return self.together(("LLEN", key) for key in keys)

    # lists that are found by name

    def survey(self) -> Survey:
        """Check the types of the lists and find those known by name. Raises WrongKeyType."""
        own = (self.keys.dead_letter, self.keys.retry)
        stems = (f"{self.keys.dead_letter}:passed", self.keys.processing)
        with self.reading("look at the lists"):
            *kinds, passed, processing, length = self.attempts(
                [*(("TYPE", key) for key in own), *map(self._search, stems), ("LLEN", own[0])]
            )
            require_kinds(own, kinds)
            for answer in (passed, processing, length):
                if isinstance(answer, Exception):
                    raise answer
        return Survey(self._found(stems[0], passed), self._found(stems[1], processing), length)

    def _search(self, stem: str) -> tuple[Any, ...]:
        if self.is_large:
            return ("SMEMBERS", self._names_key(f"{stem}:"))
        return ("SCAN", 0, "MATCH", f"{glob_escaped(stem)}:*", "COUNT", WALK_ENTRIES)

    def _found(self, stem: str, answer: Any) -> list[str]:
        if isinstance(answer, set):
            return sorted(name.decode(errors="surrogateescape") for name in answer)
        cursor, names = answer
        if int(cursor):
            return self._known(stem)
        return sorted({name.decode(errors="surrogateescape") for name in names})

    def processing_keys(self) -> list[str]:
        """Return the processing lists that are known, one a worker, sorted by name."""
        return self._known(self.keys.processing)

    def passed_keys(self) -> list[str]:
        """Return the lists of letters that a filter passes over, sorted by operation."""
        return self._known(f"{self.keys.dead_letter}:passed")

    def remember_found(self, keys: Iterable[str]) -> None:
        """Keep the names of side lists that a walk of a large database found."""
        if self.is_large:
            side = (f"{self.keys.processing}:", f"{self.keys.dead_letter}:passed:")
            for key in keys:
                if key.startswith(side):
                    self.remember(key)

    def remember(self, key: str) -> None:
        """Keep the name of a list that is about to be written, for databases too large to walk."""
        with self._optional(), self.writing(f"keep the name {key}"):
            self.client.sadd(self._names_key(key), key)

    def forget(self, key: str) -> None:
        """Drop the name of a list that is empty now."""
        with self._optional(), self.writing(f"drop the name {key}"):
            self.client.srem(self._names_key(key), key)

    def _optional(self) -> AbstractContextManager[None]:
        """Allow a missing right to sets where a walk finds the lists anyway."""
        return nullcontext() if self.is_large else suppress(NotPermitted)

    @property
    def names_keys(self) -> set[str]:
        """Return the sets that keep the names of lists."""
        return {self._names_key(key) for key in (f"{self.keys.processing}:", "")}

    def _names_key(self, key: str) -> str:
        is_processing = key.startswith(f"{self.keys.processing}:")
        return f"{self.keys.retry if is_processing else self.keys.dead_letter}:names"

    def _known(self, stem: str) -> list[str]:
        found = None if self.is_large else self.walk(stem, rounds=WALK_ROUNDS)
        if found is not None:
            return found
        if not self.is_large:
            self._notice("Redis has more than 100,000 keys: processing lists are known by name")
        self.is_large = True
        names = self._names_key(f"{stem}:")
        with self.reading(f"read {names}"):
            members = cast(set[bytes], self.client.smembers(names))
            return sorted(name.decode(errors="surrogateescape") for name in members)

    def walk(
        self, stem: str, *, rounds: int | None = None, within: Callable[[], bool] = lambda: True
    ) -> list[str] | None:
        """Return the keys that start with `stem:`, sorted; None when `rounds` or `within` end it."""
        pattern = glob_escaped(stem) + ":*"
        found: set[bytes] = set()
        cursor: Any = 0
        with self.reading(f"look for {stem}:*"):
            for number in count() if rounds is None else range(rounds):
                self.is_large |= number >= WALK_ROUNDS
                cursor, names = cast(
                    tuple[Any, list[bytes]],
                    self.client.scan(cursor, match=pattern, count=WALK_ENTRIES),
                )
                found.update(names)
                if not int(cursor):
                    return sorted(name.decode(errors="surrogateescape") for name in found)
                if not within():
                    return None
        return None

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

    def run_script(
        self, name: str, keys: Sequence[str], words: Sequence[Any], *, changes: bool = True
    ) -> Any:
        """Run a script of `scripts/`.

        A driver's error goes on: only the caller knows whether to run again what changes lists.
        """
        command = evaluation((name, keys, words))
        return self.client.execute_command(*command, changes=changes)

    # checks before a change

    def require_lists(self, *keys: str) -> None:
        """Raise WrongKeyType unless each of these keys is a list or does not exist."""
        with self.reading(f"ask the type of {', '.join(keys)}"):
            require_kinds(keys, self.attempts(("TYPE", key) for key in keys))

    def require_writable(self, own_key: str, *keys: str) -> None:
        """Raise unless lists of these names can be changed together in one script.

        `own_key` must not exist: every command that changes a list is tried on it, which does
        nothing and meets every refusal: a read-only replica, a full server, a missing right,
        lists on two slots of a cluster. Raises WrongKeyType, ReadOnlyReplica, CrossSlot,
        StoreBusy or NotPermitted.
        """
        trial = evaluation(("try_all", [own_key, *keys], []))
        commands = [*(("TYPE", key) for key in keys), trial]
        with self.reading("check that the lists can be changed"):
            *kinds, tried = self.client.together(commands, changes=False)
            require_kinds(keys, kinds)
            if isinstance(tried, Exception):
                raise tried

    def settle(self) -> None:
        """Return once no failover is under way and the server in use is the primary."""
        with self.reading("learn which server is the primary"):
            self.client.settle()

    def close(self) -> None:
        """Give the connection back."""
        self.client.close()


def require_kinds(keys: Sequence[str], kinds: Sequence[Any]) -> None:
    """Raise WrongKeyType unless each key is a list or does not exist; raise the server's error."""
    for key, kind in zip(keys, kinds, strict=True):
        if isinstance(kind, Exception):
            raise kind
        if kind not in {b"list", b"none"}:
            raise WrongKeyType(
                f"{key}: expected list, found {kind.decode()}; nothing was moved",
                hint="look at the key by hand, or give another name in [keys]",
            )


@cache
def source_of(name: str) -> str:
    """Return the text of a script, the common part before it."""
    folder = files("ledgerctl.stores") / "scripts"
    return "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in ("common", name))


def evaluation(call: Call) -> tuple[Any, ...]:
    """Return the command that runs a script."""
    name, keys, arguments = call
    return ("EVAL", source_of(name), len(keys), *keys, *arguments)


def page_size(entries: list[bytes]) -> int:
    """Return how many entries the next page asks for, so that it is of about PAGE_BYTES."""
    average = sum(map(len, entries)) // max(1, len(entries)) + 1
    return max(1, min(PAGE_ENTRIES_MAX, PAGE_BYTES // average))


def glob_escaped(text: str) -> str:
    """Return the text as a pattern that matches it alone."""
    return "".join(f"\\{one}" if one in "*?[]^-\\" else one for one in text)
