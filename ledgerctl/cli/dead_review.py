"""Run `ledgerctl dead review`: one dead letter at a time, on a terminal, a key for each decision."""

import os
import re
import select
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledgerctl.cli.session import Session, is_terminal
from ledgerctl.cli.watch import draw, screen
from ledgerctl.domain.dead import (
    ARCHIVED_BYTES_MAX,
    Action,
    Letter,
    LetterPage,
    RequeuePolicy,
    Verdict,
)
from ledgerctl.domain.results import Fate, Run
from ledgerctl.errors import ConsentMissing
from ledgerctl.render.text import visible

if TYPE_CHECKING:
    from ledgerctl.operations.dead_review import Review

TOO_LARGE = (
    f"it has more than {ARCHIVED_BYTES_MAX:,} bytes, which the archive cannot hold: s skips it"
)
WAIT_S = 0.2
ENTER, END = "\n", "\x04"
PASTES_ON, PASTES_OFF = "\x1b[?2004h", "\x1b[?2004l"  # the terminal marks what is pasted
PASTE_BEGIN = b"\x1b[200~"
PASTE = re.compile(rb"\x1b\[200~.*?\x1b\[201~", re.DOTALL)
# Function keys, arrows and Alt with a key, in the spellings of xterm, rxvt and the Linux console.
SEQUENCE = re.compile(rb"\x1b+(?:\[\[.|\[[0-?]*[ -/]*[@-~]|O[0-9;]*[ -~]|[^\x1b\[O])", re.DOTALL)
UNFINISHED = re.compile(rb"\x1b+(?:\[\[?[0-?]*[ -/]*|O[0-9;]*)?\Z")
COUNTED = ("requeued", "released", "skipped", "not_seen")
KNOWN = frozenset("rRlsbumqyYn")


def require_terminal() -> None:
    """Raise ConsentMissing where nobody can press a key."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise ConsentMissing(
            "`dead review` asks about each letter, and there is no terminal to ask on",
            hint="`dead list` shows them, `dead requeue` and `dead release` take them in bulk",
        )


class Keyboard:
    """Read keys as they are pressed, without Enter, and lines as they are typed."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._terminal = sys.stdin.fileno()
        self._typing = termios.tcgetattr(self._terminal)
        self._stopping = stopping
        self._pending = b""
        self._keys: list[str] = []

    @contextmanager
    def keys(self) -> Iterator[None]:
        """Deliver each key at once, unseen, and have the terminal mark what is pasted."""
        tty.setcbreak(self._terminal)
        write(PASTES_ON)
        try:
            yield
        finally:
            write(PASTES_OFF)
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._typing)

    def key(self) -> str | None:
        """Wait for the next key; None at Ctrl-C, Ctrl-D or when the terminal is gone."""
        while not self._keys:
            read = self._read()
            if read is None:
                return None
            if not read and not self._pending.startswith(PASTE_BEGIN):
                self._pending = b""  # the Escape key alone
            self._keys, self._pending = keys_of(self._pending, read)
        key = self._keys.pop(0)
        return None if key == END else key

    def line(self) -> str:
        """Let the person type a line, and return what can be printed of it."""
        write(PASTES_OFF)
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._typing)
        try:
            read: bytes | None = b""
            while read == b"":
                read = self._read()
        finally:
            tty.setcbreak(self._terminal)
            write(PASTES_ON)
        text = PASTE.sub(b"", read or b"")
        typed = SEQUENCE.sub(b"", text).decode(errors="replace")
        return "".join(one for one in typed if one.isprintable()).strip()

    def _read(self) -> bytes | None:
        """Read what is there; nothing after a moment, None when there will be no more."""
        if self._stopping():
            return None
        ready, _, _ = select.select([self._terminal], [], [], WAIT_S)
        if not ready:
            return b""
        try:
            return os.read(self._terminal, 4096) or None
        except OSError:  # the terminal went away
            return None


def keys_of(pending: bytes, read: bytes) -> tuple[list[str], bytes]:
    """Split what was read into keys, and what is not complete yet; sequences and pastes are none.

    A terminal that does not mark pastes delivers them at once: several characters of which some
    are no keys are taken for one.
    """
    raw = PASTE.sub(b"", pending + read)
    begun = raw.find(PASTE_BEGIN)
    rest = b""
    if begun >= 0:  # only its last bytes may be part of the closing mark
        raw, rest = raw[:begun], PASTE_BEGIN + raw[begun + len(PASTE_BEGIN) :][-5:]
    raw = SEQUENCE.sub(b"", raw)
    if not rest and (unfinished := UNFINISHED.search(raw)):
        raw, rest = raw[: unfinished.start()], unfinished[0]
    typed = [one for one in raw.decode("ascii", "replace") if one not in "\r\n"]
    is_paste = len(typed) > 1 and not KNOWN.issuperset(one for one in typed if one != END)
    return [] if is_paste else typed, rest


