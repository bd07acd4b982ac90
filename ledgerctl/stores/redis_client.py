"""The connection to Redis: the primary by Sentinel, the owner of a slot by MOVED, and patience."""

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from redis import Redis
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.connection import (
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.crc import key_slot
from redis.retry import Retry

from ledgerctl.addresses import RedisPlace
from ledgerctl.errors import SettingsError
from ledgerctl.stores.outages import Outage
from ledgerctl.stores.replies import REDIS, redis_answer

CONNECT_TIMEOUT_S = 2.0
REPLY_TIMEOUT_S = 2.5  # a server that is silent for longer cannot be reached
SENTINEL_TIMEOUT_S = 0.7  # of each of several
PAUSE_S = 0.25
REDIRECTS_MAX = 20
READS = frozenset(
    {
        "CLUSTER", "CONFIG GET", "DBSIZE", "EXISTS", "INFO", "LINDEX", "LLEN", "LPOS", "LRANGE",
        "PING", "PTTL", "ROLE", "SCAN", "SCARD", "SCRIPT LOAD", "SISMEMBER", "SMEMBERS", "SSCAN",
        "TIME", "TYPE",
    }
)  # fmt: skip
SCRIPTS = frozenset({"EVAL", "EVALSHA"})
REPLICA = frozenset({"replica", "slave"})
AFTER_A_WRITE = (REDIS["READONLY"], REDIS["NOREPLICAS"])  # before one, the place itself is wrong
UNSETTLED = frozenset({"failover_in_progress", "s_down", "o_down", "disconnected"})
# The last one: who answers there does not speak Redis, so nothing is known of Redis itself.
LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.InvalidResponse)

Node = tuple[str, int]


class NotSent(redis_errors.ConnectionError):
    """No connection: the command was not sent."""


class View(NamedTuple):
    """Describe what one sentinel says of the primary."""

    node: Node
    flags: frozenset[str]


class Route:
    """Describe where the lists are now, and what the server there said of itself."""

    def __init__(self, seeds: Sequence[Node], keys: Sequence[str]) -> None:
        self._candidates = list(seeds)
        self._keys = keys
        self.mode = ""  # `cluster`, `standalone`; empty where the server does not say
        self.role = ""
        self.at: Node | None = None

    def node(self) -> Node:
        """Return where to connect."""
        self.at = self._candidates[0]
        return self.at

    def moved(self, host: str, port: int) -> None:
        """Go to the node that owns the slot; an empty host is the one that said so."""
        owner = (host or self._candidates[0][0], port)
        self._candidates = [owner, *(one for one in self._candidates if one != owner)]

    def learn(self, nodes: Sequence[Node]) -> None:
        """Remember more nodes of the cluster, for when the one in use is gone."""
        self._candidates += [one for one in nodes if one not in self._candidates]

    def failed(self) -> None:
        """Try another node next."""
        self._candidates = [*self._candidates[1:], *self._candidates[:1]]

    def greeted(self, facts: dict[str, str]) -> None:
        """Take what a server says of itself; lists that share no slot are refused here at once."""
        self.mode, self.role = facts.get("mode", ""), facts.get("role", "")
        slots = {key_slot(key.encode()) for key in self._keys}
        if self.mode == "cluster" and len(slots) > 1:
            raise redis_errors.ClusterCrossSlotError(
                f"this is a cluster and {', '.join(self._keys)} share no slot"
            )

    def views(self) -> list[View]:
        """Return nothing: no sentinel watches here."""
        return []

    def election_trouble(self) -> str | None:
        """Return None: no sentinel elects here."""
        return None


