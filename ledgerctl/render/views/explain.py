"""Show a story of a balance as a report: its document, its records, and its text in three formats."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from ledgerctl.domain.explain import JobStory, Line, Period, Story, job_words, oddity, signed
from ledgerctl.domain.findings import Finding
from ledgerctl.render.as_html import page
from ledgerctl.render.as_markdown import markdown
from ledgerctl.render.chart import blocks
from ledgerctl.render.report import Column, Kind, Record, Report, members
from ledgerctl.render.statement import FORMATS, Statement
from ledgerctl.render.text import command_words
from ledgerctl.render.views.balance import REPLAY_COLUMNS, found_code, unusable_record
from ledgerctl.render.views.job import amount_value
from ledgerctl.render.words import (
    PERIOD_FIGURES,
    aligned,
    figures,
    heading,
    job_heading,
    period_words,
    remarks,
    right_words,
)

COLUMNS = (*REPLAY_COLUMNS, Column("sentence"))
PERIOD_COLUMNS = (
    Column("period", kind=Kind.ID),
    *(Column(name, kind=Kind.COUNT) for name in PERIOD_FIGURES[:2]),
    *(Column(name, kind=Kind.AMOUNT) for name in PERIOD_FIGURES[2:]),
)

Lines = Callable[[Story], Iterator[str]]


def explain(story: Story, *, format: str, chart: int = 0) -> Report:
    """Show the whole story; `format` is text, markdown or html, a text has `chart` columns of blocks."""
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


def statement(page: Statement, *, format: str) -> Report:
    """Show a statement for a customer; nothing internal is in it, nor in its notes."""
    return Report(columns=(), text=FORMATS[format](page), exit_code=found_code(page.story.unusable))


def document(story: Story, periods: list[Record] | None) -> dict[str, Any]:
    """Write the story as one JSON document."""
    book = story.book
    found: dict[str, Any] = {
        **members(story, "account_id job_id as_of"),
        "timezone": str(story.zone),
        "from": story.asked.since,
        "to": story.asked.before,
        "opening_balance": book.opening,
        "closing_balance": book.closing,
        "balance": book.closing if story.account_balance is None else story.account_balance,
        "off_by": story.off_by,
        "right_balance": story.right_balance if story.job_id is None else None,
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
    """List every row of the story, job by job, then those without a job."""
    return [*(line for job in story.jobs for line in job.lines), *story.others]


def line_record(line: Line) -> Record:
    """Write one row."""
    entry = line.entry
    return {
        **members(entry, "row_id created_at job_id"),
        "type": entry.type.value,
        "amount": amount_value(entry.amount),
        "balance": line.balance,
        "sentence": line.sentence,
    }


def job_record(job: JobStory) -> Record:
    """Write one job's story."""
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
    """Write one odd thing."""
    return {
        "code": str(one.code),
        "job_id": one.job_id,
        "sentence": oddity(one),
        "effect": one.effect,
        "command": command_words(one.remedy) if one.remedy else None,
        "detail": one.detail,
    }


def period_record(one: Period) -> Record:
    """Write one day or month."""
    return {"period": one.name, **{name: getattr(one, name) for name in PERIOD_FIGURES}}


# text


def with_chart(story: Story, lines: Iterator[str], *, width: int) -> Iterator[str]:
    """Add the balance over time below the heading."""
    yield next(lines)
    if drawn := blocks(story.book.points(), width=width, zone=story.zone):
        yield ""
        yield from drawn
    yield from lines


def text(story: Story) -> Iterator[str]:
    """Write the story in plain lines, to be read or pasted into a ticket."""
    yield heading(story)
    yield ""
    yield from aligned((name, str(value)) for name, value in figures(story))
    if said := right_words(story):
        yield f"  {said}"
    if story.is_long:
        yield from period_lines(story)
    yield from oddity_lines(story)
    if not story.is_long:
        yield from job_lines(story)
    if story.unusable:
        yield ""
        yield "Not in any sum:"
        for row in story.unusable:
            yield f"  {row.row_id} holds {row.amount}: {row.why}"


def oddity_lines(story: Story) -> Iterator[str]:
    """List what is odd about the account, as of now."""
    if not story.oddities:
        return
    yield ""
    yield f"What is odd ({story.oddities_total}):"
    for one in story.oddities:
        yield f"  ! {oddity_text(one)}"
    if story.oddities_total > len(story.oddities):
        yield f"  ... and {story.oddities_total - len(story.oddities)} more: see `ledgerctl ledger audit`"


def oddity_text(one: Finding) -> str:
    """Write an odd thing and what heals it, on one line."""
    job = f"{job_words(one.job_id)}: " if one.job_id is not None else ""
    return f"{job}{odd(one)}"


def odd(one: Finding) -> str:
    """Write an odd thing and the command that heals it."""
    return oddity(one) + (f"; `{command_words(one.remedy)}`" if one.remedy else "")


def job_lines(story: Story) -> Iterator[str]:
    """Write a paragraph a job, then the rows without a job."""
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
    """Write the rows' sentences with amount and balance in front."""
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
    """Write a table of days or months."""
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


TEXTS: Final[dict[str, Lines]] = {"text": text, "markdown": markdown, "html": page}
