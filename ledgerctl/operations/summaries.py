"""Daily summaries out of the ledger: rebuild, recompute, compare, show."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from threading import Event
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from ledgerctl.domain.days import EARLIEST, LATEST, day_bounds, day_of, window
from ledgerctl.domain.summary import (
    DaySpan,
    Difference,
    Drift,
    Rebuilt,
    RefusedRow,
    Shown,
    Untouched,
    accounts_of,
    untouched,
)
from ledgerctl.errors import ExitCode, LeaseHeld, LedgerctlError, PartlyDone
from ledgerctl.operations.balances import require_account
from ledgerctl.stores.connections import Document, Stores
from ledgerctl.stores.leases import Lease
from ledgerctl.stores.summaries import OddRows, Recorded, Written

T = TypeVar("T")

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession

LEASE = "summary-rebuild"
LEASE_TERM = timedelta(seconds=15)
LEASE_RENEWED_EVERY = timedelta(seconds=4)
MARK = "full_rebuild_began_at"  # kept in the lease's document
LATE_MARGIN = timedelta(hours=1)
DEFAULT_DAYS = 2
DAYS_AT_ONCE = 2  # days computed side by side, each in a session of its own

COMPARED = ("net", "charged", "refunded", "reclaimed")
REBUILT = (*COMPARED, "jobs", "rows")


@dataclass(frozen=True, slots=True)
class Window:
    """Which days: the last `days`, or from one to another, both included."""

    days: int = DEFAULT_DAYS
    explicit: tuple[str, str] | None = None

    def resolve(self, now: datetime, zone: ZoneInfo) -> tuple[str, str]:
        """First and last day, by the server's clock."""
        return self.explicit or window(self.days, now, zone)

    @property
    def is_default(self) -> bool:
        """Whether this is the window of the hourly run."""
        return self.explicit is None and self.days == DEFAULT_DAYS


@dataclass(frozen=True, slots=True)
class Request:
    """What to rebuild."""

    window: Window = field(default_factory=Window)
    account: str | None = None
    late: bool = True

    @property
    def moves_mark(self) -> bool:
        """Whether later runs may count late rows from this one on."""
        return self.window.is_default and self.account is None and self.late

    @property
    def accounts(self) -> list[str] | None:
        """The one account, or None for all."""
        return None if self.account is None else [self.account]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rebuild is about to do, read from the ledger at one `as_of`."""

    as_of: datetime
    from_day: str
    to_day: str
    start_day: str | None  # None: the window lies before the ledger's first row
    days: tuple[DaySpan, ...]  # those with rows, late ones first
    late_days: tuple[str, ...]
    odd_days: frozenset[str]
    refused: tuple[RefusedRow, ...]
    undated: int
    not_rebuilt: tuple[Untouched, ...]

    @property
    def refused_accounts(self) -> list[str]:
        """The accounts that are not written."""
        return accounts_of(self.refused)

    def outcome(self, timezone: str) -> Rebuilt:
        """What this plan comes to, before anything is counted."""
        return Rebuilt(
            from_day=self.from_day,
            to_day=self.to_day,
            timezone=timezone,
            as_of=self.as_of,
            late_days=self.late_days,
            refused_rows=self.refused,
            undated=self.undated,
            not_rebuilt=self.not_rebuilt,
        )

    @property
    def conditions(self) -> list[dict[str, object]]:
        """The rebuilt days, as conditions on a summary's day."""
        found: list[dict[str, object]] = []
        if self.start_day is not None:
            found.append({"$gte": self.start_day, "$lte": self.to_day})
        if self.late_days:
            found.append({"$in": list(self.late_days)})
        return found


def rebuild(
    stores: Stores,
    request: Request,
    *,
    stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
    pause: Callable[[], None] = lambda: None,
) -> Rebuilt:
    """Overwrite the summaries of a window from the ledger, and of days with late rows.

    Never two at once (LeaseHeld); a figure whose `as_of` is later stays. Source: contract,
    section 3, summary rebuild; domain, section 5. `pause` runs between reading `as_of` and
    computing, for tests.
    """
    began = time.monotonic()
    with hold(stores) as lease:
        mark = mark_of(stores)
        with stores.summaries.session() as session:
            plan = make_plan(stores, request, mark, session)
            pause()
            rebuilt = apply(stores, request, plan, session, stopping, lease.lost, progress)
        if request.moves_mark and not rebuilt.days_left and (mark is None or not plan.refused):
            # An account that was refused still has its late rows before it: the mark waits.
            stores.leases.note(lease, {MARK: plan.as_of})
    rebuilt.duration_s = seconds_since(began)
    return rebuilt


