"""The next piece under way while the one in hand is worked on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def ahead(make: Callable[[T], U], pieces: Iterable[T], *, hands: int = 1) -> Iterator[U]:
    """Yield what `make` makes of the pieces, in their order, each by a thread of its own.

    While `hands` threads make some, the next piece is asked for, and the last result is used.
    Never more than one besides theirs are held. What making one raises is raised where it would
    have come.
    """
    maker = ThreadPoolExecutor(hands)
    made: deque[Future[U]] = deque()
    try:
        for piece in pieces:
            made.append(maker.submit(make, piece))
            if len(made) > hands:
                yield made.popleft().result()
        while made:
            yield made.popleft().result()
    finally:
        maker.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no server
