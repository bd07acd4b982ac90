"""The configuration file: where it is, what stands in it, whether others may read it."""

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ledgerctl.addresses import holds_credentials, without_credentials
from ledgerctl.errors import Refused, SettingsError

Table = Mapping[str, object]

FILE_BYTES_MAX = 1 << 20
SYSTEM_PLACE = Path("/etc/ledgerctl/config.toml")

_PLACE = Path("ledgerctl/config.toml")
_PLAIN_NAME = r"[A-Za-z0-9_.+/-]{0,40}"
_TOML_NAMES = r"\((?:'[^']*'|\"[^\"]*\"|, ?)*\)"
_WORDS: Mapping[type, str] = {
    str: "a text in quotes",
    int: "a whole number without quotes",
    bool: "true or false without quotes",
    dict: "a table",
    list: 'a list of texts, as in ["a", "b"]',
}


class Location(NamedTuple):
    """Hold the configuration file in use, or the one that would be."""

    path: Path
    origin: str
    named: bool
    exists: bool


def locate(environment: Mapping[str, str], named: str | None) -> Location:
    """Return the file that `--config` or LEDGERCTL_CONFIG names, else the first one at a default place,
    else the first default place. Source: contract, section 1."""
    if named is not None:
        return _named(named, "flag --config")
    if variable := environment.get("LEDGERCTL_CONFIG"):
        return _named(variable, "environment LEDGERCTL_CONFIG")
    places = default_places(environment)
    found = next((place for place in places if _is_there(place)), None)
    return Location(found or places[0], "default", named=False, exists=found is not None)


