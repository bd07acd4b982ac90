"""Write a balance as a statement that one may send to a customer: nothing internal is in it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ledgerctl.domain.explain import LISTED_JOBS_MAX, Period, Story, date_words, short_day
from ledgerctl.render.as_html import data, figure, frame, plain
from ledgerctl.render.as_markdown import escaped, table
from ledgerctl.render.words import aligned, job_heading

Column = tuple[str, str, int]  # its heading, the attribute of a Period, the sign of its change

STEPS: Final[tuple[Column, ...]] = (
    ("Charged", "charged", -1),
    ("Refunded", "refunded", 1),
    ("Charged again", "reclaimed", -1),
)
REST: Final[tuple[Column, ...]] = (
    ("Granted", "granted", 1),
    ("Corrected", "corrected", 1),
    ("Other", "other", 1),
)


@dataclass(frozen=True, slots=True)
class Statement:
    """Add to a story the names that its customer knows."""

    story: Story
    company: str | None = None
    contact: str | None = None
    unit: str = "credits"

    def titles(self) -> tuple[str, str]:
        """Name what the statement is of, and the account or the job's account."""
        job = self.story.job_id
        of = "Statement of account" if job is None else f"{job_heading(job)} of account"
        return of, self.story.account_id

    def range(self) -> str:
        """Write the range in the words that were asked; until now where it has no end."""
        story = self.story
        now = "" if story.asked.before else f"as of {date_words(story.as_of, story.zone)}"
        return f"{story.asked.words(story.zone)} {now}".strip()

    def strip(self) -> list[tuple[str, str]]:
        """List the figures from the opening to the closing balance; they add up."""
        book, total = self.story.book, Period("")
        for day in book.days.values():
            total.join(day)
        changes = zip(STEPS + REST, values(total, STEPS + REST), strict=True)
        parts = [(name, change(value)) for (name, *_), value in changes if value]
        if self.story.job_id is not None:
            return [*parts, ("Net", f"{book.closing:,}")]
        return [
            ("Opening balance", f"{book.opening:,}"),
            *parts,
            ("Closing balance", f"{book.closing:,}"),
        ]

    def remarks(self) -> list[str]:
        """Say what a reader of the figures must know."""
        story, said = self.story, []
        if story.unusable:
            said.append(f"{entries(len(story.unusable))} being checked; no figure contains them.")
        if story.undated_left_out:
            said.append(f"{entries(story.undated_left_out)} without a date and not in this range.")
        if not story.book.lists_jobs:
            said.append(f"More than {LISTED_JOBS_MAX:,} jobs: the days are shown without them.")
        return said

    def footer(self) -> list[str]:
        """Say what the figures are in, when they were made, and whom to ask."""
        made = date_words(self.story.as_of, self.story.zone)
        said = [f"Amounts in {self.unit}, days in {self.story.zone}. Made on {made}."]
        return [*said, f"Questions: {self.contact}"] if self.contact else said

    def days(self) -> Iterator[tuple[Period, list[Period], list[Period]]]:
        """List each day with its jobs, and with what names no job."""
        for name, day in self.story.book.days.items():
            lines = self.story.book.by_job.get(name, {})
            jobs = [line for (job, _), line in lines.items() if job is not None]
            yield day, jobs, [line for (job, _), line in lines.items() if job is None]


def columns_of(periods: Iterable[Period]) -> list[Column]:
    """Choose the columns that these periods fill; whatever is no step shares one."""
    some = list(periods)
    steps, rest = (
        [one for one in group if any(getattr(period, one[1]) for period in some)]
        for group in (STEPS, REST)
    )
    return [*steps, ("Other", "rest", 1)] if len(rest) > 1 else [*steps, *rest]


def values(period: Period, columns: Iterable[Column]) -> list[int]:
    """Return a period's changes of the balance."""
    return [sign * getattr(period, attribute) for _, attribute, sign in columns]


def cells(period: Period, columns: Iterable[Column]) -> list[str]:
    """Write a period's changes; nothing for a zero."""
    return [change(value) if value else "" for value in values(period, columns)]


def change(value: int) -> str:
    """Write a change of the balance with its sign and thousands separators."""
    return f"{value:+,}"


def entries(count: int) -> str:
    """Say how many entries are."""
    return "1 entry is" if count == 1 else f"{count:,} entries are"


def table_rows(page: Statement) -> Iterator[tuple[bool, list[str]]]:
    """List the rows of one table by day: True marks a heading or a day, False a line under it."""
    columns = columns_of(page.story.book.days.values())
    yield True, ["Day", *(name for name, *_ in columns), "Balance"]
    for day, jobs, others in page.days():
        yield True, [short_day(day.name), *cells(day, columns), f"{day.balance:,}"]
        for line in jobs:
            yield False, [line.name, *cells(line, columns), ""]
        for line in others:
            yield False, [line.name.capitalize(), *cells(line, columns), ""]


# text and Markdown


