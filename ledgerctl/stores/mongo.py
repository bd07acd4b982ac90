"""Opens MongoDB; driver errors become ours: nothing sent, or outcome unknown."""

import re
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from pymongo import MongoClient
from pymongo import errors as mongo_errors
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from ledgerctl.addresses import display, redact
from ledgerctl.config import Settings
from ledgerctl.errors import (
    InvariantBroken,
    JobHeld,
    LedgerctlError,
    NotPermitted,
    OutcomeUnknown,
    SettingsError,
    StoreUnavailable,
)
from ledgerctl.stores.codec import Document, candidates, to_json
from ledgerctl.stores.outages import FIRST_CONTACT_S, OUTAGE_S, Notice, Outage
from ledgerctl.stores.replies import IN_THE_WAY, RIGHTS, UNKNOWN, mongo_answer

WRITES = frozenset({"insert", "update", "delete", "findAndModify", "createIndexes", "aggregate"})
MERGING = frozenset({"$merge", "$out"})
COMMIT = "commitTransaction"


class Changes(CommandListener):
    """Counts the writes that the server has confirmed and that changed something.

    Inside a transaction nothing counts before its commit. Collections that only tell of changes or
    keep runs apart (`besides`) do not count: the operator log, the leases, the archive.
    """

    def __init__(self, besides: Iterable[str]) -> None:
        self.count = 0
        self._besides = frozenset(besides)
        self._sent: set[int] = set()
        self.has_read: bool | None = None  # whether a document has come; None: no answer at all

    def started(self, event: CommandStartedEvent) -> None:
        """Remember a write whose success will count."""
        if event.command_name == COMMIT or (
            event.command_name in WRITES and self._counts(event.command_name, event.command)
        ):
            self._sent.add(event.request_id)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Count it if it has changed anything; note that documents exist."""
        found = event.reply.get("cursor", {}).get("firstBatch", ())
        self.has_read = bool(self.has_read) or any("_id" in one for one in found)
        if event.request_id in self._sent:
            self._sent.discard(event.request_id)
            self.count += has_changed(event.command_name, event.reply)

    def failed(self, event: CommandFailedEvent) -> None:
        """Forget it."""
        self._sent.discard(event.request_id)

    def _counts(self, name: str, command: Mapping[str, Any]) -> bool:
        if command.get(name) in self._besides or command.get("autocommit") is False:
            return False
        return name != "aggregate" or bool(MERGING & set((command["pipeline"] or [{}])[-1]))


def has_changed(name: str, reply: Mapping[str, Any]) -> bool:
    """Return whether a write changed something; a reply that says nothing means that it did."""
    match name:
        case "update":
            return bool(reply.get("nModified") or reply.get("upserted"))
        case "insert" | "delete":
            return bool(reply.get("n"))
        case "findAndModify":
            return bool((reply.get("lastErrorObject") or {}).get("n"))
        case "createIndexes":
            return reply.get("numIndexesBefore") != reply.get("numIndexesAfter")
        case _:
            return True


if TYPE_CHECKING:
    from ledgerctl.stores.mapped import ForeignCollection

T = TypeVar("T")

SELECTION_TIMEOUT_MS = int(OUTAGE_S * 1000)
CONNECT_TIMEOUT_MS = 1_500
PATIENCE_S = 5.0  # with somebody else's transaction
SOCKET_TIMEOUT_MS = 120_000  # a long aggregation sends nothing before its end

DUPLICATE_KEY = {11000}
# Beside another team's ledger a right to find in that ledger is enough.
UNREAD_IS_EMPTY = ("usage_daily", "operator_log", "dead_archive", "leases")
CURSOR_GONE = {43, 175, 237, 239, 246}  # or its snapshot
LOST_PAUSE_S = 0.1

CODEC: CodecOptions[Document] = CodecOptions(
    tz_aware=True,
    tzinfo=UTC,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="backslashreplace",
)


class Conflicted(Exception):
    """Signal that a transaction that is tried once met another one; it wrote nothing."""


class PrimaryWatch(ServerHeartbeatListener):
    """Tells an outage when MongoDB has no server that takes writes, and when it has one again.

    By the servers' own heartbeats: a listener of the topology makes closing a client take 0.5 s.
    """

    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._writable: set[tuple[str, int | None]] = set()
        self._lock = threading.Lock()

    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        """Say nothing: no answer yet."""

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        """Note whether this server takes writes now."""
        self._note(event.connection_id, takes_writes=event.reply.is_writable)

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        """Note that this server answers no more."""
        self._note(event.connection_id, takes_writes=False)

    def _note(self, server: tuple[str, int | None], *, takes_writes: bool) -> None:
        with self._lock:
            had = bool(self._writable)
            (self._writable.add if takes_writes else self._writable.discard)(server)
            has = bool(self._writable)
        if has:
            self._outage.end()
        elif had:
            self._outage.begin("no primary takes writes", sure=True)


class Mongo:
    """Hold one MongoDB database: majority writes, primary majority reads.

    Opening asks the server who it is: `transactions` says whether it has them, and its clock is
    read once, so that `now()` is the server's time, not this machine's. First contact is given up
    after 3 s; from then on the driver waits for a primary through an election.
    """

    def __init__(self, settings: Settings, notice: Notice = lambda _text: None) -> None:
        self._settings = settings
        self.outage = Outage("MongoDB", notice)
        names = settings.collections
        self.changes = Changes({names.operator_log, names.leases, names.dead_archive})
        self._lists: dict[str, bool] = {}  # by collection, whether an account may be a list
        self.unread: dict[str, None] = {}  # collections of ours that stand for empty ones
        self.client: MongoClient[Document] = self._client()
        self.database: Database[Document] = self.client.get_database(
            settings.database,
            codec_options=CODEC,
            read_preference=ReadPreference.PRIMARY,
            write_concern=WriteConcern(w="majority", j=True),
            read_concern=ReadConcern("majority"),
        )

    def _client(self) -> MongoClient[Document]:
        settings = self._settings
        try:
            # An option that PyMongo does not understand it drops with a warning: it is a mistake.
            with warnings.catch_warnings(action="error", category=UserWarning):
                return MongoClient(
                    settings.mongo_uri.reveal(),
                    serverSelectionTimeoutMS=SELECTION_TIMEOUT_MS,
                    connectTimeoutMS=CONNECT_TIMEOUT_MS,
                    socketTimeoutMS=SOCKET_TIMEOUT_MS,
                    appname="ledgerctl",
                    event_listeners=[self.changes, PrimaryWatch(self.outage)],
                    tz_aware=True,
                )
        except (mongo_errors.PyMongoError, ValueError, OSError, UserWarning) as error:
            if type(error.__cause__).__module__.startswith("dns."):  # the names of mongodb+srv
                raise self._unreachable(error, "look up the MongoDB hosts") from None
            raise SettingsError(
                f"the MongoDB URI cannot be used: {self.clean(error)}",
                hint="check mongo_uri; `ledgerctl config show` says where it comes from",
            ) from None

    @cached_property
    def hello(self) -> Document:
        """Return what the server says of itself, asked at the first contact."""
        with self.reading("connect"):
            before = time.monotonic()
            answer = self.client.admin.command("hello")
            # The reply was written somewhere between sending and receiving: take the middle.
            self._heard_at = (before + time.monotonic()) / 2
        return dict(answer)

    @property
    def transactions(self) -> bool:
        """Return whether the deployment has transactions: a replica set or a sharded cluster."""
        return "setName" in self.hello or self.hello.get("msg") == "isdbgrid"

    def now(self) -> datetime:
        """Return the server's time, aware UTC, milliseconds, from its clock when we connected."""
        heard: datetime = self.hello["localTime"]
        since = timedelta(seconds=time.monotonic() - self._heard_at)
        moment = (heard if heard.tzinfo else heard.replace(tzinfo=UTC)) + since
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def collection(self, name: str) -> Collection[Document]:
        """Return a collection by the name it has in the settings: `jobs`, `ledger`, …"""
        if (foreign := self._foreign.get(name)) is None:
            return self.database[getattr(self._settings.collections, name)]
        if name in UNREAD_IS_EMPTY:
            self.unread[name] = None
        return cast("Collection[Document]", foreign)

    @cached_property
    def _foreign(self) -> "Mapping[str, ForeignCollection]":
        """Another team's collections, which answer to our names and take no writes."""
        fields, names = self._settings.map, self._settings.collections
        if fields is None:
            return {}
        from ledgerctl.stores.deployment import Deployment
        from ledgerctl.stores.mapped import foreign_collections

        login = Deployment(self).login()
        real = {name: self.database[one] for name, one in asdict(names).items()}
        unread = [one for one in UNREAD_IS_EMPTY if not login.allows(real[one].name, "find")]
        found = foreign_collections(fields, real, unread if login.users else [])
        self._lists |= {name: False for name, one in found.items() if one.is_absent}
        return found

    def of_account(self, collection: str, account: str) -> Document:
        """Filter the documents of an account, under whichever type; never those whose list holds it."""
        values = candidates(account)
        wanted: Document = {"$in": values}
        if not any(isinstance(one, list) for one in values) and self._holds_lists(collection):
            wanted["$not"] = {"$type": "array"}
        return {"account_id": wanted}

    def _holds_lists(self, collection: str) -> bool:
        """Ask the index once for lists among the accounts: a filter against them costs it its cover."""
        if collection not in self._lists:
            name, foreign = self.collection(collection).name, self._foreign.get(collection)
            path = foreign.path_of("account_id") if foreign else "account_id"
            query = {"find": name, "filter": {path: ""}}
            with self.reading(f"look at the index of {name}"):
                plan = self.database.command("explain", query, verbosity="queryPlanner")
            scans = list(scans_of(plan))
            self._lists[collection] = not scans or any(
                one.get("multiKeyPaths", {path: True}).get(path) for one in scans
            )
        return self._lists[collection]

    def check_spelling(self) -> None:
        """Raise SettingsError where nothing was read, and a database differs from ours in case only."""
        if self.changes.has_read is not False:
            return
        name = self.database.name
        alike = {"name": {"$regex": f"^{re.escape(name)}$", "$options": "i"}}
        try:
            with self.reading("look for the database"):
                found = self.client.admin.command("listDatabases", nameOnly=True, filter=alike)
        except NotPermitted:  # then nobody can tell
            return
        names = [one["name"] for one in found["databases"]]
        if names and name not in names:
            raise SettingsError(
                f"there is no database {name!r}, but there is {names[0]!r}",
                hint="write the database's name as the server spells it",
            )

    def clean(self, error: BaseException | str) -> str:
        """Return a driver's message with every secret taken out, cut to one short line."""
        text = redact(str(error), self._settings.secrets)
        for tail in (", Timeout:", ", full error:", " (configured timeouts:"):
            text = text.split(tail)[0]
        return text[:300]

    @contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """End every command inside with an error once the time is up, the server's work too."""
        with pymongo.timeout(seconds):
            yield

    def reading(
        self, action: str, session: ClientSession | None = None
    ) -> AbstractContextManager[None]:
        """Turn a failed read into ours; nothing was changed by it."""
        return self._telling(session, partial(self.translated, action=action, sent=False))

    def writing(
        self, action: str, session: ClientSession | None = None
    ) -> AbstractContextManager[None]:
        """Say of a failed write whether it may have landed.

        Raises StoreUnavailable when nothing was sent, OutcomeUnknown when it may have been
        applied, StoreBusy or NotPermitted when the server refused it.
        """
        return self._telling(session, partial(self.translated, action=action, sent=True))

    def reading_back(
        self, action: str, session: ClientSession | None = None
    ) -> AbstractContextManager[None]:
        """Read what a write has come to; when that fails, the write's outcome is unknown."""
        return self._telling(session, partial(self._unknown, action=action))

    @contextmanager
    def _telling(
        self, session: ClientSession | None, ours: Callable[[Exception], LedgerctlError]
    ) -> Iterator[None]:
        """Raise our error for a driver's.

        Inside a transaction the driver's error goes on: its loop knows what to try again.
        """
        try:
            with self._limited():
                yield
        except mongo_errors.PyMongoError as error:
            if session is not None:
                raise
            raise ours(error) from None

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Give up first contact, and a server that has been away for too long, within 3 s."""
        if not self.outage.has_begun:
            with pymongo.timeout(FIRST_CONTACT_S):
                self.outage.has_begun = self.client.is_mongos is not None
        if self.outage.is_over_limit:
            with pymongo.timeout(FIRST_CONTACT_S):
                yield
        else:
            yield

    def repeated(self, act: Callable[[], T]) -> T:
        """Run what may be repeated, again after a lost connection, cursor or primary, for 30 s."""
        return self._again(act, is_lost)

    def patiently(self, act: Callable[[], T]) -> T:
        """Run a step, again while nothing was sent because no primary is there, for 30 s."""
        return self._again(
            act,
            lambda error: isinstance(error, StoreUnavailable) and not self.outage.is_over_limit,
        )

    def _again(self, act: Callable[[], T], passes: Callable[[Exception], bool]) -> T:
        until: float | None = None
        while True:
            try:
                return act()
            except (mongo_errors.PyMongoError, StoreUnavailable) as error:
                until = until or time.monotonic() + self.outage.limit_s
                if not passes(error) or time.monotonic() >= until:
                    raise
            time.sleep(LOST_PAUSE_S)

    def translated(self, error: Exception, action: str, *, sent: bool) -> LedgerctlError:
        """Return our error for a driver's; `sent` says that the action may have been applied."""
        if isinstance(error, mongo_errors.ServerSelectionTimeoutError):
            return self._unreachable(error, action)
        if isinstance(error, mongo_errors.WTimeoutError | mongo_errors.WriteConcernError):
            return self._unknown(error, action)
        if isinstance(error, mongo_errors.BulkWriteError):
            return self._bulk(error, action)
        if isinstance(error, mongo_errors.OperationFailure | mongo_errors.NotPrimaryError):
            return self._answered(error, action, sent=sent)
        if isinstance(error, mongo_errors.ConnectionFailure | mongo_errors.WaitQueueTimeoutError):
            return self._unknown(error, action) if sent else self._unreachable(error, action)
        if isinstance(error, mongo_errors.ConfigurationError):
            return SettingsError(f"cannot {action}: {self.clean(error)}")
        return InvariantBroken(f"cannot {action}: MongoDB says {self.clean(error)}")

    def _bulk(self, error: mongo_errors.BulkWriteError, action: str) -> LedgerctlError:
        """Return what several writes in one come to: the first refusal that is known, else unknown."""
        details = error.details or {}
        found = details.get("writeErrors", [])
        refused = [
            mongo_errors.WriteError(one.get("errmsg", ""), one.get("code"), one) for one in found
        ]
        known = [one for one in refused if mongo_answer(one.code) is not UNKNOWN]
        if not known and (not refused or details.get("writeConcernErrors")):
            return self._unknown(error, action)
        return self._answered((known or refused)[0], action, sent=True)

    def _answered(self, error: Exception, action: str, *, sent: bool) -> LedgerctlError:
        answer = mongo_answer(code_of(error))
        if sent and answer.may_be_applied:
            return self._unknown(error, action)
        said = answer.said or f"MongoDB says {self.clean(error)}{rule_of(error)}"
        if answer is RIGHTS:
            said = missing_right(self.clean(error))
        return answer.error(f"cannot {action}: {said}", hint=answer.hint)

    def _unreachable(self, error: Exception, action: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"cannot {action}: MongoDB at {display(self._settings.mongo_uri)} cannot be reached"
            f" ({self.clean(error)})",
            hint="`ledgerctl doctor` shows what can be reached",
        )

    def _unknown(self, error: Exception, action: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"cannot tell whether this was done: {action} ({self.clean(error)})",
            hint="run the same command again: a second run is safe",
        )

    def transaction(
        self,
        action: str,
        body: Callable[[ClientSession], T],
        *,
        patience_s: float = PATIENCE_S,
        once: bool = False,
    ) -> T:
        """Run `body` in one short transaction; all of it lands or none does.

        Conflicts are tried again with a pause, for `patience_s` in all: a transaction that a
        killed client left open holds its documents for up to a minute, and nobody waits for that.
        Time without a primary does not count there; that is waited for by the outage's limit.
        With `once` the first conflict ends it: Conflicted, and nothing is written.
        Raises JobHeld when the conflict outlasts the patience, OutcomeUnknown when the commit's
        reply stays away; what `body` itself raises ends the transaction and goes on.
        """
        held_until: float | None = None  # from the first conflict: an attempt may hang before it
        lost_until: float | None = None
        pause_s = 0.002
        with self._session(action) as session:
            while True:
                started = time.monotonic()
                try:
                    return self._attempt(session, body)
                except mongo_errors.PyMongoError as error:
                    if not error.has_error_label("TransientTransactionError"):
                        raise self.translated(error, action, sent=False) from None
                    if code_of(error) in IN_THE_WAY:
                        if once:
                            raise Conflicted(action) from None
                        held_until = held_until or time.monotonic() + patience_s
                        if time.monotonic() >= held_until:
                            raise self._held(action) from None
                    else:  # no primary: that time is nobody's conflict
                        held_until = None
                        lost_until = lost_until or started + self.outage.limit_s
                        if time.monotonic() >= lost_until:
                            raise self.translated(error, action, sent=False) from None
                time.sleep(pause_s * (1 + secrets.randbelow(1000) / 1000))
                pause_s = min(pause_s * 2, 0.1)

    def together(
        self,
        action: str,
        body: Callable[[ClientSession | None], None],
        *,
        patience_s: float = PATIENCE_S,
        once: bool = False,
    ) -> None:
        """Run writes as one transaction where there are any, else one by one in their order."""
        try:
            if self.transactions:
                self.transaction(action, body, patience_s=patience_s, once=once)
            else:
                body(None)
        except BSONError as error:
            raise InvariantBroken(f"cannot {action}: {error}") from None

    def _attempt(self, session: ClientSession, body: Callable[[ClientSession], T]) -> T:
        with session.start_transaction(
            read_concern=ReadConcern("snapshot"), write_concern=WriteConcern(w="majority", j=True)
        ):
            value = body(session)
            until: float | None = None
            while True:
                try:
                    session.commit_transaction()
                except mongo_errors.PyMongoError as error:
                    if error.has_error_label("TransientTransactionError"):
                        raise
                    if not error.has_error_label("UnknownTransactionCommitResult"):
                        raise self.translated(error, "commit", sent=True) from None
                    until = until or time.monotonic() + self.outage.limit_s
                    if time.monotonic() >= until:
                        raise self._unknown(error, "commit") from None
                    time.sleep(LOST_PAUSE_S)
                else:
                    return value

    @contextmanager
    def _session(self, action: str) -> Iterator[ClientSession]:
        with self.reading(action):
            opened = self.client.start_session()
        with opened as session:
            yield session

    def _held(self, action: str) -> JobHeld:
        return JobHeld(
            f"cannot {action}: another operation holds it, perhaps one whose client was killed",
            hint="try again in a minute: the server lets go of it by itself",
        )

    @contextmanager
    def snapshot(self, action: str) -> Iterator[ClientSession]:
        """Return a session whose reads all see one moment of the data; needs `transactions`."""
        with self.reading(action), self.client.start_session(snapshot=True) as session:
            yield session

    def close(self) -> None:
        """Give the connections back."""
        self.outage.limit_s = 0  # the driver tells of its own end as of a lost primary
        self.client.close()


