"""The settings of a run: each value with its origin, read once and passed on."""

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ledgerctl.addresses import BadValue, Secret, display, mongo_database, without_credentials
from ledgerctl.config_file import (
    Location,
    as_tables,
    flatten,
    locate,
    quoted,
    read_table,
    read_text,
)
from ledgerctl.domain.days import zone_named
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.errors import SettingsError
from ledgerctl.settings import SETTINGS, Plain, Setting, Value

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from ledgerctl.field_map import ForeignLedger


@dataclass(frozen=True)
class KeyNames:
    """Names of the Redis lists: `processing` is the stem of one a worker, `pending` is only read."""

    retry: str
    dead_letter: str
    processing: str
    pending: tuple[str, ...] = ()


@dataclass(frozen=True)
class CollectionNames:
    """Names of the MongoDB collections."""

    jobs: str
    ledger: str
    usage_daily: str
    outbox: str
    inbox: str
    operator_log: str
    dead_archive: str
    leases: str


@dataclass(frozen=True)
class StatementNames:
    """Name the sender, the contact and the unit on a customer's statement."""

    unit: str
    company: str | None = None
    contact: str | None = None


@dataclass(frozen=True)
class Settings:
    """Everything a run was told; `origins` says by what, for each name of `SETTINGS`."""

    mongo_uri: Secret
    redis_url: Secret
    database: str
    config_path: Path | None
    profile: str
    read_only: bool
    protected: bool
    operator: str
    timezone: str
    output: str | None
    retry: RetryPolicy
    keys: KeyNames
    collections: CollectionNames
    map: "ForeignLedger | None"
    statement: StatementNames
    sources: tuple[Path, ...]
    """Every file that a value was read from: the configuration file and the files it names."""
    origins: Mapping[str, str]

    @cached_property
    def zone(self) -> "ZoneInfo":
        """Return the day zone, read from the time zone database when first asked for."""
        return zone_named(self.timezone)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Tell what no message may show."""
        return (self.mongo_uri, self.redis_url)


def other_database(settings: Settings) -> str:
    """Say that the MongoDB URI names another database than the one in use; empty where it does not."""
    named = mongo_database(settings.mongo_uri.reveal())
    if named in {"", settings.database}:
        return ""
    origin = without_credentials(settings.origins["database"])
    return f"database {settings.database!r} is used ({origin}); mongo_uri names {named!r}"


class Given(NamedTuple):
    """Hold a value as it was given, and by what; `folder` is set when the value names a file to read."""

    value: Value
    origin: str
    folder: Path | None = None


def load(
    *,
    environment: Mapping[str, str],
    profile: str | None = None,
    config: str | None = None,
    output: str | None = None,
) -> Settings:
    """Return every setting from its strongest source: flag, environment, profile, file, default.

    An empty variable counts as unset. Reads the configuration file and the files that it names;
    raises SettingsError, which holds no secret. Source: contract, section 1.
    """
    location = locate(environment, config)
    top, profiles = _read_file(location)
    told = _from_environment(environment) | _from_flags(profile=profile, output=output)
    given = _defaults(environment) | _from_table(top, str(location.path), location.path)
    chosen = _choose_profile((given | told)["profile"], profiles)
    if chosen in profiles:
        origin = f"profile {chosen} in {location.path}"
        given |= _from_table(profiles[chosen], origin, location.path)
    given |= told
    return _settings(given, location, environment)


def describe(settings: Settings) -> list[dict[str, Plain | None]]:
    """Name, value and origin of every setting, secrets hidden. Source: contract, section 3."""
    return [
        {
            "name": setting.name,
            "value": _shown(attrgetter(setting.attribute or setting.name)(settings)),
            "origin": settings.origins[setting.name],
        }
        for setting in SETTINGS
    ]


def _shown(value: object) -> Plain | None:
    match value:
        case Secret():
            return display(value)
        case timedelta():
            return _duration_text(value)
        case None | bool() | int():
            return value
        case tuple():
            return without_credentials(", ".join(value)) or None
        case _:
            return without_credentials(str(value))


def _duration_text(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    units = (("d", 86_400), ("h", 3_600), ("m", 60))
    for unit, size in units:
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _read_file(location: Location) -> tuple[Mapping[str, Value], Mapping[str, Mapping[str, Value]]]:
    """Return the file's top level and its profiles, checked whole: a slip in a profile that is not in
    use today would otherwise wait for the night in which it is."""
    if not (location.named or location.exists):
        return {}, {}
    tables = read_table(location.path)
    profiles = as_tables(tables.pop("profiles", {}), "profiles", location.path)
    top = flatten(tables, _kinds(SETTINGS), location.path)
    inner = _kinds(setting for setting in SETTINGS if setting.in_profile)
    return top, {
        name: flatten(table, inner, location.path, f"profiles.{name}.")
        for name, table in profiles.items()
    }


def _kinds(settings: Iterable[Setting]) -> dict[str, type]:
    kinds: dict[str, type] = {}
    for setting in settings:
        if setting.in_file:
            kinds[setting.file_key] = setting.kind
        if setting.may_be_file:
            kinds[f"{setting.file_key}_file"] = str
    return kinds


def _defaults(environment: Mapping[str, str]) -> dict[str, Given]:
    defaults = {
        setting.name: Given(setting.default, "default")
        for setting in SETTINGS
        if setting.default is not None
    }
    return defaults | {"operator": Given(_login_at_host(environment), "default")}


def _from_table(table: Mapping[str, Value], origin: str, path: Path) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for setting in SETTINGS:
        key, file_key = setting.file_key, f"{setting.file_key}_file"
        if key in table and file_key in table:
            raise SettingsError(
                f"{origin} gives both {key} and {file_key}", hint="keep one of them"
            )
        if key in table:
            given[setting.name] = Given(table[key], origin)
        elif file_key in table:
            given[setting.name] = Given(table[file_key], origin, path.parent)
    return given


def _from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    return {
        setting.name: Given(environment[setting.variable], f"environment {setting.variable}")
        for setting in SETTINGS
        if environment.get(setting.variable) and setting.name != "config"  # see `locate`
    }


def _from_flags(**flags: str | None) -> dict[str, Given]:
    return {
        name: Given(value, f"flag --{name}") for name, value in flags.items() if value is not None
    }


def _choose_profile(given: Given, profiles: Mapping[str, object]) -> str:
    name = str(given.value)
    if name not in profiles and name != "default":
        known = ", ".join(sorted({*profiles, "default"}))
        raise SettingsError(
            f"there is no profile {quoted(name)} ({given.origin})", hint=f"profiles: {known}"
        )
    return name


def _settings(
    given: Mapping[str, Given], location: Location, environment: Mapping[str, str]
) -> Settings:
    sources = [location.path] if location.exists else []
    values: dict[str, Any] = {"config_path": location.path if location.exists else None}
    origins = {setting.name: "default" for setting in SETTINGS} | {"config": location.origin}
    for setting in SETTINGS:
        one = given.get(setting.name)
        if one is None:
            continue
        if one.folder is not None:
            path = _named_file(one, environment)
            sources.append(path)
            one = Given(_content(path, setting), f"{one.origin}, read from {path}")
        values[setting.name] = _read(setting, one)
        origins[setting.name] = one.origin
    _name_foreign(values, origins)
    named = mongo_database(values["mongo_uri"].reveal())
    if named and origins["database"] == "default":
        values["database"], origins["database"] = named, "mongo_uri"
    _check_distinct("keys.", values, origins)
    _check_distinct("collections.", values, origins)
    _check_stems(values, origins)
    return _built(values, tuple(sources), origins)


def _built(
    values: Mapping[str, Any], sources: tuple[Path, ...], origins: Mapping[str, str]
) -> Settings:
    plain = {name: value for name, value in values.items() if "." not in name}
    retry = _group("retry.", values)
    return Settings(
        **({"output": None} | plain),
        retry=RetryPolicy(retry["base"], retry["max"], retry["max_attempts"]),
        keys=KeyNames(**_group("keys.", values)),
        collections=CollectionNames(**_group("collections.", values)),
        statement=StatementNames(**_group("statement.", values)),
        sources=sources,
        origins=MappingProxyType(dict(origins)),
    )


def _group(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix)
    }


def _read(setting: Setting, given: Given) -> object:
    try:
        return setting.read(given.value)
    except BadValue as error:
        why, hint = str(error), error.hint
    raise SettingsError(
        f"{setting.name} ({without_credentials(given.origin)}) {why}",
        hint=hint or "`ledgerctl config init` writes a file that shows each setting",
    )


def _named_file(given: Given, environment: Mapping[str, str]) -> Path:
    name = str(given.value)
    home = environment.get("HOME")
    if home and name.startswith("~/"):
        name = os.path.join(home, name[2:])
    return (given.folder or Path()) / name


def _content(path: Path, setting: Setting) -> str:
    """Return the file's text without the one line break at its end."""
    key = f"{setting.file_key}_file"
    hint = f"put the {setting.unit} alone into that file, or name another with {key}"
    text = read_text(path, f"the file that {key} names,", hint)
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SettingsError(f"the file that {key} names, {path}, is empty", hint=hint)
    return text


