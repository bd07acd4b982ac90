"""The next piece under way while the one in hand is worked on."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def ahead(make: Callable[[T], U], pieces: Iterable[T]) -> Iterator[U]:
    """Yield what `make` makes of the pieces, in their order, each by a thread of its own.

    While it makes one, the next piece is asked for, and the last result is used. Never more than
    two are held. What making one raises is raised where it would have come.
    """
    maker = ThreadPoolExecutor(1)
    made: Future[U] | None = None
    try:
        for piece in pieces:
            before, made = made, maker.submit(make, piece)
            if before is not None:
                yield before.result()
        if made is not None:
            yield made.result()
    finally:
        maker.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no server
