"""Leases: at most one run at a time, by the server's clock, and taken over when it died."""

import secrets
import threading
import time
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

LATE_PAUSE_S = 0.05


@dataclass(slots=True)
class Lease:
    """Hold a lease; `lost` is set once another run holds it or renewing has been given up."""

    name: str
    owner: str
    lost: threading.Event = field(default_factory=threading.Event)
    renewed_at: float = field(default_factory=time.monotonic)
    term: timedelta = timedelta.max

    def is_lost(self) -> bool:
        """Return True when to stop before the next chunk; wait while a late renewal is under way."""
        while not self.lost.is_set() and self.is_late():
            self.lost.wait(LATE_PAUSE_S)
        return self.lost.is_set()

    def is_late(self) -> bool:
        """Return True when the term has run out since the last renewal: another run may take it."""
        return time.monotonic() - self.renewed_at > self.term.total_seconds()


class Leases:
    """Hold the lease documents: `_id`, `owner`, `acquired_at`, `expires_at`."""

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
        lease = Lease(name, f"{operator} {secrets.token_hex(6)}", term=term)
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
        sent_at = time.monotonic()
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
        lease.renewed_at = sent_at

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
        """Return the lease's document, `live` by the server's clock; None if it never existed."""
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
        """Return how long ago each lease of that prefix expired; negative while it is live.

        By the server's clock; a lease without a date counts as never renewed. Keys are the names after
        the prefix.
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
        limit_s = max(term.total_seconds(), self._mongo.outage.limit_s)
        while not done.wait(renew_every.total_seconds()):
            try:
                self.take(lease, term)
            except LeaseHeld:
                lease.lost.set()
                return
            except LedgerctlError:  # the store is away: nobody else can take it there either
                if time.monotonic() - lease.renewed_at > limit_s:
                    lease.lost.set()
                    return


def taking(owner: str, term: timedelta) -> list[Document]:
    """Return the update that takes a free, own or expired lease, and else changes nothing."""
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
