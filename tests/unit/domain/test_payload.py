"""Payloads of any writer are read, or named unreadable, and edited without moving another byte."""

import json
from datetime import UTC, datetime, timedelta
from time import process_time

import pytest

from ledgerctl.domain.payload import (
    Payload,
    Unreadable,
    digest,
    failed,
    new_payload,
    preview,
    read_payload,
    requeued,
)
from ledgerctl.domain.times import format_time
from ledgerctl.errors import InvariantBroken

NOW = datetime(2026, 3, 8, 9, 15, 2, 435000, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)
NOW_TEXT = "2026-03-08T09:15:02.435Z"
LATER_TEXT = "2026-03-08T09:25:02.435Z"
NOW_S = 1772961302


def read(text: str | bytes) -> Payload:
    payload = read_payload(text if isinstance(text, bytes) else text.encode())
    assert isinstance(payload, Payload), payload
    return payload


def refusal(text: str | bytes) -> str:
    unreadable = read_payload(text if isinstance(text, bytes) else text.encode())
    assert isinstance(unreadable, Unreadable), unreadable
    return unreadable.why


def requeue(text: str, *, attempts: int | None = 0, due: datetime = NOW) -> str:
    return requeued(text.encode(), attempts=attempts, due=due, now=NOW).decode()


# --- what an entry says ---


def test_an_entry_as_this_project_writes_it_is_read_whole() -> None:
    raw = (
        b'{"job_id":"j-1","account_id":"acct-7","cost":40,"attempts":3,'
        b'"not_before":"2026-03-08T09:15:02.435Z","error":"timeout","failed_at":'
        b'"2026-03-08T09:25:02.435Z"}'
    )
    assert read(raw) == Payload("j-1", "acct-7", 40, 3, NOW, "timeout", LATER, raw)


def test_a_go_workers_entry_is_read() -> None:
    payload = read(
        '{"JobID":"a1","url":"?a=1\\u0026b=2","cost":12.50,"payload":"eyJhIjoxfQ==",'
        '"NotBefore":"2026-03-08T09:15:02.4359552-10:00"}'
    )
    assert payload.job_id == "a1"
    assert payload.attempts == 0
    assert payload.cost is None
    assert format_time(payload.not_before) == "2026-03-08T19:15:02.435Z"


@pytest.mark.parametrize(
    ("text", "job_id"),
    [
        ('{"job_id":"j-1"}', "j-1"),
        ('{"JobID":"j-1"}', "j-1"),
        ('{"jobId":"j-1"}', "j-1"),
        ('{"id":"j-1"}', "j-1"),
        ('{"ID":"j-1"}', "j-1"),
        ('{"_id":"j-1"}', "j-1"),
        ('{"_id":"other","id":"another","job_id":"j-1"}', "j-1"),
        ('{"id":7,"user":{"id":8,"attempts":"x"}}', "7"),
        ('{"job_id":9007199254740993}', "9007199254740993"),
        ('{"job_id":' + "9" * 9000 + "}", "9" * 9000),
        ('{"job_id":"5\\u20ac \\ud83d\\ude00"}', "5€ 😀"),
        ('{"job_\\u0069d":"j-1"}', "j-1"),
    ],
)
def test_the_id_is_the_first_name_present_and_exact(text: str, job_id: str) -> None:
    assert read(text).job_id == job_id


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"job":"j-1"}',
        '{"job_id":null,"id":"j-1"}',
        '{"job_id":1.0}',
        '{"job_id":1e5}',
        '{"job_id":true}',
        '{"job_id":["j-1"]}',
        '{"job_id":{"$oid":"j-1"}}',
        '{"job_id":NaN}',
        '{"job_id":"\\ud800"}',
        '{"job_id":"j-1","job_id":"j-1"}',
        '{"job_id":"j-1","job_\\u0069d":"j-2"}',
    ],
)
def test_an_id_that_is_not_exact_makes_the_entry_unreadable(text: str) -> None:
    assert "id" in refusal(text)


@pytest.mark.parametrize(
    ("spelling", "attempts"),
    [
        ("0", 0),
        ("3", 3),
        ("2.0", 2),
        ("2e0", 2),
        ("20e-1", 2),
        ("-0.0", 0),
        ("null", 0),
        ("1e3", 1000),
        ("1000000", 1000000),
    ],
)
def test_attempts_are_a_whole_number_however_spelled(spelling: str, attempts: int) -> None:
    assert read(f'{{"id":"j","attempts":{spelling}}}').attempts == attempts
    assert read(f'{{"id":"j","Attempts":{spelling}}}').attempts == attempts