def seconds_since(began: float) -> Decimal:
    """Seconds since a reading of the monotonic clock, to milliseconds."""
    return Decimal(round((time.monotonic() - began) * 1000)) / 1000


def hold(stores: Stores) -> AbstractContextManager[Lease]:
    """The lease that keeps two rebuilds apart; taken over when its holder died."""
    return stores.leases.held(
        LEASE,
        operator=stores.settings.operator,
        term=LEASE_TERM,
        renew_every=LEASE_RENEWED_EVERY,
    )


def mark_of(stores: Stores) -> datetime | None:
    """When the last full rebuild of the default window began; None before the first."""
    found = (stores.leases.holder(LEASE) or {}).get(MARK)
    return found if isinstance(found, datetime) else None


def preview(stores: Stores, request: Request) -> Rebuilt:
    """What a rebuild would change; takes no lease, writes nothing."""
    began = time.monotonic()
    zone = stores.settings.zone
    with stores.summaries.session() as session:
        plan = make_plan(stores, request, mark_of(stores), session)
        days = set(plan.late_days) | {span.day for span in plan.days}
        if plan.start_day is not None:
            days |= stores.summaries.days_with_summaries(
                plan.start_day, plan.to_day, request.accounts
            )
        found = [
            one
            for day in sorted(days)
            for one in differing(stores, span_of(day, zone), request.accounts, REBUILT)[1]
            if one.account_id not in plan.refused_accounts
        ]
    written = [one for one in found if one.ledger is not None]
    rebuilt = plan.outcome(stores.settings.timezone)
    rebuilt.accounts = len({one.account_id for one in written})
    rebuilt.days_written = len(written)
    rebuilt.days_cleared = len(found) - len(written)
    rebuilt.rows = sum(one.ledger.rows or 0 for one in written if one.ledger is not None)
    rebuilt.duration_s = seconds_since(began)
    rebuilt.differences = found
    return rebuilt


def make_plan(
    stores: Stores, request: Request, mark: datetime | None, session: "ClientSession"
) -> Plan:
    """Read the server's time first, then what there is to do."""
    summaries, zone = stores.summaries, stores.settings.zone
    as_of = summaries.now(session)
    from_day, to_day = request.window.resolve(as_of, zone)
    recorded = Recorded(day_bounds(from_day, zone)[0], day_bounds(to_day, zone)[1])
    ends = summaries.first_and_last(session)
    first, last = (None, None) if ends is None else (day_of(one, zone) for one in ends)
    late: list[str] = []
    if request.late and request.window.explicit is None and mark is not None:
        late = late_days(stores, mark - LATE_MARGIN, from_day, request.account, session)
    start = None if first is None or first > to_day else max(first, from_day)
    days = [span_of(day, zone) for day in late]
    if start is not None:
        days += days_with_rows(stores, start, to_day, session)
    undated = summaries.undated_rows(recorded, request.accounts, session)

    def look(span: DaySpan, own: "ClientSession") -> OddRows:
        return summaries.odd_rows(span, recorded, request.accounts, own)

    odd = side_by_side(stores, days, look, after=session)
    return Plan(
        as_of=as_of,
        from_day=from_day,
        to_day=to_day,
        start_day=start,
        days=tuple(days),
        late_days=tuple(late),
        odd_days=frozenset(span.day for span, one in odd.items() if one.usable),
        refused=tuple(
            {row.account_id: row for one in (undated, *odd.values()) for row in one.recent}.values()
        ),
        undated=undated.others + sum(one.others for one in odd.values()),
        not_rebuilt=tuple(untouched(from_day, to_day, first=first, last=last, late=late)),
    )


