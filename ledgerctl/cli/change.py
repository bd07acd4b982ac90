"""The frame of every changing command: plan, consent, log, apply, report."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ledgerctl.cli.session import Session
from ledgerctl.domain.results import Fate, Item, Result, Run
from ledgerctl.errors import (
    ExitCode,
    LedgerctlError,
    OutcomeUnknown,
    SelectionChanged,
    UsageError,
    exit_code_of,
)
from ledgerctl.render.report import CommandLine, Report
from ledgerctl.render.text import shell_line

Planned = TypeVar("Planned")


@dataclass(frozen=True)
class Change(Generic[Planned, Item]):
    """Describe one changing command to the frame.

    `plan` only reads; `size` is what --expect is compared with; `preview` says what `apply` would
    do. `apply` fills in `run.result` as it goes and may raise at any point. `bulk` asks first.
    """

    plan: Callable[[], Planned]
    question: Callable[[Planned], str]
    preview: Callable[[Planned], Result[Item]]
    apply: Callable[[Planned, Run[Item]], None]
    view: Callable[[Planned, Result[Item]], Report]
    size: Callable[[Planned], int] = lambda _planned: 1
    bulk: bool = False
    ready: Callable[[], None] = lambda: None  # raises where the change could not be made


def change(session: Session, wanted: Change[Planned, Item]) -> Report:
    """Carry out a change, or preview it on a dry run, and report it.

    Nothing is asked and no operation is begun where nothing is selected.
    """
    planned = wanted.plan()
    result = preview_or_run(
        session,
        [wanted.question(planned)],
        size=wanted.size(planned),
        bulk=wanted.bulk,
        preview=lambda: wanted.preview(planned),
        apply=lambda running: wanted.apply(planned, running),
        ready=wanted.ready,
    )
    return finish(session, wanted.view(planned, result), result)


def preview_or_run(
    session: Session,
    question: Sequence[str],
    *,
    size: int,
    bulk: bool,
    preview: Callable[[], Result[Item]],
    apply: Callable[[Run[Item]], None],
    ready: Callable[[], None],
) -> Result[Item]:
    """Ask, then run; a dry run and an empty selection are only previewed."""
    consent(session, question, size=size, bulk=bulk)
    if session.dry_run or not size:
        return preview()
    return run(session, apply, ready=ready)


def consent(session: Session, question: Sequence[str], *, size: int, bulk: bool) -> None:
    """Return only when the change may go on; a dry run and an empty selection are never asked.

    Raises SelectionChanged, ConsentMissing or Declined. No terminal never means yes.
    """
    expected = session.words.expect
    if expected is not None and expected != size:
        raise SelectionChanged(
            f"expected {expected}, found {size}; nothing was changed",
            hint="look again with --dry-run",
        )
    if size and not session.dry_run:
        session.ask([*question, session.place()], bulk=bulk)


def run(
    session: Session,
    apply: Callable[[Run[Item]], None],
    *,
    question: str | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Result[Item]:
    """Run a change as one operation: rights first, then its log entry, the change, the entry's end.

    A loop, which has no plan, gives its `question` here: it is asked on a protected profile.

    Signals are held back from here on, so that the result is always reported. An error raised
    before anything changed is raised again; a later one is kept in the result. The entry's exit
    code is the one that the process ends with.
    """
    if question is not None:
        consent(session, [question], size=1, bulk=False)
    ready()
    operation = session.begin()
    result: Result[Item] = Result(operation_id=operation.id)
    before = session.stores.changes
    running = Run(
        operation.id,
        session.reason,
        result,
        stopping=lambda: session.stop.requested,
        progress=session.progress,
    )
    try:
        apply(running)
    except (LedgerctlError, OSError) as error:
        result.error = error if isinstance(error, LedgerctlError) else session.bug(error)
    except BaseException as error:
        session.end(operation, result.counts, exit_code_of(error))
        raise
    result.stopped = session.stop.requested
    result.changed = session.stores.changes > before
    if result.error is not None and not result.changed and not result.judged:
        session.end(operation, result.counts, exit_code_of(result.error))
        if session.unlogged:
            result.error.message += f"; {session.unlogged}"
        raise result.error
    session.progress_done()
    session.end(operation, result.counts, exit_code(result, session.stop.exit_code))
    return result


def exit_code(result: Result[Item], stop: ExitCode | None) -> int:
    """Give the exit code of a change. Source: contract, section 1."""
    if stop is not None:
        return int(stop)
    error, fates = result.error, result.fates
    if isinstance(error, OutcomeUnknown):
        return int(ExitCode.UNKNOWN)
    if isinstance(error, UsageError):  # a handler that cannot be started
        return int(error.exit_code)
    if error is not None:
        partly = result.changed or result.reached
        return int(ExitCode.PARTIAL if partly else error.exit_code)
    if result.alarm:
        return int(ExitCode.FOUND)
    if not fates[Fate.REFUSED] and not fates[Fate.NOT_FOUND]:
        return int(ExitCode.DONE)
    if result.reached:
        return int(ExitCode.PARTIAL)
    return int(ExitCode.REFUSED if fates[Fate.REFUSED] else ExitCode.NOT_FOUND)


def finish(session: Session, report: Report, result: Result[Item]) -> Report:
    """Complete a change's report with what every change tells, and with the command that goes on."""
    from ledgerctl.render.views.change import changed

    if result.error is not None or result.stopped or result.alarm:
        # Even with --quiet: the exit code says so too.
        session.notes += [
            f"{stopped_by(result)}; to continue, run:",
            resume_command(result.fates[Fate.DONE]),
        ]
    code = session.ended if session.ended is not None else exit_code(result, None)
    return changed(report, result, dry_run=session.dry_run, exit_code=code)


def stopped_by(result: Result[Item]) -> str:
    """Say why a run ended early and how much of it is left."""
    error = result.error
    why = "stopped" if error is None else f"ended early: {error.message}"
    if error is not None and error.hint:
        why += f" ({error.hint})"
    return f"{why}; {result.not_tried} not tried" if result.not_tried else why


def resume_command(done: int) -> CommandLine:
    """Give the command that goes on where this one stopped: `--limit` by what is left, no `--expect`."""
    words: list[str] = []
    given = iter(sys.argv[1:])
    for word in given:
        name, equals, value = word.partition("=")
        if name == "--expect":
            if not equals:
                next(given, None)
        elif name == "--limit":
            limit = value if equals else next(given, "")
            left = int(limit) - done if limit.isdigit() else 0
            words += ["--limit", str(max(1, left))]
        else:
            words.append(word)
    return shell_line(["ledgerctl", *words])
