"""The seam to another team's ledger: our questions in their names, their documents in our shape.

Nothing else in the house knows a foreign field name. A question keeps its leading `$match` and
`$sort`, put into their names so that their indexes answer it; one stage then makes our shape, and
what their names cannot say exactly is asked again of that shape.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self

from bson import DatetimeMS, Decimal128, Int64
from pymongo.collection import Collection

from ledgerctl.field_map import FieldMap, ForeignLedger
from ledgerctl.stores.codec import Document

Pipeline = list[Document]
Order = Sequence[tuple[str, int]]

NEVER: Document = {"_id": {"$in": []}}
ZERO = Decimal128("0")
ONE = Decimal128(f"1.{'0' * 33}")
TICKS_MAX = Int64(2**53)  # a number beyond it is no time, in either unit
NULLS = ["missing", "null", "undefined"]
RANGES = {"$gt", "$gte", "$lt", "$lte"}
POSITIVE = RANGES | {"$eq", "$in", "$type"}
TIMES = {"created_at", "recorded_at", "refunded_at", "reclaimed_at"}
KEEPS_ORDER = ("$match", "$sample", "$limit")  # stages that see whole documents, whatever names


class Part(NamedTuple):
    """Hold a filter in their names, and what of it must be asked again of our shape."""

    theirs: Document
    again: Document


class Translator:
    """Put the questions to one collection into its own names; reads nothing."""

    def __init__(self, fields: FieldMap) -> None:
        self._map = fields
        self.paths = fields.paths
        scaled = fields.scale != 1 or "amount" not in fields.paths
        self.expressions: dict[str, Any] = {our: f"${path}" for our, path in fields.paths.items()}
        credit, debit = (self.expressions.pop(side, None) for side in ("credit", "debit"))
        heavy = {"amount"} if scaled else set()
        if fields.types:
            self.expressions["type"] = in_our_words(self.expressions["type"], fields.types)
        if credit is not None:
            self.expressions["amount"] = difference(credit, debit, fields.scale)
        for money in ("amount", "cost"):
            if fields.scale != 1 and money in fields.paths:
                self.expressions[money] = scaled_number(f"${fields.paths[money]}", fields.scale)
        if negative := [word for word, sign in fields.signs.items() if sign < 0]:
            kind = f"${fields.paths['type']}"
            self.expressions["amount"] = signed(self.expressions["amount"], kind, negative)
        if fields.time != "date":
            for our in TIMES & set(fields.paths):
                self.expressions[our] = moment(f"${fields.paths[our]}", fields)
                heavy.add(our)
        self._plain = {our for our, one in self.expressions.items() if isinstance(one, str)}
        self._light = (set(self.expressions) | {"_id"}) - heavy

    # filters

    def part(self, query: Mapping[str, Any]) -> Part:
        """Return the filter in their names: every document that the query wants passes it."""
        parts: list[Document] = []
        again: Document = {}
        for name, condition in query.items():
            theirs, is_exact = self._clause(name, condition)
            parts += [theirs] if theirs else []
            if not is_exact:
                again[name] = condition
        if NEVER in parts:
            return Part(NEVER, {})
        merged = {key: value for one in parts for key, value in one.items()}
        together = len(merged) == sum(map(len, parts))
        return Part(merged if together else {"$and": parts}, again)

    def _clause(self, name: str, condition: Any) -> tuple[Document, bool]:
        """Return one clause in their names, empty where they have none, and whether it says all."""
        if name in {"$or", "$and"}:
            return self._several(name, [self.part(one) for one in condition])
        if name == "_id":
            return {name: condition}, True
        if name.startswith("$") or "." in name:
            return {}, False
        if name not in self.expressions:
            known = absent_matches(condition)
            return {} if known is not False else NEVER, known is not None
        return self._on_field(name, self._map.paths.get(name, ""), condition)

    def _on_field(self, name: str, path: str, condition: Any) -> tuple[Document, bool]:
        conditions = as_conditions(condition)
        if name in TIMES and self._map.time != "date":
            return self._timed(path, conditions)
        if name not in self._plain:
            return self._worded(path, conditions) if name == "type" else {}, False
        if "." not in path:
            return {path: condition}, True
        # Through a list on the way, only what asks for a value means the same in both.
        useful = {key: value for key, value in conditions.items() if is_positive(key, value)}
        is_exact = useful.keys() == conditions.keys() and not holds_null(conditions)
        return ({path: useful} if useful else {}), is_exact

    def _several(self, name: str, parts: Sequence[Part]) -> tuple[Document, bool]:
        """Join clauses of `$or` or `$and`; one that can never hold leaves `$or` or ends `$and`."""
        is_exact = not any(one.again for one in parts)
        never = [one for one in parts if one.theirs == NEVER]
        if name == "$or":
            left = [one.theirs for one in parts if one.theirs != NEVER]
            theirs: Document = {name: left} if all(left) else {}
            return theirs if left else NEVER, is_exact
        left = [one.theirs for one in parts if one.theirs]
        return NEVER if never else {name: left} if left else {}, is_exact

    def _timed(self, path: str, conditions: Mapping[str, Any]) -> tuple[Document, bool]:
        """Return the bounds of a time as numbers; of seconds, which may be fractions, a second too wide."""
        known = {key for key, one in conditions.items() if key in RANGES and is_date(one)}
        slack, unit = (0, 1) if self._map.time == "ms" else (1, 1_000)
        low: list[int] = [-TICKS_MAX]
        high: list[int] = [TICKS_MAX]
        for key in known:
            ticks = int(DatetimeMS(conditions[key]))
            if key in {"$gt", "$gte"}:
                low.append(Int64(ticks + (key == "$gt") - slack) // unit)
            else:
                high.append(Int64(ticks + (key == "$lte") + slack) // unit + bool(slack))
        is_exact = not (slack and known)
        known |= {"$type"} if conditions.get("$type") == "date" else set()
        if not known:
            return {}, False
        bounds = {"$gte": Int64(max(low)), "$lt": Int64(min(high))}
        theirs: Document = {path: bounds}
        if self._map.dates_too:
            theirs = {"$or": [theirs, {path: {key: conditions[key] for key in known}}]}
        return theirs, is_exact and known == conditions.keys()

    def _worded(self, path: str, conditions: Mapping[str, Any]) -> Document:
        wanted = conditions.get("$in", [conditions["$eq"]] if "$eq" in conditions else None)
        if wanted is None:
            return {}
        words = [word for word, our in self._map.types.items() if our in wanted]
        return {path: {"$in": [*words, *wanted]}}

    # order and shape

    def order(self, keys: Order) -> Document | None:
        """Return the order in their names; None where it is one of what only our shape holds."""
        theirs: Document = {}
        for name, direction in keys:
            if name == "_id":
                return theirs | {name: direction}
            if name in self._plain or (name in TIMES and name in self.expressions):
                theirs.setdefault(self._map.paths[name], direction)
            elif name in self.expressions:
                return None
        return theirs

    def shape(self, names: set[str]) -> Document:
        """Return the stage that makes our shape, of these fields alone."""
        wanted = {our: self.expressions[our] for our in self.expressions if our in names}
        return {"$project": {"_id": int("_id" in names or not wanted), **wanted}}

    def inlined(self, stage: Document) -> Pipeline | None:
        """Return the stages of a `$group` over their fields; None where our shape must come first.

        Measured on 6.0: with no stage before it, and none of our words in its key, the server
        groups in its faster engine. So their words are grouped, and the groups of one of ours added.
        """
        text = repr(stage)
        if "$group" not in stage or re.search(r"\$\$|'\$\w+\.", text):
            return None
        if not {our for our in self.expressions if mentions(text, our)} <= self._light:
            return None
        group, added = (
            stage["$group"],
            {our: one for our, one in stage["$group"].items() if our != "_id"},
        )
        keys = [key for key, one in as_conditions(group["_id"]).items() if one == "$type"]
        if not self._map.types or not keys or any({*one} != {"$sum"} for one in added.values()):
            return [{"$group": replaced(group, self.expressions)}]
        raw = self.expressions | {"type": f"${self.paths['type']}"}
        key = {one: replaced(value, raw) for one, value in group["_id"].items()}
        words = {f"_id.{one}": in_our_words(f"$_id.{one}", self._map.types) for one in keys}
        again = {our: {"$sum": f"${our}"} for our in added}
        return [
            {"$group": {"_id": key, **replaced(added, self.expressions)}},
            {"$set": words},
            {"$group": {"_id": "$_id", **again}},
        ]


class ForeignCollection:
    """Read one foreign collection as if it held our documents; an absent one holds none."""

    def __init__(
        self,
        real: Collection[Document],
        translator: Translator,
        known: "Mapping[str, ForeignCollection]",
        absent_as: str = "",
    ) -> None:
        self._real = real
        self._known = known
        self._absent_as = absent_as
        self.is_absent = bool(absent_as)
        self.translator = translator
        self.name = absent_as or real.name
        self.index_information = real.index_information if not absent_as else dict

    def with_options(self, **options: Any) -> Self:
        """Return the same collection, read with other options."""
        real = self._real.with_options(**options)
        return type(self)(real, self.translator, self._known, self._absent_as)

    def find(
        self,
        query: Mapping[str, Any] | None = None,
        projection: Mapping[str, int] | None = None,
        **options: Any,
    ) -> "MappedCursor":
        """Find documents in our shape, as `Collection.find` gives them."""
        return MappedCursor(self, self._real.aggregate, query or {}, projection, options)

    def find_raw_batches(
        self, query: Mapping[str, Any], projection: Mapping[str, int], **options: Any
    ) -> "MappedCursor":
        """Find documents in our shape, in batches that nobody has decoded."""
        return MappedCursor(self, self._real.aggregate_raw_batches, query, projection, options)

    def find_one(
        self,
        query: Mapping[str, Any] | None = None,
        projection: Mapping[str, int] | None = None,
        **options: Any,
    ) -> Document | None:
        """Return the first document, or None."""
        return next(self.find(query, projection, **options).limit(1), None)

    def count_documents(self, query: Mapping[str, Any], *, limit: int = 0, **options: Any) -> int:
        """Return how many documents match, counted up to `limit`."""
        limits: Pipeline = [{"$limit": limit}] if limit else []
        counted = [{"$match": query}, *limits, {"$group": {"_id": None, "n": {"$sum": 1}}}]
        return next((int(one["n"]) for one in self.aggregate(counted, **options)), 0)

    def distinct(self, name: str, query: Mapping[str, Any]) -> list[Any]:
        """Return the values of a field of ours."""
        return [
            one["_id"]
            for one in self.aggregate([{"$match": query}, {"$group": {"_id": f"${name}"}}])
        ]

    def estimated_document_count(self) -> int:
        """Return about how many documents there are."""
        return 0 if self.is_absent else self._real.estimated_document_count()

    def aggregate(self, pipeline: Sequence[Document], **options: Any) -> Any:
        """Run a pipeline that is written for our shape."""
        return self._real.aggregate(self.translated(pipeline), **options)

    def path_of(self, name: str) -> str:
        """Return the name that a field of ours has in the real documents."""
        return self.translator.paths.get(name, name)

    def part(self, query: Mapping[str, Any]) -> Part:
        """Return the filter in their names; nothing passes that of an absent collection."""
        return Part(NEVER, {}) if self.is_absent else self.translator.part(query)

    def translated(self, pipeline: Sequence[Document]) -> Pipeline:
        """Return a pipeline for our shape as one for their documents."""
        head: Pipeline = [{"$match": NEVER}] if self.is_absent else []
        again: Pipeline = []
        rest = list(pipeline)
        while rest and next(iter(rest[0])) in KEEPS_ORDER and ("$match" in rest[0] or not again):
            stage = rest.pop(0)
            part = self.part(stage["$match"]) if "$match" in stage else Part(stage, {})
            named = {"$match": part.theirs} if "$match" in stage else stage
            head += [named] if part.theirs else []
            again += [{"$match": part.again}] if part.again else []
        if rest and not again and (grouped := self.translator.inlined(rest[0])):
            return [*head, *grouped, *self._rest(rest[1:])]
        text = repr([*again, *rest])
        whole = "$$ROOT" in text or not any({"$group", "$project"} & one.keys() for one in rest)
        names = {our for our in self.translator.expressions if whole or mentions(text, our)}
        if whole or "$group" not in rest[0] or "'$_id" in text or "'_id'" in repr(again):
            names.add("_id")
        return [*head, self.translator.shape(names), *again, *self._rest(rest)]

    def _rest(self, stages: Iterable[Document]) -> Iterator[Document]:
        """Yield the later stages; what they fetch from a foreign collection has our shape too."""
        for stage in stages:
            ((name, words),) = stage.items()
            other = self._known.get(words["coll" if name == "$unionWith" else "from"]) if name in {
                "$unionWith", "$lookup"
            } else None  # fmt: skip
            if other is None:
                yield stage
            elif name == "$unionWith" and not other.is_absent:
                yield {name: {"coll": other.name, "pipeline": other.translated(words["pipeline"])}}
            elif name == "$lookup":
                yield other.looked_up(words)

    def looked_up(self, words: Document) -> Document:
        """Return the stage that fetches documents of this collection by their `_id`."""
        if self.is_absent:
            return {"$set": {words["as"]: []}}
        return {"$lookup": words | {"pipeline": self.translated([])}}


class MappedCursor:
    """Hold a cursor of documents in our shape; asks the server at the first document."""

    def __init__(
        self,
        collection: ForeignCollection,
        ask: Callable[..., Iterable[Any]],
        query: Mapping[str, Any],
        projection: Mapping[str, int] | None,
        options: Document,
    ) -> None:
        self._collection = collection
        self._ask = ask
        self._query = query
        self._projection = projection
        self._order: Order = options.pop("sort", None) or ()
        self._slice: Document = {}
        renamed = {"batch_size": "batchSize", "allow_disk_use": "allowDiskUse"}
        self._options = {renamed.get(name, name): value for name, value in options.items()}
        self._documents: Iterator[Any] | None = None

    def sort(self, keys: str | Order, direction: int = 1) -> Self:
        """Put the documents into this order."""
        self._order = [(keys, direction)] if isinstance(keys, str) else keys
        return self

    def skip(self, count: int) -> Self:
        """Leave out the first documents."""
        self._slice["$skip"] = count
        return self

    def limit(self, count: int) -> Self:
        """Give at most so many; 0 for all."""
        self._slice |= {"$limit": count} if count else {}
        return self

    def max_time_ms(self, count: int) -> Self:
        """End the server's work after so long."""
        self._options["maxTimeMS"] = count
        return self

    def __iter__(self) -> Self:
        """Give the documents once."""
        return self

    def __next__(self) -> Any:
        """Ask the server at the first call."""
        if self._documents is None:
            self._documents = iter(self._ask(self.pipeline(), **self._options))
        return next(self._documents)

    def pipeline(self) -> Pipeline:
        """Return the stages that find these documents."""
        translator = self._collection.translator
        theirs, again = self._collection.part(self._query)
        order = dict(self._order)
        if natural := order.pop("$natural", None):
            self._options["hint"] = {"$natural": natural}
        early = translator.order([*order.items()])
        head: Pipeline = [{"$match": theirs}] if theirs else []
        head += [{"$sort": early}] if early else []
        fields = self._projection or dict.fromkeys(translator.expressions, 1)
        wanted = {name for name, shown in ({"_id": 1} | {**fields}).items() if shown}
        needed = wanted | {
            our for our in ("_id", *translator.expressions) if mentions(repr(again), our)
        }
        needed |= {*order} if early is None else set()
        tail: Pipeline = [{"$match": again}] if again else []
        tail += [{"$sort": order}] if early is None else []
        parts: Pipeline = [
            {name: self._slice[name]} for name in ("$skip", "$limit") if name in self._slice
        ]
        if not tail:
            return [*head, *parts, translator.shape(needed)]
        kept = [{"$project": {"_id": 0} | dict.fromkeys(wanted, 1)}] if needed > wanted else []
        return [*head, translator.shape(needed), *tail, *parts, *kept]


