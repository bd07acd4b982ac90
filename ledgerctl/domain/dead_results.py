"""What dead-letter commands found and did, as plain records."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ledgerctl.domain.audit import JobPage
from ledgerctl.domain.dead import Letter, Selected
from ledgerctl.errors import ExitCode, LedgerctlError, OutcomeUnknown


class Archived(NamedTuple):
    """One letter that an operation was about to take."""

    operation_id: str
    chunk: int
    order: int  # its place in the operation
    job_id: str | None
    payload: bytes
    written_sha256: bytes | None  # of what a requeue put on retry; None for a release
    at: datetime


@dataclass(frozen=True, slots=True)
class LetterPage:
    """One job's letters, or one letter: on the list, or as an operation took it."""

    letters: tuple[Letter, ...]
    archived: tuple[Archived, ...]
    job: JobPage | None
    trouble: str = ""  # why there is no job page


@dataclass(frozen=True, slots=True)
class Changed:
    """What came of a requeue or a release, or what would."""

    operation_id: str | None
    dry_run: bool
    selected: Selected
    moved: int
    remaining: int | None  # letters afterwards; None when nobody can say
    exit_code: int
    already_taken: int = 0
    not_tried: int = 0
    interrupted: bool = False
    trouble: LedgerctlError | None = None


@dataclass(slots=True)
class Restored:
    """What a restore did, or would do."""

    restores: str
    restored: int = 0
    already_back: int = 0
    gone: int = 0
    not_tried: int = 0
    interrupted: bool = False
    trouble: LedgerctlError | None = None

    @property
    def exit_code(self) -> int:
        """0; 8 or 7 when a store failed after the first change."""
        if self.trouble is None:
            return int(ExitCode.DONE)
        unknown = isinstance(self.trouble, OutcomeUnknown)
        return int(ExitCode.UNKNOWN if unknown else ExitCode.PARTIAL)
