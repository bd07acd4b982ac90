"""Everything that can go wrong, each with a stable code, a hint and an exit code."""

from enum import IntEnum
from typing import Any, ClassVar


class ExitCode(IntEnum):
    """List what a script can tell from the exit status. Source: contract, section 1."""

    DONE = 0  # done, nothing to do, or already done
    BUG = 1  # a bug in ledgerctl
    USAGE = 2  # usage, settings, or no consent
    REFUSED = 3  # a guard or a rule said no; nothing changed
    NOT_FOUND = 4  # the named thing does not exist
    FOUND = 5  # a check found something
    UNAVAILABLE = 6  # a store cannot be reached or may not be used; nothing changed
    UNKNOWN = 7  # sent, but the outcome is unknown; running it again is safe
    PARTIAL = 8  # some done and some not; the report says which
    HELD = 9  # another run holds the lease or the job; try again
    HUNG_UP = 129  # SIGHUP
    INTERRUPTED = 130  # Ctrl-C
    TERMINATED = 143  # SIGTERM


class LedgerctlError(Exception):
    """Trouble that ends a command: what happened and why, what to do, and how it exits.

    `message` and `hint` never hold a secret: they are printed and logged as they stand.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[ExitCode] = ExitCode.BUG

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def document(self) -> dict[str, Any]:
        """Return the error as machines read it; holds no secret."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


def exit_code_of(error: BaseException | None) -> int:
    """Give the exit code of a run that this error ended; what is not ours is a bug."""
    if error is None:
        return int(ExitCode.DONE)
    return int(error.exit_code if isinstance(error, LedgerctlError) else ExitCode.BUG)


class InvariantBroken(LedgerctlError):
    """Report that a rule that this program itself must keep does not hold: a bug, reported as one."""

    code = "bug"
    exit_code = ExitCode.BUG


class UsageError(LedgerctlError):
    """Report that the command's words do not make sense."""

    code = "usage"
    exit_code = ExitCode.USAGE


class SettingsError(LedgerctlError):
    """Report that a setting, the configuration file or a profile is wrong or cannot be read."""

    code = "settings"
    exit_code = ExitCode.USAGE


class ConsentMissing(LedgerctlError):
    """Report that the command must be confirmed and nobody could be asked."""

    code = "consent_missing"
    exit_code = ExitCode.USAGE


class Declined(LedgerctlError):
    """Somebody was asked and did not say yes."""

    code = "declined"
    exit_code = ExitCode.USAGE


class Refused(LedgerctlError):
    """Report that a guard or a rule said no; nothing changed."""

    code = "refused"
    exit_code = ExitCode.REFUSED


class ReadOnlyProfile(LedgerctlError):
    """Report that the profile refuses every changing command."""

    code = "read_only_profile"
    exit_code = ExitCode.REFUSED


class Mapped(LedgerctlError):
    """Report that another team's ledger is only read."""

    code = "mapped"
    exit_code = ExitCode.REFUSED


class SelectionChanged(LedgerctlError):
    """`--expect` named another size than the selection has."""

    code = "selection_changed"
    exit_code = ExitCode.REFUSED


class AmbiguousId(LedgerctlError):
    """Report that a text matches ids of two types."""

    code = "ambiguous_id"
    exit_code = ExitCode.REFUSED


class IndexMissing(LedgerctlError):
    """Report that a step is unsafe without its unique index."""

    code = "index_missing"
    exit_code = ExitCode.REFUSED


class WrongKeyType(LedgerctlError):
    """Report that a configured Redis list is of another type."""

    code = "wrong_key_type"
    exit_code = ExitCode.REFUSED


class ReadOnlyReplica(LedgerctlError):
    """Report that the server is a replica that takes no writes."""

    code = "read_only_replica"
    exit_code = ExitCode.REFUSED


class CrossSlot(LedgerctlError):
    """Report that the configured lists of a Redis cluster share no slot."""

    code = "cross_slot"
    exit_code = ExitCode.REFUSED


class RefusedByServer(LedgerctlError):
    """Report that the server's own rule (a validator, a view, a shard key) refuses the write; nothing changed."""

    code = "refused_by_server"
    exit_code = ExitCode.REFUSED


class NotFound(LedgerctlError):
    """Report that the named job, account, message, operation or dead letter does not exist."""

    code = "not_found"
    exit_code = ExitCode.NOT_FOUND


class StoreUnavailable(LedgerctlError):
    """Report that a store cannot be reached; nothing was sent."""

    code = "store_unavailable"
    exit_code = ExitCode.UNAVAILABLE


class StoreBusy(LedgerctlError):
    """Report that a store is busy or full and refused the write; nothing changed."""

    code = "store_busy"
    exit_code = ExitCode.UNAVAILABLE


class NotPermitted(LedgerctlError):
    """Report that the store's user lacks a right, or its password is wrong; nothing changed."""

    code = "not_permitted"
    exit_code = ExitCode.UNAVAILABLE


class UnexpectedReply(LedgerctlError):
    """Report that a store gives a reply that the table does not know; it is quoted, and nothing changed."""

    code = "unexpected_reply"
    exit_code = ExitCode.UNAVAILABLE


class OutputFailed(LedgerctlError):
    """Report that the result could not be written out."""

    code = "output_failed"
    exit_code = ExitCode.UNAVAILABLE


class OutOfDescriptors(LedgerctlError):
    """Report that this process may open no more files; nothing changed."""

    code = "out_of_descriptors"
    exit_code = ExitCode.UNAVAILABLE


class OutcomeUnknown(LedgerctlError):
    """Report that a write was sent and its reply was lost; running the command again is safe."""

    code = "outcome_unknown"
    exit_code = ExitCode.UNKNOWN


class PartlyDone(LedgerctlError):
    """Trouble after the first change: some done, some not."""

    code = "partly_done"
    exit_code = ExitCode.PARTIAL


class LeaseHeld(LedgerctlError):
    """Report that another run holds the lease."""

    code = "lease_held"
    exit_code = ExitCode.HELD


class JobHeld(LedgerctlError):
    """Report that another operation holds the job."""

    code = "job_held"
    exit_code = ExitCode.HELD


class Interrupted(LedgerctlError):
    """Ctrl-C; the chunk in hand was finished."""

    code = "interrupted"
    exit_code = ExitCode.INTERRUPTED


class Terminated(LedgerctlError):
    """SIGTERM; the chunk in hand was finished."""

    code = "terminated"
    exit_code = ExitCode.TERMINATED


class HungUp(LedgerctlError):
    """SIGHUP; the chunk in hand was finished."""

    code = "hung_up"
    exit_code = ExitCode.HUNG_UP
