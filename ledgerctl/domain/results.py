"""How a change ends: what became of each thing, and what stopped it early."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from ledgerctl.errors import LedgerctlError

Item = TypeVar("Item")


class Fate(StrEnum):
    """Say what became of one thing that a change was asked for."""

    DONE = "done"
    ALREADY = "already"  # it was so before
    LEFT = "left"  # by a filter, a grace time or another operator
    REFUSED = "refused"
    NOT_FOUND = "not_found"


class Remedy(NamedTuple):
    """Name the command that heals a finding: its words, and the job it is about."""

    verb: str
    job_id: str | None = None


@dataclass(slots=True)
class Result(Generic[Item]):
    """Collect what a change did, or would do; true at every moment while it runs.

    `counts` are those of the operator log. `not_tried` counts selected things that were never
    reached, because `error` ended the run or a signal `stopped` it.
    """

    items: list[Item] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    fates: Counter[Fate] = field(default_factory=Counter)
    not_tried: int = 0
    error: LedgerctlError | None = None
    stopped: bool = False
    changed: bool = False  # a store has confirmed a write
    alarm: bool = False  # stopped by what it saw, which is no error
    operation_id: str | None = None  # None: nothing was begun

    def count(self, name: str, number: int = 1, *, fate: Fate | None = None) -> None:
        """Add to a count of the log, and to a fate."""
        self.counts[name] = self.counts.get(name, 0) + number
        if fate is not None:
            self.fates[fate] += number

    @property
    def judged(self) -> int:
        """Count the things whose fate this run decided."""
        return self.fates.total() - self.fates[Fate.LEFT]

    @property
    def reached(self) -> int:
        """Count the things that are now as they were asked to be."""
        return self.fates[Fate.DONE] + self.fates[Fate.ALREADY]


@dataclass(frozen=True, slots=True)
class Run(Generic[Item]):
    """Give an operation what it needs of the run that it is part of."""

    operation_id: str
    reason: str | None
    result: Result[Item]
    stopping: Callable[[], bool]
    progress: Callable[[str], None]
