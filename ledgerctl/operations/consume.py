"""The consumer's loop: a group's unfinished rows, then new messages, each claimed and marked."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from ledgerctl.domain.days import EARLIEST
from ledgerctl.domain.inbox import TAKEABLE, Claim, ClaimRow, Finish, Left, judge
from ledgerctl.domain.rows import Message
from ledgerctl.domain.times import shifted
from ledgerctl.errors import UsageError
from ledgerctl.operations.claims import Claims
from ledgerctl.operations.handlers import Handler
from ledgerctl.stores.codec import from_id, to_plain
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.outbox import Position

CHUNK = 500  # messages read, and claimed together where a group handles them together
LOOK_BACK = timedelta(hours=1)  # a message may be committed later than it says
LOOK_BACK_SHORT = timedelta(minutes=2)  # between two long looks of one run
LOOK_BACK_EVERY_S = 60.0
IDLE_S = 1.0  # between two looks at an empty outbox
WAKE_S = 0.1  # how soon a signal is seen while idle


class Until(StrEnum):
    """Name when a run ends by itself."""

    ONCE = "once"  # after one message, or one batch of a group that handles batches
    EMPTY = "empty"  # when nothing is due
    STOPPED = "stopped"  # never


@dataclass(slots=True)
class Counts:
    """Count what a run did. `failed` includes the failures that made a row dead."""

    handled: int = 0
    succeeded: int = 0
    failed: int = 0
    dead: int = 0  # rows that this run marked dead, handled by it or abandoned by another
    superseded: int = 0

    def finished(self, finish: Finish) -> None:
        """Count the end of one handling."""
        self.handled += 1
        self.succeeded += finish is Finish.SUCCEEDED
        self.failed += finish in {Finish.FAILED, Finish.DEAD}
        self.dead += finish is Finish.DEAD
        self.superseded += finish is Finish.SUPERSEDED

    def left(self, left: Left) -> None:
        """Count a message that was not claimed; only burying it changed anything."""
        self.dead += left.buried


class Work(Protocol):
    """Handle messages that look open: claim them, handle them, mark them."""

    def __call__(
        self, messages: Sequence[Message], counts: Counts, enough: Callable[[], bool]
    ) -> None:
        """Handle these messages; `enough` is asked between two of them."""


@dataclass(slots=True)
class Backlog:
    """Read the messages that look open to a group, in chunks; claiming decides.

    Each pass reads unfinished rows, then new messages in order from an hour before the group's
    mark. The mark follows each chunk that was dealt with, so that no message is passed over and
    none is read for ever. `full` reads everything once.
    """

    stores: Stores
    group: str
    topic: str | None
    claim_for: timedelta
    full: bool = False
    _long_look_s: float | None = field(default=None, init=False)

    def chunks(self) -> Iterator[list[Message]]:
        """Yield one pass: unfinished rows first, then messages without a date, then new ones."""
        yield from self._unfinished()
        yield from self._undated()
        yield from self._unseen()

    def _unfinished(self) -> Iterator[list[Message]]:
        after: object = None
        while rows := self.stores.inbox.takeable(self.group, after=after, limit=CHUNK):
            after = rows[-1].row
            if messages := self._messages_of(rows):
                yield messages

    def _messages_of(self, rows: Sequence[ClaimRow]) -> list[Message]:
        keys = [from_id(row.message) for row in rows if judge(row, self.claim_for) in TAKEABLE]
        found = self.stores.outbox.of_keys(keys) if keys else []
        return [one for one in found if self.topic is None or one.topic == self.topic]

    def _undated(self) -> Iterator[list[Message]]:
        after: object = None
        while found := self.stores.outbox.undated(topic=self.topic, after=after, limit=CHUNK):
            after = found[-1][1]
            if messages := self._without_row([message for message, _ in found]):
                yield messages

    def _unseen(self) -> Iterator[list[Message]]:
        mark = self.stores.inbox.mark(self.group, self.topic)
        position = self._start(mark)
        while found := self.stores.outbox.after(position, topic=self.topic, limit=CHUNK):
            position = found[-1][1]
            if messages := self._without_row([message for message, _ in found]):
                yield messages
            mark = self._advance(mark, found[-1][0].created_at)

    def _start(self, mark: datetime | None) -> Position:
        now_s = time.monotonic()
        since_s = None if self._long_look_s is None else now_s - self._long_look_s
        short = since_s is not None and since_s < LOOK_BACK_EVERY_S
        if not short:
            self._long_look_s = now_s
        if mark is None or self.full:
            self.full = False
            return Position(EARLIEST)
        return Position(shifted(mark, -(LOOK_BACK_SHORT if short else LOOK_BACK)))

    def _without_row(self, messages: Sequence[Message]) -> list[Message]:
        keys = [message.key for message in messages]
        known = self.stores.inbox.claimed_keys(self.group, keys)
        return [message for message in messages if message.id not in known]

    def _advance(self, mark: datetime | None, reached: datetime | None) -> datetime | None:
        if reached is None or (mark is not None and reached <= mark):
            return mark
        self.stores.inbox.advance_mark(self.group, self.topic, reached)
        return reached


@dataclass(frozen=True, slots=True)
class CommandWork:
    """Handles each message by the operator's own command, under a claim that is kept renewed."""

    claims: Claims
    handler: Handler

    def __call__(
        self, messages: Sequence[Message], counts: Counts, enough: Callable[[], bool]
    ) -> None:
        """Claim each message just before it is handled, so that none waits under a claim."""
        for message in messages:
            if enough():
                return
            claim = self.claims.claim(message, delivered=False)
            if isinstance(claim, Left):
                counts.left(claim)
            else:
                counts.finished(self._handle(claim))

    def _handle(self, claim: Claim) -> Finish:
        payload = json.dumps(to_plain(claim.message.payload), ensure_ascii=False).encode()
        try:
            with self.claims.kept(claim):
                ending = self.handler.run(payload, variables(claim))
        except UsageError as error:
            self.claims.failed(claim, error.message)
            raise
        if not ending.succeeded:
            return self.claims.failed(claim, ending.error)
        return Finish.SUCCEEDED if self.claims.succeeded([claim]) else Finish.SUPERSEDED


