"""The doctor's look at MongoDB: promises, indexes, rights, flags and claims."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any

from ledgerctl.config_file import permission_problem
from ledgerctl.domain.doctor import (
    CheckResult,
    CheckStatus,
    FlagCounts,
    fail,
    judge_clock,
    judge_flags,
    judge_shard_keys,
    ok,
    warn,
)
from ledgerctl.domain.ids import Id
from ledgerctl.domain.inbox import GROUP, why_stuck
from ledgerctl.domain.rows import KEY, NewRow, RowType
from ledgerctl.errors import (
    LedgerctlError,
    NotPermitted,
    RefusedByServer,
    StoreBusy,
    StoreUnavailable,
)
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import INBOX_UNIQUE, INDEXES, Index, flaw, looks_like

CHECK_S = 2.5  # how long one check may take


class Source(StrEnum):
    """Name what a check looks at."""

    MONGO = "mongo"
    REDIS = "redis"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """Hold the stores, and this machine's clock."""

    stores: Stores
    clock: Callable[[], datetime]


GROWTH_MAX = 1_000_000  # documents that `db tidy` could remove
KEPT_FOR = timedelta(days=30)
OLDEST_MAJOR = 6
STUCK_AFTER = timedelta(minutes=5)
STUCK_MAX = 1_000  # rows counted one by one
SAMPLE = 10_000  # jobs looked at where all take too long
COUNT_S = 1.2
EXAMPLES = 4

INIT = "`ledgerctl db init`"
DROP_HINT = "drop that index, or `collMod` its expireAfterSeconds away"

# What must never vanish by itself, and what may be rebuilt or is only history.
KEPT = ("ledger", "jobs", "inbox", "outbox", "dead_archive", "leases")
DISPENSABLE = ("usage_daily", "operator_log")


def growth(look: DoctorContext) -> CheckResult:
    """Return whether documents that `db tidy` could remove are piling up."""
    before = look.stores.mongo.now() - KEPT_FOR
    found = look.stores.retention.count_old(before, limit=GROWTH_MAX + 1)
    if found <= GROWTH_MAX:
        return ok(f"{found} messages and claims are older than {KEPT_FOR.days} days")
    return warn(
        f"more than {GROWTH_MAX:,} messages and claims are older than {KEPT_FOR.days} days",
        "`ledgerctl db tidy --dry-run` says what can go",
    )


def reachable(look: DoctorContext) -> CheckResult:
    """Return whether MongoDB answers, lets us in, and is the member that takes writes."""
    deployment = look.stores.deployment
    started = time.monotonic()
    version = deployment.version()
    took_ms = (time.monotonic() - started) * 1000
    who = logged_in(look)
    if not deployment.is_writable():
        return fail(
            f"MongoDB {version} is not the primary: every change is refused",
            "point mongo_uri at the whole replica set",
        )
    said = f"MongoDB {version} answers in {took_ms:.0f} ms, {who}"
    if int(version.partition(".")[0]) < OLDEST_MAJOR:
        return warn(f"{said}; ledgerctl wants 6.0 or newer", "upgrade the server")
    return ok(said)


def logged_in(look: DoctorContext) -> str:
    """As whom we are connected. Raises NotPermitted when a user is wanted and none was given."""
    login = look.stores.deployment.login()
    if login.users:
        return f"as {', '.join(login.users)}"
    try:
        look.stores.deployment.demand_login()
    except NotPermitted:
        raise NotPermitted(
            "MongoDB wants a user and a password, and mongo_uri has none",
            hint="give them in mongo_uri; `ledgerctl db roles` prints the roles",
        ) from None
    return "without a user"


def transactions(look: DoctorContext) -> CheckResult:
    """Return whether flag, row and message land together."""
    if look.stores.mongo.transactions:
        return ok("flag, row and message of a step are one transaction")
    return warn(
        "a standalone server has no transactions: a crash between two writes is finished by the"
        " next delivery or by `ledgerctl ledger repair`",
        "make it a replica set of one: start it with --replSet, then `rs.initiate()`",
    )


def collections(look: DoctorContext) -> CheckResult:
    """Judge whether our collections are plain ones that take our rows."""
    look.stores.mongo.check_spelling()
    failing, odd = [], []
    for collection, kind, options in look.stores.deployment.collections():
        if kind != "collection" or options.get("capped"):
            failing.append(
                f"{collection} is a {'capped collection' if options.get('capped') else kind}"
            )
        if locale := options.get("collation", {}).get("locale"):
            odd.append(
                f"{collection} has a collation ({locale}): ids that differ may count as equal"
            )
        if options.get("validator"):
            odd.append(f"{collection} has a validator")
    if why := refused_row(look):
        failing.append(why)
    if failing or odd:
        status = CheckStatus.FAIL if failing else CheckStatus.WARN
        return CheckResult(status, "; ".join([*failing, *odd]), "ask whoever made it so")
    return ok("each is a plain collection without a validator or a collation")


