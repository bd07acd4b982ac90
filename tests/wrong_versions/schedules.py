"""Wrong workers and repairs for the schedule explorer: each the product with one rule broken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bson import ObjectId

from ledgerctl.stores.connections import Stores
from tests.builders import NOON, make_row

JOB = "job-1"
FLAG = {"refund": "refunded", "reclaim": "reclaimed"}

Action = Callable[[Stores], Any]
Judge = Callable[[Stores, list[Any], bool], list[str]]


def flip(stores: Stores, step: str, guard: dict[str, Any]) -> bool:
    """The conditional write, with this guard."""
    fields = {f"is_{FLAG[step]}": True, f"{FLAG[step]}_at": NOON}
    jobs = stores.mongo.collection("jobs")
    return jobs.update_one({"_id": JOB, **guard}, {"$set": fields}).modified_count == 1


def append(stores: Stores, step: str, row_id: Any = None) -> None:
    """The row, under an id of its own unless one is given."""
    row = make_row(JOB, step, _id=ObjectId() if row_id is None else row_id)
    stores.mongo.collection("ledger").insert_one(row)


def has_row(stores: Stores, step: str) -> bool:
    return stores.mongo.collection("ledger").find_one({"job_id": JOB, "type": step}) is not None


def flagged(stores: Stores, step: str) -> bool:
    found = stores.mongo.collection("jobs").find_one({"_id": JOB}) or {}
    return bool(found.get(f"is_{FLAG[step]}"))


def read_then_write(step: str) -> Action:
    """Reads the flag, decides, writes."""

    def act(stores: Stores) -> None:
        if not flagged(stores, step):
            flip(stores, step, {})
            append(stores, step)

    return act


def lost_guard_stops(step: str) -> Action:
    """The guard is right; a set flag is taken for a written row."""

    def act(stores: Stores) -> None:
        guard: dict[str, Any] = {f"is_{FLAG[step]}": False}
        if step == "reclaim":
            guard["is_refunded"] = True
        if flip(stores, step, guard):
            append(stores, step, f"{JOB}:{step}")

    return act


def own_flag_only(step: str) -> Action:
    """Each step looks at its own flag and at no other."""

    def act(stores: Stores) -> None:
        if flip(stores, step, {f"is_{FLAG[step]}": False}):
            append(stores, step, f"{JOB}:{step}")

    return act


def append_without_guard(step: str) -> Action:
    """Appends a row for each delivery."""

    def act(stores: Stores) -> None:
        flip(stores, step, {})
        append(stores, step)

    return act


def row_first(step: str) -> Action:
    """Looks for the row, appends it under an id of its own, then sets the flag."""

    def act(stores: Stores) -> None:
        if not has_row(stores, step):
            append(stores, step)
            flip(stores, step, {})

    return act


def random_row_id(step: str) -> Action:
    """The guard is right, the row's id is random: nothing makes a second append impossible."""

    def act(stores: Stores) -> None:
        if flip(stores, step, {f"is_{FLAG[step]}": False}):
            append(stores, step)

    return act


def naive_repair(stores: Stores) -> None:
    """Appends what is missing under an id of its own: it cannot tell a slow worker from a dead one."""
    if flagged(stores, "refund") and not has_row(stores, "refund"):
        append(stores, "refund")


def blind_repair(stores: Stores) -> None:
    """Clears the flag of a refund whose row is missing, so that the next delivery refunds again."""
    if flagged(stores, "refund") and not has_row(stores, "refund"):
        stores.mongo.collection("jobs").update_one({"_id": JOB}, {"$set": {"is_refunded": False}})


def delivered_again(action: Action) -> Callable[[Judge], Judge]:
    """After a death the same wrong version is delivered once more, and no repair comes by."""

    def wrap(judge: Judge) -> Judge:
        def heal(stores: Stores, actors: list[Any], died: bool) -> list[str]:
            if died:
                action(stores)
            return judge(stores, actors, False)

        return heal

    return wrap


def as_it_is(judge: Judge) -> Judge:
    """Judged as the product is."""
    return judge


@dataclass(frozen=True)
class Version:
    """A wrong version: who acts, and what the audit must say of some schedule of it."""

    actions: Sequence[Action]
    shows: frozenset[str]
    starts_refunded: bool = False
    judge: Callable[[Judge], Judge] = as_it_is


DOUBLED = frozenset({"duplicate_row"})
LOST = frozenset({"missing_row"})

VERSIONS: dict[str, Version] = {
    "read, then write (two refunds)": Version([read_then_write("refund")] * 2, DOUBLED),
    "read, then write (two reclaims)": Version(
        [read_then_write("reclaim")] * 2, DOUBLED, starts_refunded=True
    ),
    "append without guard": Version([append_without_guard("refund")] * 2, DOUBLED),
    "lost guard stops (a crash, a redelivery)": Version(
        [lost_guard_stops("refund")],
        LOST,
        judge=delivered_again(lost_guard_stops("refund")),
    ),
    "own flag only (refund, reclaim)": Version(
        [own_flag_only("refund"), own_flag_only("reclaim")],
        frozenset({"corrupt_flags", "unflagged_row"}),
    ),
    "row first, then flag": Version([row_first("refund")] * 2, DOUBLED),
    "random row id beside a repair": Version([random_row_id("refund"), naive_repair], DOUBLED),
    "a repair that clears the flag": Version(
        [lost_guard_stops("refund"), blind_repair], frozenset({"unflagged_row"})
    ),
}
