"""Each rule of moving dead letters as a claim: green for the product, red for its wrong version."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from redis import Redis

from ledgerctl.domain.dead import Action, Selection
from ledgerctl.domain.results import Result, Run
from ledgerctl.operations.dead import Request, plan
from ledgerctl.operations.dead_moves import Move, carry_out
from ledgerctl.operations.dead_restore import restorable
from ledgerctl.operations.dead_restore import restore as put_back
from ledgerctl.operations.log import Operation
from ledgerctl.stores.connections import Stores
from tests.builders import make_job, make_letter
from tests.dead_letters import DEAD, RETRY, letter, unchanged
from tests.wrong_versions import dead as wrong

Hook = Callable[[], None]
Requeue = Callable[[Stores, Sequence[str], Hook], None]
RestoreAll = Callable[[Stores, str], None]


class Killed(BaseException):
    """Nothing after it runs, as after kill -9."""


def begun(stores: Stores, command: str = "dead requeue") -> Operation:
    operation = Operation(
        log=stores.operator_log,
        clock=stores.mongo.now,
        command=command,
        operator="tester",
        profile="default",
    )
    operation.begin()
    return operation


def running(operation_id: str, stopping: Callable[[], bool] = lambda: False) -> Run[None]:
    return Run(operation_id, None, Result(), stopping, progress=lambda _text: None)


def requeue(stores: Stores, jobs: Sequence[str], hook: Hook) -> None:
    """The product, with the hook after its reading and between its chunks."""
    request = Request(Action.REQUEUE, Selection(jobs=tuple(jobs), everything=not jobs))
    made = plan(stores, request)

    def stopping() -> bool:
        hook()
        return False

    run = running(begun(stores).id, stopping)
    carry_out(stores, request, made, run, operator="tester", now=wrong.NOW, confirmed=False)


def restore(stores: Stores, operation_id: str) -> None:
    """The product."""
    run = running(begun(stores, "dead restore").id)
    put_back(stores, restorable(stores, operation_id), run)


@pytest.fixture
def on_lists(stores: Stores, redis_client: Redis) -> Stores:
    """Empty lists, and jobs that want to be run again."""
    jobs = stores.mongo.collection("jobs")
    jobs.insert_many([make_job(f"job-{n:06d}", is_refunded=True) for n in range(600)])
    jobs.insert_many([make_job(name, is_refunded=True) for name in ("a1", "same")])
    return stores


def put(stores: Stores, *letters: bytes) -> None:
    stores.queues.client.rpush(DEAD, *letters)


def entries(stores: Stores, key: str) -> list[bytes]:
    return cast(list[bytes], stores.queues.client.lrange(key, 0, -1))


def once(action: Callable[[], Any]) -> Hook:
    """A hook that acts the first time only."""
    left = [action]

    def hook() -> None:
        if left:
            left.pop()()

    return hook


def dying(calls: int) -> Hook:
    """A hook that dies when it is called so often."""
    left = [None] * calls

    def hook() -> None:
        left.pop()
        if not left:
            raise Killed

    return hook


def a_crash_loses_none_and_doubles_none(stores: Stores, mover: Requeue) -> None:
    letters = [letter(number) for number in range(600)]
    for calls in (1, 2):
        stores.queues.client.delete(DEAD, RETRY)
        put(stores, *letters)
        with suppress(Killed):
            mover(stores, [], dying(calls))
        found = [*entries(stores, DEAD), *entries(stores, RETRY)]
        assert sorted(map(unchanged, found)) == sorted(map(unchanged, letters))


def bytes_of_other_writers_are_told_by_their_bytes(stores: Stores, mover: Requeue) -> None:
    put(stores, rb'{"job_id":"a1","url":"?a=1\u0026b=2","cost":12.50}')
    mover(stores, ["a1"], lambda: None)
    assert entries(stores, DEAD) == []
    assert len(entries(stores, RETRY)) == 1


def equal_letters_stay_countable(stores: Stores, mover: Requeue) -> None:
    put(stores, *[make_letter("same")] * 3)
    mover(stores, ["same"], lambda: None)
    assert entries(stores, DEAD) == [make_letter("same")] * 2
    assert len(entries(stores, RETRY)) == 1


def what_moved_meanwhile_is_not_taken_for_another(stores: Stores, mover: Requeue) -> None:
    letters = [letter(number) for number in range(5)]
    put(stores, *letters)
    other = make_letter("other")
    mover(stores, ["job-000003"], once(lambda: stores.queues.client.lpush(DEAD, other, other)))
    assert entries(stores, DEAD) == [other, other, *letters[:3], letters[4]]
    assert [unchanged(raw) for raw in entries(stores, RETRY)] == [unchanged(letters[3])]


def newcomers_stay(stores: Stores, mover: Requeue) -> None:
    letters = [letter(number) for number in range(20)]
    put(stores, *letters)
    newcomer = make_letter("newcomer")
    mover(stores, [], once(lambda: stores.queues.client.rpush(DEAD, newcomer)))
    assert entries(stores, DEAD) == [newcomer]
    assert len(entries(stores, RETRY)) == 20


def an_unreadable_entry_stays_and_stops_nothing(stores: Stores, mover: Requeue) -> None:
    put(stores, letter(1), b"\xff no json", letter(2))
    mover(stores, [], lambda: None)
    assert entries(stores, DEAD) == [b"\xff no json"]
    assert len(entries(stores, RETRY)) == 2


def restore_brings_back_what_was_taken_and_no_more(stores: Stores, restorer: RestoreAll) -> None:
    """Two operators archive the same letters; one of them takes them."""
    letters = [letter(number) for number in range(40)]
    put(stores, *letters)
    made = plan(stores, Request(Action.RELEASE, Selection(everything=True)))
    operations = [begun(stores, "dead release") for _ in range(2)]
    first, second = (
        Move(stores, operation.id, made, now=wrong.NOW, at=wrong.NOW) for operation in operations
    )
    between = once(second.run)  # when the first has archived them

    def stopping() -> bool:
        between()
        return False

    first.stopping = stopping
    first.run()
    assert (first.moved, second.moved) == (0, 40)
    assert entries(stores, DEAD) == []
    for operation in operations:
        restorer(stores, operation.id)
    assert entries(stores, DEAD) == letters


REQUEUES: list[tuple[Callable[[Stores, Requeue], None], list[Requeue]]] = [
    (a_crash_loses_none_and_doubles_none, [wrong.pop_then_push, wrong.read_all_push_all_delete]),
    (bytes_of_other_writers_are_told_by_their_bytes, [wrong.remove_by_reserialised_json]),
    (equal_letters_stay_countable, [wrong.remove_every_equal_one, wrong.read_all_push_all_delete]),
    (what_moved_meanwhile_is_not_taken_for_another, [wrong.position_instead_of_bytes]),
    (newcomers_stay, [wrong.read_all_push_all_delete]),
    (an_unreadable_entry_stays_and_stops_nothing, [wrong.pop_then_push]),
]
WRONG = [(rule, mover) for rule, movers in REQUEUES for mover in movers]


@pytest.mark.parametrize("rule", [rule for rule, _ in REQUEUES], ids=lambda rule: rule.__name__)
def test_each_rule_holds(on_lists: Stores, rule: Callable[[Stores, Requeue], None]) -> None:
    rule(on_lists, requeue)


@pytest.mark.parametrize(
    ("rule", "mover"), WRONG, ids=[f"{rule.__name__}-{mover.__name__}" for rule, mover in WRONG]
)
def test_each_rule_is_red_against_its_wrong_version(
    on_lists: Stores, rule: Callable[[Stores, Requeue], None], mover: Requeue
) -> None:
    with pytest.raises(AssertionError):
        rule(on_lists, mover)


def test_a_restore_brings_back_what_was_taken_and_no_more(on_lists: Stores) -> None:
    restore_brings_back_what_was_taken_and_no_more(on_lists, restore)


def test_a_restore_from_the_archive_alone_is_red(on_lists: Stores) -> None:
    with pytest.raises(AssertionError):
        restore_brings_back_what_was_taken_and_no_more(
            on_lists, wrong.restore_from_the_archive_alone
        )
