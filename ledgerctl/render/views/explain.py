"""A story of a balance as a report: its document, its records, and its text in three formats."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from ledgerctl.domain.audit import Finding
from ledgerctl.domain.explain import JobStory, Line, Period, Story, job_words, oddity, signed
from ledgerctl.render.as_html import page
from ledgerctl.render.as_markdown import markdown
from ledgerctl.render.chart import blocks
from ledgerctl.render.report import Column, Kind, Record, Report
from ledgerctl.render.text import command_words
from ledgerctl.render.views.balance import REPLAY_COLUMNS, found_code, unusable_record
from ledgerctl.render.views.job import amount_value
from ledgerctl.render.words import (
    figures,
    heading,
    job_heading,
    period_words,
    remarks,
)

COLUMNS = (*REPLAY_COLUMNS, Column("sentence"))
PERIOD_COLUMNS = (
    Column("period", kind=Kind.ID),
    Column("rows", kind=Kind.COUNT),
    Column("jobs", kind=Kind.COUNT),
    *(
        Column(name, kind=Kind.AMOUNT)
        for name in ("charged", "refunded", "reclaimed", "granted", "corrected", "other", "net", "balance")
    ),
)  # fmt: skip

Lines = Callable[[Story], Iterator[str]]


def explain(story: Story, *, format: str, chart: int = 0) -> Report:
    """The whole story; `format` is text, markdown or html, `chart` columns of blocks stand in the text."""
    lines = TEXTS[format](story)
    if format == "text" and chart:
        lines = with_chart(story, lines, width=chart)
    periods = [period_record(one) for one in story.book.periods()] if story.is_long else None
    records = periods if periods is not None else list(map(line_record, lines_of(story)))
    return Report(
        columns=PERIOD_COLUMNS if periods is not None else COLUMNS,
        records=records,
        document=document(story, periods),
        text=lines,
        exit_code=found_code(story.unusable),
        notes=remarks(story),
        is_prose=format == "text",
    )


def document(story: Story, periods: list[Record] | None) -> dict[str, Any]:
    """The story as one JSON document."""
    book = story.book
    found: dict[str, Any] = {
        "account_id": story.account_id,
        "job_id": story.job_id,
        "as_of": story.as_of,
        "timezone": str(story.zone),
        "from": story.since,
        "to": story.before,
        "opening_balance": book.opening,
        "closing_balance": book.closing,
        "balance": book.closing if story.account_balance is None else story.account_balance,
        "rows": book.rows,
        "by_type": dict(sorted(book.by_type.items())),
        "first_row_at": book.first_at,
        "last_row_at": book.last_at,
        "jobs": [job_record(job) for job in story.jobs],
        "other_rows": [line_record(line) for line in story.others],
        "periods": periods,
        "oddities": [oddity_record(one) for one in story.oddities],
        "oddities_total": story.oddities_total,
        "unusable_rows": [unusable_record(row) for row in story.unusable],
        "undated_left_out": story.undated_left_out,
        "future_rows": story.future_rows,
    }
    if story.account_balance is not None:
        found["net"] = book.closing
        found["other_rows_sum"] = story.account_balance - book.closing
    return found


def lines_of(story: Story) -> list[Line]:
    """Every row of the story, job by job, then those without a job."""
    return [*(line for job in story.jobs for line in job.lines), *story.others]


def line_record(line: Line) -> Record:
    """One row."""
    entry = line.entry
    return {
        "row_id": entry.row_id,
        "created_at": entry.created_at,
        "job_id": entry.job_id,
        "type": entry.type.value,
        "amount": amount_value(entry.amount),
        "balance": line.balance,
        "sentence": line.sentence,
    }


def job_record(job: JobStory) -> Record:
    """One job's story."""
    return {
        "job_id": job.job_id,
        "state": None if job.state is None else str(job.state),
        "status": job.status,
        "net": job.net,
        "expected_net": job.expected,
        "summary": job.ending,
        "rows": [line_record(line) for line in job.lines],
        "oddities": [oddity_record(one) for one in job.oddities],
    }


