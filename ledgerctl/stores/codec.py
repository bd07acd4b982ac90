"""Documents in, our records out: ids, numbers, times and flags of every stored type."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, TypeGuard
from uuid import UUID

from bson import Binary, Decimal128, Int64, ObjectId
from bson.errors import BSONError

from ledgerctl.domain.amounts import Amount, exact_amount, fits_int64
from ledgerctl.domain.ids import Id, IdKind
from ledgerctl.domain.jobs import Flag, Job
from ledgerctl.domain.rows import (
    Entry,
    KindOfRow,
    LedgerRow,
    NewRow,
    Row,
    kind_of_row,
    row_order,
)
from ledgerctl.domain.times import format_time

Document = dict[str, Any]


DIGITS = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
JSON_ID = re.compile(r"[\[{].*|true|false|-?[0-9]+\.[0-9]*[1-9]", re.ASCII | re.DOTALL)
MAY_BE_TYPED = "-0123456789[{tf"  # what numbers and JSON begin with
UUID_KINDS = {3: IdKind.LEGACY_UUID, 4: IdKind.UUID}


def to_id(value: object) -> Id:
    """Read the id that a document holds; what is no id is shown as compact JSON."""
    if type(value) is str:
        return Id(value)
    if isinstance(value, ObjectId):
        return Id(str(value), IdKind.OBJECT_ID)
    if is_uuid(value):
        return Id(str(UUID(bytes=bytes(value))), UUID_KINDS[value.subtype])
    if isinstance(value, bool):
        return Id(str(value).lower(), IdKind.OTHER)
    if isinstance(value, int):
        return Id(str(int(value)), IdKind.INTEGER)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return Id(str(int(value)), IdKind.INTEGER)  # MongoDB holds 42.0 and 42 equal
    if isinstance(value, list | dict | bytes):
        return Id(to_json(value), IdKind.OTHER)
    return Id(str(value), IdKind.OTHER)


def is_uuid(value: object) -> TypeGuard[Binary]:
    """Tell whether a stored value is a UUID, of the old subtype or the new one."""
    return isinstance(value, Binary) and value.subtype in UUID_KINDS and len(value) == 16  # noqa: PLR2004  # bytes of a UUID


def to_json(value: object) -> str:
    """Spell a value of no id type as compact JSON, which `from_json` reads."""
    from bson.json_util import RELAXED_JSON_OPTIONS, dumps

    return dumps(
        value, json_options=RELAXED_JSON_OPTIONS, separators=(",", ":"), ensure_ascii=False
    )


def from_json(text: str) -> list[Any]:
    """List the value of no id type that this text spells; none where it spells none."""
    if not JSON_ID.fullmatch(text):
        return []
    from bson.json_util import RELAXED_JSON_OPTIONS, loads

    try:
        value = loads(text, json_options=RELAXED_JSON_OPTIONS)
    except (ValueError, TypeError, BSONError, RecursionError):
        return []  # brackets that are no JSON: text is the only form
    operator = isinstance(value, dict) and next(iter(value), "").startswith("$")
    return [] if operator or not isinstance(value, list | dict | bool | float) else [value]


def optional_id(value: object) -> Id | None:
    """Return the id, or None where it is absent or null."""
    return None if value is None else to_id(value)


def from_id(identity: Id) -> Any:
    """Return the value to store or look up for this id."""
    match identity.kind:
        case IdKind.OBJECT_ID:
            return ObjectId(identity.text)
        case IdKind.INTEGER:
            return Int64(identity.text)
        case IdKind.UUID | IdKind.LEGACY_UUID:
            subtype = next(one for one, kind in UUID_KINDS.items() if kind is identity.kind)
            return Binary(UUID(identity.text).bytes, subtype)
        case IdKind.OTHER:
            return next(iter(from_json(identity.text)), identity.text)
        case IdKind.STRING:
            return identity.text


def may_print_otherwise(text: str) -> bool:
    """Return whether this id may be printed in another way: hex in capitals, -0, a UUID."""
    return (len(text) in {24, 36} and text != text.lower()) or text == "-0"


def candidates(text: str) -> list[Any]:
    """Return every value under which a document can hold the id given as this text."""
    found: list[Any] = [text]
    if text[:1] not in MAY_BE_TYPED and len(text) not in {24, 36}:
        return found  # most ids; asked for a million times
    try:
        if len(text) == 24:  # noqa: PLR2004  # an ObjectId in hex
            found.append(ObjectId(text))
    except BSONError:
        pass  # 24 characters that are no hex: text is the only form
    if UUID_TEXT.fullmatch(text):
        found += [Binary(UUID(text).bytes, subtype) for subtype in sorted(UUID_KINDS, reverse=True)]
    if len(text) <= 20 and DIGITS.fullmatch(text) and fits_int64(int(text)):  # noqa: PLR2004  # int64 digits
        found.append(Int64(text))
    return found + from_json(text)


def to_amount(value: object) -> Amount:
    """Return the exact whole number that a stored value holds, or why it holds none."""
    return exact_amount(value.to_decimal() if isinstance(value, Decimal128) else value)


def to_time(value: object) -> datetime | None:
    """Read a BSON date; None for anything else, and for years that Python has not."""
    return value if isinstance(value, datetime) else None


def to_text(value: object) -> str | None:
    """Read a text field; None where it is absent or null."""
    if value is None or isinstance(value, str):
        return value
    return str(value)


def to_type(value: object) -> KindOfRow:
    """Return the type that a row holds; absent and null are the type without a name."""
    return kind_of_row(to_text(value) or "")


def to_flag(document: dict[str, Any], name: str) -> Flag:
    """Read a flag of a job document: absent and null are false, any other non-boolean is bad."""
    value = document.get(name)
    if value is None or value is False:
        return Flag.CLEAR
    return Flag.SET if value is True else Flag.BAD


def to_job(document: dict[str, Any]) -> Job:
    """Read a job document."""
    refunded, reclaimed = (to_flag(document, name) for name in ("is_refunded", "is_reclaimed"))
    return Job(
        id=to_id(document["_id"]),
        account=optional_id(document.get("account_id")),
        cost=to_amount(document.get("cost")),
        refunded=refunded,
        refunded_at=to_time(document.get("refunded_at")),
        reclaimed=reclaimed,
        reclaimed_at=to_time(document.get("reclaimed_at")),
        status=to_text(document.get("status")),
        created_at=to_time(document.get("created_at")),
        flags_present=document.get("is_refunded") is not None
        and document.get("is_reclaimed") is not None,
        refunded_as=to_shown(document["is_refunded"]) if refunded is Flag.BAD else None,
        reclaimed_as=to_shown(document["is_reclaimed"]) if reclaimed is Flag.BAD else None,
    )


def to_row(document: dict[str, Any]) -> Row:
    """Read a ledger document."""
    return Row(
        id=to_id(document["_id"]),
        job=optional_id(document.get("job_id")),
        account=optional_id(document.get("account_id")),
        type=to_type(document.get("type")),
        amount=to_amount(document.get("amount")),
        created_at=to_time(document.get("created_at")),
        recorded_at=recorded_at(document),
        operation_id=to_text(document.get("operation_id")),
        reason=to_text(document.get("reason")),
        has_odd_recorded_at=not isinstance(document.get("recorded_at"), datetime | None),
    )


def rows_in_order(documents: Iterable[dict[str, Any]]) -> list[Row]:
    """Sort found rows of jobs; a row whose job_id is a list that holds the id is not the job's."""
    rows = (to_row(one) for one in documents if not isinstance(one.get("job_id"), list))
    return sorted(rows, key=row_order)


