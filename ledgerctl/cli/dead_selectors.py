"""Define the selectors that dead-letter commands share, and read them from plan files."""

import functools
import inspect
import json
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from ledgerctl.cli.session import Session
from ledgerctl.domain.dead import Action, ErrorPattern, PlanItem, Selection, Verdict, movable
from ledgerctl.domain.jobs import State
from ledgerctl.domain.times import check_order, lower_bound, parse_rfc3339
from ledgerctl.errors import UsageError
from ledgerctl.render.report import Report

DIGEST = re.compile(r"[0-9A-Fa-f]{12}")
SEARCH_S = 5
GROUP = re.compile(r"[0-9A-Fa-f]{8}")

SELECTORS: dict[str, Any] = {
    "job": (Annotated[list[str] | None, typer.Argument(help="Job ids.", metavar="JOB", show_default=False)], None),
    "digest": (Annotated[list[str] | None, typer.Option("--digest", help="Only the letter of this digest; may be repeated.", metavar="D", show_default=False)], None),
    "everything": (Annotated[bool, typer.Option("--all", help="All dead letters.")], False),
    "group": (Annotated[str | None, typer.Option("--group", help="Only errors of this group, see `dead stats`.", metavar="KEY", show_default=False)], None),
    "error": (Annotated[str | None, typer.Option("--error", help="Only errors in which this regular expression is found.", metavar="REGEX", show_default=False)], None),
    "account": (Annotated[str | None, typer.Option("--account", help="Only this account.", metavar="ACCOUNT", show_default=False)], None),
    "state": (Annotated[State | None, typer.Option("--state", help="Only jobs in this state.", show_default=False)], None),
    "verdict": (Annotated[Verdict | None, typer.Option("--verdict", help="Only letters of this verdict.", show_default=False)], None),
    "failed_before": (Annotated[str | None, typer.Option("--failed-before", help="Only those that failed before this time.", metavar="TIME", show_default=False)], None),
    "failed_after": (Annotated[str | None, typer.Option("--failed-after", help="Only those that failed at this time or later.", metavar="TIME", show_default=False)], None),
    "requeued_under": (Annotated[int | None, typer.Option("--requeued-under", min=1, help="Only jobs put back less often than this: the guard against a loop.", metavar="N", show_default=False)], None),
    "plan": (Annotated[str | None, typer.Option("--plan", help="Exactly the letters of this dry run's JSON; - reads standard input.", metavar="FILE", show_default=False)], None),
}  # fmt: skip
LIMIT: dict[str, Any] = {
    "limit": (Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N from the head that can be moved.", metavar="N", show_default=False)], None),
}  # fmt: skip
SHOWN_LIMIT: dict[str, Any] = {
    "limit": (Annotated[int | None, typer.Option("--limit", min=0, help="Show at most this many; 0 shows all.", metavar="N")], 100),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chosen:
    """Keep the selectors as they were typed."""

    job: list[str] | None = None
    digest: list[str] | None = None
    everything: bool = False
    group: str | None = None
    error: str | None = None
    account: str | None = None
    state: State | None = None
    verdict: Verdict | None = None
    failed_before: str | None = None
    failed_after: str | None = None
    requeued_under: int | None = None
    plan: str | None = None
    limit: int | None = None

    def require_values(self) -> None:
        """Raise UsageError for an empty selector, which an unset variable of a shell leaves."""
        for name in self.__slots__:
            value = getattr(self, name)
            if value == "" or (isinstance(value, list) and "" in [one.strip() for one in value]):
                option = "JOB" if name == "job" else f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"{option} is empty: nothing was selected",
                    hint="is a variable of the shell unset?",
                )

    def words(self) -> list[str]:
        """Write those that narrow a selection as words of a command line, but for the group."""
        found: list[str] = []
        for name, value in self.given().items():
            if name == "job":
                found += value
            elif name not in {"everything", "group", "limit"}:
                option = f"--{name.replace('_', '-')}"
                values = value if isinstance(value, list) else [value]
                found += [word for one in values for word in (option, str(one))]
        return found

    def given(self) -> dict[str, Any]:
        """Give those that were typed, by name, as a plan records them."""
        names = (name for name in self.__slots__ if name != "plan")
        values = {name: getattr(self, name) for name in names}
        return {
            name: str(value) if isinstance(value, State | Verdict) else value
            for name, value in values.items()
            if value not in (None, False, [])
        }


def selecting(
    limit: dict[str, Any],
) -> Callable[[Callable[..., Report | None]], Callable[..., Report | None]]:
    """Give a command the selectors: its second argument becomes the `Chosen` that was typed."""

    def add(function: Callable[..., Report | None]) -> Callable[..., Report | None]:
        shared = SELECTORS | limit
        session, _, *own = inspect.signature(function, eval_str=True).parameters.values()

        def command(given: Session, /, **words: Any) -> Report | None:
            chosen = Chosen(**{name: words.pop(name) for name in shared})
            chosen.require_values()
            return function(given, chosen, **words)

        selectors = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
            for name, (kind, default) in shared.items()
        ]
        keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        positional = session.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        functools.update_wrapper(command, function)
        command.__signature__ = inspect.Signature([positional, *selectors, *keywords])  # type: ignore[attr-defined]  # how inspect is told
        return command

    return add