# expressions over one of their documents


def in_our_words(kind: str, types: Mapping[str, str]) -> Document:
    """Return a row's type; words that the map does not name stay as they are."""
    branches = [
        {"case": {"$eq": [kind, {"$literal": word}]}, "then": our} for word, our in types.items()
    ]
    return {"$switch": {"branches": branches, "default": kind}}


def signed(amount: Any, kind: str, negative: Sequence[str]) -> Document:
    """Return an amount that is stored positive, turned round where the row's word says so."""
    turned = {"$and": [{"$isNumber": "$$amount"}, {"$in": [kind, {"$literal": [*negative]}]}]}
    return {
        "$let": {
            "vars": {"amount": amount},
            "in": {"$cond": [turned, {"$multiply": ["$$amount", -1]}, "$$amount"]},
        }
    }


def scaled_number(value: str, scale: int) -> Document:
    """Return a number times the scale; anything else stays what it is."""
    return {"$cond": [{"$isNumber": value}, whole({"$multiply": [exact(value), scale]}), value]}


def difference(credit: str, debit: str, scale: int) -> Document:
    """Return credit less debit, times the scale; a side that is absent or null counts as 0.

    Both absent leave no amount, and a side that is no number stands for the amount.
    """
    sides = [{"$cond": [{"$isNumber": one}, exact(one), 0]} for one in (credit, debit)]
    odd = [
        {"case": {"$not": [{"$or": [{"$isNumber": one}, is_null(one)]}]}, "then": one}
        for one in (credit, debit)
    ]
    neither = {"case": {"$and": [is_null(credit), is_null(debit)]}, "then": "$$REMOVE"}
    amount = whole({"$multiply": [{"$subtract": sides}, scale]})
    return {"$switch": {"branches": [*odd, neither], "default": amount}}


