"""A story in text, Markdown and html: the same figures, and nothing from the data acts."""

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from zoneinfo import ZoneInfo

import pytest

from ledgerctl.domain.explain import Asked, Book, JobStory, Point, Story
from ledgerctl.domain.findings import Code, Finding
from ledgerctl.domain.jobs import State
from ledgerctl.domain.results import Remedy
from ledgerctl.domain.rows import Entry, RowType, kind_of_row, running
from ledgerctl.render.as_html import page
from ledgerctl.render.as_markdown import code, escaped
from ledgerctl.render.chart import blocks, extent, svg
from ledgerctl.render.views.explain import TEXTS, explain
from tests.corpus import HOSTILE

AT = datetime(2026, 3, 8, 9, 15, tzinfo=UTC)
ZONE = ZoneInfo("UTC")
ALLOWED_TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "h1", "h2", "h3",
    "p", "bdi", "figure", "svg", "path", "text", "circle", "table", "thead", "tbody", "tr", "th",
    "td", "div", "article", "span", "ul", "li", "code", "br", "figcaption", "section", "dl", "dt",
    "dd", "details", "summary",
}  # fmt: skip


def story_of(name: str) -> Story:
    entries = [
        Entry(name, AT, name, RowType.CHARGE, -40),
        Entry("g", AT, None, kind_of_row(name), 2**70, name),
    ]
    book = Book(0, ZONE)
    for entry, balance in running(entries, 0):
        book.add(entry, balance)
    lines = book.lines()
    remedy = Remedy("ledger repair", name)
    odd = Finding(Code.FLAG_TIME, name, name, (), -40, True, f"odd {name}", remedy)
    job = JobStory(name, State.REFUNDED, None, tuple(lines[:1]), -40, 0, "Net -40.", (odd,))
    return Story(name, AT, ZONE, Asked(), book, (job,), tuple(lines[1:]), (odd,), 1)


class Tags(HTMLParser):
    """Every tag and attribute of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize(
    "name", [*HOSTILE.values(), "<script>alert(1)</script>", "\"><img onerror='x'>"]
)
def test_nothing_from_the_data_becomes_a_tag_or_an_attribute(name: str) -> None:
    tags = Tags()
    tags.feed("\n".join(page(story_of(name[:500]))))
    assert tags.tags <= ALLOWED_TAGS
    assert not {one for one in tags.attributes if one.startswith("on")} | {
        "src", "href"
    } & tags.attributes  # fmt: skip


def test_the_page_stands_alone_and_says_itself_to_a_screen_reader() -> None:
    text = "\n".join(page(story_of("acct-7")))
    assert "http" not in text
    assert "<script" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert 'role="img"' in text
    assert 'lang="en"' in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


@pytest.mark.parametrize("format", TEXTS)
@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_every_format_tells_any_name_and_the_exact_figures(format: str, name: str) -> None:
    report = explain(story_of(name[:500]), format=format)
    text = "\n".join(report.text or ())
    assert str(2**70 - 40) in text
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("job_1 *x* [a](b) <b> `c` |", r"job\_1 \*x\* \[a\](b) \<b\> \`c\` \|"),
        ("# a", r"\# a"),
        ("1. a", r"1\. a"),
        ("- a", r"\- a"),
        ("https://x.example www.x", r"https:/\/x.example www\.x"),
        (":smile: 09:15:02", r"\:smile: 09:15:02"),
        ("Net -40: charged once.", "Net -40: charged once."),
        ("&amp; @me ~~x~~", r"\&amp; \@me \~\~x\~\~"),
    ],
)
def test_markdown_shows_data_letter_for_letter(text: str, shown: str) -> None:
    assert escaped(text) in {shown, shown.replace(r":/\/", r":\//")}


def test_a_command_keeps_its_backticks() -> None:
    assert code("ledgerctl x") == "`ledgerctl x`"
    assert code("a`b") == "``a`b``"


# charts


def points(*balances: int) -> list[Point]:
    return [Point(AT + timedelta(days=n), balance) for n, balance in enumerate(balances)]


@pytest.mark.parametrize(
    "balances",
    [(5,), (0, 0), (1, -1), (-7, -3), (2**80, -(2**80), 3), tuple(range(100)), (10**400, 0)],
)
def test_a_chart_can_be_drawn_of_any_balances(balances: tuple[int, ...]) -> None:
    drawn = "\n".join(svg(points(*balances), label="<balance>"))
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert "&lt;balance&gt;" in drawn
    low, high = extent(points(*balances))
    assert low <= min(balances) <= max(balances) <= high
    assert all(len(line) <= 64 + 820 for line in blocks(points(*balances), width=64, zone=ZONE))


def test_a_chart_goes_in_steps_because_a_balance_stays_until_the_next_row() -> None:
    (line,) = [one for one in svg(points(0, 10), label="x") if 'class="line"' in one]
    assert "H" in line
    assert "V" in line
    assert "L" not in line


def test_no_point_is_no_chart() -> None:
    assert blocks([], width=60, zone=ZONE) == []
    assert blocks(points(3), width=60, zone=ZONE) == []
