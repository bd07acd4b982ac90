"""A balance's story as one page: self-contained, escaped, to be read, mailed or printed."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from ledgerctl.domain.audit import Finding
from ledgerctl.domain.explain import JobStory, Line, Story, job_words, oddity, signed
from ledgerctl.domain.jobs import State
from ledgerctl.domain.times import format_time
from ledgerctl.render.chart import svg
from ledgerctl.render.text import command_words, visible
from ledgerctl.render.words import (
    as_of,
    credits,
    figures,
    job_heading,
    period_words,
    remarks,
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

STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2127; --soft: #5b6570; --rule: #dde1e6;
  --tint: #f5f7f9; --line: #2a62b5; --area: #2a62b51f; --minus: #b3261e; --plus: #1e6e3e;
  --alert: #8a4b00; --alert-tint: #fff4e0; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e4e8ec; --soft: #98a3ae;
  --rule: #323a43; --tint: #1c2229; --line: #7fb0f5; --area: #7fb0f52e; --minus: #ff8a80;
  --plus: #7fd19b; --alert: #ffc66d; --alert-tint: #33270f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 60rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans",
  sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .25rem; font-weight: 600; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: .25rem 0 .5rem; }
.balance { font-size: 2.25rem; font-weight: 650; line-height: 1.2; margin: .5rem 0 0;
  font-variant-numeric: tabular-nums; }
.soft { color: var(--soft); }
.minus { color: var(--minus); } .plus { color: var(--plus); }
figure { margin: 1.5rem 0 0; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg .line { fill: none; stroke: var(--line); stroke-width: 2; vector-effect: non-scaling-stroke; }
svg .area { fill: var(--area); }
svg .grid { stroke: var(--rule); stroke-width: 1; vector-effect: non-scaling-stroke; }
svg .zero { stroke: var(--soft); stroke-width: 1; vector-effect: non-scaling-stroke; }
svg circle { fill: var(--line); }
svg text { fill: var(--soft); font-size: 13px; paint-order: stroke; stroke: var(--paper);
  stroke-width: 4px; stroke-linejoin: round; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .5rem; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; }
th { font-weight: 600; font-size: .85rem; color: var(--soft); }
.number { text-align: right; white-space: nowrap; overflow-wrap: normal; }
table.figures th, article th:first-child, article td:first-child { padding-left: 0; }
table.figures { width: auto; min-width: min(24rem, 100%); }
table.figures tr:last-child > * { border-top: 2px solid var(--ink); border-bottom: 0;
  font-weight: 650; }
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
footer { margin-top: 2.5rem; font-size: .85rem; color: var(--soft); }
@media (max-width: 40rem) {
  body { padding: 1.25rem .9rem 2rem; }
  svg text { font-size: 24px; }
  article thead { position: absolute; clip-path: inset(50%); }
  article tr { display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid var(--rule);
    padding: .4rem 0; }
  article tr:last-child { border-bottom: 0; }
  article td { border: 0; padding: 0; }
  article td:first-child { grid-column: 1 / -1; }
  article td.number { text-align: left; }
  article td.number + td.number { text-align: right; color: var(--soft); }
  article td.number + td.number::before { content: "balance "; font-size: .85rem; }
}
@media print { :root { color-scheme: light; --paper: #fff; --ink: #000; --soft: #444;
    --rule: #bbb; --tint: #eee; --line: #000; --area: #0001; --minus: #000; --plus: #000;
    --alert: #000; --alert-tint: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  article, .odd, figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; font-size: 8pt; } }
"""


def data(text: str) -> str:
    """Anybody's text: escaped, its direction kept to itself, nothing invisible in it."""
    return f"<bdi>{plain(text)}</bdi>"


def plain(text: str) -> str:
    """Text of ours that may quote somebody: escaped, nothing invisible in it."""
    return escape(visible(text))


