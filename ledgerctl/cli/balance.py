"""`ledgerctl balance`: show, replay and explain balances; grant credits."""

import sys
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerctl.cli.change import Change, change
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.options import Account, At, From, Limit, To, moment, required, window
from ledgerctl.cli.session import Session, is_terminal, terminal_width
from ledgerctl.domain.amounts import parse_whole
from ledgerctl.domain.days import day_named
from ledgerctl.domain.jobs import StepResult
from ledgerctl.domain.results import Result, Run
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Report

if TYPE_CHECKING:
    from ledgerctl.domain.explain import Asked

app = noun("balance")

CHARTED_ROWS_MAX = 20_000  # read again for the chart in a blink
CHART_COLUMNS = 72


@command(app, "show")
def show(
    session: Session,
    account: Account,
    at: At = None,
    known_at: Annotated[
        str | None,
        typer.Option(
            "--known-at", help="Only rows recorded by then; a date means its end.", metavar="TIME"
        ),
    ] = None,
) -> Report:
    """Show an account's balance: the exact sum of its ledger rows.

    Examples: ledgerctl balance show acct-7
              ledgerctl balance show acct-7 --at 2026-03-31 --known-at 2026-04-02T09:00:00Z
    """
    from ledgerctl.operations.balances import show as look
    from ledgerctl.render.views.balance import balance

    latest, known = moment(session, at), moment(session, known_at)
    found = look(session.stores, account, at=latest, known_at=known)
    chart: list[str] = []
    if draws_charts(session) and latest is known is None and found.tally.rows <= CHARTED_ROWS_MAX:
        from ledgerctl.operations.explain import points
        from ledgerctl.render.chart import blocks

        over_time = points(session.stores, account, zone=session.zone)
        chart = blocks(over_time, width=chart_width(), zone=session.zone)
    return balance(found, chart=chart)


@command(app, "replay")
def replay(session: Session, account: Account, since: From = None, until: To = None) -> Report:
    """Replay an account's ledger rows in order, with the balance after each.

    Examples: ledgerctl balance replay acct-7
              ledgerctl balance replay acct-7 --from 2026-03-01 -o jsonl
    """
    from ledgerctl.operations.balances import replay as look
    from ledgerctl.render.views import balance as views

    lower, upper = window(session, since, until)
    return views.replay(look(session.stores, account, since=lower, before=upper))


@command(app, "list")
def balances(
    session: Session,
    at: At = None,
    below: Annotated[
        str | None, typer.Option("--below", help="Only balances below N.", metavar="N")
    ] = None,
    limit: Limit = 0,
) -> Report:
    """List the balance of every account, exactly, by account.

    Examples: ledgerctl balance list
              ledgerctl balance list --below 0 --at 2026-03-31 -o csv
    """
    from ledgerctl.operations.balances import balances as look
    from ledgerctl.render.views import balance as views

    bound = None if below is None else parse_whole(below, name="--below")
    found = look(session.stores, at=moment(session, at), below=bound)
    return views.balances(found, limit)


class Audience(StrEnum):
    """Name who reads an explanation."""

    SUPPORT = "support"
    CUSTOMER = "customer"


