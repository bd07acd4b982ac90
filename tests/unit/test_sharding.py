"""The rules of a router, by which the suite judges every write of the program."""

import pytest

from tests.sharding import refusals

KEYED = {"consumer_group": "g", "message_key": {"$eq": "k"}, "status": "claimed"}


@pytest.mark.parametrize(
    ("name", "command", "count"),
    [
        ("findAndModify", {"findAndModify": "inbox", "query": {"_id": 1}}, 1),
        ("findAndModify", {"findAndModify": "inbox", "query": KEYED}, 0),
        ("update", {"update": "outbox", "updates": [{"q": {"_id": 1}, "upsert": True}]}, 1),
        ("update", {"update": "outbox", "updates": [{"q": {"_id": 1}}]}, 0),
        ("update", {"update": "inbox", "updates": [{"q": {"status": 1}, "multi": True}]}, 0),
        ("update", {"update": "inbox", "updates": [{"q": {"status": 1}}]}, 1),
        ("update", {"update": "jobs", "updates": [{"q": {"_id": {"$gt": 1}}}]}, 1),
        ("delete", {"delete": "leases", "deletes": [{"q": {"owner": 1}, "limit": 1}]}, 1),
    ],
)
def test_a_write_that_does_not_name_its_shard_is_refused(
    name: str, command: dict[str, object], count: int
) -> None:
    assert len(list(refusals(name, command))) == count
