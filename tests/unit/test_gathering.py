"""What several threads ask for at one moment is served once, at once, and nobody waits for ever."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from ledgerctl.errors import StoreUnavailable
from ledgerctl.stores import gathering
from ledgerctl.stores.gathering import TOGETHER_MAX, Gathering

WAIT_S = 30.0  # a thread that has not ended by then never will
BESIDE = 5


class Rounds:
    """Serves, and notes what came together; the first round waits until it is let go."""

    def __init__(self, trouble: BaseException | None = None) -> None:
        self.place: Gathering[Any] = Gathering()
        self.served: list[list[Any]] = []
        self.threads: set[str] = set()
        self.begun = threading.Event()
        self.free = threading.Event()
        self._trouble = trouble  # of every round that carries several

    def __call__(self, items: Sequence[Any]) -> None:
        self.served.append(list(items))
        self.threads.add(threading.current_thread().name)
        if self._trouble is not None and len(items) > 1:
            raise self._trouble

    def hold(self) -> None:
        """What the one that goes alone does: keep the others out for a while."""
        self.begun.set()
        assert self.free.wait(WAIT_S)

    def ask(self, key: Any, item: Any, alone: Callable[[], None] | None = None) -> None:
        """Ask for one item."""
        self.place.ask(key, item, serve=self, alone=alone or (lambda: self([item])))


@pytest.fixture
def held() -> Iterator[Callable[[Rounds], Any]]:
    """While one is served that holds the serving thread, others may ask."""
    with ThreadPoolExecutor(2) as pool:

        @contextmanager
        def hold(rounds: Rounds) -> Iterator[None]:
            first = pool.submit(rounds.ask, "first", "first", rounds.hold)
            assert rounds.begun.wait(WAIT_S)
            yield
            rounds.free.set()
            assert first.exception(WAIT_S) is None

        yield hold


def asked(pool: ThreadPoolExecutor, rounds: Rounds, keys: Sequence[Any]) -> list[Future[None]]:
    """Threads that ask for one item each, all of them waiting before the first is served."""
    with rounds.place._lock:
        futures = [pool.submit(rounds.ask, key, at) for at, key in enumerate(keys, 1)]
        time.sleep(0.05)  # they are at the lock: what they wait for is let go at once
    return futures


def ended(futures: Sequence[Future[None]]) -> list[type[BaseException] | None]:
    """What each thread ended with."""
    errors = [future.exception(WAIT_S) for future in futures]
    return [None if error is None else type(error) for error in errors]


def test_a_thread_that_meets_nobody_is_served_at_once_by_itself() -> None:
    rounds = Rounds()
    for item in range(3):
        rounds.ask(item, item)
    assert rounds.served == [[0], [1], [2]]
    assert rounds.threads == {threading.current_thread().name}


def test_those_that_wait_are_served_together_and_each_once(
    held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LINGER_S", WAIT_S)
    rounds = Rounds()
    rounds.place._expected = BESIDE  # as many as were about the last time
    with ThreadPoolExecutor(BESIDE) as pool, held(rounds):
        assert ended(asked(pool, rounds, range(BESIDE))) == [None] * BESIDE
    assert [sorted(one) for one in rounds.served] == [[1, 2, 3, 4, 5]]


def test_of_one_key_only_one_is_served_at_a_time(
    held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LINGER_S", 0.5)
    rounds = Rounds()
    rounds.place._expected = BESIDE
    with ThreadPoolExecutor(BESIDE) as pool, held(rounds):
        assert ended(asked(pool, rounds, ["a", "b", "a", "a", "b"])) == [None] * BESIDE
    keys = {1: "a", 2: "b", 3: "a", 4: "a", 5: "b"}
    assert sorted(item for one in rounds.served for item in one) == list(keys)
    assert all(len({keys[item] for item in one}) == len(one) for one in rounds.served)


def test_no_round_carries_more_than_its_limit(held: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "LINGER_S", 0.5)
    rounds, many = Rounds(), TOGETHER_MAX + 3
    rounds.place._expected = many
    with ThreadPoolExecutor(many) as pool, held(rounds):
        assert ended(asked(pool, rounds, range(many))) == [None] * many
    assert max(map(len, rounds.served)) <= TOGETHER_MAX
    assert sorted(item for one in rounds.served for item in one) == list(range(1, many + 1))


@pytest.mark.parametrize("trouble", [StoreUnavailable("gone", hint="wait"), SystemExit(3)])
def test_trouble_is_told_to_each_that_it_met_and_the_next_are_served(
    held: Any, monkeypatch: pytest.MonkeyPatch, trouble: BaseException
) -> None:
    monkeypatch.setattr(gathering, "LINGER_S", WAIT_S)
    rounds = Rounds(trouble)
    rounds.place._expected = BESIDE
    with ThreadPoolExecutor(BESIDE) as pool, held(rounds):
        futures = asked(pool, rounds, range(BESIDE))
        errors = [future.exception(WAIT_S) for future in futures]
        monkeypatch.setattr(gathering, "LINGER_S", 0)
        rounds.ask(9, 9)
    assert {type(error) for error in errors} == {type(trouble)}
    assert len({id(error) for error in errors}) == BESIDE  # each has its own
    assert {vars(error).get("hint") for error in errors} == {vars(trouble).get("hint")}
    assert rounds.served[-1] == [9]


def test_one_that_a_signal_takes_away_is_not_served(
    held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LINGER_S", 0.5)
    rounds, wait = Rounds(), threading.Event.wait
    rounds.place._expected = 2

    def signalled(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout == gathering.LOOK_AGAIN_S:
            raise KeyboardInterrupt
        return wait(event, timeout)

    with held(rounds):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Event, "wait", signalled)
            with pytest.raises(KeyboardInterrupt):
                rounds.ask(1, 1)
        rounds.ask(2, 2)
    assert rounds.served == [[2]]


def test_a_serving_thread_that_was_idle_ends_and_another_one_serves_the_next(
    held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "IDLE_S", 0.01)
    rounds = Rounds()
    with held(rounds):
        rounds.ask(1, 1)
        first = rounds.place._thread
        if first is not None:
            first.join(WAIT_S)
        rounds.ask(2, 2)
    assert rounds.served == [[1], [2]]


def test_threads_that_signals_strike_at_any_moment_leave_nobody_waiting() -> None:
    place: Gathering[int] = Gathering()

    def serve(_: Sequence[int]) -> None:
        time.sleep(0.0005)

    def many(number: int) -> None:
        for at in range(300):
            place.ask((number, at), at, serve=serve, alone=lambda: serve([at]))  # noqa: B023

    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    struck = 0
    try:
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(many, number) for number in range(4)]
            while not all(future.done() for future in futures):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0003 + struck % 7 * 0.0004)
                    for at in range(50):
                        place.ask("main", at, serve=serve, alone=lambda: serve([0]))
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    struck += 1
            assert ended(futures) == [None] * 4
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert struck