@dataclass(slots=True)
class Sitting:
    """Keep what the person looks at, and what was decided so far."""

    session: Session
    review: "Review"
    letters: list[Letter]
    keyboard: "Keyboard | None" = None
    at: int = 0
    message: str = ""
    first_line: int = 0  # of the payload that is shown
    decided: dict[int, Action] = field(default_factory=dict)
    history: list[int] = field(default_factory=list)  # positions in `letters`, the last one last
    skipped: set[int] = field(default_factory=set)
    pages: dict[int, LetterPage] = field(default_factory=dict)

    def run(self, next_key: Callable[[], str | None]) -> None:
        """Show a letter, wait for a key, do; until the last letter, q or the terminal's end."""
        self.show()
        while (key := next_key()) not in {None, "q"}:
            self.do(key or "")
            if self.at >= len(self.letters):
                return
            self.show()

    def do(self, key: str) -> None:
        """Carry out one key."""
        self.message = ""
        match key:
            case "r" | "R":
                self.requeue(force=key == "R")
            case "l":
                self.release()
            case "s":
                if self.at not in self.decided:
                    self.skipped.add(self.at)
                self.move_to(self.at + 1)
            case "b":
                self.move_to(max(0, self.at - 1))
            case "u":
                self.undo()
            case "m":
                self.first_line += 10
            case _:
                self.message = "no such key"

    def move_to(self, at: int) -> None:
        """Turn to another letter, its payload from the start."""
        self.at, self.first_line = at, 0

    def requeue(self, *, force: bool) -> None:
        """Requeue a retryable letter; another one by R and y alone; an unreadable one never."""
        verdict = self.letters[self.at].verdict
        if verdict is Verdict.UNREADABLE:
            self.message = "it cannot be read, so it cannot be requeued; l releases it"
        elif verdict is Verdict.RETRYABLE:
            self.take(Action.REQUEUE)
        elif not force:
            self.message = f"it is {verdict}; R requeues it all the same"
        elif self.can_take() and self.confirms(f"it is {verdict}: requeue it all the same? y/n"):
            self.take(Action.REQUEUE)

    def confirms(self, question: str) -> bool:
        """Ask for a y."""
        self.message = question
        self.show()
        answer = self.keyboard.key() if self.keyboard is not None else None
        self.message = "not requeued"
        return answer in {"y", "Y"}

    def release(self) -> None:
        """Release a letter; the first time ask for the reason of all releases of this review."""
        if self.can_take() and (self.review.reason or self.asks_reason()):
            self.take(Action.RELEASE)

    def asks_reason(self) -> bool:
        """Ask for a reason and keep it in the operator log; nothing is released without one."""
        self.message = "why? (one reason for all releases of this review) "
        self.show(beside_message=True)
        reason = self.keyboard.line() if self.keyboard is not None else ""
        self.message = "" if reason else "no reason given: not released"
        if reason:
            self.review.keep_reason(reason)
        return bool(reason)

    def can_take(self) -> bool:
        """Tell if the letter can be taken at all, else say why not."""
        if self.at in self.decided:
            self.message = f"{self.decided[self.at]}d already; u undoes the last decision"
        elif not self.letters[self.at].fits_archive:
            self.message = TOO_LARGE
        return not self.message

    def take(self, action: Action) -> None:
        """Take the letter, unless that was done or somebody else was quicker."""
        self.message = ""
        if not self.can_take():
            return
        if self.review.take(self.letters[self.at], action):
            self.decided[self.at] = action
            self.history.append(self.at)
            self.skipped.discard(self.at)
            self.message = f"letter {self.at + 1} {action}d"
        else:
            self.skipped.add(self.at)
            self.message = f"somebody else has taken letter {self.at + 1} meanwhile"
        self.move_to(self.at + 1)

    def undo(self) -> None:
        """Put the last decision's letter back, at the tail of the dead letters."""
        if not self.history:
            self.message = "nothing to undo"
            return
        at = self.history.pop()
        if not self.review.undo_last():
            self.message = f"letter {at + 1} has left the retry queue: it cannot be put back"
            return
        del self.decided[at]
        self.pages.pop(at, None)
        self.move_to(at)
        self.message = f"letter {at + 1} was put back, at the tail of the dead letters"

    @property
    def counts(self) -> dict[str, int]:
        """Count the letters by what was decided; the counts add up to what was selected."""
        taken = list(self.decided.values())
        requeued, released = taken.count(Action.REQUEUE), taken.count(Action.RELEASE)
        skipped = len(self.skipped)
        left = len(self.letters) - len(taken) - skipped
        return dict(zip(COUNTED, (requeued, released, skipped, left), strict=True))

    def show(self, *, beside_message: bool = False) -> None:
        """Draw the letter, its job, its rows, the message and the keys, all on standard error."""
        from ledgerctl.render.views.review import Place, Size, frame, payload_pieces

        letter = self.letters[self.at]
        if self.at not in self.pages:
            self.pages[self.at] = self.review.page(letter)
        width, height = shutil.get_terminal_size((80, 24))
        if self.first_line >= len(payload_pieces(letter, width)):
            self.first_line = 0
        counts = {name: count for name, count in self.counts.items() if name != "not_seen"}
        place = Place(self.at + 1, len(self.letters), counts, self.message, self.first_line)
        lines = frame(self.pages[self.at], place, Size(width, height - 1), self.session.clock())
        if is_dumb(self.session):
            write("\n".join(["", *map(visible, lines), ""]))
        else:
            draw(lines, sys.stderr, cursor_after=self.message if beside_message else None)


def is_dumb(session: Session) -> bool:
    """Tell if the terminal cannot draw in place."""
    return session.environment.get("TERM", "dumb") in {"", "dumb"}


def write(text: str) -> None:
    """Write to the terminal at once."""
    sys.stderr.write(text)
    sys.stderr.flush()


def review(session: Session, letters: list[Letter], running: "Run[None]") -> None:
    """Go through these letters as one operation; its result has the decisions at any moment."""
    from ledgerctl.operations.dead_review import Review

    keyboard = Keyboard(running.stopping)
    decisions = Review(session.stores, running.operation_id, RequeuePolicy(), session.now)
    sitting = Sitting(session, decisions, letters, keyboard)
    try:
        with keyboard.keys(), nullcontext() if is_dumb(session) else screen(sys.stderr):
            sitting.run(keyboard.key)
    finally:
        running.result.counts.update(sitting.counts)
        running.result.fates[Fate.DONE] = len(sitting.decided)
