"""Grants: credits given to an account, once for each key."""

from ledgerctl.domain.ids import Id
from ledgerctl.domain.jobs import Outcome, StepResult
from ledgerctl.domain.rows import NewRow, RowType, grant_id
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.ledger import Already, Appended, AppendOutcome, Conflict


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
    row = grant_row(stores, account, amount, key, operation_id, reason)
    outcome = stores.ledger.append_once(row)
    if isinstance(outcome, Already):
        stores.ledger.complete_message(outcome.row)
    return grant_result(row, outcome)


def preview(stores: Stores, account: str, amount: int, *, key: str) -> StepResult:
    """Return what `grant` would do, changing nothing."""
    row = grant_row(stores, account, amount, key, "", None)
    return grant_result(row, stores.ledger.compare(row) or Appended())


def grant_row(
    stores: Stores, account: str, amount: int, key: str, operation_id: str, reason: str | None
) -> NewRow:
    """Return the row of a grant, dated now."""
    now = stores.mongo.now()
    return NewRow(
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


def grant_result(row: NewRow, outcome: AppendOutcome) -> StepResult:
    """Return the result of a grant; amount and time are those of the stored row."""
    if isinstance(outcome, Appended):
        return StepResult("", "grant", Outcome.APPLIED, None, row.amount, row.id, row.created_at)
    stored = outcome.row
    amount = stored.amount if isinstance(stored.amount, int) else None
    granted, detail = Outcome.ALREADY_GRANTED, ""
    if isinstance(outcome, Conflict):
        granted, detail = Outcome.CONFLICT, "this key was used for another amount or account"
    return StepResult("", "grant", granted, None, amount, row.id, stored.created_at, detail)
