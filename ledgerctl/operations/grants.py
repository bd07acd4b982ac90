"""Grants: credits given to an account, once for each key."""

from functools import partial

from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import Outcome, StepResult
from ledgerctl.domain.rows import NewRow, RowType, grant_id, same_row
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.ledger import RowTaken


def grant(
    stores: Stores,
    account: str,
    amount: int,
    *,
    key: str,
    operation_id: str,
    reason: str | None = None,
) -> StepResult:
    """Give `amount` whole credits to an account, at most once for each key.

    The same key with another amount or account is a conflict and changes nothing.
    Raises JobHeld, StoreUnavailable, OutcomeUnknown, NotPermitted.
    """
    now = stores.mongo.now()
    row = NewRow(
        id=grant_id(key),
        job=None,
        account=stores.ledger.account_id(account) or Id(account),
        type=RowType.GRANT,
        amount=amount,
        created_at=now,
        recorded_at=now,
        operation_id=operation_id,
        reason=reason,
    )
    try:
        stores.mongo.together(f"grant {key}", partial(stores.append, [row]))
    except RowTaken:
        return compared(stores, row)
    return result(row, Outcome.APPLIED)


def preview(stores: Stores, account: str, amount: int, *, key: str) -> StepResult:
    """What `grant` would do, changing nothing."""
    now = stores.mongo.now()
    row = NewRow(grant_id(key), None, Id(account), RowType.GRANT, amount, now, now, "")
    return (
        result(row, Outcome.APPLIED) if stores.ledger.get(row.id) is None else verdict(stores, row)
    )


def compared(stores: Stores, row: NewRow) -> StepResult:
    """What a grant's row that stood in the way means: ours, already given, or a conflict."""
    standing = stores.ledger.get(row.id)
    if standing is not None and standing.operation_id == row.operation_id:
        stores.outbox.add([row])
        return result(row, Outcome.APPLIED)
    if standing is not None and standing.operation_id and not stores.mongo.transactions:
        stores.outbox.add([standing])
    return verdict(stores, row)


def verdict(stores: Stores, row: NewRow) -> StepResult:
    """Already granted when the standing row says the same, else a conflict."""
    standing = stores.ledger.get(row.id)
    if standing is None or standing.account is None or not same_row(standing, row):
        return StepResult(
            job_id="",
            step="grant",
            outcome=Outcome.CONFLICT,
            row_id=row.id,
            amount=standing.amount
            if standing is not None and isinstance(standing.amount, int)
            else None,
            at=None if standing is None else standing.created_at,
            detail="this key was used for another amount or account",
        )
    return StepResult(
        job_id="",
        step="grant",
        outcome=Outcome.ALREADY_GRANTED,
        amount=row.amount,
        row_id=row.id,
        at=standing.created_at,
    )


def result(row: NewRow, outcome: Outcome) -> StepResult:
    """The result of a grant that wrote its row."""
    return StepResult(
        job_id="",
        step="grant",
        outcome=outcome,
        amount=row.amount,
        row_id=row.id,
        at=row.created_at,
    )
