"""Reading a whole list in pages, on a real server: what is asked for, and what others change meanwhile."""

from collections.abc import Sequence

import pytest
from redis import Redis

from ledgerctl.domain.dead import letters
from ledgerctl.operations.dead import FIRST_PIECE_LETTERS, PIECE_BYTES, PIECE_LETTERS, in_pieces
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.queues import PAGE_BYTES, PAGE_ENTRIES_MAX, PAGES_TOGETHER, Queues

KEY = "jobs:dead-letter"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pages in bytes, in the order in which they were read."""
    sizes: list[int] = []
    read = Queues.stretches

    def watched(self: Queues, key: str, wanted: Sequence[tuple[int, int]]) -> list[list[bytes]]:
        found = read(self, key, wanted)
        sizes.extend(sum(map(len, page)) for page in found)
        return found

    monkeypatch.setattr(Queues, "stretches", watched)
    return sizes


@pytest.mark.parametrize(("size", "count"), [(100_000, 60), (1_000_000, 12), (20_000, 300)])
def test_a_page_is_as_small_as_its_entries_are_large(
    stores: Stores, redis_client: Redis, asked: list[int], size: int, count: int
) -> None:
    raws = [b"%08d" % n + b"x" * size for n in range(count)]
    redis_client.rpush(KEY, *raws)
    assert list(stores.queues.read_all(KEY)) == raws
    assert asked[0] <= 10 * (size + 8)
    assert max(asked[1:]) <= PAGE_BYTES + 4 * (size + 8)


def test_a_short_list_is_read_at_once_and_a_long_one_by_the_thousand(
    stores: Stores, redis_client: Redis, asked: list[int]
) -> None:
    redis_client.rpush(KEY, *(b"%d" % n for n in range(9)))
    assert len(list(stores.queues.read_all(KEY))) == 9
    assert len(asked) == 1
    redis_client.rpush(KEY, *(b"%d" % n for n in range(9, 5_000)))
    assert list(stores.queues.read_all(KEY)) == [b"%d" % n for n in range(5_000)]
    assert len(asked) <= 2 + -(-4_990 // PAGE_ENTRIES_MAX) + PAGES_TOGETHER


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("taken", [1, 3, 7, 25, 39])
def test_what_stays_is_read_once_when_others_take_what_was_just_read(
    stores: Stores, redis_client: Redis, size: int, taken: int
) -> None:
    raws = [b"%08d" % n + b"x" * size for n in range(120)]
    redis_client.rpush(KEY, *raws)
    found = []
    for raw in stores.queues.read_all(KEY):
        found.append(raw)
        if len(found) == 40:  # the newest of those read go; older ones stay before the border
            for gone in raws[40 - taken : 40]:
                redis_client.lrem(KEY, 1, gone.decode())
    assert found == raws


def test_many_large_entries_may_go_from_the_head_meanwhile(
    stores: Stores, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgerctl.stores.queues.PAGE_BYTES", 1)  # as if each were a page
    raws = [b"%08d" % n for n in range(4_000)]
    redis_client.rpush(KEY, *raws)
    found = []
    for raw in stores.queues.read_all(KEY):
        found.append(raw)
        if len(found) == 3_500:
            redis_client.ltrim(KEY, 3_400, -1)
    assert found == raws


def test_a_piece_ends_with_the_letter_that_makes_it_large() -> None:
    sizes = [1_000_000] * 9 + [10] * 5 + [PIECE_BYTES] * 2 + [10]
    found = letters([[b"x" * size for size in sizes]])
    assert [len(piece) for piece in in_pieces(found)] == [4, 4, 7, 1, 1]


def test_the_first_pieces_are_small_so_that_a_short_listing_reads_little() -> None:
    found = letters([[b"x"] * 10_000])
    sizes = [len(piece) for piece in in_pieces(found)]
    assert (sizes[0], max(sizes), sum(sizes)) == (FIRST_PIECE_LETTERS, PIECE_LETTERS, 10_000)
