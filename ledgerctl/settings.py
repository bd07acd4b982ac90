"""The list of settings: each one's names, default and unit, and how a value of it is read."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from ledgerctl.addresses import BadValue, Secret, check_mongo, check_redis
from ledgerctl.config_file import quoted
from ledgerctl.domain.days import zone_named
from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.domain.times import parse_duration
from ledgerctl.errors import UsageError

Plain = str | int | bool
Value = Plain | list[str] | Mapping[str, object]  # what the file may hold under one key


DATABASE_BYTES_MAX = 63
COLLECTION_BYTES_MAX = 150  # with the database's name well under MongoDB's 255 for both

ZONE_HINT = "use an IANA name such as UTC, Europe/Berlin or America/New_York"
MACHINE_ZONES = frozenset({"Factory", "localtime", "posixrules"})


FILE_HEAD = """\
# Settings of ledgerctl. A line that begins with #NAME shows a setting with its default: take the
# # away to change it. Strongest first: flag, environment, the chosen [profiles.NAME], the lines
# above every table, default. Keep this file private (mode 0600): addresses hold passwords.
"""

FILE_END = """\
# A profile may set everything above but default_profile, with [profiles.NAME.retry] and so on.
#[profiles.production]
#mongo_uri_file = "/etc/ledgerctl/production.mongo"
#redis_url_file = "/etc/ledgerctl/production.redis"
#protected = true
"""


def _text(value: Plain) -> str:
    text = str(value)
    if not text.strip():
        raise BadValue("is empty")
    if not text.isprintable():  # lone surrogates are bytes that were not UTF-8
        raise BadValue("has a control character in it, or is not UTF-8")
    return text


def _mongo_uri(value: Plain) -> Secret:
    check_mongo(str(value))
    return Secret(str(value))


def _redis_url(value: Plain) -> Secret:
    check_redis(str(value))
    return Secret(str(value))


def _database(value: Plain) -> str:
    text = _text(value)
    if re.search(r'[/\\. "$]', text) or len(text.encode()) > DATABASE_BYTES_MAX:
        raise BadValue(
            "is not a name that MongoDB gives a database",
            f'at most {DATABASE_BYTES_MAX} bytes, none of / \\ . " $ and space',
        )
    return text


def _collection(value: Plain) -> str:
    text = _text(value)
    dotted = text.startswith((".", "system.")) or text.endswith(".") or ".." in text
    if dotted or "$" in text or len(text.encode()) > COLLECTION_BYTES_MAX:
        raise BadValue(
            "is not a name that MongoDB gives a collection",
            f"at most {COLLECTION_BYTES_MAX} bytes, no $, no stray dots, not system.…",
        )
    return text


def _timezone(value: Plain) -> str:
    text = _text(value)
    if text in MACHINE_ZONES or text.startswith(("posix/", "right/")):
        raise BadValue("names no place's zone but a file of this machine", ZONE_HINT)
    if not _zone_is_known(text):
        raise BadValue(f"{quoted(text)} is no time zone that is known here", ZONE_HINT)
    return text


def _zone_is_known(name: str) -> bool:
    if name == "UTC":  # always there, and then the database need not be opened at every start
        return True
    try:
        zone_named(name)
    except UsageError:
        return False
    return True


def _output(value: Plain) -> str:
    if value not in list(OutputFormat):
        raise BadValue(
            f"{quoted(str(value))} is no output format", f"one of {', '.join(OutputFormat)}"
        )
    return str(value)


def _duration(value: Plain) -> timedelta:
    try:
        duration = parse_duration(str(value))
    except UsageError:
        duration = None
    if duration is None:
        raise BadValue(f"{quoted(str(value))} is no duration", "as in 90s, 15m, 2h, 3d or 0s")
    return duration


def _attempts(value: Plain) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", str(value)):
        raise BadValue(
            f"{quoted(str(value))} is no number of attempts",
            "a whole number; 0 and 1 both make the first failure a dead letter",
        )
    return int(value)


def _names(value: Value) -> tuple[str, ...]:
    if not isinstance(value, list) or any(not isinstance(one, str) for one in value):
        raise BadValue("is no list of texts", 'as in ["jobs:new", "jobs:paused"]')
    return tuple(dict.fromkeys(_text(one) for one in value))


def _as_given(value: Plain) -> Plain:
    return value


def _map(value: Value) -> object:
    if not value:
        return None
    from ledgerctl.field_map import read_map  # only a foreign ledger needs it

    return read_map(value)


class Setting(NamedTuple):
    """Hold one setting: its names on each way in, its default, its unit, and how a value is read."""

    name: str
    help: str
    default: Value | None = None
    read: Callable[[Any], object] = _text
    variable: str = ""
    flag: str = ""
    unit: str = ""
    key: str = ""
    """The key in the file: the name when empty, dotted inside a table."""
    default_text: str = ""
    """The default in words, where it is worked out at run time."""
    example: str = ""
    """What the commented file shows where there is no fixed default."""
    attribute: str = ""
    """The place in `Settings`: the name when empty."""
    may_be_file: bool = False
    """Whether `KEY_file` may name a file that holds the value."""
    in_profile: bool = True
    in_file: bool = True

    @property
    def file_key(self) -> str:
        """Return the setting's key in the configuration file."""
        return self.key or self.name

    @property
    def kind(self) -> type:
        """Return the type that the file must give it."""
        if isinstance(self.default, Mapping):
            return dict
        return str if self.default is None else type(self.default)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "mongo_uri",
        "Where MongoDB is; never on the command line, where `ps` shows it.",
        "mongodb://127.0.0.1:27017",
        _mongo_uri,
        "LEDGERCTL_MONGO_URI",
        unit="URI",
        may_be_file=True,
    ),
    Setting(
        "redis_url",
        "Where Redis or Valkey is: redis://, rediss:// or unix://.",
        "redis://127.0.0.1:6379/0",
        _redis_url,
        "LEDGERCTL_REDIS_URL",
        unit="URL",
        may_be_file=True,
    ),
    Setting(
        "database", "The MongoDB database.", "ledger", _database, "LEDGERCTL_DATABASE", unit="name"
    ),
    Setting(
        "config",
        "The configuration file.",
        None,
        _text,
        "LEDGERCTL_CONFIG",
        "--config",
        unit="path",
        default_text="$XDG_CONFIG_HOME/ledgerctl/config.toml, else ~/.config/…, else /etc/…",
        attribute="config_path",
        in_file=False,
    ),
    Setting(
        "profile",
        "Which [profiles.NAME] table to use.",
        "default",
        _text,
        "LEDGERCTL_PROFILE",
        "--profile",
        unit="name",
        key="default_profile",
        in_profile=False,
    ),
    Setting("read_only", "Refuse every changing command, dry runs excepted.", False, _as_given),
    Setting("protected", "Ask for the profile's name before any change.", False, _as_given),
    Setting(
        "operator",
        "Who acts, as the operator log keeps it.",
        None,
        _text,
        "LEDGERCTL_OPERATOR",
        unit="name",
        default_text="login name @ host",
        example="ada@ledger-host",
    ),
    Setting(
        "timezone",
        "The zone in which a day begins and ends; never the shell's TZ.",
        "UTC",
        _timezone,
        "LEDGERCTL_TIMEZONE",
        unit="IANA name",
    ),
    Setting(
        "output",
        "The output format.",
        None,
        _output,
        "LEDGERCTL_OUTPUT",
        "--output",
        unit="|".join(OutputFormat),
        default_text="table on a terminal, plain in a pipe",
        example="json",
    ),
    Setting(
        "retry.base",
        "How long a job waits after its first failure; doubled each time.",
        "30s",
        _duration,
        "LEDGERCTL_RETRY_BASE",
        unit="duration",
    ),
    Setting(
        "retry.max",
        "The longest wait between two attempts.",
        "1h",
        _duration,
        "LEDGERCTL_RETRY_MAX",
        unit="duration",
        attribute="retry.cap",
    ),
    Setting(
        "retry.max_attempts",
        "The failures after which a job becomes a dead letter.",
        5,
        _attempts,
        "LEDGERCTL_MAX_ATTEMPTS",
        unit="attempts",
    ),
    Setting(
        "map",
        "Another team's fields, [map.ledger] and [map.jobs]: `ledgerctl help map`.",
        MappingProxyType({}),
        _map,
        unit="tables",
        default_text="none",
    ),
    Setting("keys.retry", "The list of jobs that wait for a retry.", "jobs:retry", unit="key"),
    Setting("keys.dead_letter", "The list of dead letters.", "jobs:dead-letter", unit="key"),
    Setting(
        "keys.processing",
        "The stem of the lists of jobs in hand: NAME:<worker>.",
        "jobs:processing",
        unit="key",
    ),
    Setting(
        "keys.pending",
        "Other lists on which a job may wait; only read.",
        [],
        _names,
        unit="keys",
        default_text="none",
    ),
    Setting(
        "statement.company",
        "Whose name heads a customer's statement.",
        None,
        _text,
        unit="name",
        default_text="none",
        example="Acme Render",
    ),
    Setting(
        "statement.contact",
        "Whom a customer may ask about a statement.",
        None,
        _text,
        unit="text",
        default_text="none",
        example="billing@acme.example",
    ),
    Setting("statement.unit", "What a statement's amounts are in.", "credits", _text, unit="word"),
    *(
        Setting(f"collections.{name}", purpose, name, _collection, unit="name")
        for name, purpose in (
            ("jobs", "Jobs with their two flags."),
            ("ledger", "The append-only rows."),
            ("usage_daily", "Daily summaries."),
            ("outbox", "One message for each appended row."),
            ("inbox", "Claims of messages, one a group and message."),
            ("operator_log", "One entry for each changing command."),
            ("dead_archive", "Dead letters as they were taken."),
            ("leases", "Who holds which lease."),
        )
    ),
)


