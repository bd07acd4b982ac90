"""Whatever JSON a worker writes, an edit changes the two values it is meant to and no other byte."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from ledgerctl.domain.payload import (
    ATTEMPTS_NAMES,
    ERROR_NAMES,
    FAILED_AT_NAMES,
    ID_NAMES,
    NOT_BEFORE_NAMES,
    Payload,
    Unreadable,
    failed,
    preview,
    read_payload,
    requeued,
)
from ledgerctl.domain.times import format_time

NOW = datetime(2026, 3, 8, 9, 15, 2, 435000, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SET_BY_FAILURE = {*ATTEMPTS_NAMES, *NOT_BEFORE_NAMES, *ERROR_NAMES, *FAILED_AT_NAMES}
# A busy machine is slow, not wrong.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
thorough = settings(steady, max_examples=300)
OURS = {*ID_NAMES, *ATTEMPTS_NAMES, *NOT_BEFORE_NAMES}


# --- texts that a worker might write ---

spaces = st.text(" \t\n\r", max_size=3)
SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t", "\x08": "\\b"}


@st.composite
def spelled_strings(draw: st.DrawFn, text: str) -> str:
    """The string as JSON, each character as itself, in short or as `\\uXXXX`."""
    spelling = ""
    for character in text:
        units = character.encode("utf-16-be", "surrogatepass")
        escaped = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        forms = [escaped, escaped.upper().replace("\\U", "\\u")]
        if character not in '"\\' and character >= " " and not "\ud800" <= character <= "\udfff":
            forms += [character] * 6
        if character in SHORT_ESCAPES:
            forms.append(SHORT_ESCAPES[character])
        spelling += draw(st.sampled_from(forms))
    return f'"{spelling}"'


any_text = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["<b>&", "\u2028", "\ud800", "\U0001f600", '"attempts":9', "attempts", "0001-01-01T00:00:00Z"]
)
strings = any_text.flatmap(spelled_strings)
numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["-0", "12.50", "1E+2", "0.30000000000000004", "1e999999999", "9" * 5000]),
)
scalars = strings | numbers | st.sampled_from(["true", "false", "null", "NaN"])


@st.composite
def containers(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(values, max_size=3))
    gaps = [draw(spaces) for _ in range(2 * len(items) + 1)]
    opening, closing = "[]"
    if draw(st.booleans()):
        opening, closing = "{}"
        keys = st.sampled_from(sorted(OURS)).flatmap(spelled_strings) | strings
        items = [f"{draw(keys)}{draw(spaces)}:{draw(spaces)}{item}" for item in items]
    padded = [f"{gaps[2 * at]}{item}{gaps[2 * at + 1]}" for at, item in enumerate(items)]
    return opening + (",".join(padded) or gaps[-1]) + closing


values = st.recursive(scalars, containers, max_leaves=6) | st.sampled_from(
    ["[" * 3000 + "]" * 3000, '{"attempts":' * 3000 + "1" + "}" * 3000]
)


@dataclass(frozen=True)
class Member:
    """One member, in the pieces it is written in, and its key as it reads."""

    key: str
    before: str
    value: str
    after: str

    def text(self) -> str:
        return self.before + self.value + self.after


@st.composite
def members(draw: st.DrawFn, key: str, value: str) -> Member:
    spelled = draw(spelled_strings(key) | st.just(json.dumps(key)))
    before = f"{draw(spaces)}{spelled}{draw(spaces)}:{draw(spaces)}"
    return Member(key, before, value, draw(spaces))


def written(entry: list[Member], lead: str, trail: str) -> str:
    return lead + "{" + ",".join(member.text() for member in entry) + "}" + trail


# --- the two values an edit is about, each with its meaning ---


@dataclass(frozen=True)
class Spelling:
    value: str
    means: object


@st.composite
def counts(draw: st.DrawFn) -> Spelling:
    count = draw(st.integers(0, 2000) | st.sampled_from([46, 47, 1024, 1_000_000, 2**63]))
    forms = [str(count), f"{count}.0", f"{count}.000", f"{count}.0e+00", f"{count}E0"]
    forms += [f"{count}0e-1"] if count else ["null", "-0", "0e5"]
    return Spelling(draw(st.sampled_from(forms)), count)


instants = st.integers(10**11, 10**13).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
UNITS = {"s": 1, "ms": 10**3, "µs": 10**6, "ns": 10**9}


@st.composite
def times(draw: st.DrawFn) -> tuple[Spelling, str]:
    """A time that is none of the sentinels, and how an edit writes it: text, s, float s, ms…"""
    instant = draw(instants)
    milliseconds = (instant - EPOCH) // timedelta(milliseconds=1)
    kind = draw(st.sampled_from(["text", "digits", "float s", *UNITS]))
    if kind == "text":
        offset = draw(st.sampled_from(["Z", "+00:00", "-00:00", "+05:30", "-10", "z"]))
        text = rfc3339(instant, offset) + draw(st.sampled_from(["", "0", "955200", "9" * 12]))
        return Spelling(draw(spelled_strings(text + offset)), instant), kind
    if kind == "float s":
        return Spelling(f"{milliseconds // 1000}.{milliseconds % 1000:03d}", instant), kind
    unit = kind if kind in UNITS else draw(st.sampled_from(sorted(UNITS)))
    ticks = milliseconds * UNITS[unit] // 1000
    read_back = EPOCH + timedelta(milliseconds=ticks * 1000 // UNITS[unit])
    if kind == "digits":
        return Spelling(f'"{ticks}"', read_back), "text"
    return Spelling(str(ticks), read_back), kind


def rfc3339(instant: datetime, offset: str) -> str:
    east = {"+05:30": timedelta(hours=5.5), "-10": -timedelta(hours=10)}.get(offset, timedelta(0))
    return (instant + east).replace(tzinfo=None).isoformat(timespec="milliseconds")


TEXT_SENTINELS = ['"0001-01-01T00:00:00Z"', '"1970-01-01T00:00:00Z"', '""', "null", '"0"']
sentinels = st.sampled_from(
    [(Spelling(value, None), "text") for value in TEXT_SENTINELS]
    + [(Spelling("0", None), "s"), (Spelling("0.0", None), "float s")]
    + [(Spelling("-62135596800", None), "s")]
)


def time_as_written(at: datetime, kind: str) -> str:
    milliseconds = (at - EPOCH) // timedelta(milliseconds=1)
    if kind == "text":
        return f'"{format_time(at)}"'
    if kind == "float s":
        return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"
    round_up = 999 if at > NOW else 0
    return str((milliseconds * UNITS[kind] + round_up) // 1000)


@dataclass(frozen=True)
class Entry:
    """A payload in pieces, so that what an edit should leave behind can be written out."""

    members: list[Member]
    lead: str
    trail: str
    count: Spelling | None
    time: Spelling | None
    kind: str

    def text(self) -> str:
        return written(self.members, self.lead, self.trail)

    def edited(self, attempts: int | None, due: datetime) -> str:
        """The text as the contract wants it after a requeue."""
        new: dict[str, str] = {}
        if attempts is not None and self.count is not None:
            same = self.count.means == attempts and self.count.value != "null"
            new |= {name: self.count.value if same else str(attempts) for name in ATTEMPTS_NAMES}
        if self.time is not None and (self.time.means is not None or due > NOW):
            new |= {name: time_as_written(due, self.kind) for name in NOT_BEFORE_NAMES}
        kept = [replace(each, value=new.get(each.key, each.value)) for each in self.members]
        added = [Member("", '"attempts":', str(attempts), "")] * (
            self.count is None and attempts not in (None, 0)
        )
        if self.time is None and due > NOW:
            added.append(Member("", '"not_before":', time_as_written(due, "text"), ""))
        if added:
            *_, last = kept
            kept[-1], added[-1] = replace(last, after=""), replace(added[-1], after=last.after)
        return written([*kept, *added], self.lead, self.trail)


other_keys = any_text.filter(lambda key: key not in OURS)
job_ids = st.text(st.characters(codec="utf-8"), max_size=8)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """An entry with an exact id, each of attempts and not_before at most once, and other keys."""
    name = draw(st.sampled_from(ID_NAMES))
    job_id = draw(job_ids.flatmap(spelled_strings) | st.integers(-(2**70), 2**70).map(str))
    parts = [draw(members(name, job_id))]
    count = draw(st.none() | counts())
    if count is not None:
        parts.append(draw(members(draw(st.sampled_from(ATTEMPTS_NAMES)), count.value)))
    time, kind = draw(st.just((None, "text")) | times() | sentinels)
    if time is not None:
        parts.append(draw(members(draw(st.sampled_from(NOT_BEFORE_NAMES)), time.value)))
    for key, value in draw(st.lists(st.tuples(other_keys, values), max_size=4)):
        parts.append(draw(members(key, value)))
    return Entry(draw(st.permutations(parts)), draw(spaces), draw(spaces), count, time, kind)


dues = st.just(NOW) | st.integers(1, 10**10).map(lambda ms: NOW + timedelta(milliseconds=ms))


def read(text: str) -> Payload:
    payload = read_payload(text.encode())
    assert isinstance(payload, Payload), payload
    return payload


@steady
@given(entry=entries())
def test_reading_finds_the_count_and_the_time_however_they_are_spelled(entry: Entry) -> None:
    payload = read(entry.text())
    assert payload.attempts == (0 if entry.count is None else entry.count.means)
    assert payload.not_before == (None if entry.time is None else entry.time.means)


@thorough
@given(entry=entries(), attempts=st.none() | st.integers(0, 50), due=dues)
def test_an_edit_changes_the_two_values_and_no_other_byte(
    entry: Entry, attempts: int | None, due: datetime
) -> None:
    event(f"{entry.kind}, {'at once' if due == NOW else 'delayed'}")
    before = entry.text().encode()
    after = requeued(before, attempts=attempts, due=due, now=NOW)
    assert after.decode() == entry.edited(attempts, due)
    assert requeued(after, attempts=attempts, due=due, now=NOW) == after


@steady
@given(entry=entries(), attempts=st.integers(0, 50), due=dues)
def test_reading_an_edited_entry_gives_the_new_values(
    entry: Entry, attempts: int, due: datetime
) -> None:
    before = read(entry.text())
    after = read_payload(requeued(before.raw, attempts=attempts, due=due, now=NOW))
    assert isinstance(after, Payload)
    assert after.attempts == attempts
    assert after.job_id == before.job_id
    if due > NOW or before.not_before is not None:
        assert after.not_before is not None
        late = after.not_before - due
        assert timedelta(0) <= late < timedelta(seconds=1) if due > NOW else late <= timedelta(0)
    else:
        assert after.not_before is None


@steady
@given(entry=entries(), attempts=st.integers(0, 50), error=st.text(max_size=20), due=dues)
def test_a_failure_is_read_back_and_leaves_other_members_alone(
    entry: Entry, attempts: int, error: str, due: datetime
) -> None:
    text = failed(
        entry.text().encode(), attempts=attempts, not_before=due, error=error, failed_at=NOW
    ).decode()
    payload = read(text)
    assert (payload.attempts, payload.error) == (attempts, error)
    for member in entry.members:
        if member.key not in SET_BY_FAILURE:
            assert member.text().rstrip() in text


# --- texts that nobody should have written ---

repeated = st.lists(
    st.sampled_from(["job_id", "id", "attempts", "Attempts", "not_before", "NotBefore", "x"]),
    max_size=5,
)


@steady
@given(keys=repeated, spell=st.booleans())
def test_an_entry_is_readable_when_each_key_that_matters_is_given_once(
    keys: list[str], spell: bool
) -> None:
    def spelling(key: str) -> str:
        return f'"\\u{ord(key[0]):04x}{key[1:]}"' if spell else f'"{key}"'

    text = "{" + ",".join(f"{spelling(key)}:1" for key in keys) + "}"
    identity = "job_id" if "job_id" in keys else "id"
    readable = (
        keys.count(identity) == 1
        and keys.count("attempts") + keys.count("Attempts") <= 1
        and keys.count("not_before") + keys.count("NotBefore") <= 1
    )
    assert isinstance(read_payload(text.encode()), Payload) == readable


@thorough
@given(raw=st.binary(max_size=60))
@example(raw=b"\xef\xbb\xbf{}")
def test_no_bytes_raise(raw: bytes) -> None:
    assert isinstance(read_payload(raw), Payload | Unreadable)
    assert len(preview(raw, 10)) <= 10


@thorough
@given(entry=entries(), cut=st.floats(0, 1), patch=st.binary(max_size=3), drop=st.integers(0, 3))
def test_a_damaged_entry_is_read_as_python_reads_it_or_not_at_all(
    entry: Entry, cut: float, patch: bytes, drop: int
) -> None:
    raw = entry.text().encode()
    at = int(cut * len(raw))
    damaged = raw[:at] + patch + raw[at + drop :]
    payload = read_payload(damaged)
    if isinstance(payload, Payload) and damaged.count(b"[") + damaged.count(b"{") < 100:
        document = json.loads(damaged, parse_int=str, parse_float=str)
        assert payload.job_id in document.values()
        edited = requeued(damaged, attempts=3, due=NOW, now=NOW)
        assert read(edited.decode()).attempts == 3