@pytest.mark.parametrize(
    "spelling",
    [
        '"2"',
        '""',
        "-1",
        "1.5",
        "2.0000000000000000001",
        "1e-1",
        "true",
        "false",
        "NaN",
        "Infinity",
        "-Infinity",
        "[]",
        "{}",
        "1e999999999",
        "1" * 9000,
        '1,"attempts":1',
        '1,"Attempts":1',
        'null,"Attempts":null',
        '1,"attempt\\u0073":2',
    ],
)
def test_attempts_that_could_be_miscounted_make_the_entry_unreadable(spelling: str) -> None:
    assert "ttempts" in refusal(f'{{"id":"j","attempts":{spelling}}}')


@pytest.mark.parametrize("name", ["not_before", "NotBefore", "notBefore"])
@pytest.mark.parametrize(
    "spelling",
    [
        "null",
        '""',
        "0",
        "0.0",
        '"0"',
        "-62135596800",
        "-62135596800000",
        '"0001-01-01T00:00:00Z"',
        '"0001-01-01T00:00:00+05:00"',
        '"1970-01-01T00:00:00Z"',
        '"1970-01-01T01:00:00+01:00"',
    ],
)
def test_a_sentinel_time_means_due_now(name: str, spelling: str) -> None:
    payload = read(f'{{"id":"j","{name}":{spelling}}}')
    assert payload.not_before is None
    assert payload.is_due(NOW)


@pytest.mark.parametrize(
    "spelling",
    [
        f'"{NOW_TEXT}"',
        '"2026-03-08T10:15:02.4359552+01:00"',
        "1772961302.435",
        "1772961302435",
        "1772961302435955",
        "1772961302435955200",
        "1.772961302435955200e18",
        '"1772961302435"',
        '"1772961302435955200"',
    ],
)
def test_a_time_is_read_in_whichever_unit_its_size_tells(spelling: str) -> None:
    payload = read(f'{{"id":"j","not_before":{spelling}}}')
    assert payload.not_before == NOW
    assert payload.is_due(NOW)
    assert not payload.is_due(NOW - timedelta(milliseconds=1))


@pytest.mark.parametrize(
    "spelling",
    [
        '"soon"',
        '"2026-03-08"',
        '"2026-03-08T09:15:02"',
        "true",
        "[]",
        "{}",
        "NaN",
        '" "',
        "1e20",
        "-1e20",
        "100000000000000000000",
        '"100000000000000000000"',
        '"1772961302.5"',
        '"٠"',
        '"1_000"',
        f'"{"9" * 9000}"',
        'null,"NotBefore":null',
        '0,"not_before":0',
    ],
)
def test_what_is_no_time_makes_the_entry_unreadable(spelling: str) -> None:
    assert "efore" in refusal(f'{{"id":"j","not_before":{spelling}}}')


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"j-1"',
        b"7",
        b"not json",
        b'{"id":"j"',
        b'{"id":"j",}',
        b'{"id":"j"} x',
        b'{"id":"j"}{"id":"k"}',
        b"{'id':'j'}",
        b'{"id":"a\nb"}',
        b'{"id":"j","a":01}',
        b'{"id":"j","a":"\\x"}',
        b'\xef\xbb\xbf{"id":"j"}',
        b'{"a":"\xff"}',
        b'{"id":"\xed\xa0\x80"}',
        b"\x80\x04\x95pickle",
        b"[" * 100_000,
        b'{"id":"j","a":' + b"[" * 100_000,
        b'{"id":"j","a":' + b"[" * 100_000 + b"]" * 99_999 + b"}",
        b'{"id":"j","a":' + b'{"":' * 100_000 + b"1" + b"}" * 99_999 + b",}}",
        b'{"id":"j","a":' + b"[" * 100_000 + b"1 1" + b"]" * 100_000 + b"}",
    ],
)
def test_anything_but_one_json_object_is_unreadable_and_never_raises(raw: bytes) -> None:
    assert refusal(raw)


@pytest.mark.parametrize("spelled", [b'"%s"' % (b"x" * 1_000_001), b"9" * 1_000_001])
def test_an_id_that_no_query_can_hold_makes_the_entry_unreadable(spelled: bytes) -> None:
    why = "job_id is longer than 1,000,000 characters"
    assert read_payload(b'{"job_id":%s}' % spelled) == Unreadable(why)


