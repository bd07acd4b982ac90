"""`ledgerctl db`: build the indexes; print least-privilege roles."""

from ledgerctl.cli.command import Effect, command, noun
from ledgerctl.cli.session import Session
from ledgerctl.render.report import Report

app = noun("db")


@command(app, "init", effect=Effect.CHANGE)
def init(session: Session) -> Report:
    """Build every index that the guarantees stand on; rows in the way are named, never removed.

    Examples: ledgerctl db init --dry-run
              ledgerctl db init --reason "new deployment"
    """
    from ledgerctl.operations.database import build_indexes, exit_code, plan_indexes
    from ledgerctl.render.views.database import indexes

    if session.dry_run:
        return indexes(plan_indexes(session.stores), dry_run=True, exit_code=0)
    session.consent(["build the missing indexes", session.place()], count=1, bulk=False)
    with session.operation() as operation:
        found = build_indexes(session.stores)
        for one in found:
            operation.count(one.status)
        operation.exit_code = int(exit_code(found))
    return indexes(found, dry_run=False, exit_code=operation.exit_code)
