"""What became of requeued dead letters, told from the stores alone."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from ledgerctl.errors import UsageError


class LetterFate(StrEnum):
    """List the fates of a letter, the first that holds. Source: contract, section 3, dead."""

    DIED = "died"
    FAILING = "failing"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    LEFT = "left"  # on no list, and no outcome is recorded


UNDECIDED = frozenset({LetterFate.WAITING, LetterFate.LEFT})
LOST = frozenset({LetterFate.DIED, LetterFate.FAILING})


class Watched(NamedTuple):
    """Hold one letter that was put on retry: its job, what was written, and when."""

    order: int
    job_id: str
    attempts: int  # as written
    digest: str
    error: str | None
    taken: int  # name of the letter that was taken
    written: int  # name of the entry that was put on retry
    at: datetime


class Sighting(NamedTuple):
    """Hold one entry of a list that names a watched job."""

    name: int
    attempts: int
    failed_at: datetime | None


def fate_of(
    watched: Watched,
    dead: Collection[Sighting],
    alive: Collection[Sighting],
    *,
    succeeded: bool,
    stood: Collection[int] | None,
) -> LetterFate:
    """Tell a letter's fate; `stood` names what was dead before the move, None where nobody knows.

    Then a letter counts as new that failed after the move, or that has no time.
    """
    if any(is_new(one, watched, stood) for one in dead):
        return LetterFate.DIED
    if any(one.name != watched.written and one.attempts > watched.attempts for one in alive):
        return LetterFate.FAILING
    if alive:
        return LetterFate.WAITING
    return LetterFate.SUCCEEDED if succeeded else LetterFate.LEFT


def is_new(one: Sighting, watched: Watched, stood: Collection[int] | None) -> bool:
    """Tell whether a dead letter came after the move; one put back byte for byte did not die."""
    if one.name == watched.taken:
        return False
    if stood is not None:
        return one.name not in stood
    return one.failed_at is None or one.failed_at >= watched.at


@dataclass(frozen=True, slots=True)
class Guide:
    """Hold how a guided requeue goes: step sizes, patience, the share that stops it."""

    ramp: tuple[int, ...]
    wait: timedelta
    stop_over_percent: int
    in_flight: int | None = None

    def size(self, step: int) -> int:
        """Return the size of a step; the last one repeats."""
        return self.ramp[min(step, len(self.ramp) - 1)]


@dataclass(slots=True)
class RampStep:
    """Hold one step of a guided requeue and the fates of what it moved."""

    at: datetime
    moved: int = 0
    fates: Counter[LetterFate] = field(default_factory=Counter)

    def is_over(self, percent: int) -> bool:
        """Tell whether more than this share of what the step moved has died or is failing."""
        return sum(self.fates[one] for one in LOST) * 100 > percent * self.moved

    @property
    def undecided(self) -> int:
        """Count letters without a fate."""
        return sum(self.fates[one] for one in UNDECIDED)

    @property
    def has_no_outcome(self) -> bool:
        """Tell whether nothing is known of more than half of what the step moved."""
        return self.undecided * 2 > self.moved


def parse_ramp(text: str) -> tuple[int, ...]:
    """Read step sizes: `20,100,500`. Raises UsageError."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) >= 1 for part in parts):
        raise UsageError(f"--ramp wants whole numbers such as 20,100,500, not {text!r}")
    return tuple(int(part) for part in parts)


def parse_percent(text: str) -> int:
    """Read a share in whole percent: `5%`. Raises UsageError."""
    number = text.strip().removesuffix("%")
    if not number.isdecimal() or int(number) > 100:  # noqa: PLR2004  # percent
        raise UsageError(f"--stop-over wants a share such as 5%, not {text!r}")
    return int(number)


def counted(fates: Iterable[LetterFate]) -> dict[str, int]:
    """Count fates by name, every one."""
    found = Counter(fates)
    return {str(fate): found[fate] for fate in LetterFate}
