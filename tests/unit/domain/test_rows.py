"""Ledger rows: identity, order and the running balance."""

from dataclasses import replace
from datetime import timedelta

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.balances import BalanceTally, in_replay_order
from ledgerctl.domain.ids import Id, IdKind
from ledgerctl.domain.rows import (
    Entry,
    NewRow,
    OtherType,
    Row,
    RowType,
    kind_of_row,
    row_id,
    running,
    same_row,
)
from tests.builders import NOON


def entry(row_type: str, name: str, *, amount: int = 1) -> Entry:
    return Entry(name, NOON + timedelta(milliseconds=1), "j", kind_of_row(row_type), amount)


BAD = Entry("x", None, None, RowType.CHARGE, Unusable("?", "text"))


def test_a_row_id_names_the_job_and_the_type_whatever_the_ids_type() -> None:
    assert row_id(Id("42", IdKind.INTEGER), RowType.REFUND) == "42:refund"


def test_rows_of_one_instant_stand_by_type_and_those_of_a_type_stay_by_id() -> None:
    by_id = [
        entry("bonus", "a"),
        entry("correction", "b"),
        entry("reclaim", "c"),
        entry("refund", "d"),
        entry("charge", "e"),
        entry("charge", "f"),
        entry("grant", "g"),
    ]
    ordered = [one.row_id for one in in_replay_order(by_id)]
    assert ordered == ["g", "e", "f", "d", "c", "b", "a"]


def test_the_running_balance_passes_over_what_cannot_be_summed() -> None:
    rows = [entry("grant", "a", amount=10), BAD, entry("charge", "b", amount=-4)]
    assert [balance for _, balance in running(rows, 100)] == [110, 110, 106]


def test_a_tally_names_every_row_that_it_leaves_out() -> None:
    tally = BalanceTally()
    tally.add(entry("grant", "a", amount=2**63))
    tally.add(BAD)
    assert (tally.balance, tally.rows) == (2**63, 2)
    assert [one.row_id for one in tally.unusable] == ["x"]


def test_a_stored_row_is_ours_only_when_it_says_the_same() -> None:
    new = NewRow("j:charge", Id("j"), Id("a"), RowType.CHARGE, -4, NOON, NOON, "op")
    stored = Row(Id("j:charge"), Id("j"), Id("a"), RowType.CHARGE, -4, NOON)
    assert same_row(stored, new)
    assert not same_row(replace(stored, amount=-5), new)
    assert not same_row(replace(stored, type=RowType.REFUND), new)


def test_a_stored_row_without_account_belongs_to_its_job_and_to_nobody_without_one() -> None:
    new = NewRow("j:charge", Id("j"), Id("a"), RowType.CHARGE, -4, NOON, NOON, "op")
    assert same_row(Row(Id("j:charge"), Id("j"), None, RowType.CHARGE, -4, NOON), new)
    grant = NewRow("grant:k", None, Id("a"), RowType.GRANT, 4, NOON, NOON, "op")
    assert not same_row(Row(Id("grant:k"), None, None, RowType.GRANT, 4, NOON), grant)


def test_a_type_that_is_not_known_keeps_its_text() -> None:
    assert [kind_of_row("refund"), kind_of_row("bonus")] == [RowType.REFUND, OtherType("bonus")]
    assert (type(kind_of_row("bonus").value), kind_of_row("").value) == (str, "")
