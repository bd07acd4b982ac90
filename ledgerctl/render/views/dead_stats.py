"""Report the figures of the dead letters, with the commands that come next."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ledgerctl.domain.dead import Verdict, counted
from ledgerctl.domain.dead_stats import ErrorGroup, Statistics
from ledgerctl.render.report import Column, CommandLine, Report, columns, record
from ledgerctl.render.text import shell_line

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
    found: Statistics,
    *,
    top: int,
    selectors: Sequence[str],
    exit_code: int,
    notes: Sequence[str],
) -> Report:
    """Report counts by error and by verdict; `top` groups (0: all), the others as two figures.

    `selectors` are the words that narrowed the letters: the commands to copy have them too.
    """
    groups = found.by_error[:top] if top else found.by_error
    others = found.by_error[len(groups) :]
    left_out = {"groups": len(others), "count": sum(one.count for one in others)}
    document: dict[str, Any] = {
        "depth": found.depth,
        "selected": found.selected,
        "unreadable": found.unreadable,
        "undated": found.undated,
        "jobs": found.jobs,
        "by_error": [group_record(group) for group in groups],
        "other_groups": left_out,
        "by_verdict": found.by_verdict,
        "oldest_failed_at": found.oldest_failed_at,
        "newest_failed_at": found.newest_failed_at,
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
        "group": group.group,
        "error": group.error,
        "count": group.count,
        "oldest": group.oldest,
        "newest": group.newest,
        "sample_job": group.sample_job,
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
