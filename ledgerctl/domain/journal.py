"""Ledger rows as a plain-text journal that hledger and Ledger both read, names and sums unharmed.

A row is one transaction: `credits:<account>` gets its amount, `service:<type>` the opposite. Rows
of no account go to `unassigned`. Account names, types and ids stand with every byte but ASCII
letters, digits and `_ . -` as `%XX` of its UTF-8 form, so no name can hold a separator, start a
comment or depend on the reader's locale; `urllib.parse.unquote` gives the name back. An empty
name is `%`.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

from ledgerctl.domain.amounts import Unusable
from ledgerctl.domain.days import day_of
from ledgerctl.domain.rows import LedgerRow

ACCOUNT, TYPE, NOBODY = "credits", "service", "unassigned"
EMPTY = "%"
NO_DAY = "1970-01-01"  # of a row without a date, or of a year that Ledger cannot read
YEARS = range(1400, 10_000)  # that both readers know
NAMES_MAX = 4_096  # escaped names remembered


@lru_cache(maxsize=NAMES_MAX)
def escaped(name: str) -> str:
    """Return a name as the journal holds it; `restored` is its inverse."""
    return quote(name, safe="", errors="surrogatepass").replace("~", "%7E") or EMPTY


def restored(name: str) -> str:
    """Return the name that was escaped."""
    return "" if name == EMPTY else unquote(name, errors="surrogatepass")


def head() -> tuple[str, ...]:
    """Return the comment that a journal begins with: how it is to be read."""
    return (
        "; ledger rows, written by ledgerctl ledger export --format hledger",
        f"; {ACCOUNT}:ACCOUNT gets the amount, {TYPE}:TYPE the opposite; {NOBODY}: rows of no account",
        "; names: every byte but ASCII letters, digits and _ . - is %XX of its UTF-8 form; % is empty",
        f"; rows without a date that both programs know stand on {NO_DAY}",
        "",
    )


def transaction(row: LedgerRow, zone: ZoneInfo) -> Iterator[str]:
    """Yield the lines of one row, a blank one last; a comment for a row that cannot be summed."""
    day = journal_day(row.created_at, zone)
    kind = escaped(row.type)
    note = f"row_id:{escaped(row.row_id)}"
    if row.job_id is not None:
        note = f"{note}, job_id:{escaped(row.job_id)}"
    if isinstance(row.amount, Unusable):
        yield f"; {day or NO_DAY} {kind}  {note}: not summed, {row.amount.why}"
    else:
        yield f"{day or NO_DAY} {kind}  ; {note}{'' if day else ', undated:'}"
        owner = NOBODY if row.account_id is None else f"{ACCOUNT}:{escaped(row.account_id)}"
        yield f"    {owner}  {row.amount}"
        yield f"    {TYPE}:{kind}  {-row.amount}"
    yield ""


def journal_day(moment: datetime | None, zone: ZoneInfo) -> str | None:
    """Return the day of a row in the day zone; None when the journal cannot hold it."""
    if moment is None or moment.year not in YEARS:
        return None
    day = day_of(moment, zone)
    return day if int(day[:4]) in YEARS else None
