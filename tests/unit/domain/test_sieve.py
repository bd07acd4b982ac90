"""Sieves over raw pages: no entry that names the job is left out, whatever spells its id."""

import json
import re

import pytest

from ledgerctl.domain.dead import Selection, letters
from ledgerctl.domain.error_groups import error_group
from ledgerctl.domain.payload import Payload, digest, read_payload
from ledgerctl.domain.sieve import (
    NEEDLES_MAX,
    HashSet,
    by_digest,
    by_job,
    either,
    name_key,
    possible_names,
)

HEX = "65f0a1b2c3d4e5f60718293a"
PAGE = [
    b'{"job_id":"job-1"}',
    b'{"job_id":"job-2","note":"job-1"}',
    b'{"job_id":"\\u006aob-1"}',
    b'{"\\u006aob_id":"job-1"}',
    b'{"id": 42}',
    b'{"JobID":"%s"}' % HEX.upper().encode(),
    json.dumps({"job_id": "a/b é"}).encode().replace(b"/", b"\\/"),
    b"no json",
    b'{"id":"-0"}',
]


def named(page: list[bytes], text: str) -> list[int]:
    reads = (read_payload(raw) for raw in page)
    return [
        at
        for at, read in enumerate(reads)
        if isinstance(read, Payload) and read.job_id.lower() == text.lower()
    ]


@pytest.mark.parametrize("text", ["job-1", "job-2", "42", HEX, "a/b é", "-0"])
def test_a_sieve_keeps_every_entry_that_names_the_job(text: str) -> None:
    assert named(PAGE, text)
    assert set(named(PAGE, text)) <= set(by_job([text])(PAGE))


def test_a_page_that_cannot_name_the_job_is_dropped_whole() -> None:
    assert list(by_job(["job-9"])(PAGE[:2])) == []
    assert list(by_job([f"job-{n}" for n in range(NEEDLES_MAX + 1)])(PAGE)) == [*range(len(PAGE))]


def test_digests_and_jobs_keep_what_one_of_them_keeps() -> None:
    kept = either(by_digest({digest(PAGE[7])}), by_job(["job-2"]))(PAGE)
    assert {1, 7} <= set(kept)
    assert 4 not in kept


def test_possible_names_miss_no_readable_entry() -> None:
    keys = set(possible_names(PAGE))
    reads = [read for read in map(read_payload, PAGE) if isinstance(read, Payload)]
    assert len(reads) == 8
    assert {name_key(read.job_id) for read in reads} <= keys


def test_a_hash_set_tells_new_texts_from_old_ones_while_it_grows() -> None:
    texts = HashSet()
    assert all(texts.add(f"job-{n}") for n in range(5_000))
    assert not any(texts.add(f"job-{n}") for n in range(5_000))
    assert len(texts) == 5_000


ODD = [
    b'{"job_id":"j","account_id":"acct-a","error":"E1"}',
    b'{"job_id":"j","account_id":"acct-b","error":"E1"}',
    b'{"job_id":"j","account_id":"acct-b","AccountID":"acct-c","error":"E1"}',
    b'{"job_id":"j","account_id":null,"meta":{"AccountID":"acct-b"},"error":"E1"}',
    b'{"job_id":"j","meta":{"account_id":"acct-b"},"error":"E2"}',
    b'{"job_id":"j","tags":[{"error":"E2"}],"lastError":"E1"}',
    b'{"job_id":"j","meta":{"error":"E2"},"account_id":"acct-a"}',
    b'{"job_id":"j","account_id":"\\u0061cct-a","error":"E\\u0031"}',
    b'{"job_id":"j","account_id":7,"error":{"code":"E1"}}',
    b'{"job_id":"j","account_id":"acct-b","error":"E2","last_error":"E1"}',
    b'{"job_id":"j","kind":"error","error":"E1"}',
    b' {"job_id":"j","account_id" : "acct-b" , "error" : "E2"}',
]


@pytest.mark.parametrize(
    "selection",
    [
        Selection(account="acct-a"),
        Selection(account="7"),
        Selection(account="acct-c"),
        Selection(error=re.compile("E1")),
        Selection(account="acct-a", error=re.compile("1")),
        Selection(group=error_group("E1")),
    ],
)
def test_a_sieve_by_content_drops_no_letter_that_may_be_selected(selection: Selection) -> None:
    sieve = selection.content_sieve()
    assert sieve is not None
    wanted = [one.index for one in letters([ODD]) if selection.may_mean(one)]
    assert set(wanted) <= set(sieve(ODD))
    assert len(sieve([ODD[1].replace(b"E1", b"nothing")] * 9)) == 0
    assert sieve.has_dropped("j")
