"""A word that is wrong is answered with the word that was meant."""

import pytest

from ledgerctl.cli.help import topic
from ledgerctl.domain.dead import Verdict
from ledgerctl.domain.findings import Code
from ledgerctl.domain.jobs import Outcome, State
from tests.conftest import Runner


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("refund job-1", "did you mean `ledgerctl job refund`?"),
        ("requeue --all", "did you mean `ledgerctl dead requeue`?"),
        ("dlq", "did you mean `ledgerctl dead`?"),
        ("dead refund job-1", "did you mean `ledgerctl job refund`?"),
        ("stats", "did you mean `ledgerctl dead stats` or `ledgerctl queue stats`?"),
        ("dead job", "did you mean `ledgerctl job`?"),
        ("dead lst", "did you mean list?"),
        ("ded list", "did you mean dead?"),
        ("dead list --verdict retriable", "did you mean retryable?"),
        ("queue list dead_letter", "did you mean dead-letter?"),
        ("help verdict", "did you mean verdicts?"),
        ("--profile eu dead list", "`ledgerctl dead list --profile eu`"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(
    run_bare: Runner, words: str, meant: str
) -> None:
    run = run_bare(*words.split())
    assert (run.code, run.out) == (2, "")
    assert meant in run.err


def test_a_word_like_no_other_gets_no_suggestion(run_bare: Runner) -> None:
    assert "did you mean" not in run_bare("xyzzy").err


def test_each_verdict_code_outcome_and_state_is_explained_on_a_line_of_its_own() -> None:
    verdicts = [
        line.split()[0]
        for line in "\n".join(topic("verdicts") or ()).splitlines()
        if line.startswith("  ")
    ]
    assert [str(one) for one in Verdict] == [one for one in verdicts if one != "ledgerctl"]
    words = {
        word.strip(",;")
        for line in "\n".join(topic("codes") or ()).splitlines()
        for word in line.split()
    }
    assert {str(one) for kind in (Code, Outcome, State) for one in kind} <= words
