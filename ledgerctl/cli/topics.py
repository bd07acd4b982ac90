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

Ids are whole in every format. A table never wraps: columns that do not fit go,
with a note, and where that is not enough each record is a block of lines. Times
in tables have an age beside them. Amounts are whole credits and exact at any
size. Data is printed letter for letter; control characters appear as escapes
such as \\x1b and act on nothing.
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


VERDICTS = """\
Verdicts on a dead letter, the first that holds; `dead requeue` moves the last:
  unreadable   no JSON object with a job id and usable attempts and times
  unknown_job  MongoDB has no job of this id, or jobs of two types
  bad_flags    a flag of its job is no boolean, or reclaimed without a refund
  settled      its job is reclaimed or succeeded: nothing is left to run
  queued       its job also waits on retry or is being processed
  duplicate    another letter of the same job is nearer the head
  retryable    its job still wants to be run

  ledgerctl dead stats                    how many of each, by error
  ledgerctl dead list --verdict settled   the letters themselves
"""

CODES = """\
Audit codes (`ledger audit --code CODE`, `job show`): what disagrees
  missing_row             a flag is set and its row is absent
  unflagged_row           a row exists and its flag is not set
  duplicate_row           a job has two rows of one type
  wrong_amount            a row differs from the job's charge row
  wrong_sign              a row has the sign of another type
  missing_charge          refunded or reclaimed, and no charge row
  orphan_row              a row names a job that does not exist
  corrupt_flags           reclaimed is set and refunded is not
  bad_flags               a flag is neither true, false nor null
  flags_missing           a flag is absent: foreign guards would never match
  flag_time               a flag without its time, or a time without its flag
  bad_amount              an amount that cannot be summed
  bad_cost                a cost that is no whole number
  cost_mismatch           the job's cost is not its charge row's
  undated_row             created_at is no date
  future_row              created_at lies ahead
  odd_recorded_at         recorded_at is no date
  mixed_id_types          one id is stored under two types
  missing_message         a row of ours has no outbox message
  refunded_but_succeeded  the job succeeded: a reclaim is due
  stranded_charge         charged, on no list, no outcome (only when named)

Outcomes of `job charge`, `refund`, `reclaim` and `balance grant`
  applied            flag, row and message are written
  completed          a step that somebody began and did not finish is finished
  already_charged, already_refunded, already_reclaimed, already_granted
                     done before: nothing to do
  never_refunded     nothing to take back
  row_missing        the flag is set, the row is absent, no index guards it
  row_exists         the row exists and the flag is not set: no second row
  no_charge          the job has no charge row to pin the amount to
  no_account         neither the job nor its charge row names an account
  bad_flags          a flag is no boolean
  corrupt            reclaimed without a refund
  bad_cost           the charge row is no whole number of at most 0
  conflict           another cost, account or row uses this id
  job_succeeded      a refund of a succeeded job wants --force
  refused_by_server  a rule of the server, such as a validator, refused it
  not_found          no such job

States of a job, read off its two flags
  charged, refunded, reclaimed; corrupt and bad_flags as above
"""


def exit_codes() -> Iterator[str]:
    """Give the exit codes and their meaning."""
    yield from (f" {code:>3}  {meaning}" for code, meaning in EXIT_CODES)
    yield from CODES_FOOT.removesuffix("\n").split("\n")


def environment() -> Iterator[str]:
    """Give every setting: its variable, its key in the file, its default."""
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
    """Spell a default as the configuration file does."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def lines_of(text: str) -> Iterator[str]:
    """Split a stored text into lines."""
    yield from text.removesuffix("\n").split("\n")


TEXTS = {
    "time": TIME,
    "output": OUTPUT,
    "safety": SAFETY,
    "cron": CRON,
    "verdicts": VERDICTS,
    "codes": CODES,
}


def topic(name: str) -> Iterator[str] | None:
    """Give the lines of one topic; None when there is no such topic."""
    if name == "exit-codes":
        return exit_codes()
    if name == "environment":
        return environment()
    return lines_of(TEXTS[name]) if name in TEXTS else None


TOPICS = {
    "exit-codes": "what a script can tell from the exit status",
    "environment": "every setting: variable, key, default",
    "time": "how times are given and shown",
    "output": "formats, fields, colour, errors",
    "safety": "what is promised, and what asks first",
    "cron": "running it from cron and systemd",
    "verdicts": "what a dead letter is worth",
    "codes": "audit codes, outcomes of a step, states of a job",
}
