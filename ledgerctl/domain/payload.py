"""Queue payloads: read tolerantly, edited without touching any other byte.

A payload is one JSON object as bytes, written by workers in several languages. Reading never
raises: what cannot be understood is a value that says why. Source: contract, section 2.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from ledgerctl.domain.ids import LENGTH_MAX
from ledgerctl.domain.times import format_time, parse_rfc3339, shifted
from ledgerctl.errors import InvariantBroken

ID_NAMES = ("job_id", "JobID", "jobId", "id", "ID", "_id")
ATTEMPTS_NAMES = ("attempts", "Attempts")
NOT_BEFORE_NAMES = ("not_before", "NotBefore", "notBefore")
ACCOUNT_NAMES = ("account_id", "AccountID", "accountId")
COST_NAMES = ("cost", "Cost")
ERROR_NAMES = ("error", "Error", "last_error", "LastError", "lastError")
DIGEST_LENGTH = 12
FAILED_AT_NAMES = ("failed_at", "FailedAt", "failedAt")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DIGITS_MAX = 4000  # Python refuses to convert a text of more than 4,300 digits
_EXPONENT_DIGITS_MAX = 3  # 1e999999999 would fill the memory


class Payload(NamedTuple):
    """Describe what a readable entry says. `not_before` None: due now."""

    job_id: str
    account_id: str | None
    cost: int | None
    attempts: int
    not_before: datetime | None
    error: str | None
    failed_at: datetime | None
    raw: bytes
    undated: bool = False  # `failed_at` is there and is no time

    def is_due(self, now: datetime) -> bool:
        """Return whether its time has come; an entry without a time is due."""
        return self.not_before is None or self.not_before <= now


class Unreadable(NamedTuple):
    """Hold an entry that is shown, counted and never moved by a filter; `why` is for people."""

    why: str


class _Unfit(ValueError):
    """Internal: why an entry is unreadable."""


class _Spelled(str):
    """Hold a number kept as it was spelled: a float would round it, a long integer be refused."""

    __slots__ = ()


class _Literal:
    """NaN, Infinity and -Infinity: not JSON, but Python writes them."""


class _Opaque:
    """Hold a value nested too deep to be built: well-formed, and of no interest here."""


class _Member(NamedTuple):
    """Hold one top-level member: its key as decoded, its value, and where the value stands."""

    key: str
    value: object
    start: int
    end: int


def read_payload(raw: bytes) -> Payload | Unreadable:
    """Return what the entry says, or why it is unreadable; never raises, linear in its size."""
    try:
        document, shape = _document(raw.decode())
        return _interpreted(document, shape, raw)
    except UnicodeDecodeError as error:
        return Unreadable(f"not UTF-8: byte {error.start}")
    except _Unfit as error:
        return Unreadable(str(error))


def requeued(raw: bytes, *, attempts: int | None, due: datetime, now: datetime) -> bytes:
    """Return the entry with `attempts` (None: kept) and its due time set; other bytes stay.

    `due` at or before `now` means at once: an existing time becomes now, and null, `""`, zero
    and absence, which mean due now already, stay as they are. `raw` must be readable.
    """
    layout = _layout(raw, (ATTEMPTS_NAMES, NOT_BEFORE_NAMES))
    changes: list[_Change] = []
    if attempts is not None:
        changes.extend(_attempts_change(layout, attempts))
    changes.extend(_due_change(layout, max(due, now), now))
    return _changed(layout, changes)


def failed(
    raw: bytes, *, attempts: int, not_before: datetime | None, error: str, failed_at: datetime
) -> bytes:
    """Return the entry after one more failure, under the names found; other bytes stay.

    `not_before` None leaves the time alone. `raw` must be readable.
    """
    layout = _layout(raw, (ATTEMPTS_NAMES, NOT_BEFORE_NAMES, ERROR_NAMES, FAILED_AT_NAMES))
    changes = [*_attempts_change(layout, attempts)]
    changes.append(_Change(layout.found(ERROR_NAMES), ERROR_NAMES[0], json.dumps(error)))
    changes.append(_time_change(layout, FAILED_AT_NAMES, failed_at))
    if not_before is not None:
        changes.append(_time_change(layout, NOT_BEFORE_NAMES, not_before, round_up=True))
    return _changed(layout, changes)


def new_payload(
    *,
    job_id: str | int,
    account_id: str | int | None,
    cost: int | None,
    attempts: int,
    not_before: datetime | None,
    error: str | None,
    failed_at: datetime | None,
) -> bytes:
    """Return a payload for a job that has none: compact, ASCII, integer ids as numbers."""
    document = {
        "job_id": job_id,
        "account_id": account_id,
        "cost": cost,
        "attempts": attempts,
        "not_before": format_time(not_before),
        "error": error,
        "failed_at": format_time(failed_at),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def digest(raw: bytes) -> str:
    """First 12 hex digits of the SHA-256 of the stored bytes: the entry's name on a list."""
    return hashlib.sha256(raw).hexdigest()[:DIGEST_LENGTH]