def variables(claim: Claim) -> dict[str, str]:
    """Return the environment that a handler gets besides its own."""
    return {
        "LEDGERCTL_MESSAGE_KEY": claim.message.id.text,
        "LEDGERCTL_ATTEMPTS": str(claim.attempts),
        "LEDGERCTL_CONSUMER_GROUP": claim.group,
        "LEDGERCTL_TOPIC": claim.message.topic or "",
        "LEDGERCTL_TENANT_ID": "" if claim.message.tenant is None else str(claim.message.tenant),
    }


def consume(
    backlog: Backlog, work: Work, counts: Counts, *, until: Until, stopping: Callable[[], bool]
) -> None:
    """Handle a group's open messages until told to stop, or until there is none.

    A signal ends the run after the message in hand. `counts` is true at every moment, also when a
    store raises.
    """

    def enough() -> bool:
        return stopping() or (until is Until.ONCE and counts.handled > 0)

    while not enough():
        before = counts.handled + counts.dead
        one_pass(backlog, work, counts, enough)
        if counts.handled + counts.dead > before:
            continue
        if until is not Until.STOPPED:
            return
        idle(stopping)


def one_pass(backlog: Backlog, work: Work, counts: Counts, enough: Callable[[], bool]) -> None:
    """Look at everything that is open once. A chunk that was not finished moves no mark."""
    with closing(backlog.chunks()) as chunks:  # type: ignore[type-var]  # a generator has close
        for messages in chunks:
            work(messages, counts, enough)
            if enough():
                return


def idle(stopping: Callable[[], bool]) -> None:
    """Wait for new messages, awake to signals."""
    deadline = time.monotonic() + IDLE_S
    while time.monotonic() < deadline and not stopping():
        time.sleep(WAKE_S)
