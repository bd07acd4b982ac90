"""`ledgerctl dead`: look at dead letters; requeue, release and restore them."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerctl.cli.change import Change, change, finish, preview_or_run, run
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.dead_selectors import (
    LIMIT,
    SHOWN_LIMIT,
    Chosen,
    PlanFile,
    read_any_plan,
    read_plan,
    selecting,
    selection,
)
from ledgerctl.cli.session import Session, terminal_width
from ledgerctl.domain.dead import Action, RequeuePolicy
from ledgerctl.domain.times import format_time, parse_duration
from ledgerctl.errors import ExitCode, LedgerctlError, NotFound, UsageError
from ledgerctl.render.report import Report
from ledgerctl.render.text import telling_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerctl.domain.dead import Plan, Selection
    from ledgerctl.domain.outcomes import Guide
    from ledgerctl.domain.results import Result, Run
    from ledgerctl.operations.dead import Request

app = noun("dead")

CLOCK_SKEW = timedelta(seconds=5)
GROUPS_SHOWN = 8

Force = Annotated[
    bool, typer.Option("--force", help="Move all but unreadable letters, whatever the verdict.")
]


@command(app, "list")
@selecting(SHOWN_LIMIT)
def list_letters(
    session: Session,
    chosen: Chosen,
    tail: Annotated[
        bool, typer.Option("--tail", help="From the tail on, the newest first.")
    ] = False,
) -> Report:
    """List dead letters from the head on, each with its job's state and a verdict.

    Examples: ledgerctl dead list --verdict retryable
              ledgerctl dead list --error 'timed? out' --failed-after yesterday
    """
    from ledgerctl.operations.dead import listed
    from ledgerctl.operations.dead import tail as listed_from_tail
    from ledgerctl.render.views.dead import letters

    plan = None if chosen.plan is None else read_any_plan(chosen.plan)
    wanted = selection(session, chosen, plan)
    look = listed_from_tail if tail else listed
    found, total = look(session.stores, wanted, limit=chosen.limit or None)
    depth = max(session.stores.dead_letters.depth(), total)
    nothing = none_of(session, depth)
    notes = undated_notes(session, wanted)
    if not total and session.format != "table":
        notes.append(nothing)
    return letters(found, total, depth=depth, nothing=nothing, notes=notes)


def none_of(session: Session, depth: int) -> str:
    """Say that nothing is selected: of how many, or of which list that is empty."""
    settings = session.settings
    if depth:
        return f"none of {depth} dead letters matches"
    return f"no dead letters: {settings.keys.dead_letter} is empty (database {settings.database!r})"


def undated_notes(session: Session, wanted: "Selection") -> list[str]:
    """Say how many letters the bounds of a failure time cannot judge."""
    from ledgerctl.operations.dead import count_undated

    if wanted.failed_before is None and wanted.failed_after is None:
        return []
    undated = count_undated(session.stores, wanted)
    noun = "letter" if undated == 1 else "letters"
    said = f"not judged, because failed_at is no time: {undated} {noun}"
    return [said] if undated else []


@command(app, "show")
def show(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(help="Job id or digest.", metavar="JOB|DIGEST", show_default=False),
    ],
) -> Report:
    """Show a dead letter: its raw payload, its job, its ledger rows; also from the archive.

    Examples: ledgerctl dead show job-42
              ledgerctl dead show 3f2a9c01be77 -o json
    """
    from ledgerctl.operations.dead import archived_letter
    from ledgerctl.operations.dead import show as look
    from ledgerctl.render.views.dead import page

    found = look(session.stores, name, now=session.stores.mongo.now())
    shown = found.letters or tuple(
        archived_letter(session.stores, one) for one in found.archived[:1]
    )
    return page(found, shown)


@command(app, "stats")
@selecting({})
def stats(
    session: Session,
    chosen: Chosen,
    top: Annotated[
        int, typer.Option("--top", min=0, help="Show this many groups; 0 shows all.", metavar="N")
    ] = 20,
    fail_over: Annotated[
        int | None,
        typer.Option("--fail-over", min=0, help="Exit 5 with more letters than this.", metavar="N"),
    ] = None,
    fail_age: Annotated[
        str | None,
        typer.Option(
            "--fail-age", help="Exit 5 when one failed longer ago than this.", metavar="DURATION"
        ),
    ] = None,
) -> Report:
    """Count dead letters by error and by verdict, and show the commands that come next.

    Examples: ledgerctl dead stats
              ledgerctl dead stats --fail-over 100 --fail-age 2h --quiet
    """
    from ledgerctl.operations.dead import count
    from ledgerctl.render.views.dead import statistics

    age = None if fail_age is None else parse_duration(fail_age)
    plan = None if chosen.plan is None else read_any_plan(chosen.plan)
    wanted = selection(session, chosen, plan)
    found = count(session.stores, wanted)
    alarms = []
    if fail_over is not None and found.selected > fail_over:
        alarms.append(f"{found.selected} dead letters, more than {fail_over}")
    oldest = found.oldest_failed_at
    if age is not None and oldest is not None and server_now(session) - oldest > age:
        alarms.append(f"the oldest failed at {format_time(oldest)}, longer than {fail_age} ago")
    if age is not None and found.undated:
        alarms.append(f"may be older, because failed_at is no time: {found.undated}")
    notes = alarms + undated_notes(session, wanted)
    if not found.selected:
        notes.append(none_of(session, found.depth))
    return statistics(
        found,
        top=top,
        selectors=[*chosen.words(), *place_words(session)],
        exit_code=int(ExitCode.FOUND if alarms else ExitCode.DONE),
        notes=notes,
    )


def place_words(session: Session) -> list[str]:
    """Write the options that choose profile and configuration as they were typed."""
    given = {"--profile": session.words.profile, "--config": session.words.config}
    return [word for name, value in given.items() if value for word in (name, value)]


@command(app, "requeue", effect=Effect.BULK)
@selecting(LIMIT)
def requeue(
    session: Session,
    chosen: Chosen,
    attempts: Annotated[
        int | None,
        typer.Option("--attempts", min=0, help="Set attempts to this; default 0.", metavar="N", show_default=False),
    ] = None,
    keep_attempts: Annotated[
        bool, typer.Option("--keep-attempts", help="Leave attempts as they are.")
    ] = False,
    delay: Annotated[
        str | None,
        typer.Option("--delay", help="Due after this time; default 0s.", metavar="DURATION", show_default=False),
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option("--spread", help="Due times spread evenly over this; default 0s.", metavar="DURATION", show_default=False),
    ] = None,
    force: Force = False,
    ramp: Annotated[
        str | None,
        typer.Option("--ramp", help="Move in steps of these sizes; the last one repeats.", metavar="N[,N…]", show_default=False),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option("--wait", help="How long a step waits for its outcomes; default 10m.", metavar="DURATION", show_default=False),
    ] = None,
    stop_over: Annotated[
        str | None,
        typer.Option("--stop-over", help="Stop when a larger share of a step died or is failing; default 5%.", metavar="P%", show_default=False),
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option("--in-flight", min=1, help="Never more than N moved letters without an outcome.", metavar="N", show_default=False),
    ] = None,
) -> Report:  # fmt: skip
    """Put dead letters back on the retry queue: those whose jobs still want to be run.

    Look first with --dry-run; its JSON is a plan that --plan takes. Undo with `dead restore`.
    With --ramp it moves a step, waits until its jobs have an outcome, and goes on or stops.

    Examples: ledgerctl dead requeue --group 5f2c9a01 --spread 15m --dry-run
              ledgerctl dead requeue --all --ramp 20,100,500 --in-flight 200 --yes
    """
    if attempts is not None and keep_attempts:
        raise UsageError("--attempts and --keep-attempts exclude each other")
    plan = None if chosen.plan is None else read_plan(session, chosen.plan, Action.REQUEUE)
    words = {
        "attempts": attempts,
        "keep_attempts": keep_attempts,
        "delay": delay,
        "spread": spread,
        "force": force,
    }
    words = options_of(words, {} if plan is None else plan.options)
    guide = guide_of(ramp, wait, stop_over, in_flight)
    return moved(session, Action.REQUEUE, chosen, plan, policy_of(words), words, guide)


def guide_of(
    ramp: str | None, wait: str | None, stop_over: str | None, in_flight: int | None
) -> "Guide | None":
    """Read how a guided requeue goes; None without --ramp. Raises UsageError."""
    from ledgerctl.domain.outcomes import Guide, parse_percent, parse_ramp

    if ramp is None:
        if wait is not None or stop_over is not None or in_flight is not None:
            raise UsageError("--wait, --stop-over and --in-flight go with --ramp")
        return None
    patience = parse_duration("10m" if wait is None else wait)
    share = parse_percent("5%" if stop_over is None else stop_over)
    return Guide(parse_ramp(ramp), patience, share, in_flight)


@command(app, "release", effect=Effect.BULK)
@selecting(LIMIT)
def release(session: Session, chosen: Chosen) -> Report:
    """Take dead letters off for good; they stay in the archive, and `dead restore` undoes it.

    Examples: ledgerctl dead release --verdict settled --reason "delivered after all"
              ledgerctl dead release --digest 3f2a9c01be77 --reason "test entry"
    """
    if not (session.reason or "").strip():
        raise UsageError(
            "a release needs a reason", hint='say why with --reason "…": it is kept in the log'
        )
    plan = None if chosen.plan is None else read_plan(session, chosen.plan, Action.RELEASE)
    return moved(session, Action.RELEASE, chosen, plan, RequeuePolicy(), {})


@command(app, "restore", effect=Effect.BULK)
def restore(
    session: Session,
    operation_id: Annotated[
        str | None, typer.Argument(help="Operation id.", metavar="OPERATION_ID", show_default=False)
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="The operator's own last requeue or release.")
    ] = False,
    from_archive: Annotated[
        bool,
        typer.Option(
            "--from-archive", help="Also what Redis has lost: from the archive, if on no list."
        ),
    ] = False,
) -> Report:
    """Put back what an operation released, and what it requeued that still waits on retry.

    Byte for byte, at the tail of the dead letters, in the operation's order; run it as often as
    you like, nothing is put back twice.

    Examples: ledgerctl dead restore 20260311T031400123Z-5f2c9a01be --dry-run
              ledgerctl dead restore --last --yes
    """
    from ledgerctl.operations.dead import leased
    from ledgerctl.operations.dead_restore import preview, restorable
    from ledgerctl.operations.dead_restore import restore as put_back
    from ledgerctl.render.views.dead import restored

    stores, keys = session.stores, session.stores.queues.keys
    stores.queues.require_lists(keys.dead_letter, keys.retry)
    taken_by = operation_named(session, operation_id, last=last)
    found = restorable(stores, taken_by, from_archive=from_archive)
    expected = preview(stores, found)

    def apply(_planned: object, running: "Run[None]") -> None:
        with leased(stores, operator=session.settings.operator, needed=False):
            pass  # only puts back what a dead owner passed over: restored letters go to the tail
        again = restorable(stores, taken_by, from_archive=from_archive)
        put_back(stores, again, running)

    counts = expected.counts
    return change(
        session,
        Change(
            plan=lambda: found,
            size=lambda _found: counts["restored"],
            question=lambda _found: (
                f"restore {counts['restored']} dead letters of operation {taken_by}"
                f" ({counts['already_back']} are back, {counts['gone']} have left retry)"
            ),
            preview=lambda _found: expected,
            apply=apply,
            view=lambda found, result: restored(found, result, dry_run=session.dry_run),
            bulk=True,
            ready=stores.dead_letters.require,
        ),
    )


@command(app, "review", effect=Effect.LOOP)
@selecting(LIMIT)
def review(session: Session, chosen: Chosen) -> Report:
    """Go through dead letters one at a time: a key requeues, releases or skips each.

    Keys: r requeue, R requeue whatever the verdict, l release, s skip, b back, u undo the last,
    m more of the payload, q quit. The first release asks for the reason of all of them.

    Examples: ledgerctl dead review --verdict retryable
              ledgerctl dead review --all --limit 20
    """
    from ledgerctl.cli.dead_review import require_terminal
    from ledgerctl.cli.dead_review import review as sit
    from ledgerctl.operations.dead import leased, listed
    from ledgerctl.render.views.dead import reviewed

    require_terminal()
    plan = None if chosen.plan is None else read_any_plan(chosen.plan)
    wanted = selection(session, chosen, plan)

    def apply(running: "Run[None]") -> None:
        with leased(session.stores, operator=session.settings.operator, needed=False):
            pass  # puts back what a dead owner passed over
        found, _ = listed(session.stores, wanted, limit=wanted.limit)
        if found:
            sit(session, found, running)
        else:
            session.note("no dead letter to review")

    ready = session.stores.dead_letters.require
    result = run(session, apply, question="review dead letters", ready=ready)
    return finish(session, reviewed(result), result)


def operation_named(session: Session, operation_id: str | None, *, last: bool) -> str:
    """Return the operation to restore. Raises UsageError, or NotFound where there is no last one."""
    if last == (operation_id is not None):
        raise UsageError(
            "name one operation, or say --last", hint="`ledgerctl log list` shows the operations"
        )
    if operation_id is not None:
        return operation_id
    operator = session.settings.operator
    found = session.stores.operator_log.last_of(operator, ("dead requeue", "dead release"))
    if found is None:
        raise NotFound(
            f"operator {operator!r} has requeued and released nothing in database"
            f" {session.settings.database!r}"
        )
    return found


# --- requeue and release -------------------------------------------------------------------


def options_of(given: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any]:
    """The options of a requeue: what was typed, else the plan's, else the defaults."""
    keep = given["keep_attempts"]
    attempts = given["attempts"]
    if attempts is None and not keep:
        keep = planned.get("keep_attempts") is True
        attempts = whole(planned.get("attempts"))
    return {
        "attempts": None if keep else attempts or 0,
        "keep_attempts": keep,
        "delay": given["delay"] or text(planned.get("delay")) or "0s",
        "spread": given["spread"] or text(planned.get("spread")) or "0s",
        "force": given["force"] or planned.get("force") is True,
    }


