"""Settings: precedence and origin, what a file may say, and errors that are short and tell nothing."""

import os
import stat
import traceback
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from operator import attrgetter
from pathlib import Path

import pytest

from ledgerctl import config_file
from ledgerctl.config import describe, load
from ledgerctl.config_file import locate, permission_problem, write_new
from ledgerctl.domain.retry import RetryPolicy
from ledgerctl.errors import ExitCode, Refused, SettingsError
from ledgerctl.settings import SETTINGS, commented_file

Write = Callable[..., str]
RefusedLoad = Callable[..., str]


@pytest.fixture(autouse=True)
def no_system_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "SYSTEM_PLACE", tmp_path / "etc" / "config.toml")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str, name: str = "config.toml") -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    return write_file


@pytest.fixture
def refused(write: Write) -> RefusedLoad:
    """The error of loading a file with this text."""

    def load_refused(
        text: str = "", environment: dict[str, str] | None = None, **flags: str | None
    ) -> str:
        if "config" not in flags:
            flags["config"] = write(text)
        with pytest.raises(SettingsError) as caught:
            load(environment=environment or {}, **flags)
        error = caught.value
        assert error.exit_code == ExitCode.USAGE
        assert error.hint
        assert "\n" not in error.message + error.hint
        chain = "".join(traceback.format_exception(error))
        assert "s3cr3t" not in f"{error!r} {chain} {error.__context__!r} {error.hint}"
        return f"{error.message} | {error.hint}"

    return load_refused


def test_without_any_source_every_setting_has_its_default() -> None:
    settings = load(environment={"HOME": "/nonexistent"})
    assert settings.mongo_uri.reveal() == "mongodb://127.0.0.1:27017"
    assert settings.redis_url.reveal() == "redis://127.0.0.1:6379/0"
    assert settings.database == "ledger"
    assert settings.config_path is None
    assert settings.profile == "default"
    assert settings.output is None
    assert (settings.timezone, settings.zone.key) == ("UTC", "UTC")
    assert settings.retry == RetryPolicy(timedelta(seconds=30), timedelta(hours=1), 5)
    assert settings.keys.dead_letter == "jobs:dead-letter"
    assert settings.collections.usage_daily == "usage_daily"
    assert not settings.read_only
    assert not settings.protected
    assert set(settings.origins.values()) == {"default"}
    assert settings.sources == ()


def test_each_declared_setting_has_a_place_in_settings_and_nothing_else_has() -> None:
    settings = load(environment={})
    for setting in SETTINGS:
        attrgetter(setting.attribute or setting.name)(settings)
    declared = {(setting.attribute or setting.name).partition(".")[0] for setting in SETTINGS}
    assert {field.name for field in fields(settings)} == declared | {"sources", "origins"}
    assert set(settings.origins) == {setting.name for setting in SETTINGS}


LAYERS = """
database = "from_top"
[profiles.prod]
database = "from_profile"
"""


def test_environment_beats_profile_beats_top_level_beats_default(write: Write) -> None:
    path = write(LAYERS)
    seen = []
    for environment, profile in (
        ({"LEDGERCTL_DATABASE": "from_environment"}, "prod"),
        ({}, "prod"),
        ({}, None),
    ):
        settings = load(environment=environment, profile=profile, config=path)
        seen.append((settings.database, settings.origins["database"]))
    assert seen == [
        ("from_environment", "environment LEDGERCTL_DATABASE"),
        ("from_profile", f"profile prod in {path}"),
        ("from_top", path),
    ]


