"""Texts and values as visible cells; colour by the first that speaks."""

import sys
import unicodedata
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from ledgerctl.render.emit import ColorChoice, use_color
from ledgerctl.render.text import (
    cell_width,
    duration_text,
    folded_sentence,
    value_text,
    visible,
)


def test_every_control_and_invisible_character_is_written_out_and_no_other() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        shown = visible(character)
        assert shown.isascii() and shown.startswith("\\") if hidden else shown == character


def test_escapes_look_like_those_of_python() -> None:
    assert visible("\x1b\t\n\r\x9b\u202e\ud800\U000e0041") == (
        "\\x1b\\t\\n\\r\\x9b\\u202e\\ud800\\U000e0041"
    )


def test_a_width_counts_cells() -> None:
    assert [cell_width(text) for text in ("abc", "顧客", "e\u0301")] == [3, 4, 1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (2**64, "18446744073709551616"),
        (Decimal("0.500000"), "0.500000"),
        (timedelta(minutes=15), "900"),
        (["a", "b"], "a,b"),
        ([{"n": 1, "ratio": Decimal("0.5")}], '[{"n": 1, "ratio": 0.5}]'),
        ({"retry": 1, "note": "é"}, '{"retry": 1, "note": "é"}'),
    ],
)
def test_a_value_as_a_cell(value: Any, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=250), "0.250s"),
        (timedelta(seconds=12.9), "12s"),
        (timedelta(hours=2, minutes=5, seconds=9), "2h 5m"),
        (timedelta(days=3, minutes=9), "3d"),
        (-timedelta(minutes=1), "-1m"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(duration: timedelta, text: str) -> None:
    assert duration_text(duration) == text


@pytest.mark.parametrize(
    ("choice", "environment", "is_tty", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1", "TERM": "dumb"}, False, False),
        ("auto", {"FORCE_COLOR": "0"}, True, False),
        ("auto", {"FORCE_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_the_first_that_speaks_decides_about_colour(
    choice: ColorChoice, environment: dict[str, str], is_tty: bool, expected: bool
) -> None:
    assert use_color(choice, environment, is_tty) is expected


def test_a_sentence_is_folded_at_words_below_where_its_words_begin() -> None:
    line = "  -40  = -40  On 30 November 40 credits were charged for job-42, before it ran."
    folded = folded_sentence(line, 50)
    assert folded == [
        "  -40  = -40  On 30 November 40 credits were",
        "              charged for job-42, before it ran.",
    ]


def test_a_command_in_backticks_is_never_folded() -> None:
    line = "33 moved, 1 left, undo with `ledgerctl dead restore 20261130T123403394Z-d2877d3c6f`"
    folded = folded_sentence(line, 60)
    assert folded == [
        "33 moved, 1 left, undo with",
        "`ledgerctl dead restore 20261130T123403394Z-d2877d3c6f`",
    ]


@pytest.mark.parametrize("width", [1, 10, 40, 200])
def test_folding_loses_no_word(width: int) -> None:
    line = "  ! one `two three` four-five " + "六" * 30 + " `seven eight`, nine"
    assert " ".join(folded_sentence(line, width)).split() == line.split()
