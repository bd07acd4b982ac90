"""Look at another team's collections: propose a map of them, and check the map that is set."""

import json

from ledgerctl.domain.doctor import CheckResult, fail, ok, warn
from ledgerctl.domain.proposal import Columns, Proposal, chosen_of, columns_of, propose
from ledgerctl.errors import NotFound
from ledgerctl.field_map import FieldMap
from ledgerctl.operations.doctor_mongo import DoctorContext
from ledgerctl.stores.connections import Stores

SAMPLE = 1_000  # documents looked at in each collection
MAY_BE_ABSENT = {"recorded_at", "refunded_at", "reclaimed_at", "status", "credit", "debit"}


def look_for_map(stores: Stores, ledger: str | None, jobs: str | None) -> Proposal:
    """Propose a map from up to 1,000 documents of each collection; write nothing.

    Without a name the collection whose fields tell most is taken. Raises NotFound where a
    collection holds no document.
    """
    names = [ledger, jobs] if ledger and jobs else stores.deployment.collection_names()
    seen = {name: columns_of(stores.deployment.sample(name, SAMPLE)) for name in names if name}
    ledger = ledger or max(
        seen, key=lambda name: told(seen[name], "account_id", "created_at"), default=""
    )
    if not seen.get(ledger):
        raise NotFound(
            f"no document is in {f'collection {ledger!r}' if ledger else 'any collection'}",
            hint="name the collection of the rows with --ledger, the database with --database",
        )
    likely = [name for name in seen if name != ledger and told(seen[name], "is_refunded")]
    jobs = jobs or max(likely, key=lambda name: told(seen[name], "is_refunded"), default=None)
    return propose(ledger, seen[ledger], jobs, seen.get(jobs or ""))


def told(columns: Columns, *needed: str) -> int:
    """Count the fields of a row or a job that a collection seems to hold; 0 without `needed`."""
    names = ("is_refunded", "is_reclaimed", "cost", "credit", "debit", "amount", "created_at", "account_id", "type", "job_id")  # fmt: skip
    chosen = chosen_of(columns, names)
    return len(chosen) if {*needed} <= chosen.keys() else 0


def fields_of_map(look: DoctorContext) -> CheckResult:
    """Name the mapped fields that no document has."""
    absent = [one for part in parts_of(look) for one in absent_fields(look, part)]
    lost = [text for our, text in absent if our not in MAY_BE_ABSENT]
    if lost:
        hint = "correct the name in the map: `ledgerctl config map` proposes one"
        return fail(f"no document has {'; '.join(lost)}", hint)
    if absent:
        return warn(f"no document has {'; '.join(text for _, text in absent)}")
    return ok("each field of the map is in a document")


def absent_fields(look: DoctorContext, part: FieldMap) -> list[tuple[str, str]]:
    """Pair our name of each field that no document looked at has with its place."""
    columns = columns_of(look.stores.deployment.sample(part.collection, SAMPLE))
    return [
        (our, f"{path} in {part.collection} ({our})")
        for our, path in part.paths.items()
        if path not in columns and path != "_id"
    ]


def indexes_of_map(look: DoctorContext) -> CheckResult:
    """Name the index to build where a look-up by account or job reads a whole collection."""
    wanted = [
        f"db.{part.collection}.createIndex({json.dumps(dict.fromkeys(paths, 1))})"
        for part in parts_of(look)
        for paths in lookups_of(part)
        if look.stores.deployment.walks(part.collection, paths[0])
    ]
    if wanted:
        detail = "a look-up by account or job reads a whole collection"
        return warn(detail, "; ".join(wanted))
    return ok("an index answers each look-up by account and by job")


def lookups_of(part: FieldMap) -> list[list[str]]:
    """List the paths by which documents are looked up."""
    keys = [
        [part.paths.get(one) for one in pair]
        for pair in (("account_id", "created_at"), ("job_id",))
    ]
    return [[path for path in pair if path] for pair in keys if pair[0] not in {None, "_id"}]


def amounts_of_map(look: DoctorContext) -> CheckResult:
    """Name rows whose amount is no whole number once it is scaled."""
    rows = list(look.stores.account_rows.sample(SAMPLE))
    odd = [row for row in rows if not isinstance(row.amount, int)]
    if not odd:
        return ok(f"each amount of {len(rows)} rows looked at is a whole number")
    return fail(
        f"{len(odd)} of {len(rows)} rows looked at hold no whole amount, such as row {odd[0].row_id}",
        "set `scale` in [map.ledger] to what makes the smallest unit 1",
    )


def parts_of(look: DoctorContext) -> list[FieldMap]:
    """Return the parts of the map that is set."""
    fields = look.stores.settings.map
    return [part for part in (fields.ledger, fields.jobs) if part is not None] if fields else []
