"""Dead letters without any server: verdicts, selection, pieces, exit codes, groups."""

from datetime import timedelta

import pytest

from ledgerctl.domain.dead import (
    ARCHIVED_BYTES_MAX,
    CHUNK_BYTES,
    CHUNK_LETTERS,
    CHUNK_SPAN,
    ERRORS_KEPT,
    SCATTERED_LETTERS,
    Action,
    Letter,
    Pick,
    PlanItem,
    RequeuePolicy,
    Selection,
    Standing,
    Tally,
    Verdict,
    Way,
    best_way,
    exit_code,
    judge,
    letters,
    movable,
    pieces,
    select,
    wants_lease,
)
from ledgerctl.domain.jobs import State
from tests.builders import NOON, make_letter

REFUNDED = Standing("job-1", State.REFUNDED, succeeded=False, account_id="acct-1")


def read(*raws: bytes) -> list[Letter]:
    return list(letters(("dead", index, raw) for index, raw in enumerate(raws)))


def judged(*raws: bytes, state: State = State.REFUNDED) -> list[Letter]:
    """Letters whose jobs are all known and refunded."""
    found = read(*raws)
    for one in found:
        if one.job_id is not None:
            one.standing = REFUNDED._replace(job_id=one.job_id, state=state)
    judge(found, set(), set())
    return found


def picks_of(found: list[Letter], at: range | list[int]) -> list[Pick]:
    return [Pick(order, found[index], b"x" * 10) for order, index in enumerate(at)]


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
    found[0].standing = REFUNDED._replace(state=state, succeeded=succeeded)
    judge(found, {"job-1"} if queued else set(), set())
    assert found[0].verdict is verdict


def test_a_letter_without_a_job_is_unknown() -> None:
    found = read(make_letter())
    judge(found, {"job-1"}, set())
    assert (found[0].verdict, found[0].state) == (Verdict.UNKNOWN_JOB, None)


def test_letters_judged_in_pieces_are_judged_like_the_whole_list() -> None:
    found = judged(make_letter("a"), make_letter("b"), make_letter("a"), make_letter("b"))
    seen: set[str] = set()
    again = [one.verdict for one in found]
    for piece in (found[:1], found[1:3], found[3:]):
        judge(piece, set(), seen)
    assert [one.verdict for one in found] == again
    assert seen == {"a", "b"}


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
    assert [one.position for one in chosen.letters] == [0, 1, 2]
    assert [one.position for one in chosen.moving] == [1, 2]
    assert chosen.skipped == {"unreadable": 1}


def test_an_unreadable_letter_matches_no_filter_but_its_verdict() -> None:
    found = judged(b"no json")
    for selection in (
        Selection(account="acct-1"),
        Selection(state=State.REFUNDED),
        Selection(failed_after=NOON),
        Selection(group="00000000"),
    ):
        assert select(found, selection, None).letters == []
    assert select(found, Selection(verdict=Verdict.UNREADABLE), None).letters == found


def test_a_letter_without_failed_at_is_neither_before_nor_after() -> None:
    found = judged(make_letter(failed_at=None))
    assert select(found, Selection(failed_before=NOON), None).letters == []
    assert select(found, Selection(failed_after=NOON), None).letters == []


def test_a_plan_names_equal_letters_as_often_as_it_lists_them() -> None:
    found = judged(*[make_letter()] * 3)
    plan = (PlanItem(found[0].digest, meant=True),) * 2
    chosen = select(found, Selection(plan=plan), Action.RELEASE)
    assert [one.position for one in chosen.moving] == [0, 1]
    more = select(found, Selection(plan=plan * 2), Action.RELEASE)
    assert (len(more.moving), more.missing) == (3, [found[0].digest])


@pytest.mark.parametrize(
    ("jobs", "code"),
    [(("good",), 0), (("bad",), 3), (("none",), 4), (("good", "none"), 8), (("bad", "none"), 3)],
)
def test_named_things_decide_the_exit_code(jobs: tuple[str, ...], code: int) -> None:
    found = judged(make_letter("good"), make_letter("bad"))
    found[1].verdict = Verdict.SETTLED
    selection = Selection(jobs=jobs)
    chosen = select(found, selection, Action.REQUEUE)
    done = {id(one) for one in chosen.moving}
    assert exit_code(selection, chosen, done=done, already=0) == code


