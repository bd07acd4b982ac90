"""Whole credits out of whatever number type a document holds, to the last digit."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerctl.domain.amounts import Unusable, exact_amount, fits_int64, total


@pytest.mark.parametrize(
    ("stored", "amount"),
    [
        (40, 40),
        (-9223372036854775808, -9223372036854775808),
        (40.0, 40),
        (-0.0, 0),
        (1e300, int(1e300)),
        (Decimal(40), 40),
        (Decimal("4E+1"), 40),
        (Decimal("40.000"), 40),
        (Decimal("1E+40"), 10**40),
    ],
)
def test_a_whole_number_of_any_type_is_read_exactly(stored: object, amount: int) -> None:
    assert exact_amount(stored) == amount


@pytest.mark.parametrize(
    "stored",
    [None, True, "40", 0.5, float("nan"), float("inf"), Decimal("0.5"), Decimal("NaN"), [], {}],
)
def test_what_is_no_whole_number_is_never_summed_and_says_why(stored: object) -> None:
    amount = exact_amount(stored)
    assert isinstance(amount, Unusable)
    assert amount.why


def test_sums_stay_exact_past_64_bits_and_past_what_a_double_holds() -> None:
    assert total([9223372036854775807, 1]) == 9223372036854775808
    assert total([9007199254740993, exact_amount(0.0)]) == 9007199254740993


@given(st.lists(st.one_of(st.integers(), st.none(), st.floats())))
def test_a_total_is_the_sum_of_what_can_be_summed(stored: list[object]) -> None:
    amounts = [exact_amount(one) for one in stored]
    assert total(amounts) == sum(one for one in amounts if isinstance(one, int))


def test_int64_ends_where_it_ends() -> None:
    assert fits_int64(2**63 - 1)
    assert not fits_int64(2**63)
    assert fits_int64(-(2**63))
    assert not fits_int64(-(2**63) - 1)