def policy_of(options: dict[str, Any]) -> RequeuePolicy:
    """The options as a policy. Raises UsageError for what is no duration."""
    return RequeuePolicy(
        attempts=options["attempts"],
        delay=parse_duration(options["delay"]),
        spread=parse_duration(options["spread"]),
        force=options["force"],
    )


def moved(
    session: Session,
    action: Action,
    chosen: Chosen,
    plan_file: PlanFile | None,
    policy: RequeuePolicy,
    words: dict[str, Any],
    guide: "Guide | None" = None,
) -> Report:
    """Requeue or release what is selected; a dry run shows it."""
    from ledgerctl.operations.dead import Request, leased, plan, planned_letters
    from ledgerctl.operations.dead_moves import preview
    from ledgerctl.render.views.dead import changed, planned
    from ledgerctl.render.views.log import guided

    wanted = selection(session, chosen, plan_file)
    if wanted.is_empty:
        raise UsageError(
            "no dead letter is selected",
            hint="name jobs or digests, give a filter, or say --all",
        )
    request = Request(action, wanted, policy, None if plan_file is None else plan_file.at)
    confirmed = will_ask(session)
    made = plan(session.stores, request, shown=session.dry_run or confirmed)
    result: Result[Any] = preview_or_run(
        session,
        question(session, request, made) if confirmed else [],
        size=len(made.selected),
        bulk=True,
        preview=lambda: preview(made),
        apply=mover(session, request, made, guide, confirmed=confirmed),
        ready=session.stores.dead_letters.require,
    )
    if session.dry_run:
        place = plan_of(session, words | {"selectors": chosen.given()})
        items = planned_letters(session.stores, made, requeues=True)
        return finish(session, planned(made, items, place), result)
    if not made.selected and made.depth > made.length:
        with leased(session.stores, operator=session.settings.operator, needed=False, passed=True):
            pass  # only puts back what a killed run passed over
    left = remaining(session) if result.operation_id else made.depth
    report = changed(result.items[0] if result.items else made, result, remaining=left)
    return finish(session, guided(report, result.items[1:]), result)


