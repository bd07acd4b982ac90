"""A listener that notes each write of the program that a sharded deployment before 7.0 refuses."""

from collections.abc import Iterator, Mapping
from typing import Any

from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

# The shard keys that the README recommends; any other collection is sharded by `_id`.
SHARD_KEYS = {
    "ledger": ("job_id",),
    "outbox": ("message_key",),
    "inbox": ("consumer_group", "message_key"),
}


class ShardRules(CommandListener):
    """Notes what a router would refuse."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.refused += refusals(event.command_name, event.command)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


def refusals(name: str, command: Mapping[str, Any]) -> Iterator[str]:
    """Why a router refuses a command: it must know the shard of what it writes."""
    if name not in {"update", "delete", "findAndModify"}:
        return
    collection = command[name]
    key = SHARD_KEYS.get(collection, ("_id",))
    if name == "findAndModify":
        if not names_all(command["query"], key):
            yield f"findAndModify on {collection} by {sorted(command['query'])}, not by {key}"
        return
    for one in command.get("updates", command.get("deletes", ())):
        single = not one.get("multi", False) and one.get("limit", 1) == 1
        if one.get("upsert") and not names_all(one["q"], key):
            yield f"upsert on {collection} by {sorted(one['q'])}, not by {key}"
        elif single and not (names_all(one["q"], key) or names_all(one["q"], ("_id",))):
            yield f"{name} of one on {collection} by {sorted(one['q'])}, not by {key} or _id"


def names_all(query: Mapping[str, Any], key: tuple[str, ...]) -> bool:
    """Whether a query names every field of a key by equality."""
    return all(name in query and is_equality(query[name]) for name in key)


def is_equality(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return True
    return set(value) == {"$eq"} or not any(name.startswith("$") for name in value)
