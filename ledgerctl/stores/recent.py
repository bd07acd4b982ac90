"""Recent ids for completion: a few hundred, cheap to read, never more than a moment's work."""

from collections.abc import Iterator
from typing import Any, Final

from ledgerctl.domain.error_groups import error_group
from ledgerctl.domain.payload import Payload, read_payload
from ledgerctl.stores.codec import to_id
from ledgerctl.stores.connections import Stores

READ_MAX: Final = 500
READ_MS: Final = 500  # the server gives up by itself when the asker already has


class Recent:
    """The newest ids of each kind, newest first; may repeat themselves."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def of(self, kind: str) -> Iterator[str]:
        """Ids of one kind: job, account, operation or group; none of a kind that is not known."""
        match kind:
            case "job":
                yield from self._field("jobs", "_id")
            case "account":
                yield from self._field("jobs", "account_id")
            case "operation":
                yield from self._field("operator_log", "_id")
            case "group":
                yield from self._groups()
            case _:
                return

    def _field(self, collection: str, field: str) -> Iterator[str]:
        """One field of the documents written last; reads no index and sorts nothing."""
        with self._stores.mongo.reading("look for ids"):
            found = self._stores.mongo.collection(collection).find({}, {field: 1})
            for document in found.sort("$natural", -1).limit(READ_MAX).max_time_ms(READ_MS):
                value: Any = document.get(field)
                if value is not None:
                    yield to_id(value).text

    def _groups(self) -> Iterator[str]:
        """The groups of errors among the last dead letters."""
        queues = self._stores.queues
        with queues.reading("look for groups"):
            found: Any = queues.client.lrange(queues.keys.dead_letter, -READ_MAX, -1)
        for raw in reversed(found):
            letter = read_payload(raw)
            if isinstance(letter, Payload):
                yield error_group(letter.error)
