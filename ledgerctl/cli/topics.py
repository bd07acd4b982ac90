"""The help topics, as texts of at most 80 columns."""

from collections.abc import Iterator

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "done, or nothing to do, or already done"),
    (1, "a bug in ledgerctl"),
    (2, "usage, settings, or no consent"),
    (3, "refused by a guard or a rule; nothing changed"),
    (4, "the named job, account, message, operation or dead letter does not exist"),
    (5, "a check found something"),
    (6, "a store cannot be reached, is full or busy, or a right is missing"),
    (7, "sent, but the outcome is unknown; running it again is safe"),
    (8, "some done and some not; the report says which"),
    (9, "another run holds the lease, or another operation holds the job; try again"),
    (130, "interrupted by Ctrl-C; the chunk in hand was finished"),
    (143, "stopped by SIGTERM; the chunk in hand was finished"),
)

TEXT_WIDTH = 80

CODES_FOOT = """
Several named things at once: 0 when each is done, already so, or left by a
filter; 8 when some are and some are not; when none is, 4 if none exists,
else 3.

In a script:
  ledgerctl summary rebuild --quiet || test $? -eq 9   # another run: fine
  ledgerctl ledger audit -o json > found.json; test $? -eq 5 && less found.json
"""

TIME = """\
Times in, wherever a TIME is asked for:
  2026-03-08T09:15:02.435Z   RFC 3339: any fraction, any offset
  2026-03-08                 a date, in the day zone
  2h ago, 15m ago, 3d ago    before now
  now, today, yesterday      the last two are dates in the day zone

  --from, --since   include the instant; a date means its first instant
  --to, --until     exclude an instant, and include the whole day of a date
  --at, --known-at  include the instant; a date means its last millisecond

The day zone is the setting `timezone` (UTC by default), never the shell's TZ.
A --from after its --to is a mistake (exit 2).

Times out are RFC 3339 in UTC with milliseconds: 2026-03-08T09:15:02.435Z.
Durations are 90s, 15m, 2h, 3d, 0s. Whether something is due or old is judged by
the server's clock.

  ledgerctl balance show acct-7 --at 2026-03-31
  ledgerctl job list --since yesterday --until "2h ago"
"""

OUTPUT = """\
The result goes to standard output and nothing else does; notes, questions and
progress go to standard error.

  -o table   for people; the default on a terminal
  -o plain   tab-separated, with a header line; the default in a pipe
  -o json    one document
  -o jsonl   one JSON object a line, streamed
  -o csv     for spreadsheets; cells that would run as a formula are guarded

--fields a,b,c selects and orders the columns; in json it selects the keys of
each item. A wrong field names all there are. --no-header leaves out the header
line of plain and csv. `job refund --from-file` reads what plain, csv and jsonl
print: the column job_id counts, and a column reason is that job's reason.

Ids are whole in every format: a table grows past the terminal rather than cut
one. Amounts are whole credits and exact at any size. Data is printed letter for
letter; control characters appear as escapes such as \\x1b and act on nothing.
In plain and csv a backslash of the data is doubled.

With -o json a result document goes to standard output whatever the exit code.
Where there is no result, exactly one error document goes to standard error:
  {"error": {"code": ..., "message": ..., "hint": ..., "exit_code": ...}}

Colour: --color always|never, else NO_COLOR, else FORCE_COLOR (0 is off), else
on a terminal whose TERM is not dumb.

  ledgerctl job list -o jsonl | jq -r .job_id
  ledgerctl job list -o plain --no-header --fields job_id | xargs -n 1 ./look
  ledgerctl balance replay acct-7 --fields created_at,type,amount -o csv
"""

