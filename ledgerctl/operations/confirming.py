"""Asks the server that answers at the end of a change if it holds the change: replication is late."""

from collections.abc import Collection, Mapping

from ledgerctl.errors import PartlyDone
from ledgerctl.stores.connections import Stores


def lost_letters(stores: Stores, operation_id: str, chunks: Collection[int]) -> set[int]:
    """Return the numbers of an operation's letters that the primary of now has not taken."""
    stores.queues.settle()
    lost = set(chunks) - {int(number) for number in stores.dead_letters.noted(operation_id)}
    if lost:  # restored by somebody else meanwhile: taken all the same
        lost -= set(marked_numbers(stores, operation_id))
    if not lost:
        return set()
    found = stores.archive.of_operation(operation_id)
    return {archived.order for archived in found if archived.chunk in lost}


def lost_restores(
    stores: Stores, operation_id: str, restored: Mapping[int, Collection[int]]
) -> int:
    """Return how many restored letters, given by chunk, the primary of now does not have back."""
    stores.queues.settle()
    marked = marked_numbers(stores, operation_id)
    return sum(
        number not in marked.get(chunk, ()) and "all" not in marked.get(chunk, ())
        for chunk, numbers in restored.items()
        for number in map(str, numbers)
    )


def marked_numbers(stores: Stores, operation_id: str) -> dict[int, frozenset[str]]:
    """Return by chunk the numbers that the marks of its restores hold, or `all`."""
    parted = [mark.split(":", 2) for mark in stores.dead_letters.restored(operation_id)]
    return {int(chunk): frozenset(numbers.split(",")) for chunk, _, numbers in parted}


def undone(count: int, verb: str) -> PartlyDone:
    """Return the error of a change that a failover has undone in part."""
    return PartlyDone(
        f"{count} letters were {verb} and are not any more: the new primary had not got them",
        hint="run the same command again",
    )
