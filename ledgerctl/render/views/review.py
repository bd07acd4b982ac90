"""Lay out one dead letter on a screen: position, verdict, job and error always, the rest cut."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ledgerctl.domain.dead import Letter, LetterPage
from ledgerctl.domain.payload import Unreadable
from ledgerctl.domain.times import format_time
from ledgerctl.render.text import age_text, folded_sentence, telling_line, visible
from ledgerctl.render.views.job import job_document

KEYS = "r requeue · l release · s skip · b back · u undo the last · m more · q quit"
ERROR_LINES, ID_LINES, ROWS = 2, 3, 4
PAYLOAD_BYTES = 100_000  # `dead show` has the rest


@dataclass(frozen=True, slots=True)
class Place:
    """Say which letter of how many this is, what was decided so far, and what is being asked."""

    number: int
    count: int
    counts: Mapping[str, int]
    message: str
    first_line: int  # of the payload's lines on this screen


@dataclass(frozen=True, slots=True)
class Size:
    """Give the columns and lines of the screen."""

    width: int
    height: int


def frame(page: LetterPage, place: Place, size: Size, now: datetime) -> list[str]:
    """Lay out a letter on exactly the screen: head, payload as far as it fits, job, rows, keys."""
    letter = page.letters[0]
    head = head_lines(letter, place, size.width, now)
    tail = [
        *job_lines(page, now),
        *folded(place.message, size.width)[:2],
        *folded(KEYS, size.width),
    ]
    room = max(1, size.height - len(head) - len(tail))
    return [*head, *payload_lines(letter, place.first_line, room, size.width), *tail]


def head_lines(letter: Letter, place: Place, width: int, now: datetime) -> list[str]:
    """Show position, verdict, job, error and age; the job's id whole."""
    decided = ", ".join(f"{count} {name}" for name, count in place.counts.items() if count)
    failed = "" if letter.failed_at is None else f"  failed {age_text(letter.failed_at, now)}"
    attempts = "" if letter.payload is None else f"  attempts {letter.payload.attempts}"
    error = (
        letter.read.why if isinstance(letter.read, Unreadable) else telling_line(letter.error or "")
    )
    lines = folded(f"error    {error}", width)
    return [
        f"letter {place.number} of {place.count}  {decided}".rstrip(),
        f"verdict  {letter.verdict}{attempts}{failed}  digest {letter.digest}",
        *few(pieces(f"job      {visible(letter.job_id or '-')}", width)),
        *few(pieces(f"account  {visible(letter.account_id or '-')}", width)),
        *(lines if len(lines) <= ERROR_LINES else [lines[0], f"{lines[1][: width - 3]} …"]),
        "",
    ]


def few(lines: Sequence[str]) -> Sequence[str]:
    """Cut an id that would fill the screen; `dead show` has it whole."""
    if len(lines) <= ID_LINES:
        return lines
    return [*lines[: ID_LINES - 1], f"… {len(lines) - ID_LINES + 1} more lines: `dead show`"]


def payload_lines(letter: Letter, first: int, room: int, width: int) -> list[str]:
    """Show the payload from one of its lines on, and how much of it is left."""
    lines = payload_pieces(letter, width)
    shown = lines[first : first + room - 1]
    left = len(lines) - first - len(shown)
    unread = len(letter.raw) - PAYLOAD_BYTES
    more = f", {unread} bytes not shown here" if unread > 0 else ""
    return [*shown, f"… {left} more lines of the payload: m more{more}" if left else more[2:]]


def payload_pieces(letter: Letter, width: int) -> Sequence[str]:
    """Cut the payload into lines of the screen."""
    return pieces(visible(letter.raw[:PAYLOAD_BYTES].decode(errors="backslashreplace")), width)


def job_lines(page: LetterPage, now: datetime) -> list[str]:
    """Show the job's flags and its last ledger rows, or why there are none."""
    if page.job is None:
        return [f"no job: {page.error}"]
    job = job_document(page.job)
    lines = [
        f"job is {job['state']} (refunded {flag(job['is_refunded'])}, reclaimed"
        f" {flag(job['is_reclaimed'])}), status {job['status'] or '-'}, net {job['net']}"
    ]
    hidden = len(job["rows"]) - ROWS
    lines += [f"… {hidden} earlier rows"] * (hidden > 0)
    return lines + [row_line(row, now) for row in job["rows"][-ROWS:]]


def row_line(row: Mapping[str, Any], now: datetime) -> str:
    """Show one ledger row with its age."""
    at = row["created_at"]
    dated = f"{format_time(at)} ({age_text(at, now)})" if isinstance(at, datetime) else str(at)
    return f"  {row['type']:<10} {row['amount']!s:>8}  {dated}"


def flag(value: object) -> str:
    """Spell a flag as JSON does."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def folded(text: str, width: int) -> list[str]:
    """Fold a sentence to the screen."""
    return [
        piece for line in folded_sentence(visible(text), width) for piece in pieces(line, width)
    ]


def pieces(text: str, width: int) -> Sequence[str]:
    """Cut a text into lines of the screen's width, losing nothing."""
    room = max(1, width - 1)
    return [text[at : at + room] for at in range(0, len(text), room)] or [""]
