"""`ledgerctl dead review`: one dead letter at a time, on a terminal, a key for each decision."""

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledgerctl.cli.session import Session, is_terminal
from ledgerctl.domain.dead import ARCHIVED_BYTES_MAX, Action, Letter, RequeuePolicy, Verdict
from ledgerctl.errors import ConsentMissing

if TYPE_CHECKING:
    from ledgerctl.domain.results import Run
    from ledgerctl.operations.dead_review import Review

KEYS = "r requeue · l release · s skip · b back · u undo the last · q quit"
TOO_LARGE = (
    f"it has more than {ARCHIVED_BYTES_MAX:,} bytes, which the archive cannot hold: s skips it"
)
WAIT_S = 0.2
QUIT = "q"


def require_terminal() -> None:
    """Raise ConsentMissing where nobody can press a key."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise ConsentMissing(
            "`dead review` wants a terminal: it asks about each letter",
            hint="`dead list` shows them, `dead requeue` and `dead release` take them in bulk",
        )


@contextmanager
def keys(session: Session) -> Iterator[Iterator[str]]:
    """The keys as they are pressed, without Enter; they end with q, Ctrl-C or a closed terminal."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield pressed(session, terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def pressed(session: Session, terminal: int) -> Iterator[str]:
    """One key after the other; line ends are no keys, so that Enter after a key does no harm."""
    while not session.stop.requested:
        ready, _, _ = select.select([terminal], [], [], WAIT_S)
        if not ready:
            continue
        try:
            read = os.read(terminal, 1)
        except OSError:  # the terminal went away
            return
        if not read or read == b"\x04":
            return
        if read not in b"\r\n":
            yield read.decode(errors="replace")


@dataclass(slots=True)
class Sitting:
    """What the person looks at, and what was decided so far."""

    session: Session
    review: "Review"
    letters: list[Letter]
    at: int = 0
    decided: dict[int, Action] = field(default_factory=dict)
    history: list[int] = field(default_factory=list)  # positions in `letters`, the last one last
    skipped: set[int] = field(default_factory=set)

    def run(self, pressed_keys: Iterator[str]) -> None:
        """Show, wait for a key, do; until the last letter or q."""
        self.show()
        for key in pressed_keys:
            if key == QUIT:
                break
            if self.do(key):
                if self.at >= len(self.letters):
                    break
                self.show()
        self.say("")

    def do(self, key: str) -> bool:
        """Carry out one key; whether another letter is to be shown."""
        match key:
            case "r" | "R":
                return self.requeue(force=key == "R")
            case "l":
                return self.take(Action.RELEASE)
            case "s":
                self.skipped.add(self.at)
                self.at += 1
                return True
            case "b":
                self.at = max(0, self.at - 1)
                return True
            case "u":
                return self.undo()
            case _:
                self.say(KEYS)
                return False

    def requeue(self, *, force: bool) -> bool:
        """Requeue a retryable letter; another one only by a capital R; an unreadable one never."""
        verdict = self.letters[self.at].verdict
        if verdict is Verdict.UNREADABLE:
            self.say("it cannot be read, so it cannot be requeued; l releases it")
            return False
        if verdict is not Verdict.RETRYABLE and not force:
            self.say(f"it is {verdict}; R requeues it all the same")
            return False
        return self.take(Action.REQUEUE)

    def take(self, action: Action) -> bool:
        """Take the letter, unless that was done or somebody else was quicker."""
        if self.at in self.decided:
            self.say(f"{self.decided[self.at]}d already; u undoes the last decision")
            return False
        if not self.letters[self.at].fits_archive:
            self.say(TOO_LARGE)
            return False
        if self.review.take(self.letters[self.at], action):
            self.decided[self.at] = action
            self.history.append(self.at)
            self.skipped.discard(self.at)
            self.say(f"{action}d")
        else:
            self.say("somebody else has taken it meanwhile")
        self.at += 1
        return True

    def undo(self) -> bool:
        """Put the last decision's letter back, at the tail of the dead letters."""
        if not self.history:
            self.say("nothing to undo")
            return False
        if not self.review.undo_last():
            self.say("it has left the retry queue: it cannot be put back")
            self.history.pop()
            return False
        self.at = self.history.pop()
        del self.decided[self.at]
        self.say("put back, at the tail of the dead letters")
        return True

    def count(self, action: Action) -> int:
        """How many letters were taken that way."""
        return sum(one is action for one in self.decided.values())

    def counts(self) -> dict[str, int]:
        """Count what was decided, skipped and not seen."""
        return {
            "requeued": self.count(Action.REQUEUE),
            "released": self.count(Action.RELEASE),
            "skipped": len(self.skipped),
            "not_seen": max(0, len(self.letters) - max(self.at, *self.decided, 0)),
        }

    # what the person sees, all on standard error

    def show(self) -> None:
        """The letter, its job, its rows, and the keys."""
        from ledgerctl.render.views.dead import page

        letter = self.letters[self.at]
        self.say("")
        self.say(f"letter {self.at + 1} of {len(self.letters)}")
        self.session.show(page(self.review.page(letter), [letter]))
        self.say(KEYS)

    def say(self, text: str) -> None:
        """One line for the person."""
        from ledgerctl.render.text import visible

        sys.stderr.write(visible(text) + "\n")
        sys.stderr.flush()


def review(session: Session, letters: list[Letter], running: "Run[None]") -> None:
    """Go through these letters; what was decided is in the result at any moment."""
    from ledgerctl.operations.dead_review import Review

    decisions = Review(session.stores, running.operation_id, RequeuePolicy(), session.now)
    sitting = Sitting(session, decisions, letters)
    try:
        with keys(session) as pressed_keys:
            sitting.run(pressed_keys)
    finally:
        for name, count in sitting.counts().items():
            running.result.count(name, count)