def is_null(value: str) -> Document:
    """Test that a field is absent or null."""
    return {"$in": [{"$type": value}, NULLS]}


def exact(value: str) -> Document:
    """Return a number as a decimal, never through a float: a double counts as its shortest decimal.

    `$toDecimal` gives a double's first 15 digits. Where these lead back to the same double they
    are its shortest decimal, since no two decimals of 15 digits share a double; else every digit
    of it counts, so that 0.1 + 0.2 is no whole number of hundredths.
    """
    back = {"$convert": {"input": "$$short", "to": "double", "onError": None}}
    return {
        "$let": {
            "vars": {"short": {"$toDecimal": value}},
            "in": {"$cond": [{"$eq": [back, value]}, "$$short", {"$add": [value, ZERO]}]},
        }
    }


def whole(value: Document) -> Document:
    """Return a decimal as an int64 where it is whole and fits, else as it is."""
    integer = {"$convert": {"input": "$$exact", "to": "long", "onError": "$$exact"}}
    is_whole = {"$eq": [{"$trunc": "$$exact"}, "$$exact"]}
    shortest = {"$divide": ["$$exact", ONE]}  # dividing by 1.00…0 drops the zeros at the end
    return {"$let": {"vars": {"exact": value}, "in": {"$cond": [is_whole, integer, shortest]}}}


