"""`ledgerctl queue`: what waits, the worker loop, and what dead workers left behind."""

import time
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ledgerctl.cli.boundary import say
from ledgerctl.cli.change import Change, change, finish, run
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.options import SHOWN, Limit
from ledgerctl.cli.session import Session
from ledgerctl.domain.queue import ListName, WorkerCounts
from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.domain.times import parse_duration
from ledgerctl.errors import HungUp, Interrupted, Terminated, UsageError
from ledgerctl.render.report import Report

if TYPE_CHECKING:
    from ledgerctl.domain.queue import Pushed, WorkerEntries
    from ledgerctl.operations.handlers import Handler
    from ledgerctl.operations.queue import PushPlan
    from ledgerctl.operations.worker import HandlerRun, Limits

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


Watch = Annotated[
    str | None,
    typer.Option(
        "--watch",
        help="Show it in place, anew each DURATION (2s), until Ctrl-C.",
        metavar="[DURATION]",
        show_default=False,
    ),
]


@command(app, "stats")
def stats(session: Session, watch: Watch = None) -> Report | None:
    """Count what is due, what waits, and what workers have in hand.

    Shows also when the next job comes due, and how many dead letters there are. --watch shows it
    in place, with what changed in the last minute, until Ctrl-C.

    Examples: ledgerctl queue stats
              ledgerctl queue stats --watch 5s
    """
    from ledgerctl.operations.queue import stats as count
    from ledgerctl.render.views.queue import stats_report

    if watch is not None:
        watch_stats(session, parse_duration(watch))
        return None
    return stats_report(count(session.stores.queues, now=redis_now(session)))


def watch_stats(session: Session, every: timedelta) -> None:
    """Show the counts in place until Ctrl-C."""
    from ledgerctl.cli.watch import require_screen, watch
    from ledgerctl.operations.queue import stats as count
    from ledgerctl.render.views.queue import LastMinute

    if every <= timedelta(0):
        raise UsageError("--watch wants a duration above 0s")
    require_screen(session)
    last_minute = LastMinute()
    queues = session.stores.queues

    def page() -> list[str]:
        now = queues.now(session.clock(), session.note)
        return last_minute.page(count(queues, now=now), now)

    watch(session, page, every_s=every.total_seconds())


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
    from ledgerctl.operations.queue import plan_push, required_job
    from ledgerctl.operations.queue import push as apply_plan
    from ledgerctl.render.views.queue import pushed_report

    def plan() -> "PushPlan":
        required_job(session.stores, job)  # an entry of a job that does not exist helps nobody
        return plan_push(
            session.stores, job, error=error, attempts=attempts, now=redis_now(session)
        )

    def apply(planned: "PushPlan", run: "Run[Pushed]") -> None:
        run.result.items.append(apply_plan(session.stores, planned, plan))
        run.result.count("pushed", fate=Fate.DONE)

    return change(
        session,
        Change(
            plan=plan,
            question=lambda planned: f"push {job} to {planned.after.place.replace('_', ' ')}",
            preview=lambda planned: Result([planned.result]),
            apply=apply,
            view=lambda planned, result: pushed_report(
                planned.job_id, result, dry_run=session.dry_run
            ),
            ready=lambda: require_writable(session),
        ),
    )


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
    warn_of_skew(session)
    return run_worker(session, handler, Limits(watch=watch, jobs_max=1 if once else max_jobs))


def run_worker(session: Session, handler: "Handler", limits: "Limits") -> Report:
    """Run the worker loop to its end, and report what was done however it ended."""
    from ledgerctl.operations.worker import RetryQueue, work
    from ledgerctl.render.views.queue import worked_report

    tally = WorkerCounts()
    tell = partial(tell_run, session)

    def apply(running: "Run[None]") -> None:
        queue = RetryQueue(
            session.stores,
            operation_id=running.operation_id,
            clock=OwnClock(session.now),
            say=session.say,
            tally=tally,
        )
        try:
            with queue:
                work(queue, handler, limits=limits, stopping=running.stopping, tell=tell)
        except (Interrupted, Terminated, HungUp):
            session.say("ended by a second signal")
        finally:
            running.result.counts.update(tally.counts)
            running.result.fates[Fate.DONE] = tally.jobs + tally.dead_lettered

    result = run(
        session,
        apply,
        question="run handlers for due jobs",
        ready=lambda: require_writable(session),
    )
    if result.stopped:
        session.note(f"stopped {where_stopped(tally, handler)}")
    return finish(session, worked_report(tally), result)


def tell_run(session: Session, run: "HandlerRun") -> None:
    """Print one line about a job at once, whatever the format; none with --quiet."""
    from ledgerctl.render.text import visible
    from ledgerctl.render.views.queue import run_line

    if not session.words.quiet:
        session.progress_done()
        error, took = run.ending.error, run.duration
        line = run_line(session.clock(), run.job_id, run.attempt, error, took, run.result)
        say([visible(line)])


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
    from ledgerctl.domain.queue import recoverable
    from ledgerctl.operations.queue import plan_recovery
    from ledgerctl.operations.queue import recover as move
    from ledgerctl.render.views.queue import recovered_report

    duration = parse_duration(older_than)

    def apply(found: "list[WorkerEntries]", run: "Run[tuple[str, int]]") -> None:
        run.result.not_tried = recoverable(found)
        for worker, moved in move(session.stores, found, stopping=run.stopping):
            run.result.items.append((worker, moved))
            run.result.count("recovered", moved, fate=Fate.DONE)
            run.result.not_tried -= moved

    return change(
        session,
        Change(
            plan=lambda: plan_recovery(session.stores, older_than=duration, force=force),
            size=recoverable,
            question=lambda found: (
                f"recover {recoverable(found)} jobs of"
                f" {sum(one.hold is None for one in found)} dead workers"
            ),
            preview=lambda found: Result(
                [(one.worker, one.entries) for one in found if one.hold is None]
            ),
            apply=apply,
            view=lambda found, result: recovered_report(
                found, result.items, dry_run=session.dry_run
            ),
            bulk=True,
            ready=lambda: require_writable(session),
        ),
    )


def where_stopped(tally: WorkerCounts, handler: "Handler") -> str:
    """Say whether the job in hand was finished or put back, or there was none."""
    if tally.put_back:
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


def time_limit(text: str | None) -> timedelta | None:
    """Return the handler's time limit. Raises UsageError for none at all."""
    duration = None if text is None else parse_duration(text)
    if duration is not None and duration <= timedelta(0):
        raise UsageError("--timeout leaves the handler no time")
    return duration


class OwnClock:
    """Hold a clock that goes on from a moment that was read once."""

    def __init__(self, started: datetime) -> None:
        self._started = started
        self._monotonic_s = time.monotonic()

    def __call__(self) -> datetime:
        """Now, aware UTC, milliseconds."""
        from ledgerctl.cli.session import milliseconds

        return milliseconds(self._started + timedelta(seconds=time.monotonic() - self._monotonic_s))


def redis_now(session: Session) -> datetime:
    """Return the time that due times are judged by: the Redis server's, else our own, with a note."""
    return session.stores.queues.now(session.now, session.note)


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
