"""Recent ids for completion: a few hundred, cheap to read, never more than a moment's work."""

from collections.abc import Iterator
from typing import Any, Final

from ledgerctl.domain.error_groups import error_group, masked_error
from ledgerctl.domain.payload import Payload, read_payload
from ledgerctl.stores.codec import to_id
from ledgerctl.stores.connections import Stores

READ_MAX: Final = 500
TAKING: Final = ("dead requeue", "dead release", "dead review")
READ_MS: Final = 500  # the server gives up by itself when the asker already has


class Recent:
    """Look up the newest ids of each kind, newest first; they may repeat themselves."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def of(self, kind: str) -> Iterator[str]:
        """Give ids of one kind; a group is followed by a tab and its error."""
        match kind:
            case "job":
                yield from self._field("jobs", "_id")
            case "account":
                yield from self._field("jobs", "account_id")
            case "operation":
                yield from self._field("operator_log", "_id")
            case "taken":
                yield from self._field("operator_log", "_id", command={"$in": list(TAKING)})
            case "dead":
                yield from (letter.job_id for letter in self._letters())
            case "group":
                for letter in self._letters():
                    error = masked_error(letter.error or "")
                    yield f"{error_group(letter.error)}\t{' '.join(error.split())}"
            case _:
                return

    def _field(self, collection: str, field: str, **wanted: Any) -> Iterator[str]:
        """Give one field of the documents written last; reads no index and sorts nothing."""
        with self._stores.mongo.reading("look for ids"):
            found = self._stores.mongo.collection(collection).find(wanted, {field: 1})
            for document in found.sort("$natural", -1).limit(READ_MAX).max_time_ms(READ_MS):
                value: Any = document.get(field)
                if value is not None:
                    yield to_id(value).text

    def _letters(self) -> Iterator[Payload]:
        """Read the last dead letters, the newest first."""
        queues = self._stores.queues
        with queues.reading("look for dead letters"):
            found: Any = queues.client.lrange(queues.keys.dead_letter, -READ_MAX, -1)
        for raw in reversed(found):
            letter = read_payload(raw)
            if isinstance(letter, Payload):
                yield letter