def moment(value: str, fields: FieldMap) -> Document:
    """Return a number of seconds or milliseconds as a date, to the millisecond; else no date."""
    in_range = [{"$gte": [value, -TICKS_MAX]}, {"$lt": [value, TICKS_MAX]}]
    ticks = {"$multiply": [exact(value), 1_000]} if fields.time == "s" else value
    date = {"$toDate": {"$toLong": {"$floor": ticks}}}
    is_date = {"$eq": [{"$type": value}, "date"]}
    other = value if fields.dates_too else {"$cond": [is_date, {"$toString": value}, value]}
    return {"$cond": [{"$and": [{"$isNumber": value}, *in_range]}, date, other]}


def replaced(value: Any, expressions: Mapping[str, Any]) -> Any:
    """Return the expression with each of our fields replaced by what it is made of."""
    if isinstance(value, Mapping):
        if "$literal" in value:
            return value
        return {name: replaced(one, expressions) for name, one in value.items()}
    if isinstance(value, list):
        return [replaced(one, expressions) for one in value]
    if isinstance(value, str) and value.startswith("$") and value != "$_id":
        return expressions.get(value[1:], "$$REMOVE")
    return value


# conditions of a filter


def mentions(text: str, our: str) -> bool:
    """Test that stages, as text, name a field of ours; `$type` as a key is an operator."""
    return re.search(rf"'\$?{our}'(?!: )|'{our}': |'\${our}\.", text) is not None


