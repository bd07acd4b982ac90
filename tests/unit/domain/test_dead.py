"""Dead letters without any server: verdicts, selection, pieces, exit codes, groups."""

from datetime import timedelta

import pytest

from ledgerctl.domain.dead import (
    ARCHIVED_BYTES_MAX,
    Action,
    JobStatus,
    Letter,
    PlanItem,
    RequeuePolicy,
    Selection,
    Verdict,
    judge,
    letters,
    movable,
    named_ends,
    select,
)
from ledgerctl.domain.dead_stats import ERRORS_KEPT, Tally
from ledgerctl.domain.jobs import State
from ledgerctl.domain.removal import (
    CHUNK_BYTES,
    CHUNK_LETTERS,
    CHUNK_SPAN,
    SCATTERED_LETTERS,
    Pick,
    Piece,
    Placed,
    RemovalStrategy,
    Spread,
    near_head,
    scattered,
    stretches,
)
from ledgerctl.domain.sieve import HashSet
from tests.builders import NOON, make_letter

REFUNDED = JobStatus("job-1", State.REFUNDED, succeeded=False, account_id="acct-1")


def read(*raws: bytes) -> list[Letter]:
    return list(letters([raws]))


def judged(*raws: bytes, state: State = State.REFUNDED) -> list[Letter]:
    """Letters whose jobs are all known and refunded."""
    found = read(*raws)
    for one in found:
        if one.job_id is not None:
            one.status = REFUNDED._replace(job_id=one.job_id, state=state)
    judge(found, set().__contains__, HashSet())
    return found


def placed_of(found: list[Letter], at: range | list[int]) -> list[Placed]:
    return [(index, Pick(order, found[index], b"x" * 10)) for order, index in enumerate(at)]


def selected(found: list[Letter], selection: Selection) -> list[Letter]:
    return list(selection.of(found))


@pytest.mark.parametrize(
    ("state", "succeeded", "queued", "verdict"),
    [
        (State.BAD_FLAGS, True, True, Verdict.BAD_FLAGS),
        (State.CORRUPT, True, True, Verdict.BAD_FLAGS),
        (State.RECLAIMED, False, True, Verdict.SETTLED),
        (State.REFUNDED, True, True, Verdict.SETTLED),
        (State.CHARGED, True, False, Verdict.SETTLED),
        (State.REFUNDED, False, True, Verdict.QUEUED),
        (State.CHARGED, False, False, Verdict.RETRYABLE),
    ],
)
def test_the_first_verdict_that_holds_is_taken(
    state: State, succeeded: bool, queued: bool, verdict: Verdict
) -> None:
    found = read(make_letter())
    found[0].status = REFUNDED._replace(state=state, succeeded=succeeded)
    judge(found, lambda _job: queued, HashSet())
    assert found[0].verdict is verdict


def test_a_letter_without_a_job_is_unknown() -> None:
    found = read(make_letter())
    judge(found, lambda _job: True, HashSet())
    assert (found[0].verdict, found[0].state) == (Verdict.UNKNOWN_JOB, None)


def test_letters_judged_in_pieces_are_judged_like_the_whole_list() -> None:
    found = judged(make_letter("a"), make_letter("b"), make_letter("a"), make_letter("b"))
    seen = HashSet()
    again = [one.verdict for one in found]
    for piece in (found[:1], found[1:3], found[3:]):
        judge(piece, lambda _job: False, seen)
    assert [one.verdict for one in found] == again
    assert (len(seen), seen.add("a"), seen.add("c")) == (2, False, True)


def test_only_the_letter_nearest_the_head_is_no_duplicate() -> None:
    found = judged(make_letter("a"), make_letter("b"), make_letter("a", error="later"))
    assert [one.verdict for one in found] == [
        Verdict.RETRYABLE,
        Verdict.RETRYABLE,
        Verdict.DUPLICATE,
    ]


def test_a_release_takes_all_a_requeue_only_retryable_and_force_all_but_unreadable() -> None:
    assert all(movable(Action.RELEASE, one, force=False) for one in Verdict)
    assert [one for one in Verdict if movable(Action.REQUEUE, one, force=False)] == [
        Verdict.RETRYABLE
    ]
    assert {one for one in Verdict if not movable(Action.REQUEUE, one, force=True)} == {
        Verdict.UNREADABLE
    }