def test_due_times_are_spread_over_the_span_after_the_delay() -> None:
    policy = RequeuePolicy(delay=timedelta(minutes=10), spread=timedelta(minutes=4))
    due = [policy.due(NOON, at, 4) - NOON for at in range(4)]
    assert due == [timedelta(minutes=minutes) for minutes in (10, 11, 12, 13)]


# --- pieces --------------------------------------------------------------------------------


def test_few_that_stay_are_kept_at_the_head_and_many_are_set_aside_only_under_the_lease() -> None:
    found = read(*(make_letter(f"job-{n}") for n in range(2_000)))
    raws = [one.raw for one in found]
    assert best_way(raws, found[100:1_000], leased=True) is Way.KEEP
    assert best_way(raws, found[::4], leased=True) is Way.SET_ASIDE
    assert best_way(raws, found[::4], leased=False) is Way.SCATTER
    assert best_way(raws, found[-1:], leased=True) is Way.SCATTER


def test_letters_deep_in_the_list_are_reached_by_passing_others_over() -> None:
    found = read(*(make_letter(f"job-{n}") for n in range(100_000)))
    raws = [one.raw for one in found]
    middle = found[50_000:50_001]
    assert wants_lease(raws, middle)
    assert best_way(raws, middle, leased=True) is Way.SET_ASIDE
    assert wants_lease(raws, [one for one in found if one.index % 10 >= 3])
    assert not wants_lease(raws, found)
    assert not wants_lease(raws, [found[5_000], found[95_000]])
    assert not wants_lease(raws[:2_000], found[:2_000:4])


def test_letters_of_one_scattered_call_stand_nearer_to_the_same_end_of_the_list() -> None:
    found = read(*(make_letter(f"job-{n}") for n in range(2_000)))
    picks = picks_of(found, [3, 990, 1_010, 1_990])
    cut = [
        [pick.letter.index for pick in piece.picks]
        for piece in pieces([one.raw for one in found], picks, Way.SCATTER)
    ]
    assert cut == [[3, 990], [1_010, 1_990]]


@pytest.mark.parametrize("way", [Way.KEEP, Way.SCATTER, Way.SET_ASIDE])
@pytest.mark.parametrize("step", [1, 3, 700])
def test_pieces_hold_every_pick_once_in_order_and_are_bounded(way: Way, step: int) -> None:
    found = read(*(make_letter(f"job-{n}", note="x" * (n % 3_000)) for n in range(2_500)))
    raws = [one.raw for one in found]
    picks = picks_of(found, range(0, 2_500, step))
    cut = list(pieces(raws, picks, way))
    assert [pick for piece in cut for pick in piece.picks] == picks
    for piece in cut:
        assert len(piece.picks) <= (SCATTERED_LETTERS if way is Way.SCATTER else CHUNK_LETTERS)
        size = sum(len(pick.letter.raw) for pick in piece.picks)
        assert len(piece.picks) <= 1 or size <= CHUNK_BYTES
        if way is Way.SET_ASIDE:
            assert 1 <= piece.span <= CHUNK_SPAN


def test_stretches_cover_the_list_up_to_the_last_letter_to_take() -> None:
    found = read(*(make_letter(f"job-{n}") for n in range(1_500)))
    raws = [one.raw for one in found]
    cut = list(pieces(raws, picks_of(found, [5, 900, 1_200]), Way.SET_ASIDE))
    assert sum(piece.span for piece in cut) == 1_201
    start = 0
    for piece in cut:
        assert (piece.first, piece.last) == (raws[start], raws[start + piece.span - 1])
        start += piece.span


def test_what_the_archive_cannot_hold_is_not_taken_and_is_counted() -> None:
    large = b'{"job_id":"b","note":"%s"}' % (b"x" * ARCHIVED_BYTES_MAX)
    found = judged(make_letter("a"), large)
    for action in Action:
        chosen = select(found, Selection(everything=True), action, force=True)
        assert [one.job_id for one in chosen.moving] == ["a"]
        assert (chosen.skipped, chosen.too_large) == ({"retryable": 1}, 1)
    assert len(select(found, Selection(everything=True), None).moving) == 2


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
