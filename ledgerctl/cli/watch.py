"""Draw a page in place on a terminal, again and again; leave no trace at its end."""

import shutil
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from ledgerctl.cli.session import Session, is_terminal
from ledgerctl.errors import Interrupted, LedgerctlError, UsageError
from ledgerctl.render.text import visible

OPEN, CLOSE = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"  # the second screen
HIDE_CURSOR = "\x1b[?25l"
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def require_screen(session: Session) -> None:
    """Raise UsageError where nothing can be drawn in place."""
    can_draw = is_terminal(sys.stdout) and session.environment.get("TERM") not in {None, "", "dumb"}
    if not can_draw or session.format != "table":
        raise UsageError(
            f"`{session.words.command} --watch` draws on a terminal",
            hint=f"`ledgerctl {session.words.command} -o json` gives the figures once",
        )


def watch(session: Session, page: Callable[[], Sequence[str]], *, every_s: float) -> None:
    """Draw the page every so many seconds until Ctrl-C, which ends it well.

    An error before the first page is raised; later ones are shown, and the page is tried again.
    """
    lines = page()
    try:
        with screen(sys.stdout):
            while not session.stop.requested:
                draw(lines, sys.stdout)
                time.sleep(every_s)
                lines = next_page(session, page, lines)
    except LedgerctlError:
        if not isinstance(session.stop.ended, Interrupted):
            raise
    if isinstance(session.stop.ended, Interrupted):
        session.stop.ended = None


def next_page(
    session: Session, page: Callable[[], Sequence[str]], before: Sequence[str]
) -> Sequence[str]:
    """Make the next page; after an error, the page before under what is wrong."""
    try:
        return page()
    except LedgerctlError as error:
        if session.stop.requested:
            raise
        return [*before[:1], f"{error.message}; trying again", *before[2:]]


@contextmanager
def screen(stream: TextIO) -> Iterator[None]:
    """Use the terminal's second screen without echo; give the first one back as it was."""
    keyboard = sys.stdin.fileno() if is_terminal(sys.stdin) else None
    echoing = None if keyboard is None else termios.tcgetattr(keyboard)
    if keyboard is not None and echoing is not None:
        quiet = [*echoing[:3], echoing[3] & ~termios.ECHO, *echoing[4:]]
        termios.tcsetattr(keyboard, termios.TCSADRAIN, quiet)
    stream.write(OPEN)
    try:
        yield
    finally:
        stream.write(CLOSE)
        stream.flush()
        if keyboard is not None and echoing is not None:
            termios.tcsetattr(keyboard, termios.TCSAFLUSH, echoing)


def draw(lines: Sequence[str], stream: TextIO, *, cursor_after: str | None = None) -> None:
    """Write the page over the one before in one piece, cut to the terminal's size.

    The cursor ends below it, or behind the line `cursor_after`, for somebody to type there.
    """
    width, height = shutil.get_terminal_size((80, 24))
    shown = [visible(line)[: width - 1] for line in lines[: height - 1]]
    page = HOME + "".join(f"{line}{REST_OF_LINE}\n" for line in shown) + REST_OF_SCREEN
    if cursor_after in shown:
        page += f"\x1b[{shown.index(cursor_after) + 1};{len(cursor_after) + 1}H\x1b[?25h"
    else:
        page += HIDE_CURSOR
    stream.write(page)
    stream.flush()
