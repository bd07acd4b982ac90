"""Count the dead letters by error group and by verdict; keep no letter. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ledgerctl.domain.dead import Letter, Verdict, counted
from ledgerctl.domain.error_groups import error_group, masked_error
from ledgerctl.domain.payload import Unreadable


@dataclass(slots=True)
class ErrorGroup:
    """Count the letters of one cause: their errors differ in changing parts alone."""

    group: str
    sample_error: str
    sample_job: str
    count: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    verdicts: Counter[Verdict] = field(default_factory=Counter)

    @property
    def error(self) -> str:
        """Give the error, its changing parts masked."""
        return masked_error(self.sample_error)

    def add(self, at: datetime | None, verdict: Verdict) -> None:
        """Count one more letter, of a job that failed then."""
        self.count += 1
        self.verdicts[verdict] += 1
        if at is not None:
            if self.oldest is None or at < self.oldest:
                self.oldest = at
            if self.newest is None or at > self.newest:
                self.newest = at


@dataclass(frozen=True, slots=True)
class Statistics:
    """Give the figures of the selected dead letters; `depth` counts all that there are."""

    depth: int
    selected: int
    unreadable: int
    undated: int
    jobs: int
    by_error: tuple[ErrorGroup, ...]
    by_verdict: dict[str, int]

    @property
    def oldest_failed_at(self) -> datetime | None:
        """Give the earliest failure that a letter names."""
        return min((one.oldest for one in self.by_error if one.oldest), default=None)

    @property
    def newest_failed_at(self) -> datetime | None:
        """Give the latest failure that a letter names."""
        return max((one.newest for one in self.by_error if one.newest), default=None)


# Texts whose group is known, of which many letters share one: how many are kept, and how long ones.
ERRORS_KEPT, ERROR_KEPT_LENGTH = 1_000, 1_000


class Tally:
    """Count letters by error and by verdict; keep no letter, and the ids of a part's jobs."""

    def __init__(self, found: Sequence[Letter] = (), *, are_all: bool = False) -> None:
        self._are_all = are_all  # each job then has one letter that is its first
        self._jobs: set[str] = set()
        self._first = 0
        self._verdicts: Counter[Verdict] = Counter()
        self._groups: dict[str, ErrorGroup] = {}
        self._of_error: dict[str, ErrorGroup] = {}
        self._undated = 0
        self.add(found)

    def add(self, found: Sequence[Letter]) -> None:
        """Count these judged letters too."""
        self._verdicts.update([letter.verdict for letter in found])
        for letter in found:
            read = letter.read
            if isinstance(read, Unreadable):
                continue
            if not self._are_all:
                self._jobs.add(read.job_id)
            elif letter.is_first:
                self._first += 1
            self._undated += read.undated
            error = read.error or ""
            group = self._of_error.get(error)
            if group is None:
                group = self._group_of(error, read.job_id)
            group.add(read.failed_at, letter.verdict)

    def _group_of(self, error: str, job_id: str) -> ErrorGroup:
        name = error_group(error)
        if name not in self._groups:
            self._groups[name] = ErrorGroup(name, error, job_id)
        if len(self._of_error) == ERRORS_KEPT:
            self._of_error.clear()
        if len(error) <= ERROR_KEPT_LENGTH:
            self._of_error[error] = self._groups[name]
        return self._groups[name]

    def error_groups(self) -> list[ErrorGroup]:
        """Give the groups of errors among the readable letters, the most frequent first."""
        return sorted(self._groups.values(), key=lambda one: (-one.count, one.group))

    def statistics(self, depth: int | None = None) -> Statistics:
        """Give what was counted; without a depth, these are all the letters that there are."""
        selected = self._verdicts.total()
        return Statistics(
            depth=selected if depth is None else depth,
            selected=selected,
            unreadable=self._verdicts[Verdict.UNREADABLE],
            undated=self._undated,
            jobs=len(self._jobs) + self._first,
            by_error=tuple(self.error_groups()),
            by_verdict=counted(self._verdicts),
        )
