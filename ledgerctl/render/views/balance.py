"""Report balances and replays."""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import replace
from typing import Any

from ledgerctl.domain.amounts import Amount, Unusable
from ledgerctl.domain.balances import (
    Balance,
    Balances,
    Replay,
    UnusableRow,
    unusable,
)
from ledgerctl.domain.rows import Entry
from ledgerctl.domain.times import format_time
from ledgerctl.errors import ExitCode
from ledgerctl.render.report import (
    STREAMED,
    Column,
    Kind,
    Record,
    Report,
    columns,
    listing,
    members,
    record,
)
from ledgerctl.render.text import rows
from ledgerctl.render.views.job import amount_value

SHOW_COLUMNS = columns("account_id balance as_of rows jobs first_row_at last_row_at")
REPLAY_COLUMNS = columns("row_id created_at job_id type amount balance", spare="row_id")
LIST_COLUMNS = columns("account_id balance rows")
UNUSABLE_COLUMNS = columns("row_id", Column("amount"), "why")
UNUSABLE_OF_ALL_COLUMNS = (Column("account_id", kind=Kind.ID), *UNUSABLE_COLUMNS)


def balance(found: Balance, *, chart: Sequence[str] = ()) -> Report:
    """Return one account's balance; rows that cannot be summed are listed and make exit 5.

    `chart` stands below it in a table.
    """
    tally = found.tally
    unusable = [unusable_record(row) for row in tally.unusable]
    document: dict[str, Any] = {
        "account_id": found.account_id,
        "balance": tally.balance,
        "as_of": found.as_of,
        "rows": tally.rows,
        "jobs": found.jobs,
        "by_type": dict(sorted(tally.by_type.items())),
        "first_row_at": tally.first_row_at,
        "last_row_at": tally.last_row_at,
        "unusable_rows": unusable,
        "undated_rows": found.undated_rows,
        "future_rows": found.future_rows,
    }
    return record(
        document,
        columns=SHOW_COLUMNS,
        foot=("", *chart) if chart else (),
        notes=balance_notes(found),
        exit_code=found_code(unusable),
        sections=[Report(UNUSABLE_COLUMNS, unusable, head=("Not summed:",))] if unusable else [],
    )


def balance_notes(found: Balance) -> list[str]:
    """Return what is odd about the rows behind a balance."""
    notes = []
    if found.tally.unusable:
        notes.append(f"{rows(len(found.tally.unusable))} cannot be summed: left out of the balance")
    if found.undated_rows:
        notes.append(f"{rows(found.undated_rows)} without a usable date: counted")
    if found.undated_left_out:
        notes.append(f"{rows(found.undated_left_out)} without a usable date: not counted with --at")
    if found.future_rows:
        notes.append(
            f"{rows(found.future_rows)} dated after {format_time(found.as_of)}: counted;"
            " --at now leaves them out"
        )
    return notes


def found_code(unusable: Sized) -> int:
    """Exit 5 when a row cannot be summed. Source: contract, section 3, balance show."""
    return int(ExitCode.FOUND if unusable else ExitCode.DONE)


def unusable_record(row: UnusableRow) -> Record:
    """Return a row that no sum contains."""
    return members(row, "row_id amount why")


def balances(found: Balances, limit: int) -> Report:
    """Return every account's balance; `limit` 0 shows all."""
    shown = found.accounts[:limit] if limit else found.accounts
    report = listing(
        [members(one, "account_id balance rows") for one in shown],
        columns=LIST_COLUMNS,
        total=len(found.accounts),
        notes=list_notes(found),
        exit_code=found_code(found.unusable),
        empty="No account.",
    )
    left_out = [{"account_id": one, **unusable_record(row)} for one, row in found.unusable]
    section = Report(UNUSABLE_OF_ALL_COLUMNS, left_out, head=("Not summed:",))
    return replace(
        report,
        document={**(report.document or {}), "unusable_rows": left_out},
        sections=[section] if left_out else [],
    )


def list_notes(found: Balances) -> list[str]:
    """Return what is odd about the rows behind the balances."""
    notes = []
    if found.unusable:
        notes.append(f"{rows(len(found.unusable))} cannot be summed: left out of the balances")
    if found.has_future_rows:
        notes.append("some rows are dated in the future: counted; --at now leaves them out")
    if any(one.account_id is None for one in found.accounts):
        notes.append("the line without account holds rows whose job is unknown or has no account")
    return notes


class ReplayRecords:
    """Hold the records of a replay, and what is known only once the last one has passed."""

    def __init__(self, entries: Iterator[tuple[Entry, int]], opening: int) -> None:
        self._entries = entries
        self.closing = opening
        self.unusable: list[Record] = []

    def __iter__(self) -> Iterator[Record]:
        running = self.closing
        try:
            for (row_id, created_at, job_id, row_type, amount, _), running in self._entries:
                yield {
                    "row_id": row_id,
                    "created_at": created_at,
                    "job_id": job_id,
                    "type": row_type.value,
                    "amount": amount if type(amount) is int else self._left_out(row_id, amount),
                    "balance": running,
                }
        finally:
            self.closing = running

    def _left_out(self, row_id: str, amount: Amount) -> int | str | None:
        if isinstance(amount, Unusable):
            self.unusable.append(unusable_record(unusable(row_id, amount)))
        return amount_value(amount)


def replay(found: Replay) -> Report:
    """Return an account's rows with the balance after each; streamed."""
    records = ReplayRecords(found.rows, found.opening_balance)

    def notes() -> list[str]:
        said = []
        if found.undated_left_out:
            said.append(
                f"{rows(found.undated_left_out)} without a usable date: outside every window"
            )
        if left_out := len(records.unusable) + len(found.unusable_before):
            said.append(f"{rows(left_out)} cannot be summed: the balance leaves them out")
        return said

    def left_out() -> list[Record]:
        return [*map(unusable_record, found.unusable_before), *records.unusable]

    return Report(
        columns=REPLAY_COLUMNS,
        records=records,
        document={
            "account_id": found.account_id,
            "opening_balance": found.opening_balance,
            "rows": STREAMED,
            "closing_balance": lambda: records.closing,
            "unusable_rows": left_out,
        },
        items_key="rows",
        head=(f"{found.account_id}: opening balance {found.opening_balance}",),
        foot=lambda: (f"closing balance {records.closing}",),
        notes=notes,
        exit_code=lambda: found_code(left_out()),
        empty="No rows.",
    )
