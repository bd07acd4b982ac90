"""The faults of the fault table: what is done to a run, or to its servers, at one of its writes."""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from ledgerctl.sandbox.launch import Server
from tests.faults.child import WRITES, Event
from tests.faults.ground import Ground
from tests.proxy import Fault as Spoiling
from tests.proxy import Plan, proxied
from tests.servers import wait_until

LASTING = sorted(WRITES)
RANDOM = random.Random(8)
STEP_DOWN_S = 1
DELAY_S = 0.3


@dataclass
class Landing:
    """One fault at one write: whether it has landed, and what is to be undone."""

    ground: Ground
    process: Any = None
    event: Event | None = None
    landed: bool = False
    timers: list[threading.Timer] = field(default_factory=list)


Strike = Callable[[Landing], None]


def nothing(_landing: Landing) -> None:
    """Nothing is to be done."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    `strike` is called while the run waits at the write, `undo` once the run has ended.
    `may_be_unknown`: a write may have been applied although its sender cannot know.
    """

    name: str
    store: str
    strike: Strike = nothing
    undo: Strike = nothing
    moment: str = "before"
    may_be_unknown: bool = False
    on: tuple[str, ...] = ("replica set", "standalone")
    signal: int | None = None  # what the run itself gets
    spoils: Spoiling | None = None  # what a proxy does to the reply
    harmless: bool = False  # the run must end with 0
    slow: bool = False  # tried at few writes
    loses: bool = False  # the server may forget what it had acknowledged
    arm: Strike = nothing  # before the run


# mongod's own fail points


def fail_point(name: str, *, lasting: bool = False, unknown: bool = False, **more: Any) -> Fault:
    """A fault that mongod itself makes, at one command or at every write from there on."""
    flags = {key: more.pop(key) for key in ("harmless", "slow", "on") if key in more}

    def strike(landing: Landing) -> None:
        command = landing.event.command if landing.event else ""
        commands = sorted({*LASTING, command}) if lasting else [command]
        data = {"failCommands": commands, "appName": "ledgerctl", **more}
        mode = "alwaysOn" if lasting else {"times": 1}
        landing.ground.client.admin.command(
            {"configureFailPoint": "failCommand", "mode": mode, "data": data}
        )

    def undo(landing: Landing) -> None:
        off = {"configureFailPoint": "failCommand", "mode": "off"}
        landing.landed = landing.ground.client.admin.command(off)["count"] > 0

    named = f"mongod: {name}, {'from there on' if lasting else 'once'}"
    return Fault(named, "mongo", strike, undo, may_be_unknown=unknown, **flags)


WRITE_CONCERN = {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting timed out"}
# The driver tells alike a write that found no primary at once and one whose first try was lost.
FAIL_POINTS = (
    fail_point("NotWritablePrimary", errorCode=10107, unknown=True),
    fail_point("NotWritablePrimary", errorCode=10107, lasting=True, unknown=True, slow=True),
    fail_point("WriteConflict", errorCode=112),
    fail_point("WriteConflict", errorCode=112, lasting=True, slow=True),
    fail_point("disk full", errorCode=14031, lasting=True),
    fail_point("right taken away", errorCode=13, lasting=True),
    fail_point("time limit", errorCode=50),
    fail_point("connection closed", closeConnection=True, unknown=True),
    fail_point("connection closed", closeConnection=True, lasting=True, unknown=True, slow=True),
    fail_point("reply 300 ms late", blockConnection=True, blockTimeMS=300, harmless=True),
    fail_point("write concern error", writeConcernError=WRITE_CONCERN, unknown=True),
    fail_point("shutting down", errorCode=91, lasting=True, unknown=True, slow=True),
    fail_point("interrupted by a step-down", errorCode=11602, unknown=True),
)

# mongod as a whole


def kill_server(server: Server) -> None:
    """kill -9, and wait until it is gone."""
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: server.exit_code() is not None)


