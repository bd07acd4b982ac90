"""The doctor's look at Redis: who answers, whether it keeps jobs, and what stands under the names."""

import time
from contextlib import suppress

from ledgerctl.domain.doctor import (
    CLOCK_OFF_MAX,
    CheckResult,
    fail,
    judge_clock,
    judge_eviction,
    judge_failover,
    judge_persistence,
    ok,
    warn,
)
from ledgerctl.errors import NotPermitted, ReadOnlyReplica
from ledgerctl.operations.doctor_mongo import CHECK_S, DoctorContext

REPLACED = {"EVALSHA": "EVAL stands in for it", "TIME": "this machine's clock stands in for it"}


def reachable(look: DoctorContext) -> CheckResult:
    """Return whether Redis answers and lets us in; a clock that is off is said here too."""
    server = look.stores.queue_server
    started = time.monotonic()
    server.ping()
    took_ms = (time.monotonic() - started) * 1000
    offset = server.clock_offset(look.clock)
    if offset is not None and abs(offset) > CLOCK_OFF_MAX:
        return judge_clock(offset, "the Redis server")
    return ok(f"{described(look)} answers in {took_ms:.0f} ms")


def described(look: DoctorContext) -> str:
    """Return the server's kind and version, as far as it says them."""
    try:
        facts = look.stores.queue_server.facts()
    except NotPermitted:
        return "the server"
    if "valkey_version" in facts:
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {facts.get('redis_version', '?')}"


def role(look: DoctorContext) -> CheckResult:
    """Return whether this server takes changes."""
    found = look.stores.queue_server.role()
    if found == "master":
        return ok("primary")
    kind = "a replica" if found == "slave" else f"a {found}"
    return fail(f"{kind}: every change is refused", "point redis_url at the primary")


def commands(look: DoctorContext) -> CheckResult:
    """Judge whether the server knows every command that we send."""
    lacking = look.stores.queue_server.missing_commands()
    fatal = [name for name in lacking if name not in REPLACED]
    if not lacking:
        return ok("every command that the queues need is there")
    said = f"renamed or disabled: {', '.join(lacking)}"
    if fatal:
        return fail(said, "allow them again in the server's configuration")
    ways = "; ".join(REPLACED[name] for name in lacking)
    return warn(f"{said} ({ways})", "nothing must be done")


def eviction(look: DoctorContext) -> CheckResult:
    """Return whether the server drops lists when memory is short."""
    server = look.stores.queue_server
    try:
        facts = server.facts()
    except NotPermitted:
        policy = server.setting("maxmemory-policy")
        if policy is None:
            raise
        return judge_eviction(policy, int(server.setting("maxmemory") or 0), 0)
    return judge_eviction(
        str(facts["maxmemory_policy"]), int(facts["maxmemory"]), int(facts["used_memory"])
    )


def persistence(look: DoctorContext) -> CheckResult:
    """Return whether the lists outlive a restart."""
    server = look.stores.queue_server
    return judge_persistence(server.facts(), server.setting("save"))


def types(look: DoctorContext) -> CheckResult:
    """Return whether every key under the configured names is a list that nobody lets expire."""
    server = look.stores.queue_server
    deadline = time.monotonic() + CHECK_S
    names, whole = server.own_keys(within=lambda: time.monotonic() < deadline)
    found = server.types(names)
    if not look.stores.settings.read_only:
        with suppress(NotPermitted, ReadOnlyReplica):  # then the next walk finds them
            look.stores.queues.remember_found(name for name in found if found[name] == "list")
    wrong = [
        f"{name}: expected list, found {kind}" for name, kind in found.items() if kind != "list"
    ]
    if wrong:
        return fail("; ".join(wrong), "look at the key by hand, or give another name in [keys]")
    if expiring := server.expiring(found):
        return fail(
            f"the server will delete {', '.join(expiring)} by itself", f"`PERSIST {expiring[0]}`"
        )
    rest = "" if whole else "; other workers' lists were not looked at: too many keys"
    return ok(f"{len(found)} lists, no other type{rest}")


def failover(look: DoctorContext) -> CheckResult | None:
    """Judge what a failover would lose; None where neither Sentinel nor a replica is."""
    server = look.stores.queue_server
    facts, trouble = server.facts(), server.failover_trouble()
    if trouble is None and not facts.get("connected_slaves"):
        return None
    return judge_failover(facts, trouble, server.setting("min-replicas-to-write"))
