"""Requeue and release as commands: what is meant, what would happen, what came of it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from ledgerctl.domain.dead import (
    Action,
    Letter,
    RequeuePolicy,
    Selected,
    Selection,
    exit_code,
    select,
    wants_lease,
)
from ledgerctl.domain.dead_results import Changed
from ledgerctl.errors import LedgerctlError
from ledgerctl.operations.dead import look, taken_meanwhile
from ledgerctl.operations.dead_moves import Move, Moved, writer
from ledgerctl.operations.log import Operation
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.leases import Lease


@dataclass(frozen=True, slots=True)
class Request:
    """What the operator asks for."""

    action: Action
    selection: Selection
    policy: RequeuePolicy = field(default_factory=RequeuePolicy)
    planned_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The dead letters as they stood, and those that are meant: fixed from here on."""

    letters: list[Letter]
    selected: Selected


def prepare(stores: Stores, request: Request, *, only: "Counter[bytes] | None" = None) -> Prepared:
    """Read and judge the letters, and fix which of them are meant; `only` among these bytes."""
    found = look(stores, request.selection)
    selected = select(found, request.selection, request.action, force=request.policy.force)
    if only is not None:
        selected.letters = among(selected.letters, Counter(only))
        selected.moving = among(selected.moving, Counter(only))
    return Prepared(found, selected)


def gains_by_lease(stores: Stores, prepared: Prepared) -> bool:
    """Whether letters stand so deep that passing others over, under the lease, holds Redis less.

    Not while another run passes letters over: then their places are not to be relied on.
    """
    raws = [one.raw for one in prepared.letters if one.key == stores.dead_letters.key]
    return len(raws) == len(prepared.letters) and wants_lease(raws, prepared.selected.moving)


def among(found: list[Letter], left: "Counter[bytes]") -> list[Letter]:
    """Those letters whose bytes are counted here, each as often as counted."""
    kept = []
    for letter in found:
        if left[letter.raw] > 0:
            left[letter.raw] -= 1
            kept.append(letter)
    return kept


def preview(stores: Stores, request: Request, prepared: Prepared) -> Changed:
    """What applying would do, changing nothing."""
    selected = prepared.selected
    done = {id(letter) for letter in selected.moving}
    already = already_taken(stores, request, selected)
    return Changed(
        operation_id=None,
        dry_run=True,
        selected=selected,
        moved=len(selected.moving),
        remaining=len(prepared.letters) - len(selected.moving),
        exit_code=int(exit_code(request.selection, selected, done=done, already=already)),
        already_taken=already,
    )


def apply(
    stores: Stores,
    request: Request,
    prepared: Prepared,
    operation: Operation,
    *,
    now: datetime,
    lease: Lease | None,
    stopping: Callable[[], bool],
    progress: Callable[[int], None] = lambda _count: None,
) -> Changed:
    """Take the letters that are meant; each is moved once, whoever else is at work.

    Raises what a store refuses before the first change; later trouble is in the outcome.
    """
    selected = prepared.selected
    moved = Move(
        stores=stores,
        operation_id=operation.id,
        moving=selected.moving,
        write=writer(request.action, request.policy, now, len(selected.moving)),
        found=[one.raw for one in prepared.letters if one.key == stores.dead_letters.key],
        at=operation.clock(),
        lease=lease,
        stopping=stopping,
        progress=progress,
    ).run()
    operation.count("selected", len(selected.letters))
    operation.count("moved", len(moved.taken))
    for verdict, count in selected.skipped.items():
        operation.count(f"skipped_{verdict}", count)
    changed = outcome(stores, request, selected, moved, operation.id)
    operation.exit_code = changed.exit_code
    return changed


def outcome(
    stores: Stores, request: Request, selected: Selected, moved: Moved, operation_id: str
) -> Changed:
    """What is to be said of a finished or broken-off operation."""
    already = already_taken(stores, request, selected) if moved.trouble is None else 0
    done = {id(pick.letter) for pick in (*moved.taken, *moved.gone)}
    code = exit_code(request.selection, selected, done=done, already=already)
    return Changed(
        operation_id=operation_id,
        dry_run=False,
        selected=selected,
        moved=len(moved.taken),
        remaining=remaining(stores),
        exit_code=int(code) if moved.trouble is None else moved.trouble_code,
        already_taken=already + len(moved.gone),
        not_tried=moved.not_tried,
        interrupted=moved.interrupted,
        trouble=moved.trouble,
    )


def already_taken(stores: Stores, request: Request, selected: Selected) -> int:
    """How many letters of a plan another operation took since it was made."""
    if request.selection.plan is None or not selected.missing:
        return 0
    return taken_meanwhile(stores, selected.missing, request.planned_at)


def remaining(stores: Stores) -> int | None:
    """How many letters there are now; None when nobody can say any more."""
    try:
        return stores.dead_letters.count()
    except LedgerctlError:
        return None
