"""A journal's names come back as they were, and its days are ones that both readers know."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.journal import escaped, restored, transaction
from ledgerctl.domain.rows import LedgerRow
from tests.corpus import HOSTILE

ZONE = ZoneInfo("UTC")
SAFE = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-%")
ROW = LedgerRow("r;1", "j 1", "a:b", "charge", -40, datetime(2026, 3, 8, tzinfo=UTC), None, None, None)  # fmt: skip


@given(st.text(st.characters()))
def test_every_name_is_restored_and_stands_in_safe_characters_alone(name: str) -> None:
    assert restored(escaped(name)) == name
    assert set(escaped(name)) <= SAFE
    assert escaped(name)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_restored(name: str) -> None:
    assert restored(escaped(name)) == name


@given(st.text(), st.text())
def test_two_names_never_share_an_escape(one: str, other: str) -> None:
    assert (one == other) == (escaped(one) == escaped(other))


def test_a_row_is_one_balanced_transaction() -> None:
    assert list(transaction(ROW, ZONE)) == [
        "2026-03-08 charge  ; row_id:r%3B1, job_id:j%201",
        "    credits:a%3Ab  -40",
        "    service:charge  40",
        "",
    ]


@pytest.mark.parametrize("year", [1, 1399])
def test_a_day_that_ledger_cannot_read_is_marked(year: int) -> None:
    early = ROW._replace(created_at=datetime(year, 1, 1, tzinfo=UTC))
    assert next(transaction(early, ZONE)).startswith("1970-01-01 charge  ; ")
    assert "undated" in next(transaction(ROW._replace(created_at=None), ZONE))


def test_a_row_that_cannot_be_summed_is_a_comment() -> None:
    lines = list(transaction(ROW._replace(amount=Unusable("x\n1", "text")), ZONE))
    assert lines[0].startswith(";")
    assert lines[1:] == [""]


def test_a_row_of_no_account_is_unassigned() -> None:
    assert "    unassigned  -40" in list(transaction(ROW._replace(account_id=None), ZONE))
