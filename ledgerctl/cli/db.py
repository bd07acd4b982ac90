"""`ledgerctl db`: build the indexes; print least-privilege roles."""

from dataclasses import asdict
from typing import Annotated

import typer

from ledgerctl.addresses import redis_database
from ledgerctl.cli.change import Change, change
from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.session import Session
from ledgerctl.domain.times import parse_duration
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Report

app = noun("db")


@command(app, "init", effect=Effect.CHANGE)
def init(session: Session) -> Report:
    """Build every index that the guarantees stand on; rows in the way are named, never removed.

    Examples: ledgerctl db init --dry-run
              ledgerctl db init --reason "new deployment"
    """
    from ledgerctl.operations.database import apply, plan_indexes
    from ledgerctl.render.views.database import indexes

    return change(
        session,
        Change(
            plan=lambda: session.stores,
            question=lambda _stores: "build the missing indexes",
            preview=plan_indexes,
            apply=apply,
            view=lambda _stores, result: indexes(result.items),
        ),
    )


@command(app, "tidy", effect=Effect.BULK)
def tidy(
    session: Session,
    keep: Annotated[
        str, typer.Option("--keep", help="Remove nothing younger than this.", metavar="DURATION")
    ] = "30d",
) -> Report:
    """Remove messages, claims and archived dead letters that no command needs any more.

    A message goes when every group that reads its topic has completed it, a claim when its message
    is gone, archived letters when none of them waits on a list. Ledger, jobs and operator log are
    never touched. What is younger than the oldest entry on a list, and a day, is kept as well.

    Examples: ledgerctl db tidy --dry-run
              ledgerctl db tidy --keep 90d --yes --reason "quarterly"
    """
    from ledgerctl.operations.database import Tidy
    from ledgerctl.render.views.database import tidied

    job = Tidy(session.stores, parse_duration(keep), session.progress)
    return change(
        session,
        Change(
            plan=job.plan,
            size=lambda plan: plan.size,
            question=lambda plan: f"remove {plan.size} documents for good",
            preview=lambda plan: plan.preview(),
            apply=job.apply,
            view=lambda plan, result: tidied(plan, result),
            bulk=True,
        ),
    )


@command(app, "roles")
def roles(
    session: Session,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="Only this one: support, on-call or cron.", metavar="NAME"),
    ] = None,
) -> Report:
    """Print least-privilege MongoDB roles and Redis users for support, on call and cron.

    One statement a line, with the configured names, for mongosh and redis-cli. No role may update
    or remove a row of the ledger. Nothing is run.

    Example: ledgerctl db roles

    Example: ledgerctl db roles --role support -o plain --fields statement
    """
    from ledgerctl.domain.roles import ROLES, RolePlace
    from ledgerctl.render.views.database import roles as page

    settings = session.settings
    known = {one.name: one for one in ROLES}
    if unknown := [name for name in role or [] if name not in known]:
        raise UsageError(f"there is no role {unknown[0]!r}", hint=f"one of {', '.join(known)}")
    keys = settings.keys
    place = RolePlace(
        database=settings.database,
        collections=asdict(settings.collections),
        keys=(keys.retry, keys.dead_letter, keys.processing, *keys.pending),
        redis_database=redis_database(settings.redis_url.reveal()),
    )
    return page([known[name] for name in role or known], place, format=session.format)