def late_days(
    stores: Stores, since: datetime, from_day: str, account: str | None, session: "ClientSession"
) -> list[str]:
    """The days before the window that have rows recorded since then."""
    zone = stores.settings.zone
    before = day_bounds(from_day, zone)[0]
    spans = stores.summaries.late_spans(since, before, account, session)
    # An hour touches two days at most, and then its first and last row name both.
    return sorted({day_of(moment, zone) for span in spans for moment in span})


def days_with_rows(
    stores: Stores, from_day: str, to_day: str, session: "ClientSession"
) -> list[DaySpan]:
    """The days of a range that have rows which count; empty ones cost nothing."""
    zone = stores.settings.zone
    at, end = day_bounds(from_day, zone)[0], day_bounds(to_day, zone)[1]
    found: list[DaySpan] = []
    while at < end:
        row_at = stores.summaries.next_row_at(at, end, session)
        if row_at is None:
            break
        found.append(span_of(day_of(row_at, zone), zone))
        at = found[-1].end
    return found


def span_of(day: str, zone: ZoneInfo) -> DaySpan:
    """A day as instants: 23, 24 or 25 hours, mostly."""
    start, end = day_bounds(day, zone)
    return DaySpan(day, start, end)


def apply(
    stores: Stores,
    request: Request,
    plan: Plan,
    session: "ClientSession",
    stopping: Callable[[], bool],
    lost: Event,
    progress: Callable[[str], None],
) -> Rebuilt:
    """Write the days of a plan, one at a time and each whole, then clear what has no rows."""
    summaries, timezone = stores.summaries, stores.settings.timezone
    refused = plan.refused_accounts

    def write(span: DaySpan, own: "ClientSession") -> bool:
        shape = summaries.shape(span, odd=span.day in plan.odd_days, session=own)
        summaries.merge_day(
            span,
            timezone=timezone,
            as_of=plan.as_of,
            shape=shape,
            accounts=request.accounts,
            refused=refused,
            session=own,
        )
        progress(f"{span.day} written")
        return True

    done = side_by_side(
        stores,
        plan.days,
        write,
        after=session,
        stopping=lambda: stopping() or lost.is_set(),
        changing=True,
    )
    left = tuple(span.day for span in plan.days if span not in done)
    if lost.is_set():
        raise LeaseHeld(
            f"the lease {LEASE!r} was lost midway: {len(done)} of {len(plan.days)} days are written",
            hint="another run goes on; what this one wrote is right",
        )
    rebuilt = plan.outcome(timezone)
    rebuilt.days_left = left
    if not left:
        for condition in plan.conditions:
            rebuilt.days_cleared += summaries.clear(
                condition,
                timezone=timezone,
                as_of=plan.as_of,
                accounts=request.accounts,
                refused=refused,
                session=session,
            )
    count(rebuilt, [summaries.written_at(one, plan.as_of, session) for one in plan.conditions])
    return rebuilt


def count(rebuilt: Rebuilt, written: Sequence[Written]) -> None:
    """Take the counts of what stands written at the plan's `as_of`."""
    rebuilt.accounts = len(frozenset().union(*(one.accounts for one in written)))
    rebuilt.days_written = sum(one.days for one in written)
    rebuilt.rows = sum(one.rows for one in written)


def side_by_side(
    stores: Stores,
    days: Sequence[DaySpan],
    work: "Callable[[DaySpan, ClientSession], T]",
    *,
    after: "ClientSession",
    stopping: Callable[[], bool] = lambda: False,
    changing: bool = False,
) -> "dict[DaySpan, T]":
    """Do each day's work, two at once, each in its own session that has seen what `after` saw.

    Days that had not begun when `stopping` said so are left out. Trouble ends it after the days in
    hand: PartlyDone when something was changed before, else as it came.
    """
    trouble: list[LedgerctlError] = []
    done: dict[DaySpan, T] = {}

    def one(span: DaySpan) -> None:
        if trouble or stopping():
            return
        try:
            with stores.summaries.session(after) as session:
                done[span] = work(span, session)
        except LedgerctlError as error:
            trouble.append(error)

    with ThreadPoolExecutor(DAYS_AT_ONCE) as pool:
        list(pool.map(one, days))
    if trouble:
        raise trouble_after(trouble[0], [span.day for span in done] if changing else [])
    return done


