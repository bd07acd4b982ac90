"""Write a balance's story as Markdown for a ticket; data appears in it letter for letter."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ledgerctl.domain.explain import Line, Story, job_words, oddity, signed
from ledgerctl.domain.findings import Finding
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

# What Markdown, GitHub's included, acts upon: marks, links, emoji codes, and a line's first signs.
_ACTIVE: Final = re.compile(
    r"[\\`*_{}\[\]<>|~&@]"
    r"|(?<=:)/(?=/)|(?<=www)\."
    r"|:(?=(?:[A-Za-z+_-][\w+-]*|\d{3,}):)"
    r"|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]"
)


def escaped(text: str) -> str:
    """Escape anybody's text, so that Markdown shows it as it is, on one line."""
    return _ACTIVE.sub(r"\\\g<0>", visible(text))


def code(text: str) -> str:
    """Write a command in backticks, fenced by more of them than it holds."""
    shown = visible(text)
    fence = "`" * (max((len(run) for run in re.findall(r"`+", shown)), default=0) + 1)
    room = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{room}{shown}{room}{fence}".replace("|", "\\|")


def markdown(story: Story) -> Iterator[str]:
    """Write the whole story: summary, figures, what is odd, a section a job or a table of periods."""
    yield f"# {title(story)}"
    yield ""
    yield f"**{credits(story.book.closing)}** {escaped(as_of(story))}"
    yield ""
    if said := right_words(story):
        yield f"**{escaped(said)}**"
        yield ""
    yield from table(
        ("", "credits"), [(escaped(name), str(value)) for name, value in figures(story)], "-r"
    )
    yield from remark_lines(story)
    if story.is_long:
        yield from period_section(story)
    yield from oddity_lines(story)
    yield from job_sections(story)
    if story.unusable:
        yield "## Not in any sum"
        yield ""
        yield from (
            f"- {escaped(row.row_id)} holds {escaped(row.amount)}: {escaped(row.why)}"
            for row in story.unusable
        )


def title(story: Story) -> str:
    """Head the page."""
    if story.job_id is not None:
        return f"{escaped(job_heading(story.job_id))} of account {escaped(story.account_id)}"
    return f"Balance of {escaped(story.account_id)}"


def remark_lines(story: Story) -> Iterator[str]:
    """Quote the remarks on the figures."""
    for remark in remarks(story):
        yield f"> {escaped(remark)}"
        yield ""


def oddity_lines(story: Story) -> Iterator[str]:
    """List what is odd, and what heals it."""
    if not story.oddities:
        return
    yield f"## What is odd ({story.oddities_total})"
    yield ""
    for one in story.oddities:
        job = f"{escaped(job_words(one.job_id))}: " if one.job_id is not None else ""
        yield f"- {job}{odd(one)}"
    if story.oddities_total > len(story.oddities):
        yield f"- {story.oddities_total - len(story.oddities)} more: see `ledgerctl ledger audit`"
    yield ""


def odd(one: Finding) -> str:
    """Write one odd thing in a line, with the command that heals it."""
    return escaped(oddity(one)) + (f"; {code(command_words(one.remedy))}" if one.remedy else "")


def job_sections(story: Story) -> Iterator[str]:
    """Write a section a job, then the rows without a job."""
    for job in story.jobs:
        yield f"## {escaped(job_heading(job.job_id))}"
        yield ""
        yield escaped(job.ending)
        yield ""
        yield from line_table(job.lines)
        if job.oddities:
            yield from (f"- {odd(one)}" for one in job.oddities)
            yield ""
    if story.others:
        yield "## Without a job"
        yield ""
        yield from line_table(story.others)


def line_table(lines: Sequence[Line]) -> Iterator[str]:
    """Write the rows' sentences with amount and balance."""
    cells = [
        (
            escaped(one.sentence),
            signed(one.entry.amount) if isinstance(one.entry.amount, int) else "?",
            str(one.balance),
        )
        for one in lines
    ]
    if cells:
        yield from table(("what happened", "amount", "balance"), cells, "-rr")


def period_section(story: Story) -> Iterator[str]:
    """Write a table of days or months."""
    yield "## Over time"
    yield ""
    yield escaped(period_words(story))
    yield ""
    cells = [
        (one.name, *(str(getattr(one, name)) for name in PERIOD_FIGURES))
        for one in story.book.periods()
    ]
    yield from table(("period", *PERIOD_FIGURES), cells, "-" + "r" * len(PERIOD_FIGURES))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> Iterator[str]:
    """Write a table with a blank line after it; `align` is a character a column, r for right."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---:' if one == 'r' else '---' for one in align)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
