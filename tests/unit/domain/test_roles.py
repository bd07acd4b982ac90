"""Roles: what they may never do, and how names are written for the servers."""

import json

import pytest

from ledgerctl.domain.roles import (
    COLLECTIONS,
    ROLES,
    WRITES,
    Role,
    RolePlace,
    cli_word,
    mongo_statement,
    pattern,
    redis_rules,
    redis_statement,
)

# A worker's own lease goes with it; `db tidy` removes these three.
REMOVED = {"worker": {"leases"}, "housekeeping": {"outbox", "inbox", "dead_archive"}}
PLACE = RolePlace("ledger", {name: name for name in COLLECTIONS}, ("jobs:retry",))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_no_role_may_update_or_remove_a_ledger_row_nor_remove_what_it_need_not(role: Role) -> None:
    assert role.rights["ledger"] <= {"find", "insert", "listIndexes"}
    removed = {name for name, actions in role.rights.items() if "remove" in actions}
    assert removed == REMOVED.get(role.name, set())
    for actions in role.rights.values():
        assert actions <= {"find", "insert", "update", "listIndexes", "remove"}


def test_no_command_updates_or_removes_a_ledger_row() -> None:
    for needed in WRITES.values():
        assert needed.get("ledger", frozenset()) <= {"insert", "createIndex"}


def test_each_role_is_enough_for_its_commands_and_no_more_than_its_purpose() -> None:
    by_name = {role.name: set(role.commands) for role in ROLES}
    assert by_name["support"] == set()
    mended_too = {"inbox retry", "inbox settle"}  # the server cannot tell these from a consumer
    assert by_name["cron"] == {"summary rebuild", "inbox consume"} | mended_too
    assert {"job refund", "dead requeue", "queue push", "ledger repair"} <= by_name["on-call"]
    assert {"queue work", "inbox consume", "job refund"} <= by_name["worker"]
    assert not {"db init", "ledger correct"} & by_name["housekeeping"]
    assert not {"job charge", "summary rebuild", "db init"} & by_name["on-call"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("jobs:retry", "jobs:retry"),
        ("dead-letters", "dead-letters"),
        ("q[1]*?", r"q\[1\]\*\?"),
        ("two words", "two?words"),
        ("back\\slash", "back\\\\slash"),
    ],
)
def test_a_key_is_a_pattern_for_itself(key: str, expected: str) -> None:
    assert pattern(key) == expected


def test_a_word_that_redis_cli_would_split_or_unescape_is_quoted() -> None:
    assert cli_word("~jobs:retry") == "~jobs:retry"
    assert cli_word("~q\\[1\\]") == '"~q\\\\[1\\\\]"'
    assert cli_word('~a"b') == '"~a\\"b"'


def test_a_redis_user_begins_with_nothing_and_has_no_password_yet() -> None:
    for role in ROLES:
        rules = redis_rules(role, PLACE)
        assert rules[:2] == ["reset", "on"]
        assert rules.index("-@all") < rules.index("+llen")
        assert not any(
            rule.startswith((">", "#", "nopass", "allkeys", "~*", "+@")) for rule in rules
        )
        assert "+select" not in rules
    assert "+select" in redis_rules(ROLES[0], RolePlace("d", PLACE.collections, ("k",), 3))
    assert "\n" not in redis_statement(ROLES[0], PLACE)


def test_a_statement_for_mongosh_is_json_in_one_line() -> None:
    statement = mongo_statement(ROLES[0], RolePlace('odd"name', PLACE.collections, ()))
    head, _, rest = statement.partition(".createRole(")
    assert head == 'db.getSiblingDB("odd\\"name")'
    assert json.loads(rest.removesuffix(")"))["role"] == "ledgerctl-support"
