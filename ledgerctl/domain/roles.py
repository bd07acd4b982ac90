"""Which rights each command needs, and the least that support, on call and cron can do with."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rights = Mapping[str, frozenset[str]]  # actions by collection, as the settings name it

COLLECTIONS = (
    "jobs", "ledger", "usage_daily", "outbox", "inbox", "operator_log", "dead_archive", "leases",
)  # fmt: skip


def rights(**actions: str) -> Rights:
    """Rights from words: `jobs="update"`."""
    return {collection: frozenset(words.split()) for collection, words in actions.items()}


def united(parts: Iterable[Rights]) -> Rights:
    """Return all of these rights together."""
    together: dict[str, frozenset[str]] = {}
    for part in parts:
        for collection, actions in part.items():
            together[collection] = together.get(collection, frozenset()) | actions
    return together


LOG = rights(operator_log="insert update")
LEASE = rights(leases="insert update")
ROW = rights(ledger="insert", outbox="insert update")  # a message is put by an upsert
FLAG = rights(jobs="update")
TIDIED = ("outbox", "inbox", "dead_archive")
READING = united(rights(**{name: "find listIndexes"}) for name in COLLECTIONS)

# Without transactions a step reads the ledger's validator before it sets the flag of the job.
READ_RULES = "listCollections"

# What each changing command surely writes. A row of the ledger is never updated nor removed.
WRITES: Mapping[str, Rights] = {
    "balance grant": united([LOG, ROW]),
    "job charge": united([LOG, ROW, rights(jobs="insert")]),
    "job refund": united([LOG, ROW, FLAG]),
    "job reclaim": united([LOG, ROW, FLAG]),
    "dead requeue": united([LOG, rights(dead_archive="insert")]),
    "dead release": united([LOG, rights(dead_archive="insert")]),
    "dead restore": LOG,
    "dead review": united([LOG, rights(dead_archive="insert")]),
    "queue push": LOG,
    "queue recover": LOG,
    # A worker's lease bears a name of its own and goes with it.
    "queue work": united([LOG, ROW, FLAG, LEASE, rights(leases="remove")]),
    "summary rebuild": united([LOG, LEASE, rights(usage_daily="insert update")]),
    "inbox consume": united([LOG, LEASE, rights(inbox="insert update")]),
    "inbox retry": united([LOG, rights(inbox="update")]),
    "inbox settle": united([LOG, rights(inbox="update")]),
    "ledger repair": united([LOG, ROW, FLAG]),
    "ledger correct": united([LOG, ROW]),
    "db tidy": united(
        [LOG, LEASE, rights(outbox="remove", inbox="remove", dead_archive="remove")]
    ),
    "db init": united(
        [LOG, rights(ledger="createIndex", jobs="createIndex"),
         rights(inbox="createIndex", outbox="createIndex")]
    ),
}  # fmt: skip

READING_LISTS = ("lindex", "llen", "lpos", "lrange", "type", "scan", "smembers", "time")
CHANGING_LISTS = (
    "linsert", "lmove", "lpop", "lpush", "lpushx", "lrem", "lset", "ltrim", "rpop", "rpush",
    "rpushx", "sadd", "srem", "eval", "evalsha", "script|load",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Role:
    """Hold one kind of person or timer: what it is for, and the rights that are enough for it."""

    name: str
    purpose: str
    rights: Rights
    changes_lists: bool

    @property
    def user(self) -> str:
        """Return the name of the role in MongoDB and of the user in Redis."""
        return f"ledgerctl-{self.name}"

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the changing commands that these rights are enough for."""
        return tuple(
            command
            for command, needed in WRITES.items()
            if not missing(needed, self.rights)
            and (self.changes_lists or not command.startswith(("dead ", "queue ")))
        )


