"""Claims of messages: what a duplicate rejection means, what is stuck, which look-ups can work."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from ledgerctl.domain.ids import Id
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.domain.rows import KEY, TENANT, Message
from ledgerctl.domain.times import shifted
from ledgerctl.errors import UsageError

CLAIM_FOR = timedelta(seconds=60)  # how long a claim stands before it counts as abandoned
ERROR_CHARACTERS_MAX = 500

GROUP = "consumer_group"


class ClaimStatus(StrEnum):
    """Name what an inbox row says of its message and group. Source: contract, section 2, inbox."""

    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """Hold an inbox row as it was read, and the server's time of the reading.

    `fence` holds the values that a conditional update must find again. A count that is no whole
    number from 0 on reads as 0, a time that is no date as None.
    """

    row: Any
    group: str
    message: Id
    status: str
    attempts: int
    deliveries: int
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    claimed_until: datetime | None
    not_before: datetime | None
    completed_at: datetime | None
    last_error: str | None
    now: datetime
    fence: Mapping[str, Any] = field(default_factory=dict)
    claimed_by: str | None = None


class ClaimVerdict(StrEnum):
    """Name what a duplicate rejection means; only DUE and EXPIRED may be taken."""

    DONE = "done"  # processed: succeeded with completed_at
    UNMARKED = "unmarked"  # succeeded without completed_at: nobody knows; left until settled
    HELD = "held"  # a live claim: somebody is at it
    WAITING = "waiting"  # failed, not yet due
    DEAD = "dead"  # at the cap; waits for a person
    DUE = "due"  # failed and due
    EXPIRED = "expired"  # claimed by somebody who did not come back


TAKEABLE = frozenset({ClaimVerdict.DUE, ClaimVerdict.EXPIRED})


@dataclass(frozen=True, slots=True)
class Claim:
    """Hold the right to handle one message for one group, until another worker takes it over.

    `attempts` counts the failures before this handling. `token` and `attempts` fence every later
    write; `until` is the server's time at which the claim lapses.
    """

    row: Any
    message: Message
    group: str
    token: str
    attempts: int
    claimed_at: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Left:
    """Hold a message that was not claimed, and the reason."""

    message: Message
    verdict: ClaimVerdict
    buried: bool = False  # this very look found the cap reached and marked the row dead


class Finish(StrEnum):
    """Name what became of the end of a handling."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # counted; tried again when due
    DEAD = "dead"  # counted; that was the last attempt
    SUPERSEDED = "superseded"  # somebody newer has it or finished it; nothing was written


def judge(standing: ClaimRow, claim_for: timedelta = CLAIM_FOR) -> ClaimVerdict:
    """Return the one meaning of a row that rejected a claim.

    A duplicate rejection alone says neither "done" nor "in progress". A claim without
    `claimed_until` counts from when it was last seen. Source: contract, section 3, inbox.
    """
    match standing.status:
        case ClaimStatus.SUCCEEDED:
            return ClaimVerdict.UNMARKED if standing.completed_at is None else ClaimVerdict.DONE
        case ClaimStatus.DEAD:
            return ClaimVerdict.DEAD
        case ClaimStatus.FAILED:
            due = standing.not_before is None or standing.not_before <= standing.now
            return ClaimVerdict.DUE if due else ClaimVerdict.WAITING
        case _:
            until = lapses_at(standing, claim_for)
            return (
                ClaimVerdict.HELD
                if until is not None and until > standing.now
                else ClaimVerdict.EXPIRED
            )


def lapses_at(standing: ClaimRow, claim_for: timedelta) -> datetime | None:
    """Return when a claim lapses; None where its row holds no time, so that it has lapsed."""
    if standing.claimed_until is not None:
        return standing.claimed_until
    seen = standing.last_seen_at or standing.first_seen_at
    return None if seen is None else shifted(seen, claim_for)


def attempts_after_take(standing: ClaimRow, verdict: ClaimVerdict) -> int:
    """Return the attempts of a row that is taken: an abandoned claim counts as a failed attempt."""
    return standing.attempts + (verdict is ClaimVerdict.EXPIRED)


def is_processed(standing: ClaimRow) -> bool:
    """Return whether the message is processed for the group. Source: contract, section 2, inbox."""
    return standing.status == ClaimStatus.SUCCEEDED and standing.completed_at is not None


def short_error(text: str) -> str:
    """Return an error as a row keeps it: one bounded line."""
    line = " ".join(text.split())
    cut = line[:ERROR_CHARACTERS_MAX]
    return cut or "failed without a word"


# what is stuck


class Why(StrEnum):
    """Name why a row is stuck."""

    NOT_COMPLETED = "not_completed"
    DELIVERED_AGAIN = "delivered_again"  # after it was completed
    TOO_MANY_DELIVERIES = "too_many_deliveries"


def why_stuck(standing: ClaimRow, older_than: timedelta, policy: RetryPolicy) -> tuple[Why, ...]:
    """Return why a row is stuck, by age and frequency, whatever `attempts` says; else empty."""
    return tuple(
        why
        for why, holds in (
            (Why.NOT_COMPLETED, is_overdue(standing, older_than)),
            (Why.DELIVERED_AGAIN, is_delivered_again(standing)),
            (Why.TOO_MANY_DELIVERIES, standing.deliveries > policy.max_attempts),
        )
        if holds
    )


