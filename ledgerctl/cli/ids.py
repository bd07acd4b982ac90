"""Offer ids for completion within a second, and never print an error.

A short-lived cache answers first, then one small query. Only ids that no shell could misread are
offered: letters, digits and `._:-`. A tab parts an id from what describes it.
"""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

KINDS: Final = ("job", "account", "operation", "group", "dead", "taken")
FRESH_S: Final = 30.0
BOUND_S: Final = 0.75  # of the query; starting Python takes the rest of the second
OFFERED_MAX: Final = 500
SAFE: Final = re.compile(r"[A-Za-z0-9._:-]+")
UNSAFE: Final = re.compile(r"[^ A-Za-z0-9._:#=/,()-]")
ABOUT_MAX: Final = 50


def complete(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Print ids of the kind `words[0]`, one a line; the rest of the words are the command line's.

    Always returns 0 and never writes to stderr: a completion that fails offers nothing.
    """
    if not words or words[0] not in KINDS:
        return 0
    end_after(BOUND_S)
    try:
        found, cache = known_ids(words[0], words[1:], environment)
        sys.stdout.write("".join(f"{one}\n" for one in found))
        sys.stdout.flush()
        write_cache(cache, found)
    except BaseException:  # noqa: BLE001, S110  # whatever it is, the operator only pressed TAB
        pass
    vanish()
    return 0


def end_after(seconds: float) -> None:
    """End this process after so long, even while it waits in a name look-up."""
    import threading

    watch = threading.Timer(seconds, vanish)
    watch.daemon = True
    watch.start()


def vanish() -> None:
    """End at once and in silence; nothing here has anything to save."""
    os._exit(0)


def known_ids(
    kind: str, words: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], Path | None]:
    """Take ids from the cache while it is fresh, else from the store; name the cache to keep them in."""
    from ledgerctl.cli.boundary import option_value
    from ledgerctl.config import load

    settings = load(
        environment=environment,
        profile=option_value(words, "--profile"),
        config=option_value(words, "--config"),
    )
    place = f"{settings.mongo_uri.reveal()} {settings.redis_url.reveal()} {settings.database}"
    file = cache_file(kind, place, environment)
    cached = read_cache(file)
    if cached is not None:
        return cached, None
    from ledgerctl.stores.connections import Stores
    from ledgerctl.stores.recent import Recent

    return offered(Recent(Stores(settings)).of(kind)), file


def offered(ids: Iterable[str]) -> list[str]:
    """Keep each id once and only those that mean the same to every shell."""
    found: dict[str, str] = {}
    for one in ids:
        name, tab, about = one.partition("\t")
        if SAFE.fullmatch(name) and not name.startswith("-"):
            found.setdefault(name, f"{name}{tab}{UNSAFE.sub('?', about)[:ABOUT_MAX]}")
    return list(found.values())[:OFFERED_MAX]


def cache_file(kind: str, place: str, environment: Mapping[str, str]) -> Path | None:
    """Name the cache of one kind at one place; its name tells nothing of it. None without a home."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):
        home = environment.get("HOME", "")
        base = f"{home}/.cache" if home.startswith("/") else ""
    if not base:
        return None
    name = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:16]
    return Path(base) / "ledgerctl" / f"{name}.{kind}"


def read_cache(file: Path | None) -> list[str] | None:
    """Read a fresh cache; None when there is none. A stale one is removed: ids are customers'."""
    if file is None:
        return None
    try:
        age_s = time.time() - file.stat().st_mtime
        if 0 <= age_s <= FRESH_S:
            return offered(file.read_text("ascii").split("\n"))
        file.unlink()
    except (OSError, ValueError):
        pass
    return None


def write_cache(file: Path | None, ids: Sequence[str]) -> None:
    """Keep the ids for a moment, readable by their owner alone, whole or not at all."""
    if file is None:
        return
    fresh = file.with_suffix(f"{file.suffix}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write("".join(f"{one}\n" for one in ids))
        fresh.replace(file)
    except OSError:
        fresh.unlink(missing_ok=True)
