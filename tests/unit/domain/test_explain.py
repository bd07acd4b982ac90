"""A story's words, periods and points: pure, and exact at any size."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ledgerctl.domain.amounts import Amount, Unusable
from ledgerctl.domain.explain import (
    POINTS_MAX,
    TOLD_ROWS_MAX,
    Book,
    Point,
    date_words,
    job_words,
    sentence,
    thinned,
)
from ledgerctl.domain.rows import Entry, kind_of_row, running

ZONE = ZoneInfo("UTC")
AT = datetime(2026, 3, 8, 9, 15, 2, 435_000, tzinfo=UTC)


def entry(kind: str = "charge", amount: Amount = -40, **overrides: Any) -> Entry:
    return Entry("r", AT, "j-7", kind_of_row(kind), amount)._replace(**overrides)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (entry(), "40 credits were charged for job j-7, before it ran."),
        (entry(amount=-1), "1 credit was charged for job j-7, before it ran."),
        (entry("refund", 40), "40 credits came back, because job j-7 was reported as failed."),
        (entry("reclaim"), "40 credits were taken again, because job j-7 had succeeded after all."),
        (entry("grant", 5, job_id=None, reason="sorry"), "5 credits were given (sorry)."),
        (entry("correction", 3), "a correction added 3 credits for job j-7."),
        (entry("charge", 40), "a charge row added 40 credits, which is the wrong sign."),
        (entry("refund", -40), "a refund row took 40 credits, which is the wrong sign."),
        (entry("promo", 3, job_id=None), "a row of the unknown type promo added 3 credits."),
        (entry("", 3), "a row without a type added 3 credits for job j-7."),
        (entry(amount=Unusable("x", "text")), "holds x: text, so it is left out of every sum."),
    ],
)
def test_each_row_has_a_sentence_that_a_customer_understands(told: Entry, words: str) -> None:
    said = sentence(told, ZONE)
    assert said.startswith("On 8 March 2026, 09:15:02 UTC, ")
    assert said.endswith(words)


def test_a_row_without_a_date_says_so() -> None:
    assert sentence(entry(created_at=None), ZONE).startswith("Without a usable date, ")


def test_times_are_told_in_the_day_zone() -> None:
    assert date_words(AT, ZoneInfo("America/New_York")) == "8 March 2026, 05:15:02 EDT"
    assert date_words(AT, ZoneInfo("America/Sao_Paulo")) == "8 March 2026, 06:15:02 UTC-03"
    assert date_words(datetime(1, 1, 1, tzinfo=UTC), ZoneInfo("America/New_York"))


def test_a_job_that_calls_itself_one_is_not_called_so_twice() -> None:
    assert [job_words(one) for one in ("job-7", "Job 7", "7")] == ["job-7", "Job 7", "job 7"]


def book_of(entries: list[Entry], opening: int = 0) -> Book:
    book = Book(opening, ZONE)
    for one, balance in running(entries, opening):
        book.add(one, balance)
    return book


def many(days: int, a_day: int) -> list[Entry]:
    named = [("charge", -40), ("refund", 40), ("reclaim", -40), ("grant", 7), ("odd", 2**70)]
    kinds = [(kind_of_row(name), amount) for name, amount in named]
    return [
        Entry(f"r{n}", AT + timedelta(days=n // a_day), None, *kinds[n % len(kinds)])
        for n in range(days * a_day)
    ]


@pytest.mark.parametrize(("days", "a_day"), [(1, 3), (62, 20), (63, 20), (400, 4)])
def test_the_periods_add_up_to_the_closing_balance(days: int, a_day: int) -> None:
    book = book_of([*many(days, a_day), entry(amount=Unusable("x", "text"))], opening=11)
    periods = book.periods()
    assert len(periods) <= max(62, -(-days // 28) + 1)
    assert book.opening + sum(one.net for one in periods) == book.closing
    assert book.opening + sum(book.by_type.values()) == book.closing
    assert sum(one.rows for one in periods) == book.rows
    assert periods[-1].balance == book.closing
    assert [row.amount for row in book.unusable] == ["x"]


def test_a_long_story_keeps_no_line_and_few_points() -> None:
    book = book_of(many(TOLD_ROWS_MAX, 2))
    assert book.is_long
    assert book.lines() == []
    assert len(book.points()) <= POINTS_MAX + 3  # the first, the lowest and the highest
    assert book.points()[-1].balance == book.closing


def test_undated_rows_have_a_period_of_their_own_and_no_point() -> None:
    book = book_of([entry(created_at=None), entry()])
    assert [one.name for one in book.periods()] == ["undated", "2026-03-08"]
    assert [one.balance for one in book.points()] == [-80]


def test_thinned_points_keep_the_first_and_the_last() -> None:
    points = [Point(AT + timedelta(seconds=n), n) for n in range(10_000)]
    kept = thinned(points)
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert len(kept) <= POINTS_MAX + 1
    assert kept == sorted(kept, key=lambda one: one.at)
    assert thinned([Point(AT, n) for n in range(1_000)])[-1].balance == 999