ROLES: tuple[Role, ...] = (
    Role("support", "reads everything, changes nothing", READING, changes_lists=False),
    Role(
        "on-call",
        "refunds and reclaims, repairs, moves dead letters, mends the inbox",
        united(
            [
                READING,
                LEASE,
                *(WRITES[one] for one in WRITES if one.startswith(("dead ", "ledger "))),
                *(WRITES[one] for one in ("job refund", "job reclaim", "queue push")),
                *(WRITES[one] for one in ("queue recover", "inbox retry", "inbox settle")),
            ]
        ),
        changes_lists=True,
    ),
    Role(
        "cron",
        "rebuilds summaries, consumes the inbox, watches the queues",
        united([READING, WRITES["summary rebuild"], WRITES["inbox consume"]]),
        changes_lists=False,
    ),
    Role(
        "worker",
        "runs jobs (`queue work`) and consumers (`inbox consume`)",
        united(
            [
                *(READING, WRITES["queue work"], WRITES["inbox consume"]),
                rights(usage_daily="insert update"),
            ]
        ),
        changes_lists=True,
    ),
    Role(
        "housekeeping",
        "removes what nobody needs any more (`db tidy`)",
        united([READING, LOG, LEASE, *(rights(**{name: "remove"}) for name in TIDIED)]),
        changes_lists=True,
    ),
)


def missing(needed: Rights, given: Rights) -> list[tuple[str, str]]:
    """Return the (action, collection) pairs that are needed and not given."""
    return [
        (action, collection)
        for collection, actions in needed.items()
        for action in sorted(actions - given.get(collection, frozenset()))
    ]


@dataclass(frozen=True, slots=True)
class RolePlace:
    """Describe where the roles hold: the database, and the configured names."""

    database: str
    collections: Mapping[str, str]
    keys: Sequence[str]
    redis_database: int = 0


def create_role(role: Role, place: RolePlace) -> dict[str, Any]:
    """Return the MongoDB command that makes the role, to be run in the place's database."""
    return {
        "createRole": role.user,
        "privileges": [
            {
                "resource": {"db": place.database, "collection": place.collections[name]},
                "actions": sorted(role.rights[name]),
            }
            for name in COLLECTIONS
        ]
        + [{"resource": {"db": place.database, "collection": ""}, "actions": [READ_RULES]}],
        "roles": [],
    }


def mongo_statement(role: Role, place: RolePlace) -> str:
    """Return one line for mongosh that makes the role."""
    document = create_role(role, place)
    named = {"role": document.pop("createRole"), **document}
    return f"{sibling(place)}.createRole({json.dumps(named, ensure_ascii=False)})"


def user_statement(role: Role, place: RolePlace) -> str:
    """Return one line for mongosh that makes a user of the role and asks for the password."""
    name = json.dumps(role.user)
    return (
        f"{sibling(place)}.createUser"
        f'({{"user": {name}, "pwd": passwordPrompt(), "roles": [{name}]}})'
    )


def sibling(place: RolePlace) -> str:
    """Return the database, in mongosh."""
    return f"db.getSiblingDB({json.dumps(place.database, ensure_ascii=False)})"


def redis_rules(role: Role, place: RolePlace) -> list[str]:
    """Return the rules of the role's Redis user, who cannot log in before a password is set."""
    commands = [*READING_LISTS, *(CHANGING_LISTS if role.changes_lists else ())]
    if place.redis_database:
        commands.append("select")
    patterns = [form for key in place.keys for form in (pattern(key), f"{pattern(key)}:*")]
    return [
        "reset", "on", *(f"~{one}" for one in patterns), "-@all", *(f"+{one}" for one in commands),
    ]  # fmt: skip


def redis_statement(role: Role, place: RolePlace) -> str:
    """Return one line for redis-cli that makes the user."""
    return " ".join(
        ["ACL", "SETUSER", role.user, *(cli_word(rule) for rule in redis_rules(role, place))]
    )


def pattern(key: str) -> str:
    """Return a pattern for a key's name; any one character stands in for a space."""
    return re.sub(r"\s", "?", re.sub(r"([*?\[\]^\\-])", r"\\\1", key) if is_glob(key) else key)


def is_glob(key: str) -> bool:
    """Return whether a pattern would give a character of the name another meaning."""
    return any(one in key for one in "*?[]\\")


def cli_word(word: str) -> str:
    """Return a word as redis-cli reads it, in quotes where it must be."""
    if re.fullmatch(r"[!-~]+", word) and not re.search(r"[\"'\\]", word):
        return word
    return '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'
