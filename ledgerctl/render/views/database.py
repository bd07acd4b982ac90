"""Report indexes, housekeeping, roles, and the doctor's checks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ledgerctl.domain.doctor import Check, CheckStatus
from ledgerctl.domain.results import Result
from ledgerctl.domain.roles import (
    COLLECTIONS,
    Role,
    RolePlace,
    create_role,
    mongo_statement,
    redis_rules,
    redis_statement,
    user_statement,
)
from ledgerctl.domain.times import format_time
from ledgerctl.errors import ExitCode
from ledgerctl.render.report import (
    STREAMED,
    Column,
    Kind,
    Record,
    Report,
    Value,
    columns,
    members,
    record,
)

if TYPE_CHECKING:
    from ledgerctl.operations.database import TidyPlan
    from ledgerctl.stores.indexes import IndexStatus

COLUMNS = columns("name status in_the_way")


def indexes(found: Sequence["IndexStatus"]) -> Report:
    """Show what became of each index, with the rows in the way of those that could not be built."""
    records: list[Any] = [
        {
            "name": one.name,
            "status": one.status,
            "in_the_way": len(one.rows),
            "rows": [row_record(row) for row in one.rows],
        }
        for one in found
    ]
    blocked = [f"{one.name}: {row_line(row)}" for one in found for row in one.rows]
    notes = [f"not protected: {line}" for line in blocked]
    return Report(
        columns=COLUMNS,
        records=records,
        document={"indexes": records},
        items_key="indexes",
        notes=notes,
    )


KINDS = ("outbox", "inbox", "dead_archive")


def tidied(plan: "TidyPlan", result: Result[Any]) -> Report:
    """Show what was removed, or would be, and what is kept and why."""
    removed = {kind: result.counts.get(kind, 0) for kind in KINDS}
    document = {
        "removed": removed,
        "kept": {why: number for why, number in plan.kept.items() if number},
        "before": plan.before,
    }
    notes = []
    if plan.before is None:
        notes = ["the age of an entry on a list is not known, so everything is kept"]
    elif plan.before < plan.asked:
        notes = [
            "an entry that waits on a list is older: what is younger than it, and a day, is kept"
        ]
    return record(document, notes=notes)


def shown(value: object) -> Any:
    """Return a stored number as printed; an exotic type by its own text."""
    return value if value is None or isinstance(value, int) else str(value)


def row_record(row: dict[str, Any]) -> dict[str, Any]:
    """Return one blocking row, its amount and date as printed."""
    return {key: shown(value) if key == "amount" else value for key, value in row.items()}


def row_line(row: dict[str, Any]) -> str:
    """Return one blocking row in words; what is no row says why by itself."""
    if "row_id" not in row:
        return str(row.get("why", ""))
    said = [f"{key} {words(value)}" for key, value in row.items() if key != "row_id"]
    return f"row {row['row_id']} ({', '.join(said)}) is in the way"


def words(value: object) -> str:
    """Return a value as a sentence shows it."""
    return str(format_time(value) if isinstance(value, datetime) else value)


STATEMENT_COLUMNS = columns("role store statement")
NO_ENTRY = (
    "Redis users have no password yet, so nobody can log in as them:"
    " `ACL SETUSER NAME >PASSWORD` gives one, `ACL SAVE` keeps it"
)


def roles(found: Sequence[Role], place: RolePlace, *, format: str) -> Report:
    """Return every statement of every role, a line each, and a table of who may do what."""
    document: dict[str, Value] = {
        "database": place.database,
        "roles": [role_record(role, place) for role in found],
    }
    if format == "table":
        return overview(found, place, document)
    return Report(
        columns=STATEMENT_COLUMNS,
        records=[one for role in found for one in statements(role, place)],
        document=document,
        notes=(NO_ENTRY,),
    )


def overview(found: Sequence[Role], place: RolePlace, document: Mapping[str, Value]) -> Report:
    """Show who may do what on which collection, and below it the statements, whole."""
    records: list[Record] = [
        {"on": place.collections[name]}
        | {role.name: ", ".join(sorted(role.rights[name] - {"listIndexes"})) for role in found}
        for name in COLLECTIONS
    ]
    records.append(
        {"on": "redis lists"}
        | {role.name: "read, change" if role.changes_lists else "read" for role in found}
    )
    return Report(
        columns=(Column("on", kind=Kind.ID), *(Column(role.name, kind=Kind.ID) for role in found)),
        records=records,
        document=document,
        head=[f"{role.user}: {role.purpose}" for role in found],
        foot=["", *(str(one["statement"]) for role in found for one in statements(role, place))],
        notes=(NO_ENTRY,),
    )


def statements(role: Role, place: RolePlace) -> list[Record]:
    """Return what to run in mongosh and in redis-cli."""
    return [
        {"role": role.name, "store": "mongodb", "statement": mongo_statement(role, place)},
        {"role": role.name, "store": "mongodb", "statement": user_statement(role, place)},
        {"role": role.name, "store": "redis", "statement": redis_statement(role, place)},
    ]


def role_record(role: Role, place: RolePlace) -> Record:
    """Return one role: its MongoDB command, its Redis rules, and the commands it is enough for."""
    return {
        "role": role.name,
        "user": role.user,
        "purpose": role.purpose,
        "commands": list(role.commands),
        "mongodb": create_role(role, place),
        "redis": redis_rules(role, place),
        "statements": [one["statement"] for one in statements(role, place)],
    }


CHECK_COLUMNS = columns(
    "status", Column("id", title="check", kind=Kind.ID), "detail", Column("hint", title="remedy")
)


def checks(found: Sequence[Check]) -> Report:
    """Return one line a check, and how many need somebody; exit 5 when any failed."""
    counts = Counter(check.finding.status for check in found)
    said = ", ".join(f"{counts[status]} {status}" for status in CheckStatus if counts[status])
    return Report(
        columns=CHECK_COLUMNS,
        records=[check_record(check) for check in found],
        document={
            "checks": STREAMED,
            "failed": counts[CheckStatus.FAIL],
            "warned": counts[CheckStatus.WARN],
        },
        items_key="checks",
        foot=(said,),
        exit_code=int(ExitCode.FOUND if counts[CheckStatus.FAIL] else ExitCode.DONE),
    )


def check_record(check: Check) -> Record:
    """Return one check."""
    finding = check.finding
    return {"id": check.id, **members(finding, "status detail hint")}
