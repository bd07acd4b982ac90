"""`ledgerctl log`: what operators did, when and why."""

from typing import Annotated, Any

import typer

from ledgerctl.cli.command import command, noun
from ledgerctl.cli.options import SHOWN, Limit, Since, window
from ledgerctl.cli.session import Session
from ledgerctl.domain.outcomes import LetterFate
from ledgerctl.errors import NotFound
from ledgerctl.render.report import Report

app = noun("log")


@command(app, "list")
def list_operations(
    session: Session,
    operator: Annotated[
        str | None, typer.Option("--operator", help="Only this operator's.", metavar="NAME")
    ] = None,
    named: Annotated[
        str | None, typer.Option("--command", help="Only of this command.", metavar="COMMAND")
    ] = None,
    since: Since = None,
    limit: Limit = SHOWN,
) -> Report:
    """List operations, newest first.

    An entry that a killed run left open says "never ended"; what the archive knows of it stands in
    its counts.

    Examples: ledgerctl log list --command "dead requeue" --since yesterday
              ledgerctl log list --fields at,operator,command,reason -o csv
    """
    from ledgerctl.render.views.log import operations

    lower, _ = window(session, since, None)
    found, total = session.stores.operator_log.newest(
        limit, operator=operator, command=named, since=lower
    )
    return operations([with_archived(session, one) for one in found], total)


@command(app, "outcome")
def outcome(
    session: Session,
    operation_id: Annotated[str, typer.Argument(help="Operation id.", metavar="OPERATION_ID")],
    fate: Annotated[
        LetterFate | None, typer.Option("--fate", help="Only items of this fate.")
    ] = None,
    limit: Limit = SHOWN,
) -> Report:
    """Tell what became of the letters that a requeue put back, from the stores alone.

    Fates: died, failing, waiting, succeeded; left: on no list, and no outcome is recorded.

    Examples: ledgerctl log outcome 20260311T031400123Z-5f2c9a01be
              ledgerctl log outcome 20260311T031400123Z-5f2c9a01be --fate died -o json
    """
    from ledgerctl.operations.outcomes import outcome_of
    from ledgerctl.render.views.log import outcome as view

    return view(outcome_of(session.stores, operation_id), fate=fate, limit=limit)


def with_archived(session: Session, entry: dict[str, Any]) -> dict[str, Any]:
    """Add what the archive knows of an operation whose entry is open."""
    if entry.get("exit_code") is not None:
        return entry
    archived = session.stores.archive.count(str(entry["_id"]))
    counts = entry.get("counts") or {}
    return entry | {"counts": counts | ({"archived": archived} if archived else {})}


@command(app, "show")
def show(
    session: Session,
    operation_id: Annotated[str, typer.Argument(help="Operation id.", metavar="OPERATION_ID")],
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
    return operation(with_archived(session, found))