SAFETY = """\
  * A balance is the sum of ledger rows; no row is ever changed or deleted.
  * Refund and reclaim are one guarded write each: the filter is the check. Only
    the writer whose update changed the job appends the row, under an id that
    can exist once. Running a command again is always safe.
  * The amount is the job's own charge row's, never what anybody reports.
  * On a replica set flag, row and message are one transaction. On a standalone
    server a step that died half-way is finished by the next delivery, or by
    `ledgerctl ledger repair`.
  * A dead letter that is put back is on a list at every instant; one that is
    released is in the archive first. `ledgerctl dead restore` undoes both.

  --dry-run        shows what would be done; writes nothing, asks nothing
  --expect N       refuses when the selection has another size
  --yes            answers a bulk command's question; nothing else means yes
  --reason TEXT    kept in the operator log with who, when and how many
  read_only        a profile that refuses every change (dry runs excepted)
  protected        a profile that wants its name typed, or --confirm NAME

Secrets come from the environment or from files, never from the command line,
and are never printed.

  ledgerctl job refund --from-file failed.txt --dry-run
  ledgerctl log list
"""

CRON = """\
Silent on success, one short error otherwise, never twice at once:

  # m h dom mon dow  command
  17 * * * *  ledgerctl summary rebuild --quiet --metrics-file /run/usage.prom
  41 6 * * *  ledgerctl ledger audit --since yesterday --quiet -o json
  43 6 * * *  ledgerctl ledger audit --code stranded_charge --quiet --no-header
  47 6 * * *  ledgerctl summary drift --why --quiet -o jsonl | grep '"unknown"'

The last line mails only what is unexplained: grep drops drift whose cause is
proved, which the next rebuild heals. The line before it mails jobs that were
charged and that no list holds; it prints nothing when there are none.

Exit 9 means that another run holds the lease, which is fine. A crontab has a
short PATH and treats % as a new line: write the whole path of ledgerctl, and
use --days 2 or `yesterday` rather than $(date +...).

  * Addresses: put them into a file of mode 0600 and name it with
    LEDGERCTL_CONFIG, or use mongo_uri_file and redis_url_file.
  * An alert:
    time() - ledgerctl_summary_rebuild_last_success_timestamp_seconds > 7200
  * Zones: the day is that of the setting `timezone`, not of the machine.
  * systemd: units stand in the README, with SuccessExitStatus=9.

  ledgerctl summary rebuild --days 2 --quiet
  ledgerctl summary drift --days 2 -o json
"""


def exit_codes() -> Iterator[str]:
    """The exit codes and their meaning."""
    yield from (f" {code:>3}  {meaning}" for code, meaning in EXIT_CODES)
    yield from CODES_FOOT.removesuffix("\n").split("\n")


def environment() -> Iterator[str]:
    """Every setting: its variable, its key in the file, its default."""
    import textwrap

    from ledgerctl.settings import SETTINGS

    yield "Strongest first: flag, environment, the chosen profile in the configuration"
    yield "file, the file's top level, default. An empty variable counts as unset."
    for setting in SETTINGS:
        names = [setting.variable, setting.flag]
        names += [f"key {setting.file_key}"] if setting.in_file else []
        names += [f"or {setting.file_key}_file"] if setting.may_be_file else []
        default = setting.default_text or shown_default(setting.default)
        yield ""
        yield f"  {', '.join(name for name in names if name)}"
        yield f"      {setting.help}"
        yield from textwrap.wrap(
            f"      default: {default}", TEXT_WIDTH, subsequent_indent=" " * 15
        )
    yield ""
    yield "  ledgerctl config show    every setting, its value and what set it"
    yield "  ledgerctl config init    write a commented file, private to you"


def shown_default(default: object) -> str:
    """A default as the configuration file spells it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def lines_of(text: str) -> Iterator[str]:
    """The lines of a stored text."""
    yield from text.removesuffix("\n").split("\n")


def topic(name: str) -> Iterator[str] | None:
    """The lines of one topic; None when there is no such topic."""
    match name:
        case "exit-codes":
            return exit_codes()
        case "environment":
            return environment()
        case "time":
            return lines_of(TIME)
        case "output":
            return lines_of(OUTPUT)
        case "safety":
            return lines_of(SAFETY)
        case "cron":
            return lines_of(CRON)
        case _:
            return None


TOPICS = {
    "exit-codes": "what a script can tell from the exit status",
    "environment": "every setting: variable, key, default",
    "time": "how times are given and shown",
    "output": "formats, fields, colour, errors",
    "safety": "what is promised, and what asks first",
    "cron": "running it from cron and systemd",
}
