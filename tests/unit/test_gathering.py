"""What several threads ask for at one moment is served once, at once, and nobody waits for ever."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from ledgerctl.stores.gathering import TOGETHER_MAX, Abandoned, Gathering, LetPass

WAIT_S = 30.0  # a thread that has not ended by then never will
BESIDE = 5


class Rounds:
    """Serves, and notes what came together; the first round waits until it is let go."""

    def __init__(
        self, *, trouble: type[BaseException] | None = None, passing: bool = False
    ) -> None:
        self.served: list[list[Any]] = []
        self.begun = threading.Event()
        self.free = threading.Event()
        self._trouble = trouble  # of every round that carries several
        self._passing = passing

    def __call__(self, items: Sequence[Any], let_pass: LetPass) -> None:
        self.served.append(list(items))
        if len(self.served) == 1:
            if self._passing:
                let_pass()
            self.begun.set()
            assert self.free.wait(WAIT_S)
        if self._trouble is not None and len(items) > 1:
            raise self._trouble


def beside(
    pool: ThreadPoolExecutor, place: Gathering[Any], serve: Rounds, keys: Sequence[Any]
) -> list[Future[None]]:
    """One round under way with item 0, and further threads that ask meanwhile."""
    futures = [pool.submit(place.ask, 0, 0, serve)]
    assert serve.begun.wait(WAIT_S)
    futures += [pool.submit(place.ask, key, at, serve) for at, key in enumerate(keys, 1)]
    return futures


def until_waiting(place: Gathering[Any], count: int) -> None:
    """Return once so many threads wait for the round under way."""
    deadline = time.monotonic() + WAIT_S
    while len(place._waiting) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def ended(futures: Sequence[Future[None]]) -> list[type[BaseException] | None]:
    """What each thread ended with."""
    errors = [future.exception(WAIT_S) for future in futures]
    return [None if error is None else type(error) for error in errors]


def test_a_thread_alone_is_served_at_once_by_itself() -> None:
    place: Gathering[int] = Gathering()
    served: list[tuple[str, list[int]]] = []
    for item in range(3):
        place.ask(item, item, lambda items, _: served.append((here(), list(items))))
    assert served == [(here(), [0]), (here(), [1]), (here(), [2])]


def here() -> str:
    return threading.current_thread().name


def test_those_that_wait_are_served_together_and_each_once() -> None:
    place, serve = Gathering[Any](), Rounds()
    with ThreadPoolExecutor(BESIDE + 1) as pool:
        futures = beside(pool, place, serve, range(1, BESIDE + 1))
        until_waiting(place, BESIDE)
        serve.free.set()
        assert ended(futures) == [None] * (BESIDE + 1)
    assert [sorted(one) for one in serve.served] == [[0], [1, 2, 3, 4, 5]]


def test_of_one_key_only_one_is_served_at_a_time() -> None:
    place, serve = Gathering[Any](), Rounds()
    with ThreadPoolExecutor(BESIDE + 1) as pool:
        futures = beside(pool, place, serve, ["a", "b", "a", "a", "b"])
        until_waiting(place, BESIDE)
        serve.free.set()
        assert ended(futures) == [None] * (BESIDE + 1)
    assert sorted(map(len, serve.served)) == [1, 1, 2, 2]
    assert sorted(item for one in serve.served for item in one) == list(range(BESIDE + 1))


def test_no_round_carries_more_than_its_limit() -> None:
    place, serve = Gathering[Any](), Rounds()
    many = TOGETHER_MAX + 3
    with ThreadPoolExecutor(many + 1) as pool:
        futures = beside(pool, place, serve, range(1, many + 1))
        until_waiting(place, many)
        serve.free.set()
        assert ended(futures) == [None] * (many + 1)
    assert max(map(len, serve.served)) == TOGETHER_MAX
    assert sorted(item for one in serve.served for item in one) == list(range(many + 1))


@pytest.mark.parametrize(
    ("trouble", "told"), [(ValueError, ValueError), (KeyboardInterrupt, Abandoned)]
)
def test_trouble_is_told_to_each_that_it_met_and_the_next_are_served(
    trouble: type[BaseException], told: type[BaseException]
) -> None:
    place, serve = Gathering[Any](), Rounds(trouble=trouble)
    with ThreadPoolExecutor(BESIDE + 1) as pool:
        futures = beside(pool, place, serve, range(1, BESIDE + 1))
        until_waiting(place, BESIDE)
        serve.free.set()
        first, *others = ended(futures)
    assert first is None
    assert sorted(map(str, others)) == sorted(map(str, [trouble, *[told] * (BESIDE - 1)]))
    place.ask(9, 9, serve)
    assert serve.served[-1] == [9]


def test_one_that_lets_the_others_pass_keeps_nobody_waiting() -> None:
    place, serve = Gathering[Any](), Rounds(passing=True)
    with ThreadPoolExecutor(BESIDE + 1) as pool:
        futures = beside(pool, place, serve, range(1, BESIDE + 1))
        assert ended(futures[1:]) == [None] * BESIDE
        assert not futures[0].done()
        serve.free.set()
        assert ended(futures) == [None] * (BESIDE + 1)


def test_one_that_a_signal_takes_away_is_waited_for_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, serve, wait = Gathering[Any](), Rounds(), threading.Event.wait

    def signalled(event: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return wait(event, timeout)

    with ThreadPoolExecutor(2) as pool:
        (first,) = beside(pool, place, serve, [])
        with monkeypatch.context() as patched:
            patched.setattr(threading.Event, "wait", signalled)
            with pytest.raises(KeyboardInterrupt):
                place.ask(1, 1, serve)
        second = pool.submit(place.ask, 2, 2, serve)
        serve.free.set()
        assert ended([first, second]) == [None, None]
    assert serve.served == [[0], [2]]
