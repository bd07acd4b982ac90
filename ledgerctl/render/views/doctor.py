"""Report the doctor's checks."""

from collections import Counter
from collections.abc import Sequence

from ledgerctl.domain.doctor import Check, CheckStatus
from ledgerctl.errors import ExitCode
from ledgerctl.render.report import STREAMED, Column, Kind, Record, Report, columns, members

COLUMNS = columns(
    "status", Column("id", title="check", kind=Kind.ID), "detail", Column("hint", title="remedy")
)


def checks(found: Sequence[Check]) -> Report:
    """Return one line a check, and how many need somebody; exit 5 when any failed."""
    counts = Counter(check.finding.status for check in found)
    said = ", ".join(f"{counts[status]} {status}" for status in CheckStatus if counts[status])
    return Report(
        columns=COLUMNS,
        records=[record(check) for check in found],
        document={
            "checks": STREAMED,
            "failed": counts[CheckStatus.FAIL],
            "warned": counts[CheckStatus.WARN],
        },
        items_key="checks",
        foot=(said,),
        exit_code=int(ExitCode.FOUND if counts[CheckStatus.FAIL] else ExitCode.DONE),
    )


def record(check: Check) -> Record:
    """Return one check."""
    finding = check.finding
    return {"id": check.id, **members(finding, "status detail hint")}
