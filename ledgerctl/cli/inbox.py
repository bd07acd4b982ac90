"""`ledgerctl inbox`: audit, mend and consume the inbox."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerctl.cli.change import Change, change, finish, run
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.options import SHOWN, Limit
from ledgerctl.cli.session import Session
from ledgerctl.domain.inbox import ClaimStatus, parse_lookup
from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.domain.times import parse_duration
from ledgerctl.errors import LedgerctlError, UsageError
from ledgerctl.render.report import Report, members

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledgerctl.domain.inbox import ClaimRow
    from ledgerctl.operations.claims import Claims
    from ledgerctl.operations.consume import Counts, Until, Work
    from ledgerctl.stores.connections import Stores

app = noun("inbox")

Key = Annotated[str, typer.Argument(help="Message key.", metavar="KEY")]
Group = Annotated[str | None, typer.Option("--group", help="Consumer group.", metavar="GROUP")]
ConsumedGroup = Annotated[str, typer.Option("--group", help="Consumer group.", metavar="GROUP")]
Topic = Annotated[str | None, typer.Option("--topic", help="Only this topic.", metavar="TOPIC")]
Exec = Annotated[
    str | None,
    typer.Option(
        "--exec",
        help="Command for each message, run without a shell; the payload comes on its input.",
        metavar="COMMAND",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Handle one message and end.")]
UntilEmpty = Annotated[bool, typer.Option("--until-empty", help="End when nothing is due.")]
Full = Annotated[
    bool, typer.Option("--full", help="Read the whole outbox, not just the part since the mark.")
]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", help="End the command after this long.", metavar="DURATION"),
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
        ClaimStatus | None, typer.Option("--status", help="Only rows of this status.")
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

    return change_one(session, key, group, inbox.check_retry, inbox.retry, "retried")


@command(app, "settle", effect=Effect.BULK)
def settle(
    session: Session,
    key: Annotated[str | None, typer.Argument(help="Message key.", metavar="KEY")] = None,
    group: Group = None,
) -> Report:
    """Complete rows marked succeeded that lack the time of it, as of their last delivery.

    With a KEY it acknowledges that one row: completed, and its deliveries are counted from 0. A
    dead row is let go that way and stays dead.

    Examples: ledgerctl inbox settle --dry-run
              ledgerctl inbox settle job-42:refund --group usage-totals
    """
    from ledgerctl.operations import inbox

    if key is None:
        return settle_all(session, group)
    return change_one(session, key, group, inbox.check_settle, inbox.acknowledge, "settled")


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
    from ledgerctl.operations.consume import Backlog, Counts
    from ledgerctl.operations.consume import consume as handle
    from ledgerctl.render.views import inbox as views

    until = run_until(once=once, until_empty=until_empty)
    topic = checked_topic(group, topic, exec_command)
    term = claim_term(claim_for)
    limit = None if timeout is None else parse_duration(timeout)
    claims = Claims(session.stores, group, owner=session.settings.operator, claim_for=term)
    work = work_of(session, claims, exec_command, limit)
    backlog = Backlog(session.stores, group, topic, term, full=full)
    counts = Counts()

    def apply(running: Run[None]) -> None:
        try:
            handle(backlog, work, counts, until=until, stopping=running.stopping)
        finally:
            running.result.counts.update(totals(counts))
            running.result.fates[Fate.DONE] = counts.handled

    result = run(session, apply, question=f"consume group {group}", ready=claims.require_index)
    left = [] if result.error is not None else unmarked_note(session, group)
    return finish(session, views.consumed(group, totals(counts), notes=left), result)


# the commands' parts


def change_one(
    session: Session,
    key: str,
    group: str | None,
    check: "Callable[[ClaimRow], None]",
    apply: "Callable[[Stores, ClaimRow], ClaimRow]",
    verb: str,
) -> Report:
    """Ask, change one row if it still stands as it was read, and report it."""
    from ledgerctl.operations import inbox
    from ledgerctl.render.views import inbox as views
    from ledgerctl.stores.codec import to_shown

    def plan() -> "ClaimRow":
        standing = inbox.one_row(session.stores, key, group)
        check(standing)
        return standing

    def shown(standing: "ClaimRow") -> Any:
        return to_shown(session.stores.inbox.documents([standing.row]))

    def carry_out(standing: "ClaimRow", run: Run[Any]) -> None:
        apply(session.stores, standing)
        run.result.count(verb, fate=Fate.DONE)
        run.result.items += shown(standing)

    return change(
        session,
        Change(
            plan=plan,
            question=lambda standing: f"{verb[:-2]} message {key} of group {standing.group}",
            preview=lambda standing: Result(shown(standing)),
            apply=carry_out,
            view=lambda _standing, result: views.changed(result, verb=verb, selected=1),
            bulk=True,
        ),
    )


def settle_all(session: Session, group: str | None) -> Report:
    """Ask with the count, settle in chunks, report; a dry run lists every row."""
    from ledgerctl.operations import inbox
    from ledgerctl.render.views import inbox as views
    from ledgerctl.stores.codec import to_shown

    def apply(rows: "Sequence[Any]", run: Run[Any]) -> None:
        run.result.not_tried = len(rows)
        for settled, tried in inbox.settle(session.stores, rows, stopping=run.stopping):
            run.result.count("settled", settled, fate=Fate.DONE)
            run.result.not_tried -= tried

    return change(
        session,
        Change(
            plan=lambda: session.stores.inbox.unmarked(group),
            size=len,
            question=lambda rows: f"settle {len(rows)} rows marked succeeded",
            preview=lambda rows: Result(to_shown(session.stores.inbox.documents(rows))),
            apply=apply,
            view=lambda rows, result: views.changed(result, verb="settled", selected=len(rows)),
            bulk=True,
        ),
    )


def run_until(*, once: bool, until_empty: bool) -> "Until":
    """Tell when the run ends. Raises UsageError when both ends are asked for."""
    from ledgerctl.operations.consume import Until

    if once and until_empty:
        raise UsageError("--once and --until-empty exclude each other")
    if once:
        return Until.ONCE
    return Until.EMPTY if until_empty else Until.STOPPED


def checked_topic(group: str, topic: str | None, exec_command: str | None) -> str | None:
    """Return the topic to read. Raises UsageError where group, topic and command do not go together."""
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
    """Tell how long a claim stands. Raises UsageError for none at all."""
    term = parse_duration(text)
    if term < timedelta(seconds=1):
        raise UsageError("--claim-for is at least 1s")
    return term


def work_of(
    session: Session, claims: "Claims", exec_command: str | None, timeout: timedelta | None
) -> "Work":
    """Tell what handles the group's messages."""
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
    """Return the counts of a run by name."""
    return members(counts, "handled succeeded failed dead superseded")


def unmarked_note(session: Session, group: str) -> list[str]:
    """Name the rows that nobody can tell about; a store that went away meanwhile says nothing."""
    try:
        unmarked = session.stores.inbox.count_unmarked(group)
    except LedgerctlError:
        return []
    if not unmarked:
        return []
    return [
        f"{unmarked} messages are marked succeeded without completed_at and were left:"
        " `ledgerctl inbox settle`"
    ]