def _name_foreign(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Take the collections of a map as the ledger and the jobs of this run."""
    for name in ("ledger", "jobs") if values["map"] else ():
        if fields := getattr(values["map"], name):
            values[f"collections.{name}"] = fields.collection
            origins[f"collections.{name}"] = origins["map"]


def _check_distinct(prefix: str, values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    """Refuse two lists or collections under one name: they would take each other's entries."""
    seen: dict[str, str] = {}
    for name, value in values.items():
        if not name.startswith(prefix):
            continue
        if value in seen:
            raise SettingsError(
                f"{seen[value]} and {name} ({origins[name]}) have the same name {quoted(value)}",
                hint="give each its own name",
            )
        seen[value] = name


def _check_stems(values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    """ledgerctl keeps lists of its own under NAME:… of these two."""
    for stem in ("keys.processing", "keys.dead_letter"):
        for name, value in values.items():
            if (
                name.startswith("keys.")
                and isinstance(value, str)
                and value.startswith(f"{values[stem]}:")
            ):
                raise SettingsError(
                    f"{name} ({origins[name]}) begins with the name of {stem} and a colon",
                    hint=f"names under {stem} are for ledgerctl's own lists; choose another",
                )


def _login_at_host(environment: Mapping[str, str]) -> str:
    name = f"{_login(environment)}@{os.uname().nodename or 'localhost'}"
    return "".join(character if character.isprintable() else "?" for character in name)


def _login(environment: Mapping[str, str]) -> str:
    for variable in ("LOGNAME", "USER"):
        if name := environment.get(variable):
            return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a number that has no name
        return f"uid-{os.getuid()}"
