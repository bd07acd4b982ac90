"""`ledgerctl ledger`: audit, repair, correct and export the ledger."""

from typing import Annotated

import typer

from ledgerctl.cli.command import command, noun
from ledgerctl.cli.options import OfAccount, Since, window
from ledgerctl.cli.session import Session
from ledgerctl.domain.audit import Code
from ledgerctl.render.report import Report

app = noun("ledger")

OfJob = Annotated[
    str | None, typer.Option("--job", help="Only this job.", metavar="JOB", show_default=False)
]
Codes = Annotated[
    list[Code] | None,
    typer.Option(
        "--code", help="Only findings of this code; may be given again.", show_default=False
    ),
]


@command(app, "audit")
def audit(
    session: Session,
    account: OfAccount = None,
    job: OfJob = None,
    since: Since = None,
    code: Codes = None,
) -> Report:
    """Hold every job's flags, rows and messages against each other; exit 5 if anything is wrong.

    Each finding says by how many credits its account is off (+ too much, - too little), and what
    heals it. --since: jobs created, refunded or reclaimed since then, or with a row since then.

    Examples: ledgerctl ledger audit
              ledgerctl ledger audit --code refunded_but_succeeded -o plain --fields job_id
    """
    from ledgerctl.operations.audit import Audit, Scope
    from ledgerctl.render.views.audit import audit as view

    lower, _ = window(session, since, None)
    run = Audit(
        session.stores,
        Scope(account=account, job=job, since=lower, codes=frozenset(code or ())),
        progress=session.progress,
    )
    return view(run, table=session.format == "table")
