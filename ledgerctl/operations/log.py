"""The operator log's side of a change: begun before the first write, ended with its counts."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from ledgerctl.domain.roles import WRITES
from ledgerctl.errors import (
    LedgerctlError,
    NotPermitted,
    OutcomeUnknown,
    StoreBusy,
    StoreUnavailable,
    UnexpectedReply,
    exit_code_of,
)
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.operator_log import OperatorLog

END_TRIES = 4  # of completing an entry: writing it again changes nothing
PAUSE_S = 0.4


def new_operation_id(now: datetime) -> str:
    """Return an id that sorts by time and never repeats: milliseconds, then 40 random bits."""
    return f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}Z-{secrets.token_hex(5)}"


@dataclass(slots=True)
class Operation:
    """Hold one changing command's entry in the operator log. Source: contract, section 2."""

    log: OperatorLog
    clock: Callable[[], datetime]
    command: str
    operator: str
    profile: str
    reason: str | None = None
    id: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    exit_code: int = 0
    unfinished: LedgerctlError | None = None  # why the entry could not be completed

    def begin(self) -> None:
        """Write the entry, exit_code null; nothing may be changed before this returns."""
        now = self.clock()
        self.id = new_operation_id(now)
        entry = {
            "_id": self.id,
            "at": now,
            "finished_at": None,
            "operator": self.operator,
            "profile": self.profile,
            "command": self.command,
            "reason": self.reason,
            "counts": {},
            "exit_code": None,
        }
        try:
            self.log.begin(entry)
        except OutcomeUnknown as error:  # at most an entry of an operation that never began
            raise StoreUnavailable(
                f"cannot write the operator log, and nothing was changed: {error.message}",
                hint="try again",
            ) from None

    def end(self, how: int | BaseException | None) -> None:
        """Complete the entry by an exit code or by what ended the run.

        What keeps the entry open is told in `unfinished`, not raised.
        """
        exit_code = how if isinstance(how, int) else exit_code_of(how)
        for left in reversed(range(END_TRIES)):
            try:
                self.log.end(self.id, at=self.clock(), counts=self.counts, exit_code=exit_code)
            except (OutcomeUnknown, StoreBusy) as error:
                self.unfinished = error
                time.sleep(PAUSE_S if left else 0)
            except LedgerctlError as error:
                self.unfinished = error
                return
            else:
                self.unfinished = None
                return

    def count(self, name: str, number: int = 1) -> None:
        """Add to one of the entry's counts."""
        self.counts[name] = self.counts.get(name, 0) + number


def require(stores: Stores, command: str) -> None:
    """Raise NotPermitted, naming each missing right, before a changing command changes anything.

    Without it a standalone server would let the flag be set and refuse the row. A server that
    asks for no user, or does not tell rights, is taken at its word when it refuses.
    """
    needed = WRITES.get(command, {})
    try:
        login = stores.deployment.login()
    except UnexpectedReply:  # a server that is not quite MongoDB
        return
    if not login.users:
        return
    names = {collection: stores.mongo.collection(collection).name for collection in needed}
    lacking = [
        f"{action} on {login.database}.{names[collection]}"
        for collection, actions in needed.items()
        for action in sorted(actions)
        if not login.allows(names[collection], action)
    ]
    if lacking:
        raise NotPermitted(
            f"{', '.join(login.users)} may not run `{command}`: the right to {', '.join(lacking)}"
            " is missing; nothing was changed",
            hint="`ledgerctl db roles` prints the rights that each role needs",
        )
