"""Dead letters and what was done to them, as reports."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ledgerctl.domain.dead import ErrorGroup, Letter, Statistics, Verdict
from ledgerctl.domain.dead_results import Changed, LetterPage, Restored
from ledgerctl.domain.ids import some_of
from ledgerctl.domain.payload import Unreadable, preview
from ledgerctl.errors import LedgerctlError
from ledgerctl.render.report import STREAMED, Column, Kind, Record, Report, listing, record
from ledgerctl.render.views.job_page import ROW_COLUMNS, job_document

PREVIEW = 60
ITEM_COLUMNS = (
    Column("position", title="pos", kind=Kind.COUNT),
    Column("digest", kind=Kind.ID),
    Column("verdict"),
    Column("job_id", kind=Kind.ID),
    Column("account_id", kind=Kind.ID),
    Column("state", in_table=False),
    Column("attempts", kind=Kind.COUNT, spare=True),
    Column("failed_at", kind=Kind.TIME, in_table=False),
    Column("not_before", kind=Kind.TIME, in_table=False),
    Column("error"),
    Column("group", kind=Kind.ID, shown=False),
    Column("preview", shown=False),
    Column("why", shown=False),
)
CHANGE_COLUMNS = (
    Column("operation_id", kind=Kind.ID),
    Column("dry_run", kind=Kind.FLAG),
    Column("selected", kind=Kind.COUNT),
    Column("moved", kind=Kind.COUNT),
    Column("skipped"),
    Column("already_taken", kind=Kind.COUNT),
    Column("remaining", kind=Kind.COUNT),
)
RESTORE_COLUMNS = (
    Column("operation_id", kind=Kind.ID),
    Column("restores", kind=Kind.ID),
    Column("restored", kind=Kind.COUNT),
    Column("already_back", kind=Kind.COUNT),
    Column("gone", kind=Kind.COUNT),
)
GROUP_COLUMNS = (
    Column("group", kind=Kind.ID),
    Column("count", kind=Kind.COUNT),
    Column("error"),
    Column("oldest", kind=Kind.TIME, spare=True),
    Column("newest", kind=Kind.TIME),
    Column("sample_job", kind=Kind.ID),
)
STATS_COLUMNS = (
    Column("depth", kind=Kind.COUNT),
    Column("unreadable", kind=Kind.COUNT),
    Column("jobs", kind=Kind.COUNT),
    Column("by_verdict"),
    Column("oldest_failed_at", kind=Kind.TIME),
    Column("newest_failed_at", kind=Kind.TIME),
)


def item(letter: Letter) -> dict[str, Any]:
    """One dead letter. Source: contract, section 3, dead."""
    payload = letter.payload
    found: dict[str, Any] = {
        "digest": letter.digest,
        "position": None if letter.position < 0 else letter.position,
        "job_id": letter.job_id,
        "account_id": letter.account_id,
        "attempts": None if payload is None else payload.attempts,
        "not_before": None if payload is None else payload.not_before,
        "error": letter.error,
        "failed_at": letter.failed_at,
        "state": None if letter.state is None else str(letter.state),
        "verdict": str(letter.verdict),
        "group": letter.group,
        "preview": None,
        "why": None,
    }
    if isinstance(letter.read, Unreadable):
        found |= {"preview": preview(letter.raw, PREVIEW), "why": letter.read.why}
    return found


def columns(letters: Sequence[Letter]) -> tuple[Column, ...]:
    """The columns of a listing; those of unreadable entries only when there is one.

    A table has no room for them: there they stand below it.
    """
    if any(letter.verdict is Verdict.UNREADABLE for letter in letters):
        return tuple(
            Column(one.key, in_table=False) if one.key in {"preview", "why"} else one
            for one in ITEM_COLUMNS
        )
    return ITEM_COLUMNS


def items(letters: Sequence[Letter]) -> Iterator[Record]:
    """The records of letters, made as they are printed."""
    for letter in letters:
        yield item(letter)


def letters(found: Sequence[Letter], total: int) -> Report:
    """A listing of dead letters."""
    return listing(
        items(found),
        columns=columns(found),
        total=total,
        foot=unreadable_lines(found),
        empty="No dead letters.",
    )


def unreadable_lines(found: Sequence[Letter]) -> list[str]:
    """One sentence for each unreadable letter: why, and how it begins."""
    return [
        f"{one.digest} is unreadable, {one.read.why}: {preview(one.raw, PREVIEW)}"
        for one in found
        if isinstance(one.read, Unreadable)
    ]


def statistics(found: Statistics, *, exit_code: int, notes: Sequence[str]) -> Report:
    """Counts by error and by verdict."""
    groups = [group_record(group) for group in found.by_error]
    document: dict[str, Any] = {
        "depth": found.depth,
        "unreadable": found.unreadable,
        "jobs": found.jobs,
        "by_error": groups,
        "by_verdict": found.by_verdict,
        "oldest_failed_at": found.oldest_failed_at,
        "newest_failed_at": found.newest_failed_at,
    }
    sections = [Report(GROUP_COLUMNS, groups, head=("By error:",))] if groups else []
    return record(
        document, columns=STATS_COLUMNS, exit_code=exit_code, notes=tuple(notes), sections=sections
    )


def group_record(group: ErrorGroup) -> dict[str, Any]:
    """One group of errors."""
    return {
        "group": group.group,
        "error": group.error,
        "count": group.count,
        "oldest": group.oldest,
        "newest": group.newest,
        "sample_job": group.sample_job,
    }


def changed(found: Changed, plan: Mapping[str, Any] | None = None) -> Report:
    """What a requeue or release did; a dry run's document is a plan."""
    document: dict[str, Any] = {
        "operation_id": found.operation_id,
        "dry_run": found.dry_run,
        "selected": len(found.selected.letters),
        "moved": found.moved,
        "skipped": found.selected.skipped,
        "remaining": found.remaining,
        "already_taken": found.already_taken,
        "not_found": found.selected.missing,
    }
    if found.not_tried:
        document["not_tried"] = found.not_tried
    if found.trouble is not None:
        document["error"] = trouble(found.trouble, found.exit_code)
    said = summary(found)
    notes = [f"not found: {some_of(found.selected.missing)}"] if found.selected.missing else []
    if plan is None:
        return record(
            document, columns=CHANGE_COLUMNS, foot=(said,), notes=notes, exit_code=found.exit_code
        )
    return Report(
        columns=columns(found.selected.letters),
        records=items(found.selected.letters),
        document={**document, **plan, "items": STREAMED},
        items_key="items",
        foot=(said,),
        notes=notes,
        exit_code=found.exit_code,
        empty="No dead letter is selected.",
    )


