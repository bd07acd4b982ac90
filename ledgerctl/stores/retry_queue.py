"""Moves between retry, processing and the dead letters: each one script that names exact bytes."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ledgerctl.domain.payload import Payload, read_payload
from ledgerctl.domain.sieve import by_job
from ledgerctl.errors import LedgerctlError, OutcomeUnknown
from ledgerctl.stores.queues import Queues

LOOK_TRIES = 3  # connections opened to see whether a command whose reply was lost was done


class ListMove(NamedTuple):
    """Hold one entry to move: its bytes, the new bytes, and how far from the head to look."""

    old: bytes
    new: bytes
    within: int = 0  # entries from the head; 0 looks at all


class RetryLists:
    """Move jobs between retry and its neighbours; a job is on a list at every instant.

    Scripts check the types of their lists before they write and write before they remove. Where
    a reply is lost the lists are looked at, and only what they cannot tell is OutcomeUnknown.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.keys = queues.keys

    def processing_key(self, worker: str) -> str:
        """Return the list of one worker's jobs in hand."""
        return f"{self.keys.processing}:{worker}"

    def worker_of(self, key: str) -> str:
        """Return the worker whose processing list this is."""
        return key.removeprefix(f"{self.keys.processing}:")

    def take(self, worker: str, raw: bytes, *, within: int) -> bool:
        """Move one entry from retry to the worker's list; False when it is no longer there.

        `within`: how many entries from the head it can stand at most, 0 when unknown.
        """
        own = self.processing_key(worker)
        return self._resolved(
            lambda: self.move(self.keys.retry, own, [ListMove(raw, raw, within)])[0],
            landed=lambda: self.stands(own, raw),
        )

    def leave(self, worker: str, target: str, old: bytes, new: bytes) -> bool:
        """Move an entry off the worker's list to the tail of another; False when it is not there."""
        own = self.processing_key(worker)
        return self._resolved(
            lambda: self.move(own, target, [ListMove(old, new)])[0],
            landed=lambda: not self.stands(own, old),
        )

    def drop(self, worker: str, raw: bytes) -> bool:
        """Take an entry that is settled off the worker's list; False when it is not there."""
        own = self.processing_key(worker)
        return self._resolved(
            lambda: self._run("drop", [own], [raw]) == 1,
            landed=lambda: not self.stands(own, raw),
        )

    def rewrite(self, key: str, old: bytes, new: bytes) -> bool:
        """Write an entry anew at its place; False when it is not there. `new` must be unique."""
        return self._resolved(
            lambda: self._run("replace", [key], [old, new]) == 1,
            landed=lambda: self.stands(key, new),
        )

    def hand_over(self, source: str, target: str, old: bytes, new: bytes) -> bool:
        """Move an entry under new bytes between any two lists. `new` must be unique."""
        return self._resolved(
            lambda: self.move(source, target, [ListMove(old, new)])[0],
            landed=lambda: self.stands(target, new),
        )

    def append(self, raw: bytes, tails: dict[str, bytes], *, regardless: bool = False) -> bool:
        """Append to the first of these lists unless one has another tail than the one given.

        `raw` must be unique. False, and nothing written, when a tail has changed.
        """
        target = next(iter(tails))
        return self._resolved(
            lambda: (
                self._run("append", [*tails], [raw, str(int(regardless)), *tails.values()]) == 1
            ),
            landed=lambda: self.stands(target, raw),
        )

    def move(self, source: str, target: str, moves: Sequence[ListMove]) -> list[bool]:
        """Move entries to the tail of another list, in order; which of them were there.

        Raises OutcomeUnknown when the reply is lost: look at the lists, then go on.
        """
        words = [word for move in moves for word in (move.old, move.new, str(move.within))]
        return [bool(one) for one in self._run("move", [source, target], words)]

    def stands(self, key: str, raw: bytes) -> bool:
        """Return whether these very bytes are an entry of the list."""
        with self._queues.reading(f"look at {key}"):
            return self._queues.client.lpos(key, raw) is not None  # type: ignore[arg-type]  # bytes

    def fingerprint(self, key: str, start: int, count: int) -> str:
        """Return what a stretch of a list comes to: unequal whenever an entry of it has changed."""
        with self._queues.reading(f"look at {key}"):
            found: bytes = self._queues.run_script(
                "fingerprint", [key], [start, count], changes=False
            )
        return found.decode()

    def counts_of(self, job_id: str) -> dict[str, int]:
        """Count a job's entries on retry, processing and dead letters; take nothing.

        Entries that move while this reads may be counted twice or not at all.
        """
        queues, keys = self._queues, self.keys
        lists = {
            "retry": [keys.retry],
            "processing": queues.processing_keys(),
            "dead_letter": [*queues.passed_keys(), keys.dead_letter],
        }
        sieve = by_job([job_id])
        return {
            name: sum(
                isinstance(read := read_payload(page[at]), Payload) and read.job_id == job_id
                for key in found
                for page in queues.pages(key)
                for at in sieve(page)
            )
            for name, found in lists.items()
        }

    def _run(self, name: str, keys: list[str], words: Sequence[bytes | str]) -> Any:
        with self._queues.writing(f"move entries of {keys[0]}"):
            answer = self._queues.run_script(name, keys, words)
        self._queues.changes += any(answer) if isinstance(answer, list) else bool(answer)
        return answer

    def _resolved(self, act: Callable[[], bool], *, landed: Callable[[], bool]) -> bool:
        """Do it; when the reply is lost, see whether it was done, and else do it once more."""
        try:
            return act()
        except OutcomeUnknown:
            for left in reversed(range(LOOK_TRIES)):
                try:
                    return landed() or act()
                except LedgerctlError:
                    if not left:
                        raise
            raise