def trouble_after(error: LedgerctlError, days: Sequence[str]) -> LedgerctlError:
    """The error as it is, or, after the first change, one that says what was done."""
    if not days or error.exit_code != ExitCode.UNAVAILABLE:
        return error
    return PartlyDone(
        f"{error.message}; written before: {', '.join(sorted(days))}",
        hint="run it again: a second run is safe",
    )


# consumers


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What became of some (account, day) pairs."""

    as_of: datetime
    written: int
    refused: tuple[tuple[str, str], ...] = ()  # pairs left alone: a row of theirs cannot be summed


def recompute_days(
    stores: Stores, pairs: Iterable[tuple[str, str]], session: "ClientSession | None" = None
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


@dataclass(frozen=True, slots=True)
class _Day:
    documents: list[Document]
    empty: list[str]  # ids of summaries without rows
    refused: list[tuple[str, str]]


def _recompute(stores: Stores, day: str, accounts: Sequence[str], session: "ClientSession") -> _Day:
    summaries = stores.summaries
    span = span_of(day, stores.settings.zone)
    odd = summaries.odd_rows(span, Recorded(EARLIEST, LATEST), accounts, session)
    refused = {row.account_id for row in odd.recent}
    names = [account for account in accounts if account not in refused]
    found = summaries.day_figures(
        span,
        names,
        timezone=stores.settings.timezone,
        shape=summaries.shape(span, odd=odd.usable > 0, session=session),
        session=session,
    )
    ids = [f"{account}:{day}" for account in names]
    return _Day(
        [found[one] for one in ids if one in found],
        [one for one in ids if one not in found],
        [(account, day) for account in accounts if account in refused],
    )


def _overwrite(
    stores: Stores, days: Sequence[_Day], as_of: datetime, session: "ClientSession"
) -> Recomputed:
    summaries = stores.summaries
    written = summaries.overwrite(
        [document for day in days for document in day.documents], as_of=as_of, session=session
    )
    written += summaries.zero(
        [one for day in days for one in day.empty],
        timezone=stores.settings.timezone,
        as_of=as_of,
        session=session,
    )
    return Recomputed(as_of, written, tuple(pair for day in days for pair in day.refused))


# comparing and showing


def drift(stores: Stores, days: Window, account: str | None = None) -> Drift:
    """Compare summaries with the ledger; a day without rows and without figures is no drift."""
    zone = stores.settings.zone
    accounts = None if account is None else [account]
    with stores.summaries.session() as session:
        from_day, to_day = days.resolve(stores.summaries.now(session), zone)
        with_rows = {span.day for span in days_with_rows(stores, from_day, to_day, session)}
    with_rows |= stores.summaries.days_with_summaries(from_day, to_day, accounts)
    compared, drifted, unusable = 0, [], 0
    for day in sorted(with_rows):
        pairs, found, left_out = differing(stores, span_of(day, zone), accounts, COMPARED)
        compared += pairs
        drifted += found
        unusable += left_out
    drifted.sort(key=lambda one: (one.account_id, one.day))
    return Drift(from_day, to_day, stores.settings.timezone, compared, drifted, unusable)


def differing(
    stores: Stores, span: DaySpan, accounts: Sequence[str] | None, names: Sequence[str]
) -> tuple[int, list[Difference], int]:
    """The pairs of one day, those whose figures differ, and the rows that cannot be summed."""
    summaries = stores.summaries
    with summaries.session() as session:
        odd = summaries.odd_rows(span, Recorded(EARLIEST, LATEST), accounts, session)
        shape = summaries.shape(span, odd=odd.usable > 0, session=session, jobs="jobs" in names)
    pairs, found = summaries.compare(
        span, timezone=stores.settings.timezone, shape=shape, accounts=accounts, names=names
    )
    return pairs, found, odd.others + sum(row.rows for row in odd.recent)


def show(stores: Stores, account: str, days: Window) -> Shown:
    """The summaries of an account, as they stand. Raises NotFound for an unknown account."""
    from_day, to_day = days.resolve(stores.mongo.now(), stores.settings.zone)
    found = stores.summaries.of_account(account, from_day, to_day)
    if not found:
        require_account(stores, account)
    return Shown(account, from_day, to_day, stores.settings.timezone, found)