class SentinelRoute(Route):
    """Asks the sentinels for the primary at each connection."""

    def __init__(self, place: RedisPlace, options: dict[str, Any], keys: Sequence[str]) -> None:
        super().__init__((), keys)
        self._service = place.service
        kept = {name: value for name, value in options.items() if name.startswith("ssl_")}
        login = {"username": None, "password": None, **place.sentinel_login}
        self._sentinels = [
            cast(Any, Redis)(
                host, port, retry=Retry(NoBackoff(), 0), socket_timeout=SENTINEL_TIMEOUT_S,
                socket_connect_timeout=SENTINEL_TIMEOUT_S, protocol=2, decode_responses=True,
                ssl=place.driver_url.startswith("rediss:"), **login, **kept,
            )
            for host, port in place.sentinels
        ]  # fmt: skip

    def node(self) -> Node:
        """Return the primary that the first sentinel to answer names."""
        last: Exception | None = None
        for sentinel in [*self._sentinels]:
            try:
                found = self._ask(sentinel, "GET-MASTER-ADDR-BY-NAME")
            except redis_errors.RedisError as error:
                last = error
                self._sentinels.append(self._sentinels.pop(0))
                continue
            if not found:
                raise SettingsError(
                    f"no service {self._service!r} is known to Sentinel",
                    hint="`SENTINEL MASTERS` names the services; correct redis_url",
                )
            self.at = (found[0], int(found[1]))
            return self.at
        raise redis_errors.ConnectionError(f"no sentinel answers ({last})")

    def greeted(self, facts: dict[str, str]) -> None:
        """Refuse a server that Sentinel still names and that is a replica by now."""
        super().greeted(facts)
        if self.role in REPLICA:
            raise redis_errors.ConnectionError("Sentinel names a server that is a replica by now")

    def views(self) -> list[View]:
        """Return what each sentinel that answers says of the primary."""
        found = []
        for sentinel in self._sentinels:
            with suppress(redis_errors.RedisError):  # a sentinel that is away has no say
                words = self._ask(sentinel, "MASTER")
                facts = dict(zip(words[::2], words[1::2], strict=False))
                node = (facts["ip"], int(facts["port"]))
                found.append(View(node, frozenset(facts["flags"].split(","))))
        return found

    def election_trouble(self) -> str | None:
        """Return why the sentinel that answers sees no quorum; empty when it sees one."""
        for sentinel in self._sentinels:
            try:
                self._ask(sentinel, "CKQUORUM")
            except redis_errors.ResponseError as error:
                return str(error)
            except redis_errors.RedisError:  # away: the next one may know
                continue
            return ""
        return "no sentinel answers"

    def _ask(self, sentinel: Redis, question: str) -> list[str]:
        answer = cast(Any, sentinel).execute_command("SENTINEL", question, self._service)
        return list(answer or ())


class _Greeting:
    """Connects to where the route says now, and asks the server what it is."""

    def __init__(self, *, route: Route, **options: Any) -> None:
        self._route = route
        super().__init__(**options)

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """Log in as ever; then HELLO, which every user may send."""
        mine = cast(Any, self)
        cast(Any, super()).on_connect_check_health(check_health)
        mine.send_command("HELLO", check_health=False)
        try:
            answer = mine.read_response()
        except redis_errors.ResponseError:  # renamed, or older than Redis 6
            answer = []
        words = answer if isinstance(answer, list) else []
        facts = [one.decode() if isinstance(one, bytes) else "" for one in words]
        self._route.greeted(dict(zip(facts[::2], facts[1::2], strict=False)))


class _Routed(_Greeting):
    def _connect(self) -> Any:
        mine = cast(Any, self)
        mine.host, mine.port = self._route.node()
        resolved(mine.host, mine.port)
        return cast(Any, super())._connect()


class _PlainConnection(_Routed, Connection):
    pass


class _TlsConnection(_Routed, SSLConnection):
    pass


class _SocketConnection(_Greeting, UnixDomainSocketConnection):
    pass


CONNECTIONS = {SSLConnection: _TlsConnection, UnixDomainSocketConnection: _SocketConnection}


