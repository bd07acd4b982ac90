"""What a check of the doctor says, and the judgements that need no store."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

# By collection, the unique fields that a shard key begins; any other collection goes by `_id`.
SHARDED_BY = {
    "ledger": ("job_id", "type"),
    "inbox": ("consumer_group", "message_key"),
    "outbox": ("message_key",),
}
CLOCK_OFF_MAX = timedelta(seconds=3)
NEARLY_FULL = 90  # percent of the memory that the server may use


class CheckStatus(StrEnum):
    """Name how a check ended, the worst first, which is the order people read them in."""

    FAIL = "fail"
    WARN = "warn"
    UNKNOWN = "unknown"  # the store is down, slow, or the user may not ask
    OK = "ok"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Describe what one check found, and the remedy: a command where there is one."""

    status: CheckStatus
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """Hold a finding under the name of its check."""

    id: str
    finding: CheckResult


def ok(detail: str) -> CheckResult:
    """Report that all is well."""
    return CheckResult(CheckStatus.OK, detail)


def warn(detail: str, hint: str = "") -> CheckResult:
    """Report what somebody should see to."""
    return CheckResult(CheckStatus.WARN, detail, hint)


def fail(detail: str, hint: str = "") -> CheckResult:
    """Report what breaks a guarantee or a command."""
    return CheckResult(CheckStatus.FAIL, detail, hint)


def unknown(detail: str, hint: str = "") -> CheckResult:
    """Report that nobody can tell."""
    return CheckResult(CheckStatus.UNKNOWN, detail, hint)


def worst_first(checks: Iterable[Check]) -> list[Check]:
    """Return the checks, those that need somebody first; otherwise in the order given."""
    order = list(CheckStatus)
    return sorted(checks, key=lambda check: order.index(check.finding.status))


def judge_clock(offset: timedelta, store: str) -> CheckResult:
    """Judge whether two clocks agree; `offset` is the server's time minus ours."""
    seconds = offset.total_seconds()
    if abs(offset) <= CLOCK_OFF_MAX:
        return ok(f"{store} and this machine agree within {abs(seconds):.1f} s")
    side = "ahead of" if seconds > 0 else "behind"
    return warn(
        f"{store} is {abs(seconds):.1f} s {side} this machine; ledgerctl goes by the server's clock",
        "set both by NTP: `timedatectl status` on each",
    )


def judge_shard_keys(keys: Mapping[str, Mapping[str, Any]], *, no_account: bool) -> CheckResult:
    """Judge if shard keys keep what is unique on one shard and let each write find its shard.

    `no_account` says that the ledger has rows whose account only their job tells.
    """
    wrong = []
    for name, key in keys.items():
        wanted = SHARDED_BY.get(name, ("_id",))
        hashed = name in SHARDED_BY and "hashed" in key.values()
        if hashed or tuple(key) != wanted[: len(key)]:
            shown = ", ".join(f"{field}: {kind}" for field, kind in key.items())
            wrong.append(f"{name} is sharded by {{{shown}}}, not by {{{wanted[0]}: 1}}")
    if no_account and "jobs" in keys:
        wrong.append(
            "jobs is sharded, so that no transaction finds the account of rows without one"
        )
    if wrong:
        hint = "`ledgerctl help deployments` names the keys; `reshardCollection` changes one"
        return fail("; ".join(wrong), hint)
    names = ", ".join(keys)
    return ok(
        f"sharded by keys that keep every guarantee: {names}" if names else "nothing is sharded"
    )


@dataclass(frozen=True, slots=True)
class FlagCounts:
    """Describe how many jobs were looked at, and how many of them have which fault."""

    jobs: int
    absent: int  # a flag is absent or null
    not_boolean: int
    corrupt: int  # reclaimed, never refunded
    sampled: bool = False


def judge_flags(counts: FlagCounts) -> CheckResult:
    """Judge whether every job's flags can be guarded on. Source: contract, section 2, jobs."""
    looked_at = f"{'a sample of ' if counts.sampled else ''}{counts.jobs} jobs"
    of = f"of {looked_at}"
    if counts.not_boolean or counts.corrupt:
        return fail(
            f"{counts.not_boolean} {of} have a flag that is no boolean, {counts.corrupt} are"
            f" reclaimed without a refund, {counts.absent} lack a flag:"
            " no guard lets the first two kinds through",
            "`ledgerctl ledger audit --code bad_flags --code corrupt_flags` names them",
        )
    if counts.absent:
        return warn(
            f"{counts.absent} {of} lack a flag; ledgerctl counts that as false, a worker that"
            " filters for false never finds them",
            "`ledgerctl ledger repair --code flags_missing`",
        )
    return ok(f"both flags are booleans in all of {looked_at}")


def judge_eviction(policy: str, limit: int, used: int) -> CheckResult:
    """Judge whether the server may drop a list of jobs or refuse one soon. Figures in bytes."""
    if policy.startswith("allkeys"):
        when = "when memory is short" if limit else "as soon as maxmemory is set"
        return warn(
            f"{policy} drops lists of jobs {when}, without an error",
            "give the queues a server of their own, or `CONFIG SET maxmemory-policy noeviction`",
        )
    if limit and used * 100 > limit * NEARLY_FULL:
        return warn(
            f"{used * 100 // limit} % of maxmemory is used: soon every push is refused",
            "free memory, or raise maxmemory",
        )
    return ok(f"{policy}: no list is dropped")


def judge_persistence(facts: Mapping[str, object], save: str | None) -> CheckResult:
    """Judge whether a restart keeps the lists. `save`: the server's save points, None unasked."""
    failing = [
        name
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
        if facts.get(name, "ok") != "ok"
    ]
    if failing:
        return fail(
            f"the server cannot save its lists ({', '.join(failing)}) and may refuse writes",
            "look at its disk and its log",
        )
    if facts.get("aof_enabled"):
        return ok("an append-only file is kept")
    remedy = "`CONFIG SET appendonly yes`, and the same in the server's file"
    if save == "":
        return warn("nothing is saved: a restart loses every queued job", remedy)
    points = f" at `{save}`" if save else ""
    return warn(f"only snapshots{points}: a crash loses the jobs pushed since the last", remedy)


def judge_failover(facts: Mapping[str, Any], trouble: str | None, least: str | None) -> CheckResult:
    """Judge if a failover happens and what it loses.

    `trouble` is why the sentinels could not elect, empty when they could, None without Sentinel;
    `least` is min-replicas-to-write, None where it may not be asked.
    """
    replicas = [facts.get(f"slave{number}", {}) for number in range(facts["connected_slaves"])]
    in_step = [one for one in replicas if one.get("state") == "online" and one.get("lag", 9) <= 1]
    problems = []
    if trouble is None and not facts.get("cluster_enabled"):
        problems.append("redis_url names no Sentinel, so that a run does not follow a failover")
    elif trouble:
        problems.append(f"no failover is possible: {trouble}")
    if not in_step:
        problems.append("no replica is in step")
    if least is None or int(least) < 1:
        shown = "may not be asked" if least is None else f"is {least}"
        problems.append(f"min-replicas-to-write {shown}: a failover may undo the last moves")
    if problems:
        hint = "`CONFIG SET min-replicas-to-write 1` and see `ledgerctl help deployments`"
        return warn("; ".join(problems), hint)
    return ok(f"{len(in_step)} of {len(replicas)} replicas in step, at least {least} for a write")
