"""`ledgerctl job`: look at jobs; charge, refund and reclaim them."""

from collections.abc import Mapping
from typing import Annotated

import typer

from ledgerctl.cli.change import Change, change
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.options import (
    SHOWN,
    FromFile,
    Limit,
    OfAccount,
    Since,
    Until,
    named,
    required,
    window,
)
from ledgerctl.cli.session import Session
from ledgerctl.domain.amounts import parse_whole
from ledgerctl.domain.jobs import State, Step
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Report

app = noun("job")

JobIds = Annotated[list[str] | None, typer.Argument(help="Job ids.", metavar="JOB")]


@command(app, "show")
def show(
    session: Session, job: Annotated[str, typer.Argument(help="Job id.", metavar="JOB")]
) -> Report:
    """Show one job: its flags, its ledger rows, whether they agree, and where it is queued.

    Examples: ledgerctl job show job-42
              ledgerctl job show job-42 -o json
    """
    from ledgerctl.operations.cases import show_job
    from ledgerctl.render.views.job import job_page

    return job_page(show_job(session.stores, job, now=session.stores.mongo.now()))


@command(app, "list")
def list_jobs(
    session: Session,
    account: OfAccount = None,
    state: Annotated[State | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = SHOWN,
) -> Report:
    """List jobs, newest first.

    Examples: ledgerctl job list --account acct-7 --state refunded
              ledgerctl job list --since yesterday --limit 0 -o csv
    """
    from ledgerctl.render.views.job import jobs

    lower, upper = window(session, since, until)
    found, total = session.stores.jobs.newest(
        account=account, state=state, since=lower, until=upper, limit=limit
    )
    return jobs(found, total)


@command(app, "charge", effect=Effect.CHANGE)
def charge(
    session: Session,
    job: Annotated[str, typer.Argument(help="Job id.", metavar="JOB")],
    account: Annotated[
        str, typer.Option("--account", help="Account to charge.", metavar="ACCOUNT")
    ],
    cost: Annotated[str, typer.Option("--cost", help="Whole credits, at least 1.", metavar="N")],
) -> Report:
    """Charge a job before it runs, at most once.

    Examples: ledgerctl job charge job-42 --account acct-7 --cost 40
              ledgerctl job charge job-42 --account acct-7 --cost 40 --dry-run
    """
    whole = parse_whole(cost, name="--cost")
    if whole < 1:
        raise UsageError("--cost is a whole number of credits, at least 1")
    ids = [required(job, name="JOB")]
    owner = required(account, name="--account")
    return steps(session, Step.CHARGE, ids, bulk=False, account=owner, cost=whole)


@command(app, "refund", effect=Effect.BULK)
def refund(
    session: Session,
    job: JobIds = None,
    from_file: FromFile = None,
    force: Annotated[
        bool, typer.Option("--force", help="Refund even a job that succeeded.")
    ] = False,
) -> Report:
    """Give the charge of failed jobs back, at most once each; the amount is the charge row's.

    Examples: ledgerctl job refund job-42 --reason "GPU timed out"
              ledgerctl job refund --from-file failed.txt --dry-run
    """
    ids = named(job or [], from_file, "job_id")
    bulk = len(job or []) > 1 or from_file is not None
    return steps(session, Step.REFUND, list(ids), bulk=bulk, force=force, reasons=ids)


@command(app, "reclaim", effect=Effect.BULK)
def reclaim(session: Session, job: JobIds = None, from_file: FromFile = None) -> Report:
    """Take refunds back from jobs that succeeded after all, at most once each.

    A job that was never refunded needs nothing, which is success. Balances may go below zero.

    Examples: ledgerctl job reclaim job-42 --reason "result was delivered"
              ledgerctl job reclaim --from-file delivered.txt --yes --expect 12
    """
    ids = named(job or [], from_file, "job_id")
    bulk = len(job or []) > 1 or from_file is not None
    return steps(session, Step.RECLAIM, list(ids), bulk=bulk, reasons=ids)


def steps(
    session: Session,
    step: Step,
    ids: list[str],
    *,
    bulk: bool,
    force: bool = False,
    account: str | None = None,
    cost: int | None = None,
    reasons: Mapping[str, str] | None = None,
) -> Report:
    """Take one guarded step for each id."""
    from ledgerctl.operations.steps import Batch
    from ledgerctl.render.views.job import results

    batch = Batch(
        session.stores, step, ids, force=force, account=account, cost=cost, reasons=reasons or {}
    )
    jobs = f"job {ids[0]}" if len(ids) == 1 else f"{len(ids)} jobs"
    return change(
        session,
        Change(
            plan=lambda: batch,
            size=lambda batch: len(batch.ids),
            question=lambda _batch: f"{step} {jobs}",
            preview=Batch.preview,
            apply=Batch.apply,
            view=lambda _batch, result: results(result, dry_run=session.dry_run),
            bulk=bulk,
        ),
    )
