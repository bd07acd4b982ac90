"""Rebuild daily summaries: one run at a time, from the ledger, never over a later figure."""

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from ledgerctl.domain.days import day_bounds, day_of
from ledgerctl.domain.summary import (
    DaySpan,
    Difference,
    Rebuilt,
    RefusedRow,
    Untouched,
    accounts_of,
    refusals,
    untouched,
)
from ledgerctl.errors import LeaseHeld, LedgerctlError, OutcomeUnknown
from ledgerctl.operations.summaries import (
    REBUILT,
    Window,
    days_with_rows,
    differing,
    require_known,
    span_of,
)
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.daily_rows import OddRows, Recorded
from ledgerctl.stores.leases import Lease
from ledgerctl.stores.summaries import Rule

T = TypeVar("T")

LEASE = "summary-rebuild"
LEASE_TERM = timedelta(seconds=15)
LEASE_RENEWED_EVERY = timedelta(seconds=4)
MARK = "full_rebuild_began_at"  # kept in the lease's document
LATE_MARGIN = timedelta(hours=1)
DAYS_AT_ONCE = 2  # days computed side by side, each in a session of its own


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """Describe what to rebuild."""

    window: Window = field(default_factory=Window)
    account: str | None = None
    late: bool = True

    @property
    def moves_mark(self) -> bool:
        """Return whether later runs may count late rows from this one on."""
        return self.window.is_default and self.account is None and self.late

    @property
    def accounts(self) -> list[str] | None:
        """Return the one account, or None for all."""
        return None if self.account is None else [self.account]


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """Describe what a rebuild is about to do, read from the ledger at one `as_of`."""

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
        """Return the accounts that are not written."""
        return accounts_of(self.refused)

    def rule(self, stores: Stores, request: "RebuildRequest") -> Rule:
        """Return how its summaries are written."""
        return Rule(stores.settings.timezone, self.as_of, request.accounts, self.refused_accounts)

    def may_overwrite(self, one: Difference) -> bool:
        """Return whether the stored figure's `as_of` is absent or earlier: a later one stays."""
        return one.as_of is None or one.as_of < self.as_of

    def outcome(self, timezone: str) -> Rebuilt:
        """Return what this plan comes to, before anything is counted."""
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
        """Return the rebuilt days, as conditions on a summary's day."""
        found: list[dict[str, object]] = []
        if self.start_day is not None:
            found.append({"$gte": self.start_day, "$lte": self.to_day})
        if self.late_days:
            found.append({"$in": list(self.late_days)})
        return found


def rebuild(
    stores: Stores,
    request: RebuildRequest,
    *,
    stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
    begun: Callable[[Rebuilt], None] = lambda _: None,
) -> Rebuilt:
    """Overwrite the summaries of a window from the ledger, and of days with late rows.

    `begun` gets the outcome before the first write; it is kept true while days are written.

    Never two at once (LeaseHeld); a figure whose `as_of` is later stays. Source: contract,
    section 3, summary rebuild; domain, section 5.
    """
    began = time.monotonic()
    with hold(stores) as lease:
        mark = mark_of(stores)
        rebuilt = overwrite(
            stores,
            request,
            mark,
            stopping=lambda: stopping() or lease.is_lost(),
            progress=progress,
            begun=begun,
        )
        if lease.is_lost():
            raise LeaseHeld(
                f"the lease {LEASE!r} was lost midway: {len(rebuilt.days_left)} days are left",
                hint="another run goes on; what this one wrote is right",
            )
        waiting = mark and any(not row.lasting for row in rebuilt.refused_rows)
        if request.moves_mark and not rebuilt.days_left and not waiting:
            # An account that was refused still has its late rows before it: the mark waits.
            stores.leases.note(lease, {MARK: rebuilt.as_of})
    rebuilt.duration_s = seconds_since(began)
    return rebuilt


