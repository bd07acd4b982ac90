"""Find queue entries by their raw bytes: only those that may name a job are parsed. Pure."""

import re
from array import array
from collections.abc import Callable, Collection, Container, Sequence

from ledgerctl.domain.payload import (
    ACCOUNT_NAMES,
    ERROR_NAMES,
    Payload,
    digest,
    read_payload,
    sha256,
)

Sieve = Callable[[Sequence[bytes]], Sequence[int]]
"""Which entries of a page, by number, may be meant; never leaves out one that is."""

NEEDLES_MAX = 40  # more names than this cost as much as parsing each entry
_KEY = rb'"(?:job_id|JobID|jobId|id|ID|_id)"\s*:\s*'
_NAMED_ID = re.compile(_KEY + rb'(?:"([^"\\]*)"|(-?[0-9]+))')
_ESCAPED = re.compile(rb"\\u00|" + _KEY + rb'"[^"\\]*\\')  # a key or an id with an escape in it
_PLAIN = re.compile(r"[ !#-.0-\[\]-~]*")  # characters that JSON writes as they are, or as \u00XX


def by_job(texts: Collection[str]) -> Sieve:
    """Keep the entries that may name one of these jobs, hex ids in any case; all for too many."""
    if len(texts) > NEEDLES_MAX:
        return lambda page: range(len(page))
    escape = b"\\u00" if all(map(_PLAIN.fullmatch, texts)) else b"\\"
    needles = [escape, *{text.encode(errors="surrogatepass").lower() for text in texts}]

    def kept(page: Sequence[bytes]) -> Sequence[int]:
        whole = b"\n".join(page).lower()
        present = [needle for needle in needles if needle in whole]
        if not present:
            return ()
        lowered = map(bytes.lower, page)
        return [at for at, raw in enumerate(lowered) if any(one in raw for one in present)]

    return kept


def by_digest(digests: Collection[str]) -> Sieve:
    """Keep the entries of these digests."""
    return lambda page: [at for at, raw in enumerate(page) if digest(raw) in digests]


def by_hash(hashes: Container[int]) -> Sieve:
    """Keep the entries of which `name_of` is one of these."""
    return lambda page: [at for at, raw in enumerate(page) if name_of(raw) in hashes]


def name_of(raw: bytes) -> int:
    """Return the first 8 bytes of the SHA-256 of an entry."""
    return int.from_bytes(sha256(raw)[:8])


def either(one: Sieve, other: Sieve) -> Sieve:
    """Keep what one of two sieves keeps."""
    return lambda page: sorted({*one(page), *other(page)})


def name_key(text: str) -> int:
    """Hash a job id without regard to the case of hex ids."""
    return _key_of(text.encode(errors="surrogatepass"))


def _key_of(raw: bytes) -> int:
    return hash(b"0" if raw == b"-0" else raw.lower())


def possible_names(page: Sequence[bytes]) -> list[int]:
    """Return `name_key` of every job that an entry of the page names, and perhaps of others."""
    whole = b"\0".join(page)
    keys = [_key_of(text or number) for text, number in _NAMED_ID.findall(whole)]
    if b"\\" in whole:
        escaped = (read_payload(raw) for raw in page if _ESCAPED.search(raw))
        keys += [name_key(read.job_id) for read in escaped if isinstance(read, Payload)]
    return keys


_WORD = 0xFFFFFFFFFFFFFFFF


class HashSet:
    """A set of texts that keeps 8 bytes of each: two of a million are mixed up once in 10⁷ runs."""

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * 1024))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, text: str) -> bool:
        """Add a text; False when it is there already."""
        return self.add_hash(hash(text))

    def add_hash(self, one: int) -> bool:
        """Add a text by its hash; False when it is there already."""
        if not self._put(one & _WORD or 1):
            return False
        self._count += 1
        if self._count * 5 > len(self._slots) * 3:
            old, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
            for known in filter(None, old):
                self._put(known)
        return True

    def has_hash(self, one: int) -> bool:
        """Tell if a text of this hash was added."""
        one = one & _WORD or 1
        slots, last = self._slots, len(self._slots) - 1
        at = one & last
        while there := slots[at]:
            if there == one:
                return True
            at = (at + 1) & last
        return False

    def _put(self, one: int) -> bool:
        slots, last = self._slots, len(self._slots) - 1
        at = one & last
        while there := slots[at]:
            if there == one:
                return False
            at = (at + 1) & last
        slots[at] = one
        return True


def _sole_text(names: Sequence[str]) -> "re.Pattern[bytes]":
    return re.compile(rb'"(?:%b)"\s*:\s*"([^"\\]+)"' % "|".join(names).encode())


_ACCOUNT, _ERROR = _sole_text(ACCOUNT_NAMES), _sole_text(ERROR_NAMES)


class ContentSieve:
    """Drop entries that name another account, or another error, in the plainest spelling.

    An entry with an escape, or with a second member of such a name, is kept for the parser. Of
    the entries that are dropped the hashes of the jobs stay, as one of them can be a duplicate's.
    """

    def __init__(self, account: str | None, may_err: Callable[[str], bool] | None) -> None:
        self._account = None if account is None else account.encode(errors="surrogatepass")
        self._may_err = may_err
        self._left = HashSet()

    def __call__(self, page: Sequence[bytes]) -> Sequence[int]:
        """Return the numbers of the entries that may be meant."""
        kept, dropped = list[int](), list[bytes]()
        for at, raw in enumerate(page):
            if self.may_mean(raw):
                kept.append(at)
            else:
                dropped.append(raw)
        for name in possible_names(dropped):
            self._left.add_hash(name)
        return kept

    def may_mean(self, raw: bytes) -> bool:
        """Tell if the entry may be of the account and of an error that are asked for."""
        if b"\\" in raw or raw[:1] != b"{":
            return True
        account = self._account
        if account is not None and account not in raw and raw.count(b"ccount") == 1:
            named = _ACCOUNT.search(raw)
            if named is not None and _is_outermost(raw, named.start()):
                return False
        if self._may_err is None or raw.count(b'rror"') != 1:
            return True
        error = _ERROR.search(raw)
        if error is None or not _is_outermost(raw, error.start()):
            return True
        try:
            return self._may_err(error[1].decode())
        except UnicodeDecodeError:  # unreadable; the parser says so
            return True

    def has_dropped(self, job_id: str) -> bool:
        """Tell if a dropped entry may name this job."""
        return self._left.has_hash(name_key(job_id))


def _is_outermost(raw: bytes, at: int) -> bool:
    return raw.find(b"{", 1, at) < 0 and raw.find(b"[", 0, at) < 0