def to_entry(document: dict[str, Any]) -> Entry:
    """Read what a replay needs of a ledger document; a million of them pass through here."""
    identity, job, amount = document["_id"], document.get("job_id"), document.get("amount")
    moment, row_type = document.get("created_at"), document.get("type")
    return Entry(
        identity if type(identity) is str else to_id(identity).text,
        moment if type(moment) is datetime else None,
        job if job is None or type(job) is str else to_id(job).text,
        to_type(row_type),
        int(amount) if type(amount) is Int64 else to_amount(amount),
        to_text(document.get("reason")),
    )


def to_ledger_row(document: dict[str, Any], account: str | None) -> LedgerRow:
    """Read what an export needs of a ledger document; a million of them pass through here."""
    entry = to_entry(document)
    owner = document.get("account_id")
    if owner is not None:
        account = owner if type(owner) is str else to_id(owner).text
    return LedgerRow(
        entry.row_id,
        entry.job_id,
        account,
        entry.type.value,
        entry.amount,
        entry.created_at,
        recorded_at(document),
        to_text(document.get("operation_id")),
        entry.reason,
    )


def recorded_at(document: dict[str, Any]) -> datetime | None:
    """Return when a row was written: recorded_at, else its ObjectId's time, else created_at."""
    written = to_time(document.get("recorded_at"))
    if written is not None:
        return written
    if isinstance(document.get("_id"), ObjectId):
        generated: datetime = document["_id"].generation_time
        return generated
    return to_time(document.get("created_at"))


