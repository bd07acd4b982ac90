"""Claim → handle → mark: each message handled under a claim, each failure counted, for any worker.

A worker in Python uses `Claims` as it stands:

    with Stores(load(environment=os.environ)) as stores:
        claims = Claims(stores, "mail", owner="mail-worker-1")
        claims.deliver(message_of("m-7", payload={"to": "…"}), send_mail)

`deliver` does all three steps. `claim`, `succeeded` and `failed` are the same steps one by one.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ledgerctl.domain.ids import Id
from ledgerctl.domain.inbox import (
    CLAIM_FOR,
    GROUP,
    TAKEABLE,
    Claim,
    ClaimRow,
    ClaimStatus,
    ClaimVerdict,
    Finish,
    Left,
    attempts_after_take,
    judge,
)
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.domain.rows import KEY, Message
from ledgerctl.errors import (
    IndexMissing,
    LedgerctlError,
    NotPermitted,
    OutcomeUnknown,
    Refused,
    StoreBusy,
    StoreUnavailable,
)
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import INBOX_UNIQUE

ABANDONED = "the last attempt was abandoned: its consumer did not come back before the claim lapsed"
RENEWALS_A_TERM = 3  # so that one renewal may fail

# The store's own trouble ends a run; a claim that it leaves behind lapses and is counted.
TROUBLE = (StoreUnavailable, StoreBusy, NotPermitted, OutcomeUnknown)

Handler = Callable[[Claim, Any], None]


class Claims:
    """Claim messages for one consumer group; needs the unique index on (group, key).

    At most one live claim exists for a message and group at any time; a processed message is never
    claimed again; every handling that does not succeed is counted, and at the cap of the retry
    policy the row is `dead`. Handling is at least once, and exactly once in effect where the
    handler writes inside the session that `deliver` hands it.

    `owner` names the worker in the rows. `claim_for` is how long a claim lasts unrenewed, by the
    server's clock. Source: contract, section 3, inbox consume; domain, section 5.
    """

    def __init__(
        self,
        stores: Stores,
        group: str,
        *,
        owner: str,
        policy: RetryPolicy | None = None,
        claim_for: timedelta = CLAIM_FOR,
    ) -> None:
        self.stores = stores
        self.group = group
        self.policy = policy or stores.settings.retry
        self.claim_for = claim_for
        self._owner = owner
        self._inbox = stores.inbox

    def require_index(self) -> None:
        """Raise IndexMissing where nothing would reject a second claim."""
        if not self.stores.indexes.guards(INBOX_UNIQUE):
            raise IndexMissing(
                f"the inbox has no unique index on ({GROUP}, {KEY}): two consumers could claim one"
                " message",
                hint="`ledgerctl db init` builds it",
            )

    # claim

    def claim(self, message: Message, *, delivered: bool = True) -> Claim | Left:
        """Claim one message, or say what stands in the way."""
        return self.claim_many([message], delivered=delivered)[0]

    def claim_many(
        self, messages: Sequence[Message], *, delivered: bool = True
    ) -> list[Claim | Left]:
        """Claim messages, each once however often it is named; one answer a message, in order.

        Inserts first: the unique index decides. What it rejects is looked into by the very fields
        of that index, and taken over only if it still stands as it was read. `delivered` says
        that a broker brought them, which counts as a delivery even where nothing is claimed.
        """
        by_id = {message.id: message for message in messages}
        unique = list(by_id.values())
        if not unique:
            return []
        token = f"{self._owner} {secrets.token_hex(6)}"
        self._inbox.insert(self.group, unique, token=token, term=self.claim_for)
        rows = {row.message: row for row in self._standing(unique)}
        answers = [self._settle(message, rows.get(message.id), token) for message in unique]
        if delivered:
            self._count_again([rows[one.message.id] for one in answers if isinstance(one, Left)])
        return answers

    def _standing(self, messages: Sequence[Message]) -> list[ClaimRow]:
        return self._inbox.standing(self.group, [message.key for message in messages])

    def _settle(self, message: Message, standing: ClaimRow | None, token: str) -> Claim | Left:
        if standing is None:
            raise Refused(
                f"the claim of {message.id} was rejected, and no row of ({GROUP}, {KEY}) is why",
                hint="another unique index on the inbox stands in the way: `ledgerctl inbox audit`",
            )
        if standing.claimed_by == token:
            return self._as_claim(message, standing, token)
        verdict = judge(standing, self.claim_for)
        if verdict in TAKEABLE:
            return self._take(message, standing, verdict, token)
        return Left(message, verdict)

    def _take(
        self, message: Message, standing: ClaimRow, verdict: ClaimVerdict, token: str
    ) -> Claim | Left:
        attempts = attempts_after_take(standing, verdict)
        if attempts and self.policy.is_exhausted(
            attempts
        ):  # one put back is tried, whatever the cap
            error = ABANDONED if verdict is ClaimVerdict.EXPIRED else None
            buried = self._inbox.bury(standing, attempts=attempts, error=error)
            return Left(message, ClaimVerdict.DEAD, buried=buried is not None)
        taken = self._inbox.take(standing, token=token, term=self.claim_for, attempts=attempts)
        if taken is None:
            return Left(message, ClaimVerdict.HELD)  # somebody was faster
        return self._as_claim(message, taken, token)

    def _as_claim(self, message: Message, standing: ClaimRow, token: str) -> Claim:
        until = standing.claimed_until or standing.now
        return Claim(
            row=standing.row,
            message=message,
            group=self.group,
            token=token,
            attempts=standing.attempts,
            claimed_at=until - self.claim_for,
            until=until,
        )

    def _count_again(self, rows: Sequence[ClaimRow]) -> None:
        if rows:
            self._inbox.seen_again([row.row for row in rows])

    # handle

    @contextmanager
    def kept(self, claim: Claim) -> Iterator[None]:
        """Renew a claim in the background for as long as the block runs.

        A worker that dies or freezes stops renewing, and its claim lapses.
        """
        done = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(claim, done), daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()

    def _keep(self, claim: Claim, done: threading.Event) -> None:
        held = [claim]
        while held and not done.wait(self.claim_for.total_seconds() / RENEWALS_A_TERM):
            try:
                held = self.renewed(held)
            except LedgerctlError:  # the store is away: the claim may still be ours
                continue

    def renewed(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew claims for another term; those that are no longer ours are left out."""
        if not claims:
            return []
        rows = {row["_id"]: row for row in self._inbox.renew(claims, self.claim_for)}
        return [
            replace(claim, until=rows[claim.row]["claimed_until"])
            for claim in claims
            if claim.row in rows
        ]

    def deliver(self, message: Message, handler: Handler) -> Finish | Left:
        """Claim a message, handle it, mark it: the whole life of one delivery.

        Where the deployment has transactions, `handler(claim, session)` runs inside the one that
        marks the message: what it writes with the session lands once, or not at all. It may be
        called again when the transaction is restarted. Elsewhere the session is None, and the mark
        follows the handling. Keep it well under a minute: the server ends a longer transaction.
        An exception of the handler counts as a failed attempt, and is not
        raised; the store's own trouble is.
        """
        claim = self.claim(message)
        if isinstance(claim, Left):
            return claim
        try:
            marked = self._handled(claim, handler)
        except TROUBLE:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a handler raises is its failure
            return self.failed(claim, f"{type(error).__name__}: {error}")
        return Finish.SUCCEEDED if marked else Finish.SUPERSEDED

    def _handled(self, claim: Claim, handler: Handler) -> bool:
        if not self.stores.mongo.transactions:
            with self.kept(claim):
                handler(claim, None)
            return bool(self.succeeded([claim]))

        def body(session: Any) -> bool:
            marked = bool(self.succeeded([claim], session))
            if marked:  # else somebody newer finished it, and this handling has no effect
                handler(claim, session)
            return marked

        return self.stores.mongo.transaction(f"handle message {claim.message.id}", body)

    # mark

    def succeeded(self, claims: Sequence[Claim], session: Any = None) -> list[Claim]:
        """Mark messages of one `claim_many` processed; returns the claims whose mark was written.

        A late finish counts: it is recorded although the claim lapsed or was taken over, unless
        somebody newer has finished or an operator put the message back meanwhile.
        """
        if not claims:
            return []
        marked = set(self._inbox.succeed(claims, session))
        return [claim for claim in claims if claim.row in marked]

    def failed(self, claim: Claim, error: str) -> Finish:
        """Count a failed handling; SUPERSEDED when whoever took the claim over has counted it."""
        match self._inbox.fail(claim, error, self.policy):
            case ClaimStatus.DEAD:
                return Finish.DEAD
            case None:
                return Finish.SUPERSEDED
            case _:
                return Finish.FAILED


def message_of(key: str, *, tenant: str | None = None, payload: Any = None) -> Message:
    """Return a message that a broker brought, with a text key."""
    return Message(id=Id(key), key=key, tenant=tenant, payload=payload)
