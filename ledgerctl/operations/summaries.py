"""Daily summaries out of the ledger: recompute, compare, show."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ledgerctl.domain.days import EARLIEST, LATEST, day_bounds, day_of, window, zone_named
from ledgerctl.domain.drift import explain
from ledgerctl.domain.summary import AccountSummaries, DaySpan, Difference, Drift
from ledgerctl.errors import UsageError
from ledgerctl.operations.balances import require_account
from ledgerctl.stores.codec import Document
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.daily_rows import OddRows, Recorded
from ledgerctl.stores.summaries import Rule

DEFAULT_DAYS = 2
COMPARED = ("net", "charged", "refunded", "reclaimed")
REBUILT = (*COMPARED, "jobs", "rows")
EVER = Recorded(EARLIEST, LATEST)


@dataclass(frozen=True, slots=True)
class Window:
    """Describe which days: the last `days`, or from one to another, both included."""

    days: int = DEFAULT_DAYS
    explicit: tuple[str, str] | None = None

    def resolve(self, now: datetime, zone: ZoneInfo) -> tuple[str, str]:
        """First and last day, by the server's clock."""
        return self.explicit or window(self.days, now, zone)

    @property
    def is_default(self) -> bool:
        """Return whether this is the window of the hourly run."""
        return self.explicit is None and self.days == DEFAULT_DAYS


def days_with_rows(stores: Stores, from_day: str, to_day: str, session: Any) -> list[DaySpan]:
    """Return the days of a range that have rows which count; empty ones cost nothing."""
    zone = stores.settings.zone
    at, end = day_bounds(from_day, zone)[0], day_bounds(to_day, zone)[1]
    found: list[DaySpan] = []
    while at < end:
        row_at = stores.daily_rows.next_row_at(at, end, session)
        if row_at is None:
            break
        found.append(span_of(day_of(row_at, zone), zone))
        at = found[-1].end
    return found


def span_of(day: str, zone: ZoneInfo) -> DaySpan:
    """Return a day as instants: 23, 24 or 25 hours, mostly."""
    start, end = day_bounds(day, zone)
    return DaySpan(day, start, end)


