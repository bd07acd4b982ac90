"""Wrong requeues and restores of dead letters; most of them stand in tools people use.

Each takes the stores, the ids of the jobs (none: all letters), and a hook that it calls between
two of its steps, where a crash or another operator may come in.
"""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast

from ledgerctl.domain.payload import Payload, Unreadable, read_payload, requeued
from ledgerctl.stores.connections import Stores
from tests.builders import NOON

Hook = Callable[[], None]
NOW = NOON + timedelta(days=1)


def lists(stores: Stores) -> tuple[Any, str, str]:
    keys = stores.queues.keys
    return stores.queues.client, keys.dead_letter, keys.retry


def all_letters(stores: Stores) -> list[bytes]:
    client, dead, _ = lists(stores)
    return cast(list[bytes], client.lrange(dead, 0, -1))


def wanted(raw: bytes, jobs: Sequence[str]) -> bool:
    payload = read_payload(raw)
    return isinstance(payload, Payload) and (not jobs or payload.job_id in jobs)


def written(raw: bytes) -> bytes:
    readable = not isinstance(read_payload(raw), Unreadable)
    assert readable, f"the run ends at {raw!r}, which is on no list any more"
    return requeued(raw, attempts=0, due=NOW, now=NOW)


def pop_then_push(stores: Stores, jobs: Sequence[str], hook: Hook) -> None:
    """Pops a letter, then pushes it: in between it is nowhere, and an unreadable one for good."""
    client, dead, retry = lists(stores)
    for _ in range(client.llen(dead)):
        raw = client.lpop(dead)
        if raw is None:
            return
        hook()
        if jobs and not wanted(raw, jobs):
            client.rpush(dead, raw)
        else:
            client.rpush(retry, written(raw))


def remove_by_reserialised_json(stores: Stores, jobs: Sequence[str], hook: Hook) -> None:
    """Removes by the text that this language would have written."""
    client, dead, retry = lists(stores)
    for raw in all_letters(stores):
        hook()
        if wanted(raw, jobs):
            client.rpush(retry, written(raw))
            client.lrem(dead, 1, json.dumps(json.loads(raw)))


def remove_every_equal_one(stores: Stores, jobs: Sequence[str], hook: Hook) -> None:
    """LREM 0: equal letters go with the one that was meant."""
    client, dead, retry = lists(stores)
    for raw in all_letters(stores)[:1]:
        hook()
        client.rpush(retry, written(raw))
        client.lrem(dead, 0, raw)


def position_instead_of_bytes(stores: Stores, jobs: Sequence[str], hook: Hook) -> None:
    """Takes whatever stands where the letter stood when the list was read."""
    client, dead, retry = lists(stores)
    for position, raw in reversed(list(enumerate(all_letters(stores)))):
        if wanted(raw, jobs):
            hook()
            found = client.lindex(dead, position)
            client.rpush(retry, written(found))
            client.lset(dead, position, b"gone")
            client.lrem(dead, 1, b"gone")


def read_all_push_all_delete(stores: Stores, jobs: Sequence[str], hook: Hook) -> None:
    """Reads the list, pushes what it read, deletes the key: with whatever came meanwhile."""
    client, dead, retry = lists(stores)
    letters = all_letters(stores)
    for raw in letters:
        if wanted(raw, jobs):
            client.rpush(retry, written(raw))
    hook()
    client.delete(dead)
    staying = [raw for raw in letters if not wanted(raw, jobs)]
    if staying:
        client.rpush(dead, *staying)


def restore_from_the_archive_alone(stores: Stores, operation_id: str) -> None:
    """Puts back all that the operation archived, taken or not."""
    client, dead, _ = lists(stores)
    for archived in stores.archive.of_operation(operation_id):
        client.rpush(dead, archived.payload)
