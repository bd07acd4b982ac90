"""Least-privilege roles, as a report."""

from collections.abc import Mapping, Sequence

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
from ledgerctl.render.report import Column, Kind, Record, Report, Value, columns

STATEMENT_COLUMNS = columns("role store statement")
NO_ENTRY = (
    "Redis users have no password yet, so nobody can log in as them:"
    " `ACL SETUSER NAME >PASSWORD` gives one, `ACL SAVE` keeps it"
)


def roles(found: Sequence[Role], place: RolePlace, *, format: str) -> Report:
    """Return every statement of every role, a line each, and a table of who may do what."""
    document: dict[str, Value] = {
        "database": place.database,
        "roles": [record(role, place) for role in found],
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


def record(role: Role, place: RolePlace) -> Record:
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