def default_places(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Strongest first. A variable that is unset or not an absolute path adds no place."""
    candidates = [environment.get("XDG_CONFIG_HOME", "")]
    if home := environment.get("HOME"):
        candidates.append(os.path.join(home, ".config"))
    absolute = [Path(folder) / _PLACE for folder in candidates if os.path.isabs(folder)]
    return (*dict.fromkeys(absolute), SYSTEM_PLACE)


def read_text(path: Path, what: str, hint: str) -> str:
    """Return the file's text, a byte order mark dropped; SettingsError says what could not be read."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) <= FILE_BYTES_MAX:
            return content.decode("utf-8-sig")
        why = f"it has more than {FILE_BYTES_MAX} bytes"
    except OSError as error:
        why = (error.strerror or "the system does not say why").lower()
    except ValueError:  # the error itself holds the bytes; also a NUL in the path
        why = "it is not UTF-8 text"
    raise SettingsError(f"cannot read {what} {without_credentials(str(path))}: {why}", hint=hint)


def read_table(path: Path) -> dict[str, object]:
    """Return the file as nested tables; SettingsError names file and line, and quotes nothing of it."""
    import tomllib  # 2 ms at start-up, for nothing where there is no file

    text = read_text(
        path, "the configuration file", "name another with --config, or see `ledgerctl config path`"
    )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = re.sub(_TOML_NAMES, "a name", str(error))
        why = why.replace("at end of document", f"at its end, line {len(text.splitlines())}")
    except RecursionError:
        why = "it is nested too deeply"
    raise SettingsError(
        f"{path} is not valid TOML: {why}",
        hint='mend that line; texts stand in double quotes, as in database = "ledger"',
    )


def permission_problem(path: Path) -> str | None:
    """Tell why others may learn or change what this file says, or None when it is private enough.

    A file that others can write is a problem whatever it holds; one that they can read is one
    when an address with credentials stands in it. None too for a file that cannot be looked at.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be changed by others (mode {mode:04o})"
    if mode & (stat.S_IRGRP | stat.S_IROTH) and holds_credentials(text):
        return f"{path} holds a password and can be read by others (mode {mode:04o})"
    return None


def write_new(path: Path, text: str) -> None:
    """Create the file whole and private (mode 0600, missing folders 0700), or not at all.

    Raises Refused when anything stands there already, SettingsError when it cannot be written.
    """
    try:
        _make_folders(path.parent)
        _link_new(path, text)
    except FileExistsError:
        raise Refused(
            f"{path} exists already and was left as it is",
            hint="edit it, or name another file with --config",
        ) from None
    except OSError as error:
        why = (error.strerror or "unknown reason").lower()
        raise SettingsError(
            f"cannot write {path}: {why}", hint="name another file with --config"
        ) from None


def flatten(
    table: Table, kinds: Mapping[str, type], path: Path, inside: str = "", prefix: str = ""
) -> dict[str, str | int | bool | list[str] | dict[str, object]]:
    """Return the table's values by dotted name (`retry.base`), each of the type that `kinds` asks for.

    `inside` is the table's own name, for messages. Raises SettingsError for a key that does not
    exist, with the nearest that does, and for a value of another type.
    """
    flat: dict[str, str | int | bool | list[str] | dict[str, object]] = {}
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        expected = dict if f"{dotted}." in _folders(kinds) else kinds.get(dotted)
        if expected is None or "." in name:
            raise _unknown(name, kinds, path, inside, prefix)
        if type(value) is not expected:  # a bool is an int to isinstance
            raise _wrong_type(f"{inside}{name}", value, expected, path)
        if dotted in kinds and isinstance(value, dict):
            flat[dotted] = value
        elif isinstance(value, dict):
            flat |= flatten(value, kinds, path, f"{inside}{name}.", f"{dotted}.")
        elif isinstance(value, str | int | list):
            flat[dotted] = value
    return flat


def as_tables(value: object, name: str, path: Path) -> dict[str, dict[str, object]]:
    """Return a table of tables; SettingsError names the first thing in it that is none."""
    if not isinstance(value, dict):
        raise _wrong_type(name, value, dict, path)
    for key, table in value.items():
        if not isinstance(table, dict):
            raise _wrong_type(f"{name}.{key}", table, dict, path)
    return value


def quoted(text: str) -> str:
    """Return the text in quotes when it is plain and short; anything else might be a misplaced secret."""
    return f'"{text}"' if re.fullmatch(_PLAIN_NAME, text) else "(not shown)"


def _folders(kinds: Mapping[str, type]) -> set[str]:
    return {f"{name.rpartition('.')[0]}." for name in kinds if "." in name}


def _unknown(
    name: str, kinds: Mapping[str, type], path: Path, inside: str, prefix: str
) -> SettingsError:
    import difflib  # only a mistake needs it

    names = [known.removeprefix(prefix) for known in kinds if known.startswith(prefix)]
    here = sorted(
        {known.partition(".")[0] for known in names} | (set() if inside else {"profiles"})
    )
    near = difflib.get_close_matches(name, here, n=1)
    table = f" in table {inside.rstrip('.')}" if inside else ""
    return SettingsError(
        f"{path} has an unknown key {quoted(name)}{table}",
        hint=f"did you mean {near[0]}?" if near else f"known keys: {', '.join(here)}",
    )


def _wrong_type(name: str, value: object, expected: type, path: Path) -> SettingsError:
    found = _WORDS.get(type(value), "something else")
    return SettingsError(
        f"{name} in {path} must be {_WORDS[expected]}, and is {found}",
        hint="`ledgerctl config init` writes a file that shows how each setting is written",
    )


def _named(name: str, origin: str) -> Location:
    path = Path(name)
    return Location(path, origin, named=True, exists=_is_there(path))


def _is_there(path: Path) -> bool:
    """Tell whether anything stands there: what cannot be looked at does, so that reading it says why
    (a file that would have said `read_only` must not vanish behind a missing right)."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True


def _make_folders(folder: Path) -> None:
    if folder.is_dir():
        return
    if folder.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    _make_folders(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def _link_new(path: Path, text: str) -> None:
    """Write a draft beside the place and give it its name only when it is whole."""
    import tempfile  # costs 5 ms at start-up, and only `config init` needs it

    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # unlike a rename, never replaces what is there
    finally:
        os.unlink(draft)
