"""A filter in another team's names lets through what our filter on our shape lets through."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ledgerctl.field_map import ForeignLedger, read_map
from ledgerctl.stores.mapped import ForeignCollection, foreign_collections
from ledgerctl.stores.mongo import CODEC
from tests.conftest import Documents

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
TICK = 1_772_971_200_000
BASE = {"collection": "theirs", "job_id": "ref", "account_id": "a.b", "created_at": "ts"}
WORDS = {"type": "m.kind", "types": {"debit": "charge", "topup": "grant"}}
MAPS: dict[str, dict[str, Any]] = {
    "dates": BASE | WORDS | {"amount": "n"},
    "milliseconds": BASE | WORDS | {"amount": "n", "time": "ms", "signs": {"debit": -1}},
    "seconds": BASE | {"type": "kind", "credit": "n", "debit": "k", "time": "s", "scale": 100},
}
IDS: list[Any] = [
    None,
    "x",
    "y",
    7,
    Int64(7),
    7.0,
    ObjectId("6" * 24),
    ["x", "y"],
    [],
    [["x"]],
    {"b": 1},
]
KINDS: list[Any] = [None, "debit", "charge", "topup", "grant", "other", ["debit"], 3]
NUMBERS: list[Any] = [
    None,
    0,
    29,
    -3,
    0.29,
    0.1 + 0.2,
    Int64(2**53),
    Decimal128("1.5"),
    "5",
    float("nan"),
]
TIMES: list[Any] = [
    None, "2026", NOON, NOON + timedelta(milliseconds=1), TICK, TICK + 1, Int64(TICK - 1), TICK + 0.5,
    TICK / 1000, TICK / 1000 + 0.001, TICK // 1000, float("inf"), float("nan"), -1.5, True,
]  # fmt: skip
BOUNDS = [NOON + timedelta(milliseconds=one) for one in (-1, 0, 1, 2, 500, 1000)]


def some(values: list[Any]) -> st.SearchStrategy[Any]:
    """One of these values; equal ones of other types stay apart."""
    return st.integers(0, len(values) - 1).map(values.__getitem__)


def below(values: list[Any], name: str) -> st.SearchStrategy[Any]:
    """A subdocument, a list of them, nothing, or something that is none."""
    inner = st.one_of(some(values).map(lambda one: {name: one}), st.just({}))
    flat = some([one for one in values if not isinstance(one, list)]).map(lambda one: {name: one})
    return st.one_of(inner, st.lists(flat, max_size=2), st.just(None), st.just("flat"))


documents_of = st.fixed_dictionaries(
    {},
    optional={
        "ref": some(IDS), "a": below(IDS, "b"), "m": below(KINDS, "kind"), "kind": some(KINDS),
        "n": some(NUMBERS), "k": some(NUMBERS), "ts": some(TIMES), "type": st.just("not ours"),
    },
)  # fmt: skip


def conditions(values: list[Any], *operators: str) -> st.SearchStrategy[Any]:
    """A condition on one field."""
    types = st.sampled_from(("string", "number", "date", "array", "object"))
    return st.one_of(
        some(values).filter(lambda one: not isinstance(one, dict | list)),
        st.fixed_dictionaries({"$in": st.lists(some(values), max_size=3)}),
        st.fixed_dictionaries({"$ne": some(values)}),
        st.fixed_dictionaries({"$type": types}),
        st.fixed_dictionaries({"$not": st.fixed_dictionaries({"$type": types})}),
        st.fixed_dictionaries({"$exists": st.booleans()}),
        *(st.fixed_dictionaries({one: some(values)}) for one in operators),
    )


ranges = st.dictionaries(
    st.sampled_from(("$gt", "$gte", "$lt", "$lte")), some(BOUNDS), min_size=1, max_size=2
)
clauses: dict[str, st.SearchStrategy[Any]] = {
    "_id": conditions([0, 1, 2]),
    "job_id": conditions(IDS, "$gt", "$eq"),
    "account_id": conditions(IDS, "$gt"),
    "type": conditions(KINDS, "$eq"),
    "amount": conditions([0, 29, -29], "$gt"),
    "created_at": st.one_of(
        ranges, ranges.map(lambda one: one | {"$type": "date"}), conditions(BOUNDS)
    ),
    "recorded_at": st.one_of(ranges, conditions(BOUNDS)),
}
fields = st.lists(
    st.one_of(*(st.fixed_dictionaries({name: one}) for name, one in clauses.items())),
    min_size=1,
    max_size=2,
).map(lambda ones: {name: one for clause in ones for name, one in clause.items()})
several = st.lists(fields, min_size=1, max_size=3)
queries = st.one_of(
    fields,
    st.tuples(fields, several).map(lambda both: both[0] | {"$or": both[1]}),
    st.tuples(fields, several).map(lambda both: both[0] | {"$and": both[1]}),
)


@pytest.fixture(params=MAPS)
def collection(request: pytest.FixtureRequest, documents: Documents) -> ForeignCollection:
    fields_of = read_map({"ledger": MAPS[request.param]})
    assert isinstance(fields_of, ForeignLedger)
    theirs = documents.client.get_database(documents.name, codec_options=CODEC)
    return foreign_collections(fields_of, {"ledger": theirs.theirs, "jobs": theirs.none}, ())[
        "ledger"
    ]


@settings(
    max_examples=15, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.lists(documents_of, min_size=5, max_size=25), st.lists(queries, min_size=5, max_size=10))
def test_a_filter_in_their_names_finds_what_ours_finds_in_our_shape(
    collection: ForeignCollection,
    documents: Documents,
    theirs: list[dict[str, Any]],
    asked: list[dict[str, Any]],
) -> None:
    stored = documents.client.get_database(documents.name, codec_options=CODEC).theirs
    stored.delete_many({})
    stored.insert_many([{"_id": at} | one for at, one in enumerate(theirs)])
    shape = collection.translator.shape({"_id", *collection.translator.expressions})
    for query in asked:
        pipeline = [shape, {"$match": query}, {"$sort": {"_id": 1}}]
        wanted = list(stored.aggregate(pipeline))
        assert repr(list(collection.find(query).sort("_id", 1))) == repr(wanted), query
        assert collection.count_documents(query) == len(wanted), query
        by_type = {"_id": {"type": "$type", "number": {"$isNumber": "$amount"}}, "n": {"$sum": 1}}
        grouped = [{"$match": query}, {"$group": by_type | {"sum": {"$sum": "$amount"}}}]
        ours = sorted(map(repr, collection.aggregate(grouped)))
        assert ours == sorted(map(repr, stored.aggregate([shape, *grouped]))), query