def page(story: Story) -> Iterator[str]:
    """The whole page, line by line: summary, chart, figures, what is odd, a section a job."""
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{plain(title(story))}</title>"
    yield "<style>"
    yield from STYLE.strip().split("\n")
    yield "</style>"
    yield "</head>"
    yield "<body>"
    yield from summary(story)
    yield "<main>"
    yield from figure_section(story)
    if story.is_long:
        yield from period_section(story)
    yield from oddity_section(story)
    yield from job_sections(story)
    yield from unusable_section(story)
    yield "</main>"
    yield f"<footer>{plain(made(story))}</footer>"
    yield "</body>"
    yield "</html>"


def title(story: Story) -> str:
    """The page's name."""
    if story.job_id is not None:
        return f"{job_heading(story.job_id)} of account {story.account_id}"
    return f"Balance of {story.account_id}"


def made(story: Story) -> str:
    """When the page was made, and how to make it again."""
    return (
        f"Made by ledgerctl balance explain at {format_time(story.as_of)} from {story.book.rows}"
        f" ledger rows; days and times in {story.zone}."
    )


def summary(story: Story) -> Iterator[str]:
    """Whose balance, how much, as of when, and how it went."""
    job = "" if story.job_id is None else f"{data(job_heading(story.job_id))} of account "
    yield "<header>"
    yield f"<h1>{job or 'Balance of '}{data(story.account_id)}</h1>"
    yield f'<p class="balance{sign(story.book.closing)}">{credits(story.book.closing)}</p>'
    yield f'<p class="soft">{plain(as_of(story))}</p>'
    yield "</header>"
    chart = svg(story.book.points(), label=f"{title(story)} over time")
    if chart:
        yield "<figure>"
        yield from map(visible, chart)
        yield "</figure>"


def sign(amount: int) -> str:
    """The class of a figure below nought."""
    return " minus" if amount < 0 else ""


def number(amount: int | None, *, shown: str | None = None) -> str:
    """A cell that holds a figure."""
    text = plain("?" if amount is None else str(amount)) if shown is None else shown
    return f'<td class="number{sign(amount or 0)}">{text}</td>'


def figure_section(story: Story) -> Iterator[str]:
    """The figures that add up to the balance."""
    yield "<h2>How it adds up</h2>"
    yield '<table class="figures">'
    for name, value in figures(story):
        yield f'<tr><th scope="row">{plain(name)}</th>{number(value)}</tr>'
    yield "</table>"
    for remark in remarks(story):
        yield f'<p class="soft">{plain(remark)}</p>'


def oddity_section(story: Story) -> Iterator[str]:
    """What is odd, and what heals it."""
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
    """One odd thing and the command that heals it."""
    command = f"<br><code>{plain(command_words(one.remedy))}</code>" if one.remedy else ""
    return f"{plain(oddity(one))}.{command}"


def job_sections(story: Story) -> Iterator[str]:
    """A section a job, then the rows without a job."""
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
    """One job."""
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
    """The rows' sentences with amount and balance."""
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
    """A row's sentence, its job's id kept to its own direction."""
    job = line.entry.job_id
    said = plain(line.sentence)
    return said.replace(plain(job), data(job), 1) if job else said


def period_section(story: Story) -> Iterator[str]:
    """A table of days or months."""
    yield "<h2>Over time</h2>"
    yield f'<p class="soft">{plain(period_words(story))}</p>'
    yield '<div class="scroll" role="region" aria-label="Over time" tabindex="0">'
    yield "<table>"
    heads = "".join(f'<th scope="col" class="number">{name}</th>' for name in _PERIOD_NAMES)
    yield f'<thead><tr><th scope="col">period</th>{heads}</tr></thead>'
    yield "<tbody>"
    for one in story.book.periods():
        cells = "".join(number(getattr(one, name)) for name in _PERIOD_NAMES)
        yield f'<tr><th scope="row">{one.name}</th>{cells}</tr>'
    yield "</tbody>"
    yield "</table>"
    yield "</div>"


def unusable_section(story: Story) -> Iterator[str]:
    """The rows that no sum contains."""
    if not story.unusable:
        return
    yield "<h2>Not in any sum</h2>"
    yield '<ul class="odds">'
    for row in story.unusable:
        yield (
            f'<li class="odd">{data(row.row_id)} holds {data(row.amount)}: {plain(row.why)}</li>'
        )
    yield "</ul>"