def is_date(value: object) -> bool:
    """Test that a bound is a date that counts in milliseconds."""
    return isinstance(value, datetime | DatetimeMS)


def as_conditions(condition: Any) -> Mapping[str, Any]:
    """Return a condition by operator; a bare value is an equality."""
    if isinstance(condition, Mapping) and next(iter(condition), "").startswith("$"):
        return condition
    return {"$eq": condition}


def is_positive(key: str, value: Any) -> bool:
    """Test that a condition asks for a value of a field, rather than for its absence or for a list."""
    if key == "$type":
        return "array" not in value
    values = value if key == "$in" else [value]
    return key in POSITIVE and not any(isinstance(one, list) for one in values)


def holds_null(conditions: Mapping[str, Any]) -> bool:
    """Test that null is among the values asked for, which an absent field matches too."""
    return any(
        one is None or (isinstance(one, list) and None in one) for one in conditions.values()
    )


def absent_matches(condition: Any) -> bool | None:
    """Tell whether a field that no document has meets a condition; None where that is not known."""
    known: list[bool | None] = []
    for key, value in as_conditions(condition).items():
        if key in RANGES | {"$eq", "$in", "$type"}:
            known.append(holds_null({key: value}))
        elif key in {"$ne", "$nin"}:
            known.append(not holds_null({key: value}))
        elif key == "$exists":
            known.append(not value)
        elif key == "$not":
            inner = absent_matches(value)
            known.append(None if inner is None else not inner)
        else:
            known.append(None)
    return None if None in known else all(known)


def foreign_collections(
    fields: ForeignLedger, real: Mapping[str, Collection[Document]], unreadable: Iterable[str]
) -> dict[str, ForeignCollection]:
    """Return the collections of a map, by the names that they have in our settings.

    Those of ours that the user may not read are absent: a right to find in theirs is enough.
    """
    known: dict[str, ForeignCollection] = {}
    rows = Translator(fields.ledger)
    by_name = {
        name: ForeignCollection(real["ledger"], rows, known, absent_as=real[name].name)
        for name in {*unreadable, "jobs"}
    }
    by_name["ledger"] = ForeignCollection(real["ledger"], rows, known)
    if fields.jobs is not None:
        by_name["jobs"] = ForeignCollection(real["jobs"], Translator(fields.jobs), known)
    known |= {one.name: one for one in by_name.values()}
    return by_name
