"""Full disks, closed streams and no descriptors left: a change is whole or has not begun.

LEDGERCTL_TEST_FAULTS=all tries every command; a few are tried in every run.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.cases import CASES, Case
from tests.faults.ground import Ground
from tests.faults.table import PARTIAL, UNCHANGED, complete, undisturbed
from tests.faults.test_fault_table import WHOLE, base_environment, ground_of, named
from tests.servers import SessionServers

SOME = ("job refund (four)", "dead release", "summary rebuild")
TRIED = [case for case in CASES if WHOLE or case.name in SOME]
REDIRECTIONS = (">&-", ">/dev/full", "| true; exit ${PIPESTATUS[0]}", ">/dev/full 2>&1", "<&- >&- 2>&-")  # fmt: skip
DESCRIPTORS = (5, 6, 7, 8, 9, 10, 12, 14) if WHOLE else (6, 8, 10)

__all__ = ["base_environment"]


@pytest.fixture(scope="module")
def ground(
    servers: SessionServers,
    base_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ground]:
    """Servers of their own."""
    place = tmp_path_factory.mktemp("runs")
    made = ground_of(servers, base_environment, place, "replica set", "no")
    yield made
    made.close()
    servers.stop(made.mongod)
    servers.stop(made.valkey)


def shell(ground: Ground, words: tuple[str, ...], *, before: str = "", after: str = "") -> int:
    """Run a command line by a shell; its exit code."""
    command = shlex.join([sys.executable, "-m", "ledgerctl", *words])
    done = subprocess.run(
        ["bash", "-c", f"{before} {command} {after}"],
        cwd=ROOT,
        env=ground.variables({"PYTHONPATH": str(ROOT)}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode


def worded(ground: Ground, case: Case) -> tuple[str, ...]:
    return tuple(ground.operation_id if word == "OPERATION" else word for word in case.words)


@pytest.mark.parametrize("case", TRIED, ids=named)
def test_a_result_that_nobody_takes_leaves_the_change_whole_and_its_code_0(
    ground: Ground, case: Case
) -> None:
    reference = undisturbed(ground, case)
    for redirection in REDIRECTIONS:
        ground.reset()
        code = shell(ground, worded(ground, case), after=redirection)
        assert (code, redirection) == (0, redirection)
        assert complete(case, reference, ground.state()), redirection
    print(f"{len(REDIRECTIONS)} faults of stdout landed on {case.name}: all ended 0")


@pytest.mark.parametrize("case", TRIED, ids=named)
def test_without_descriptors_nothing_is_half_done_and_the_code_is_true(
    ground: Ground, case: Case
) -> None:
    reference = undisturbed(ground, case)
    codes = []
    for number in DESCRIPTORS:
        ground.reset()
        code = shell(ground, worded(ground, case), before=f"ulimit -n {number};")
        after = ground.state()
        codes.append(code)
        if code == 0:
            assert complete(case, reference, after), number
        elif code != PARTIAL:
            assert after.told_apart() == reference.before.told_apart(), (number, code)
        if code:
            ground.lapse()
            assert ground.run(case.words).code == 0
            assert ground.state().outcome(attempts=False) == reference.outcome_uncounted
    print(f"{case.name}: by descriptors {dict(zip(DESCRIPTORS, codes, strict=True))}")
    assert set(codes) <= {0, 1, PARTIAL, *UNCHANGED}  # 1: Python itself could not load a module


def test_a_full_disk_leaves_the_metrics_file_whole_and_the_rebuild_too(
    ground: Ground, tmp_path: Path
) -> None:
    case = next(one for one in CASES if one.name == "summary rebuild")
    reference = undisturbed(ground, case)
    ground.reset()
    file = tmp_path / "ledgerctl.prom"
    file.write_text("old\n")
    words = (*case.words, "--metrics-file", str(file))
    assert shell(ground, words, before="ulimit -f 0;") == PARTIAL
    assert complete(case, reference, ground.state())
    assert [one.name for one in tmp_path.iterdir()] == ["ledgerctl.prom"]
    assert file.read_text() == "old\n"