def step_down(landing: Landing) -> None:
    """The primary steps down, and elects itself again a second later."""
    landing.ground.client.admin.command(
        "replSetStepDown", STEP_DOWN_S, secondaryCatchUpPeriodSecs=0, force=True
    )
    landing.landed = True


def crash_mongod(landing: Landing) -> None:
    """kill -9: what was not in the journal is lost."""
    kill_server(landing.ground.mongod)
    landing.landed = True


def crash_and_return(landing: Landing) -> None:
    """kill -9, and a new start before the run goes on."""
    crash_mongod(landing)
    await_servers(landing)


def await_servers(landing: Landing) -> None:
    """Until both servers take writes again."""
    landing.ground.await_servers()


SERVER = {"may_be_unknown": True, "undo": await_servers, "slow": True}
MONGODS = (
    Fault("step-down before a write", "mongo", step_down, on=("replica set",), **SERVER),  # type: ignore[arg-type]  # of mixed types
    Fault("step-down after a write", "mongo", step_down, moment="after", on=("replica set",), **SERVER),  # type: ignore[arg-type]  # of mixed types
    Fault("mongod killed and back before a write", "mongo", crash_and_return, **SERVER),  # type: ignore[arg-type]  # of mixed types
    Fault("mongod killed and back after a write", "mongo", crash_and_return, moment="after", **SERVER),  # type: ignore[arg-type]  # of mixed types
    Fault("mongod killed after a write", "mongo", crash_mongod, moment="after", **SERVER),  # type: ignore[arg-type]  # of mixed types
)  # fmt: skip

# valkey


def told_to_valkey(*words: Any) -> Strike:
    """Send valkey this command."""

    def act(landing: Landing) -> None:
        landing.ground.redis.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py's own
        landing.landed = True

    return act


def kill_connections(landing: Landing) -> None:
    """CLIENT KILL of every connection but ours."""
    killed = landing.ground.redis.client_kill_filter(_type="normal", skipme=True)
    landing.landed = bool(killed)


def crash_valkey(landing: Landing) -> None:
    """kill -9."""
    kill_server(landing.ground.valkey)
    landing.landed = True


def crash_valkey_and_return(landing: Landing) -> None:
    """kill -9, and a new start before the run goes on."""
    crash_valkey(landing)
    await_servers(landing)


def save(landing: Landing) -> None:
    """Let a server without an append-only file remember what stands now."""
    landing.ground.redis.save()


def quietly(act: Strike) -> Strike:
    """The same, its own landing apart."""

    def undo(landing: Landing) -> None:
        landed = landing.landed
        act(landing)
        landing.landed = landed

    return undo


def redis_fault(name: str, strike: Strike, **flags: Any) -> Fault:
    """A fault of valkey."""
    return Fault(f"valkey: {name}", "redis", strike, **flags)


UNPAUSE = quietly(told_to_valkey("CLIENT", "UNPAUSE"))
VALKEYS = (
    redis_fault("CLIENT KILL", kill_connections, may_be_unknown=True),
    redis_fault("CLIENT KILL after", kill_connections, moment="after", may_be_unknown=True),
    redis_fault("CLIENT PAUSE 400 ms", told_to_valkey("CLIENT", "PAUSE", 400, "ALL"), harmless=True),
    redis_fault("CLIENT PAUSE of writes, 8 s", told_to_valkey("CLIENT", "PAUSE", 8000, "WRITE"),
                undo=UNPAUSE, may_be_unknown=True, slow=True),
    redis_fault("out of memory", told_to_valkey("CONFIG", "SET", "maxmemory", "1"),
                undo=quietly(told_to_valkey("CONFIG", "SET", "maxmemory", "0"))),
    redis_fault("becomes a replica", told_to_valkey("REPLICAOF", "127.0.0.1", "1"),
                undo=quietly(told_to_valkey("REPLICAOF", "NO", "ONE"))),
    redis_fault("becomes a replica after", told_to_valkey("REPLICAOF", "127.0.0.1", "1"),
                undo=quietly(told_to_valkey("REPLICAOF", "NO", "ONE")), moment="after"),
    redis_fault("killed and back, append-only file", crash_valkey_and_return, undo=await_servers,
                moment="after", may_be_unknown=True, slow=True),
    redis_fault("killed, append-only file", crash_valkey, undo=await_servers, moment="after",
                may_be_unknown=True, slow=True),
)  # fmt: skip
FORGETFUL = (
    redis_fault("killed and back, no append-only file", crash_valkey_and_return, arm=save,
                undo=await_servers, moment="after", may_be_unknown=True, slow=True, loses=True),
)  # fmt: skip