def mover(
    session: Session, request: "Request", made: "Plan", guide: "Guide | None", *, confirmed: bool
) -> "Callable[[Run[Any]], None]":
    """Return what moves the letters of a plan, all at once or step by step, as one operation."""
    from ledgerctl.operations.dead_moves import carry_out
    from ledgerctl.operations.outcomes import carry_out_guided

    operator = session.settings.operator
    if guide is not None:
        return lambda running: carry_out_guided(
            session.stores,
            request,
            made,
            running,
            guide=guide,
            operator=operator,
            clock=lambda: session.stores.queues.now(session.clock()),
        )
    return lambda running: carry_out(
        session.stores,
        request,
        made,
        running,
        operator=operator,
        now=server_now(session),
        confirmed=confirmed,
    )


def remaining(session: Session) -> int | None:
    """Count the letters that there are now; None when nobody can say any more."""
    try:
        return session.stores.dead_letters.depth()
    except LedgerctlError:
        return None


def will_ask(session: Session) -> bool:
    """Tell if somebody has to answer before anything is changed."""
    words = session.words
    asks = not words.yes or (session.settings.protected and words.confirm is None)
    return asks and not session.dry_run


def group_line(count: int, group: str, error: str) -> str:
    """Show a group of errors on one line of the terminal."""
    line = f"  {count:>7}  {group}  {visible(telling_line(error))}"
    width = terminal_width() - 1
    return line if len(line) <= width else f"{line[: width - 1]}…"


