"""`ledgerctl ledger`: audit, repair, correct and export the ledger."""

from enum import StrEnum
from typing import Annotated

import typer

from ledgerctl.cli.change import Change, change, finish
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.options import From, OfAccount, Since, To, window
from ledgerctl.cli.session import Session
from ledgerctl.domain.findings import Code
from ledgerctl.domain.results import Result
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Report

app = noun("ledger")

OfJob = Annotated[str | None, typer.Option("--job", help="Only this job.", metavar="JOB")]
Codes = Annotated[
    list[Code] | None,
    typer.Option("--code", help="Only findings of this code; may be given again."),
]


@command(app, "audit")
def audit(
    session: Session,
    account: OfAccount = None,
    job: OfJob = None,
    since: Since = None,
    code: Codes = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="With --code stranded_charge: charged longer ago than this; 24h unless given.",
            metavar="DURATION",
        ),
    ] = None,
) -> Report:
    """Check that each job's flags, rows and messages agree; exit 5 if anything is wrong.

    Each finding says by how many credits its account is off (+ too much, - too little), and what
    heals it. --since: jobs created, refunded or reclaimed since then, or with a row since then.
    --code stranded_charge looks for charges of jobs that no list holds and nothing will settle.

    Examples: ledgerctl ledger audit
              ledgerctl ledger audit --code refunded_but_succeeded -o plain --fields job_id
              ledgerctl ledger audit --code stranded_charge --older-than 3d
    """
    from ledgerctl.domain.times import parse_duration
    from ledgerctl.operations.audit import STRANDED_AFTER, Audit, Scope
    from ledgerctl.render.views.ledger import audit as view

    codes = frozenset(code or ())
    if older_than is not None and Code.STRANDED_CHARGE not in codes:
        raise UsageError("--older-than goes with --code stranded_charge")
    age = STRANDED_AFTER if older_than is None else parse_duration(older_than)
    lower, _ = window(session, since, None)
    run = Audit(
        session.stores,
        Scope(account=account, job=job, since=lower, codes=codes, older_than=age),
        progress=session.progress,
    )
    return view(run, table=session.format == "table")


@command(app, "repair", effect=Effect.BULK)
def repair(
    session: Session,
    job: OfJob = None,
    code: Codes = None,
    grace: Annotated[
        str,
        typer.Option("--grace", help="Leave alone what is younger than this.", metavar="DURATION"),
    ] = "15m",
) -> Report:
    """Put right what the rows and flags prove; append-only, each step under its own guard.

    A missing refund or reclaim row is appended, dated by its flag; a missing message is put; a
    flag that its row proves is set, an absent one becomes false. Never a charge. Safe beside live
    workers and beside another repair. What is left is audited again and listed.

    Examples: ledgerctl ledger repair --dry-run
              ledgerctl ledger repair --code missing_row --grace 1h --yes
    """
    from ledgerctl.domain.times import parse_duration
    from ledgerctl.operations.audit import Audit, Scope
    from ledgerctl.operations.cases import only_job
    from ledgerctl.operations.repair import Repairer
    from ledgerctl.render.views import ledger as views

    scope = Scope(job=job, codes=frozenset(code or ()))
    repairer = Repairer(session.stores, scope, parse_duration(grace), session.progress)
    if job is not None:
        only_job(session.stores, job)
    if not repairer.index_is_unique:
        session.note(
            "there is no unique index on (job_id, type): only the grace and the row's id keep a"
            " second row out; `ledgerctl db init` builds it"
        )
    if session.dry_run and session.words.expect is None:
        return finish(session, views.repair_plan(repairer.judged()), Result())
    return change(
        session,
        Change(
            plan=repairer.select,
            size=lambda selection: selection.repairs,
            question=lambda selection: f"repair {selection.repairs} findings",
            preview=lambda selection: selection.preview(),
            apply=repairer.apply,
            view=lambda _selection, result: (
                views.repair_plan(repairer.judged())
                if session.dry_run
                else views.repaired(Audit(session.stores, scope, after_change=True), result)
            ),
            bulk=True,
        ),
    )


@command(app, "correct", effect=Effect.BULK)
def correct(
    session: Session, job: Annotated[str, typer.Argument(help="Job id.", metavar="JOB")]
) -> Report:
    """Append the one correction row that brings a job to its right net; none when it is right.

    It makes duplicate rows and wrong amounts good, which can never be taken back. Wants --reason.
    What a repair heals is left to it.

    Example: ledgerctl ledger correct job-42 --reason "refunded twice, ticket 8812"
              ledgerctl ledger correct job-42 --reason "ticket 8812" --dry-run
    """
    from ledgerctl.operations import corrections
    from ledgerctl.render.views.ledger import correction

    if not session.reason:
        raise UsageError("`ledger correct` needs --reason TEXT: it stands in the row for ever")
    return change(
        session,
        Change(
            plan=lambda: corrections.preview(session.stores, job),
            question=lambda found: (
                f"correct job {found.job_id} by {found.amount or 0:+d}: {found.detail}"
            ),
            preview=lambda found: found.result,
            apply=lambda _found, run: corrections.apply(session.stores, job, run),
            view=lambda found, result: correction(found.job_id, result),
            bulk=True,
        ),
    )


class ExportFormat(StrEnum):
    """Tell what an export is written as."""

    JSONL = "jsonl"
    CSV = "csv"
    HLEDGER = "hledger"


@command(app, "export")
def export(
    session: Session,
    account: OfAccount = None,
    since: From = None,
    until: To = None,
    written: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="What to write; -o does the same.", show_default="jsonl"),
    ] = None,
) -> Report:
    """Export ledger rows by time, streamed; hledger is a journal that Ledger reads as well.

    In a journal credits:ACCOUNT gets each amount and service:TYPE the opposite; rows of no account
    are `unassigned`. Names stand with every byte but ASCII letters, digits and _ . - as %XX of its
    UTF-8 form, so that any name survives. Rows that cannot be summed are noted and make exit 5.

    Examples: ledgerctl ledger export > ledger.jsonl
              ledgerctl ledger export --account acct-7 --from 2026-03-01 --format csv
              ledgerctl ledger export --format hledger | hledger -f - balance
    """
    from ledgerctl.operations.balances import export as read
    from ledgerctl.render.views.ledger import export as view

    chosen = session.words.output
    if written is not None and chosen is not None and chosen != written:
        raise UsageError(f"--format {written} and -o {chosen} contradict each other")
    if chosen is None:
        plain = written is ExportFormat.HLEDGER
        output = "plain" if plain else str(written or ExportFormat.JSONL)
        session.words = session.words._replace(output=output)
    lower, upper = window(session, since, until)
    found = read(session.stores, account=account, since=lower, before=upper)
    return view(
        found.rows,
        zone=session.zone if written is ExportFormat.HLEDGER else None,
        leaves_out_undated=found.leaves_out_undated,
    )