def refused_row(look: DoctorContext) -> str:
    """Say that the ledger would refuse a row as we write it; empty where it would not."""
    now, nobody = look.stores.mongo.now(), Id("acct")
    row = NewRow(
        "job:refund", Id("job"), nobody, RowType.REFUND, 1, now, now, "operation", "reason"
    )
    try:
        look.stores.ledger.require_accepted(row)
    except RefusedByServer as error:
        return error.message
    return ""


def shard_keys(look: DoctorContext) -> CheckResult:
    """Judge if a sharded collection breaks a guarantee or a command."""
    deployment = look.stores.deployment
    keys = deployment.shard_keys()
    no_account = "jobs" in keys and deployment.has_rows_without_account()
    return judge_shard_keys(keys, no_account=no_account)


def write_concern(look: DoctorContext) -> CheckResult:
    """Check whether a write that other programs were told of can still be lost.

    Ours always ask for the majority and the journal. The URI that they share with us and the
    deployment's own default can weaken theirs.
    """
    asked = weakness(look.stores.deployment.asked_write_concern())
    if asked:
        return warn(
            f"mongo_uri asks for {asked}; ledgerctl overrides that, other programs do not",
            "take it out of the URI",
        )
    if not look.stores.mongo.transactions:
        return journal(look)
    default = weakness(look.stores.deployment.default_write_concern())
    if default:
        return warn(
            f"a writer that asks for nothing gets {default}: a failover may undo its writes",
            '`db.adminCommand({setDefaultRWConcern: 1, defaultWriteConcern: {w: "majority"}})`',
        )
    return ok("ours ask for the majority and the journal; so does the default for others")


def journal(look: DoctorContext) -> CheckResult:
    """Return whether a standalone server keeps the journal that our writes ask for."""
    if look.stores.deployment.keeps_journal():
        return ok("every write waits for the journal")
    return fail("the server runs without its journal", "start it without --nojournal")


def weakness(concern: Mapping[str, Any]) -> str:
    """Return what a write concern gives up, in words; empty when it gives up nothing."""
    weak = concern.get("w", "majority") in {0, 1}
    said = [f"w={concern['w']}"] if weak else []
    if concern.get("j") is False:
        said.append("journal=false")
    return ", ".join(said)


def clock(look: DoctorContext) -> CheckResult:
    """Return whether the server's clock and this machine's agree."""
    return judge_clock(look.stores.deployment.clock_offset(look.clock), "the MongoDB server")


def guarded(index: Index, danger: str, look: DoctorContext) -> CheckResult:
    """Judge a unique index that must be there; what only looks like it and rows in its way are named."""
    indexes = look.stores.indexes
    present = indexes.present(index.collection)
    id_types = indexes.id_types() if index.partial else ()
    flaws = {one["name"]: flaw(one, index, id_types) for one in present if looks_like(one, index)}
    if "" in flaws.values():
        return ok(f"unique ({', '.join(index.keys)})")
    unlike = [one for one in present if one.get("unique") and one["name"] not in flaws]
    instead = [f"unique instead: {', '.join(one['key'])}" for one in unlike]
    told = [f"index {name} {why}" for name, why in flaws.items() if why != "is not unique"]
    rows = in_the_way(look, index)
    blocked = f"; in its way: {rows}" if rows else ""
    beside = f" ({'; '.join([*told, *instead])})" if told or instead else ""
    return fail(
        f"not protected: no unique ({', '.join(index.keys)}){beside}, {danger}{blocked}",
        f"{INIT} names all of them" if rows else INIT,
    )


def in_the_way(look: DoctorContext, index: Index) -> str:
    """Name a few of the rows that share a key; empty when there is no time to find them."""
    try:
        with look.stores.mongo.bounded(COUNT_S):
            rows = list(islice(look.stores.indexes.in_the_way(index), EXAMPLES))
    except LedgerctlError:
        return ""
    return "; ".join(
        " ".join(f"{name}={value}" for name, value in row.items() if value is not None)
        for row in rows
    )


def useful(first_key: str, look: DoctorContext) -> CheckResult:
    """Return an index of the ledger that only costs time when it is absent."""
    wanted = next(one for one in INDEXES if one.collection == "ledger" and one.keys[0] == first_key)
    present = look.stores.indexes.present("ledger")
    if any(not flaw(one, wanted) for one in present):
        return ok(f"({', '.join(wanted.keys)})")
    narrower = Index("ledger", wanted.keys[:2])
    if any(not flaw(one, narrower) for one in present):
        return ok(f"({', '.join(narrower.keys)}); {INIT} adds the one that holds the amounts too")
    return warn(
        f"no index begins with ({', '.join(narrower.keys)}): large ledgers are read whole", INIT
    )


def expiry(look: DoctorContext) -> CheckResult:
    """Return whether the server deletes money or state by itself: a TTL, or a capped collection."""
    lost = list(vanishing(look, KEPT))
    if lost:
        return fail("; ".join(lost), DROP_HINT)
    going = list(vanishing(look, DISPENSABLE))
    if going:
        return warn("; ".join(going), DROP_HINT)
    return ok("nothing is deleted by itself")


