"""`ledgerctl inbox`: audit, mend and consume the inbox."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerctl.cli.again import go_on
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.options import SHOWN, Limit
from ledgerctl.cli.session import Session
from ledgerctl.domain.inbox import Status, parse_lookup
from ledgerctl.domain.times import parse_duration
from ledgerctl.errors import ExitCode, LedgerctlError, OutcomeUnknown, PartlyDone, UsageError
from ledgerctl.render.report import Report

if TYPE_CHECKING:
    from ledgerctl.operations.claims import Claims
    from ledgerctl.operations.consume import Counts, Until, Work

app = noun("inbox")

Key = Annotated[str, typer.Argument(help="Message key.", metavar="KEY", show_default=False)]
Group = Annotated[
    str | None,
    typer.Option("--group", help="Consumer group.", metavar="GROUP", show_default=False),
]
ConsumedGroup = Annotated[str, typer.Option("--group", help="Consumer group.", metavar="GROUP")]
Topic = Annotated[
    str | None,
    typer.Option("--topic", help="Only this topic.", metavar="TOPIC", show_default=False),
]
Exec = Annotated[
    str | None,
    typer.Option(
        "--exec",
        help="Command for each message, run without a shell; the payload comes on its input.",
        metavar="COMMAND",
        show_default=False,
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Handle one message and end.")]
UntilEmpty = Annotated[bool, typer.Option("--until-empty", help="End when nothing is due.")]
Full = Annotated[
    bool, typer.Option("--full", help="Read the whole outbox, not just the part since the mark.")
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", help="End the command after this long.", metavar="DURATION", show_default=False
    ),
]
ClaimFor = Annotated[
    str,
    typer.Option("--claim-for", help="How long a claim stands unless renewed.", metavar="DURATION"),
]
BUILT_IN = "usage-daily"


@command(app, "audit")
def audit(
    session: Session,
    lookup: Annotated[
        list[str] | None,
        typer.Option(
            "--lookup",
            help="Measure a look-up by these fields instead of the usual ones; may be repeated.",
            metavar="FIELDS",
            show_default=False,
        ),
    ] = None,
) -> Report:
    """Measure both halves of every key against the stored rows and messages.

    For each claim the look-up is built from its own message: a look-up that misses, or that no
    unique index enforces, makes processed messages look new. Exit 5 when a key cannot be trusted.

    Examples: ledgerctl inbox audit
              ledgerctl inbox audit --lookup tenant_id,message_key
    """
    from ledgerctl.operations import inbox
    from ledgerctl.render.views import inbox as views

    lookups = [parse_lookup(text) for text in lookup or []]
    return views.audit(inbox.audit(session.stores, lookups))


@command(app, "stuck")
def stuck(
    session: Session,
    older_than: Annotated[
        str, typer.Option("--older-than", help="Not completed for this long.", metavar="DURATION")
    ] = "5m",
    limit: Limit = SHOWN,
) -> Report:
    """List claims that go in circles or do not end, by age and frequency; exit 5 if there are any.

    Stuck is what was not completed for that long, was delivered again after it was completed, or
    was delivered more often than the retry policy has attempts, whatever `attempts` says.

    Examples: ledgerctl inbox stuck --older-than 15m
              ledgerctl inbox stuck --limit 0 -o json
    """
    from ledgerctl.operations import inbox
    from ledgerctl.render.views import inbox as views
    from ledgerctl.stores.codec import to_shown

    found, total = inbox.stuck(session.stores, older_than=parse_duration(older_than), limit=limit)
    return views.stuck(
        [
            (to_shown(one.document), [str(why) for why in one.why], one.age, one.every)
            for one in found
        ],
        total,
    )


@command(app, "list")
def list_rows(
    session: Session,
    status: Annotated[
        Status | None,
        typer.Option("--status", help="Only rows of this status.", show_default=False),
    ] = None,
    group: Group = None,
    limit: Limit = SHOWN,
) -> Report:
    """List inbox rows, the newest first.

    Examples: ledgerctl inbox list --status dead
              ledgerctl inbox list --group usage-daily --limit 20
    """
    from ledgerctl.render.views import inbox as views
    from ledgerctl.stores.codec import to_shown

    found, total = session.stores.inbox.newest(
        status=None if status is None else status.value, group=group, limit=limit
    )
    return views.rows([to_shown(document) for document in found], total)


@command(app, "show")
def show(session: Session, key: Key, group: Group = None) -> Report:
    """Show one message and its row in every group that saw it.

    Examples: ledgerctl inbox show job-42:refund
              ledgerctl inbox show job-42:refund --group usage-daily -o json
    """
    from ledgerctl.operations import inbox
    from ledgerctl.render.views import inbox as views
    from ledgerctl.stores.codec import to_shown

    found = inbox.show(session.stores, key, group)
    return views.shown(found.key, to_shown(found.messages), to_shown(found.rows))


@command(app, "retry", effect=Effect.BULK)
def retry(session: Session, key: Key, group: Group = None) -> Report:
    """Put one message back: due now, with no attempts counted. Refused while it is being handled.

    Examples: ledgerctl inbox retry job-42:refund --group mail --reason "template fixed"
              ledgerctl inbox retry job-42:refund --group mail --dry-run
    """
    from ledgerctl.operations import inbox

    session.permit()
    standing = inbox.one_row(session.stores, key, group)
    inbox.check_retry(standing)
    lines = [f"retry message {key} of group {standing.group}", session.place()]
    return change_one(session, standing, inbox.retry, lines, "retried")


@command(app, "settle", effect=Effect.BULK)
def settle(
    session: Session,
    key: Annotated[
        str | None, typer.Argument(help="Message key.", metavar="KEY", show_default=False)
    ] = None,
    group: Group = None,
) -> Report:
    """Complete rows marked succeeded that lack the time of it, as of their last delivery.

    With a KEY it acknowledges that one row: completed, and its deliveries are counted from 0. A
    dead row is let go that way and stays dead.

    Examples: ledgerctl inbox settle --dry-run
              ledgerctl inbox settle job-42:refund --group usage-totals
    """
    from ledgerctl.operations import inbox

    session.permit()
    if key is None:
        return settle_all(session, group)
    standing = inbox.one_row(session.stores, key, group)
    inbox.check_settle(standing)
    lines = [f"settle message {key} of group {standing.group}", session.place()]
    return change_one(session, standing, inbox.acknowledge, lines, "settled")


@command(app, "consume", effect=Effect.LOOP)
def consume(
    session: Session,
    group: ConsumedGroup,
    topic: Topic = None,
    exec_command: Exec = None,
    once: Once = False,
    until_empty: UntilEmpty = False,
    full: Full = False,
    timeout: Timeout = None,
    claim_for: ClaimFor = "60s",
) -> Report:
    """Claim messages by (group, key), handle each, and mark it; run it as often as you like.

    Group usage-daily is built in and recomputes daily summaries. Any other group runs COMMAND:
    exit 0 succeeds, all else counts as a failed attempt; LEDGERCTL_MESSAGE_KEY and
    LEDGERCTL_ATTEMPTS say which. Ctrl-C and SIGTERM finish the message in hand.

    Examples: ledgerctl inbox consume --group usage-daily --until-empty
              ledgerctl inbox consume --group mail --topic job.failed --exec ./send-mail
    """
    from ledgerctl.operations.claims import Claims
    from ledgerctl.operations.consume import Backlog
    from ledgerctl.operations.consume import consume as run

    until = run_until(once=once, until_empty=until_empty)
    topic = checked_topic(group, topic, exec_command)
    term = claim_term(claim_for)
    limit = None if timeout is None else parse_duration(timeout)
    session.permit()
    claims = Claims(session.stores, group, owner=session.settings.operator, claim_for=term)
    work = work_of(session, claims, exec_command, limit)
    claims.require_index()
    session.consent([f"consume group {group}", session.place()], count=1, bulk=False)
    backlog = Backlog(session.stores, group, topic, term, full=full)
    with session.operation() as operation:
        counts = run(backlog, work, until=until, stopping=lambda: session.stop.requested)
        for name, number in totals(counts).items():
            operation.count(name, number)
        operation.exit_code = consumed_code(session, counts)
    return consumed(session, group, counts, operation.id)


# the commands' parts


def change_one(session: Session, standing: Any, change: Any, lines: list[str], verb: str) -> Report:
    """Ask, change one row, report it."""
    from ledgerctl.render.views import inbox as views
    from ledgerctl.stores.codec import to_shown

    def shown() -> Any:
        return to_shown(session.stores.inbox.documents([standing.row]))

    session.consent(lines, count=1, bulk=True)
    operation_id = None
    if session.dry_run:
        found = shown()
    else:
        with session.operation() as operation:
            change(session.stores, standing)
            operation.count(verb)
            found = shown()
        operation_id = operation.id
    return views.changed(
        found,
        verb=verb,
        selected=1,
        done=0 if session.dry_run else 1,
        operation_id=operation_id,
        dry_run=session.dry_run,
    )


def settle_all(session: Session, group: str | None) -> Report:
    """Ask with the count, settle in chunks, report; a dry run lists every row."""
    from ledgerctl.operations import inbox
    from ledgerctl.render.views import inbox as views
    from ledgerctl.stores.codec import to_shown

    rows = session.stores.inbox.unmarked(group)
    session.consent(
        [f"settle {len(rows)} rows marked succeeded", session.place()], count=len(rows), bulk=True
    )
    if session.dry_run:
        found = to_shown(session.stores.inbox.documents(rows))
        return views.changed(
            found, verb="settled", selected=len(rows), done=0, operation_id=None, dry_run=True
        )
    done = 0
    with session.operation() as operation:
        try:
            for settled in inbox.settle(
                session.stores, rows, stopping=lambda: session.stop.requested
            ):
                done += settled
                operation.count("settled", settled)
        except LedgerctlError as error:
            if not done:
                raise
            raise PartlyDone(f"{done} of {len(rows)} settled, then: {error.message}") from None
    if session.stop.requested:
        session.note(f"{done} of {len(rows)} settled; go on with: {go_on()}")
    return views.changed(
        [], verb="settled", selected=len(rows), done=done, operation_id=operation.id, dry_run=False
    )


def run_until(*, once: bool, until_empty: bool) -> "Until":
    """When the run ends. Raises UsageError when both ends are asked for."""
    from ledgerctl.operations.consume import Until

    if once and until_empty:
        raise UsageError("--once and --until-empty exclude each other")
    if once:
        return Until.ONCE
    return Until.EMPTY if until_empty else Until.STOPPED


def checked_topic(group: str, topic: str | None, exec_command: str | None) -> str | None:
    """The topic to read. Raises UsageError where group, topic and command do not go together."""
    from ledgerctl.stores.outbox import TOPIC

    if not group:
        raise UsageError("--group names no group")
    if group != BUILT_IN:
        if exec_command is None:
            raise UsageError(
                f"group {group!r} is not built in",
                hint="say what handles its messages: --exec COMMAND",
            )
        return topic
    if exec_command is not None:
        raise UsageError(
            f"group {BUILT_IN!r} is built in and takes no --exec", hint="choose another group name"
        )
    if topic not in {None, TOPIC}:
        raise UsageError(f"group {BUILT_IN!r} reads topic {TOPIC} only")
    return TOPIC


def claim_term(text: str) -> timedelta:
    """How long a claim stands. Raises UsageError for none at all."""
    term = parse_duration(text)
    if term < timedelta(seconds=1):
        raise UsageError("--claim-for is at least 1s")
    return term


def work_of(
    session: Session, claims: "Claims", exec_command: str | None, timeout: timedelta | None
) -> "Work":
    """What handles the group's messages."""
    if exec_command is None:
        from ledgerctl.operations.usage_daily import UsageDaily

        return UsageDaily(session.stores, claims, session.zone)
    from ledgerctl.operations.consume import CommandWork
    from ledgerctl.operations.handlers import Handler, handler_words

    handler = Handler(
        words=handler_words(exec_command),
        environment=session.environment,
        timeout=timeout,
        show=session.detail if session.words.verbose else None,
    )
    return CommandWork(claims, handler)