def overwrite(
    stores: Stores,
    request: RebuildRequest,
    mark: datetime | None = None,
    *,
    stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
    pause: Callable[[], None] = lambda: None,
    begun: Callable[[Rebuilt], None] = lambda _: None,
) -> Rebuilt:
    """Rebuild without the lease: right beside any other, by the rule of `as_of` alone.

    `mark` is when the last full rebuild began. `pause` runs between reading `as_of` and the
    figures, for tests of that rule.
    """
    request = known(stores, request)
    with stores.summaries.session() as session:
        plan = make_plan(stores, request, mark, session)
        pause()
        rebuilt = plan.outcome(stores.settings.timezone)
        begun(rebuilt)
        carry_out(stores, request, plan, rebuilt, session, stopping, progress)
        return rebuilt


def seconds_since(began: float) -> Decimal:
    """Seconds since a reading of the monotonic clock, to milliseconds."""
    return Decimal(round((time.monotonic() - began) * 1000)) / 1000


def hold(stores: Stores) -> AbstractContextManager[Lease]:
    """Return the lease that keeps two rebuilds apart; taken over when its holder died."""
    return stores.leases.held(
        LEASE,
        operator=stores.settings.operator,
        term=LEASE_TERM,
        renew_every=LEASE_RENEWED_EVERY,
    )


def mark_of(stores: Stores) -> datetime | None:
    """Return when the last full rebuild of the default window began; None before the first."""
    found = (stores.leases.holder(LEASE) or {}).get(MARK)
    return found if isinstance(found, datetime) else None


def preview(stores: Stores, request: RebuildRequest) -> Rebuilt:
    """Return what a rebuild would change; takes no lease, writes nothing."""
    began = time.monotonic()
    zone = stores.settings.zone
    request = known(stores, request)
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
            if one.account_id not in plan.refused_accounts and plan.may_overwrite(one)
        ]
    found.sort(key=lambda one: (one.account_id, one.day))
    written = [one for one in found if one.ledger is not None]
    rebuilt = plan.outcome(stores.settings.timezone)
    rebuilt.accounts = len({one.account_id for one in written})
    rebuilt.days_written = len(written)
    rebuilt.days_cleared = len(found) - len(written)
    rebuilt.rows = sum(one.ledger.rows or 0 for one in written if one.ledger is not None)
    rebuilt.duration_s = seconds_since(began)
    rebuilt.differences = found
    return rebuilt


def known(stores: Stores, request: RebuildRequest) -> RebuildRequest:
    """Return the request with its account as stored. Raises NotFound for no account."""
    if request.account is None:
        return request
    return replace(request, account=require_known(stores, request.account))


def make_plan(
    stores: Stores, request: RebuildRequest, mark: datetime | None, session: Any
) -> RebuildPlan:
    """Read the server's time first, then what there is to do."""
    summaries, zone = stores.summaries, stores.settings.zone
    as_of = summaries.now(session)
    from_day, to_day = request.window.resolve(as_of, zone)
    recorded = Recorded(day_bounds(from_day, zone)[0], day_bounds(to_day, zone)[1])
    ends = stores.daily_rows.first_and_last(session)
    first, last = (None, None) if ends is None else (day_of(one, zone) for one in ends)
    late: list[str] = []
    if request.late and request.window.explicit is None and mark is not None:
        late = late_days(stores, mark - LATE_MARGIN, from_day, request.account, session)
    start = None if first is None or first > to_day else max(first, from_day)
    days = [span_of(day, zone) for day in late]
    if start is not None:
        days += days_with_rows(stores, start, to_day, session)
    odd = odd_by_day(stores, days, recorded, request.accounts, session)
    undated = stores.daily_rows.undated_rows(recorded, request.accounts, session)
    strayed = stores.daily_rows.strayed_rows(recorded, request.accounts, session)
    # What refuses an account on a late day has strayed: recorded in the window, dated before it.
    inside = [one for span, one in odd.items() if span.day not in late]
    return RebuildPlan(
        as_of=as_of,
        from_day=from_day,
        to_day=to_day,
        start_day=start,
        days=tuple(days),
        late_days=tuple(late),
        odd_days=frozenset(span.day for span, one in odd.items() if one.usable),
        refused=refusals(
            [
                *(row for one in odd.values() for row in one.no_ids),
                *(row for one in (*inside, undated, strayed) for row in one.recent),
            ]
        ),
        undated=sum(one.others for one in (*odd.values(), undated, strayed)),
        not_rebuilt=tuple(untouched(from_day, to_day, first=first, last=last, late=late)),
    )


