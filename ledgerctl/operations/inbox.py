"""Looking at the inbox and mending it: audit, stuck, show, retry, settle."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from heapq import nlargest
from typing import Any

from ledgerctl.domain.ids import Id, chunks
from ledgerctl.domain.inbox import (
    GROUP,
    ClaimRow,
    ClaimStatus,
    ClaimVerdict,
    Filled,
    InboxAudit,
    Lookup,
    Measured,
    Why,
    default_lookups,
    every,
    is_empty,
    is_enforced,
    judge,
    problems_of,
    why_stuck,
)
from ledgerctl.domain.rows import KEY, TENANT
from ledgerctl.errors import NotFound, Refused, UsageError
from ledgerctl.stores.codec import Document, to_amount, to_id, to_time
from ledgerctl.stores.connections import Stores

CHUNK = 1_000
CONFLICTS_NAMED = 5
CONTENT = ("tenant_id", "topic", "payload")  # what two messages of one key must agree on


# audit


def audit(stores: Stores, given: Sequence[tuple[str, ...]] = ()) -> InboxAudit:
    """Measure both halves of every key against the stored documents; changes nothing.

    `given` look-ups replace the default ones. Memory does not grow with the inbox.
    Source: contract, section 3, inbox audit.
    """
    unique = tuple(stores.indexes.unique_fields("inbox"))
    lookups = tuple(dict.fromkeys(given)) or default_lookups(unique)
    fields = sorted({name for lookup in lookups for name in lookup} - {GROUP, KEY, TENANT})
    tally = tally_of(stores, lookups, fields)
    measured = tuple(
        Lookup(
            fields=lookup,
            enforced=is_enforced(lookup, unique),
            found=tally.found[lookup],
            missed=tally.matched - tally.found[lookup],
            without_message=tally.without_message,
        )
        for lookup in lookups
    )
    conflicts = [key.text for key in conflicting_keys(stores)]
    inbox = measured_as(*stores.inbox.filled([GROUP, KEY, TENANT, *fields]))
    outbox = measured_as(*stores.outbox.filled([KEY, TENANT, *fields]))
    return InboxAudit(
        inbox=inbox,
        outbox=outbox,
        unique_indexes=unique,
        lookups=measured,
        unclaimed={group: outbox.rows - claimed for group, claimed in tally.claimed.items()},
        problems=problems_of(
            measured,
            unique,
            given=bool(given),
            empty={name: one.empty for name, one in inbox.fields.items()},
            conflicting=len(conflicts),
            conflicting_keys=conflicts[:CONFLICTS_NAMED],
        ),
    )


def measured_as(rows: int, filled: Mapping[str, int]) -> Measured:
    """Return a collection's measure from its counts."""
    return Measured(rows, {name: Filled(count, rows - count) for name, count in filled.items()})


@dataclass(slots=True)
class LookupCounts:
    """Describe what reading every row beside its message came to."""

    matched: int = 0
    without_message: int = 0
    found: Counter[tuple[str, ...]] = field(default_factory=Counter)
    claimed: dict[str, int] = field(default_factory=dict)


def tally_of(
    stores: Stores, lookups: Sequence[tuple[str, ...]], fields: Sequence[str]
) -> LookupCounts:
    """Simulate each look-up for each row from its own message."""
    tally = LookupCounts()
    last: tuple[object, object] | None = None
    rows = stores.inbox.by_group_and_key([TENANT, "completed_at", *fields])
    tidied = stores.outbox.tidied_before
    for chunk in chunks(rows, CHUNK):
        messages = messages_of(stores, chunk, fields)
        for row in chunk:
            message = messages.get(to_id(row.get(KEY)))
            completed = to_time(row.get("completed_at"))
            if message is None and tidied and completed and completed < tidied:
                continue  # `db tidy` removed its message
            pair = (row.get(GROUP), to_id(row.get(KEY)))
            count_row(tally, row, message, lookups, again=pair == last)
            last = pair
    return tally


def messages_of(
    stores: Stores, rows: Sequence[Document], fields: Sequence[str]
) -> dict[Id, Document]:
    """Return the messages of these rows, by key; an empty key has none."""
    keys = {to_id(row[KEY]): row[KEY] for row in rows if not is_empty(row.get(KEY))}
    found = stores.outbox.documents(list(keys.values()), [TENANT, *fields])
    return {to_id(one.get(KEY, one["_id"])): one for one in found}


def count_row(
    tally: LookupCounts,
    row: Document,
    message: Document | None,
    lookups: Sequence[tuple[str, ...]],
    *,
    again: bool,
) -> None:
    """Count one row; `again` says that the row before had the same group and key."""
    group = "" if row.get(GROUP) is None else str(row[GROUP])
    tally.claimed.setdefault(group, 0)
    if message is None:
        tally.without_message += 1
        return
    tally.matched += 1
    tally.claimed[group] += not again
    for lookup in lookups:
        tally.found[lookup] += all(hits(name, row, message) for name in lookup)


