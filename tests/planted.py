"""Planted faults: small stories that each break one rule, and what the audit must say of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bson import Decimal128, Int64, ObjectId

from tests.builders import NOON, Document, make_job, make_row, without

FAR = timedelta(days=30_000)  # after any now that these tests will see
REFUNDED: Document = {"is_refunded": True, "refunded_at": NOON, "status": "failed"}
RECLAIMED: Document = REFUNDED | {"is_reclaimed": True, "reclaimed_at": NOON, "status": "succeeded"}

Said = tuple[str, int, bool]  # code, effect, repairable


@dataclass(frozen=True)
class Fault:
    """One story: its documents, and every finding it must make, in any order."""

    name: str
    jobs: list[Document]
    rows: list[Document]
    said: set[Said]
    messages: list[str] = field(default_factory=list)  # rows whose message stands

    @property
    def text(self) -> str | None:
        """The id under which the findings come."""
        if self.jobs:
            return str(self.jobs[0]["_id"])
        return None if "job_id" not in self.rows[0] else str(self.rows[0]["job_id"])


def story(
    name: str,
    said: set[Said],
    *rows: str | Document,
    job: Document | None = None,
    lacking: tuple[str, ...] = (),
    **flags: Any,
) -> Fault:
    """A job named like its fault, with rows given by type or as changes to a row."""
    made = [
        make_row(name, one) if isinstance(one, str) else make_row(name, one["type"], **one)
        for one in rows
    ]
    document = without(make_job(name, **flags) | (job or {}), *lacking)
    return Fault(name, [document], made, said)


def row(row_type: str, **changes: Any) -> Document:
    """A row of this type with some fields changed."""
    return {"type": row_type, **changes}


FAULTS: list[Fault] = [
    story("clean-charged", set(), "charge"),
    story("clean-uncharged", set()),
    story("clean-refunded", set(), "charge", "refund", **REFUNDED),
    story("clean-reclaimed", set(), "charge", "refund", "reclaim", **RECLAIMED),
    story("clean-decimal", set(), row("charge", amount=Decimal128("-40.0"))),
    story("clean-zero", set(), row("charge", amount=0), row("refund", amount=0), job={"cost": 0}, **REFUNDED),
    story("clean-recorded", set(), row("charge", recorded_at=NOON)),
    story("recorded-in-words", {("odd_recorded_at", 0, False)}, row("charge", recorded_at="2026-03-08")),
    story("lost-refund", {("missing_row", -40, True)}, "charge", **REFUNDED),
    story("lost-reclaim", {("missing_row", 40, True)}, "charge", "refund", **RECLAIMED),
    story(
        "lost-both",
        {("missing_row", -40, True), ("missing_row", 40, True)},
        "charge",
        **RECLAIMED,
    ),
    story("unflagged-refund", {("unflagged_row", 40, True)}, "charge", "refund"),
    story("unflagged-both", {("unflagged_row", 0, True)}, "charge", "refund", "reclaim"),
    story("unflagged-reclaim", {("unflagged_row", -40, True)}, "charge", "refund", "reclaim", **REFUNDED),
    story("reclaim-alone", {("unflagged_row", -40, False)}, "charge", "reclaim"),
    story(
        "twice-refunded",
        {("duplicate_row", 40, False)},
        "charge",
        "refund",
        row("refund", _id=ObjectId()),
        **REFUNDED,
    ),
    story(
        "thrice-charged",
        {("duplicate_row", -80, False)},
        "charge",
        row("charge", _id="x1"),
        row("charge", _id="x2"),
    ),
    story("refund-too-small", {("wrong_amount", -33, False)}, "charge", row("refund", amount=7), **REFUNDED),
    story("refund-too-big", {("wrong_amount", 60, False)}, "charge", row("refund", amount=100), **REFUNDED),
    story(
        "partial-foreign",
        {("wrong_amount", -20, False), ("unflagged_row", 27, False)},
        row("charge", amount=-27),
        row("refund", amount=7),
        job={"cost": 27},
    ),
    story("refund-takes", {("wrong_sign", -80, False)}, "charge", row("refund", amount=-40), **REFUNDED),
    story("charge-gives", {("wrong_sign", 80, False)}, row("charge", amount=40)),
    story("reclaim-gives", {("wrong_sign", 80, False)}, "charge", "refund", row("reclaim", amount=40), **RECLAIMED),
    story("refund-without-charge", {("missing_charge", 40, False)}, "refund", **REFUNDED),
    story(
        "nothing-but-a-flag",
        {("missing_charge", 40, False), ("missing_row", -40, False)},
        **REFUNDED,
    ),
    Fault("orphan", [], [make_row("orphan")], {("orphan_row", -40, False)}),
    Fault(
        "orphan-without-job",
        [],
        [without(make_row("nobody", "refund", _id="orphan-without-job"), "job_id")],
        {("orphan_row", 40, False)},
    ),
    story(
        "corrupt",
        {("corrupt_flags", 0, False)},
        "charge",
        is_reclaimed=True,
        reclaimed_at=NOON,
    ),
    story(
        "corrupt-with-rows",
        {("corrupt_flags", 0, True)},
        "charge",
        "refund",
        "reclaim",
        is_reclaimed=True,
        reclaimed_at=NOON,
    ),
    story("bad-text", {("bad_flags", 0, False)}, "charge", is_refunded="false"),
    story("bad-number", {("bad_flags", 0, False)}, "charge", is_refunded=0),
    story("bad-proven", {("bad_flags", 0, True)}, "charge", "refund", is_refunded="true", refunded_at=NOON),
    story("no-flags", {("flags_missing", 0, True)}, "charge", lacking=("is_refunded", "is_reclaimed")),
    story("null-flag", {("flags_missing", 0, True)}, "charge", is_refunded=None),
    story("flag-without-time", {("flag_time", 0, True)}, "charge", "refund", is_refunded=True, status="failed"),
    story("time-without-flag", {("flag_time", 0, False)}, "charge", refunded_at=NOON),
    story("amount-in-words", {("bad_amount", -40, False)}, "charge", row("refund", amount="forty"), **REFUNDED),
    story("amount-absent", {("bad_amount", 40, False)}, row("charge", amount=None)),
    story("amount-broken", {("bad_amount", 40, False)}, row("charge", amount=-40.5)),
    Fault(
        "grant-in-words",
        [],
        [{"_id": "grant:w", "account_id": "acct-1", "type": "grant", "amount": "5", "created_at": NOON}],
        {("bad_amount", 0, False)},
    ),
    story("cost-in-words", {("bad_cost", 0, False)}, "charge", job={"cost": "40"}),
    story("cost-negative", {("bad_cost", 0, False)}, "charge", job={"cost": -40}),
    story("cost-edited", {("cost_mismatch", 0, False)}, "charge", job={"cost": 60}),
    story("dated-in-words", {("undated_row", 0, False)}, row("charge", created_at="2026-03-08")),
    story("dated-never", {("undated_row", 0, False)}, row("charge", created_at=None)),
    story("dated-ahead", {("future_row", 0, False)}, row("charge", created_at=NOON + FAR)),
    Fault(
        "mixed",
        [make_job(ObjectId("65f0aa00bb11cc22dd33ee44"))],
        [make_row("65f0aa00bb11cc22dd33ee44")],
        {("mixed_id_types", 0, False)},
    ),
    Fault(
        "mixed-number",
        [make_job(Int64(4711), **REFUNDED)],
        [make_row(Int64(4711)), make_row("4711", "refund")],
        {("mixed_id_types", 0, False)},
    ),
    Fault(
        "mixed-text",
        [make_job("4712")],
        [make_row(4712)],
        {("mixed_id_types", 0, False)},
    ),
    story("unsaid", {("missing_message", 0, True)}, row("charge", operation_id="op-1")),
    Fault(
        "said",
        [make_job("said")],
        [make_row("said", operation_id="op-1")],
        set(),
        messages=["said:charge"],
    ),
    story(
        "recovered",
        {("refunded_but_succeeded", 40, False)},
        "charge",
        "refund",
        **(REFUNDED | {"status": "succeeded"}),
    ),
    story(
        "corrected",
        {("duplicate_row", 0, False)},
        "charge",
        "refund",
        row("refund", _id="corrected-again"),
        row("correction", amount=-40),
        **REFUNDED,
    ),
    story(
        "half-corrected",
        {("duplicate_row", 10, False)},
        "charge",
        "refund",
        row("refund", _id="half-corrected-again"),
        row("correction", amount=-30),
        **REFUNDED,
    ),
    story("corrected-for-nothing", {("wrong_amount", -5, False)}, "charge", row("correction", amount=-5)),
    story("unknown-type", set(), "charge", row("goodwill", amount=3)),
]  # fmt: skip

SETTLED = {"corrected"}


def message(row_id: str) -> Document:
    """A message that stands in the outbox."""
    return {"_id": row_id, "message_key": row_id, "topic": "ledger.appended", "created_at": NOON}


def plant(insert: Callable[[str, list[Document]], Any], faults: list[Fault]) -> None:
    """Store these stories: `insert` takes a collection's name and documents."""
    for name, documents in (
        ("jobs", [job for fault in faults for job in fault.jobs]),
        ("ledger", [one for fault in faults for one in fault.rows]),
        ("outbox", [message(one) for fault in faults for one in fault.messages]),
    ):
        if documents:
            insert(name, documents)
