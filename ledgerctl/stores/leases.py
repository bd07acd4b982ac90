"""Leases: at most one run at a time, by the server's clock, and taken over when it died."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pymongo import ReturnDocument

from ledgerctl.errors import (
    InvariantBroken,
    LeaseHeld,
    LedgerctlError,
    OutcomeUnknown,
    StoreUnavailable,
)
from ledgerctl.stores.codec import Document
from ledgerctl.stores.mongo import Mongo


@dataclass(slots=True)
class Lease:
    """A lease in hand. `lost` is set when renewing failed for too long: stop at the next chunk."""

    name: str
    owner: str
    lost: threading.Event = field(default_factory=threading.Event)


class Leases:
    """The lease documents: `_id`, `owner`, `acquired_at`, `expires_at`."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._leases = mongo.collection("leases")

    @contextmanager
    def held(
        self, name: str, *, operator: str, term: timedelta, renew_every: timedelta
    ) -> Iterator[Lease]:
        """Hold a lease for as long as the block runs, renewed in the background.

        An expired lease may be taken. Raises LeaseHeld, naming the owner, when another run has it.
        """
        lease = Lease(name, f"{operator} {secrets.token_hex(6)}")
        self._take_first(lease, term)
        done = threading.Event()
        keeper = threading.Thread(
            target=self._keep, args=(lease, term, renew_every, done), daemon=True
        )
        keeper.start()
        try:
            yield lease
        finally:
            done.set()
            keeper.join()
            with suppress(LedgerctlError):  # the store is away: the lease runs out by itself
                self.release(lease)

    def _take_first(self, lease: Lease, term: timedelta) -> None:
        """Take a lease anew; a lost reply is asked again, and by itself has changed nothing."""
        try:
            try:
                self.take(lease, term)
            except OutcomeUnknown:
                self.take(lease, term)
        except OutcomeUnknown as error:
            raise StoreUnavailable(
                f"the lease {lease.name!r} could not be taken, and nothing was changed:"
                f" {error.message}",
                hint="try again",
            ) from None

    def take(self, lease: Lease, term: timedelta) -> None:
        """Take or renew a lease in one atomic step. Raises LeaseHeld when another run has it."""
        with self._mongo.writing(f"take the lease {lease.name}"):
            found = self._leases.find_one_and_update(
                {"_id": lease.name},
                taking(lease.owner, term),
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        if found is None:
            raise InvariantBroken(f"the lease {lease.name} vanished while it was taken")
        if found["owner"] != lease.owner:
            raise LeaseHeld(
                f"another run holds the lease {lease.name!r}: {str(found['owner']).rsplit(' ', 1)[0]}",
                hint=f"try again; it is free at {found['expires_at']:%H:%M:%S}Z if that run has died",
            )

    def release(self, lease: Lease) -> None:
        """Let a lease go, if it is still ours; what else the document holds stays."""
        with self._mongo.writing(f"let the lease {lease.name} go"):
            self._leases.update_one(
                {"_id": lease.name, "owner": lease.owner}, [{"$set": {"expires_at": "$$NOW"}}]
            )

    def note(self, lease: Lease, fields: Document) -> None:
        """Keep something beside a lease, if it is still ours: it outlives the run."""
        with self._mongo.writing(f"note on the lease {lease.name}"):
            self._leases.update_one({"_id": lease.name, "owner": lease.owner}, {"$set": fields})

    def holder(self, name: str) -> Document | None:
        """The lease's document, with `live` by the server's clock; None when nobody ever had it."""
        pipeline: list[dict[str, Any]] = [
            {"$match": {"_id": name}},
            {"$set": {"live": {"$gt": ["$expires_at", "$$NOW"]}, "now": "$$NOW"}},
        ]
        with self._mongo.reading(f"read the lease {name}"):
            return next(iter(self._leases.aggregate(pipeline)), None)

    def discard(self, lease: Lease) -> None:
        """Let a lease go for good, if it is still ours: nobody will ever ask for its name again."""
        with self._mongo.writing(f"let the lease {lease.name} go"):
            self._leases.delete_one({"_id": lease.name, "owner": lease.owner})

    def expiries(self, prefix: str) -> dict[str, timedelta]:
        """How long ago each lease of that prefix expired, by the server's clock; live: negative.

        A lease without a date counts as never renewed. Keys are the names after the prefix.
        """
        dated = {"$eq": [{"$type": "$expires_at"}, "date"]}
        age_ms = {"$cond": [dated, {"$subtract": ["$$NOW", "$expires_at"]}, None]}
        pipeline: list[dict[str, Any]] = [
            {"$match": {"_id": {"$gte": prefix, "$lt": prefix + "\U0010ffff"}}},
            {"$set": {"age_ms": age_ms}},
        ]
        with self._mongo.reading(f"read the leases {prefix}…"):
            found = list(self._leases.aggregate(pipeline))
        return {
            str(lease["_id"]).removeprefix(prefix): timedelta.max
            if lease["age_ms"] is None
            else timedelta(milliseconds=int(lease["age_ms"]))
            for lease in found
        }

    def _keep(
        self, lease: Lease, term: timedelta, renew_every: timedelta, done: threading.Event
    ) -> None:
        left = term
        while not done.wait(renew_every.total_seconds()):
            try:
                self.take(lease, term)
                left = term
            except LeaseHeld:
                lease.lost.set()
                return
            except LedgerctlError:  # the store is away: the lease may still be ours for a while
                left -= renew_every
                if left <= timedelta(0):
                    lease.lost.set()
                    return


def taking(owner: str, term: timedelta) -> list[Document]:
    """The update that takes a lease when it is free, ours or expired, and else changes nothing."""
    free = {
        "$or": [
            {"$eq": ["$owner", owner]},
            {"$ne": [{"$type": "$expires_at"}, "date"]},
            {"$lte": ["$expires_at", "$$NOW"]},
        ]
    }
    expires = {"$add": ["$$NOW", int(term.total_seconds() * 1000)]}
    acquired = {"$cond": [{"$eq": ["$owner", owner]}, "$acquired_at", "$$NOW"]}
    return [
        {"$set": {"_free": free}},
        {
            "$set": {
                "owner": {"$cond": ["$_free", owner, "$owner"]},
                "acquired_at": {"$cond": ["$_free", acquired, "$acquired_at"]},
                "expires_at": {"$cond": ["$_free", expires, "$expires_at"]},
            }
        },
        {"$unset": "_free"},
    ]