def test_a_flag_beats_everything_for_profile_config_and_output(write: Write) -> None:
    path = write(
        'output = "csv"\ndefault_profile = "c"\n[profiles.a]\n[profiles.b]\n[profiles.c]\n'
    )
    environment = {
        "LEDGERCTL_PROFILE": "b",
        "LEDGERCTL_OUTPUT": "json",
        "LEDGERCTL_CONFIG": "/nonexistent",
    }
    settings = load(environment=environment, profile="a", config=path, output="plain")
    assert (settings.profile, settings.output, settings.config_path) == ("a", "plain", Path(path))
    assert settings.origins["profile"] == "flag --profile"
    assert settings.origins["output"] == "flag --output"
    assert settings.origins["config"] == "flag --config"

    settings = load(environment=environment | {"LEDGERCTL_CONFIG": path})
    assert (settings.profile, settings.output) == ("b", "json")
    assert settings.origins["profile"] == "environment LEDGERCTL_PROFILE"
    assert settings.origins["config"] == "environment LEDGERCTL_CONFIG"

    settings = load(environment={}, config=path)
    assert (settings.profile, settings.origins["profile"]) == ("c", path)
    assert (settings.output, settings.origins["output"]) == ("csv", path)


def test_an_empty_variable_counts_as_unset() -> None:
    empty = {setting.variable: "" for setting in SETTINGS if setting.variable}
    assert set(load(environment=empty).origins.values()) == {"default"}


def test_tables_of_a_profile_change_single_keys_of_the_tables_above(write: Write) -> None:
    path = write(
        '[retry]\nbase = "5s"\nmax = "10m"\n[keys]\nretry = "r"\n[profiles.p.retry]\nbase = "1s"\n'
        '[profiles.p.collections]\nledger = "rows"\n'
    )
    settings = load(environment={"LEDGERCTL_MAX_ATTEMPTS": "7"}, profile="p", config=path)
    assert settings.retry == RetryPolicy(timedelta(seconds=1), timedelta(minutes=10), 7)
    assert settings.keys.retry == "r"
    assert settings.collections.ledger == "rows"
    assert settings.collections.jobs == "jobs"
    assert settings.origins["retry.base"] == f"profile p in {path}"
    assert settings.origins["retry.max"] == path


def test_a_profile_may_lift_or_set_read_only_and_protected(write: Write) -> None:
    path = write("read_only = true\n[profiles.p]\nread_only = false\nprotected = true\n")
    outer, inner = load(environment={}, config=path), load(environment={}, config=path, profile="p")
    assert (outer.read_only, outer.protected) == (True, False)
    assert (inner.read_only, inner.protected) == (False, True)


def test_addresses_are_read_from_files_without_their_last_line_break(
    write: Write, tmp_path: Path
) -> None:
    secret = write("mongodb://ops:s3cr3t@h/db\r\n", "mongo")
    write("redis://:s3cr3t@h/1", "redis")
    path = write(
        f'mongo_uri = "mongodb://other"\n[profiles.p]\nmongo_uri_file = "{secret}"\n'
        'redis_url_file = "redis"\n'
    )
    settings = load(environment={}, config=path, profile="p")
    assert settings.mongo_uri.reveal() == "mongodb://ops:s3cr3t@h/db"
    assert settings.redis_url.reveal() == "redis://:s3cr3t@h/1"
    assert settings.origins["mongo_uri"] == f"profile p in {path}, read from {secret}"
    assert settings.sources == (Path(path), Path(secret), tmp_path / "redis")
    assert "s3cr3t" not in f"{settings!r} {settings} {describe(settings)}"


def test_a_file_for_an_address_is_not_read_when_something_stronger_gives_it(write: Write) -> None:
    path = write('mongo_uri_file = "/nonexistent"\n')
    settings = load(environment={"LEDGERCTL_MONGO_URI": "mongodb://h"}, config=path)
    assert settings.origins["mongo_uri"] == "environment LEDGERCTL_MONGO_URI"