class StoryFormat(StrEnum):
    """List the formats of a story; json is the same as `-o json`."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"


@command(app, "explain")
def explain(
    session: Session,
    account: Account,
    job: Annotated[str | None, typer.Option("--job", help="Only this job.", metavar="JOB")] = None,
    since: From = None,
    until: To = None,
    told: Annotated[
        StoryFormat | None,
        typer.Option("--format", help="How it is told; json is -o json.", show_default="text"),
    ] = None,
    audience: Annotated[
        Audience, typer.Option("--for", help="Who reads it; a customer sees nothing internal.")
    ] = Audience.SUPPORT,
) -> Report:
    """Explain a balance job by job: what was charged, came back or was taken again, and why.

    The figures add up to the balance; what is odd is named with the command that heals it, and by
    how much the account is off. `--for customer` makes a statement to send: figures by day and job.

    Examples: ledgerctl balance explain acct-7
              ledgerctl balance explain acct-7 --job job-42 --format markdown
              ledgerctl balance explain acct-7 --from 2026-03-01 --for customer --format html
    """
    from ledgerctl.operations import explain as stories
    from ledgerctl.render.statement import Statement
    from ledgerctl.render.views import explain as views

    is_sent = audience is Audience.CUSTOMER
    choose_format(session, told, is_sent=is_sent)
    bounds: dict[str, Any] = {"zone": session.zone, "asked": asked(session, since, until)}
    if job is not None:
        story = stories.explain_job(session.stores, account, job, **bounds)
    else:
        read = stories.statement if is_sent else stories.explain
        story = read(session.stores, account, **bounds, progress=session.progress)
    words = StoryFormat.TEXT if told in {None, StoryFormat.JSON} else str(told)
    if is_sent:
        return views.statement(Statement(story, **asdict(session.settings.statement)), format=words)
    return views.explain(story, format=words, chart=chart_width() if draws_charts(session) else 0)


def asked(session: Session, since: str | None, until: str | None) -> "Asked":
    """Read the range, and keep the days where it was given in days."""
    from ledgerctl.domain.explain import Asked

    lower, upper = window(session, since, until)
    days = (one and day_named(one, session.now, session.zone) for one in (since, until))
    return Asked(lower, upper, *days)


def choose_format(session: Session, told: StoryFormat | None, *, is_sent: bool) -> None:
    """Make `--format json` the same as `-o json`; refuse two formats at once, and records to a customer."""
    if is_sent:
        if told is StoryFormat.JSON or session.words.output in {"json", "jsonl", "csv"}:
            raise UsageError(
                "--for customer is text, markdown or html", hint="leave out -o, or --for customer"
            )
        session.words = session.words._replace(output=session.words.output or "plain")
    elif told is StoryFormat.JSON:
        if session.words.output not in {None, "json"}:
            raise UsageError(f"--format json and -o {session.words.output} contradict each other")
        session.words = session.words._replace(output="json")
    if told in {StoryFormat.MARKDOWN, StoryFormat.HTML}:
        if session.words.output in {"json", "jsonl", "csv"}:
            raise UsageError(f"--format {told} and -o {session.words.output} contradict each other")
        session.words = session.words._replace(output="plain")


def draws_charts(session: Session) -> bool:
    """Tell whether a person at a terminal that has block characters reads the result."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    is_unicode = encoding.lower().replace("-", "").startswith("utf")
    return session.format == "table" and is_unicode and is_terminal(sys.stdout)


def chart_width() -> int:
    """Columns of a chart: the terminal's, and one less, but not wider than is good to read."""
    return min(terminal_width() - 1, CHART_COLUMNS)


@command(app, "grant", effect=Effect.CHANGE)
def grant(
    session: Session,
    account: Account,
    amount: Annotated[str, typer.Argument(help="Whole credits, at least 1.", metavar="AMOUNT")],
    key: Annotated[
        str,
        typer.Option("--key", help="Names this grant; a repeat changes nothing.", metavar="KEY"),
    ],
) -> Report:
    """Give credits to an account, once for each key.

    Examples: ledgerctl balance grant acct-7 500 --key ticket-8812 --reason "outage credit"
              ledgerctl balance grant acct-7 500 --key ticket-8812 --dry-run
    """
    whole = parse_whole(amount, name="AMOUNT")
    if whole < 1:
        raise UsageError("AMOUNT is a whole number of credits, at least 1")
    return change(
        session,
        grant_once(session, required(account, name="ACCOUNT"), whole, required(key, name="--key")),
    )


def grant_once(session: Session, account: str, amount: int, key: str) -> Change[str, StepResult]:
    """Describe one grant to the frame of changes."""
    from ledgerctl.operations.steps import grant, keep, preview_grant
    from ledgerctl.render.views.job import results

    def preview(account: str) -> Result[StepResult]:
        result: Result[StepResult] = Result()
        keep(result, preview_grant(session.stores, account, amount, key=key))
        return result

    def apply(account: str, run: Run[StepResult]) -> None:
        keep(
            run.result,
            grant(
                session.stores,
                account,
                amount,
                key=key,
                operation_id=run.operation_id,
                reason=run.reason,
            ),
        )

    return Change(
        plan=lambda: account,
        question=lambda account: f"grant {amount} to {account}",
        preview=preview,
        apply=apply,
        view=lambda _account, result: results(result, dry_run=session.dry_run),
    )
