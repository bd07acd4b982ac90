"""Balances and replays, as reports."""

from collections.abc import Iterator
from typing import Any

from ledgerctl.domain.balances import Balance
from ledgerctl.domain.ids import text_of
from ledgerctl.domain.rows import Row
from ledgerctl.errors import ExitCode
from ledgerctl.render.report import STREAMED, Column, Kind, Record, Report, record
from ledgerctl.render.views.job import amount_value

SHOW_COLUMNS = (
    Column("account_id", kind=Kind.ID),
    Column("balance", kind=Kind.AMOUNT),
    Column("as_of", kind=Kind.TIME),
    Column("rows", kind=Kind.COUNT),
    Column("jobs", kind=Kind.COUNT),
    Column("first_row_at", kind=Kind.TIME),
    Column("last_row_at", kind=Kind.TIME),
)
REPLAY_COLUMNS = (
    Column("row_id", kind=Kind.ID),
    Column("created_at", kind=Kind.TIME),
    Column("job_id", kind=Kind.ID),
    Column("type"),
    Column("amount", kind=Kind.AMOUNT),
    Column("balance", kind=Kind.AMOUNT),
)
UNUSABLE_COLUMNS = (Column("row_id", kind=Kind.ID), Column("amount"), Column("why"))


def balance(found: Balance) -> Report:
    """One account's balance; rows that cannot be summed are listed and make exit 5."""
    tally = found.tally
    unusable = [
        {"row_id": row.row_id, "amount": row.amount, "why": row.why} for row in tally.unusable
    ]
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
        "undated_rows": tally.undated,
        "future_rows": found.future_rows,
    }
    notes = []
    if unusable:
        notes.append(f"{len(unusable)} rows cannot be summed and are left out of the balance")
    if tally.undated:
        notes.append(f"{tally.undated} rows have no usable date; they count")
    if found.future_rows:
        notes.append(f"{found.future_rows} rows are dated after {found.as_of:%FT%TZ}; they count")
    sections = [Report(UNUSABLE_COLUMNS, unusable, head=("Not summed:",))] if unusable else []
    return record(
        document,
        columns=SHOW_COLUMNS,
        notes=notes,
        exit_code=int(ExitCode.FOUND if unusable else ExitCode.DONE),
        sections=sections,
    )


class ReplayRecords:
    """The records of a replay, and what is known only once the last one has passed."""

    def __init__(self, rows: Iterator[tuple[Row, int]], opening: int) -> None:
        self._rows = rows
        self.closing = opening
        self.unusable: list[Record] = []

    def __iter__(self) -> Iterator[Record]:
        for row, running in self._rows:
            self.closing = running
            if not isinstance(row.amount, int):
                self.unusable.append(
                    {"row_id": row.id.text, "amount": row.amount.shown, "why": row.amount.why}
                )
            yield {
                "row_id": row.id.text,
                "created_at": row.created_at,
                "job_id": text_of(row.job),
                "type": row.type,
                "amount": amount_value(row.amount),
                "balance": running,
            }


def replay(
    account_id: str, opening: int, rows: Iterator[tuple[Row, int]], *, undated_left_out: int
) -> Report:
    """An account's rows with the balance after each; streamed."""
    records = ReplayRecords(rows, opening)

    def notes() -> list[str]:
        said = []
        if undated_left_out:
            said.append(f"{undated_left_out} rows have no usable date and lie outside every window")
        if records.unusable:
            said.append(
                f"{len(records.unusable)} rows cannot be summed and leave the balance alone"
            )
        return said

    return Report(
        columns=REPLAY_COLUMNS,
        records=records,
        document={
            "account_id": account_id,
            "opening_balance": opening,
            "rows": STREAMED,
            "closing_balance": lambda: records.closing,
            "unusable_rows": lambda: records.unusable,
        },
        items_key="rows",
        head=(f"{account_id}: opening balance {opening}",),
        foot=lambda: (f"closing balance {records.closing}",),
        notes=notes,
        exit_code=lambda: int(ExitCode.FOUND if records.unusable else ExitCode.DONE),
        empty="No rows.",
    )