def test_a_tilde_in_an_address_file_is_the_home_folder(write: Write, tmp_path: Path) -> None:
    write("redis://h/9", "redis")
    path = write('redis_url_file = "~/redis"\n')
    settings = load(environment={"HOME": str(tmp_path)}, config=path)
    assert settings.redis_url.reveal() == "redis://h/9"


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "no such file"), (b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "not UTF-8")],
)
def test_an_address_file_that_gives_nothing_is_refused(
    refused: RefusedLoad, tmp_path: Path, content: bytes | None, why: str
) -> None:
    if content is not None:
        (tmp_path / "mongo").write_bytes(content)
    assert why in refused('mongo_uri_file = "mongo"\n')


def test_an_address_and_a_file_for_it_in_one_table_are_refused(refused: RefusedLoad) -> None:
    text = refused('redis_url = "redis://h"\nredis_url_file = "x"\n')
    assert "gives both redis_url and redis_url_file" in text


def test_describe_hides_secrets_and_shows_every_setting(write: Write) -> None:
    path = write("[retry]\nbase = '90s'\nmax = '2h'\n")
    environment = {
        "LEDGERCTL_MONGO_URI": "mongodb://ops:p%40s3cr3t@h/db",
        "LEDGERCTL_REDIS_URL": "redis://:p%40s3cr3t@h/1",
    }
    settings = load(environment=environment, config=path)
    rows = {row["name"]: (row["value"], row["origin"]) for row in describe(settings)}
    assert list(rows) == [setting.name for setting in SETTINGS]
    assert rows["mongo_uri"] == ("mongodb://***@h/db", "environment LEDGERCTL_MONGO_URI")
    assert rows["redis_url"] == ("redis://***@h/1", "environment LEDGERCTL_REDIS_URL")
    assert rows["retry.base"] == ("90s", path)
    assert rows["retry.max"] == ("2h", path)
    assert rows["retry.max_attempts"] == (5, "default")
    assert rows["config"] == (path, "flag --config")
    assert rows["read_only"] == (False, "default")
    assert "s3cr3t" not in f"{rows} {settings!r}"


# Places of the file


def test_default_places_are_looked_at_in_order(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path / "home")}
    places = (
        tmp_path / "xdg/ledgerctl/config.toml",
        tmp_path / "home/.config/ledgerctl/config.toml",
        tmp_path / "etc/config.toml",
    )
    assert locate(environment, None) == (places[0], "default", False, False)
    for place in reversed(places):
        place.parent.mkdir(parents=True)
        place.write_text("")
        assert locate(environment, None) == (place, "default", False, True)
    assert load(environment=environment).config_path == places[0]


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "x", "XDG_CONFIG_HOME": "y"}])
def test_without_a_home_folder_only_the_system_place_is_left(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assert locate(environment, None).path == tmp_path / "etc" / "config.toml"
    assert load(environment=environment).config_path is None


def test_a_named_file_that_is_absent_is_refused(refused: RefusedLoad, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.toml")
    assert "no such file" in refused(config=absent)
    assert "no such file" in refused(environment={"LEDGERCTL_CONFIG": absent}, config=None)


def test_a_file_name_that_is_an_address_is_not_shown(refused: RefusedLoad) -> None:
    assert "***@h" in refused(config="mongodb://ops:s3cr3t@h/db")


def test_a_folder_in_place_of_the_file_is_refused(refused: RefusedLoad, tmp_path: Path) -> None:
    assert "is a directory" in refused(config=str(tmp_path))
    (tmp_path / "ledgerctl" / "config.toml").mkdir(parents=True)
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert "is a directory" in refused(environment=environment, config=None)


def test_a_default_file_that_points_nowhere_is_refused(
    refused: RefusedLoad, tmp_path: Path
) -> None:
    (tmp_path / "ledgerctl").mkdir()
    (tmp_path / "ledgerctl" / "config.toml").symlink_to("gone")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert "no such file" in refused(environment=environment, config=None)


def test_a_default_file_that_may_not_be_read_is_refused(
    refused: RefusedLoad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "ledgerctl" / "config.toml"
    place.parent.mkdir()
    place.write_text("")

    def deny(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)  # root reads any file, so the mode alone does not
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert "permission denied" in refused(environment=environment, config=None)


def test_a_file_of_many_megabytes_is_refused(refused: RefusedLoad) -> None:
    assert "more than" in refused("#" * (config_file.FILE_BYTES_MAX + 1))


# What a file may say


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("database = ledger", "not valid TOML: Invalid value (at line 1, column 12)"),
        ("a = 'x'\nmongo_uri = mongodb://ops:s3cr3t@h", "at line 2, column"),
        ("mongodb://ops:s3cr3t@h", "at line 1"),
        ("[s3cr3t]\n[s3cr3t]", "Cannot declare a name twice (at line 2"),
        ("database = 'x", "at its end, line 1"),
        ("database = 'x'\ndatabase = 'y'", "Cannot overwrite a value"),
        ("x = " + "[" * 5000, "not valid TOML"),
        ("redis_uri = 'redis://h'", 'unknown key "redis_uri" | did you mean redis_url?'),
        ("mongo_url = 'mongodb://h'", "did you mean mongo_uri?"),
        ("[profile.prod]", "did you mean profiles?"),
        ("[profiles.prod]\nread_onyl = true", "in table profiles.prod | did you mean read_only?"),
        ("[retry]\nbsae = '3s'", "in table retry | did you mean base?"),
        ("[profiles.p]\n[profiles.p.keys]\ndead-letter = 'x'", "did you mean dead_letter?"),
        ("[profiles.p]\ndefault_profile = 'x'", "unknown key"),
        ("'retry.base' = '3s'", "unknown key"),
        ("'mongodb://ops:s3cr3t@h' = 1", "unknown key (not shown)"),
        ("zzz = 1", "known keys: collections, database, default_profile, keys"),
        ("mongo_uri = 5", "mongo_uri in "),
        ("database = true", "must be a text in quotes, and is true or false"),
        ("read_only = 'true'", "must be true or false without quotes, and is a text"),
        ("read_only = 1", "must be true or false without quotes, and is a whole number"),
        ("retry = 's3cr3t'", "must be a table, and is a text"),
        ("[retry]\nmax_attempts = '5'", "retry.max_attempts in"),
        ("[retry]\nmax_attempts = true", "must be a whole number"),
        ("[retry]\nbase = 30", "retry.base in"),
        ("[database]", "must be a text in quotes, and is a table"),
        ("database = 1979-05-27", "and is something else"),
        ("profiles = 's3cr3t'", "profiles in"),
        ("[profiles]\nprod = 's3cr3t'", "profiles.prod in"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(
    refused: RefusedLoad, text: str, why: str
) -> None:
    assert why in refused(text)


def test_a_mistake_in_a_profile_that_is_not_in_use_is_refused_today(refused: RefusedLoad) -> None:
    assert "profiles.night" in refused("[profiles.day]\n[profiles.night]\nx = 1", profile="day")


def test_a_file_with_windows_line_ends_and_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b'\xef\xbb\xbfdatabase = "d"\r\n')
    assert load(environment={}, config=str(path)).database == "d"


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_a_profile_that_does_not_exist_is_refused_with_those_that_do(
    refused: RefusedLoad, source: str
) -> None:
    text = "[profiles.prod]\n[profiles.stage]\n"
    match source:
        case "flag":
            message = refused(text, profile="porch")
        case "environment":
            message = refused(text, environment={"LEDGERCTL_PROFILE": "porch"})
        case _:
            message = refused("default_profile = 'porch'\n" + text)
    assert 'no profile "porch"' in message
    assert message.endswith("profiles: default, prod, stage")


def test_an_empty_profile_flag_is_refused_and_not_taken_for_the_default(
    refused: RefusedLoad,
) -> None:
    assert 'no profile ""' in refused("", profile="")


# Values


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"LEDGERCTL_MONGO_URI": "mongodb://ops:p@s3cr3t/w0rd@h/db"}, "percent-encode the pass"),
        ({"LEDGERCTL_MONGO_URI": "mongodb://ops:50%zzs3cr3t@h/db"}, "percent-encode the password"),
        ({"LEDGERCTL_REDIS_URL": "redis://:s3cr3t#ss@h:6379/0"}, "percent-encode the password"),
        ({"LEDGERCTL_REDIS_URL": "redis://h:6379/abc"}, "names a database that is not a number"),
        ({"LEDGERCTL_REDIS_URL": "redis://:s3cr3t@h:port/0"}, "host or port"),
        ({"LEDGERCTL_MONGO_URI": "s3cr3t"}, "does not begin with mongodb://"),
        ({"LEDGERCTL_DATABASE": "mongodb://ops:s3cr3t@h/db"}, "database (environment LEDGERCTL_DA"),
        ({"LEDGERCTL_DATABASE": "a.b"}, "is not a name that MongoDB gives a database"),
        ({"LEDGERCTL_DATABASE": "a b"}, "is not a name that MongoDB gives a database"),
        ({"LEDGERCTL_DATABASE": "x" * 64}, "is not a name that MongoDB gives a database"),
        ({"LEDGERCTL_DATABASE": "a\udcff"}, "not UTF-8"),
        ({"LEDGERCTL_OPERATOR": "a\udcff"}, "not UTF-8"),
        ({"LEDGERCTL_OPERATOR": "  "}, "is empty"),
        ({"LEDGERCTL_TIMEZONE": "Mars/Phobos"}, '"Mars/Phobos" is no time zone'),
        ({"LEDGERCTL_TIMEZONE": "redis://:s3cr3t@h"}, "(not shown) is no time zone"),
        ({"LEDGERCTL_TIMEZONE": "America"}, "is no time zone"),
        ({"LEDGERCTL_TIMEZONE": "../UTC"}, "is no time zone"),
        ({"LEDGERCTL_TIMEZONE": "localtime"}, "a file of this machine"),
        ({"LEDGERCTL_OUTPUT": "xml"}, '"xml" is no output format | one of table, plain, json'),
        ({"LEDGERCTL_RETRY_BASE": "30"}, '"30" is no duration'),
        ({"LEDGERCTL_RETRY_BASE": "-3s"}, "is no duration"),
        ({"LEDGERCTL_RETRY_MAX": "9" * 30 + "d"}, "is no duration"),
        ({"LEDGERCTL_MAX_ATTEMPTS": "-1"}, "is no number of attempts"),
        ({"LEDGERCTL_MAX_ATTEMPTS": "five"}, "is no number of attempts"),
        ({"LEDGERCTL_MAX_ATTEMPTS": "9" * 5000}, "is no number of attempts"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused_by_name_and_not_quoted(
    refused: RefusedLoad, environment: dict[str, str], why: str
) -> None:
    message = refused(environment=environment)
    assert why in message
    assert f"(environment {next(iter(environment))})" in message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[keys]\nretry = ''", "keys.retry"),
        ("[keys]\nretry = 'jobs:processing'", "keys.retry and keys.processing"),
        ("[keys]\nretry = 'x'\ndead_letter = 'x'", 'have the same name "x"'),
        ("[keys]\nretry = 'jobs:processing:w1'", "begins with the name of keys.processing"),
        ("[keys]\nprocessing = 'jobs:dead-letter:op'", "begins with the name of keys.dead_letter"),
        ("[collections]\njobs = 'ledger'", "collections.jobs and collections.ledger"),
        ("[collections]\njobs = 'a$b'", "is not a name that MongoDB gives a collection"),
        ("[collections]\njobs = 'system.users'", "is not a name that MongoDB gives a collection"),
        ("[collections]\njobs = 'a..b'", "is not a name that MongoDB gives a collection"),
        ("output = ''", "is no output format"),
        ("[profiles.p]\nmongo_uri = 'mongodb://o:p@s3cr3t@h'", "mongo_uri (profile p in "),
    ],
)
def test_names_that_would_mix_two_things_up_are_refused(
    refused: RefusedLoad, text: str, why: str
) -> None:
    assert why in refused(text, **({"profile": "p"} if "profiles.p" in text else {}))


def test_a_retry_list_may_be_the_stem_of_another_name(write: Write) -> None:
    path = write("[keys]\nretry = 'jobs'\ndead_letter = 'jobs:dead'\nprocessing = 'jobs:now'")
    assert load(environment={}, config=path).keys.retry == "jobs"


def test_the_shells_time_zone_is_never_taken() -> None:
    assert load(environment={"TZ": "Asia/Tokyo"}).timezone == "UTC"


def test_the_operator_is_the_login_name_at_the_host_even_without_any_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = os.uname().nodename
    assert load(environment={"LOGNAME": "ada"}).operator == f"ada@{host}"
    assert load(environment={"USER": "a\udcff"}).operator == f"a?@{host}"
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    assert load(environment={}).operator == f"uid-4000000001@{host}"
    assert load(environment={"LEDGERCTL_OPERATOR": "night cron"}).operator == "night cron"


# The commented file and the permissions


def test_the_commented_file_changes_nothing(write: Write) -> None:
    settings = load(environment={}, config=write(commented_file()))
    assert set(settings.origins.values()) == {"default", "flag --config"}


def test_every_line_of_the_commented_file_may_be_uncommented_as_it_stands(write: Write) -> None:
    lines = commented_file().partition("#[profiles.")[0].splitlines()
    bare = "\n".join(
        line[1:] if line.startswith("#") and line[1] != " " else line for line in lines
    )
    path = write(bare)
    settings = load(environment={"LOGNAME": "ada"}, config=path)
    assert {origin for name, origin in settings.origins.items() if name != "config"} == {path}
    plain = load(environment={"LOGNAME": "ada"})
    assert (settings.retry, settings.keys, settings.collections) == (
        plain.retry,
        plain.keys,
        plain.collections,
    )
    assert settings.mongo_uri == plain.mongo_uri


def test_the_commented_file_names_every_key_variable_and_unit() -> None:
    text = commented_file()
    for setting in SETTINGS:
        if setting.in_file:
            assert f"#{setting.file_key.rpartition('.')[2]} = " in text
            assert setting.variable in text
            assert setting.unit in text


def test_a_new_file_is_private_whole_and_never_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "config.toml"
    write_new(path, "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    with pytest.raises(Refused, match="exists already"):
        write_new(path, "two")
    assert path.read_text() == "one"
    assert os.listdir(path.parent) == ["config.toml"]


def test_a_new_file_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SettingsError, match="no space left"):
        write_new(tmp_path / "config.toml", "text")
    assert os.listdir(tmp_path) == []


def test_a_new_file_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="not a directory"):
        write_new(tmp_path / "file" / "config.toml", "text")


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ('mongo_uri = "mongodb://o:s3cr3t@h"', 0o600, None),
        (
            'mongo_uri = "mongodb://o:s3cr3t@h"',
            0o640,
            "holds a password and can be read by others (mode 0640)",
        ),
        ("redis://:s3cr3t@h", 0o604, "holds a password and can be read by others (mode 0604)"),
        ('database = "d"', 0o644, None),
        ('database = "d"', 0o664, "can be changed by others (mode 0664)"),
    ],
)
def test_a_file_that_others_may_read_or_change_is_a_problem(
    write: Write, text: str, mode: int, problem: str | None
) -> None:
    path = Path(write(text))
    path.chmod(mode)
    found = permission_problem(path)
    assert found == (problem and f"{path} {problem}")


def test_a_file_that_is_not_there_is_no_permission_problem(tmp_path: Path) -> None:
    assert permission_problem(tmp_path / "absent") is None