def sha256(raw: bytes) -> bytes:
    """Return the whole SHA-256: tells whether an entry is the very one that was written."""
    return hashlib.sha256(raw).digest()


def preview(raw: bytes, limit: int) -> str:
    """At most `limit` characters of the entry, for people; undecodable bytes as `\\xNN`.

    Control characters are left to the renderer, which escapes them like those of any text.
    """
    text = raw[: 4 * limit].decode(errors="backslashreplace")  # no character takes over 4 bytes
    whole = len(text) <= limit and len(raw) <= 4 * limit
    return text if whole else text[: max(limit - 1, 0)] + "…"


# --- reading -------------------------------------------------------------------------------


def _integer(digits: str) -> int | _Spelled:
    return int(digits) if len(digits) <= _DIGITS_MAX else _Spelled(digits)


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_Spelled, parse_constant=lambda _: _Literal()
)
# The same in less time, for texts so short that no number in them has too many digits.
_QUICK = json.JSONDecoder(parse_float=_Spelled, parse_constant=lambda _: _Literal())
_quick_value = _QUICK.scan_once  # type: ignore[attr-defined]  # what raw_decode calls
# A letter or underscore written as an escape: some key may be one of ours in disguise.
_DISGUISED = re.compile(r"\\u00(?:[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff])")
_EXACT_ONCE = (ID_NAMES, ATTEMPTS_NAMES, NOT_BEFORE_NAMES)
_SAID = (  # in the order of a payload's fields
    ID_NAMES,
    ACCOUNT_NAMES,
    COST_NAMES,
    ATTEMPTS_NAMES,
    NOT_BEFORE_NAMES,
    ERROR_NAMES,
    FAILED_AT_NAMES,
)


class _Shape(NamedTuple):
    """Describe which member says what in documents with these keys; None where none does."""

    job_id: Any
    account_id: Any
    cost: Any
    attempts: Any
    not_before: Any
    error: Any
    failed_at: Any
    unfit: str  # why no such document can be read, if so
    quoted: tuple[str, ...]  # the names that may stand only once, as they stand in the text


@lru_cache(maxsize=64)
def _shape(keys: tuple[str, ...]) -> _Shape:
    found = [_present(keys, names) for names in _SAID]
    job_id, _, _, attempts, not_before, _, _ = found
    unfit = "" if job_id else "no job id"
    for named in (attempts, not_before):
        if len(named) > 1 and not unfit:
            unfit = f"both {named[0]} and {named[1]} are given"
    quoted = tuple(f'"{named[0]}"' for named in (job_id, attempts, not_before) if named)
    return _Shape._make([*(named[0] if named else None for named in found), unfit, quoted])


