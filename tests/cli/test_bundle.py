"""The bundle for a ticket: what support needs, and nothing that names a customer or a secret."""

import io
import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.builders import make_claim, make_job, make_letter, make_row
from tests.conftest import Client, Invoker
from tests.dead_letters import DEAD

PLANTED = ("job-planted", "acct-planted", "error-planted", "reason-planted", "secret-planted")
PARTS = {"versions", "settings", "doctor", "dead-stats", "queue-stats", "log", "indexes"}


def parts(file: Path) -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(file.read_bytes())) as archive:
        return {
            Path(one.name).stem: json.load(archive.extractfile(one) or io.BytesIO())
            for one in archive.getmembers()
        }


@pytest.fixture
def planted(client: Client, database: str, redis_client: Redis, invoke: Invoker) -> None:
    db = client[database]
    db.jobs.insert_one(make_job("job-planted", account_id="acct-planted", is_refunded="yes"))
    db.ledger.insert_many(
        [make_row("job-planted", account_id="acct-planted"), make_row("job-planted", _id="again")]
    )
    db.inbox.insert_one(make_claim(message_key="job-planted", last_error="error-planted"))
    letter = make_letter("job-planted", account_id="acct-planted", error="error-planted")
    redis_client.rpush(DEAD, letter)
    redis_client.rpush("jobs:processing:host-planted", letter)
    words = ("dead", "release", "job-planted", "--reason", "reason-planted", "--yes")
    assert invoke(*words).code == 0
    redis_client.rpush(DEAD, letter)


def test_a_bundle_holds_what_a_ticket_needs_and_nothing_that_names_anyone(
    invoke: Invoker, planted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ticket.tar.gz"
    run = invoke("doctor", "--bundle", str(file), "-o", "json")
    assert run.code == 5
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = parts(file)
    assert set(found) == PARTS
    assert found["dead-stats"]["depth"] == 1
    assert {one["id"] for one in found["doctor"]["checks"]} >= {"db.growth", "mongo.reachable"}
    assert found["log"]["items"][0]["command"] == "dead release"
    text = json.dumps(found)
    assert [one for one in (*PLANTED, "host-planted") if one in text] == []


def test_ids_reasons_and_errors_are_in_it_when_asked_for_and_a_payload_never(
    invoke: Invoker, planted: None, tmp_path: Path
) -> None:
    file = tmp_path / "ticket.tar.gz"
    invoke("doctor", "--bundle", str(file), "--with-ids", "-o", "json")
    text = json.dumps(parts(file))
    assert [one for one in PLANTED if one not in text] == ["acct-planted", "secret-planted"]
    assert "not_before" not in text


def test_a_bundle_is_written_with_the_stores_away_and_hides_their_passwords(
    invoke: Invoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ticket.tar.gz"
    monkeypatch.setenv("LEDGERCTL_MONGO_URI", "mongodb://ann:secret-planted@127.0.0.1:1/")
    monkeypatch.setenv("LEDGERCTL_REDIS_URL", "redis://:secret-planted@127.0.0.1:1/0")
    assert invoke("doctor", "--bundle", str(file), "-o", "json").code == 5
    found = parts(file)
    assert found["dead-stats"]["unavailable"] == "store_unavailable"
    assert "secret-planted" not in json.dumps(found)


@pytest.mark.parametrize("name", ["", "/dev/null"])
def test_what_is_no_regular_file_is_refused_before_anything_is_looked_at(
    invoke: Invoker, name: str
) -> None:
    assert invoke("doctor", "--bundle", name).code == 2