def code_of(error: Exception) -> int | None:
    """Return the code of a server's error reply; None where the connection itself failed."""
    details = getattr(error, "details", None)
    found = getattr(error, "code", None) or (dict(details or {}).get("code"))
    return found if isinstance(found, int) else None


def is_lost(error: Exception) -> bool:
    """Return True when a connection, a cursor or the primary is gone and a new try may succeed."""
    if isinstance(error, mongo_errors.ServerSelectionTimeoutError):
        return False
    if isinstance(error, mongo_errors.AutoReconnect | mongo_errors.CursorNotFound):
        return True
    code = code_of(error)
    return code in CURSOR_GONE or mongo_answer(code).passes


def is_duplicate(error: mongo_errors.BulkWriteError) -> bool:
    """Return True when a bulk write failed for duplicate keys alone, confirmed by a majority."""
    details = error.details or {}
    codes = {trouble.get("code") for trouble in details.get("writeErrors", [])}
    return codes == DUPLICATE_KEY and not details.get("writeConcernErrors")


READING = {"aggregate", "count", "distinct", "getMore"}  # what the right to find is for


def missing_right(words: str) -> str:
    """Return the server's refusal, short: which right the user lacks on which collection."""
    found = re.search(r'on (\S+) to execute command \{ (\w+): (?:"([^"]*)")?', words)
    if found is None:
        return words
    database, command, collection = found.groups()
    right = "find" if command in READING else command
    place = f"{database}.{collection}" if collection else f"database {database}"
    return f"the user lacks the right to {right} on {place}"


def scans_of(plan: object) -> Iterator[Document]:
    """Yield the stages of an explained plan that read an index or the whole collection."""
    if isinstance(plan, dict):
        if str(plan.get("stage", "")).endswith(("IXSCAN", "COLLSCAN")):
            yield plan
        for part in plan.values():
            yield from scans_of(part)
    if isinstance(plan, list):
        for part in plan:
            yield from scans_of(part)


def rule_of(error: Exception) -> str:
    """Spell the rule of a validator that a document broke; empty for other errors."""
    details = getattr(error, "details", None) or {}
    rule = (details.get("errInfo") or {}).get("details")
    return f": {to_json(rule)[:300]}" if rule else ""
