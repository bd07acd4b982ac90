"""Whether this run has changed anything that counts: what an exit code may say depends on it."""

from collections.abc import Collection, Mapping
from typing import Any

from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

WRITES = frozenset({"insert", "update", "delete", "findAndModify", "createIndexes", "aggregate"})
MERGING = frozenset({"$merge", "$out"})
COMMIT = "commitTransaction"


class Changes(CommandListener):
    """Counts the writes that the server has confirmed and that changed something.

    Inside a transaction nothing counts before its commit. Collections that only tell of changes or
    keep runs apart (`besides`) do not count: the operator log, the leases, the archive.
    """

    def __init__(self, besides: Collection[str]) -> None:
        self.count = 0
        self._besides = frozenset(besides)
        self._sent: set[int] = set()

    def started(self, event: CommandStartedEvent) -> None:
        """Remember a write whose success will count."""
        if event.command_name == COMMIT or (
            event.command_name in WRITES and self._counts(event.command_name, event.command)
        ):
            self._sent.add(event.request_id)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Count it if it has changed anything."""
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
    """What a server's reply says of its write; one that says nothing has changed something."""
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
