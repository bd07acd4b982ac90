"""Ledger rows: identity, order and the running balance."""

from datetime import timedelta

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.balances import Tally, in_replay_order
from ledgerctl.domain.ids import Id, IdKind
from ledgerctl.domain.rows import NewRow, Row, RowType, row_id, running, same_row
from tests.builders import NOON


def row(row_type: str, name: str, *, at: int = 0, amount: int = 1) -> Row:
    return Row(Id(name), Id("j"), Id("a"), row_type, amount, NOON + timedelta(milliseconds=at))


def test_a_row_id_names_the_job_and_the_type_whatever_the_ids_type() -> None:
    assert row_id(Id("42", IdKind.INTEGER), RowType.REFUND) == "42:refund"


def test_rows_of_one_instant_stand_by_type_and_then_by_id() -> None:
    together = [
        row("bonus", "a"),
        row("correction", "b"),
        row("reclaim", "c"),
        row("refund", "d"),
        row("charge", "f"),
        row("charge", "e"),
        row("grant", "g"),
    ]
    ordered = [one.id.text for one in in_replay_order(together)]
    assert ordered == ["g", "e", "f", "d", "c", "b", "a"]


def test_a_row_that_comes_twice_is_shown_once() -> None:
    assert len(list(in_replay_order([row("charge", "a"), row("charge", "a")]))) == 1


def test_the_running_balance_passes_over_what_cannot_be_summed() -> None:
    bad = Row(Id("x"), None, None, "charge", Unusable("?", "text"), NOON)
    rows = [row("grant", "a", amount=10), bad, row("charge", "b", amount=-4)]
    assert [balance for _, balance in running(rows, 100)] == [110, 110, 106]


def test_a_tally_names_every_row_that_it_leaves_out() -> None:
    tally = Tally()
    tally.add(row("grant", "a", amount=2**63))
    tally.add(Row(Id("x"), None, None, "charge", Unusable("?", "text"), None))
    assert (tally.balance, tally.rows, tally.undated) == (2**63, 2, 1)
    assert [one.row_id for one in tally.unusable] == ["x"]


def test_a_stored_row_is_ours_only_when_it_says_the_same() -> None:
    new = NewRow("j:charge", Id("j"), Id("a"), RowType.CHARGE, -4, NOON, NOON, "op")
    stored = row("charge", "j:charge", amount=-4)
    assert same_row(stored, new)
    assert not same_row(row("charge", "j:charge", amount=-5), new)
    assert not same_row(row("refund", "j:charge", amount=-4), new)