def test_a_limit_ends_the_selection_with_the_last_letter_that_moves() -> None:
    found = judged(b"no json", *(make_letter(f"job-{n}") for n in range(5)))
    chosen = select(found, Selection(everything=True, limit=2), Action.REQUEUE)
    assert list(chosen.selected.at) == [0, 1, 2]
    assert list(chosen.moving.at) == [1, 2]
    assert chosen.skipped == {"unreadable": 1}


def test_an_unreadable_letter_matches_no_filter_but_its_verdict() -> None:
    found = judged(b"no json")
    for selection in (
        Selection(account="acct-1"),
        Selection(state=State.REFUNDED),
        Selection(failed_after=NOON),
        Selection(group="00000000"),
    ):
        assert selected(found, selection) == []
    assert selected(found, Selection(verdict=Verdict.UNREADABLE)) == found


def test_a_letter_without_failed_at_is_neither_before_nor_after() -> None:
    found = judged(make_letter(failed_at=None))
    assert selected(found, Selection(failed_before=NOON)) == []
    assert selected(found, Selection(failed_after=NOON)) == []


def test_a_plan_names_equal_letters_as_often_as_it_lists_them() -> None:
    found = judged(*[make_letter()] * 3)
    plan = (PlanItem(found[0].digest, meant=True),) * 2
    chosen = select(found, Selection(plan=plan), Action.RELEASE)
    assert list(chosen.moving.at) == [0, 1]
    more = select(found, Selection(plan=plan * 2), Action.RELEASE)
    assert (len(more.moving), more.missing) == (3, [found[0].digest])


@pytest.mark.parametrize(
    ("jobs", "counts"),
    [
        (("good",), (1, 0, 0)),
        (("bad",), (0, 1, 0)),
        (("none",), (0, 0, 1)),
        (("good", "none"), (1, 0, 1)),
        (("bad", "none"), (0, 1, 1)),
    ],
)
def test_named_things_are_counted_by_how_they_end(
    jobs: tuple[str, ...], counts: tuple[int, int, int]
) -> None:
    found = judged(make_letter("good"), make_letter("bad"))
    found[1].verdict = Verdict.SETTLED
    selection = Selection(jobs=jobs)
    ends = named_ends(select(found, selection, Action.REQUEUE), lambda _order: True)
    assert ends == counts


def test_due_times_are_spread_over_the_span_after_the_delay() -> None:
    policy = RequeuePolicy(delay=timedelta(minutes=10), spread=timedelta(minutes=4))
    due = [policy.due(NOON, at, 4) - NOON for at in range(4)]
    assert due == [timedelta(minutes=minutes) for minutes in (10, 11, 12, 13)]


# --- pieces --------------------------------------------------------------------------------


def spread(places: range | list[int], length: int = 2_000) -> Spread:
    places = list(places)
    staying = places[-1] + 1 - len(places)
    return Spread(places, length, 150.0, 150 * staying)


def test_few_that_stay_are_kept_at_the_head_and_many_are_set_aside_only_under_the_lease() -> None:
    assert spread(range(100, 1_000)).strategy(leased=True) is RemovalStrategy.KEEP
    assert spread(range(0, 2_000, 4)).strategy(leased=True) is RemovalStrategy.SET_ASIDE
    assert spread(range(0, 2_000, 4)).strategy(leased=False) is RemovalStrategy.SCATTER
    assert spread([1_999]).strategy(leased=True) is RemovalStrategy.SCATTER


def test_letters_deep_in_the_list_are_reached_by_passing_others_over() -> None:
    middle = spread([50_000], 100_000)
    assert middle.wants_lease
    assert middle.strategy(leased=True) is RemovalStrategy.SET_ASIDE
    assert spread([at for at in range(100_000) if at % 10 >= 3], 100_000).wants_lease
    assert not spread(range(100_000), 100_000).wants_lease
    assert not spread([5_000, 95_000], 100_000).wants_lease
    assert not spread(range(0, 2_000, 4)).wants_lease


def test_letters_of_one_scattered_call_stand_nearer_to_the_same_end_of_the_list() -> None:
    found = read(*(make_letter(f"job-{n}") for n in range(2_000)))
    pieces = scattered(placed_of(found, [3, 990, 1_010, 1_990]), len(found))
    assert [[pick.letter.index for pick in piece.picks] for piece in pieces] == [
        [3, 990],
        [1_010, 1_990],
    ]


