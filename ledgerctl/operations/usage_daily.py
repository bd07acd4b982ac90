"""The built-in group `usage-daily`: recomputes the days that messages touched, never adds to them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ledgerctl.domain.days import day_of
from ledgerctl.domain.ids import Id
from ledgerctl.domain.inbox import Claim, Finish, Left, Message
from ledgerctl.domain.times import parse_rfc3339
from ledgerctl.errors import LedgerctlError
from ledgerctl.operations.claims import TROUBLE, Claims
from ledgerctl.operations.consume import CHUNK, Counts
from ledgerctl.stores.codec import to_id
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.outbox import TOPIC

GROUP = "usage-daily"

Pair = tuple[Id, str]  # an account in its stored type, and a day in the day zone
Recompute = Callable[[Stores, Iterable[Pair], Any], object]


class Unusable(ValueError):
    """A message that does not say which day of which account it is about."""


@dataclass(frozen=True, slots=True)
class UsageDaily:
    """Handles messages in batches: each (account, day) is recomputed once and overwritten.

    All messages of a day are marked in the transaction that writes its figures. One whose
    payload is unusable fails by itself, and one whose day cannot be computed holds no other up.
    Source: contract, section 3, inbox consume.
    """

    stores: Stores
    claims: Claims
    zone: ZoneInfo
    recompute: Recompute

    def __call__(
        self, messages: Sequence[Message], counts: Counts, enough: Callable[[], bool]
    ) -> None:
        """Handle messages, up to 500 in one batch."""
        for start in range(0, len(messages), CHUNK):
            if enough():
                return
            self._batch(messages[start : start + CHUNK], counts)

    def _batch(self, messages: Sequence[Message], counts: Counts) -> None:
        pairs: dict[Pair, list[Claim]] = {}
        for answer in self.claims.claim_many(messages, delivered=False):
            if isinstance(answer, Left):
                counts.left(answer)
                continue
            try:
                pairs.setdefault(pair_of(answer.message, self.zone), []).append(answer)
            except Unusable as error:
                counts.finished(self.claims.failed(answer, f"unusable payload: {error}"))
        if pairs:
            self._days(pairs, counts)

    def _days(self, pairs: Mapping[Pair, list[Claim]], counts: Counts) -> None:
        """All days in one go; when that fails, each by itself, so that one holds no other up."""
        claims = [claim for found in pairs.values() for claim in found]
        try:
            marked = self._write(list(pairs), claims)
        except TROUBLE:
            raise
        except LedgerctlError as error:
            if len(pairs) == 1:
                for claim in claims:
                    counts.finished(self.claims.failed(claim, error.message))
                return
            for pair, found in pairs.items():
                self._days({pair: self.claims.renewed(found)}, counts)
            return
        for claim in claims:
            done = claim.row in marked
            counts.finished(Finish.SUCCEEDED if done else Finish.SUPERSEDED)

    def _write(self, pairs: Sequence[Pair], claims: Sequence[Claim]) -> set[Any]:
        """Write the figures and mark the messages, in one transaction where there is one."""

        def body(session: Any) -> set[Any]:
            self.recompute(self.stores, pairs, session)
            return {claim.row for claim in self.claims.succeeded(claims, session)}

        if not self.stores.mongo.transactions:
            return body(None)
        return self.stores.mongo.transaction("write daily summaries", body)


def pair_of(message: Message, zone: ZoneInfo) -> Pair:
    """The account and day that a message of a ledger row is about. Raises Unusable."""
    payload = message.payload
    if not isinstance(payload, dict):
        raise Unusable("it is no object")
    account = payload.get("account_id")
    if account is None:
        account = message.tenant
    if account is None or account == "":
        raise Unusable("it names no account")
    moment = moment_of(payload.get("created_at"))
    if moment is None:
        raise Unusable("created_at is no time")
    return to_id(account), day_of(moment, zone)


def moment_of(value: object) -> datetime | None:
    """A time as a payload holds it: a date, or RFC 3339 text."""
    if isinstance(value, datetime):
        return value
    return parse_rfc3339(value) if isinstance(value, str) else None


__all__ = ["GROUP", "TOPIC", "UsageDaily", "pair_of"]
