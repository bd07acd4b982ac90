"""Write a balance's story as one page: self-contained, escaped, to be read, mailed or printed."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from ledgerctl.domain.days import day_of
from ledgerctl.domain.explain import JobStory, Line, Story, day_words, job_words, oddity, signed
from ledgerctl.domain.findings import Finding
from ledgerctl.domain.jobs import State
from ledgerctl.domain.times import format_time
from ledgerctl.render.chart import dates, extent, svg
from ledgerctl.render.text import command_words, visible
from ledgerctl.render.words import (
    PERIOD_FIGURES,
    as_of,
    credits,
    figures,
    job_heading,
    period_words,
    remarks,
    right_words,
)

_STATES: Final[dict[State | None, str]] = {
    State.CHARGED: "charged",
    State.REFUNDED: "refunded",
    State.RECLAIMED: "charged in the end",
    State.CORRUPT: "needs attention",
    State.BAD_FLAGS: "needs attention",
    None: "unknown job",
}

TITLE_MAX = 70  # characters of a page's name
NEAR = 8  # percent of the chart's height: closer to an end, zero needs no label of its own


def data(text: str) -> str:
    """Write anybody's text: escaped, its direction kept to itself, nothing invisible in it."""
    return f"<bdi>{plain(text)}</bdi>"


def plain(text: str) -> str:
    """Write text of ours that may quote somebody: escaped, nothing invisible in it."""
    return escape(visible(text))


def frame(title: str, body: Iterator[str], *, story: Story) -> Iterator[str]:
    """Write a whole page around its body; the page loads nothing else."""
    named = title if len(title) <= TITLE_MAX else f"{title[: TITLE_MAX - 1]}…"
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{plain(named)}</title>"
    yield "<style>"
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    yield from (style.strip() + nought_rule(story)).split("\n")
    yield "</style>"
    yield "</head>"
    yield "<body>"
    yield from body
    yield "</body>"
    yield "</html>"


def page(story: Story) -> Iterator[str]:
    """Write the whole page for support: summary, chart, figures, what is odd, a section a job."""
    return frame(title(story), body(story), story=story)


def body(story: Story) -> Iterator[str]:
    """Write what the page for support shows."""
    yield from summary(story)
    yield "<main>"
    yield from figure(story, f"{title(story)} over time")
    yield from figure_section(story)
    if story.is_long:
        yield from period_section(story)
    yield from oddity_section(story)
    yield from job_sections(story)
    yield from unusable_section(story)
    yield "</main>"
    yield f"<footer>{plain(made(story))}</footer>"


def nought_height(story: Story) -> float | None:
    """Place the label of zero, in percent from the top; None where the axis needs none."""
    points = story.book.points()
    low, high = extent(points) if points else (0, 1)
    height = 100 * high / (high - low) if low < 0 < high else 0
    return height if NEAR < height < 100 - NEAR else None


def nought_rule(story: Story) -> str:
    """Write the one rule of style that depends on the story."""
    height = nought_height(story)
    return "" if height is None else f"\n.nought {{ top: {height:.1f}%; }}"


def figure(story: Story, label: str) -> Iterator[str]:
    """Draw the balance over time: its extremes at the axis, dates below, both in words too."""
    points = story.book.points()
    if not points:
        return
    low, high = extent(points)
    lowest, highest = (
        f"{one.balance:,} on {day_words(day_of(one.at, story.zone))}"
        for one in story.book.extremes()
    )
    caption = f"Lowest {lowest}, highest {highest}."
    nought = "" if nought_height(story) is None else '<span class="nought">0</span>'
    yield f"<h2>{plain(label)}</h2>"
    yield "<figure>"
    yield '<div class="chart">'
    yield f'<div class="scale" aria-hidden="true"><span>{high:,}</span>{nought}<span>{low:,}</span></div>'
    yield from map(visible, svg(points, label=f"{label}. {caption}"))
    said = "".join(f"<span>{one}</span>" for one in dates(points, story.zone))
    yield f'<div class="dates" aria-hidden="true">{said}</div>'
    yield "</div>"
    yield f"<figcaption>{caption}</figcaption>"
    yield "</figure>"


def title(story: Story) -> str:
    """Name the page."""
    if story.job_id is not None:
        return f"{job_heading(story.job_id)} of account {story.account_id}"
    return f"Balance of {story.account_id}"


def made(story: Story) -> str:
    """Say when the page was made, and from how many rows."""
    return (
        f"Made by ledgerctl balance explain at {format_time(story.as_of)} from {story.book.rows}"
        f" ledger rows; days and times in {story.zone}."
    )


def summary(story: Story) -> Iterator[str]:
    """Say whose balance it is, how much, as of when, and what would be right."""
    job = "" if story.job_id is None else f"{data(job_heading(story.job_id))} of account "
    yield "<header>"
    yield f"<h1>{job or 'Balance of '}{data(story.account_id)}</h1>"
    yield f'<p class="balance{sign(story.book.closing)}">{credits(story.book.closing)}</p>'
    yield f'<p class="soft">{plain(as_of(story))}</p>'
    if said := right_words(story):
        yield f'<p class="odd">{plain(said)}</p>'
    yield "</header>"


