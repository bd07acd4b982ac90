"""The operator log: one document a changing command, written before its first change."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ledgerctl.stores.codec import Document
from ledgerctl.stores.mongo import Mongo


class OperatorLog:
    """Who did what, when and why."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._log = mongo.collection("operator_log")

    def begin(self, entry: Mapping[str, Any]) -> None:
        """Write an entry with exit_code null, before anything is changed."""
        with self._mongo.writing("write the operator log"):
            self._log.insert_one(dict(entry))

    def set_reason(self, operation_id: str, reason: str) -> None:
        """Write the reason that is given only while the operation runs."""
        with self._mongo.writing("write the operator log"):
            self._log.update_one({"_id": operation_id}, {"$set": {"reason": reason}})

    def end(
        self, operation_id: str, *, at: datetime, counts: Mapping[str, Any], exit_code: int
    ) -> None:
        """Complete an entry with its counts and exit code."""
        with self._mongo.writing("complete the operator log"):
            self._log.update_one(
                {"_id": operation_id},
                {"$set": {"finished_at": at, "counts": dict(counts), "exit_code": exit_code}},
            )

    def note(self, operation_id: str, fields: Mapping[str, Any]) -> None:
        """Keep more beside an entry while its operation goes on."""
        with self._mongo.writing("note on the operator log"):
            self._log.update_one({"_id": operation_id}, {"$set": dict(fields)})

    def get(self, operation_id: str) -> Document | None:
        """Return one entry."""
        with self._mongo.reading("read the operator log"):
            return self._log.find_one({"_id": operation_id})

    def last_of(self, operator: str, commands: Sequence[str]) -> str | None:
        """Return the id of the operator's last operation of these commands."""
        query = {"operator": operator, "command": {"$in": list(commands)}}
        with self._mongo.reading("read the operator log"):
            found = self._log.find_one(query, {"_id": 1}, sort=[("_id", -1)])
        return None if found is None else str(found["_id"])

    def newest(
        self,
        limit: int,
        *,
        operator: str | None = None,
        command: str | None = None,
        since: datetime | None = None,
    ) -> tuple[list[Document], int]:
        """Return the newest entries first (`limit` 0: all), and how many match."""
        asked = {"operator": operator, "command": command, "at": since and {"$gte": since}}
        query = {name: value for name, value in asked.items() if value is not None}
        with self._mongo.reading("read the operator log"):
            found = list(self._log.find(query).sort("_id", -1).limit(limit))
            return found, self._log.count_documents(query)
