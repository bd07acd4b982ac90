"""`ledgerctl summary`: rebuild daily summaries, compare them with the ledger, show them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledgerctl.cli.change import Change, change
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.files import regular_file, replace_file
from ledgerctl.cli.options import Account, OfAccount
from ledgerctl.cli.session import Session, is_terminal
from ledgerctl.domain.days import check_day_order, parse_day
from ledgerctl.domain.results import Fate, Result, Run
from ledgerctl.errors import ExitCode, PartlyDone, UsageError
from ledgerctl.render.report import Report, settled

if TYPE_CHECKING:
    from ledgerctl.domain.summary import Rebuilt
    from ledgerctl.operations.rebuild import RebuildRequest
    from ledgerctl.operations.summaries import Window

app = noun("summary")

Days = Annotated[
    int | None,
    typer.Option(
        "--days", min=1, help="The last N days, today included; 2 unless given.", metavar="N"
    ),
]
FromDay = Annotated[str | None, typer.Option("--from", help="First day.", metavar="DAY")]
ToDay = Annotated[str | None, typer.Option("--to", help="Last day, included.", metavar="DAY")]


@command(app, "rebuild", effect=Effect.CHANGE)
def rebuild(
    session: Session,
    days: Days = None,
    from_day: FromDay = None,
    to_day: ToDay = None,
    account: OfAccount = None,
    no_late: Annotated[
        bool, typer.Option("--no-late", help="Leave out earlier days that got late rows.")
    ] = False,
    metrics_file: Annotated[
        str | None,
        typer.Option(
            "--metrics-file",
            help="Write Prometheus text here, replaced atomically, once the rebuild is through.",
            metavar="FILE",
        ),
    ] = None,
) -> Report | None:
    """Overwrite daily summaries from the ledger: the last two days, and days with late rows.

    One run at a time (exit 9 otherwise). Safe to repeat: it overwrites and never adds, and a
    figure computed later than this run began stays. Made for cron: with --quiet success prints
    nothing.

    Examples: ledgerctl summary rebuild --quiet --metrics-file /var/lib/node_exporter/ledgerctl.prom
              ledgerctl summary rebuild --from 2026-03-01 --to 2026-03-07 --dry-run
    """
    from ledgerctl.operations.rebuild import RebuildRequest, preview
    from ledgerctl.render.views.summary import rebuilt

    file = None if metrics_file is None else regular_file(metrics_file, "--metrics-file")
    request = RebuildRequest(window_of(session, days, from_day, to_day), account, not no_late)
    report = change(
        session,
        Change(
            plan=lambda: request,
            question=lambda _request: "rebuild daily summaries",
            preview=lambda request: Result([preview(session.stores, request)]),
            apply=lambda request, run: carry_out(session, request, file, run),
            view=lambda _request, result: rebuilt(result.items[0]),
        ),
    )
    return None if session.words.quiet and settled(report.exit_code) == ExitCode.DONE else report


def carry_out(
    session: Session, request: "RebuildRequest", metrics_file: Path | None, run: "Run[Rebuilt]"
) -> None:
    """Rebuild, then write the metrics file; a file that cannot be written is an error of the run."""
    from ledgerctl.operations.rebuild import rebuild as write

    result = run.result
    try:
        done = write(
            session.stores,
            request,
            stopping=run.stopping,
            progress=run.progress,
            begun=result.items.append,
        )
        result.fates[Fate.DONE] = 1
        result.fates[Fate.REFUSED] = len(done.refused_rows)
        if metrics_file is not None and not done.days_left:
            write_metrics(session, metrics_file, done)
    finally:
        for done in result.items:
            note_counts(result, done)


def note_counts(result: "Result[Rebuilt]", done: "Rebuilt") -> None:
    """Put a rebuild's counts into the operator log's entry."""
    result.not_tried = len(done.days_left)
    result.count("days_written", done.days_written or 0)
    result.count("days_cleared", done.days_cleared)
    result.count("rows", done.rows or 0)
    result.count("late_days", len(done.late_days))
    result.count("refused", len(done.refused))


@command(app, "drift")
def drift(
    session: Session,
    days: Days = None,
    from_day: FromDay = None,
    to_day: ToDay = None,
    account: OfAccount = None,
    why: Annotated[
        bool, typer.Option("--why", help="Say of each what caused it, where that can be proved.")
    ] = False,
) -> Report:
    """Compare daily summaries with the ledger; exit 5 when any differs.

    --why computes each day anew under every cause that is known, and names one only where all
    figures come out exactly; the others are `unknown`.

    Examples: ledgerctl summary drift
              ledgerctl summary drift --days 7 --why
              ledgerctl summary drift --from 2026-03-01 --to 2026-03-07 -o json
    """
    from ledgerctl.operations import summaries
    from ledgerctl.render.views import summary as views

    window = window_of(session, days, from_day, to_day)
    return views.drift(summaries.drift(session.stores, window, account, why=why), why=why)


@command(app, "show")
def show(
    session: Session,
    account: Account,
    days: Days = None,
    from_day: FromDay = None,
    to_day: ToDay = None,
) -> Report:
    """Show an account's daily summaries as they are stored.

    Examples: ledgerctl summary show acct-7 --days 14
              ledgerctl summary show acct-7 --from 2026-03-01 --to 2026-03-31 -o csv
    """
    from ledgerctl.operations import summaries
    from ledgerctl.render.views import summary as views

    found = summaries.show(session.stores, account, window_of(session, days, from_day, to_day))
    return views.shown(found, bars=session.format == "table" and is_terminal(sys.stdout))


def window_of(
    session: Session, days: int | None, from_day: str | None, to_day: str | None
) -> "Window":
    """Return the days asked for: the last N, or from one to another; `--from` alone runs to today.

    `yesterday` and `today` go by the server's clock.
    """
    from ledgerctl.operations.summaries import DEFAULT_DAYS, Window

    if from_day is None and to_day is None:
        return Window(DEFAULT_DAYS if days is None else days)
    if days is not None:
        raise UsageError("--days and --from/--to name the days twice", hint="give one of them")
    if from_day is None:
        raise UsageError("--to needs --from", hint="give both, or --days N")
    now = session.stores.mongo.now()
    first = parse_day(from_day, now, session.zone)
    last = parse_day(to_day or "today", now, session.zone)
    check_day_order(first, last)
    return Window(explicit=(first, last))


def write_metrics(session: Session, file: Path, done: "Rebuilt") -> None:
    """Replace the metrics file; the rebuild stands whatever happens here, and the old file too.

    Raises PartlyDone when it could not be written.
    """
    from ledgerctl.render.views.summary import metrics

    try:
        replace_file(file, metrics(done, session.stores.mongo.now()))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise PartlyDone(
            f"the rebuild is complete, but the metrics file {file} was not written: {why}"
        ) from None