@pytest.mark.parametrize("name", ["x" * 1_000_000, "9" * 1_000_000])
def test_a_large_entry_and_the_longest_id_are_read(name: str) -> None:
    spelled = name if name.isdigit() else f'"{name}"'
    raw = f'{{"job_id":{spelled},"note":"{"x" * 20_000_000}"}}'.encode()
    read = read_payload(raw)
    assert isinstance(read, Payload)
    assert read.job_id == name


@pytest.mark.parametrize(
    "value",
    [
        "[" * 10_000 + "]" * 10_000,
        '{"a" : [ ' * 10_000 + "1" + ' ] , "b":[ ] }' * 10_000,
        "9" * 10_000,
        "1e999999999",
        "NaN",
        '"\\ud800 \\" \\\\"',
        '{"attempts":"x","not_before":true}',
    ],
)
def test_odd_values_under_other_keys_are_passed_over_and_kept(value: str) -> None:
    before = f'{{"id":"j","odd":{value},"attempts":3 }}\n'
    assert read(before).attempts == 3
    assert requeue(before) == before.replace('"attempts":3 ', '"attempts":0 ')


def test_other_fields_are_read_as_far_as_they_make_sense() -> None:
    payload = read('{"id":7,"AccountID":9,"Cost":4e1,"last_error":"x","FailedAt":1772961302435}')
    assert payload[:7] == ("7", "9", 40, 0, None, "x", NOW)
    payload = read('{"id":7,"account_id":[],"cost":"4","error":{"message":"m"},"failed_at":"?"}')
    assert payload[:7] == ("7", None, None, 0, None, '{"message":"m"}', None)


def test_a_large_entry_is_read_and_edited_in_linear_time() -> None:
    def seconds(size: int) -> float:
        text = '{{"id":"j","attempts":1,"a":"{}","b":[{}]}}'.format(
            "é\\n" * size, "1," * size + "1"
        )
        start = process_time()
        assert len(requeue(text, attempts=2)) == len(text)
        assert len(requeue(text.replace('"b"', '"\\u0062"'), attempts=2)) == len(text) + 5
        return process_time() - start

    small = min(seconds(20_000) for _ in range(3))
    assert seconds(200_000) < 40 * small


# --- what a requeue changes ---


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"id":"j"}', '{"id":"j"}'),
        ('{"id":"j","attempts":5}', '{"id":"j","attempts":0}'),
        ('{"id":"j","Attempts" : 5.0 , "x":1}', '{"id":"j","Attempts" : 0 , "x":1}'),
        ('{"id":"j","attempts":0.0}', '{"id":"j","attempts":0.0}'),
        ('{"id":"j","attempts":null}', '{"id":"j","attempts":0}'),
        ('{"attempt\\u0073":5,"id":"j"}', '{"attempt\\u0073":0,"id":"j"}'),
        (
            '{"id":"j","inner":{"attempts":5},"attempts":5}',
            '{"id":"j","inner":{"attempts":5},"attempts":0}',
        ),
        (
            '{"inner":{"attempts":5},"attempt\\u0073":5,"id":"j"}',
            '{"inner":{"attempts":5},"attempt\\u0073":0,"id":"j"}',
        ),
        ('{"id":"j","not_before":null}', '{"id":"j","not_before":null}'),
        ('{"id":"j","not_before":""}', '{"id":"j","not_before":""}'),
        ('{"id":"j","not_before":0}', '{"id":"j","not_before":0}'),
        ('{"id":"j","NotBefore":"0001-01-01T00:00:00Z"}',) * 2,
        (
            '{"NotBefore":"2020-01-01T00:00:00.123456789+02:00","id":"j"}',
            f'{{"NotBefore":"{NOW_TEXT}","id":"j"}}',
        ),
        ('{"id":"j","notBefore":1.5e9}', '{"id":"j","notBefore":1772961302.435}'),
        ('{"id":"j","notBefore":1500000000}', '{"id":"j","notBefore":1772961302}'),
        ('{"id":"j","notBefore":1500000000000}', '{"id":"j","notBefore":1772961302435}'),
        ('{"id":"j","notBefore":1500000000000000}', '{"id":"j","notBefore":1772961302435000}'),
        (
            '{"id":"j","notBefore":1500000000000000000}',
            '{"id":"j","notBefore":1772961302435000000}',
        ),
        ('{"id":"j","not_before":"1500000000"}', f'{{"id":"j","not_before":"{NOW_TEXT}"}}'),
        ('{"not_before":99999999999,"id":"j"}', '{"not_before":1772961302,"id":"j"}'),
    ],
)
def test_a_requeue_at_once_sets_existing_times_to_now_and_leaves_sentinels(
    before: str, after: str
) -> None:
    assert requeue(before) == after
    assert requeue(after) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"id":"j"}', f'{{"id":"j","not_before":"{LATER_TEXT}"}}'),
        (' { "id" : "j" } \r\n', f' {{ "id" : "j","not_before":"{LATER_TEXT}" }} \r\n'),
        ('{"not_before":null,"id":"j"}', f'{{"not_before":"{LATER_TEXT}","id":"j"}}'),
        ('{"not_before":"","id":"j"}', f'{{"not_before":"{LATER_TEXT}","id":"j"}}'),
        ('{"not_before":0,"id":"j"}', f'{{"not_before":{NOW_S + 601},"id":"j"}}'),
        ('{"not_before":"0","id":"j"}', f'{{"not_before":"{LATER_TEXT}","id":"j"}}'),
        (
            '{"not_before":"0001-01-01T00:00:00Z","id":"j"}',
            f'{{"not_before":"{LATER_TEXT}","id":"j"}}',
        ),
        ('{"not_before":1500000000000,"id":"j"}', '{"not_before":1772961902435,"id":"j"}'),
    ],
)
def test_a_delayed_requeue_sets_or_adds_the_time(before: str, after: str) -> None:
    assert requeue(before, due=LATER) == after
    assert requeue(after, due=LATER) == after