def odd_by_day(
    stores: Stores,
    days: Sequence[DaySpan],
    recorded: Recorded,
    accounts: Sequence[str] | None,
    session: Any,
) -> dict[DaySpan, OddRows]:
    """Return what each day holds that cannot simply be summed."""

    def look(span: DaySpan, own: Any) -> OddRows:
        return stores.daily_rows.odd_rows(span, recorded, accounts, own)

    return side_by_side(stores, days, look, {}, after=session)


def late_days(
    stores: Stores, since: datetime, from_day: str, account: str | None, session: Any
) -> list[str]:
    """Return the days before the window that have rows recorded since then."""
    zone = stores.settings.zone
    before = day_bounds(from_day, zone)[0]
    spans = stores.daily_rows.late_spans(since, before, account, session)
    # An hour touches two days at most, and then its first and last row name both.
    return sorted({day_of(moment, zone) for span in spans for moment in span})


def carry_out(
    stores: Stores,
    request: RebuildRequest,
    plan: RebuildPlan,
    rebuilt: Rebuilt,
    session: Any,
    stopping: Callable[[], bool],
    progress: Callable[[str], None],
) -> None:
    """Write the days of a plan, each whole, then clear what has no rows, then count.

    After an error the counts are taken all the same; what the store no longer tells stays None.
    """
    summaries, rule = stores.summaries, plan.rule(stores, request)

    def write(span: DaySpan, own: Any) -> None:
        odd = span.day in plan.odd_days
        shape = stores.daily_rows.shape(span, odd=odd, session=own)
        summaries.merge_day(span, rule, shape, own)
        progress(f"{span.day} written")

    done: dict[DaySpan, None] = {}
    try:
        side_by_side(stores, plan.days, write, done, after=session, stopping=stopping)
    except LedgerctlError:
        rebuilt.days_left = days_left(plan, done)
        with suppress(LedgerctlError):  # the first error is the one to report
            count_written(stores, plan, rebuilt, session)
        raise
    rebuilt.days_left = days_left(plan, done)
    if not rebuilt.days_left:
        rebuilt.days_cleared = sum(
            summaries.clear(condition, rule, session) for condition in plan.conditions
        )
    count_written(stores, plan, rebuilt, session)


def days_left(plan: RebuildPlan, done: Collection[DaySpan]) -> tuple[str, ...]:
    """Name the days of a plan that were not written."""
    return tuple(span.day for span in plan.days if span not in done)


def count_written(stores: Stores, plan: RebuildPlan, rebuilt: Rebuilt, session: Any) -> None:
    """Count what stands with this run's `as_of`."""
    written = [stores.summaries.written_at(one, plan.as_of, session) for one in plan.conditions]
    rebuilt.accounts = len(frozenset().union(*(one.accounts for one in written)))
    rebuilt.days_written = sum(one.days for one in written)
    rebuilt.rows = sum(one.rows for one in written)


def side_by_side(
    stores: Stores,
    days: Sequence[DaySpan],
    work: Callable[[DaySpan, Any], T],
    done: dict[DaySpan, T],
    *,
    after: Any,
    stopping: Callable[[], bool] = lambda: False,
) -> dict[DaySpan, T]:
    """Fill in `done` by each day's work, two at once, each in a session that has seen what `after` saw.

    Days that had not begun when `stopping` said so are left out. An error ends it after the days
    in hand; OutcomeUnknown, if any is, hides the others.
    """
    trouble: list[LedgerctlError] = []

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
        unknown = (error for error in trouble if isinstance(error, OutcomeUnknown))
        raise next(unknown, trouble[0])
    return done