def _present(keys: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Return those of these names that are keys, in the order of the names."""
    return [name for name in names if name in keys]


def _document(text: str) -> tuple[dict[str, object], _Shape]:
    """Return the top-level members by key; _Unfit for no object or a repeated key that matters."""
    if len(text) <= _DIGITS_MAX:
        try:
            document, end = _quick_value(text, 0)
            if type(document) is dict and end == len(text):
                shape = _shape(tuple(document))
                if not _may_repeat(text, shape):
                    return document, shape
        except (StopIteration, ValueError, RecursionError):
            pass  # read again by what tells more
    document = _decoded(text)
    shape = _shape.__wrapped__(tuple(document))
    return _document_by_members(text) if _may_repeat(text, shape) else document, shape


def _decoded(text: str) -> dict[str, object]:
    """Return the top-level members by key, the last of each; _Unfit for anything but an object."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        trouble = error.msg.removesuffix(" at")
        raise _Unfit(f"not JSON: {trouble} at character {error.pos}") from None
    except RecursionError:
        return _document_by_members(text)
    if type(value) is not dict:
        raise _Unfit("not a JSON object")
    return value


def _may_repeat(text: str, shape: _Shape) -> bool:
    """Return whether a key that matters might occur twice; the decoder keeps the last silently.

    Cheap and never wrongly false: a key spelled without escapes is found by its quoted name.
    """
    for quoted in shape.quoted:
        if text.count(quoted) != 1:
            return True
    return _is_disguised(text)


def _is_disguised(text: str) -> bool:
    return "\\" in text and _DISGUISED.search(text) is not None


def _document_by_members(text: str) -> dict[str, object]:
    members = _members(text)
    document = {member.key: member.value for member in members}
    if len(document) < len(members):
        keys = [member.key for member in members]
        for names in _EXACT_ONCE:
            name = next((name for name in names if name in document), None)
            if name is not None and keys.count(name) > 1:
                raise _Unfit(f"{name} is given twice")
    return document


def _interpreted(document: dict[str, object], shape: _Shape, raw: bytes) -> Payload:
    if shape.unfit:
        raise _Unfit(shape.unfit)
    value = document.get
    cost, error = value(shape.cost), value(shape.error)
    failed = value(shape.failed_at)
    failed_at = None if failed is None else _instant(failed)
    # In the order of the fields: by name takes twice as long, and there are a hundred thousand.
    return Payload(
        _exact_id(shape.job_id, value(shape.job_id)),
        _account_id(value(shape.account_id)),
        cost if type(cost) is int else _whole(cost),
        _attempts(value(shape.attempts)),
        _not_before(value(shape.not_before)),
        error if type(error) is str else _error(shape.error, error, raw),
        None if failed_at is None or _is_zero(failed_at) else failed_at,
        raw,
        failed is not None and failed_at is None,
    )


def _exact_id(name: str, value: object) -> str:
    if isinstance(value, str) and len(value) > LENGTH_MAX:
        raise _Unfit(f"{name} is longer than {LENGTH_MAX:,} characters")
    if type(value) is str and (value.isascii() or _is_unicode(value)):
        return value
    if type(value) is int:
        return str(value)
    if type(value) is _Spelled and value.lstrip("-").isdigit():
        return str(value)
    raise _Unfit(f"{name} is neither text nor a whole number in digits")


def _is_unicode(text: str) -> bool:
    """False with a lone surrogate (`"\\ud800"`), which no store can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _account_id(value: object) -> str | None:
    if type(value) is str:
        return sys.intern(value)  # a hundred thousand letters are of a few accounts
    return str(value) if type(value) is int else None


def _attempts(value: object) -> int:
    count = value if type(value) is int else 0 if value is None else _whole(value)
    if count is None or count < 0:
        raise _Unfit("attempts is not a whole number of at least 0")
    return count


def _error(name: str, value: object, raw: bytes) -> str | None:
    """Spell an error that is no text as its compact JSON, letter for letter; None for null."""
    if value is None:
        return None
    text = raw.decode()
    last = [member for member in _members(text) if member.key == name][-1]
    return _BETWEEN_TOKENS.sub(r"\1", text[last.start : last.end])


_BETWEEN_TOKENS = re.compile(r'("(?:[^"\\]|\\.)*+")|[ \t\n\r]+')


def _whole(value: object) -> int | None:
    """Return the whole number that a JSON number spells (2, 2.0, 2e0), exactly; else None."""
    if type(value) is int:
        return value
    number = _number(value)
    if number is None or number != int(number):
        return None
    return int(number)


def _number(value: object) -> int | Decimal | None:
    """Return the number, exactly; None for other values and for one that nobody counts up to."""
    if type(value) is int:
        return value
    if type(value) is not _Spelled:
        return None
    mantissa, _, exponent = value.lower().partition("e")
    if len(mantissa) > _DIGITS_MAX or len(exponent.lstrip("+-").lstrip("0")) > _EXPONENT_DIGITS_MAX:
        return None
    return Decimal(value)


# --- times ---------------------------------------------------------------------------------

# A Unix time's unit shows in its size: (size below which it is this unit, ticks per second).
_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9))
_TIME_DIGITS_MAX = 30


def _not_before(value: object) -> datetime | None:
    """Return the due time, None for due now; _Unfit for what is no time."""
    if value is None or value == "":
        return None
    instant = _instant(value)
    if instant is None:
        bare = type(value) is str and parse_rfc3339(f"{value}Z") is not None
        raise _Unfit("not_before has no offset" if bare else "not_before is not a time")
    return None if _is_zero(instant) else instant


def _instant(value: object) -> datetime | None:
    """Return the instant of RFC 3339 text, or of a Unix time in any unit, or its digits in text."""
    if type(value) is str:
        at = parse_rfc3339(value)
        return _unix_time(int(value)) if at is None and _is_digits(value) else at
    number = _number(value)
    return None if number is None else _unix_time(number)


def _is_zero(instant: datetime) -> bool:
    """Return whether it is what a language writes that has no time to write."""
    return instant == _EPOCH or instant.year == 1


def _is_digits(text: str) -> bool:
    return text.isdigit() and text.isascii() and len(text) <= _TIME_DIGITS_MAX


def _unix_time(number: int | Decimal) -> datetime | None:
    per_second = _ticks_per_second(number)
    if per_second is None:
        return None
    milliseconds = int(number * 1000 // per_second)
    return shifted(_EPOCH, timedelta(milliseconds=milliseconds))


def _ticks_per_second(number: int | Decimal) -> int | None:
    return next((per_second for below, per_second in _UNITS if -below < number < below), None)


# --- editing -------------------------------------------------------------------------------


class _Change(NamedTuple):
    """Hold a new spelling for a member's value, or for a new member at the end."""

    member: _Member | None
    name: str
    spelling: str


class _Layout(NamedTuple):
    """Describe where an edit may write: the members of interest, and the end of the last member."""

    text: str
    members: dict[str, _Member]
    end: int

    def found(self, names: tuple[str, ...]) -> _Member | None:
        """Return the member that reading takes: the first name present, the last of that name."""
        return next((self.members[name] for name in names if name in self.members), None)


def _layout(raw: bytes, families: Iterable[tuple[str, ...]]) -> _Layout:
    try:
        text = raw.decode()
        document, _ = _document(text)
    except ValueError as error:
        raise InvariantBroken("an unreadable entry cannot be edited") from error
    names = [name for names in families for name in names if name in document]
    if any(text.count(f'"{name}"') != 1 for name in names) or _is_disguised(text):
        members = {member.key: member for member in _members(text)}
    else:
        members = {name: _sole_member(text, name, document[name]) for name in names}
    return _Layout(text, members, _end_of_members(text))


def _end_of_members(text: str) -> int:
    """Return where the last member ends: before the closing brace and the space around it."""
    if text[-1] == "}" and text[-2] not in _SPACES:
        return len(text) - 1
    return len(text.rstrip(_SPACES)[:-1].rstrip(_SPACES))


def _sole_member(text: str, name: str, value: object) -> _Member:
    """Return the top-level member whose quoted name occurs nowhere else in the text."""
    after_key = text.index(f'"{name}"') + len(name) + 2
    start = _expect(_COLON, text, after_key).end()
    return _Member(name, value, start, _value(text, start)[1])


def _attempts_change(layout: _Layout, attempts: int) -> Iterator[_Change]:
    """Return no change when the count is that already, however spelled, or absent and 0."""
    member = layout.found(ATTEMPTS_NAMES)
    stays = attempts == 0 if member is None else _whole(member.value) == attempts
    if not stays:
        yield _Change(member, ATTEMPTS_NAMES[0], str(attempts))


def _due_change(layout: _Layout, due: datetime, now: datetime) -> Iterator[_Change]:
    member = layout.found(NOT_BEFORE_NAMES)
    means_now = member is None or _not_before(member.value) is None
    if not means_now or due > now:
        yield _time_change(layout, NOT_BEFORE_NAMES, due, round_up=due > now)


def _time_change(
    layout: _Layout, names: tuple[str, ...], at: datetime, *, round_up: bool = False
) -> _Change:
    """Return the new time: a number stays a number in its unit, else RFC 3339 text."""
    member = layout.found(names)
    value = None if member is None else member.value
    number = _number(value)
    unit = None if number is None else _ticks_per_second(number)
    if unit is None:
        return _Change(member, names[0], _quoted_time(at))
    spelling = _unix_spelling(at, unit, fraction="." in str(value), round_up=round_up)
    return _Change(member, names[0], spelling)


@lru_cache(maxsize=8)  # most entries of one command are due at one instant
def _quoted_time(at: datetime) -> str:
    return f'"{format_time(at)}"'


def _unix_spelling(at: datetime, per_second: int, *, fraction: bool, round_up: bool) -> str:
    """Return the Unix time in that unit, whole unless one with a point was there.

    A delay is rounded up, so that nothing is due before it is over. Kept within the sizes by which
    the unit is told, or it would be read back in another.
    """
    milliseconds = (at - _EPOCH) // _MILLISECOND
    if fraction and per_second == 1:
        return str(Decimal(milliseconds).scaleb(-3))
    below = {unit: size for size, unit in _UNITS}[per_second]
    at_least = 0 if per_second == 1 else below // 1000
    ticks = (milliseconds * per_second + (999 if round_up else 0)) // 1000
    return str(min(max(ticks, at_least), below - 1))


def _changed(layout: _Layout, changes: Iterable[_Change]) -> bytes:
    replaced: list[tuple[int, int, str]] = []
    added = ""
    for member, name, spelling in changes:
        if member is None:
            added += f',"{name}":{spelling}'
        else:
            replaced.append((member.start, member.end, spelling))
    parts: list[str] = []
    at = 0
    for start, end, spelling in [*sorted(replaced), (layout.end, layout.end, added)]:
        parts += (layout.text[at:start], spelling)
        at = end
    parts.append(layout.text[at:])
    return "".join(parts).encode()


# --- scanning ------------------------------------------------------------------------------

_SPACES = " \t\n\r"
_SPACE = re.compile(r"[ \t\n\r]*+")
_OPEN = re.compile(r"[ \t\n\r]*+\{[ \t\n\r]*+")
_COLON = re.compile(r"[ \t\n\r]*+:[ \t\n\r]*+")
_NEXT = re.compile(r"[ \t\n\r]*+([,}])[ \t\n\r]*+")
_SCALAR = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
    r"|true|false|null|NaN|-?Infinity"
    r'|"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\\x00-\x1f]*+)*+"'
)
_CLOSERS = {"{": "}", "[": "]"}