def test_a_due_time_in_the_past_counts_as_now() -> None:
    before = '{"id":"j","not_before":"2020-01-01T00:00:00Z"}'
    assert requeue(before, due=NOW - timedelta(days=1)) == requeue(before)


def test_attempts_are_added_before_the_time_and_only_when_they_count() -> None:
    assert requeue('{"id":"j"}', attempts=2) == '{"id":"j","attempts":2}'
    assert requeue('{"id":"j"}', attempts=2, due=LATER) == (
        f'{{"id":"j","attempts":2,"not_before":"{LATER_TEXT}"}}'
    )


def test_kept_attempts_keep_their_spelling() -> None:
    assert requeue('{"id":"j","attempts":2.0}', attempts=None) == '{"id":"j","attempts":2.0}'
    assert requeue('{"id":"j","attempts":null}', attempts=None) == '{"id":"j","attempts":null}'


@pytest.mark.parametrize("spelling", ["1500000000", "1500000000000", "1500000000000000"])
def test_a_far_time_stays_within_the_sizes_of_its_unit(spelling: str) -> None:
    far = datetime(9999, 12, 31, tzinfo=UTC)
    after = requeue(f'{{"id":"j","not_before":{spelling}}}', due=far)
    not_before = read(after).not_before
    assert not_before is not None
    assert not_before > datetime(5000, 1, 1, tzinfo=UTC)


def test_every_field_but_the_two_is_the_same_digit_for_digit() -> None:
    before = (
        '{ "tags":[], "n":9007199254740993,"at":"2026-03-08T09:15:02.4359552-10:00",\t'
        '"f":0.30000000000000004, "z":12.50,"u":"\\u003cb\\u003e\\/é","job_id":"j",'
        '"attempts":4,"b64":"eyJhdHRlbXB0cyI6NH0="}\n'
    )
    assert requeue(before) == before.replace('"attempts":4', '"attempts":0')


def test_a_failure_sets_four_members_and_leaves_the_rest() -> None:
    before = '{"Error":"old","id":"j","tags":[ ],"FailedAt":1500000000000,"attempts":1}'
    after = failed(
        before.encode(), attempts=2, not_before=LATER, error='é "x"\n', failed_at=NOW
    ).decode()
    assert after == (
        '{"Error":"\\u00e9 \\"x\\"\\n","id":"j","tags":[ ],"FailedAt":1772961302435,"attempts":2,'
        f'"not_before":"{LATER_TEXT}"}}'
    )
    assert read(after)[:7] == ("j", None, None, 2, LATER, 'é "x"\n', NOW)


