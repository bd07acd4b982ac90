"""Wrong claims, each the product with one rule broken; most of them stood in a real service."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ledgerctl.domain.inbox import Claim, ClaimRow, ClaimVerdict, Finish, Left
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.domain.rows import Message
from ledgerctl.operations.claims import Claims, Handler
from ledgerctl.stores.connections import Stores

PAUSE_S = 0.05  # what a network or another process makes of the gap between two steps


def claims_of(stores: Stores) -> Any:
    return stores.mongo.collection("inbox")


def by_tenant(stores: Stores, message: Message) -> Any:
    """The look-up of the incident: by the tenant on the envelope, which no claim has."""
    return claims_of(stores).find_one({"tenant_id": message.tenant, "message_key": message.key})


class LookupByTenant(Claims):
    """Looks for what rejected its claim by (tenant, key); what it does not find is new to it."""

    def _settle(self, message: Message, standing: ClaimRow | None, token: str) -> Claim | Left:
        if standing is not None and standing.claimed_by == token:
            return super()._settle(message, standing, token)
        if by_tenant(self.stores, message) is None:
            return Left(message, ClaimVerdict.HELD)  # rejected, not found: another delivery has it
        return super()._settle(message, standing, token)


class AugustGuard(Claims):
    """Marks a row as succeeded before it handles, and looks the mark up by (tenant, key)."""

    def deliver(self, message: Message, handler: Handler) -> Finish | Left:
        found = by_tenant(self.stores, message)
        if found is not None and found["status"] == "succeeded":
            return Left(message, ClaimVerdict.DONE)
        claim = self.claim(message)
        row = {"consumer_group": self.group, "message_key": message.key}
        claims_of(self.stores).update_one(
            row, [{"$set": {"status": "succeeded", "completed_at": "$$NOW", "tenant_id": None}}]
        )
        if isinstance(claim, Left):
            claim = Claim(
                None, message, self.group, "", 0, self.stores.mongo.now(), self.stores.mongo.now()
            )
        handler(claim, None)
        return Finish.SUCCEEDED


class DuplicateSwallowed(Claims):
    """Takes every rejection to mean that another delivery has the message."""

    def _settle(self, message: Message, standing: ClaimRow | None, token: str) -> Claim | Left:
        if standing is not None and standing.claimed_by == token:
            return super()._settle(message, standing, token)
        return Left(message, ClaimVerdict.HELD)


class FailureFindsNoRow(Claims):
    """Counts a failure on the row of (tenant, key), which does not exist: no claim has a tenant."""

    def claim_many(
        self, messages: Sequence[Message], *, delivered: bool = True
    ) -> list[Claim | Left]:
        answers = super().claim_many(messages, delivered=delivered)
        claims_of(self.stores).update_many({}, {"$set": {"tenant_id": None}})
        return answers

    def failed(self, claim: Claim, error: str) -> Finish:
        claims_of(self.stores).update_one(
            {"tenant_id": claim.message.tenant, "message_key": claim.message.key},
            {"$inc": {"attempts": 1}, "$set": {"status": "failed", "last_error": error}},
        )
        return Finish.FAILED


class ExpiredNeverTaken(Claims):
    """Leaves a claim whose consumer died as if somebody were at it."""

    def _take(
        self, message: Message, standing: ClaimRow, verdict: ClaimVerdict, token: str
    ) -> Claim | Left:
        if verdict is ClaimVerdict.EXPIRED:
            return Left(message, ClaimVerdict.HELD)
        return super()._take(message, standing, verdict, token)


class TakeoverNotCounted(Claims):
    """Takes an abandoned claim over without counting the attempt."""

    def _take(
        self, message: Message, standing: ClaimRow, _verdict: ClaimVerdict, token: str
    ) -> Claim | Left:
        return super()._take(message, standing, ClaimVerdict.DUE, token)


class LiveClaimTaken(Claims):
    """Takes a message that somebody is handling."""

    def _settle(self, message: Message, standing: ClaimRow | None, token: str) -> Claim | Left:
        if standing is not None and standing.claimed_by != token and standing.status == "claimed":
            return self._take(message, standing, ClaimVerdict.EXPIRED, token)
        return super()._settle(message, standing, token)


class LateFinishOverwrites(Claims):
    """Writes its end whatever happened to the row meanwhile."""

    def succeeded(self, claims: Sequence[Claim], _session: Any = None) -> list[Claim]:
        claims_of(self.stores).update_many(
            {"_id": {"$in": [claim.row for claim in claims]}},
            [{"$set": {"status": "succeeded", "completed_at": "$$NOW"}}],
        )
        return list(claims)

    def failed(self, claim: Claim, error: str) -> Finish:
        claims_of(self.stores).update_one(
            {"_id": claim.row},
            {
                "$set": {
                    "status": "failed",
                    "attempts": claim.attempts + 1,
                    "completed_at": None,
                    "last_error": error,
                }
            },
        )
        return Finish.FAILED


class LateFinishLost(Claims):
    """Records an end only while its claim stands: finished work is done again."""

    def succeeded(self, claims: Sequence[Claim], session: Any = None) -> list[Claim]:
        standing = [claim for claim in claims if self._stands(claim)]
        return super().succeeded(standing, session)

    def _stands(self, claim: Claim) -> bool:
        query = {"_id": claim.row, "claimed_by": claim.token, "status": "claimed"}
        return claims_of(self.stores).find_one(query) is not None


class MarkedBeforeHandling(Claims):
    """Marks first and handles then: a crash in between loses the message for good."""

    def deliver(self, message: Message, handler: Handler) -> Finish | Left:
        claim = self.claim(message)
        if isinstance(claim, Left):
            return claim
        self.succeeded([claim])
        handler(claim, None)
        return Finish.SUCCEEDED


class CapForgotten(Claims):
    """Counts attempts and never stops."""

    def __init__(self, stores: Stores, group: str, *, owner: str, policy: RetryPolicy) -> None:
        super().__init__(stores, group, owner=owner, policy=replace(policy, max_attempts=10**9))


class LooksThenClaims(Claims):
    """Looks whether a row is there and then writes one: two steps with a gap."""

    def claim_many(self, messages: Sequence[Message], **_: bool) -> list[Claim | Left]:
        (message,) = messages
        row = {"consumer_group": self.group, "message_key": message.key}
        if claims_of(self.stores).find_one(row) is not None:
            return [Left(message, ClaimVerdict.HELD)]
        time.sleep(PAUSE_S)
        now = self.stores.mongo.now()
        row |= {"status": "claimed", "attempts": 0, "claimed_by": "me"}
        claims_of(self.stores).update_one(
            {"consumer_group": self.group, "message_key": message.key}, {"$set": row}, upsert=True
        )
        found = claims_of(self.stores).find_one(
            {"consumer_group": self.group, "message_key": message.key}
        )
        return [Claim(found["_id"], message, self.group, "me", 0, now, now)]