def question(session: Session, request: "Request", made: "Plan") -> list[str]:
    """Give the counts by verdict and by error."""
    from ledgerctl.domain.dead import counted
    from ledgerctl.domain.dead_stats import Tally
    from ledgerctl.operations.dead import planned_letters

    tally = Tally()
    for letter in planned_letters(session.stores, made):
        tally.add([letter])
    verdicts = counted(made.verdicts)
    groups = tally.error_groups()
    lines = [
        f"{request.action} {len(made.moving)} of {len(made.selected)} selected dead letters"
        f" ({made.depth} in all)",
        "by verdict: " + (", ".join(f"{count} {name}" for name, count in verdicts.items()) or "-"),
        *([due_line(session, made)] if request.action is Action.REQUEUE else ()),
        *(group_line(one.count, one.group, one.error) for one in groups[:GROUPS_SHOWN]),
    ]
    if len(groups) > GROUPS_SHOWN:
        rest = sum(one.count for one in groups[GROUPS_SHOWN:])
        lines.append(f"  {rest:>7}  in {len(groups) - GROUPS_SHOWN} more groups of errors")
    return lines


def due_line(session: Session, made: "Plan") -> str:
    """Say when the first and the last letter are due."""
    count, now = len(made.moving), session.clock()
    first, last = (made.policy.due(now, at, count) for at in (0, max(0, count - 1)))
    if last == now:
        return "due at once"
    return f"due from {format_time(first)} to {format_time(last)}"


def plan_of(session: Session, options: dict[str, Any]) -> dict[str, Any]:
    """Return what makes a dry run's document a plan: command, place and options."""
    return {
        "command": session.words.command,
        "profile": session.settings.profile,
        "database": session.settings.database,
        "at": session.stores.mongo.now(),
        "options": options,
    }


def server_now(session: Session) -> datetime:
    """The Redis server's time, or this machine's, said once."""
    own = session.clock()
    now = session.stores.queues.now(own, session.note)
    if abs(now - own) > CLOCK_SKEW:
        session.note(f"this machine's clock is off by {(own - now).total_seconds():.1f} s")
    return now


def whole(value: object) -> int | None:
    """A whole number of a plan."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def text(value: object) -> str | None:
    """A text of a plan."""
    return value if isinstance(value, str) else None