def hits(name: str, row: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
    """Return whether a query on this field, built from the message, matches the row.

    The group is the asking consumer's own, which is the row's. An empty value matches an empty one.
    """
    if name == GROUP:
        return True
    return same_value(value_at(row, name), value_at(message, name))


def value_at(document: Any, name: str) -> Any:
    """Return the value of a field, by its dotted name; None where it is absent."""
    for part in name.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def same_value(one: object, other: object) -> bool:
    """Return whether MongoDB holds two values equal: numbers by value, empty ones alike."""
    if is_empty(one) or is_empty(other):
        return is_empty(one) and is_empty(other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    first, second = to_amount(one), to_amount(other)
    if isinstance(first, int) or isinstance(second, int):
        return first == second
    return type(one) is type(other) and one == other


def conflicting_keys(stores: Stores) -> Iterator[Id]:
    """Yield the keys under which two messages differ in content."""
    for messages in stores.outbox.shared_keys():
        first = content(messages[0])
        if any(content(message) != first for message in messages[1:]):
            yield to_id(messages[0].get(KEY))


def content(message: Document) -> list[Any]:
    """Return what a message says."""
    return [message.get(name) for name in CONTENT]


# stuck


@dataclass(frozen=True, slots=True)
class Stuck:
    """Hold one row that is stuck, and why."""

    standing: ClaimRow
    why: tuple[Why, ...]
    document: Document

    @property
    def age(self) -> timedelta:
        """Return how long ago the message was first seen."""
        first = self.standing.first_seen_at or self.standing.last_seen_at
        return timedelta(0) if first is None else self.standing.now - first

    @property
    def every(self) -> timedelta | None:
        """Return how often it comes back."""
        return every(self.standing)


def stuck(stores: Stores, *, older_than: timedelta, limit: int) -> tuple[list[Stuck], int]:
    """Return the stuck rows, most often delivered first, then oldest; and how many there are.

    By age and frequency, whatever `attempts` says. Source: contract, section 3, inbox stuck.
    """
    count = 0

    def found() -> Iterator[Stuck]:
        nonlocal count
        policy = stores.settings.retry
        for standing, document in stores.inbox.suspects(policy.max_attempts):
            if why := why_stuck(standing, older_than, policy):
                count += 1
                yield Stuck(standing, why, document)

    def weight(one: Stuck) -> tuple[int, timedelta]:
        return one.standing.deliveries, one.age

    worst = nlargest(limit, found(), key=weight) if limit else sorted(found(), key=weight)[::-1]
    return worst, count


# one key


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Hold a message and the rows of every group that saw it."""

    key: str
    messages: list[Document]
    rows: list[Document]


def show(stores: Stores, key: str, group: str | None) -> MessagePage:
    """Return a message and its rows. Raises NotFound when neither exists, or not in that group."""
    standings = stores.inbox.of_key(key, group)
    messages = stores.outbox.of_text(key)
    if not standings and (group is not None or not messages):
        raise not_found(key, group)
    rows = stores.inbox.documents([standing.row for standing in standings])
    return MessagePage(key, messages, rows)


def one_row(stores: Stores, key: str, group: str | None) -> ClaimRow:
    """Return the one row of a key. Raises NotFound, or UsageError when several groups have it."""
    found = stores.inbox.of_key(key, group)
    if not found:
        raise not_found(key, group)
    groups = sorted({standing.group for standing in found})
    if len(groups) > 1:
        named = ", ".join(groups[:10]) + (", …" if len(groups) > 10 else "")  # noqa: PLR2004  # enough to choose from
        raise UsageError(
            f"message {key!r} stands in {len(groups)} groups: {named}", hint="add --group G"
        )
    if len(found) > 1:
        raise Refused(
            f"group {groups[0]!r} has {len(found)} rows of message {key!r}",
            hint="`ledgerctl inbox audit` says whether the unique index is missing",
        )
    return found[0]


def not_found(key: str, group: str | None) -> NotFound:
    """Return the error for a key without a row."""
    where = "the inbox" if group is None else f"group {group!r}"
    return NotFound(f"no message {key!r} in {where}", hint="`ledgerctl inbox list` names the rows")


def check_retry(standing: ClaimRow) -> None:
    """Raise Refused while somebody holds a live claim."""
    if judge(standing) is ClaimVerdict.HELD:
        raise Refused(
            f"message {standing.message} is being handled in group {standing.group!r}",
            hint="try again once its claim has lapsed; `ledgerctl inbox show` says when",
        )


def retry(stores: Stores, standing: ClaimRow) -> ClaimRow:
    """Make a message due now with attempts 0, only if its row still stands as it was read."""
    check_retry(standing)
    return unchanged(stores.inbox.retry(standing), standing)


# settle


def check_settle(standing: ClaimRow) -> None:
    """Raise Refused for a row whose handling nobody says has succeeded."""
    if standing.status in {ClaimStatus.SUCCEEDED, ClaimStatus.DEAD}:
        return
    raise Refused(
        f"message {standing.message} is {standing.status or 'without a status'} in group"
        f" {standing.group!r}: only a succeeded or dead one can be settled",
        hint=f"`ledgerctl inbox retry {standing.message} --group {standing.group}` puts it back",
    )


def acknowledge(stores: Stores, standing: ClaimRow) -> ClaimRow:
    """Complete one row as of its last delivery, and forget how often it was delivered.

    A dead one stays dead: it is let go, and no longer stuck.
    """
    check_settle(standing)
    return unchanged(stores.inbox.acknowledge(standing), standing)


def unchanged(after: ClaimRow | None, before: ClaimRow) -> ClaimRow:
    """Return the row after a change. Raises Refused when it was no longer what had been read."""
    if after is None:
        raise Refused(
            f"message {before.message} changed in group {before.group!r} meanwhile: nothing was done",
            hint="look again with `ledgerctl inbox show`",
        )
    return after


def settle(
    stores: Stores, rows: Sequence[Any], *, stopping: Callable[[], bool]
) -> Iterator[tuple[int, int]]:
    """Complete rows marked succeeded as of their last delivery.

    Yields for each chunk how many rows it completed and how many it tried.
    """
    for chunk in chunks(rows, CHUNK):
        if stopping():
            return
        yield stores.inbox.settle(chunk), len(chunk)