def commented_file() -> str:
    """Return a configuration file that changes nothing: every setting with its default, commented out."""
    outer = [setting for setting in SETTINGS if setting.in_file and "." not in setting.file_key]
    tables = dict.fromkeys(
        setting.file_key.partition(".")[0] for setting in SETTINGS if "." in setting.file_key
    )
    parts = [FILE_HEAD, *(_commented(setting) for setting in outer)]
    for table in tables:
        inner = (setting for setting in SETTINGS if setting.file_key.startswith(f"{table}."))
        parts += [f"[{table}]\n", *(_commented(setting) for setting in inner)]
    return "\n".join([*parts, FILE_END])


def _commented(setting: Setting) -> str:
    key = setting.file_key.rpartition(".")[2]
    unit = f" ({setting.unit})" if setting.unit else ""
    lines = [f"# {setting.help}{unit}"]
    if setting.default is None:
        lines.append(f"# Default: {setting.default_text}.")
    ways = [f"flag {setting.flag}"] * bool(setting.flag)
    ways += [f"environment {setting.variable}"] * bool(setting.variable)
    if ways:
        lines.append(f"# Stronger: {', '.join(ways)}.")
    if setting.may_be_file:
        lines.append(f'# {key}_file = "PATH" instead reads it from a file of its own.')
    lines.append(
        f"#{key} = {_toml(setting.example if setting.default is None else setting.default)}"
    )
    return "\n".join(lines) + "\n"


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{}"
    return str(value) if isinstance(value, int | list) else f'"{value}"'