def oddity_record(one: Finding) -> Record:
    """One odd thing."""
    return {
        "code": str(one.code),
        "job_id": one.job_id,
        "sentence": oddity(one),
        "effect": one.effect,
        "command": command_words(one.remedy) if one.remedy else None,
        "detail": one.detail,
    }


def period_record(one: Period) -> Record:
    """One day or month."""
    return {
        "period": one.name,
        "rows": one.rows,
        "jobs": one.jobs,
        "charged": one.charged,
        "refunded": one.refunded,
        "reclaimed": one.reclaimed,
        "granted": one.granted,
        "corrected": one.corrected,
        "other": one.other,
        "net": one.net,
        "balance": one.balance,
    }


# text


def with_chart(story: Story, lines: Iterator[str], *, width: int) -> Iterator[str]:
    """The text with the balance over time below its heading."""
    yield next(lines)
    if drawn := blocks(story.book.points(), width=width):
        yield ""
        yield from drawn
    yield from lines


def text(story: Story) -> Iterator[str]:
    """The story in plain lines, to be read or pasted into a ticket."""
    yield heading(story)
    yield ""
    yield from aligned(figures(story))
    if story.is_long:
        yield from period_lines(story)
    if story.oddities:
        yield ""
        yield f"What is odd ({story.oddities_total}):"
        for one in story.oddities:
            yield f"  ! {oddity_text(one)}"
        if story.oddities_total > len(story.oddities):
            yield f"  ... and {story.oddities_total - len(story.oddities)} more: see `ledgerctl ledger audit`"
    if not story.is_long:
        yield from job_lines(story)
    if story.unusable:
        yield ""
        yield "Not in any sum:"
        for row in story.unusable:
            yield f"  {row.row_id} holds {row.amount}: {row.why}"


def oddity_text(one: Finding) -> str:
    """An odd thing and what heals it, on one line."""
    job = f"{job_words(one.job_id)}: " if one.job_id is not None else ""
    return f"{job}{odd(one)}"


def odd(one: Finding) -> str:
    """An odd thing and the command that heals it."""
    return oddity(one) + (f"; `{command_words(one.remedy)}`" if one.remedy else "")


def job_lines(story: Story) -> Iterator[str]:
    """A paragraph a job, then the rows without a job."""
    for job in story.jobs:
        yield ""
        yield f"{job_heading(job.job_id)}: {job.ending}"
        yield from line_lines(job.lines)
        for one in job.oddities:
            yield f"  ! {odd(one)}"
    if story.others:
        yield ""
        yield "Without a job:"
        yield from line_lines(story.others)


def line_lines(lines: tuple[Line, ...]) -> Iterator[str]:
    """The rows' sentences with amount and balance in front."""
    amounts = [
        signed(one.entry.amount) if isinstance(one.entry.amount, int) else "?" for one in lines
    ]
    widths = (
        max(map(len, amounts), default=0),
        max((len(str(one.balance)) for one in lines), default=0),
    )
    for amount, one in zip(amounts, lines, strict=True):
        yield f"  {amount:>{widths[0]}}  = {one.balance:>{widths[1]}}  {one.sentence}"


def period_lines(story: Story) -> Iterator[str]:
    """A table of days or months."""
    keys = [column.key for column in PERIOD_COLUMNS]
    table = [
        keys,
        *([str(period_record(one)[key]) for key in keys] for one in story.book.periods()),
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    yield ""
    yield period_words(story)
    for row in table:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  " + "  ".join([row[0].ljust(widths[0]), *cells])


def aligned(pairs: list[tuple[str, int]]) -> Iterator[str]:
    """Figures below each other, their last digits in one column."""
    wide = max((len(name) for name, _ in pairs), default=0)
    figures_wide = max((len(str(value)) for _, value in pairs), default=0)
    for name, value in pairs:
        yield f"  {name:<{wide}}  {value:>{figures_wide}}"


TEXTS: Final[dict[str, Lines]] = {"text": text, "markdown": markdown, "html": page}
