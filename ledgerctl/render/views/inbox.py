"""Report the inbox."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ledgerctl.domain.inbox import InboxAudit, Lookup, Measured
from ledgerctl.domain.results import Fate, Result
from ledgerctl.errors import ExitCode
from ledgerctl.render.exact import Encoder, time_text
from ledgerctl.render.report import (
    Column,
    Kind,
    Record,
    Report,
    Shape,
    columns,
    listing,
    members,
    record,
)
from ledgerctl.render.text import rows as rows_in_words

ROW_COLUMNS = columns(
    "row_id consumer_group message_key tenant_id status attempts deliveries first_seen_at",
    "last_seen_at claimed_until not_before completed_at last_error",
    spare="first_seen_at last_seen_at completed_at",
    when_filled="last_error",
    not_shown="row_id tenant_id claimed_until not_before",
)
STUCK_COLUMNS = columns(
    *ROW_COLUMNS[:4],
    *(replace(column, spare=True) for column in ROW_COLUMNS[4:6]),
    ROW_COLUMNS[6],
    "age every",
    Column("why", kind=Kind.WORDS),
    *(column for column in ROW_COLUMNS[7:] if column.key != "last_error"),
    "last_error",
    not_shown="last_error",
)
LOOKUP_COLUMNS = columns("fields found missed without_message enforced ok")
FIELD_COLUMNS = columns("collection field filled empty")
UNCLAIMED_COLUMNS = columns("consumer_group unclaimed")
CONSUMED_COLUMNS = columns(
    "consumer_group handled succeeded failed dead superseded operation_id", not_shown="superseded"
)
CHANGED_COLUMNS = columns("consumer_group message_key status attempts deliveries completed_at")


def row(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return one inbox row under its contract name; unknown fields are kept."""
    return {"row_id": str(document["_id"])} | {
        key: value for key, value in document.items() if key != "_id"
    }


def rows(found: Sequence[Mapping[str, Any]], total: int) -> Report:
    """Return a listing of rows."""
    return listing(
        [row(document) for document in found],
        columns=ROW_COLUMNS,
        total=total,
        empty="No inbox rows.",
    )


def stuck(
    found: Sequence[tuple[Mapping[str, Any], Sequence[str], timedelta, timedelta | None]],
    total: int,
) -> Report:
    """Return the stuck rows; exit 5 if there are any."""
    return listing(
        [
            row(document) | {"why": list(why), "age": age, "every": every}
            for document, why, age, every in found
        ],
        columns=STUCK_COLUMNS,
        total=total,
        exit_code=int(ExitCode.FOUND if total else ExitCode.DONE),
        foot=[f"{rows_in_words(total)} stuck"],
        empty="Nothing is stuck.",
    )


def shown(
    key: str, messages: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> Report:
    """Return one message and its row in every group that saw it."""
    notes = []
    if not messages:
        notes.append("the outbox has no message of this key")
    if len(messages) > 1:
        notes.append(f"{len(messages)} messages share this key; the first is shown")
    message = {k: v for k, v in messages[0].items() if k != "_id"} if messages else None
    document = {"message_key": key, "message": message, "rows": [row(one) for one in found]}
    return Report(
        columns=ROW_COLUMNS,
        records=document["rows"],  # type: ignore[arg-type]  # rows by construction
        document=document,
        items_key="rows",
        head=message_lines(message),
        notes=notes,
        empty="No group has seen it.",
    )


def message_lines(message: Mapping[str, Any] | None) -> list[str]:
    """Return a message in two lines."""
    if message is None:
        return []
    made = message.get("created_at")
    when = time_text(made) if isinstance(made, datetime) else "no date"
    return [
        f"message {message.get('message_key')}, topic {message.get('topic')},"
        f" tenant {message.get('tenant_id')}, {when}",
        f"payload {Encoder(ascii_only=False).encode(message.get('payload'))}",
    ]


def changed(result: Result[Any], *, verb: str, selected: int) -> Report:
    """Show what `retry` and `settle` did, or would do."""
    done = result.fates[Fate.DONE]
    items = [row(one) for one in result.items]
    return Report(
        columns=CHANGED_COLUMNS,
        records=items,
        document={"selected": selected, verb: done, "items": items},
        items_key="items",
        foot=[f"{done} of {selected} {verb}"],
    )


def consumed(group: str, counts: Mapping[str, Any], *, notes: Sequence[str]) -> Report:
    """Show what a run of the consumer did. Source: contract, section 3, inbox consume."""
    said = ", ".join(
        f"{counts[name]} {name}" for name in ("handled", "succeeded", "failed", "dead")
    )
    document = {**counts, "consumer_group": group}
    return record(document, columns=CONSUMED_COLUMNS, notes=notes, foot=[said])


# the audit


def audit(found: InboxAudit) -> Report:
    """Both halves of every key, measured. Source: contract, section 3, inbox audit."""
    document: dict[str, Any] = {
        "inbox": measured(found.inbox),
        "outbox": measured(found.outbox),
        "unique_indexes": [list(fields) for fields in found.unique_indexes],
        "lookups": [lookup(one) for one in found.lookups],
        "problems": [members(one, "code detail fails") for one in found.problems],
        "unclaimed": dict(found.unclaimed),
    }
    return Report(
        columns=LOOKUP_COLUMNS,
        records=[lookup(one) | {"fields": ",".join(one.fields)} for one in found.lookups],
        document=document,
        shape=Shape.LIST,
        head=audit_head(found),
        foot=[one.detail for one in found.problems],
        exit_code=int(ExitCode.FOUND if found.fails else ExitCode.DONE),
        sections=[fields_section(found), unclaimed_section(found)],
    )


def measured(found: Measured) -> Record:
    """Return one collection's counts."""
    return {
        "rows": found.rows,
        "fields": {
            name: {"filled": one.filled, "empty": one.empty} for name, one in found.fields.items()
        },
    }


def lookup(found: Lookup) -> dict[str, Any]:
    """Return one look-up's verdict."""
    return {
        "fields": list(found.fields),
        **members(found, "found missed without_message enforced ok"),
    }


def audit_head(found: InboxAudit) -> list[str]:
    """Return what was measured, in words."""
    unique = "; ".join(", ".join(fields) for fields in found.unique_indexes) or "none"
    return [f"{found.inbox.rows} claims, {found.outbox.rows} messages; unique indexes: {unique}"]


def fields_section(found: InboxAudit) -> Report:
    """Return how full each field is on both sides."""
    records: list[Record] = [
        {"collection": name, "field": key, "filled": one.filled, "empty": one.empty}
        for name, side in (("inbox", found.inbox), ("outbox", found.outbox))
        for key, one in side.fields.items()
    ]
    return Report(columns=FIELD_COLUMNS, records=records, head=["fields of keys"])


def unclaimed_section(found: InboxAudit) -> Report:
    """Return how many messages each group has no row of."""
    records: list[Record] = [
        {"consumer_group": group, "unclaimed": count} for group, count in found.unclaimed.items()
    ]
    head = "unclaimed messages" if records else "every message was claimed by every group"
    return Report(columns=UNCLAIMED_COLUMNS, records=records, head=[head], empty=head)
