"""Report dead letters, their figures with the commands that come next, and their changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerctl.domain.dead import (
    ARCHIVED_BYTES_MAX,
    Letter,
    LetterPage,
    Plan,
    Verdict,
    counted,
    movable,
)
from ledgerctl.domain.dead_stats import ErrorGroup, Statistics
from ledgerctl.domain.ids import some_of
from ledgerctl.domain.payload import Unreadable, preview
from ledgerctl.domain.results import Result
from ledgerctl.render.report import (
    STREAMED,
    Column,
    CommandLine,
    Kind,
    Record,
    Report,
    columns,
    listing,
    members,
    record,
)
from ledgerctl.render.text import shell_line
from ledgerctl.render.views.job import ROW_COLUMNS, job_document
from ledgerctl.render.views.log import no_notes

if TYPE_CHECKING:
    from ledgerctl.operations.dead_restore import Restorable

PREVIEW = 60
TOO_LARGE = f"it has more than {ARCHIVED_BYTES_MAX:,} bytes, which the archive cannot hold"
ITEM_COLUMNS = columns(
    Column("position", title="pos", kind=Kind.COUNT),
    "digest verdict job_id account_id state attempts requeues",
    Column("failed_at", title="failed", kind=Kind.TIME, spare=True),
    "not_before",
    Column("error", lines_max=3),
    "group preview why",
    spare="attempts requeues",
    not_shown="group preview why",
    not_in_table="state not_before",
)
PLANNED_COLUMNS = (
    *(
        replace(one, shown=one.key != "group", in_table=False) if not one.shown else one
        for one in ITEM_COLUMNS
    ),
    Column("moves", kind=Kind.FLAG, in_table=False),
)
CHANGE_COLUMNS = columns(
    "operation_id dry_run selected moved skipped too_large already_taken remaining",
    when_filled="too_large",
)
RESTORE_COLUMNS = columns("operation_id restores restored already_back gone")


def item(letter: Letter) -> dict[str, Any]:
    """Show one dead letter. Source: contract, section 3, dead."""
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
        **members(letter, "verdict group requeues"),
        "preview": None,
        "why": None,
    }
    if isinstance(letter.read, Unreadable):
        found |= {"preview": preview(letter.raw, PREVIEW), "why": letter.read.why}
    return found


def letter_columns(letters: Sequence[Letter]) -> tuple[Column, ...]:
    """Choose the columns of a listing; those of unreadable entries only when there is one.

    A table has no room for them: there they stand below it.
    """
    if any(letter.verdict is Verdict.UNREADABLE for letter in letters):
        return tuple(
            Column(one.key, in_table=False) if one.key in {"preview", "why"} else one
            for one in ITEM_COLUMNS
        )
    return ITEM_COLUMNS


def items(letters: Sequence[Letter]) -> Iterator[Record]:
    """Give the records of letters, made as they are printed."""
    for letter in letters:
        yield item(letter)


def letters(
    found: Sequence[Letter], total: int, *, depth: int, nothing: str, notes: Sequence[str]
) -> Report:
    """List dead letters; `depth` counts all that there are, `nothing` says why none is shown."""
    report = listing(
        items(found),
        columns=letter_columns(found),
        total=total,
        foot=unreadable_lines(found),
        notes=notes,
        empty=nothing,
    )
    return replace(report, document={**(report.document or {}), "depth": depth})


def unreadable_lines(found: Sequence[Letter]) -> list[str]:
    """Say of each unreadable letter why, and how it begins."""
    return [
        f"{one.digest} is unreadable, {one.read.why}: {preview(one.raw, PREVIEW)}"
        for one in found
        if isinstance(one.read, Unreadable)
    ]


def changed(made: Plan, result: Result[None], *, remaining: int | None) -> Report:
    """Report a requeue or a release."""
    return record(
        counts(made, result, remaining),
        columns=CHANGE_COLUMNS,
        foot=(summary(made, result, remaining),),
        notes=remarks(made),
    )


def planned(made: Plan, found: Iterable[Letter], plan: Mapping[str, Any]) -> Report:
    """Report a dry run; its document is a plan."""
    result: Result[None] = Result(counts={"moved": len(made.moving), "already_taken": made.already})
    remaining = made.depth - len(made.moving)
    return Report(
        columns=PLANNED_COLUMNS,
        records=planned_items(made, found),
        document={**counts(made, result, remaining), **plan, "items": STREAMED},
        items_key="items",
        foot=(summary(made, result, remaining, verb="would move"),),
        notes=remarks(made),
        empty="No dead letter is selected.",
    )


def planned_items(made: Plan, found: Iterable[Letter]) -> Iterator[Record]:
    """Give the records of letters with what the plan does to them."""
    for letter in found:
        moves = movable(made.action, letter.verdict, force=made.policy.force)
        found_item = item(letter) | {"moves": moves and letter.fits_archive}
        yield found_item if letter.fits_archive else found_item | {"why": TOO_LARGE}


def counts(made: Plan, result: Result[None], remaining: int | None) -> dict[str, Any]:
    """Give the counts that the document of every change of dead letters has."""
    return {
        "selected": len(made.selected),
        "moved": result.counts.get("moved", 0),
        "skipped": counted(made.skipped),
        "remaining": remaining,
        "already_taken": result.counts.get("already_taken", 0),
        "not_found": made.missing,
        "too_large": [
            {"digest": one.digest, "job_id": one.job_id, "why": TOO_LARGE} for one in made.too_large
        ],
    }


def remarks(made: Plan) -> list[str]:
    """Name the letters that were not found and those that the archive cannot hold."""
    notes = [f"not found: {some_of(made.missing)}"] if made.missing else []
    return notes + [f"{one.digest} is not moved: {TOO_LARGE}" for one in made.too_large]


def summary(made: Plan, result: Result[None], remaining: int | None, *, verb: str = "moved") -> str:
    """Give one line of counts."""
    moved, already = result.counts.get("moved", 0), result.counts.get("already_taken", 0)
    words = [f"{moved} {verb}"]
    words += [f"{count} {verdict} left" for verdict, count in counted(made.skipped).items()]
    if made.too_large:
        words.append(f"{len(made.too_large)} of these too large for the archive")
    if already:
        words.append(f"{already} taken by somebody else")
    if result.not_tried:
        words.append(f"{result.not_tried} not tried")
    if remaining is not None:
        stay = "remain" if verb == "moved" else "would remain"
        words.append(f"{remaining} dead letters {stay}")
    if result.operation_id is not None and moved:
        words.append(f"undo with `ledgerctl dead restore {result.operation_id}`")
    return ", ".join(words)


def restored(found: "Restorable", result: Result[None], *, dry_run: bool) -> Report:
    """Report what a restore put back, or would put back."""
    document: dict[str, Any] = {
        "operation_id": result.operation_id,
        "restores": found.operation_id,
        **{name: result.counts.get(name, 0) for name in ("restored", "already_back", "gone")},
    }
    word = "would be restored" if dry_run else "restored"
    said = "{restored} {word}, {already_back} were back, {gone} gone".format(word=word, **document)
    kept = found.lost - found.removed
    lost = (
        f"Redis has lost {kept} letters that operation {found.operation_id} moved;"
        " --from-archive puts back those on no list"
    )
    removed = (
        f"{found.removed} letters that operation {found.operation_id} moved are no longer kept:"
        " `ledgerctl db tidy` removed them from the archive"
    )
    undone = (
        f"{found.put_back} letters that operation {found.operation_id} moved are on the dead letters"
        " without notes: a failover undid the move"
    )
    notes = [] if found.has_notes else [no_notes(found.operation_id)]
    notes += [lost] * bool(kept) + [removed] * bool(found.removed)
    notes += [undone] * bool(found.put_back)
    return record(document, columns=RESTORE_COLUMNS, foot=(said,), notes=notes)


def reviewed(result: Result[None]) -> Report:
    """Report what a review decided."""
    names = ("requeued", "released", "skipped", "not_seen")
    columns = [
        Column("operation_id", kind=Kind.ID),
        *(Column(one, kind=Kind.COUNT) for one in names),
    ]
    return record({name: result.counts.get(name, 0) for name in names}, columns=columns)


def page(found: LetterPage, shown: Sequence[Letter]) -> Report:
    """Show a letter with its raw payload and its job; further letters of the job below it."""
    first = shown[0]
    document = item(first) | raw_payload(first.raw)
    document["archived"] = [members(one, "operation_id chunk at") for one in found.archived]
    document["job"] = None if found.job is None else job_document(found.job)
    document["letters"] = [item(letter) | raw_payload(letter.raw) for letter in shown[1:]]
    notes = [found.error] if found.error else []
    if found.without_notes:
        notes.append(no_notes(found.without_notes))
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
    whole = [replace(one, title="", in_table=True) for one in letter_columns(shown)]
    page_columns = (*whole, Column("payload"))
    return record(document, columns=page_columns, notes=notes, sections=sections)


def raw_payload(raw: bytes) -> dict[str, Any]:
    r"""Show the stored bytes as text; what is not UTF-8 as `\xNN`, and then in hex as well."""
    found: dict[str, Any] = {"payload": raw.decode(errors="backslashreplace")}
    try:
        raw.decode()
    except UnicodeDecodeError:
        found["payload_hex"] = raw.hex()
    return found


GROUP_COLUMNS = columns(
    "group count",
    Column("error", lines_max=2),
    Column("by_verdict", title="verdicts"),
    "newest oldest sample_job",
    spare="oldest sample_job",
)
STATS_COLUMNS = columns(
    "depth selected unreadable undated jobs by_verdict oldest_failed_at newest_failed_at",
    when_filled="unreadable undated",
    not_in_table="newest_failed_at",
)


def statistics(
    found: Statistics, *, top: int, selectors: Sequence[str], exit_code: int, notes: Sequence[str]
) -> Report:
    """Report counts by error and by verdict; `top` groups (0: all), the others as two figures.

    `selectors` are the words that narrowed the letters: the commands to copy have them too.
    """
    groups = found.by_error[:top] if top else found.by_error
    others = found.by_error[len(groups) :]
    left_out = {"groups": len(others), "count": sum(one.count for one in others)}
    document: dict[str, Any] = {
        **members(found, "depth selected unreadable undated jobs"),
        "by_error": [group_record(group) for group in groups],
        "other_groups": left_out,
        **members(found, "by_verdict oldest_failed_at newest_failed_at"),
    }
    more = (
        f"and {left_out['groups']} more groups with {left_out['count']} letters: --top 0 shows all"
    )
    foot = [*([more] if others else []), *next_steps(found.by_error, selectors)]
    sections = [Report(GROUP_COLUMNS, document["by_error"], foot=foot)] if groups else []
    page = record(
        document, columns=STATS_COLUMNS, exit_code=exit_code, notes=tuple(notes), sections=sections
    )
    return replace(page, is_brief=True)


def group_record(group: ErrorGroup) -> dict[str, Any]:
    """Show one group of errors."""
    return {
        **members(group, "group error count oldest newest sample_job"),
        "by_verdict": counted(group.verdicts),
        "sample_error": group.sample_error,
    }


def next_steps(groups: Sequence[ErrorGroup], selectors: Sequence[str]) -> list[str]:
    """Write the commands for the largest group that can move, and for what is settled."""
    steps: list[str] = []
    largest = max(groups, key=lambda one: one.verdicts[Verdict.RETRYABLE], default=None)
    can_move = 0 if largest is None else largest.verdicts[Verdict.RETRYABLE]
    if largest is not None and can_move:
        group = ("--group", largest.group)
        steps += [
            f"{can_move} of group {largest.group} can move; look, try, then put them back:",
            dead("list", *group, "--limit", "5", *selectors),
            dead("requeue", *group, "--spread", "10m", "--dry-run", *selectors),
            dead("requeue", *group, "--spread", "10m", *selectors),
        ]
    if any(one.verdicts[Verdict.SETTLED] for one in groups):
        release = ("--verdict", "settled", "--reason", "settled already")
        steps += [dead("release", *release, *selectors)]
    return steps


def dead(*words: str) -> CommandLine:
    """Write a dead-letter command for copying."""
    return shell_line(["ledgerctl", "dead", *words])