def summary(found: Changed) -> str:
    """One line of counts."""
    words = [f"{found.moved} {'would move' if found.dry_run else 'moved'}"]
    words += [f"{count} {verdict} left" for verdict, count in found.selected.skipped.items()]
    if found.selected.too_large:
        words.append(f"{found.selected.too_large} of these too large for the archive")
    if found.already_taken:
        words.append(f"{found.already_taken} taken by somebody else")
    if found.not_tried:
        words.append(f"{found.not_tried} not tried")
    if found.remaining is not None:
        words.append(
            f"{found.remaining} dead letters {'would remain' if found.dry_run else 'remain'}"
        )
    if found.operation_id is not None and found.moved:
        words.append(f"undo with `ledgerctl dead restore {found.operation_id}`")
    return ", ".join(words)


def restored(found: Restored, *, operation_id: str | None) -> Report:
    """What a restore put back; without an operation id what it would put back."""
    document: dict[str, Any] = {
        "operation_id": operation_id,
        "restores": found.restores,
        "restored": found.restored,
        "already_back": found.already_back,
        "gone": found.gone,
        "dry_run": operation_id is None,
    }
    if found.not_tried:
        document["not_tried"] = found.not_tried
    if found.trouble is not None:
        document["error"] = trouble(found.trouble, found.exit_code)
    word = "would be restored" if operation_id is None else "restored"
    said = f"{found.restored} {word}, {found.already_back} were back, {found.gone} gone"
    return record(document, columns=RESTORE_COLUMNS, foot=(said,), exit_code=found.exit_code)


def reviewed(counts: Mapping[str, Any]) -> Report:
    """What a review decided."""
    kinds = [Column(key, kind=Kind.ID if key == "operation_id" else Kind.COUNT) for key in counts]
    return record(dict(counts), columns=kinds)


def trouble(error: LedgerctlError, exit_code: int) -> dict[str, Any]:
    """What ended an operation early."""
    return {**error.document(), "exit_code": exit_code}


def page(found: LetterPage, shown: Sequence[Letter]) -> Report:
    """A letter with its raw payload and its job; further letters of the job below it."""
    first = shown[0]
    document = item(first) | raw_payload(first.raw)
    document["archived"] = [
        {"operation_id": one.operation_id, "chunk": one.chunk, "at": one.at}
        for one in found.archived
    ]
    document["job"] = None if found.job is None else job_document(found.job)
    document["letters"] = [item(letter) | raw_payload(letter.raw) for letter in shown[1:]]
    notes = [found.trouble] if found.trouble else []
    if found.archived:
        notes.append(
            "no longer among the dead letters: this is what operation"
            f" {found.archived[0].operation_id} was about to take"
        )
    sections = []
    if shown[1:]:
        sections.append(Report(ITEM_COLUMNS, list(items(shown[1:])), head=("Also:",)))
    if found.job is not None:
        rows = document["job"]["rows"]
        sections.append(Report(ROW_COLUMNS, rows, head=("Ledger rows of the job:",)))
    # A page has room for everything.
    whole = [replace(one, title="", in_table=True) for one in columns(shown)]
    page_columns = (*whole, Column("payload"))
    return record(document, columns=page_columns, notes=notes, sections=sections)


def raw_payload(raw: bytes) -> dict[str, Any]:
    r"""The stored bytes as text; what is not UTF-8 as `\xNN`, and then in hex as well."""
    found: dict[str, Any] = {"payload": raw.decode(errors="backslashreplace")}
    try:
        raw.decode()
    except UnicodeDecodeError:
        found["payload_hex"] = raw.hex()
    return found
