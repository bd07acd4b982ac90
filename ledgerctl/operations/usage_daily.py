"""The built-in group `usage-daily`: recomputes the days that messages touched, never adds to them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ledgerctl.domain.days import day_of
from ledgerctl.domain.ids import chunks, text_of
from ledgerctl.domain.inbox import Claim, Finish, Left
from ledgerctl.domain.rows import Message
from ledgerctl.domain.times import parse_rfc3339
from ledgerctl.errors import LedgerctlError
from ledgerctl.operations.claims import TROUBLE, Claims
from ledgerctl.operations.consume import CHUNK, Counts
from ledgerctl.operations.summaries import Recomputed, recompute_days
from ledgerctl.stores.codec import optional_id, to_id
from ledgerctl.stores.connections import Stores

GROUP = "usage-daily"

Pair = tuple[str, str]  # an account, and a day in the day zone
Recompute = Callable[[Stores, Iterable[Pair], Any], Recomputed]
CANNOT_BE_SUMMED = "a ledger row of that day cannot be summed: its figures were left as they are"


class UnusableMessage(ValueError):
    """Hold a message that does not say which day of which account it is about."""


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
    recompute: Recompute = recompute_days

    def __call__(
        self, messages: Sequence[Message], counts: Counts, enough: Callable[[], bool]
    ) -> None:
        """Handle messages, up to 500 in one batch."""
        for some in chunks(messages, CHUNK):
            if enough():
                return
            self._batch(some, counts)

    def _batch(self, messages: Sequence[Message], counts: Counts) -> None:
        pairs: dict[Pair, list[Claim]] = {}
        for answer in self.claims.claim_many(messages, delivered=False):
            if isinstance(answer, Left):
                counts.left(answer)
                continue
            try:
                pair = pair_of(answer.message, self.zone, self._owner)
                pairs.setdefault(pair, []).append(answer)
            except UnusableMessage as error:
                counts.finished(self.claims.failed(answer, f"unusable payload: {error}"))
        if pairs:
            self._days(pairs, counts)

    def _owner(self, job_id: Any) -> str | None:
        """Return the account of a job, for a row that names none; None where no job is known.

        The job of the very same id and type comes first, as where summaries are summed.
        """
        wanted = optional_id(job_id)
        found = [] if wanted is None else self.stores.jobs.find(wanted.text)
        owner = min(found, key=lambda job: job.id != wanted, default=None)
        return None if owner is None else text_of(owner.account)

    def _days(self, pairs: Mapping[Pair, list[Claim]], counts: Counts) -> None:
        """Recompute all days at once; if that fails, each alone, so that none holds others up."""
        try:
            refused, marked = self._write(pairs)
        except TROUBLE:
            raise
        except LedgerctlError as error:
            self._days_one_by_one(pairs, error, counts)
            return
        for pair, claims in pairs.items():
            for claim in claims:
                counts.finished(self._finish(claim, claim.row in marked, pair in refused))

    def _days_one_by_one(
        self, pairs: Mapping[Pair, list[Claim]], error: LedgerctlError, counts: Counts
    ) -> None:
        for pair, claims in pairs.items():
            if len(pairs) > 1:
                self._days({pair: self.claims.renewed(claims)}, counts)
                continue
            for claim in claims:
                counts.finished(self.claims.failed(claim, error.message))

    def _write(self, pairs: Mapping[Pair, list[Claim]]) -> tuple[set[Pair], set[Any]]:
        """Write the figures and mark the messages, in one transaction where there is one.

        The figures come first: then no row that they are said to cover is missing from them.
        """

        def body(session: Any) -> tuple[set[Pair], set[Any]]:
            refused = set(self.recompute(self.stores, list(pairs), session).refused)
            computed = [
                one for pair, found in pairs.items() if pair not in refused for one in found
            ]
            return refused, {one.row for one in self.claims.succeeded(computed, session)}

        if not self.stores.mongo.transactions:
            return body(None)
        return self.stores.mongo.transaction("write daily summaries", body)

    def _finish(self, claim: Claim, marked: bool, refused: bool) -> Finish:
        if refused:
            return self.claims.failed(claim, CANNOT_BE_SUMMED)
        return Finish.SUCCEEDED if marked else Finish.SUPERSEDED


def pair_of(message: Message, zone: ZoneInfo, owner: Callable[[Any], str | None]) -> Pair:
    """Return the account and day that a message of a ledger row is about. Raises UnusableMessage.

    A row that names no account belongs to its job's, which `owner` tells. Source: contract,
    section 2, ledger.
    """
    payload = message.payload
    if not isinstance(payload, dict):
        raise UnusableMessage("it is no object")
    moment = moment_of(payload.get("created_at"))
    if moment is None:
        raise UnusableMessage("created_at is no time")
    named = payload.get("account_id")
    if named is None:
        named = message.tenant
    account = owner(payload.get("job_id")) if named is None or named == "" else to_id(named).text
    if account is None:
        raise UnusableMessage("it names no account")
    return account, day_of(moment, zone)


def moment_of(value: object) -> datetime | None:
    """Return a time as a payload holds it: a date, or RFC 3339 text."""
    if isinstance(value, datetime):
        return value
    return parse_rfc3339(value) if isinstance(value, str) else None
