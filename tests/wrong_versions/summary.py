"""Rebuilds that were wrong once, each in one way: kept so that the tests stay red against them."""

from datetime import datetime, timedelta
from typing import Any

from ledgerctl.domain.days import day_bounds
from ledgerctl.operations.rebuild import RebuildRequest
from ledgerctl.stores.connections import Stores
from tests.builders import days_between

Document = dict[str, Any]
KINDS = {"charged": ("charge", -1), "refunded": ("refund", 1), "reclaimed": ("reclaim", -1)}


def accumulate_without_a_claim(stores: Stores, request: RebuildRequest) -> None:
    """Adds what it finds, every time it runs."""
    for document in fresh(stores, request):
        numbers = {name: document[name] for name in (*KINDS, "net", "rows", "jobs")}
        stores.mongo.collection("usage_daily").update_one(
            {"_id": document["_id"]},
            {"$inc": numbers, "$set": {k: v for k, v in document.items() if k not in numbers}},
            upsert=True,
        )


def only_the_groups_found(stores: Stores, request: RebuildRequest) -> None:
    """Leaves a figure standing where no rows remain."""
    for document in fresh(stores, request):
        put(stores, document)


def overwrite_a_newer_figure(stores: Stores, request: RebuildRequest) -> None:
    """Does not ask when the stored figure was computed."""
    for document in fresh(stores, request):
        put(stores, document)
    clear(stores, request)


def fixed_24_hours(stores: Stores, request: RebuildRequest) -> None:
    """A day is its first instant and 24 hours."""
    for document in fresh(stores, request, hours=24):
        put(stores, document)
    clear(stores, request)


def window_from_48_hours_ago(stores: Stores, request: RebuildRequest) -> None:
    """Starts in the middle of a day, and overwrites that day with its second half."""
    since = stores.mongo.now() - timedelta(hours=48)
    for document in fresh(stores, request, since=since):
        put(stores, document)


def replace_the_document(stores: Stores, request: RebuildRequest) -> None:
    """Drops the fields of other writers."""
    clear(stores, request)
    for document in fresh(stores, request):
        stores.mongo.collection("usage_daily").replace_one(
            {"_id": document["_id"]}, document, upsert=True
        )


def sum_through_a_double(stores: Stores, request: RebuildRequest) -> None:
    """Lets one double turn the sum into a double."""
    clear(stores, request)
    for document in fresh(stores, request, number=float):
        put(stores, document)


def zero_days_before_the_ledger(stores: Stores, request: RebuildRequest) -> None:
    """Takes a day from before the ledger's first row for a day without rows."""
    clear(stores, request)
    for document in fresh(stores, request):
        put(stores, document)


def late_rows_are_never_seen(stores: Stores, request: RebuildRequest) -> None:
    """Looks at the window alone."""
    for document in fresh(stores, request):
        put(stores, document)


def text_amounts_are_skipped(stores: Stores, request: RebuildRequest) -> None:
    """Writes the low number."""
    for document in fresh(stores, request):
        put(stores, document)


def put(stores: Stores, document: Document) -> None:
    """Set the fields of a summary."""
    stores.mongo.collection("usage_daily").update_one(
        {"_id": document["_id"]}, {"$set": document}, upsert=True
    )


def clear(stores: Stores, request: RebuildRequest) -> None:
    """Zero every summary of the window."""
    first, last = days_of(stores, request)
    stores.mongo.collection("usage_daily").update_many(
        {"day": {"$gte": first, "$lte": last}},
        {"$set": dict.fromkeys((*KINDS, "net", "rows", "jobs"), 0)},
    )


def days_of(stores: Stores, request: RebuildRequest) -> tuple[str, str]:
    return request.window.resolve(stores.mongo.now(), stores.settings.zone)


def fresh(
    stores: Stores,
    request: RebuildRequest,
    *,
    hours: int | None = None,
    since: datetime | None = None,
    number: type = int,
) -> list[Document]:
    """The window's figures, added up by hand."""
    first, last = days_of(stores, request)
    zone = stores.settings.zone
    if since is not None:
        first = since.astimezone(zone).date().isoformat()
    found: dict[str, Document] = {}
    for day in days_between(first, last):
        start, end = day_bounds(day, zone)
        if hours is not None:
            end = start + timedelta(hours=hours)
        query = {"created_at": {"$gte": max(start, since or start), "$lt": end}}
        for row in stores.mongo.collection("ledger").find(query):
            add(found, row, day, number, str(stores.settings.timezone))
    for document in found.values():
        document["net"] = document["charged"] - document["refunded"] + document["reclaimed"]
    return list(found.values())


def add(found: dict[str, Document], row: Document, day: str, number: type, timezone: str) -> None:
    """Count one row in."""
    key = f"{row['account_id']}:{day}"
    document = found.setdefault(
        key,
        {
            "_id": key,
            "account_id": row["account_id"],
            "day": day,
            "timezone": timezone,
            **dict.fromkeys((*KINDS, "jobs", "rows"), number(0)),
        },
    )
    for name, (kind, sign) in KINDS.items():
        if row["type"] == kind and isinstance(row["amount"], int | float):
            document[name] += sign * number(row["amount"])
    document["rows"] += 1
    document["jobs"] += 1