def totals(counts: "Counts") -> dict[str, int]:
    """The counts of a run by name."""
    return {
        "handled": counts.handled,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "dead": counts.dead,
        "superseded": counts.superseded,
    }


def consumed_code(session: Session, counts: "Counts") -> int:
    """0, the signal's own code, or 7 or 8 when a store failed after the first change."""
    if counts.trouble is not None:
        unknown = isinstance(counts.trouble, OutcomeUnknown)
        return int(ExitCode.UNKNOWN if unknown else ExitCode.PARTIAL)
    return int(session.stop.exit_code or ExitCode.DONE)


def consumed(session: Session, group: str, counts: "Counts", operation_id: str) -> Report:
    """The report of a run, with what it left and why it ended."""
    from ledgerctl.render.views import inbox as views

    notes = []
    if counts.trouble is not None:
        notes.append(f"the run ended early: {counts.trouble.message}")
    elif unmarked := count_unmarked(session, group):
        notes.append(
            f"{unmarked} messages are marked succeeded without completed_at and were left:"
            " `ledgerctl inbox settle`"
        )
    if session.stop.requested:
        notes.append(f"stopped after the message in hand; go on with: {go_on()}")
    return views.consumed(
        group,
        totals(counts),
        operation_id=operation_id,
        exit_code=consumed_code(session, counts),
        notes=notes,
    )


def count_unmarked(session: Session, group: str) -> int:
    """How many rows nobody can tell about; a store that went away meanwhile says nothing."""
    try:
        return session.stores.inbox.count_unmarked(group)
    except LedgerctlError:
        return 0