# consumers


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Describe what became of some (account, day) pairs."""

    as_of: datetime
    written: int
    refused: tuple[tuple[str, str], ...] = ()  # pairs left alone: a row of theirs cannot be summed


def recompute_days(
    stores: Stores, pairs: Iterable[tuple[str, str]], session: Any = None
) -> Recomputed:
    """Overwrite the summaries of these (account text, `YYYY-MM-DD`) pairs from the ledger.

    Inside a transaction (`session`) each is written in every case, with `as_of` read in it; a
    write conflict is the caller's to restart (`Mongo.transaction` does). Without a session (a
    standalone server) the rebuild's rule holds: written only where the stored `as_of` is absent
    or earlier; mark the messages afterwards. A pair without rows gets zeros if a summary is
    there. Days are those of the settings' zone. Source: contract, section 3, summary.
    """
    by_day: dict[str, list[str]] = {}
    for account, day in sorted(set(pairs)):
        by_day.setdefault(day, []).append(account)
    if session is None:
        with stores.summaries.session() as own:
            as_of = stores.summaries.now(own)
            found = [_recompute(stores, day, names, own) for day, names in by_day.items()]
            return _overwrite(stores, found, as_of, own)
    found = [_recompute(stores, day, names, session) for day, names in by_day.items()]
    # Only now: read before the snapshot was open, it would claim rows that the snapshot lacks
    # against a rebuild that saw them.
    return _overwrite(stores, found, stores.summaries.now(session), session)


def require_known(stores: Stores, account: str) -> str:
    """Return the account as it is spelled in the stores, if it has a summary, a row or a job.

    Raises NotFound otherwise.
    """
    if not stores.summaries.knows(account):
        require_account(stores, account)
    return stores.ledger.spelling_of(account)


@dataclass(frozen=True, slots=True)
class _Day:
    documents: list[Document]
    empty: list[str]  # ids of summaries without rows
    refused: list[tuple[str, str]]


def _recompute(stores: Stores, day: str, accounts: Sequence[str], session: Any) -> _Day:
    summaries = stores.summaries
    span = span_of(day, stores.settings.zone)
    odd = stores.daily_rows.odd_rows(span, EVER, accounts, session)
    refused = {row.account_id for row in (*odd.recent, *odd.no_ids)}
    names = [account for account in accounts if account not in refused]
    found = summaries.day_figures(
        span,
        names,
        timezone=stores.settings.timezone,
        shape=stores.daily_rows.shape(span, odd=odd.usable > 0, session=session),
        session=session,
    )
    ids = [f"{account}:{day}" for account in names]
    return _Day(
        [found[one] for one in ids if one in found],
        [one for one in ids if one not in found],
        [(account, day) for account in accounts if account in refused],
    )


def _overwrite(stores: Stores, days: Sequence[_Day], as_of: datetime, session: Any) -> Recomputed:
    rule = Rule(stores.settings.timezone, as_of)
    documents = [document for day in days for document in day.documents]
    written = stores.summaries.overwrite(documents, rule, session)
    written += stores.summaries.zero([one for day in days for one in day.empty], rule, session)
    return Recomputed(as_of, written, tuple(pair for day in days for pair in day.refused))


# comparing and showing


def drift(stores: Stores, days: Window, account: str | None = None, *, why: bool = False) -> Drift:
    """Compare summaries with the ledger; a day without rows and without figures is no drift.

    With `why` each difference has its cause.
    """
    zone = stores.settings.zone
    accounts = None if account is None else [require_known(stores, account)]
    with stores.summaries.session() as session:
        now = stores.summaries.now(session)
        from_day, to_day = days.resolve(now, zone)
        with_rows = {span.day for span in days_with_rows(stores, from_day, to_day, session)}
    with_rows |= stores.summaries.days_with_summaries(from_day, to_day, accounts)
    compared, drifted, unusable = 0, [], 0
    no_ids: set[str] = set()
    for day in sorted(with_rows):
        pairs, found, odd = differing(stores, span_of(day, zone), accounts, COMPARED)
        compared += pairs
        drifted += found
        unusable += odd.others + sum(row.rows for row in odd.recent)
        no_ids |= {row.account_id for row in odd.no_ids}
    drifted.sort(key=lambda one: (one.account_id, one.day))
    if why:
        window_from, _ = window(DEFAULT_DAYS, now, zone)
        drifted = [explained(stores, one, window_from) for one in drifted]
    return Drift(
        from_day, to_day, stores.settings.timezone, compared, drifted, unusable, sorted(no_ids)
    )


def explained(stores: Stores, one: Difference, window_from: str) -> Difference:
    """Return the difference with its cause, found by recomputing the day under each hypothesis."""
    own = span_of(one.day, stores.settings.zone)
    names = dict.fromkeys([one.timezone or "UTC", "UTC"])
    others = {name: span_of(one.day, zone) for name in names if (zone := zone_if_known(name))}
    others = {name: span for name, span in others.items() if span != own}
    spans = [own, *others.values()]
    rows = stores.account_rows.rows_of(
        one.account_id, (min(span.start for span in spans), max(span.end for span in spans))
    )
    found = explain(one, rows, own, others)
    return replace(one, why=replace(found, outside=one.day < window_from))


def zone_if_known(name: str) -> ZoneInfo | None:
    """Return the zone of this name, None for a name that stands in a summary and is no zone."""
    try:
        return zone_named(name)
    except UsageError:
        return None


def differing(
    stores: Stores, span: DaySpan, accounts: Sequence[str] | None, names: Sequence[str]
) -> tuple[int, list[Difference], OddRows]:
    """Return the pairs of one day, those whose figures differ, and what no summary can hold."""
    summaries = stores.summaries
    with summaries.session() as session:
        odd = stores.daily_rows.odd_rows(span, EVER, accounts, session)
        shape = stores.daily_rows.shape(
            span, odd=odd.usable > 0, session=session, jobs="jobs" in names
        )
    pairs, found = summaries.compare(
        span, timezone=stores.settings.timezone, shape=shape, accounts=accounts, names=names
    )
    return pairs, found, odd


def show(stores: Stores, account: str, days: Window) -> AccountSummaries:
    """Return the summaries of an account, as they stand. Raises NotFound for an unknown account."""
    from_day, to_day = days.resolve(stores.mongo.now(), stores.settings.zone)
    account = require_known(stores, account)
    found = stores.summaries.of_account(account, from_day, to_day)
    return AccountSummaries(account, from_day, to_day, stores.settings.timezone, found)
