"""`ledgerctl queue`: what waits, the worker loop, and what dead workers left behind."""

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ledgerctl.cli.again import go_on
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.options import SHOWN, Limit
from ledgerctl.cli.session import Session
from ledgerctl.domain.queue import ListName
from ledgerctl.domain.times import parse_duration
from ledgerctl.errors import (
    ExitCode,
    Interrupted,
    LedgerctlError,
    OutcomeUnknown,
    Terminated,
    UsageError,
)
from ledgerctl.render.report import Report

if TYPE_CHECKING:
    from ledgerctl.operations.handlers import Handler
    from ledgerctl.operations.queue import PushPlan
    from ledgerctl.operations.worker import Limits, RetryQueue

app = noun("queue")

SKEW_SAID = timedelta(seconds=5)  # clocks that differ by more are named


CommandLine = Annotated[
    str,
    typer.Option(
        "--exec",
        help="Command to run for each job, without a shell: payload on its standard input,"
        " LEDGERCTL_JOB_ID and LEDGERCTL_ATTEMPTS in its environment. Exit 0 is success.",
        metavar="COMMAND",
        show_default=False,
    ),
]
MaxJobs = Annotated[
    int | None,
    typer.Option("--max-jobs", min=1, help="End after N jobs.", metavar="N", show_default=False),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        help="End a handler, and what it forked, after this long; that is a failure.",
        metavar="DURATION",
        show_default=False,
    ),
]


@command(app, "stats")
def stats(session: Session) -> Report:
    """Count what is due, what waits, and what workers have in hand.

    Shows also when the next job comes due, and what lies among the dead letters.

    Examples: ledgerctl queue stats
              ledgerctl queue stats -o json
    """
    from ledgerctl.operations.queue import stats as count
    from ledgerctl.render.views.queue import stats_report

    return stats_report(count(session.stores.queues, now=redis_now(session)))


@command(app, "list")
def list_entries(
    session: Session,
    which: Annotated[ListName, typer.Argument(help="Which list.", show_default=False)],
    limit: Limit = SHOWN,
) -> Report:
    """List the entries of one list, from its head on.

    Nothing is moved. What cannot be read is shown with the reason.

    Examples: ledgerctl queue list retry --limit 0
              ledgerctl queue list processing -o csv
    """
    from ledgerctl.operations.queue import listed
    from ledgerctl.render.views.queue import entries_report

    now = redis_now(session)
    found, total = listed(session.stores.queues, which, limit=limit)
    return entries_report(found, total, now=now)


