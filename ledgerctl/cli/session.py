"""One command's run: its settings, its stores, its clock, its questions and its output."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TextIO, cast

from ledgerctl.cli.boundary import bug, drop, say
from ledgerctl.cli.signals import StopSignal
from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import (
    ConsentMissing,
    Declined,
    ExitCode,
    LedgerctlError,
    Mapped,
    OutputFailed,
    ReadOnlyProfile,
    SettingsError,
    UsageError,
)

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from ledgerctl.config import Settings
    from ledgerctl.operations.log import Operation
    from ledgerctl.render.report import Record, Report
    from ledgerctl.stores.connections import Stores
UNMAPPED = frozenset({"dead", "config", "sandbox", "demo"})  # change nothing that a map names
NOTES_MAX = 1_000  # what a long run says is kept up to here when it cannot be printed at once


class Words(NamedTuple):
    """Tell what the operator typed of the common options; absent ones keep their defaults."""

    command: str
    effect: str
    profile: str | None = None
    config: str | None = None
    output: str | None = None
    fields: str | None = None
    no_header: bool = False
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    dry_run: bool = False
    reason: str | None = None
    yes: bool = False
    confirm: str | None = None
    expect: int | None = None


@dataclass(eq=False, repr=False)
class Session:
    """Hold one command's run; close its stores at the end, whatever happened.

    Settings are read once, stores are opened at their first use, and the clock is read once
    (`now`, aware UTC, milliseconds).
    """

    words: Words
    now: datetime = field(default_factory=lambda: milliseconds(datetime.now(UTC)))
    stop: StopSignal = field(default_factory=StopSignal)
    notes: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    shows_progress: bool = True
    _settings: "Settings | None" = None
    _stores: "Stores | None" = None
    ended: int | None = None  # the exit code in the operator log, once it is there
    _operation: "Operation | None" = None
    unlogged: str = ""  # why the operator log's entry stays open

    def __enter__(self) -> Self:
        self.stop.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop.uninstall()
        if isinstance(error, LedgerctlError):
            self._amend_log(int(error.exit_code))
            self.remark()
        if self._stores is not None:
            self._stores.close()

    # settings and stores

    @property
    def settings(self) -> "Settings":
        """Return the settings of this run, read at their first use."""
        if self._settings is None:
            from ledgerctl.config import load

            self._settings = load(
                environment=self.environment,
                profile=self.words.profile,
                config=self.words.config,
                output=self.words.output,
            )
        return self._settings

    def choose(self, settings: "Settings") -> None:
        """Go on with these settings instead; before the first store is opened."""
        self._settings = settings

    @property
    def stores(self) -> "Stores":
        """Return every store, each opened at its first use."""
        if self._stores is None:
            from ledgerctl.config import other_database
            from ledgerctl.stores.connections import Stores

            if other := other_database(self.settings):
                self.note(other)

            self._stores = Stores(self.settings, self.wait_notice)
        return self._stores

    @property
    def zone(self) -> "ZoneInfo":
        """Return the day zone: a setting, never the shell's TZ."""
        return self.settings.zone

    @property
    def dry_run(self) -> bool:
        """Tell whether to show and change nothing."""
        return self.words.dry_run

    @property
    def reason(self) -> str | None:
        """Tell why the operator does it."""
        return self.words.reason

    def clock(self) -> datetime:
        """Return this machine's time now; for what waits on people, `now` is when the command began."""
        return milliseconds(datetime.now(UTC))

    # what people read besides the result

    @property
    def format(self) -> str:
        """Return the output format: flag, environment, file, else table on a terminal and plain in a pipe."""
        return self.words.output or self._format_by_settings() or default_format()

    def _format_by_settings(self) -> str | None:
        """Return the format that the settings choose; none when they cannot be read.

        A command that needs settings says what is wrong with them; help, completion and the
        sandbox do not need them.
        """
        chosen = self.environment.get("LEDGERCTL_OUTPUT")
        if self._settings is None and chosen in list(OutputFormat):
            return chosen  # stronger than the file, which need not be opened then
        try:
            return self.settings.output
        except SettingsError:
            return None

    def note(self, text: str) -> None:
        """Say something beside the result: on stderr, or inside the document for json."""
        if self.words.quiet:
            return
        self.notes.append(text)

    def say(self, text: str) -> None:
        """Say something at once, from a command that may run for days; with json a note instead."""
        from ledgerctl.render.text import visible

        if self.format == "json":
            if len(self.notes) < NOTES_MAX:
                self.note(text)
        elif not self.words.quiet and sys.stderr is not None:
            with suppress(OSError, ValueError):  # nobody reads it any more: the work goes on
                self.progress_done()
                sys.stderr.write(visible(text) + "\n")
                sys.stderr.flush()

    def wait_notice(self, text: str) -> None:
        """Say at once on stderr, with json too, that the run waits for a store."""
        from ledgerctl.render.text import visible

        if not self.words.quiet:
            self.progress_done()
            say([visible(text)])

    def detail(self, text: str) -> None:
        """Say something only with --verbose."""
        if self.words.verbose:
            self.note(text)

    def progress(self, text: str) -> None:
        """Show how far a long step is, on a terminal's stderr only."""
        is_wanted = self.shows_progress and not self.words.quiet and self.format != "json"
        if is_wanted and is_terminal(sys.stderr):
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def progress_done(self) -> None:
        """Take the progress line away."""
        self.progress("")

    # consent

    def heed_map(self) -> None:
        """Refuse to change another team's ledger, dry runs included, before anything is looked at.

        Says which answers come without jobs. Source: contract, section 4.
        """
        noun = self.words.command.partition(" ")[0]
        changes = self.words.effect != "read"
        if (changes and noun in UNMAPPED) or not (changes or noun in {"job", "dead", "ledger"}):
            return
        if changes and self.settings.map is not None:
            raise Mapped(
                f"the ledger is another team's, read through a map: `{self.words.command}` was not"
                " started",
                hint="without [map.ledger] this command works on a ledger of our own shape",
            )
        if self.settings.map is not None and self.settings.map.jobs is None:
            self.note("the map has no [map.jobs]: there are no jobs, so no row has one")

    def permit(self) -> None:
        """Refuse a changing command on a read-only profile; a dry run may pass.

        Raises ReadOnlyProfile before anything is looked at. Source: contract, section 1.
        """
        if self.settings.read_only and not self.dry_run:
            raise ReadOnlyProfile(
                f"profile {self.settings.profile!r} is read-only: `{self.words.command}` was not started",
                hint="use another --profile"
                + ("" if self.words.effect == "loop" else ", or look with --dry-run"),
            )

    def ask(self, question: Sequence[str], *, bulk: bool) -> None:
        """Return once the operator agrees: on a protected profile by its name, else to bulk changes.

        The lines go to stderr before the question. Raises ConsentMissing or Declined. No terminal
        never means yes.
        """
        self.permit()
        if self.settings.protected:
            self._ask_profile_name(question)
        elif bulk and not self.words.yes:
            self._ask_yes(question)

    def place(self) -> str:
        """Tell where and as whom this command acts, without any secret."""
        settings = self.settings
        return f"profile {settings.profile}, database {settings.database}, operator {settings.operator}"

    def _ask_profile_name(self, lines: Sequence[str]) -> None:
        name = self.settings.profile
        if self.words.confirm is not None:
            if self.words.confirm != name:
                raise Declined(
                    f"--confirm names another profile than {name!r}",
                    hint=f"--confirm {name} means this one",
                )
            return
        question = f'type "{name}" to go on: '
        if self._question(lines, question, f"--confirm {name}") != name:
            raise Declined("the profile's name was not typed: nothing was changed")

    def _ask_yes(self, lines: Sequence[str]) -> None:
        answer = self._question(lines, "go on? [y/N] ", "--yes")
        if answer.strip().lower() not in {"y", "yes"}:
            raise Declined("declined: nothing was changed")

    def _question(self, lines: Sequence[str], question: str, flag: str) -> str:
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise ConsentMissing(
                f"`{self.words.command}` wants to be confirmed and there is no terminal to ask on",
                hint=f"add {flag}, or look first with --dry-run",
            )
        from ledgerctl.render.text import folded_sentence, visible

        self.progress_done()
        for line in lines:
            for piece in folded_sentence(visible(line), terminal_width()):
                sys.stderr.write(piece + "\n")
        sys.stderr.write(visible(question))
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if not answer:
            sys.stderr.write("\n")
            raise Declined("no answer: nothing was changed")
        return answer.rstrip("\n")

    # the operator log

    def begin(self) -> "Operation":
        """Write the operation's entry of the operator log; nothing may be changed before this.

        Signals are held back from here until the result is printed: a loop asks `stop.requested`
        between its chunks. Raises NotPermitted when the user lacks a right.
        """
        from ledgerctl.operations.log import Operation, require

        operation = Operation(
            log=self.stores.operator_log,
            clock=self.stores.mongo.now,
            command=self.words.command,
            operator=self.settings.operator,
            profile=self.settings.profile,
            reason=self.reason,
        )
        require(self.stores, self.words.command)
        self._load_output()
        self.stop.hold()
        operation.begin()
        return operation

    def end(self, operation: "Operation", counts: Mapping[str, int], exit_code: int) -> None:
        """Complete the operation's entry; from here on the process ends with this exit code."""
        operation.counts.update(counts)
        operation.end(exit_code)
        self._operation, self.ended = operation, exit_code
        if operation.unfinished is not None:
            why = operation.unfinished.message
            self.unlogged = f"entry {operation.id} stays open in the operator log: {why}"

    # output

    def emit(self, report: "Report | None") -> int:
        """Print the result and return the exit code.

        After a change a stdout that is closed or full does not look like a failed change: the
        counts go to stderr and the exit code stays the change's own.
        """
        if self.looks:
            self.check_place()
        if self.unlogged:
            self.notes.append(self.unlogged)  # even with --quiet: the exit code says so too
        if report is None:
            self.remark()
            return self._final(ExitCode.DONE)
        try:
            code = self._write(report) if self.looks else self._write_change(report)
        except (BrokenPipeError, OutputFailed) as error:
            drop(sys.stdout)
            if self.looks:
                if isinstance(error, OutputFailed):
                    raise
                return int(ExitCode.DONE)
            code = self._say_unprinted(report)
        if self.looks:
            self.check_place()  # a report that streams has read only now
        return self._final(code)

    def check_place(self) -> None:
        """Raise SettingsError where MongoDB held nothing, and a database differs in case only."""
        if self._stores is not None and "mongo" in self._stores.__dict__:
            self._stores.mongo.check_spelling()

    def _final(self, code: int) -> int:
        """Give the process's exit code: the log's, a signal's, or 8 where the log could not be written."""
        if self.ended is None:
            return int(self.stop.exit_code or code)
        if self.unlogged:
            return int(ExitCode.PARTIAL if code == ExitCode.DONE else code)
        self._amend_log(code)
        return code

    def _amend_log(self, exit_code: int) -> None:
        """Let the log's entry have the process's exit code, where printing the result changed it."""
        if self._operation is not None and self.ended not in {None, exit_code}:
            self._operation.end(exit_code)
            self.ended = exit_code

    @property
    def looks(self) -> bool:
        """Tell whether this run changes nothing."""
        return self.words.effect == "read" or self.dry_run

    def _write_change(self, report: "Report") -> int:
        """Print what a change came to: whole, and said so, when a field asked for does not exist.

        A signal that strikes now would leave two results or none; only what is still being looked
        up may be interrupted.
        """
        from dataclasses import replace

        if not isinstance(report.records, Sequence):
            self.stop.release()
        if not self.words.fields:
            return self._write(report)
        kept = replace(report, records=list(report.records))
        try:
            return self._write(kept)
        except UsageError as error:
            self.note(f"{error.message}: every field is shown")
            self.words = self.words._replace(fields=None)
            return self._write(kept)

    def _counts(self, report: "Report") -> "Sequence[str]":
        """Give the counts of a dry run for stderr, where the format has no place for them."""
        from ledgerctl.render.report import settled

        listed = self.format in {OutputFormat.PLAIN, OutputFormat.CSV, OutputFormat.JSONL}
        wanted = listed and self.dry_run and not self.words.quiet
        return settled(report.foot) if wanted else ()

    def _load_output(self) -> None:
        """Load what the result is told by: what keeps it from loading must not follow a change."""
        from ledgerctl.render.emit import writer_of

        writer_of(self.format)

    def _write(self, report: "Report") -> int:
        from dataclasses import replace

        from ledgerctl.render.emit import emit, use_color

        out = cast(TextIO, ClosedStream()) if sys.stdout is None else sys.stdout
        self.progress_done()
        return emit(
            replace(
                report,
                records=self._clearing(report.records),
                empty=self.located(report.empty),
                notes=lambda: [
                    *self.notes,
                    *self._counts(report),
                    *self._unread(),
                    *self._remarks(report),
                ],
            ),
            format=self.format,
            fields=[one.strip() for one in (self.words.fields or "").split(",") if one.strip()]
            or None,
            out=out,
            err=cast(TextIO, ClosedStream()) if sys.stderr is None else sys.stderr,
            color=use_color(cast(Any, self.words.color), self.environment, is_terminal(out)),
            width=terminal_width(),
            header=not self.words.no_header,
            now=self.clock(),
            quiet=self.words.quiet,
        )

    def located(self, text: str) -> str:
        """Name the database in what an empty answer says; queue commands name their lists."""
        if not text or self.words.command.split()[0] in {"queue", "dead"}:
            return text
        return f"{text.removesuffix('.')} in database {self.settings.database!r}"

    def _unread(self) -> list[str]:
        """Name the collections that count as empty because the user may not read them."""
        names = [] if self._stores is None or self.words.quiet else self._stores.unread
        return [f"the user may not read {name}: it counts as empty" for name in names]

    def _remarks(self, report: "Report") -> Sequence[str]:
        """Tell what the result says beside itself; with --quiet only where something is amiss."""
        from ledgerctl.render.report import settled

        if self.words.quiet:
            return settled(report.notes) if settled(report.exit_code) else ()
        said = settled(report.notes)
        if report.sections and OutputFormat(self.format).is_by_line:
            more = f"-o {self.format} shows the first part alone: -o table and -o json show it all"
            return [*said, more]
        return said

    def _clearing(self, records: "Iterable[Record]") -> "Iterable[Record]":
        """Return the records; what is made while it is printed leaves no progress line behind."""
        if isinstance(records, Sequence):
            return records
        return self._made_quietly(records)

    def _made_quietly(self, records: "Iterable[Record]") -> "Iterator[Record]":
        """Yield the records; a terminal that shows them as they come has no line left for progress."""
        self.shows_progress = self.format == "table" or not is_terminal(sys.stdout)
        yield from records
        self.progress_done()

    def _say_unprinted(self, report: "Report") -> int:
        """Print the counts of a change whose result could not be printed: on stderr, in one line."""
        from ledgerctl.render.report import settled
        from ledgerctl.render.text import visible

        counts = [
            f"{name} {count}"
            for name, count in (report.document or {}).items()
            if isinstance(count, int | str) and not isinstance(count, bool)
        ]
        said = ", ".join(counts) or "; ".join(settled(report.foot)) or "the change is complete"
        say([visible(f"the result could not be printed: {said}")])
        return int(settled(report.exit_code))

    def remark(self) -> None:
        """Say the notes on stderr when no result will carry them; json has no place for them."""
        if self.notes and self.format != "json":
            from ledgerctl.render.text import visible

            say([visible(note) for note in self.notes])

    def bug(self, error: Exception) -> LedgerctlError:
        """Return an unexpected exception, reported without anything that the settings keep secret."""
        return bug(error, () if self._settings is None else self._settings.secrets)


class ClosedStream:
    """Provide a stream that was closed before the program began; every write is a broken pipe."""

    encoding = "utf-8"

    def write(self, _text: str) -> int:
        """Fail as a closed pipe does."""
        raise BrokenPipeError

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        """Never a terminal."""
        return False


def default_format() -> str:
    """Choose a table for people, plain for everything else."""
    return "table" if is_terminal(sys.stdout) else "plain"


def milliseconds(moment: datetime) -> datetime:
    """Return the moment cut to milliseconds, the resolution of the stores."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def is_terminal(stream: TextIO | ClosedStream | None) -> bool:
    """Tell whether a person sits at this stream."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed by the shell
        return False


def terminal_width() -> int:
    """Columns of the terminal; COLUMNS wins; 80 where nobody says."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns
