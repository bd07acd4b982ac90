"""`config show|init|path`: what is set and by what, a first file, and no secret in any output."""

import stat
import sys
from pathlib import Path
from subprocess import run as run_program

import pytest

from ledgerctl.config import load
from ledgerctl.domain.output_format import OutputFormat
from ledgerctl.errors import ExitCode, LedgerctlError
from ledgerctl.sandbox.launch import Server
from ledgerctl.stores.queues import Queues
from tests.conftest import Run, Runner

# `%40` makes the address right and the password p@s3cr3t, which drivers decode.
ADDRESSES = {
    "LEDGERCTL_MONGO_URI": "mongodb://ops:p%40s3cr3t@127.0.0.1:9/db?replicaSet=rs0",
    "LEDGERCTL_REDIS_URL": "redis://ops:p%40s3cr3t@127.0.0.1:9/3",
}


def shows_secret(run: Run) -> bool:
    text = run.stdout + run.stderr
    return any(part in text for part in (b"s3cr3t", b"%40", b"ops:"))


def settings_of(run: Run) -> dict[str, tuple[object, str]]:
    return {one["name"]: (one["value"], one["origin"]) for one in run.json()["settings"]}


@pytest.mark.parametrize("output", OutputFormat)
def test_config_show_hides_the_credentials_in_every_format(run_bare: Runner, output: str) -> None:
    shown = run_bare("config", "show", "-o", output, "--verbose", env=ADDRESSES)
    assert shown.code == 0
    assert not shows_secret(shown)
    assert "mongodb://***@127.0.0.1:9/db?replicaSet=rs0" in shown.out
    assert "redis://***@127.0.0.1:9/3" in shown.out
    assert shown.err == ""


def test_config_show_names_what_set_each_value(run_bare: Runner, home: Path) -> None:
    place = home / ".config" / "ledgerctl" / "config.toml"
    place.parent.mkdir(parents=True)
    place.write_text('database = "top"\n[profiles.prod]\nread_only = true\n')
    shown = run_bare("config", "show", "-o", "json", "--profile", "prod", env=ADDRESSES)
    assert (shown.code, shown.err) == (0, "")
    settings = settings_of(shown)
    assert settings["database"] == ("top", str(place))
    assert settings["read_only"] == (True, f"profile prod in {place}")
    assert settings["profile"] == ("prod", "flag --profile")
    assert settings["output"] == ("json", "flag --output")
    assert settings["operator"] == ("tester", "environment LEDGERCTL_OPERATOR")
    assert settings["config"] == (str(place), "default")
    assert settings["retry.base"] == ("30s", "default")


def test_config_commands_work_with_an_empty_environment(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    program = [sys.executable, "-m", "ledgerctl", "config"]
    for words in (["show", "-o", "json"], ["path"]):
        done = run_program([*program, *words], cwd=root, env={}, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def test_config_init_writes_a_private_file_that_changes_nothing(
    run_bare: Runner, home: Path
) -> None:
    before = run_bare("config", "show", "-o", "json")
    place = home / ".config" / "ledgerctl" / "config.toml"
    made = run_bare("config", "init", "-o", "json")
    assert (made.code, made.json(), made.err) == (0, {"path": str(place), "created": True}, "")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert [one.name for one in place.parent.iterdir()] == ["config.toml"]
    after = run_bare("config", "show", "-o", "json")
    assert settings_of(after) == settings_of(before) | {"config": (str(place), "default")}


def test_config_init_never_replaces_a_file(run_bare: Runner, tmp_path: Path) -> None:
    place = tmp_path / "mine.toml"
    place.write_text("this is not TOML")
    refused = run_bare("config", "init", "--config", str(place), "-o", "json")
    assert (refused.code, refused.out) == (3, "")
    assert '"code": "refused"' in refused.err
    assert place.read_text() == "this is not TOML"


def test_config_init_takes_the_place_that_a_variable_names(
    run_bare: Runner, tmp_path: Path
) -> None:
    place = tmp_path / "deep" / "er" / "c.toml"
    made = run_bare("config", "init", env={"LEDGERCTL_CONFIG": str(place)})
    assert (made.code, made.err) == (0, "")
    assert str(place) in made.out
    assert place.read_text().startswith("# Settings of ledgerctl.")


def test_config_path_tells_the_place_of_a_file_that_is_absent_or_broken(
    run_bare: Runner, home: Path, tmp_path: Path
) -> None:
    place = home / ".config" / "ledgerctl" / "config.toml"
    nowhere = tmp_path / "nowhere.toml"
    assert run_bare("config", "path", "-o", "json").json() == {"path": str(place), "exists": False}
    named = run_bare("config", "path", "-o", "json", env={"LEDGERCTL_CONFIG": str(nowhere)})
    assert (named.code, named.json()) == (0, {"path": str(nowhere), "exists": False})
    place.parent.mkdir(parents=True)
    place.write_text("broken")
    found = run_bare("config", "path", env={"LEDGERCTL_PROFILE": "prod"})
    assert (found.code, found.err) == (0, "")
    assert str(place) in found.out


@pytest.mark.parametrize("words", [["show"], ["path"], ["init", "--config", "new.toml"]])
@pytest.mark.parametrize("output", ["plain", "json"])
def test_config_commands_import_no_driver_and_no_rich(
    bare_environment: dict[str, str], tmp_path: Path, words: list[str], output: str
) -> None:
    program = (
        "import sys; from ledgerctl.cli.app import run; code = run(sys.argv[1:]);"
        "heavy = {'pymongo', 'bson', 'redis', 'rich', 'asyncio'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = run_program(
        [sys.executable, "-c", program, "config", *words, "-o", output],
        cwd=tmp_path,
        env=bare_environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("LEDGERCTL_REDIS_URL", "redis://:s3cr3t#ops:@h:6379/0"),
        ("LEDGERCTL_MONGO_URI", "mongodb://ops:p@s3cr3t/w0rd@h/db"),
        ("LEDGERCTL_MONGO_URI", "mongodb://ops:s3cr3t50%zz@h/db"),
    ],
)
@pytest.mark.parametrize("output", ["plain", "json"])
def test_an_unescaped_password_is_one_short_error_without_it(
    run_bare: Runner, variable: str, address: str, output: str
) -> None:
    refused = run_bare("config", "show", "-o", output, "--verbose", env={variable: address})
    assert (refused.code, refused.out) == (2, "")
    assert "percent-encode the password" in refused.err
    assert variable in refused.err
    assert len(refused.err.splitlines()) <= 3
    assert "s3cr3t" not in refused.err
    assert "w0rd" not in refused.err


@pytest.mark.parametrize(
    "options",
    [
        "readPreferense=primary",
        "w=majority&wtimeoutMS=soon",
        "authMechanism=FOO",
        "tls=true&tlsCAFile=/nonexistent",
        "tls=true&tls=false",
        "tls=true&tlsCertificateKeyFile=/etc/hostname&tlsCertificateKeyFilePassword=s3cr3t",
    ],
)
def test_an_option_that_the_driver_would_drop_or_cannot_use_is_one_short_error(
    run_bare: Runner, options: str
) -> None:
    address = f"mongodb://ops:p%40s3cr3t@127.0.0.1:9/?{options}"
    refused = run_bare("balance", "show", "a", env={"LEDGERCTL_MONGO_URI": address})
    assert (refused.code, refused.out) == (2, "")
    assert "the MongoDB URI cannot be used" in refused.err
    assert len(refused.err.splitlines()) == 3
    assert not shows_secret(refused)


@pytest.mark.parametrize(
    ("place", "output"),
    [
        ("127.0.0.1:9", "plain"),
        ("127.0.0.1:9", "json"),
        ("no-such-host.invalid:27017", "json"),
        ("REAL", "plain"),
        ("REAL", "json"),
    ],
)
def test_no_secret_is_shown_when_mongodb_refuses_the_connection(
    run: Runner, mongod: Server, place: str, output: str
) -> None:
    host = mongod.uri.partition("://")[2].split("/")[0] if place == "REAL" else place
    wrong = {"LEDGERCTL_MONGO_URI": f"mongodb://ops:p%40s3cr3t@{host}/"}
    for words in (["balance", "show", "acct-1"], ["job", "refund", "job-1"]):
        failed = run(*words, "-o", output, "--verbose", env=wrong)
        assert (failed.code, failed.out) == (6, "")
        assert not shows_secret(failed)
        assert "Traceback" not in failed.err


@pytest.mark.parametrize("place", ["127.0.0.1:9", "no-such-host.invalid:6379", "REAL"])
def test_no_secret_is_shown_when_redis_refuses_the_connection(
    valkey: Server, bare_environment: dict[str, str], place: str
) -> None:
    host = valkey.uri.partition("://")[2].split("/")[0] if place == "REAL" else place
    address = f"redis://ops:p%40s3cr3t@{host}/0"
    queues = Queues(load(environment=bare_environment | {"LEDGERCTL_REDIS_URL": address}))
    with pytest.raises(LedgerctlError) as caught, queues.reading("read the lists"):
        queues.client.llen("jobs:retry")
    error = caught.value
    assert error.exit_code == ExitCode.UNAVAILABLE
    assert "s3cr3t" not in f"{error!r} {error.hint} {error.__context__!r}"
