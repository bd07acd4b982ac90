"""Write a balance's story as one page: self-contained, escaped, to be read, mailed or printed."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from ledgerctl.domain.audit import Finding
from ledgerctl.domain.days import day_of
from ledgerctl.domain.explain import JobStory, Line, Story, day_words, job_words, oddity, signed
from ledgerctl.domain.jobs import State
from ledgerctl.domain.times import format_time
from ledgerctl.render.chart import dates, extent, svg
from ledgerctl.render.text import command_words, visible
from ledgerctl.render.words import (
    as_of,
    credits,
    figures,
    job_heading,
    period_words,
    remarks,
    right_words,
)

_PERIOD_NAMES: Final = (
    "rows", "jobs", "charged", "refunded", "reclaimed", "granted", "corrected", "other", "net",
    "balance",
)  # fmt: skip
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

STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2127; --soft: #56606b; --rule: #dde1e6;
  --tint: #f3f5f8; --line: #2a62b5; --area: #2a62b51f; --minus: #b3261e; --alert: #8a4b00;
  --alert-tint: #fff4e0; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e4e8ec; --soft: #9fa9b4;
  --rule: #323a43; --tint: #1c2229; --line: #7fb0f5; --area: #7fb0f52e; --minus: #ff8a80;
  --alert: #ffc66d; --alert-tint: #33270f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 60rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans",
  sans-serif; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .25rem; font-weight: 600; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: .25rem 0 .5rem; }
.company { font-weight: 650; letter-spacing: .02em; }
.balance { font-size: 2.25rem; font-weight: 650; line-height: 1.2; margin: .5rem 0 0; }
.soft, figcaption, footer, summary { color: var(--soft); }
.minus { color: var(--minus); }
.strip { display: flex; flex-wrap: wrap; gap: 1px; margin: 0; background: var(--rule); border: 1px solid var(--rule); border-radius: .5rem;
  overflow: hidden; }
.strip div { flex: 1 1 auto; min-width: 8rem; max-width: 100%; background: var(--paper); padding: .6rem .8rem; }
.strip dt { font-size: .85rem; color: var(--soft); }
.strip dd { margin: 0; font-size: 1.15rem; font-weight: 600; }
.strip div:last-child { background: var(--tint); }
figure { margin: 0; font-size: .85rem; }
.chart { display: grid; grid-template-columns: fit-content(40%) 1fr; column-gap: .5rem; }
.scale { position: relative; display: flex; flex-direction: column; text-align: right;
  justify-content: space-between; color: var(--soft); line-height: 1; }
.nought { position: absolute; right: 0; transform: translateY(-50%); }
.dates { grid-column: 2; display: flex; justify-content: space-between; gap: .5rem;
  padding-top: .25rem; color: var(--soft); line-height: 1.2; }
svg { display: block; width: 100%; height: 12rem; overflow: visible; }
svg path { fill: none; vector-effect: non-scaling-stroke; }
svg .line { stroke: var(--line); stroke-width: 2; }
svg .dots { stroke: var(--line); stroke-width: 7; stroke-linecap: round; }
svg .area { fill: var(--area); }
svg .grid { stroke: var(--rule); }
svg .zero { stroke: var(--soft); }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .4rem .5rem; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; }
th { font-weight: 600; font-size: .85rem; color: var(--soft); }
.number { text-align: right; white-space: nowrap; overflow-wrap: normal; }
th:first-child, article td:first-child { padding-left: 0; }
table.figures { width: auto; min-width: min(24rem, 100%); }
table.figures tr:last-child > * { border-top: 2px solid var(--ink); border-bottom: 0;
  font-weight: 650; }
.days th[scope="row"] { color: var(--ink); font-size: 1rem; }
.days tr:has(+ .inner) > * { border-bottom: 0; }
.inner > td { padding: 0 0 .5rem; }
.inner table { width: auto; min-width: 60%; font-size: .9rem; margin-bottom: .5rem; }
.inner th[scope="row"] { font-weight: 400; font-size: .9rem; padding-left: 1rem; }
.inner th[scope="col"]:first-child { padding-left: 1rem; }
summary { cursor: pointer; font-size: .85rem; padding: .25rem 0; }
.scroll { overflow-x: auto; }
.scroll td, .scroll th { white-space: nowrap; overflow-wrap: normal; }
article { margin: 1rem 0; padding: .9rem 1rem .5rem; border: 1px solid var(--rule);
  border-radius: .5rem; }
article header { display: flex; flex-wrap: wrap; gap: .25rem .75rem; align-items: baseline; }
article header h3 { flex: 1 1 12rem; min-width: 0; }
article tr:last-child td { border-bottom: 0; }
.state { font-size: .8rem; padding: .05rem .5rem; border-radius: 1rem; background: var(--tint);
  color: var(--soft); }
.odd { margin: .5rem 0; padding: .5rem .75rem; border-left: 4px solid var(--alert);
  background: var(--alert-tint); border-radius: .25rem; list-style: none; }
.odd code { font-size: .9em; }
ul.odds { padding: 0; margin: .5rem 0; }
footer { margin-top: 2rem; font-size: .85rem; }
@media screen and (max-width: 40rem) {
  body { padding: 1.25rem .9rem 2rem; }
  .days thead, article thead { position: absolute; clip-path: inset(50%); }
  .days tr, article tr { display: grid; grid-template-columns: repeat(auto-fit, minmax(5rem, 1fr));
    align-items: end; padding: .3rem 0; border-bottom: 1px solid var(--rule); }
  .days th, .days td, article td { border: 0; padding: 0 .25rem 0 0; min-width: 0; }
  .days th, .inner > td, article td:first-child { grid-column: 1 / -1; }
  .days td:empty { display: none; }
  .days .number, article .number { text-align: left; white-space: normal; overflow-wrap: anywhere; }
  .number[data-label]::before { content: attr(data-label); display: block; font-size: .75rem;
    color: var(--soft); }
  .days tr:has(+ .inner) { padding-bottom: 0; }
  .days tr:has(+ .inner), .inner, .inner tr:last-child, article tr:last-child { border-bottom: 0; }
  .inner table { padding-left: 1rem; display: block; }
}
@page { margin: 10mm; }
@media print { :root { font-size: 9pt; color-scheme: light; --paper: #fff; --ink: #000; --soft: #444;
    --rule: #bbb; --tint: #eee; --line: #000; --area: #0001; --minus: #000; --alert: #000;
    --alert-tint: #fff; }
  body { max-width: none; padding: 0; line-height: 1.3; }
  h2 { margin-top: 1rem; }
  figure, tr:not(.inner), .strip { break-inside: avoid; }
  h2, h3, thead { break-after: avoid; }
  svg { height: 7rem; }
  th, td { padding: 1pt 3pt; }
  th, .days th[scope="row"], .inner table, .inner th[scope="row"] { font-size: inherit; }
  details::details-content { content-visibility: visible; block-size: auto; }
  summary { display: none; }
  .inner table { margin: 0; }
  .inner table th, .inner table td { border: 0; padding-block: 0; }
  .inner p { margin: 0 0 0 1rem; }
  .sheet { columns: 2; column-gap: 14pt; font-size: 8pt; line-height: 1.25; }
  .dense { font-size: 7pt; line-height: 1.12; }
  .sheet th, .sheet td { padding: 0 2pt; }
  .sheet th { overflow-wrap: normal; white-space: normal; vertical-align: bottom; }
  .days th[scope="row"] { white-space: nowrap; }
  .sheet .inner th { white-space: normal; overflow-wrap: anywhere; }
  .inner table { width: 100%; }
  .inner thead { display: none; }
  .inner .number, .inner td:empty { width: 1%; min-width: 28pt; }
  .sheet .inner th:first-child { padding-left: 4pt; }
  article { border-width: 1px 0 0; border-radius: 0; margin: 3pt 0 0; padding: 1pt 0 0; }
  article, article h3, article th { font-size: 8pt; line-height: 1.2; }
  article p { margin: 0; }
  article thead { display: none; }
  .scroll { overflow: visible; font-size: 7pt; } }
"""


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
    yield from (STYLE.strip() + nought_rule(story)).split("\n")
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
    heads = "".join(f'<th scope="col" class="number">{name}</th>' for name in _PERIOD_NAMES)
    yield f'<thead><tr><th scope="col">period</th>{heads}</tr></thead>'
    yield "<tbody>"
    for one in story.book.periods():
        cells = "".join(number(getattr(one, name)) for name in _PERIOD_NAMES)
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