def test_places_of_later_scattered_calls_are_those_after_the_earlier_ones() -> None:
    found = read(*(make_letter(f"job-{n}") for n in range(2_000)))
    pieces = scattered(placed_of(found, [3, 990, 1_010, 1_990]), len(found))
    assert [piece.places for piece in pieces] == [(3, 990), (1_008, 1_988)]


def cut(found: list[Letter], placed: list[Placed], strategy: RemovalStrategy) -> list[Piece]:
    match strategy:
        case RemovalStrategy.KEEP:
            return list(near_head(placed, 0))
        case RemovalStrategy.SCATTER:
            return list(scattered(placed, len(found)))
        case RemovalStrategy.SET_ASIDE:
            return list(stretches([one.raw for one in found], placed))


@pytest.mark.parametrize("strategy", list(RemovalStrategy))
@pytest.mark.parametrize("step", [1, 3, 700])
def test_pieces_hold_every_pick_once_in_order_and_are_bounded(
    strategy: RemovalStrategy, step: int
) -> None:
    found = read(*(make_letter(f"job-{n}", note="x" * (n % 3_000)) for n in range(2_500)))
    placed = placed_of(found, range(0, 2_500, step))
    pieces = cut(found, placed, strategy)
    assert [pick for piece in pieces for pick in piece.picks] == [pick for _, pick in placed]
    most = SCATTERED_LETTERS if strategy is RemovalStrategy.SCATTER else CHUNK_LETTERS
    for piece in pieces:
        assert len(piece.picks) <= most
        size = sum(len(pick.letter.raw) for pick in piece.picks)
        assert len(piece.picks) <= 1 or size <= CHUNK_BYTES
        if strategy is RemovalStrategy.SET_ASIDE:
            assert 1 <= piece.span <= CHUNK_SPAN


def test_stretches_cover_every_entry_in_order() -> None:
    found = read(*(make_letter(f"job-{n}") for n in range(1_500)))
    raws = [one.raw for one in found]
    pieces = list(stretches(raws, placed_of(found, [5, 900, 1_200])))
    assert sum(piece.span for piece in pieces) == 1_500
    start = 0
    for piece in pieces:
        assert (piece.first, piece.last) == (raws[start], raws[start + piece.span - 1])
        start += piece.span


def test_what_the_archive_cannot_hold_is_not_taken_and_is_named() -> None:
    large = b'{"job_id":"b","note":"%s"}' % (b"x" * ARCHIVED_BYTES_MAX)
    found = judged(make_letter("a"), large)
    for action in Action:
        made = select(found, Selection(everything=True), action, RequeuePolicy(force=True))
        assert list(made.moving.at) == [0]
        assert made.skipped == {"retryable": 1}
        assert [(one.job_id, one.order) for one in made.too_large] == [("b", None)]
    assert len(selected(found, Selection(everything=True))) == 2


def test_confirmed_letters_are_accepted_as_often_as_they_were_confirmed() -> None:
    found = judged(*[make_letter("a")] * 2, make_letter("b"))
    accepts = select(found, Selection(everything=True), Action.RELEASE).selected.once_each()
    raws = [*[make_letter("a")] * 3, make_letter("b"), make_letter("c")]
    assert [accepts(raw) for raw in raws] == [True, True, False, True, False]


def test_counting_keeps_neither_many_texts_of_errors_nor_long_ones() -> None:
    errors = [f"disk {n} is full" for n in range(2 * ERRORS_KEPT)] + ["x" * 5_000] * 3
    tally = Tally(judged(*(make_letter(f"job-{n}", error=one) for n, one in enumerate(errors))))
    assert [one.count for one in tally.error_groups()] == [2 * ERRORS_KEPT, 3]
    assert len(tally._of_error) <= ERRORS_KEPT
    assert "x" * 5_000 not in tally._of_error


def test_the_most_frequent_error_comes_first() -> None:
    found = judged(
        make_letter("a", error="disk 1"),
        make_letter("b", error="net"),
        make_letter("c", error="disk 2"),
        b"no json",
    )
    counts = Tally(found).statistics()
    assert [(one.error, one.count) for one in counts.by_error] == [("disk #", 2), ("net", 1)]
    assert (counts.depth, counts.unreadable, counts.jobs) == (4, 1, 3)
    assert counts.by_verdict == {"unreadable": 1, "retryable": 3}
