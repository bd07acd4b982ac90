"""`ledgerctl dead`: look at dead letters; requeue, release and restore them."""

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerctl.cli.change import resume_command
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.dead_selectors import (
    LIMIT,
    SHOWN_LIMIT,
    Chosen,
    Plan,
    read_plan,
    selecting,
    selection,
)
from ledgerctl.cli.session import Session
from ledgerctl.domain.dead import Action, RequeuePolicy
from ledgerctl.domain.times import format_time, parse_duration
from ledgerctl.errors import ExitCode, LedgerctlError, PartlyDone, UsageError
from ledgerctl.render.report import Report

if TYPE_CHECKING:
    from ledgerctl.domain.dead_results import Changed
    from ledgerctl.operations.dead_changes import Prepared, Request

app = noun("dead")

CLOCK_SKEW = timedelta(seconds=5)
GROUPS_SHOWN = 8

Force = Annotated[
    bool, typer.Option("--force", help="Move all but unreadable letters, whatever the verdict.")
]


@command(app, "list")
@selecting(SHOWN_LIMIT)
def list_letters(session: Session, chosen: Chosen) -> Report:
    """List dead letters from the head on, each with what its job's ledger says of it.

    Examples: ledgerctl dead list --verdict retryable
              ledgerctl dead list --error 'timed? out' --failed-after yesterday
    """
    from dataclasses import replace

    from ledgerctl.domain.dead import select
    from ledgerctl.operations.dead import look
    from ledgerctl.render.views.dead import letters

    plan = None if chosen.plan is None else read_any_plan(chosen.plan)
    wanted = replace(selection(session, chosen, plan), limit=None)
    found = select(look(session.stores, wanted), wanted, None).letters
    return letters(found[: chosen.limit] if chosen.limit else found, len(found))


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
def stats(
    session: Session,
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
    """Count dead letters by error and by verdict.

    Examples: ledgerctl dead stats
              ledgerctl dead stats --fail-over 100 --fail-age 2h --quiet
    """
    from ledgerctl.operations.dead import count
    from ledgerctl.render.views.dead import statistics

    age = None if fail_age is None else parse_duration(fail_age)
    found = count(session.stores)
    notes = []
    if fail_over is not None and found.depth > fail_over:
        notes.append(f"{found.depth} dead letters, more than {fail_over}")
    oldest = found.oldest_failed_at
    if age is not None and oldest is not None and server_now(session) - oldest > age:
        notes.append(f"the oldest failed at {format_time(oldest)}, longer than {fail_age} ago")
    code = ExitCode.FOUND if notes else ExitCode.DONE
    return statistics(found, exit_code=int(code), notes=notes)


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
) -> Report:  # fmt: skip
    """Put dead letters back on the retry queue: those whose jobs still want to be run.

    Look first with --dry-run; its JSON is a plan that --plan takes. Undo with `dead restore`.

    Examples: ledgerctl dead requeue --group 5f2c9a01 --spread 15m --dry-run
              ledgerctl dead requeue --all --limit 20 --yes
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
    return change(session, Action.REQUEUE, chosen, plan, policy_of(words), words)


@command(app, "release", effect=Effect.BULK)
@selecting(LIMIT)
def release(session: Session, chosen: Chosen) -> Report:
    """Take dead letters off for good; they stay in the archive, and `dead restore` undoes it.

    Examples: ledgerctl dead release --verdict settled --reason "delivered after all"
              ledgerctl dead release --digest 3f2a9c01be77 --reason "test entry"
    """
    if not (session.reason or "").strip():
        raise UsageError(
            "a release wants its reason", hint='say why with --reason "…": it is kept in the log'
        )
    plan = None if chosen.plan is None else read_plan(session, chosen.plan, Action.RELEASE)
    return change(session, Action.RELEASE, chosen, plan, RequeuePolicy(), {})


@command(app, "restore", effect=Effect.BULK)
def restore(
    session: Session,
    operation_id: Annotated[
        str, typer.Argument(help="Operation id.", metavar="OPERATION_ID", show_default=False)
    ],
) -> Report:
    """Put back what an operation released, and what it requeued that still waits on retry.

    Byte for byte, at the tail of the dead letters, in the operation's order; run it as often as
    you like, nothing is put back twice.

    Examples: ledgerctl dead restore 20260311T031400123Z-5f2c9a01be --dry-run
              ledgerctl dead restore 20260311T031400123Z-5f2c9a01be --yes
    """
    from ledgerctl.operations.dead import leased
    from ledgerctl.operations.dead_restore import Restore, preview, taken_by
    from ledgerctl.render.views.dead import restored

    session.permit()
    stores, keys = session.stores, session.stores.queues.keys
    stores.queues.require_lists(keys.dead_letter, keys.retry)
    found = preview(stores, operation_id, taken_by(stores, operation_id))
    lines = [
        f"restore {found.restored} dead letters of operation {operation_id}"
        f" ({found.already_back} are back, {found.gone} have left retry)",
        session.place(),
    ]
    session.consent(lines, count=found.restored, bulk=True)
    if session.dry_run:
        return restored(found, operation_id=None)
    stores.dead_letters.require()
    with leased(stores, operator=session.settings.operator, needed=False):
        pass  # only puts back what a dead owner passed over: restored letters go to the tail
    with session.operation() as operation:
        done = Restore(
            stores,
            operation.id,
            operation_id,
            taken_by(stores, operation_id),
            stopping=lambda: session.stop.requested,
        ).run()
        operation.exit_code = ending(session, done.exit_code)
        for name in ("restored", "already_back", "gone"):
            operation.count(name, getattr(done, name))
    if done.interrupted:
        session.note(
            f"stopped with {done.not_tried} to go; go on with: {resume_command(done.restored)}"
        )
    return restored(done, operation_id=operation.id)


@command(app, "review", effect=Effect.LOOP)
@selecting(LIMIT)
def review(session: Session, chosen: Chosen) -> Report:
    """Go through dead letters one at a time: a key requeues, releases or skips each.

    Keys: r requeue, l release, s skip, b back, u undo the last, q quit.

    Examples: ledgerctl dead review --verdict retryable
              ledgerctl dead review --all --limit 20
    """
    from ledgerctl.cli.dead_review import require_terminal
    from ledgerctl.cli.dead_review import review as sit
    from ledgerctl.domain.dead import select
    from ledgerctl.operations.dead import leased, look
    from ledgerctl.render.views.dead import reviewed

    session.permit()
    require_terminal()
    session.consent(["review dead letters", session.place()], count=0, bulk=False)
    session.stores.dead_letters.require()
    with leased(session.stores, operator=session.settings.operator, needed=False):
        pass  # puts back what a dead owner passed over
    plan = None if chosen.plan is None else read_any_plan(chosen.plan)
    wanted = selection(session, chosen, plan)
    found = select(look(session.stores, wanted), wanted, None).moving
    if not found:
        session.note("no dead letter to review")
        return reviewed({"operation_id": None, "requeued": 0, "released": 0, "skipped": 0})
    return reviewed(sit(session, found, RequeuePolicy()))


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


def change(
    session: Session,
    action: Action,
    chosen: Chosen,
    plan: Plan | None,
    policy: RequeuePolicy,
    words: dict[str, Any],
) -> Report:
    """Look, ask, take, report: the same for requeue and release."""
    from ledgerctl.operations.dead_changes import Request, prepare, preview
    from ledgerctl.render.views.dead import changed

    session.permit()
    request = Request(
        action, selection(session, chosen, plan), policy, None if plan is None else plan.at
    )
    if request.selection.is_empty:
        raise UsageError(
            "no dead letter is selected",
            hint="name jobs or digests, give a filter, or say --all",
        )
    if session.dry_run:
        prepared = prepare(session.stores, request)
        session.consent([], count=len(prepared.selected.letters), bulk=True)
        options = words | {"selectors": chosen.given()}
        return changed(preview(session.stores, request, prepared), plan_of(session, options))
    session.stores.dead_letters.require()
    done = apply(session, request)
    if done.interrupted or done.trouble is not None:
        session.note(
            f"{done.moved} moved, {done.not_tried} to go; go on with: {resume_command(done.moved)}"
        )
    return changed(done)


def apply(session: Session, request: "Request") -> "Changed":
    """Take what is meant, once it is confirmed; what was confirmed is what is taken."""
    from ledgerctl.operations.dead import leased, leased_if_free
    from ledgerctl.operations.dead_changes import gains_by_lease, prepare

    confirmed = ask(session, request) if will_ask(session) else None
    operator = session.settings.operator
    needed = request.selection.is_filter
    with leased(session.stores, operator=operator, needed=needed) as lease:
        prepared = prepare(session.stores, request, only=confirmed)
        if confirmed is None:
            session.consent([], count=len(prepared.selected.letters), bulk=True)
        deep = lease is None and gains_by_lease(session.stores, prepared)
        with leased_if_free(session.stores, operator=operator, wanted=deep) as own:
            return take(session, request, prepared, lease or own)


def take(session: Session, request: "Request", prepared: "Prepared", lease: Any) -> "Changed":
    """One operation in the log around the taking; a log that fails after it is said, no more."""
    from dataclasses import replace

    from ledgerctl.operations.dead_changes import apply as move

    done: Changed | None = None
    try:
        with session.operation() as operation:
            done = move(
                session.stores,
                request,
                prepared,
                operation,
                now=server_now(session),
                lease=lease,
                stopping=lambda: session.stop.requested,
                progress=lambda count: session.progress(
                    f"{request.action}: {count} of {len(prepared.selected.moving)}"
                ),
            )
            operation.exit_code = ending(session, done.exit_code)
    except LedgerctlError as error:
        if done is None:
            raise
        trouble = PartlyDone(f"the letters are moved, the log is not: {error.message}")
        done = replace(done, trouble=trouble, exit_code=int(trouble.exit_code))
    session.progress_done()
    return done


def ending(session: Session, exit_code: int) -> int:
    """What the log keeps as the exit code: an interrupted run ends as one."""
    return int(session.stop.exit_code or exit_code)


def will_ask(session: Session) -> bool:
    """Whether somebody has to answer before anything is changed."""
    words = session.words
    return not words.yes or (session.settings.protected and words.confirm is None)


def ask(session: Session, request: "Request") -> "Counter[bytes]":
    """Show what would happen and ask; returns the letters that were confirmed, by their bytes."""
    from ledgerctl.operations.dead_changes import prepare

    prepared = prepare(session.stores, request)
    session.consent(question(session, request, prepared), count=len(prepared.selected.letters), bulk=True)  # fmt: skip
    return Counter(letter.raw for letter in prepared.selected.letters)


def question(session: Session, request: "Request", prepared: "Prepared") -> list[str]:
    """The counts by verdict and by error, where, and as whom."""
    from ledgerctl.domain.dead import Tally, counted

    selected = prepared.selected
    verdicts = counted(str(letter.verdict) for letter in selected.letters)
    groups = Tally(selected.moving).error_groups()
    lines = [
        f"{request.action} {len(selected.moving)} of {len(selected.letters)} selected dead letters"
        f" ({len(prepared.letters)} in all)",
        session.place(),
        "by verdict: " + (", ".join(f"{count} {name}" for name, count in verdicts.items()) or "-"),
        *(f"  {one.count:>7}  {one.group}  {one.error}" for one in groups[:GROUPS_SHOWN]),
    ]
    if len(groups) > GROUPS_SHOWN:
        rest = sum(one.count for one in groups[GROUPS_SHOWN:])
        lines.append(f"  {rest:>7}  in {len(groups) - GROUPS_SHOWN} more groups of errors")
    return lines


def plan_of(session: Session, options: dict[str, Any]) -> dict[str, Any]:
    """What makes a dry run's document a plan: what, where and how."""
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


def read_any_plan(file: str) -> Plan:
    """A plan of either command, only to look at its letters."""
    from ledgerctl.cli.dead_selectors import parse_plan, plan_items

    return Plan(plan_items(parse_plan(file), Action.RELEASE, force=True), {}, None)


def whole(value: object) -> int | None:
    """A whole number of a plan."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def text(value: object) -> str | None:
    """A text of a plan."""
    return value if isinstance(value, str) else None