@dataclass(frozen=True, slots=True)
class PlanFile:
    """Keep a dry run's JSON: what it would do, where, with which options, to which letters."""

    items: tuple[PlanItem, ...]
    options: dict[str, Any]
    at: datetime | None


def selection(session: Session, chosen: Chosen, plan: PlanFile | None = None) -> Selection:
    """Turn what was typed into a selection. Raises UsageError for what makes no sense."""
    jobs, digests = names(chosen)
    after, before = bound(session, chosen.failed_after), bound(session, chosen.failed_before)
    if before is not None:
        check_order(after, before)
    return Selection(
        jobs=jobs,
        digests=digests,
        everything=chosen.everything,
        group=group_key(chosen.group),
        error=pattern(chosen.error),
        account=chosen.account,
        state=chosen.state,
        verdict=chosen.verdict,
        failed_before=before,
        failed_after=after,
        requeued_under=chosen.requeued_under,
        limit=chosen.limit or None,
        plan=None if plan is None else plan.items,
    )


def names(chosen: Chosen) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the names into jobs and digests; after --digest, further digests may follow it."""
    jobs = chosen.job or []
    digests = [one for text in chosen.digest or [] for one in text.lower().split(",") if one]
    if digests:
        digests += [one.lower() for one in jobs if DIGEST.fullmatch(one)]
        jobs = [one for one in jobs if not DIGEST.fullmatch(one)]
    return tuple(dict.fromkeys(jobs)), tuple(dict.fromkeys(digests))


def group_key(text: str | None) -> str | None:
    """Return the key of a group of errors. Raises UsageError unless it is 8 hex digits."""
    if text is not None and not GROUP.fullmatch(text):
        raise UsageError(
            f"--group {text!r} is not the key of a group: 8 hex digits",
            hint="`ledgerctl dead stats` shows the groups",
        )
    return text and text.lower()


class TimedPattern:
    """Search an error for at most 5 s: a search holds the interpreter, and so the lease's renewal.

    Source: contract, section 3, dead.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = re.compile(text)
        signal.signal(signal.SIGALRM, self._stop)

    def search(self, text: str, /) -> object:
        """Search as `re.search` does. Raises UsageError when the time is up."""
        signal.setitimer(signal.ITIMER_REAL, SEARCH_S)
        try:
            return self._found.search(text)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _stop(self, *_: object) -> None:
        raise UsageError(
            f"--error {self._text!r} takes longer than {SEARCH_S} s on one letter",
            hint="a repeat within a repeat, as in (a+)+, takes for ever: take one out",
        )


def pattern(text: str | None) -> "ErrorPattern | None":
    """Compile a regular expression; its time is limited where signals reach, in the main thread."""
    if text is None:
        return None
    try:
        is_main = threading.current_thread() is threading.main_thread()
        return TimedPattern(text) if is_main else re.compile(text)
    except re.error as error:
        raise UsageError(f"--error {text!r} is no regular expression: {error}") from None


def bound(session: Session, text: str | None) -> datetime | None:
    """Read the instant of `--failed-before` (excluded) or `--failed-after` (included)."""
    return None if text is None else lower_bound(text, now=session.now, zone=session.zone)


def read_plan(session: Session, file: str, action: Action) -> PlanFile:
    """Read the plan in a file. Raises UsageError when it is none, or is for another command or place."""
    document = parse_plan(file)
    place = {
        "command": session.words.command,
        "profile": session.settings.profile,
        "database": session.settings.database,
    }
    for name, here in place.items():
        if document.get(name) != here:
            raise UsageError(
                f"the plan is for {name} {document.get(name)!r}, this is {here!r}",
                hint="make the plan with the same command, in the same place, with --dry-run -o json",
            )
    options = document.get("options")
    options = options if isinstance(options, dict) else {}
    at = document.get("at")
    return PlanFile(
        items=plan_items(document, action, force=options.get("force") is True),
        options=options,
        at=parse_rfc3339(at) if isinstance(at, str) else None,
    )


def parse_plan(file: str) -> dict[str, Any]:
    """Read the JSON object in a file."""
    from ledgerctl.cli.options import read_lines

    try:
        document = json.loads("\n".join(read_lines(file)))
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        raise UsageError(
            f"{file} is no plan", hint="a plan is the output of the command with --dry-run -o json"
        )
    return document


def plan_items(document: dict[str, Any], action: Action, *, force: bool) -> tuple[PlanItem, ...]:
    """List the letters of a plan, as often as it does, and which of them it meant to move."""
    found = []
    for item in document["items"]:
        name = item.get("digest") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise UsageError("an item of the plan has no digest")
        verdict = item.get("verdict")
        known = verdict in {str(one) for one in Verdict}
        meant = item.get("moves") is not False and (
            not known or movable(action, Verdict(verdict), force=force)
        )
        found.append(PlanItem(name.lower(), meant))
    return tuple(found)


def read_any_plan(file: str) -> PlanFile:
    """Read a plan of either command, only to look at its letters."""
    return PlanFile(plan_items(parse_plan(file), Action.RELEASE, force=True), {}, None)