def is_overdue(standing: ClaimRow, older_than: timedelta) -> bool:
    """Return whether a row has been uncompleted for that long; a settled dead row is not."""
    settled = standing.status == ClaimStatus.DEAD and standing.completed_at is not None
    if is_processed(standing) or settled:
        return False
    since = standing.first_seen_at or standing.last_seen_at
    return since is None or shifted(since, older_than) <= standing.now


def is_delivered_again(standing: ClaimRow) -> bool:
    """Return whether a message was delivered again after it had been completed."""
    seen, done = standing.last_seen_at, standing.completed_at
    return seen is not None and done is not None and seen > done


def every(standing: ClaimRow) -> timedelta | None:
    """Return how often a message comes back, on average; None when it came once."""
    first, last = standing.first_seen_at, standing.last_seen_at
    if first is None or last is None or standing.deliveries < 2 or last <= first:  # noqa: PLR2004  # two make an interval
        return None
    return (last - first) / (standing.deliveries - 1)


# the audit


@dataclass(frozen=True, slots=True)
class Lookup:
    """Hold one way to look a claim up, measured: on these fields, from each row's own message."""

    fields: tuple[str, ...]
    enforced: bool  # a unique index has exactly these fields
    found: int = 0
    missed: int = 0
    without_message: int = 0

    @property
    def ok(self) -> bool:
        """Return whether this lookup hits every row and an index enforces it."""
        return self.enforced and not self.missed


@dataclass(frozen=True, slots=True)
class Filled:
    """In how many documents a field holds something; absent, null and "" are empty."""

    filled: int
    empty: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold one collection: its documents, and how full each field of a key is."""

    rows: int
    fields: Mapping[str, Filled]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something the audit has to say; `fails` when it makes the check exit 5."""

    code: str
    detail: str
    fails: bool


@dataclass(frozen=True, slots=True)
class InboxAudit:
    """Both halves of every key, measured against the stored documents."""

    inbox: Measured
    outbox: Measured
    unique_indexes: tuple[tuple[str, ...], ...]
    lookups: tuple[Lookup, ...]
    unclaimed: Mapping[str, int]
    problems: tuple[Problem, ...]

    @property
    def fails(self) -> bool:
        """Return whether the check found something."""
        return any(problem.fails for problem in self.problems)


def is_empty(value: object) -> bool:
    """Return whether a field's value is empty: absent, null or the empty text."""
    return value is None or value == ""


def parse_lookup(text: str) -> tuple[str, ...]:
    """Read the fields of `--lookup a,b`. Raises UsageError for an empty, doubled or bad name."""
    fields = tuple(part.strip() for part in text.split(","))
    wrong = [name for name in fields if not name or name.startswith("$") or "\x00" in name]
    if wrong or len(set(fields)) != len(fields):
        raise UsageError(
            f"{text!r} names no look-up",
            hint=f"give field names, each once, such as {GROUP},{KEY}",
        )
    return fields


def default_lookups(unique: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return what is measured unasked: each unique index's fields, and (tenant, key)."""
    return tuple(dict.fromkeys([*(unique or [(GROUP, KEY)]), (TENANT, KEY)]))


def is_enforced(fields: Sequence[str], unique: Iterable[tuple[str, ...]]) -> bool:
    """Return whether a unique index has exactly these fields, in whatever order."""
    return any(sorted(fields) == sorted(index) for index in unique)


def problems_of(
    lookups: Sequence[Lookup],
    unique: Sequence[tuple[str, ...]],
    *,
    given: bool,
    empty: Mapping[str, int] | None = None,
    conflicting_keys: Sequence[str] = (),
    conflicting: int = 0,
) -> tuple[Problem, ...]:
    """Return what is wrong with the keys; `given`: the lookups came from `--lookup`.

    `empty` counts the claims that lack each field. Source: contract, section 3, inbox audit.
    """
    found: list[Problem] = []
    if not unique:
        found.append(
            Problem(
                "no_unique_index", "no unique index: nothing keeps two claims apart", fails=True
            )
        )
    for lookup in lookups:
        found += lookup_problems(lookup, empty or {}, given=given)
    if conflicting:
        named = ", ".join(conflicting_keys)
        detail = f"{conflicting} message keys stand for messages that differ: {named}"
        found.append(Problem("key_conflict", detail, fails=True))
    return tuple(found)


def lookup_problems(lookup: Lookup, empty: Mapping[str, int], *, given: bool) -> list[Problem]:
    """Return what is wrong with one look-up."""
    name = f"({', '.join(lookup.fields)})"
    found = []
    if lookup.missed:
        lacking = [
            f"{field} is null, absent or empty in {empty[field]} claims"
            for field in lookup.fields
            if empty.get(field)
        ]
        detail = (
            f"a look-up by {name} misses {lookup.missed} of {lookup.found + lookup.missed} claims: "
            + ("; ".join(lacking) or "their rows hold something else than their messages")
        )
        found.append(Problem("lookup_misses", detail, fails=given or lookup.enforced))
    if not lookup.enforced and (given or lookup.missed):
        detail = (
            f"no unique index has exactly the fields {name}: a claim must not be looked up by them"
        )
        found.append(Problem("lookup_not_enforced", detail, fails=given))
    return found