# replies


def spoiled(store: str, spoiling: Spoiling) -> Fault:
    """A reply that a proxy loses, cuts in half or holds back, the server having acted."""
    harmless = spoiling is Spoiling.DELAY
    words = {"drop": "lost", "cut": "cut in half", "delay": "300 ms late"}[spoiling]
    return Fault(f"{store}: reply {words}", store, may_be_unknown=not harmless, spoils=spoiling, harmless=harmless)  # fmt: skip


SPOILED = (Spoiling.DROP, Spoiling.CUT, Spoiling.DELAY)
REPLIES = tuple(spoiled(store, one) for store in ("mongo", "redis") for one in SPOILED)

# the run itself


def sent_signal(number: int, *, late: bool) -> Strike:
    """Send the run a signal at the write, or a random moment later."""

    def strike(landing: Landing) -> None:
        if not late:
            send(landing, number)
            return
        timer = threading.Timer(RANDOM.uniform(0, 0.06), send, (landing, number))
        landing.timers.append(timer)
        timer.start()

    return strike


def send(landing: Landing, number: int) -> None:
    """Send it if somebody is there to get it."""
    if landing.process.is_alive():
        with suppress(ProcessLookupError):
            os.kill(landing.process.pid, number)
            landing.landed = True


def await_timers(landing: Landing) -> None:
    """Cancel what has not been sent."""
    for timer in landing.timers:
        timer.cancel()
        timer.join()


def on_run(name: str, number: int, moment: str, *, late: bool = False) -> tuple[Fault, ...]:
    """A signal at the writes of either store."""
    strike = sent_signal(number, late=late)
    return tuple(
        Fault(
            f"{name} of a {store} write", store, strike, await_timers, moment, True, signal=number
        )
        for store in ("mongo", "redis")
    )


SIGNALS = (
    *on_run("kill -9 before the reply", signal.SIGKILL, "before", late=True),
    *on_run("kill -9 right after the reply", signal.SIGKILL, "after"),
    *on_run("kill -9 at a random moment after", signal.SIGKILL, "after", late=True),
    *on_run("SIGTERM right after", signal.SIGTERM, "after"),
    *on_run("SIGTERM at a random moment after", signal.SIGTERM, "after", late=True),
)

FAULTS = (*FAIL_POINTS, *REPLIES, *SIGNALS, *VALKEYS, *MONGODS)


def environment_of(fault: Fault, ground: Ground, plan: Plan | None) -> AbstractContextManager[dict[str, str]]:  # fmt: skip
    """The environment of the run: a proxy's address where one spoils the reply."""
    return nullcontext({}) if plan is None else behind_proxy(fault, ground, plan)


@contextmanager
def behind_proxy(fault: Fault, ground: Ground, plan: Plan) -> Iterator[dict[str, str]]:
    """A proxy in front of the fault's store."""
    server = ground.mongod if fault.store == "mongo" else ground.valkey
    name = "LEDGERCTL_MONGO_URI" if fault.store == "mongo" else "LEDGERCTL_REDIS_URL"
    with proxied(server.uri, plan) as proxy:
        yield {name: proxy.uri}