def text(page: Statement) -> Iterator[str]:
    """Write the statement in plain lines."""
    yield from filter(None, [page.company, " ".join(page.titles()), page.range()])
    yield ""
    yield from aligned(page.strip())
    yield ""
    rows = [
        (is_day, [name if is_day else f"  {name}", *rest])
        for is_day, (name, *rest) in table_rows(page)
    ]
    widths = [max(map(len, column)) for column in zip(*(row for _, row in rows), strict=True)]
    for _, (name, *figures) in rows:
        shown = (cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *shown]).rstrip()
    yield ""
    yield from (*page.remarks(), *page.footer())


def markdown(page: Statement) -> Iterator[str]:
    """Write the statement as Markdown."""
    yield f"# {escaped(' '.join(page.titles()))}"
    yield ""
    for line in filter(None, [page.company, page.range(), *page.remarks()]):
        yield escaped(line)
        yield ""
    yield from table(("", escaped(page.unit)), page.strip(), "-r")
    (_, head), *rows = table_rows(page)
    marked = [
        [f"**{escaped(name)}**" if is_day else escaped(name), *figures]
        for is_day, (name, *figures) in rows
    ]
    yield from table(head, marked, "-" + "r" * (len(head) - 1))
    for line in page.footer():
        yield escaped(line)
        yield ""


# html


def html(page: Statement) -> Iterator[str]:
    """Write the statement as one page: the strip, the chart, the days with their jobs."""
    return frame(" ".join(page.titles()), body(page), story=page.story)


def body(page: Statement) -> Iterator[str]:
    """Write what the page shows."""
    of, account = page.titles()
    yield "<header>"
    if page.company:
        yield f'<p class="company">{data(page.company)}</p>'
    yield f"<h1>{plain(of)} {data(account)}</h1>"
    yield f'<p class="soft">{plain(page.range())}</p>'
    yield "</header>"
    yield "<main>"
    yield "<h2>Summary</h2>"
    yield '<dl class="strip">'
    for name, figure_text in page.strip():
        yield f"<div><dt>{name}</dt><dd>{figure_text}</dd></div>"
    yield "</dl>"
    yield from (f'<p class="odd">{plain(one)}</p>' for one in page.remarks())
    yield from figure(page.story, "Balance over time")
    yield from day_table(page)
    yield "</main>"
    yield "<footer>"
    yield from (f"<p>{plain(one)}</p>" for one in page.footer())
    yield "</footer>"


def day_table(page: Statement) -> Iterator[str]:
    """Write the table by day, under each day its jobs."""
    days = [*page.days()]
    if not days:
        yield "<p>There is no entry in this range.</p>"
        return
    columns = columns_of(day for day, *_ in days)
    names = [name for name, *_ in columns]
    of_jobs = columns_of(job for _, jobs, _ in days for job in jobs)
    lines = sum(1 + len(jobs) for _, jobs, _ in days)
    sheet = "short" if lines <= SHORT else "sheet" if lines <= DENSE else "sheet dense"
    yield "<h2>Day by day</h2>"
    if of_jobs:
        said = ", ".join(name.lower() for name, *_ in of_jobs)
        yield f'<p class="soft">Under each day its jobs: {said}.</p>'
    yield f'<div class="{sheet}">'
    yield '<table class="days">'
    yield head("Day", [*names, "Balance"])
    yield "<tbody>"
    for day, jobs, others in days:
        figures = [*cells(day, columns), f"{day.balance:,}"]
        yield row(plain(short_day(day.name)), zip([*names, "Balance"], figures, strict=True))
        if jobs or others:
            yield from day_details(jobs, others, of_jobs, width=len(figures) + 1)
    yield "</tbody>"
    yield "</table>"
    yield "</div>"


def day_details(
    jobs: Sequence[Period], others: Sequence[Period], columns: Sequence[Column], *, width: int
) -> Iterator[str]:
    """Write a day's jobs, and what names no job: closed on a screen, open on paper."""
    names = [name for name, *_ in columns]
    rest = ", ".join(f"{one.name} {change(one.net)}" for one in others)
    count = f"{len(jobs):,} job{'s' * (len(jobs) != 1)}" if jobs else ""
    said = ", ".join(filter(None, (count, rest)))
    yield f'<tr class="inner"><td colspan="{width}"><details><summary>{said}</summary>'
    if rest:
        yield f"<p>{rest.capitalize()}</p>"
    if jobs:
        yield "<table>"
        yield head("Job", names)
        yield "<tbody>"
        for job in jobs:
            yield row(data(job.name), zip(names, cells(job, columns), strict=True))
        yield "</tbody>"
        yield "</table>"
    yield "</details></td></tr>"


def head(first: str, names: Iterable[str]) -> str:
    """Write the headings of a table."""
    others = "".join(f'<th scope="col" class="number">{name}</th>' for name in names)
    return f'<thead><tr><th scope="col">{first}</th>{others}</tr></thead>'


def row(name: str, figures: Iterable[tuple[str, str]]) -> str:
    """Write a row of a table; a narrow screen shows each figure under its heading."""
    shown = "".join(
        f'<td class="number" data-label="{label}">{cell}</td>' if cell else "<td></td>"
        for label, cell in figures
    )
    return f'<tr><th scope="row">{name}</th>{shown}</tr>'


SHORT, DENSE = 40, 300  # lines on paper: more are printed in two columns, and small
FORMATS: Final = {"text": text, "markdown": markdown, "html": html}