def sign(amount: int) -> str:
    """Mark a figure below zero."""
    return " minus" if amount < 0 else ""


def number(amount: int | None, *, shown: str | None = None) -> str:
    """Write a cell that holds a figure."""
    text = plain("?" if amount is None else str(amount)) if shown is None else shown
    return f'<td class="number{sign(amount or 0)}">{text}</td>'


def figure_section(story: Story) -> Iterator[str]:
    """Write the figures that add up to the balance."""
    yield "<h2>How it adds up</h2>"
    yield '<table class="figures"><tbody>'
    for name, value in figures(story):
        yield f'<tr><th scope="row">{plain(name)}</th>{number(value)}</tr>'
    yield "</tbody></table>"
    for remark in remarks(story):
        yield f'<p class="soft">{plain(remark)}</p>'


def oddity_section(story: Story) -> Iterator[str]:
    """List what is odd, and what heals it."""
    if not story.oddities:
        return
    yield f"<h2>What is odd ({story.oddities_total})</h2>"
    yield '<ul class="odds">'
    for one in story.oddities:
        job = f"{data(job_words(one.job_id))}: " if one.job_id is not None else ""
        yield f'<li class="odd">{job}{odd(one)}</li>'
    if story.oddities_total > len(story.oddities):
        more = story.oddities_total - len(story.oddities)
        yield f'<li class="odd">{more} more: see <code>ledgerctl ledger audit</code></li>'
    yield "</ul>"


def odd(one: Finding) -> str:
    """Write one odd thing and the command that heals it."""
    command = f"<br><code>{plain(command_words(one.remedy))}</code>" if one.remedy else ""
    return f"{plain(oddity(one))}.{command}"


def job_sections(story: Story) -> Iterator[str]:
    """Write a section a job, then the rows without a job."""
    if story.jobs:
        yield "<h2>Job by job</h2>"
    for job in story.jobs:
        yield from job_section(job)
    if story.others:
        yield "<h2>Without a job</h2>"
        yield "<article>"
        yield from line_table(story.others)
        yield "</article>"


def job_section(job: JobStory) -> Iterator[str]:
    """Write one job."""
    yield "<article>"
    yield (
        f"<header><h3>{data(job_heading(job.job_id))}</h3>"
        f'<span class="state">{_STATES[job.state]}</span></header>'
    )
    yield f"<p>{plain(job.ending)}</p>"
    for one in job.oddities:
        yield f'<div class="odd">{odd(one)}</div>'
    yield from line_table(job.lines)
    yield "</article>"


def line_table(lines: Sequence[Line]) -> Iterator[str]:
    """Write the rows' sentences with amount and balance."""
    if not lines:
        return
    yield "<table>"
    yield (
        '<thead><tr><th scope="col">what happened</th><th scope="col" class="number">amount</th>'
        '<th scope="col" class="number">balance</th></tr></thead>'
    )
    yield "<tbody>"
    for one in lines:
        amount = one.entry.amount if isinstance(one.entry.amount, int) else None
        shown = None if amount is None else signed(amount)
        yield (f"<tr><td>{told(one)}</td>{number(amount, shown=shown)}{number(one.balance)}</tr>")
    yield "</tbody>"
    yield "</table>"


def told(line: Line) -> str:
    """Write a row's sentence, its job's id kept to its own direction."""
    job = line.entry.job_id
    said = plain(line.sentence)
    return said.replace(plain(job), data(job), 1) if job else said


def period_section(story: Story) -> Iterator[str]:
    """Write a table of days or months."""
    yield "<h2>Over time</h2>"
    yield f'<p class="soft">{plain(period_words(story))}</p>'
    yield '<section class="scroll" aria-label="Over time" tabindex="0">'
    yield "<table>"
    heads = "".join(f'<th scope="col" class="number">{name}</th>' for name in PERIOD_FIGURES)
    yield f'<thead><tr><th scope="col">period</th>{heads}</tr></thead>'
    yield "<tbody>"
    for one in story.book.periods():
        cells = "".join(number(getattr(one, name)) for name in PERIOD_FIGURES)
        yield f'<tr><th scope="row">{one.name}</th>{cells}</tr>'
    yield "</tbody>"
    yield "</table>"
    yield "</section>"


def unusable_section(story: Story) -> Iterator[str]:
    """List the rows that no sum contains."""
    if not story.unusable:
        return
    yield "<h2>Not in any sum</h2>"
    yield '<ul class="odds">'
    for row in story.unusable:
        yield (
            f'<li class="odd">{data(row.row_id)} holds {data(row.amount)}: {plain(row.why)}</li>'
        )
    yield "</ul>"
