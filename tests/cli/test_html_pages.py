"""The html pages of `balance explain`: valid, accessible, no wider than a phone, short on paper."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from bson import Int64

from tests.builders import NOON, make_job, make_row
from tests.conftest import Documents, Invoker

WIDTHS = [360, 1_000]
NODE, NPM = shutil.which("node"), shutil.which("npm")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PACKAGES = ("html-validate@9.7.1", "axe-core@4.10.3", "jsdom@26.1.0")  # these run on Node 18
PAGES = {
    "statement": ("acct-1", "--for", "customer"),
    "statement of a job": ("acct-1", "--for", "customer", "--job", "job-1"),
    "nothing": ("acct-1", "--for", "customer", "--to", "2020-01-01"),
    "support": ("acct-1",),
    "support of many": ("many",),
}
CHECK = """
const fs = require('fs'), {HtmlValidate} = require('html-validate'), {JSDOM} = require('jsdom');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
(async () => {
  const validator = new HtmlValidate({extends: ['html-validate:recommended']}), said = {};
  for (const file of process.argv.slice(1)) {
    const text = fs.readFileSync(file, 'utf8');
    const {results} = await validator.validateString(text);
    const window = new JSDOM(text, {runScripts: 'outside-only'}).window;
    window.eval(axe);
    const rules = {'color-contrast': {enabled: false}};  // needs a browser
    const found = await window.axe.run(window.document, {rules});
    said[file] = [
      ...results.flatMap(one => one.messages.map(it => it.ruleId + ': ' + it.message)),
      ...found.violations.map(one => one.id + ': ' + one.nodes[0].html),
    ];
  }
  console.log(JSON.stringify(said));
})();
"""
LOOK = """
const done = said => { document.body.textContent = JSON.stringify(said); };
document.querySelectorAll('details').forEach(one => { one.open = true; });
axe.run().then(found => done({
  width: document.documentElement.scrollWidth,
  violations: found.violations.map(one => one.id + ': ' + one.nodes[0].html),
}));
"""


@pytest.fixture
def pages(invoke: Invoker, documents: Documents, tmp_path: Path) -> dict[str, Path]:
    """Every kind of page, of an account with all that a page can show."""
    rows: list[dict[str, Any]] = [
        make_row(
            row_type="grant", _id="grant:1", job_id=None, amount=Int64(2**62), reason="<b>sorry</b>"
        ),
        make_row(row_type="promo", _id="p", job_id=None, amount="1.5"),
        make_row("gone", account_id="acct-1"),
    ]
    jobs = []
    for n in range(12):
        name, at = f"job-{n}", NOON + timedelta(days=n // 3)
        jobs.append(make_job(name, created_at=at, is_refunded=n % 2 == 0, refunded_at=at))
        rows.append(make_row(name, created_at=at, amount=-(10 ** (n % 7))))
    jobs.append(make_job("0192f3c4-7a1b-7c3d-8e4f-0123456789ab-and-some-more", status="succeeded"))
    many = [
        make_row(f"many-{n}", account_id="many", created_at=NOON + timedelta(days=n / 10))
        for n in range(1_001)
    ]
    documents.jobs.insert_many(jobs)
    documents.ledger.insert_many([*rows, make_row(jobs[-1]["_id"]), *many])
    made = {}
    for name, words in PAGES.items():
        made[name] = tmp_path / f"{name.replace(' ', '-')}.html"
        made[name].write_text(invoke("balance", "explain", *words, "--format", "html").out)
    return made


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The validator and the accessibility checker, from npm."""
    place = tmp_path_factory.mktemp("node")
    words = [NPM or "", "install", "--no-audit", "--no-fund", "--prefix", str(place), *PACKAGES]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    return place / "node_modules"


@pytest.mark.skipif(not (NODE and NPM), reason="Node is missing")
def test_every_page_is_valid_and_accessible(pages: dict[str, Path], node_modules: Path) -> None:
    words = [NODE or "", "-e", CHECK, *map(str, pages.values())]
    done = subprocess.run(
        words, capture_output=True, cwd=node_modules.parent, timeout=300, check=True
    )
    said = json.loads(done.stdout)
    assert said == {str(page): [] for page in pages.values()}


def chromium(folder: Path, *words: str) -> str:
    """Run the browser without a window; return what it prints."""
    profile = f"--user-data-dir={folder / 'profile'}"
    fixed = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", profile]
    done = subprocess.run(
        [CHROMIUM or "", *fixed, *words], capture_output=True, timeout=300, check=True
    )
    return done.stdout.decode()


def looked_at(pages: Sequence[Path], axe: Path, folder: Path, scheme: str) -> list[Any]:
    """What the accessibility checker says of pages in a browser at two widths, and their widths."""
    script = f"<script>{axe.read_text()}</script><script>{LOOK}</script></body>"
    shown = [page.read_text().replace("</body>", script) for page in pages]
    quoted = [one.replace("&", "&amp;").replace('"', "&quot;") for one in shown]
    frames = [
        f'<iframe width="{width}" height="900" srcdoc="{one}"></iframe>'
        for one in quoted
        for width in WIDTHS
    ]
    frame = folder / "frame.html"
    frame.write_text(
        "".join(frames) + "<script>setInterval(() => { const said = Array.from("
        "document.querySelectorAll('iframe'), one => one.contentDocument.body.textContent);"
        " if (said.every(one => one.startsWith('{'))) document.title = `[${said}]`; }, 100);</script>"
    )
    words = [f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"]
    dumped = chromium(folder, *words, "--virtual-time-budget=60000", "--dump-dom", frame.as_uri())
    found = re.search(r"<title>(\[.*?)</title>", dumped, re.DOTALL)
    assert found, dumped[-500:]
    return list(json.loads(unescape(found[1])))


@pytest.mark.skipif(not (NODE and NPM and CHROMIUM), reason="Node or a browser is missing")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_phone_and_can_be_read_by_everybody(
    pages: dict[str, Path], node_modules: Path, tmp_path: Path, scheme: str
) -> None:
    axe = node_modules / "axe-core" / "axe.min.js"
    said = looked_at([pages["statement"], pages["support"]], axe, tmp_path, scheme)
    assert [one["violations"] for one in said] == [[]] * 4
    assert all(one["width"] <= width for one, width in zip(said, WIDTHS * 2, strict=True))


@pytest.mark.skipif(not CHROMIUM, reason="a browser is missing")
def test_a_thousand_jobs_print_on_at_most_twelve_pages(
    invoke: Invoker, documents: Documents, tmp_path: Path
) -> None:
    rows = []
    for n in range(1_000):
        name, at = f"0192f3c4-7a1b-7c3d-8e4f-{n:012}", NOON + timedelta(days=n // 12)
        for row_type, sign in (("charge", -1), ("refund", 1), ("reclaim", -1)):
            rows.append(make_row(name, row_type, amount=sign * (n + 1), created_at=at))
    documents.ledger.insert_many(rows)
    page, paper = tmp_path / "page.html", tmp_path / "page.pdf"
    words = ("balance", "explain", "acct-1", "--for", "customer", "--format", "html")
    page.write_text(invoke(*words).out)
    chromium(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}", page.as_uri())
    count = len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes()))
    assert 5 <= count <= 12  # the details are open on paper