def vanishing(look: DoctorContext, collections: Sequence[str]) -> Iterator[str]:
    """Yield each way in which documents of these collections vanish by themselves."""
    for collection in collections:
        name = look.stores.mongo.collection(collection).name
        for index in look.stores.indexes.present(collection):
            if "expireAfterSeconds" in index:
                key = ", ".join(index["key"])
                yield f"{name} expires {index['expireAfterSeconds']} s after {key}"
        options = options_of(look, collection)
        if options.get("capped"):
            yield f"{name} is capped: old documents are overwritten"
        if "expireAfterSeconds" in options:
            yield f"{name} expires {options['expireAfterSeconds']} s after its key"


def options_of(look: DoctorContext, collection: str) -> Mapping[str, Any]:
    """Return how a collection was made; empty where this user may not ask."""
    try:
        return look.stores.deployment.options_of(collection)
    except NotPermitted:
        return {}


def append_only(look: DoctorContext) -> CheckResult:
    """Return whether this user could change or delete ledger rows, which nobody ever should."""
    login = look.stores.deployment.login()
    if not login.users:
        return warn(
            "the server asks for no user: anybody may change or delete ledger rows",
            "turn access control on; `ledgerctl db roles` prints the roles",
        )
    name = look.stores.mongo.collection("ledger").name
    may = [action for action in ("update", "remove") if login.allows(name, action)]
    who = ", ".join(login.users)
    if may:
        return warn(
            f"{who} may {' and '.join(may)} rows of {name}",
            "use a role that may only find and insert: `ledgerctl db roles`",
        )
    more = "append" if login.allows(name, "insert") else "only read"
    return ok(f"{who} may {more}, never change or delete rows")


def flags(look: DoctorContext) -> CheckResult:
    """Return whether every job's flags are booleans; a sample where counting all takes too long."""
    return judge_flags(flag_counts(look))


def flag_counts(look: DoctorContext) -> FlagCounts:
    """Return the counts of all jobs, or of a random sample of them."""
    deployment = look.stores.deployment
    try:
        with look.stores.mongo.bounded(COUNT_S):
            return deployment.flag_counts()
    except (StoreBusy, StoreUnavailable):  # the server's time was up, or ours was first
        return deployment.flag_counts(sample=SAMPLE)


def inbox_keys(look: DoctorContext) -> CheckResult:
    """Both halves of the claims' key, measured against the stored rows, not trusted."""
    rows, filled = look.stores.inbox.filled((GROUP, KEY, "tenant_id"))
    if not rows:
        return ok("no claims yet")
    lacking = [f"{rows - filled[name]} of {rows} claims lack {name}" for name in (GROUP, KEY)]
    if any(filled[name] < rows for name in (GROUP, KEY)):
        return fail("; ".join(lacking), "`ledgerctl inbox audit`")
    if shared := in_the_way(look, INBOX_UNIQUE):
        return fail(f"claims share a key: {shared}", "`ledgerctl inbox audit`")
    return tenants(look, rows, filled["tenant_id"])


def tenants(look: DoctorContext, rows: int, with_tenant: int) -> CheckResult:
    """Return whether a lookup by tenant, which nothing enforces, would miss."""
    messages, filled = look.stores.outbox.filled((KEY, "tenant_id"))
    if with_tenant < rows and filled["tenant_id"]:
        return warn(
            f"{rows - with_tenant} of {rows} claims have no tenant_id, {filled['tenant_id']} of"
            f" {messages} messages have one: a lookup by tenant misses",
            "look claims up by (consumer_group, message_key); `ledgerctl inbox audit` measures it",
        )
    return ok(f"{rows} claims, group and key filled in each")


def inbox_stuck(look: DoctorContext) -> CheckResult:
    """Return whether messages go round without ever being done, by age and frequency."""
    policy = look.stores.settings.retry
    stuck = (
        standing
        for standing, _ in look.stores.inbox.suspects(policy.max_attempts)
        if why_stuck(standing, STUCK_AFTER, policy)
    )
    found = list(islice(stuck, STUCK_MAX))
    if not found:
        return ok("no claim is stuck")
    first = found[0]
    number = f"{STUCK_MAX} or more" if len(found) == STUCK_MAX else str(len(found))
    return fail(
        f"{number} claims are stuck, such as {first.message.text} of group {first.group}",
        "`ledgerctl inbox stuck`",
    )


def permissions(look: DoctorContext) -> CheckResult:
    """Return whether others may read a password in these files, or change what they say."""
    sources = look.stores.settings.sources
    if not sources:
        return ok("no configuration file is in use")
    problems = {path: why for path in sources if (why := permission_problem(path))}
    if not problems:
        return ok(f"private: {', '.join(str(path) for path in sources)}")
    changeable = any("changed by others" in why for why in problems.values())
    return CheckResult(
        CheckStatus.FAIL if changeable else CheckStatus.WARN,
        "; ".join(problems.values()),
        f"`chmod 600 {' '.join(str(path) for path in problems)}`",
    )
