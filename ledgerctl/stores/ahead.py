"""The next piece under way while the one in hand is worked on."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
END: Final = object()


def ahead(pieces: Iterable[T]) -> Iterator[T]:
    """The pieces in their order, each made by a thread of its own while the last one is used.

    Never more than two are held. What making one raises is raised where it would have come.
    """
    coming = iter(pieces)
    maker = ThreadPoolExecutor(1)
    try:
        made = maker.submit(next, coming, END)
        while (piece := made.result()) is not END:
            made = maker.submit(next, coming, END)
            yield piece  # type: ignore[misc]  # END is no piece
    finally:
        maker.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no server
