"""The outbox: one message for each appended ledger row, under the row's own id."""

from collections.abc import Sequence
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from ledgerctl.domain.rows import NewRow, Row
from ledgerctl.stores.codec import candidates, from_id, to_id, to_number
from ledgerctl.stores.connections import Document, Mongo

TOPIC = "ledger.appended"


class Outbox:
    """Messages that tell consumers of appended rows."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._messages = mongo.collection("outbox")

    def add(self, row: NewRow | Row, session: ClientSession | None = None) -> bool:
        """Put the message of this row, at most once; False when it stands there already.

        In a transaction it lands together with the row. Source: contract, section 2, outbox.
        """
        message = message_of(row)
        with self._mongo.writing("put the message of a ledger row", session):
            try:
                # An insert that meets its own key would end the transaction around it.
                put = self._messages.update_one(
                    {"_id": message["_id"]}, {"$setOnInsert": message}, upsert=True, session=session
                )
            except DuplicateKeyError:
                if session is not None:
                    raise
                return False  # another one put it at this instant
        return put.upserted_id is not None

    def standing(self, row_ids: Sequence[str]) -> set[str]:
        """Those of these rows whose message stands there."""
        if not row_ids:
            return set()
        values = [value for row_id in row_ids for value in candidates(row_id)]
        with self._mongo.reading("read the outbox"):
            found = self._messages.find({"_id": {"$in": values}}, {"_id": 1})
            return {to_id(document["_id"]).text for document in found}

    def has(self, row_id: str) -> bool:
        """Whether the message of this row stands there."""
        with self._mongo.reading("read the outbox"):
            return self._messages.find_one({"_id": row_id}, {"_id": 1}) is not None


def message_of(row: NewRow | Row) -> Document:
    """The message of a row. Source: contract, section 2, outbox."""
    row_id = row.id if isinstance(row.id, str) else row.id.text
    account: Any = None if row.account is None else from_id(row.account)
    return {
        "_id": row_id,
        "message_key": row_id,
        "tenant_id": account,
        "topic": TOPIC,
        "payload": {
            "row_id": row_id,
            "job_id": None if row.job is None else from_id(row.job),
            "account_id": account,
            "type": str(row.type),
            "amount": to_number(row.amount) if isinstance(row.amount, int) else None,
            "created_at": row.created_at,
        },
        "created_at": row.recorded_at or row.created_at,
    }