def _members(text: str) -> list[_Member]:
    """Return every top-level member in order, repeats too; _Unfit when it is no JSON object."""
    opening = _OPEN.match(text)
    if opening is None:
        raise _Unfit("not a JSON object")
    at = opening.end()
    members: list[_Member] = []
    more = not text.startswith("}", at)
    while more:
        key, start = _key(text, at)
        value, end = _value(text, start)
        members.append(_Member(key, value, start, end))
        following = _expect(_NEXT, text, end)
        at = following.end()
        more = following[1] == ","
    if not members:
        at = _skip_space(text, at + 1)
    if at != len(text):
        raise _malformed(at)
    return members


def _key(text: str, at: int) -> tuple[str, int]:
    """Return the key that starts there, decoded, and where its value starts."""
    if not text.startswith('"', at):
        raise _malformed(at)
    key, end = _value(text, at)
    return str(key), _expect(_COLON, text, end).end()


def _value(text: str, start: int) -> tuple[object, int]:
    """Return the value that starts there and where it ends."""
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _malformed(error.pos) from None
    except RecursionError:
        return _Opaque(), _value_end(text, start)


def _value_end(text: str, at: int) -> int:
    """Return where the value that starts there ends, however deep it is nested."""
    closers: list[str] = []
    while True:
        at, complete = _step_in(text, at, closers)
        while complete and closers:
            at, complete = _step_on(text, _skip_space(text, at), closers)
        if complete:
            return at


def _step_in(text: str, at: int, closers: list[str]) -> tuple[int, bool]:
    """Past a scalar or an empty container (then True), or to the first value of another."""
    closer = _CLOSERS.get(text[at : at + 1])
    if closer is None:
        return _expect(_SCALAR, text, at).end(), True
    at = _skip_space(text, at + 1)
    if text.startswith(closer, at):
        return at + 1, True
    closers.append(closer)
    return _to_value(text, at, closer), False


def _step_on(text: str, at: int, closers: list[str]) -> tuple[int, bool]:
    """Past the end of the innermost container (then True), or to its next value."""
    if text.startswith(closers[-1], at):
        closers.pop()
        return at + 1, True
    if not text.startswith(",", at):
        raise _malformed(at)
    return _to_value(text, _skip_space(text, at + 1), closers[-1]), False


def _to_value(text: str, at: int, closer: str) -> int:
    return _key(text, at)[1] if closer == "}" else at


def _skip_space(text: str, at: int) -> int:
    return _expect(_SPACE, text, at).end()


def _expect(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    match = pattern.match(text, at)
    if match is None:
        raise _malformed(at)
    return match


def _malformed(at: int) -> _Unfit:
    return _Unfit(f"not JSON: malformed at character {at}")
