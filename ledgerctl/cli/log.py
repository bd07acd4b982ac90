"""`ledgerctl log`: what operators did, when and why."""

from typing import Annotated

import typer

from ledgerctl.cli.command import command, noun
from ledgerctl.cli.options import SHOWN, Limit
from ledgerctl.cli.session import Session
from ledgerctl.errors import NotFound
from ledgerctl.render.report import Report

app = noun("log")


@command(app, "list")
def list_operations(session: Session, limit: Limit = SHOWN) -> Report:
    """List operations, newest first.

    Examples: ledgerctl log list --limit 20
              ledgerctl log list --fields at,operator,command,reason -o csv
    """
    from ledgerctl.render.views.log import operations

    found, total = session.stores.operator_log.newest(limit)
    return operations(found, total)


@command(app, "show")
def show(
    session: Session,
    operation_id: Annotated[
        str, typer.Argument(help="Operation id.", metavar="OPERATION_ID", show_default=False)
    ],
) -> Report:
    """Show one operation: who, when, why, with what counts and exit code.

    Examples: ledgerctl log show 20260311T031400123Z-5f2c9a01be
              ledgerctl log show 20260311T031400123Z-5f2c9a01be -o json
    """
    from ledgerctl.render.views.log import operation

    found = session.stores.operator_log.get(operation_id)
    if found is None:
        raise NotFound(
            f"no operation {operation_id!r} in the log", hint="`ledgerctl log list` names them"
        )
    return operation(found)
