"""`balance show`, `list` and `replay` on a real server: exact, complete, in order, from the index."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId
from pymongo import MongoClient, monitoring

from ledgerctl.domain.balances import AccountBalance
from ledgerctl.errors import NotFound
from ledgerctl.operations.balances import balances, replay, show
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import INDEXES
from tests.bench.generate import Plan, account_name, generate
from tests.builders import NOON, make_job, make_row, without
from tests.conftest import Documents, Invoker

Client = MongoClient[dict[str, Any]]

SECOND = timedelta(seconds=1)


@pytest.fixture
def run(invoke: Invoker) -> Invoker:
    return invoke


def rows_of(documents: Documents, *amounts: Any) -> None:
    documents.ledger.insert_many(
        [
            make_row(row_type="goodwill", _id=f"r{n}", job_id=None, amount=amount)
            for n, amount in enumerate(amounts)
        ]
    )


# amounts


@pytest.mark.parametrize(
    ("amounts", "balance"),
    [
        ((9007199254740993, 0.0), 9007199254740993),
        ((Int64(2**63 - 1), 1), 2**63),
        ((Int64(-(2**63)), Int64(-(2**63)), -1), -(2**64) - 1),
        ((Int64(2**63 - 1), 1, -5), 2**63 - 5),
        ((Decimal128("40"), -40), 0),
        ((Decimal128("4E+1"), 2.0, 3), 45),
        ((Decimal128("9" * 34), 1), 10**34),
        ((1e15, -1e15), 0),
    ],
    ids=str,
)
def test_a_balance_is_exact_whatever_number_types_its_rows_have(
    stores: Stores, documents: Documents, amounts: tuple[Any, ...], balance: int
) -> None:
    rows_of(documents, *amounts)
    found = show(stores, "acct-1")
    assert (found.tally.balance, found.tally.rows) == (balance, len(amounts))
    assert balances(stores).accounts == [AccountBalance("acct-1", balance, len(amounts))]
    assert list(replay(stores, "acct-1").rows)[-1][1] == balance


@pytest.mark.parametrize(
    ("amount", "shown", "why"),
    [
        ("40", "40", "text"),
        (None, "null", "null"),
        (float("nan"), "NaN", "NaN"),
        (float("inf"), "Infinity", "infinite"),
        (Decimal128("-Infinity"), "-Infinity", "infinite"),
        (1.5, "1.5", "fraction"),
        (Decimal128("0.1"), "0.1", "fraction"),
        (True, "true", "true or false"),
        (["1"], "['1']", "list"),
    ],
    ids=str,
)
def test_a_row_that_cannot_be_summed_is_left_out_and_listed(
    run: Invoker, documents: Documents, amount: object, shown: str, why: str
) -> None:
    rows_of(documents, 7, amount, 8)
    page = run("balance", "show", "acct-1", "-o", "json")
    assert page.code == 5
    found = page.json()
    assert (found["balance"], found["rows"]) == (15, 3)
    (left_out,) = found["unusable_rows"]
    assert (left_out["row_id"], left_out["amount"]) == ("r1", shown)
    assert why in left_out["why"]
    everyone = run("balance", "list", "-o", "json")
    assert everyone.code == 5
    assert everyone.json()["items"] == [{"account_id": "acct-1", "balance": 15, "rows": 3}]
    assert everyone.json()["unusable_rows"] == [{"account_id": "acct-1", **left_out}]
    story = run("balance", "replay", "acct-1", "-o", "json")
    assert story.code == 5
    assert [row["balance"] for row in story.json()["rows"]] == [7, 7, 15]
    assert story.json()["unusable_rows"] == [left_out]


def test_a_row_without_any_amount_is_unusable_too(run: Invoker, documents: Documents) -> None:
    documents.ledger.insert_one(without(make_row(), "amount"))
    found = run("balance", "show", "acct-1", "-o", "json")
    assert (found.code, found.json()["balance"], len(found.json()["unusable_rows"])) == (5, 0, 1)


def test_an_unusable_row_before_the_window_makes_a_replay_exit_5(
    run: Invoker, documents: Documents
) -> None:
    rows_of(documents, "x")
    story = run("balance", "replay", "acct-1", "--from", "2026-04-01", "-o", "json")
    assert (story.code, story.json()["rows"], len(story.json()["unusable_rows"])) == (5, [], 1)


# whose rows


JOB_IDS = ["job-1", ObjectId(), Int64(77), 77, "77"]


@pytest.mark.parametrize("account", ["acct-1", ObjectId(), 12, Int64(2**40)], ids=type)
@pytest.mark.parametrize("job_id", JOB_IDS, ids=type)
def test_rows_with_and_without_their_account_make_one_balance(
    stores: Stores, documents: Documents, account: object, job_id: object
) -> None:
    documents.jobs.insert_one(make_job(job_id, account_id=account))
    documents.ledger.insert_many(
        [
            without(make_row(job_id), "account_id"),
            make_row(job_id, "refund", account_id=account),
            make_row(job_id, "reclaim", account_id=None),
        ]
    )
    found = show(stores, str(account))
    assert (found.tally.balance, found.tally.rows, found.jobs) == (-40, 3, 1)
    assert balances(stores).accounts == [AccountBalance(str(account), -40, 3)]
    assert [entry.type for entry, _ in replay(stores, str(account)).rows] == [
        "charge", "refund", "reclaim",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("job_id", "spelled"), [(ObjectId(b"a" * 12), "61" * 12), (77, "77"), ("77", Int64(77))]
)
def test_a_row_may_spell_its_job_in_another_type(
    stores: Stores, documents: Documents, job_id: object, spelled: object
) -> None:
    documents.jobs.insert_one(make_job(job_id))
    documents.ledger.insert_one(without(make_row(spelled), "account_id"))
    assert show(stores, "acct-1").tally.balance == -40
    assert balances(stores).accounts == [AccountBalance("acct-1", -40, 1)]


def test_the_job_of_the_very_type_wins_and_no_row_counts_twice(
    stores: Stores, documents: Documents
) -> None:
    documents.jobs.insert_many([make_job(77), make_job("77", account_id="acct-2")])
    documents.ledger.insert_many(
        [
            without(make_row(77, _id="int", amount=-1), "account_id"),
            without(make_row("77", _id="text", amount=-10), "account_id"),
        ]
    )
    assert show(stores, "acct-1").tally.balance == -1
    assert show(stores, "acct-2").tally.balance == -10
    assert balances(stores).accounts == [
        AccountBalance("acct-1", -1, 1),
        AccountBalance("acct-2", -10, 1),
    ]


def test_two_jobs_of_one_account_under_one_text_count_each_row_once(
    stores: Stores, documents: Documents
) -> None:
    documents.jobs.insert_many([make_job(77), make_job("77")])
    documents.ledger.insert_many(
        [without(make_row(id_, _id=f"{type(id_)}"), "account_id") for id_ in (77, "77")]
    )
    assert show(stores, "acct-1").tally.rows == 2
    assert len(list(replay(stores, "acct-1").rows)) == 2


def test_rows_of_an_unknown_job_stand_under_no_account_and_last(
    run: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job("lost", account_id=None))
    documents.ledger.insert_many(
        [
            make_row(account_id="zebra"),
            without(make_row("gone"), "account_id"),
            without(make_row("lost"), "account_id"),
            make_row(row_type="goodwill", _id="free", job_id=None, account_id=None, amount=3),
        ]
    )
    found = run("balance", "list", "-o", "json").json()
    assert found["items"] == [
        {"account_id": "zebra", "balance": -40, "rows": 1},
        {"account_id": None, "balance": -77, "rows": 3},
    ]
    assert (found["shown"], found["total"]) == (2, 2)


def test_one_account_under_two_types_is_one_line(run: Invoker, documents: Documents) -> None:
    documents.ledger.insert_many(
        [make_row(account_id="77"), make_row("job-2", account_id=77, amount=100)]
    )
    items = run("balance", "list", "-o", "json").json()["items"]
    assert items == [{"account_id": "77", "balance": 60, "rows": 2}]
    assert run("balance", "show", "77", "-o", "json").json()["balance"] == 60


def test_a_list_can_be_cut_by_balance_and_number(run: Invoker, documents: Documents) -> None:
    documents.ledger.insert_many(
        [make_row(f"j{n}", account_id=f"a{n}", amount=n - 2) for n in range(5)]
    )
    found = run("balance", "list", "--below", "0", "--limit", "1", "-o", "json").json()
    assert found["items"] == [{"account_id": "a0", "balance": -2, "rows": 1}]
    assert (found["shown"], found["total"]) == (1, 2)


@pytest.mark.parametrize("named", [0.0, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("id_kind", ["string", "mixed"])
def test_generated_ledgers_come_to_what_they_were_made_of(
    stores: Stores, documents: Documents, named: float, id_kind: str
) -> None:
    plan = Plan(rows=900, accounts=7, largest=0.3, named=named, id_kind=id_kind)
    totals = generate(documents, plan)
    found = balances(stores).accounts
    assert {one.account_id: (one.balance, one.rows) for one in found} == {
        account: (totals.balances[account], rows) for account, rows in totals.rows.items()
    }
    for account in totals.rows:
        page = show(stores, account)
        assert page.tally.balance == totals.balances[account]
        assert (page.tally.rows, page.jobs) == (totals.rows[account], totals.jobs[account])
    *_, (_, closing) = replay(stores, account_name(0)).rows
    assert closing == totals.balances[account_name(0)]


def test_an_account_without_row_and_job_does_not_exist(run: Invoker) -> None:
    for command in ("show", "replay"):
        assert run("balance", command, "not-an-id").code == 4


def test_an_account_with_a_job_alone_has_a_balance_of_zero(
    run: Invoker, documents: Documents
) -> None:
    documents.jobs.insert_one(make_job())
    page = run("balance", "show", "acct-1", "-o", "json")
    assert page.code == 0
    assert {name: page.json()[name] for name in ("balance", "rows", "jobs", "by_type")} == {
        "balance": 0, "rows": 0, "jobs": 1, "by_type": {},
    }  # fmt: skip
    assert run("balance", "replay", "acct-1", "-o", "json").json()["closing_balance"] == 0


# times


@pytest.fixture
def calendar(documents: Documents) -> None:
    """Rows of 1, 10, 100 and 1,000 credits: two days, one written late, one by its ObjectId."""
    day = datetime(2026, 3, 7, tzinfo=UTC)
    rows = [
        ("a", 1, day, None),
        ("b", 10, day + timedelta(days=1) - timedelta(milliseconds=1), None),
        ("c", 100, day + timedelta(days=1), day + timedelta(days=30)),
        (ObjectId.from_datetime(day + timedelta(days=40)), 1000, day, None),
    ]
    for row_id, amount, at, recorded in rows:
        document = make_row(row_type="goodwill", _id=row_id, job_id=None, amount=amount)
        documents.ledger.insert_one(document | {"created_at": at, "recorded_at": recorded})


@pytest.mark.parametrize(
    ("words", "balance"),
    [
        ("", 1111),
        ("--at 2026-03-06", 0),
        ("--at 2026-03-07", 1011),
        ("--at 2026-03-07T00:00:00Z", 1001),
        ("--at 2026-03-08T00:00:00Z", 1111),
        ("--known-at 2026-03-08", 11),
        ("--known-at 2026-04-06", 111),
        ("--known-at 2026-04-16", 1111),
        ("--at 2026-03-07 --known-at 2026-03-31", 11),
    ],
)
def test_a_balance_can_be_asked_as_of_and_as_known_at(
    run: Invoker, calendar: None, words: str, balance: int
) -> None:
    page = run("balance", "show", "acct-1", *words.split(), "-o", "json")
    assert (page.code, page.json()["balance"]) == (0, balance)


@pytest.mark.parametrize(
    ("words", "opening", "amounts"),
    [
        ("", 0, [1000, 1, 10, 100]),
        ("--from 2026-03-07 --to 2026-03-07", 0, [1000, 1, 10]),
        ("--from 2026-03-08", 1011, [100]),
        ("--to 2026-03-08T00:00:00Z", 0, [1000, 1, 10]),
        ("--from 2026-03-09", 1111, []),
    ],
)
def test_a_replay_window_opens_with_what_stood_before(
    run: Invoker, calendar: None, words: str, opening: int, amounts: list[int]
) -> None:
    story = run("balance", "replay", "acct-1", *words.split(), "-o", "json").json()
    assert story["opening_balance"] == opening
    assert sorted(row["amount"] for row in story["rows"]) == sorted(amounts)
    assert story["closing_balance"] == opening + sum(amounts)


def test_a_window_that_ends_before_it_begins_is_refused(run: Invoker) -> None:
    assert run("balance", "replay", "a", "--from", "2026-03-08", "--to", "2026-03-07").code == 2


def test_rows_dated_in_the_future_count_and_are_said(run: Invoker, documents: Documents) -> None:
    documents.ledger.insert_many(
        [make_row(), make_row(row_type="refund", created_at=datetime(2999, 1, 1, tzinfo=UTC))]
    )
    page = run("balance", "show", "acct-1", "-o", "json").json()
    assert (page["balance"], page["future_rows"]) == (0, 1)
    assert "1 row dated after" in page["notes"][0]
    assert run("balance", "show", "acct-1", "--at", "now", "-o", "json").json()["balance"] == -40
    assert "future" in run("balance", "list").err


@pytest.mark.parametrize("named", [True, False])
def test_undated_rows_count_without_an_end_and_lie_outside_every_window(
    run: Invoker, documents: Documents, named: bool
) -> None:
    owner: dict[str, Any] = {"account_id": "acct-1" if named else None}
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_many(
        [
            make_row(**owner),
            make_row(row_type="reclaim", created_at="2026-03-18", **owner),
            without(make_row(row_type="refund", **owner), "created_at"),
        ]
    )
    page = run("balance", "show", "acct-1", "-o", "json").json()
    assert (page["balance"], page["rows"], page["undated_rows"]) == (-40, 3, 2)
    at = run("balance", "show", "acct-1", "--at", "2026-12-31", "-o", "json").json()
    assert (at["balance"], at["rows"]) == (-40, 1)
    whole = run("balance", "replay", "acct-1", "-o", "json").json()
    assert [row["type"] for row in whole["rows"]] == ["refund", "reclaim", "charge"]
    assert whole["closing_balance"] == -40
    window = run("balance", "replay", "acct-1", "--to", "2026-12-31", "-o", "json").json()
    assert [row["type"] for row in window["rows"]] == ["charge"]
    assert "2 rows without a usable date" in window["notes"][0]


def test_a_date_that_python_has_not_stops_nothing(stores: Stores, documents: Documents) -> None:
    documents.ledger.insert_one(make_row())
    command = {"_id": "late", "account_id": "acct-1", "type": "refund", "amount": 40}
    year_20000 = {"$add": [NOON, Int64(18_000 * 365 * 86_400_000)]}
    documents.ledger.insert_one(command)
    documents.ledger.update_one({"_id": "late"}, [{"$set": {"created_at": year_20000}}])
    assert show(stores, "acct-1").tally.balance == 0
    assert [entry.row_id for entry, _ in replay(stores, "acct-1").rows] == ["job-1:charge", "late"]


# order


def test_rows_of_one_instant_go_by_type_then_by_id(stores: Stores, documents: Documents) -> None:
    kinds = ["goodwill", "correction", "reclaim", "refund", "charge", "grant"]
    documents.jobs.insert_one(make_job())
    documents.ledger.insert_many(
        [
            make_row(row_type=kind, _id=row_id, account_id=owner)
            for row_id, kind in [*zip("fedcba", kinds, strict=True), ("B", "charge"), (9, "charge"), (10, "charge")]
            for owner in ["acct-1" if row_id in {"a", "B", 10} else None]
        ]
    )  # fmt: skip
    order = [entry.row_id for entry, _ in replay(stores, "acct-1").rows]
    assert order == ["a", "9", "10", "B", "b", "c", "d", "e", "f"]


def test_fifty_rows_of_one_instant_come_once_each_in_the_same_order_every_time(
    stores: Stores, documents: Documents
) -> None:
    documents.ledger.insert_many([make_row(f"j{n:02}") for n in reversed(range(50))])
    order = [entry.row_id for entry, _ in replay(stores, "acct-1").rows]
    assert order == [f"j{n:02}:charge" for n in range(50)]
    assert order == [entry.row_id for entry, _ in replay(stores, "acct-1").rows]


# cost


class Commands(monitoring.CommandListener):
    """Keeps every aggregation and find as it is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in {"aggregate", "find"}:
            keep = (
                "aggregate",
                "find",
                "pipeline",
                "filter",
                "sort",
                "projection",
                "hint",
                "limit",
            )
            self.sent.append({key: event.command[key] for key in keep if key in event.command})

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