def from_row(row: NewRow) -> dict[str, Any]:
    """Return the document of a row to append."""
    document: dict[str, Any] = {
        "_id": row.id,
        "account_id": from_id(row.account),
        "type": row.type.value,
        "amount": to_number(row.amount),
        "created_at": row.created_at,
        "recorded_at": row.recorded_at,
        "operation_id": row.operation_id,
    }
    if row.job is not None:
        document["job_id"] = from_id(row.job)
    if row.reason is not None:
        document["reason"] = row.reason
    return document


def to_number(amount: int) -> Int64 | Decimal128:
    """Return the stored form of a whole number, exact: int64, or a Decimal128 beyond it."""
    if fits_int64(amount):
        return Int64(amount)
    return Decimal128(Decimal(amount))


def to_plain(value: object) -> Any:
    """Return a stored value as JSON holds it: whole numbers exact, ids and times as text."""
    if isinstance(value, dict):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [to_plain(one) for one in value]
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, float) and isfinite(value):
        return value
    shown = to_shown(value)
    if not isinstance(shown, Decimal):
        return shown
    return int(shown) if shown == shown.to_integral_value() else str(shown)


def to_shown(value: object) -> Any:
    """Return a stored value as reports show it: plain types, times as times, never a float."""
    if isinstance(value, dict):
        return {str(key): to_shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [to_shown(one) for one in value]
    if value is None or isinstance(value, bool | str | datetime):
        return value
    if isinstance(value, bytes):
        return to_id(value).text
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return Decimal(repr(value)) if isfinite(value) else str(value)
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        return number if number.is_finite() else str(number)
    return str(value)


def measuring(fields: Sequence[str]) -> list[Document]:
    """Return the pipeline that counts documents, and those in which each field holds something."""
    counted: Document = {
        f"f{at}": {"$sum": {"$cond": [is_filled(name), 1, 0]}} for at, name in enumerate(fields)
    }
    return [{"$group": {"_id": None, "rows": {"$sum": 1}, **counted}}]


def is_filled(name: str) -> Document:
    """Return whether a field is there and neither null nor the empty text."""
    return {"$not": [{"$in": [{"$ifNull": [f"${name}", ""]}, [""]]}]}


def measure(found: Iterable[Document], fields: Sequence[str]) -> tuple[int, dict[str, int]]:
    """Return the counts of `measuring`; an empty collection has none."""
    counts = next(iter(found), None) or {}
    filled = {name: int(counts.get(f"f{at}", 0)) for at, name in enumerate(fields)}
    return int(counts.get("rows", 0)), filled


def without_collisions(projection: Mapping[str, int]) -> dict[str, int]:
    """Return a projection without parts of fields named whole, which MongoDB refuses."""
    return {
        name: keep
        for name, keep in projection.items()
        if not any(name.startswith(f"{other}.") for other in projection)
    }