@command(app, "push", effect=Effect.CHANGE)
def push(
    session: Session,
    job: Annotated[str, typer.Argument(help="Job id.", metavar="JOB", show_default=False)],
    error: Annotated[
        str, typer.Option("--error", help="What went wrong.", metavar="TEXT", show_default=False)
    ],
    attempts: Annotated[
        int | None,
        typer.Option(
            "--attempts",
            min=0,
            help="Failures before this one, instead of the count found.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
) -> Report:
    """Do what a failing worker does: count, then retry or dead letter.

    The count found is that of the job's entry on processing, which is moved, else on retry,
    which is rewritten in place, else 0. One more is used in min(base * 2^attempts, max) and
    against the cap: attempts >= max_attempts is a dead letter.

    Examples: ledgerctl queue push job-42 --error "GPU timed out"
              ledgerctl queue push job-42 --error "GPU timed out" --dry-run
    """
    from ledgerctl.operations.queue import plan_push
    from ledgerctl.operations.queue import push as apply
    from ledgerctl.render.views.queue import pushed_report

    def plan() -> "PushPlan":
        return plan_push(
            session.stores, job, error=error, attempts=attempts, now=redis_now(session)
        )

    session.permit()
    planned = plan()
    to = planned.after.place.replace("_", " ")
    session.consent([f"push {job} to {to}", session.place()], count=1, bulk=False)
    if session.dry_run:
        return pushed_report(planned.result, operation_id=None, dry_run=True)
    require_writable(session)
    with session.operation() as operation:
        result = apply(session.stores, planned, plan)
        operation.count("pushed")
    return pushed_report(result, operation_id=operation.id, dry_run=False)


@command(app, "work", effect=Effect.LOOP)
def work(
    session: Session,
    command_line: CommandLine,
    once: Annotated[bool, typer.Option("--once", help="Deal with one due job, then end.")] = False,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is due; the default.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait for more when nothing is due.")
    ] = False,
    max_jobs: MaxJobs = None,
    timeout: Timeout = None,
) -> Report:
    """Run a command for each due job of the retry queue.

    Success: the job's status is set and a refund that stands is taken back. Failure: the charge
    is refunded, once, and the job goes back to retry or, at the cap, to the dead letters. A job
    that is settled already is not run. Failed handlers leave exit 0.

    Ctrl-C and SIGTERM let the job in hand finish first; a second one ends its handler at once
    and puts the job back.

    Examples: ledgerctl queue work --exec "python render.py" --watch --timeout 15m
              ledgerctl queue work --exec "sh -c 'render | upload'" --once
    """
    from ledgerctl.operations.handlers import Handler, handler_words
    from ledgerctl.operations.worker import Limits

    if once + until_empty + watch > 1:
        raise UsageError("--once, --until-empty and --watch exclude each other")
    handler = Handler(
        words=handler_words(command_line),
        environment=session.environment,
        timeout=time_limit(timeout),
        show=session.say if session.words.verbose else None,
        tick=StopSaid(session),
    )
    session.consent(["run handlers for due jobs", session.place()], count=0, bulk=False)
    warn_of_skew(session)
    return run_worker(session, handler, Limits(watch=watch, jobs_max=1 if once else max_jobs))


def run_worker(session: Session, handler: "Handler", limits: "Limits") -> Report:
    """Run the worker loop to its end, and report what was done however it ended."""
    from ledgerctl.operations.worker import RetryQueue
    from ledgerctl.operations.worker import work as run
    from ledgerctl.render.views.queue import worked_report

    trouble: LedgerctlError | None = None
    require_writable(session)
    with session.operation() as operation:
        queue = RetryQueue(
            session.stores, operation=operation, clock=OwnClock(session.now), say=session.say
        )
        try:
            with queue:
                run(queue, handler, limits=limits, stopping=lambda: session.stop.requested)
        except (Interrupted, Terminated):
            session.say("ended by a second signal")
        except LedgerctlError as error:
            if not queue.tally.changed:
                raise
            trouble = error
        operation.exit_code = ending_code(session, trouble)
        count_all(queue, operation.counts)
    if session.stop.requested:
        session.note(f"stopped {where_stopped(queue, handler)}; go on with: {go_on()}")
    return worked_report(
        queue.tally, operation_id=operation.id, trouble=trouble, code=operation.exit_code
    )


@command(app, "recover", effect=Effect.BULK)
def recover(
    session: Session,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            help="Workers whose lease was last renewed longer ago than this.",
            metavar="DURATION",
        ),
    ] = "10m",
    force: Annotated[
        bool,
        typer.Option("--force", help="Also lists without any lease. A live worker's list never."),
    ] = False,
) -> Report:
    """Put back on retry what dead workers had in hand.

    Entries go back byte for byte. Dead is a worker whose lease was last renewed longer ago than --older-than, by the MongoDB
    server's clock. A live worker's job is never recovered, however long its handler runs.

    Examples: ledgerctl queue recover --older-than 10m --dry-run
              ledgerctl queue recover --force --yes --reason "host gpu-3 is gone"
    """
    from ledgerctl.operations.queue import plan_recovery
    from ledgerctl.operations.queue import recover as move
    from ledgerctl.render.views.queue import recovered_report

    duration = parse_duration(older_than)
    session.permit()
    found = plan_recovery(session.stores, older_than=duration, force=force)
    dead = [worker for worker in found if worker.hold is None]
    count = sum(worker.entries for worker in dead)
    lines = [f"recover {count} jobs of {len(dead)} dead workers", session.place()]
    session.consent(lines, count=count, bulk=True)
    if session.dry_run or not count:
        return recovered_report(found, None, operation_id=None, dry_run=session.dry_run)
    require_writable(session)
    with session.operation() as operation:
        outcome = move(session.stores, dead, stopping=lambda: session.stop.requested)
        operation.count("recovered", outcome.recovered)
        operation.exit_code = ending_code(session, outcome.trouble)
    if session.stop.requested:
        session.note(f"stopped after {outcome.recovered} of {count}; go on with: {go_on()}")
    return recovered_report(found, outcome, operation_id=operation.id, dry_run=False)