@pytest.mark.parametrize("command", ["show", "list"])
def test_balances_are_read_from_the_index_alone(
    stores: Stores, documents: Documents, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """No document of the ledger is fetched, however many rows there are."""
    generate(documents, Plan(rows=500, accounts=3, largest=0.5))
    for index in INDEXES:
        stores.indexes.build(index)
    commands = Commands()
    listeners = monitoring._LISTENERS.command_listeners
    monkeypatch.setattr(
        monitoring, "_LISTENERS", monitoring._Listeners([*listeners, commands], [], [], [], [])
    )
    with Stores(stores.settings) as watched:
        show(watched, account_name(0)) if command == "show" else balances(watched)
    assert commands.sent
    for sent in commands.sent:
        # A row without account is looked for by its null, which an index entry cannot prove.
        if sent.get("filter") == {"account_id": None}:
            continue
        words = sent | ({"cursor": {}} if "aggregate" in sent else {})
        plan = documents.command("explain", words, verbosity="executionStats")
        assert docs_examined(plan) == 0, sent


def docs_examined(plan: Any) -> int:
    """The documents fetched in all stages of an explained command."""
    if isinstance(plan, dict):
        own = plan.get("totalDocsExamined", 0)
        return int(own) + sum(map(docs_examined, plan.values()))
    return sum(map(docs_examined, plan)) if isinstance(plan, list) else 0


def test_not_found_names_the_account(stores: Stores) -> None:
    with pytest.raises(NotFound, match="nobody"):
        replay(stores, "nobody")
