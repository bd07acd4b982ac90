"""Summaries: what a rebuild did, how far they drifted, and an account's days."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from ledgerctl.domain.drift import Cause, Explanation
from ledgerctl.domain.summary import (
    AccountSummaries,
    DayFigures,
    Difference,
    Drift,
    Figures,
    Rebuilt,
)
from ledgerctl.domain.times import format_time
from ledgerctl.errors import ExitCode
from ledgerctl.render.report import STREAMED, Column, Record, Report, columns, members, record
from ledgerctl.render.text import rows

REBUILT_COLUMNS = columns(
    "from to timezone accounts days_written days_cleared rows as_of late_days refused undated",
    "duration_s",
)
CHANGE_COLUMNS = columns("account_id day change net_before net_after")
DRIFT_COLUMNS = columns("account_id day summary ledger ratio missing", spare="missing")
WHY_COLUMNS = columns(*DRIFT_COLUMNS, "cause detail")
DAY_COLUMNS = columns("day charged refunded reclaimed net jobs rows as_of", spare="as_of")
UNTOUCHED_COLUMNS = columns("from to why")
WHO_ADDS = "`ledgerctl inbox audit` looks for a consumer that adds up"
BAR_WIDTH = 16  # columns of the longest bar


def rebuilt(done: Rebuilt) -> Report:
    """Return what a rebuild did, and as plainly what it did not."""
    document = rebuilt_document(done)
    sections = []
    if done.not_rebuilt:
        untouched: list[Record] = document["not_rebuilt"]
        sections.append(Report(UNTOUCHED_COLUMNS, untouched, head=("Left as they were:",)))
    if done.differences is not None:
        sections.insert(0, changes(document["items"]))
    return record(
        document,
        columns=REBUILT_COLUMNS,
        notes=list(remarks(done)),
        foot=(counts(done),),
        sections=sections,
    )


def changes(items: Sequence[Record]) -> Report:
    """Return the differences that a dry run found."""
    head = "Would change:" if items else "Nothing would change."
    return Report(CHANGE_COLUMNS, items, head=(head,), empty=head)


def rebuilt_document(done: Rebuilt) -> dict[str, Any]:
    """Return the document of a rebuild. Source: contract, section 3, summary rebuild."""
    document: dict[str, Any] = {
        "from": done.from_day,
        "to": done.to_day,
        "timezone": done.timezone,
        "accounts": done.accounts,
        "days_written": done.days_written,
        "days_cleared": done.days_cleared,
        "rows": done.rows,
        "as_of": done.as_of,
        "late_days": list(done.late_days),
        "refused": done.refused,
        "refused_rows": [members(row, "account_id row_id rows why") for row in done.refused_rows],
        "undated": done.undated,
        "not_rebuilt": [
            {"from": one.from_day, "to": one.to_day, "why": one.why} for one in done.not_rebuilt
        ],
        "duration_s": done.duration_s,
    }
    if done.days_left:
        document["days_left"] = list(done.days_left)
    if done.differences is not None:
        document["items"] = [change(one) for one in done.differences]
    return document


def change(one: Difference) -> Record:
    """Return one difference of a dry run."""
    return {
        "account_id": one.account_id,
        "day": one.day,
        "change": "clear" if one.ledger is None else "write",
        "net_before": None if one.missing else one.summary_net,
        "net_after": one.ledger_net,
        "before": figures(one.summary),
        "after": figures(one.ledger),
    }


def figures(found: Figures | None) -> Record | None:
    """Figures under their document names."""
    if found is None:
        return None
    return members(found, "charged refunded reclaimed net jobs rows")


def counts(done: Rebuilt) -> str:
    """Return the counts in one line."""
    written = "an unknown number of" if done.days_written is None else done.days_written
    return (
        f"{written} summaries written, {done.days_cleared} cleared,"
        f" {len(done.late_days)} late days, {len(done.refused)} accounts refused"
    )


def remarks(done: Rebuilt) -> Iterator[str]:
    """Yield what a reader has to know besides the counts."""
    for row in done.refused_rows:
        others = f" (and {row.rows - 1} more)" if row.rows > 1 else ""
        yield f"{row.account_id} is not written: row {row.row_id}{others}: {row.why}"
    if done.undated:
        enter = "enters" if done.undated == 1 else "enter"
        yield f"{rows(done.undated)} without a usable date or amount {enter} no summary"


def drift(found: Drift, *, why: bool = False) -> Report:
    """List the summaries that are not what the ledger says; with `why` each with its cause."""
    worst = found.worst
    notes = other_zones([one.timezone for one in found.drifted], found)
    if found.unusable_rows:
        notes.append(f"{rows(found.unusable_rows)} left out: no sum can hold the amount")
    notes += [f"{one} gets no summary: it is no account id" for one in found.unsummarised]
    causes = ", ".join(f"{cause} {count}" for cause, count in found.causes.items())
    return Report(
        columns=WHY_COLUMNS if why else DRIFT_COLUMNS,
        records=[drifted(one) for one in found.drifted],
        document={
            "from": found.from_day,
            "to": found.to_day,
            "timezone": found.timezone,
            "days_compared": found.days_compared,
            "drifted": STREAMED,
            "worst": None if worst is None else drifted(worst),
            "unusable_rows": found.unusable_rows,
            "unsummarised": found.unsummarised,
            **({"causes": found.causes} if why else {}),
        },
        items_key="drifted",
        foot=(
            f"{len(found.drifted)} of {found.days_compared} summaries differ,"
            f" {found.from_day} to {found.to_day} ({found.timezone}){causes and f': {causes}'}",
        ),
        notes=notes,
        exit_code=int(ExitCode.FOUND if found.found else ExitCode.DONE),
        empty=f"{found.days_compared} summaries compared, none differs.",
    )


def drifted(one: Difference) -> Record:
    """Return one drifted summary. Source: contract, section 3, summary drift."""
    return {
        "account_id": one.account_id,
        "day": one.day,
        "summary": one.summary_net,
        "ledger": one.ledger_net,
        "ratio": one.ratio,
        "missing": one.missing,
        "summary_figures": compared(one.summary),
        "ledger_figures": compared(one.ledger),
        "summary_timezone": one.timezone,
        **(
            {} if one.why is None else {"cause": str(one.why.cause), "detail": detail(one, one.why)}
        ),
    }


def detail(one: Difference, why: Explanation) -> str:
    """Say what happened to a summary, and which command heals it."""
    rebuild = "`ledgerctl summary rebuild`"
    heal = f"the next {rebuild} heals it"
    if why.outside:
        rebuild = f"`ledgerctl summary rebuild --from {one.day} --to {one.day}`"
        heal = f"the day lies outside the window of a plain rebuild, {rebuild} heals it"
    return f"{happened(one, why)}; {heal}"


def happened(one: Difference, why: Explanation) -> str:
    """Say what makes the summary differ."""
    as_of = format_time(one.as_of)
    match why.cause:
        case Cause.MISSING_SUMMARY:
            return "no summary is stored"
        case Cause.OTHER_ZONE:
            return f"computed for the day of {why.zone}"
        case Cause.PARTIAL_DAY:
            return f"computed at {as_of}, before the day was over"
        case Cause.LATE_ROWS:
            return f"rows of the day were recorded after {as_of}, when it was computed"
        case Cause.ADDED_AGAIN if why.row_ids:
            return f"row {' and row '.join(why.row_ids)} was added again: {WHO_ADDS}"
        case Cause.ADDED_AGAIN:
            return f"added again: every figure is {why.times} times the ledger's; {WHO_ADDS}"
        case Cause.UNKNOWN:
            return "no known cause explains every figure"


def compared(found: Figures | None) -> Record | None:
    """Figures without their count of jobs, which a comparison of sums does not make."""
    counted = figures(found)
    return counted and {name: value for name, value in counted.items() if name != "jobs"}


def shown(found: AccountSummaries, *, bars: bool) -> Report:
    """Return an account's figures a day; with a bar of the net beside them on a terminal."""
    records = [day_record(one) for one in found.days]
    columns: tuple[Column, ...] = DAY_COLUMNS
    if bars:
        largest = max((abs(one.figures.net or 0) for one in found.days), default=0)
        for row, one in zip(records, found.days, strict=True):
            row["bar"] = bar(one.figures.net or 0, largest)
        columns = (*DAY_COLUMNS, Column("bar"))
    return Report(
        columns=columns,
        records=records,
        document={
            "account_id": found.account_id,
            "from": found.from_day,
            "to": found.to_day,
            "timezone": found.timezone,
            "days": STREAMED,
            "total_net": sum(one.figures.net or 0 for one in found.days),
        },
        items_key="days",
        head=(f"{found.account_id}, {found.from_day} to {found.to_day} ({found.timezone})",),
        notes=other_zones([one.timezone for one in found.days], found),
        empty="No summaries.",
    )