def where_stopped(queue: "RetryQueue", handler: "Handler") -> str:
    """Whether the job in hand was finished or put back, or there was none."""
    if queue.tally.put_back:
        return "at once: the job in hand was put back"
    said = isinstance(handler.tick, StopSaid) and handler.tick.said
    return "after the job in hand was finished" if said else "between two jobs"


class StopSaid:
    """Says once, while a handler runs, what a first signal does."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.said = False

    def __call__(self) -> None:
        """Say it, if a signal came and it was not said yet."""
        if self._session.stop.requested and not self.said:
            self.said = True
            self._session.say(
                "stopping: the job in hand is finished first;"
                " a second signal ends its handler at once and puts the job back"
            )


def ending_code(session: Session, trouble: LedgerctlError | None) -> int:
    """The exit code of a run that may have been stopped or ended by a store."""
    if session.stop.exit_code is not None:
        return int(session.stop.exit_code)
    if trouble is None:
        return int(ExitCode.DONE)
    unknown = isinstance(trouble, OutcomeUnknown)
    return int(ExitCode.UNKNOWN if unknown else ExitCode.PARTIAL)


def count_all(queue: "RetryQueue", counts: dict[str, int]) -> None:
    """Put the tally into the operator log's counts."""
    from dataclasses import asdict

    counts.update({name: number for name, number in asdict(queue.tally).items() if number})


def time_limit(text: str | None) -> timedelta | None:
    """The handler's time limit. Raises UsageError for none at all."""
    duration = None if text is None else parse_duration(text)
    if duration is not None and duration <= timedelta(0):
        raise UsageError("--timeout leaves the handler no time")
    return duration


class OwnClock:
    """A clock that goes on from a moment that was read once."""

    def __init__(self, started: datetime) -> None:
        self._started = started
        self._monotonic_s = time.monotonic()

    def __call__(self) -> datetime:
        """Now, aware UTC, milliseconds."""
        from ledgerctl.cli.session import milliseconds

        return milliseconds(self._started + timedelta(seconds=time.monotonic() - self._monotonic_s))


def redis_now(session: Session) -> datetime:
    """The time that due times are judged by: the Redis server's, else our own, which is said."""
    queues = session.stores.queues
    now = queues.now(session.now)
    if queues.clock_is_own and OWN_CLOCK_USED not in session.notes:
        session.note(OWN_CLOCK_USED)
    return now


OWN_CLOCK_USED = "Redis may not be asked for its time: due times are judged by our own clock"


def warn_of_skew(session: Session) -> None:
    """Say so when this machine's clock and the Redis server's differ by more than seconds."""
    skew = session.stores.queues.now(session.now) - OwnClock(session.now)()
    if abs(skew) > SKEW_SAID:
        way = "behind" if skew > timedelta(0) else "ahead of"
        session.say(
            f"this machine's clock is {abs(skew).total_seconds():.0f} s {way} the Redis server's;"
            " due times are judged by the server's"
        )


def require_writable(session: Session) -> None:
    """Refuse before the first change where the lists cannot be changed."""
    from secrets import token_hex

    keys = session.settings.keys
    session.stores.queues.require_writable(
        f"{keys.retry}:try:{token_hex(8)}", keys.retry, keys.dead_letter
    )
