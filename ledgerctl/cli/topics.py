"""Give the help topics, texts of at most 80 columns; most are files in `help_texts`."""

from collections.abc import Callable, Iterator

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
    (129, "stopped by SIGHUP; the chunk in hand was finished"),
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


def exit_codes() -> Iterator[str]:
    """List the exit codes and their meaning."""
    yield from (f" {code:>3}  {meaning}" for code, meaning in EXIT_CODES)
    yield from CODES_FOOT.removesuffix("\n").split("\n")


def environment() -> Iterator[str]:
    """List every setting: its variable, its key in the file, its default."""
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


def topic(name: str) -> Iterator[str] | None:
    """Give the lines of one topic; None when there is no such topic."""
    if name not in TOPICS:
        return None
    if name in COMPUTED:
        return COMPUTED[name]()
    from pathlib import Path

    texts = Path(__file__).with_name("help_texts")
    return iter((texts / f"{name}.txt").read_text(encoding="utf-8").splitlines())


COMPUTED: dict[str, Callable[[], Iterator[str]]] = {
    "exit-codes": exit_codes,
    "environment": environment,
}
TOPICS = {
    "exit-codes": "what a script can tell from the exit status",
    "environment": "every setting: variable, key, default",
    "time": "how times are given and shown",
    "output": "formats, fields, colour, errors",
    "safety": "what is promised, and what asks first",
    "cron": "running it from cron and systemd",
    "verdicts": "what a dead letter is worth",
    "codes": "audit codes, outcomes of a step, states of a job",
    "deployments": "replica sets, shards, Sentinel, clusters: what was run there",
    "map": "another team's ledger, read under its own names",
    "worker": "a worker of your own, by command or in Python",
}
