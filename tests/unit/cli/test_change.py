"""Exit codes of changes: one function decides them for every command."""

import sys
from collections import Counter

import pytest

from ledgerctl.cli.change import exit_code, resume_command
from ledgerctl.domain.results import Fate, Result
from ledgerctl.errors import ExitCode, JobHeld, LedgerctlError, OutcomeUnknown, StoreUnavailable

DONE, ALREADY, LEFT = Fate.DONE, Fate.ALREADY, Fate.LEFT
REFUSED, NOT_FOUND = Fate.REFUSED, Fate.NOT_FOUND


@pytest.mark.parametrize(
    ("fates", "code"),
    [
        ([], ExitCode.DONE),
        ([DONE, ALREADY, LEFT], ExitCode.DONE),
        ([LEFT], ExitCode.DONE),
        ([DONE, REFUSED], ExitCode.PARTIAL),
        ([ALREADY, NOT_FOUND], ExitCode.PARTIAL),
        ([NOT_FOUND, NOT_FOUND], ExitCode.NOT_FOUND),
        ([NOT_FOUND, REFUSED], ExitCode.REFUSED),
        ([LEFT, REFUSED], ExitCode.REFUSED),
    ],
)
def test_the_fates_of_all_things_decide_one_exit_code(fates: list[Fate], code: ExitCode) -> None:
    result: Result[None] = Result(fates=Counter(fates))
    assert exit_code(result, None) == code
    assert exit_code(result, ExitCode.TERMINATED) == 143


@pytest.mark.parametrize(
    ("error", "changed", "fates", "code"),
    [
        (StoreUnavailable("away"), False, [], 6),
        (StoreUnavailable("away"), True, [], 8),
        (StoreUnavailable("away"), False, [ALREADY], 8),
        (OutcomeUnknown("lost"), False, [], 7),
        (OutcomeUnknown("lost"), True, [DONE, REFUSED], 7),
        (JobHeld("held"), False, [], 9),
        (JobHeld("held"), False, [REFUSED], 9),
        (JobHeld("held"), True, [DONE], 8),
    ],
)
def test_an_error_is_told_by_what_was_changed_before_it(
    error: LedgerctlError, changed: bool, fates: list[Fate], code: int
) -> None:
    result: Result[None] = Result(fates=Counter(fates), error=error, changed=changed)
    assert exit_code(result, None) == code


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("job refund --from-file f --expect 9 --yes", "ledgerctl job refund --from-file f --yes"),
        ("dead requeue --all --limit=20", "ledgerctl dead requeue --all --limit 17"),
        ("dead requeue --error timed\\ out", "ledgerctl dead requeue --error 'timed\\' out"),
    ],
)
def test_the_command_that_goes_on_is_the_same_without_what_was_done(
    monkeypatch: pytest.MonkeyPatch, words: str, line: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["ledgerctl", *words.split(" ")])
    assert resume_command(3) == line
