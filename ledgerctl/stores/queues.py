"""The Redis lists: retry, dead letters, and one processing list a worker."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.retry import Retry

from ledgerctl.config import Settings
from ledgerctl.errors import (
    CrossSlot,
    InvariantBroken,
    LedgerctlError,
    NotPermitted,
    OutcomeUnknown,
    ReadOnlyReplica,
    StoreBusy,
    StoreUnavailable,
    WrongKeyType,
)
from ledgerctl.secrets import display, redact

CONNECT_TIMEOUT_S = 2.0
REPLY_TIMEOUT_S = 10.0

REFUSALS: tuple[tuple[str, type[LedgerctlError], str], ...] = (
    (
        "WRONGTYPE",
        WrongKeyType,
        "a configured list is of another type; `ledgerctl doctor` names it",
    ),
    ("READONLY", ReadOnlyReplica, "point redis_url at the primary"),
    ("CROSSSLOT", CrossSlot, "give the lists one hash tag in [keys], as in {jobs}:retry"),
    ("MOVED", CrossSlot, "point redis_url at the node that holds the lists"),
    ("CLUSTERDOWN", StoreUnavailable, "try again once the cluster is up"),
    ("OOM", StoreBusy, "the server is full: free memory, then try again"),
    ("BUSY", StoreBusy, "the server is running somebody's script: try again"),
    ("MISCONF", StoreBusy, "the server cannot save its data: look at its disk"),
    ("LOADING", StoreUnavailable, "the server is loading its data: try again"),
    ("MASTERDOWN", StoreUnavailable, "the replica has lost its primary: try again"),
    ("NOREPLICAS", StoreBusy, "too few replicas for a write: try again"),
    ("NOPERM", NotPermitted, "`ledgerctl db roles` prints the rights that each role needs"),
    ("NOAUTH", NotPermitted, "give a user and password in redis_url"),
    ("WRONGPASS", NotPermitted, "check the credentials in redis_url"),
)


class Queues:
    """One Redis server's lists. Bytes in and out, no automatic resend, short timeouts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.keys = settings.keys
        self.client: Redis = Redis.from_url(
            settings.redis_url.reveal(),
            decode_responses=False,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=REPLY_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            health_check_interval=0,
            protocol=2,
        )

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
        words = redact(str(error), self._settings.secrets)[:300]
        for mark, kind, hint in REFUSALS:
            if mark in words.split(":")[0].upper().split() or words.upper().startswith(mark):
                return kind(f"cannot {action}: Redis says {words}", hint=hint)
        if isinstance(error, redis_errors.AuthenticationError):
            return NotPermitted(
                f"cannot {action}: Redis refused the user or its password",
                hint="check the credentials in redis_url",
            )
        if isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError):
            return self._lost(words, action, sent=sent)
        return InvariantBroken(f"cannot {action}: Redis says {words}")

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

    def close(self) -> None:
        """Give the connection back."""
        self.client.close()
