"""Report the exported ledger: records, or a journal."""

from collections.abc import Iterable, Iterator
from zoneinfo import ZoneInfo

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.journal import head, transaction
from ledgerctl.domain.rows import LedgerRow
from ledgerctl.errors import ExitCode
from ledgerctl.render.report import STREAMED, Record, Report, columns
from ledgerctl.render.text import rows as row_words
from ledgerctl.render.views.job import amount_value

COLUMNS = columns("row_id job_id account_id type amount created_at recorded_at operation_id reason")
LEFT_OUT = "rows without a usable date lie outside every window: they are not here"


class Counting:
    """Pass on rows; count those that no sum contains."""

    def __init__(self, rows: Iterable[LedgerRow]) -> None:
        self._rows = rows
        self.unusable = 0

    def __iter__(self) -> Iterator[LedgerRow]:
        for row in self._rows:
            if type(row.amount) is Unusable:
                self.unusable += 1
            yield row


def export(
    rows: Iterable[LedgerRow], *, zone: ZoneInfo | None = None, leaves_out_undated: bool = False
) -> Report:
    """Return the rows as records; with a day zone, as a journal for hledger and Ledger."""
    counting = Counting(rows)

    def notes() -> list[str]:
        said = [LEFT_OUT] if leaves_out_undated else []
        if counting.unusable:
            said.append(f"{row_words(counting.unusable)} cannot be summed: marked in the export")
        return said

    return Report(
        columns=COLUMNS,
        records=records(counting),
        document={"rows": STREAMED},
        items_key="rows",
        text=None if zone is None else journal(counting, zone),
        notes=notes,
        exit_code=lambda: int(ExitCode.FOUND if counting.unusable else ExitCode.DONE),
        empty="No rows.",
    )


def records(rows: Iterable[LedgerRow]) -> Iterator[Record]:
    """Yield each row under the names of its fields."""
    for row_id, job_id, account_id, kind, amount, created, recorded, operation_id, reason in rows:
        yield {
            "row_id": row_id,
            "job_id": job_id,
            "account_id": account_id,
            "type": kind,
            "amount": amount if type(amount) is int else amount_value(amount),
            "created_at": created,
            "recorded_at": recorded,
            "operation_id": operation_id,
            "reason": reason,
        }


def journal(rows: Iterable[LedgerRow], zone: ZoneInfo) -> Iterator[str]:
    """Yield the lines of the journal."""
    yield from head()
    for row in rows:
        yield from transaction(row, zone)