def other_zones(made_by: Iterable[str | None], asked: Drift | AccountSummaries) -> list[str]:
    """Return what to say of summaries that were made by another day zone than the one set now."""
    others = [zone for zone in made_by if zone is not None and zone != asked.timezone]
    if not others:
        return []
    return [
        f"{len(others)} of these are of days of {', '.join(sorted(set(others)))}, not of"
        f" {asked.timezone}; `ledgerctl summary rebuild --from {asked.from_day} --to"
        f" {asked.to_day}` makes them anew"
    ]


def day_record(one: DayFigures) -> dict[str, Any]:
    """Return a day's figures under their document names."""
    return {
        "day": one.day,
        **(figures(one.figures) or {}),
        "timezone": one.timezone,
        "as_of": one.as_of,
    }


def bar(net: int, largest: int) -> str:
    """Return a bar as long as the figure's share of the largest; minus signs below zero."""
    length = 0 if largest == 0 else -(-abs(net) * BAR_WIDTH // largest)
    return ("-" if net < 0 else "#") * length


METRICS: tuple[tuple[str, str], ...] = (
    ("last_success_timestamp_seconds", "When summaries were last rebuilt, by the server's clock."),
    ("duration_seconds", "How long the last rebuild took."),
    ("rows", "Ledger rows in the summaries that the last rebuild wrote."),
    ("days_written", "Summaries, one an account and day, that the last rebuild wrote."),
    ("days_cleared", "Summaries without rows that the last rebuild set to zero."),
    ("late_days", "Days before the window that the last rebuild took for their late rows."),
    ("refused_accounts", "Accounts not written because of a row that cannot be summed."),
)


def metrics(done: Rebuilt, finished_at: datetime) -> str:
    """Return the rebuild's figures as Prometheus text, one gauge each."""
    values: Iterable[object] = (
        Decimal(round(finished_at.timestamp() * 1000)) / 1000,
        done.duration_s,
        done.rows,
        done.days_written,
        done.days_cleared,
        len(done.late_days),
        len(done.refused),
    )
    lines = []
    for (name, text), value in zip(METRICS, values, strict=True):
        whole = f"ledgerctl_summary_rebuild_{name}"
        lines += [f"# HELP {whole} {text}", f"# TYPE {whole} gauge", f"{whole} {value}"]
    return "\n".join(lines) + "\n"