def test_a_failure_on_its_way_to_the_dead_letters_keeps_its_time() -> None:
    after = failed(b'{"id":"j"}', attempts=5, not_before=None, error="x", failed_at=NOW)
    assert after.decode() == f'{{"id":"j","attempts":5,"error":"x","failed_at":"{NOW_TEXT}"}}'


@pytest.mark.parametrize("raw", [b"", b'{"id":', b"\xff", b'{"id":"j","id":"j"}'])
def test_editing_an_unreadable_entry_is_a_bug(raw: bytes) -> None:
    with pytest.raises(InvariantBroken):
        requeued(raw, attempts=0, due=NOW, now=NOW)


@pytest.mark.parametrize("job_id", ["j-1", "é\u202e", 9007199254740993])
def test_a_new_payload_is_ascii_and_reads_back(job_id: str | int) -> None:
    raw = new_payload(
        job_id=job_id,
        account_id="acct-7",
        cost=40,
        attempts=1,
        not_before=LATER,
        error="é",
        failed_at=NOW,
    )
    assert raw.isascii()
    assert json.loads(raw)["job_id"] == job_id
    assert read(raw) == Payload(str(job_id), "acct-7", 40, 1, LATER, "é", NOW, raw)


# --- names and groups ---


def test_the_digest_names_the_exact_bytes() -> None:
    assert digest(b"{}") == "44136fa355b3"
    assert digest(b"{} ") != digest(b"{}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"code":504, "msg":"a  b"}', '{"code":504,"msg":"a  b"}'),
        ("true", "true"),
        ("504", "504"),
        ("1.50e3", "1.50e3"),
        ('[1, {"a" :\t"\\"x\\" : y"}]', '[1,{"a":"\\"x\\" : y"}]'),
        ("[" * 5_000 + "]" * 5_000, "[" * 5_000 + "]" * 5_000),
        ("null", None),
        ('"plain text"', "plain text"),
    ],
)
def test_an_error_that_is_no_text_is_its_compact_json(value: str, text: str | None) -> None:
    payload = read(f'{{"job_id":"j","error":{value},"attempts":1}}')
    assert isinstance(payload, Payload)
    assert payload.error == text


@pytest.mark.parametrize(
    ("failed_at", "undated"),
    [
        ('"2020-01-01T00:00:00.123456"', True),
        ('"yesterday"', True),
        ("{}", True),
        ('"2020-01-01T00:00:00.123456Z"', False),
        ("1577836800", False),
        ("null", False),
        ("0", False),
        ('"0001-01-01T00:00:00Z"', False),
    ],
)
def test_a_failure_time_that_is_no_time_makes_a_letter_undated(
    failed_at: str, undated: bool
) -> None:
    payload = read(f'{{"job_id":"j","failed_at":{failed_at}}}')
    assert isinstance(payload, Payload)
    assert payload.undated is undated


@pytest.mark.parametrize(
    ("not_before", "why"),
    [("2020-01-01T00:00:00", "not_before has no offset"), ("soon", "not_before is not a time")],
)
def test_a_due_time_without_an_offset_says_so(not_before: str, why: str) -> None:
    found = read_payload(b'{"job_id":"j","not_before":"%s"}' % not_before.encode())
    assert isinstance(found, Unreadable)
    assert found.why == why


def test_a_preview_is_short_and_shows_undecodable_bytes_as_escapes() -> None:
    assert preview(b'{"a":"\xff"}', 80) == '{"a":"\\xff"}'
    assert preview(b"abcdef", 6) == "abcdef"
    assert preview(b"abcdefg", 6) == "abcde…"
    assert preview("😀😀😀".encode(), 2) == "😀…"
    assert preview(b"\xff" * 1_000_000, 20).endswith("…")


@pytest.mark.parametrize("spelling", ["1767225600", "1767225600.0", '"2026-01-01T00:00:00Z"'])
def test_a_due_time_is_never_earlier_than_asked_whatever_unit_it_is_kept_in(spelling: str) -> None:
    now = datetime(2026, 12, 1, 10, 0, 0, 240_000, tzinfo=UTC)
    due = now + timedelta(seconds=5)
    raw = f'{{"job_id":"a","attempts":0,"not_before":{spelling}}}'.encode()
    read = read_payload(requeued(raw, attempts=None, due=due, now=now))
    assert isinstance(read, Payload)
    assert read.not_before is not None
    assert due <= read.not_before < due + timedelta(seconds=1)
