"""Every changing command × every fault that can reach it, at its writes, on real servers.

After each fault: no letter lost or doubled, nothing new in the audit, the exit code true, and the
same command again completes it. A sample runs always; the whole, with its table:

    LEDGERCTL_TEST_FAULTS=all python -m pytest tests/faults/test_fault_table.py -s

`all` strikes at two writes of each command, `every` at up to six.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cases import CASES, Case
from tests.faults.ground import Ground
from tests.faults.injections import FAULTS, FORGETFUL, Fault
from tests.faults.table import Line, Reference, printed, strike, undisturbed
from tests.servers import SessionServers

WANTED = os.environ.get("LEDGERCTL_TEST_FAULTS", "")
WHOLE = WANTED in {"all", "every"}
SAMPLE = 3  # of each command, in every run
WRITES = 6 if WANTED == "every" else 2  # at which a kind of fault strikes; a slow one at fewer
LIFETIME = "transactionLifetimeLimitSeconds=5"
KINDS = ("replica set", "standalone")
ALL = [(kind, case) for kind in KINDS for case in CASES if kind in case.on]
QUEUED = [("replica set", case) for case in CASES if "redis" in case.stores]


@pytest.fixture(scope="module")
def lines() -> Iterator[list[Line]]:
    """What the faults came to; printed at the end."""
    found: list[Line] = []
    yield found
    print("\n" + printed(found))


@pytest.fixture(scope="module")
def base_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment without any setting of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEDGERCTL_")}
    home = str(tmp_path_factory.mktemp("home"))
    return kept | {"HOME": home, "LEDGERCTL_OPERATOR": "tester"}


def ground_of(
    servers: SessionServers, environment: dict[str, str], directory: Path, kind: str, kept: str
) -> Ground:
    """Servers of their own: faults stop them."""
    mongod = servers.mongod(LIFETIME, replica_set=kind == "replica set")
    valkey = servers.valkey("--appendonly", kept)
    return Ground(kind, servers, mongod, valkey, environment, directory)


@pytest.fixture(scope="module")
def grounds(
    servers: SessionServers,
    base_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Ground]]:
    """One ground a kind, made when asked for."""
    made = Grounds(servers, base_environment, tmp_path_factory.mktemp("runs"))
    yield made
    for ground in made.values():
        ground.close()
        servers.stop(ground.mongod)
        servers.stop(ground.valkey)


class Grounds(dict[str, Ground]):
    """Grounds by kind; "forgetful" is a replica set beside a valkey without an append-only file."""

    def __init__(self, servers: SessionServers, environment: dict[str, str], place: Path) -> None:
        super().__init__()
        self._made_of = servers, environment, place

    def __missing__(self, name: str) -> Ground:
        forgetful = name == "forgetful"
        kind = "replica set" if forgetful else name
        self[name] = ground_of(*self._made_of, kind, "no" if forgetful else "yes")
        return self[name]


def strikes(
    faults: tuple[Fault, ...], case: Case, kind: str, reference: Reference
) -> list[tuple[Fault, int]]:
    """Which faults strike at which writes: drawn by lot, and the same in every run."""
    draw = random.Random(f"{kind} {case.name}")
    found = []
    for fault in faults:
        if fault.store in case.stores and kind in fault.on:
            writes = range(len(reference.writes(fault.store)))
            wanted = max(1, WRITES // 3) if fault.slow else WRITES
            found += [(fault, at) for at in sorted(draw.sample(writes, min(wanted, len(writes))))]
    return found


def chosen(found: list[tuple[Fault, int]], number: int) -> list[tuple[Fault, int]]:
    """All of them, or a sample that is the same in every run."""
    return found if WHOLE else random.Random(number).sample(found, min(SAMPLE, len(found)))


def named(pair: object) -> str:
    return pair.name if isinstance(pair, Case) else str(pair)


@pytest.mark.parametrize(("kind", "case"), ALL, ids=named)
def test_after_any_fault_at_any_write_the_code_is_true_and_the_same_command_completes_it(
    grounds: dict[str, Ground], lines: list[Line], kind: str, case: Case
) -> None:
    ground = grounds[kind]
    reference = undisturbed(ground, case)
    found = chosen(strikes(FAULTS, case, kind, reference), ALL.index((kind, case)))
    check(ground, case, reference, found, lines)


@pytest.mark.parametrize(("kind", "case"), QUEUED if WHOLE else QUEUED[:2], ids=named)
def test_a_valkey_that_forgets_what_it_did_loses_no_letter_for_the_next_run(
    grounds: dict[str, Ground], lines: list[Line], kind: str, case: Case
) -> None:
    ground = grounds["forgetful"]
    reference = undisturbed(ground, case)
    check(ground, case, reference, strikes(FORGETFUL, case, kind, reference), lines)


def check(
    ground: Ground,
    case: Case,
    reference: Reference,
    found: list[tuple[Fault, int]],
    lines: list[Line],
) -> None:
    """Let them all strike; fail with every line that is wrong."""
    mine = [strike(ground, case, reference, fault, at) for fault, at in found]
    lines += mine
    wrong = [str(line) for line in mine if line.problems]
    assert wrong == [], "\n\n".join(wrong)
