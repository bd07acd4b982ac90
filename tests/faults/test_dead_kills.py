"""kill -9 while dead letters are on the move: none is lost, none doubled, and one more run ends it.

12 kills in every run; LEDGERCTL_TEST_KILLS=100 and LEDGERCTL_TEST_LETTERS=20000 for the whole claim.
"""

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.dead_letters import DEAD, RETRY, Incident, kills_wanted

LETTERS = int(os.environ.get("LEDGERCTL_TEST_LETTERS", "5000"))
RANDOM = random.Random(7)


def killed_mid_move(
    incident: Incident,
    words: tuple[str, ...],
    moving: Callable[[], bool],
    *,
    within_s: float = 0.12 * LETTERS / 5_000,
) -> bool:
    """Kill the run a moment after it began to move letters; whether it was still under way.

    What it had sent before it died may still be carried out: its connection is waited for.
    """
    others = connections(incident)
    program = incident.start(*words)
    try:
        deadline = time.monotonic() + 60
        while not moving() and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(RANDOM.uniform(0, within_s))
        under_way = program.poll() is None
    finally:
        program.kill()
        program.communicate()
    deadline = time.monotonic() + 60
    while connections(incident) - others:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return under_way


def connections(incident: Incident) -> set[str]:
    """The connections that Redis serves."""
    return {one["id"] for one in incident.redis.client_list()}


def land(kills: int, once: Callable[[], bool]) -> None:
    """Repeat until that many kills have landed in the middle."""
    landed = tries = 0
    while landed < kills:
        landed += once()
        tries += 1
        assert tries < 6 * kills + 6, f"only {landed} of {tries} kills landed mid-move"
    print(f"{landed} kills landed mid-move in {tries} tries")


REQUEUE_ALL = ("dead", "requeue", "--all", "--yes")
REQUEUE_SOME = ("dead", "requeue", "--error", "timed out", "--yes")
RELEASE = ("dead", "release", "--all", "--reason", "killed", "--yes")
KILLS = max(1, kills_wanted(12) // 4)


def test_a_killed_requeue_of_all_loses_and_doubles_none(incident: Incident) -> None:
    def once() -> bool:
        incident.load(LETTERS)
        killed_mid_move(incident, REQUEUE_ALL, lambda: incident.redis.llen(RETRY) > 0)
        mid = 0 < incident.redis.llen(RETRY) < LETTERS
        incident.assert_none_lost(incident.retry())
        incident.assert_order_kept()
        code, document = incident.run(*REQUEUE_ALL)
        assert (code, document["remaining"], incident.dead()) == (0, 0, [])
        assert incident.redis.llen(RETRY) == LETTERS
        incident.assert_none_lost(incident.retry())
        return mid

    land(KILLS, once)


def test_a_killed_requeue_by_filter_loses_and_doubles_none_and_keeps_the_order(
    incident: Incident,
) -> None:
    def once() -> bool:
        incident.load(LETTERS)
        killed_mid_move(incident, REQUEUE_SOME, lambda: incident.redis.llen(RETRY) > 0)
        passed = incident.redis.keys(f"{DEAD}:passed:*")
        mid = bool(passed) or 0 < incident.redis.llen(RETRY) < LETTERS // 4
        incident.assert_none_lost(incident.retry())
        incident.assert_order_kept()
        assert incident.run("dead", "list", "--limit", "1")[1]["total"] == len(incident.dead())
        incident.expire_lease()
        code, document = incident.run(*REQUEUE_SOME)
        assert (code, document["remaining"]) == (0, LETTERS - LETTERS // 4)
        assert incident.redis.keys(f"{DEAD}:passed:*") == []
        assert incident.redis.llen(RETRY) == LETTERS // 4
        incident.assert_none_lost(incident.retry())
        incident.assert_order_kept()
        return mid

    land(KILLS, once)


def test_a_killed_release_has_each_letter_on_the_list_or_in_the_archive(
    incident: Incident,
) -> None:
    def once() -> bool:
        incident.load(LETTERS)
        killed_mid_move(incident, RELEASE, lambda: incident.redis.llen(DEAD) < LETTERS)
        mid = 0 < incident.redis.llen(DEAD) < LETTERS
        incident.assert_none_lost(incident.taken())
        incident.assert_order_kept()
        code, document = incident.run(*RELEASE)
        assert (code, document["remaining"], incident.dead()) == (0, 0, [])
        incident.assert_none_lost(incident.taken())
        return mid

    land(KILLS, once)


@pytest.mark.parametrize("words", [REQUEUE_ALL, RELEASE], ids=["requeued", "released"])
def test_a_killed_restore_is_finished_by_the_next_one(
    incident: Incident, words: tuple[str, ...]
) -> None:
    def once() -> bool:
        incident.load(LETTERS)
        operation_id = incident.run(*words)[1]["operation_id"]
        restore = ("dead", "restore", operation_id, "--yes")
        some = RANDOM.randrange(LETTERS * 3 // 4)
        killed_mid_move(incident, restore, lambda: incident.redis.llen(DEAD) > some, within_s=0)
        back = incident.redis.llen(DEAD)
        away = incident.retry() if words is REQUEUE_ALL else incident.taken()
        incident.assert_none_lost(away)
        code, document = incident.run(*restore)
        assert code == 0
        assert (document["restored"], document["already_back"]) == (LETTERS - back, back)
        assert document["gone"] == 0
        assert incident.dead() == incident.original
        assert incident.redis.llen(RETRY) == 0
        assert incident.run(*restore)[1]["restored"] == 0
        return 0 < back < LETTERS

    land(max(1, KILLS // 2), once)