class PatientRedis(Redis):
    """Hold a client that follows the lists to another server, and waits for one once it has begun.

    A command is sent again only if the server refused it, if it was not sent, or if it reads;
    what else may have been applied raises as the driver has it, for its caller to look.
    """

    def __init__(self, place: RedisPlace, keys: Sequence[str], outage: Outage) -> None:
        options = cast(Any, parse_url)(place.driver_url)
        require_files(options)
        kind = options.pop("connection_class", Connection)
        seed = (options.pop("host", "localhost"), options.pop("port", 6379))
        self.route = SentinelRoute(place, options, keys) if place.service else Route([seed], keys)
        self.outage = outage
        self._home_key = keys[0]
        self._at_home = self._has_written = self._knows_nodes = self._is_replica = False
        super().__init__(
            connection_pool=ConnectionPool(
                connection_class=CONNECTIONS.get(kind, _PlainConnection),
                route=self.route, decode_responses=False, protocol=2,
                socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=REPLY_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0), retry_on_timeout=False, health_check_interval=0,
                driver_info=None, **options,
            )
        )  # fmt: skip

    def execute_command(self, *words: Any, **options: Any) -> Any:
        """Run one command where the lists are, through an election or a moving slot.

        `changes=False` lets a script be sent again, as commands that read are.
        """
        name = str(words[0]).upper()
        resend = not options.pop("changes", name not in READS)
        redirects = 0
        while redirects < REDIRECTS_MAX:
            try:
                answer = self._once(name, words, options)
            except redis_errors.MovedError as error:
                redirects += 1
                self.route.moved(error.host, int(error.port))
                self.connection_pool.disconnect()
            except redis_errors.RedisError as error:
                if not self._waits(error, resend=resend):
                    raise
                time.sleep(PAUSE_S)
            else:
                self._has_answered(name in SCRIPTS)
                return answer
        raise redis_errors.ClusterDownError("CLUSTERDOWN the slot is moved again and again")

    def _has_answered(self, has_written: bool) -> None:
        self._has_written |= has_written
        self.outage.end()
        self.outage.has_begun = True

    def together(self, commands: Sequence[Sequence[Any]], *, changes: bool = True) -> list[Any]:
        """Run commands in one round trip, in order; an answer may be the server's error.

        What was not sent, reads, or was refused only for now is run again by itself, patiently;
        with `changes=False` a script counts as a read.
        """
        again = partial(self._attempt, changes=changes)
        if len(commands) == 1:
            return [again(commands[0])]
        try:
            answers = self._burst(commands)
        except LOST as error:
            reads = not changes or all(str(words[0]).upper() in READS for words in commands)
            if not (isinstance(error, NotSent) or (reads and self.outage.has_begun)):
                raise
            return [again(words) for words in commands]
        if any(isinstance(answer, redis_errors.MovedError) for answer in answers):
            return [again(words) for words in commands]  # SCAN never says that it is wrong
        return [
            again(words) if is_refused_for_now(answer) else answer
            for words, answer in zip(commands, answers, strict=True)
        ]

    def _attempt(self, words: Sequence[Any], *, changes: bool) -> Any:
        options = {} if changes else {"changes": False}
        try:
            return self.execute_command(*words, **options)
        except redis_errors.ResponseError as error:
            return error

    def _burst(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        connection = self._connected()
        try:
            if self.route.mode == "cluster":
                self._find_home("SCAN")
            connection.send_packed_command(connection.pack_commands(commands))
            answers = [self._answer(connection, str(words[0]).upper()) for words in commands]
        except BaseException:
            connection.disconnect()  # an unread reply must not answer the next command
            raise
        finally:
            self.connection_pool.release(connection)
        self._has_answered(any(str(words[0]).upper() in SCRIPTS for words in commands))
        return answers

    def _answer(self, connection: Any, name: str) -> Any:
        try:
            return cast(Any, self).parse_response(connection, name)
        except redis_errors.ResponseError as error:
            return error

    def _once(self, name: str, words: Sequence[Any], options: dict[str, Any]) -> Any:
        connection = self._connected()
        try:
            if self.route.mode == "cluster":
                self._find_home(name)
            return self._sent(connection, name, words, options)
        except redis_errors.AskError as error:
            if isinstance(error, redis_errors.MovedError):
                raise
            return self._asking((error.host, int(error.port)), name, words, options)
        except LOST:
            connection.disconnect()
            raise
        finally:
            self.connection_pool.release(connection)

    def _connected(self) -> Any:
        try:
            connection = self.connection_pool.get_connection()
        except LOST as error:
            if isinstance(error, redis_errors.AuthenticationError | redis_errors.BusyLoadingError):
                raise
            self.route.failed()
            raise NotSent(str(error)) from None
        if self.route.role in REPLICA and self.route.mode != "cluster" and not self._is_replica:
            self._is_replica = True
            self.outage.say("a replica: may be behind")
        return connection

    def _sent(self, connection: Any, name: str, words: Sequence[Any], options: Any) -> Any:
        connection.send_command(*words, **options)
        return cast(Any, self).parse_response(connection, name, **options)

    def _asking(self, node: Node, name: str, words: Sequence[Any], options: Any) -> Any:
        """Send one command to the node that a slot is moving to."""
        kept = {**self.connection_pool.connection_kwargs, "route": Route([node], ())}
        connection = cast(Any, self.connection_pool.connection_class)(**kept)
        try:
            connection.connect()
        except LOST as error:
            raise NotSent(str(error)) from None
        try:
            connection.send_command("ASKING")
            connection.read_response()
            return self._sent(connection, name, words, options)
        finally:
            connection.disconnect()

    def _find_home(self, name: str) -> None:
        """Ask for a list before SCAN, which no node passes on; learn the other nodes, if allowed."""
        if not self._knows_nodes:
            self._knows_nodes = True
            with suppress(redis_errors.ResponseError):  # the user may not ask
                ranges = cast(Any, self).execute_command("CLUSTER", "SLOTS")
                self.route.learn(slot_nodes(ranges))
        if name == "SCAN" and not self._at_home:
            self._at_home = True
            self.llen(self._home_key)

    def _waits(self, error: redis_errors.RedisError, *, resend: bool) -> bool:
        answer, words = redis_answer(error, str(error))
        lost = isinstance(error, LOST) and not answer.passes
        if not (answer.passes or lost) or (lost and not self.outage.has_begun):
            return False
        if answer in AFTER_A_WRITE and not self._has_written:
            return False
        self.outage.begin("no server takes commands" if lost else words.split(" script:")[0][:80])
        self.connection_pool.disconnect()
        unapplied = answer.passes or isinstance(error, NotSent)
        return (resend or unapplied) and not self.outage.is_over_limit

    # at the end of a change

    def settle(self) -> None:
        """Return once every sentinel that answers names the server in use and no failover runs."""
        while True:
            views = self.route.views()
            nodes = {view.node for view in views}
            calm = all(not view.flags & UNSETTLED for view in views)
            if calm and nodes <= {self.route.at}:
                return self.outage.end()
            self.outage.begin("a failover is under way")
            self.connection_pool.disconnect()
            if self.outage.is_over_limit:
                raise redis_errors.ClusterDownError("the sentinels do not agree on a primary")
            time.sleep(PAUSE_S)
            with suppress(redis_errors.RedisError):
                self.connection_pool.release(self.connection_pool.get_connection())


def is_refused_for_now(answer: object) -> bool:
    """Return True for an error that waiting, or another server, may heal."""
    return isinstance(answer, redis_errors.RedisError) and (
        isinstance(answer, redis_errors.AskError) or redis_answer(answer, str(answer))[0].passes
    )


def slot_nodes(ranges: Any) -> list[Node]:
    """Return the nodes of a CLUSTER SLOTS reply, masters before replicas."""
    found: list[Node] = []
    for position in (2, 3):
        for one in ranges:
            if len(one) > position and one[position][0]:
                host = one[position][0]
                found.append((host.decode() if isinstance(host, bytes) else host, one[position][1]))
    return found


def require_files(options: dict[str, Any]) -> None:
    """Raise SettingsError when a file that the address names for TLS is not there."""
    for name in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
        if name in options and not Path(options[name]).exists():
            raise SettingsError(
                f"redis_url names a file in {name} that does not exist",
                hint="`ledgerctl config show` says where redis_url comes from",
            )


def resolved(host: str, port: int) -> None:
    """Raise ConnectionError when the name of a host is not resolved in time."""
    outcome: list[OSError | None] = []

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, port)
            outcome.append(None)
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(CONNECT_TIMEOUT_S)
    if not outcome:
        raise redis_errors.ConnectionError(f"the name {host} is not resolved in time")
    if outcome[0] is not None:
        raise redis_errors.ConnectionError(f"the name {host} is not resolved: {outcome[0]}")
