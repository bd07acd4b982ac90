"""Propose a map of another team's ledger from some of its documents."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

Values = list[Any]
Columns = Mapping[str, Values]  # the values that documents hold under each path, null left out

WORDS_MAX = 20  # a field with more different texts holds no types
PLACES_MAX = 6
OUR_WORDS = {
    "charge": [
        "charge",
        "debit",
        "spend",
        "spent",
        "usage",
        "use",
        "consume",
        "consumed",
        "fee",
        "hold",
    ],
    "refund": [
        "refund",
        "refunded",
        "reversal",
        "reverse",
        "rollback",
        "release",
        "chargeback",
        "returned",
    ],
    "reclaim": ["reclaim", "recharge", "rebill", "recovered"],
    "grant": [
        "grant",
        "topup",
        "purchase",
        "credit",
        "deposit",
        "bonus",
        "gift",
        "promo",
        "payment",
    ],
    "correction": ["correction", "adjust", "adjustment", "fix", "manual"],
}
NAMES = {
    "account_id": [
        "account",
        "accounts",
        "customer",
        "user",
        "client",
        "owner",
        "wallet",
        "tenant",
        "member",
    ],
    "credit": ["credit", "in", "received", "deposit", "inflow"],
    "debit": ["debit", "out", "spent", "withdrawal", "outflow"],
    "amount": ["amount", "delta", "credits", "points", "value", "change", "sum", "total"],
    "recorded_at": ["inserted", "recorded", "written", "ingested", "logged", "timestamp"],
    "created_at": [
        "created",
        "occurred",
        "datetime",
        "ts",
        "date",
        "time",
        "at",
        "when",
        "posted",
        "timestamp",
    ],
    "type": ["type", "kind", "category", "operation", "reason", "what", "event", "action", "entry"],
    "job_id": ["job", "task", "order", "ref", "reference", "request", "run", "journal"],
    "cost": ["cost", "price", "amount", "charge", "credits"],
    "is_refunded": ["refunded"],
    "is_reclaimed": ["reclaimed", "recovered"],
    "refunded_at": ["refunded"],
    "reclaimed_at": ["reclaimed", "recovered"],
    "status": ["status", "state", "outcome"],
}
LEDGER = ("credit", "debit", "amount", "created_at", "recorded_at", "account_id", "type", "job_id")
JOBS = ("is_refunded", "is_reclaimed", "refunded_at", "reclaimed_at", "created_at", "status", "account_id", "cost")  # fmt: skip


@dataclass
class Proposal:
    """Hold a map as lines of TOML; `untold` names what must be known and was not found."""

    lines: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)


def columns_of(documents: Sequence[Mapping[str, Any]]) -> Columns:
    """Collect the values under each path, dotted ones into subdocuments."""
    found: dict[str, Values] = {}
    for document in documents:
        for path, value in paths_of(document):
            found.setdefault(path, []).append(value)
    return found


def paths_of(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each path of a document with its value; lists and nulls hold none."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from paths_of(value, f"{above}{name}.")
        elif value is not None and not isinstance(value, list) and "." not in name:
            yield f"{above}{name}", value


def propose(
    ledger: str, rows: Columns, jobs: str | None = None, documents: Columns | None = None
) -> Proposal:
    """Return the map of these two collections, unsure parts as comments."""
    found = Proposal()
    chosen = chosen_of(rows, LEDGER)
    if not {"credit", "debit"} <= chosen.keys():
        chosen.pop("credit", None), chosen.pop("debit", None)
    else:
        chosen.pop("amount", None)
    amounts = [path for name, path in chosen.items() if name in {"credit", "debit", "amount"}]
    told = chosen | ({"an amount": amounts[0]} if amounts else {})
    needed = {"account_id": "an account", "an amount": "an amount", "created_at": "a time"}
    found.untold = [words for name, words in needed.items() if name not in told]
    found.lines = ["[map.ledger]", f"collection = {quoted(ledger)}", *named(chosen)]
    found.lines += [
        f"# {words} is not among its fields: {', '.join(rows)}" for words in found.untold
    ]
    found.lines += more(rows, chosen, amounts)
    if jobs is not None and documents is not None:
        found.lines += [
            "",
            "[map.jobs]",
            f"collection = {quoted(jobs)}",
            *named(chosen_of(documents, JOBS)),
        ]
    return found


def chosen_of(columns: Columns, names: Sequence[str]) -> dict[str, str]:
    """Choose for each field of ours the path that fits best, each once."""
    chosen: dict[str, str] = {}
    for name in names:
        fitting = [
            (rank, path)
            for path, values in columns.items()
            if path != "_id" and path not in chosen.values() and fits(name, values)
            if (rank := rank_of(name, path)) is not None
        ]
        if fitting:
            chosen[name] = min(fitting)[1]
    return chosen


def rank_of(name: str, path: str) -> int | None:
    """Rank the name of a path for a field of ours: 0 is best, None not at all."""
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", path).lower())
    ranks = [rank for rank, word in enumerate(NAMES[name]) if word in words]
    return min(ranks, default=None)


def fits(name: str, values: Values) -> bool:
    """Test that nine in ten values can be what this field holds."""
    tests: dict[str, Callable[[Any], bool]] = {
        "is_refunded": is_flag, "is_reclaimed": is_flag, "credit": is_amount, "debit": is_amount,
        "amount": is_amount, "cost": is_amount, "type": is_text, "status": is_text,
        "account_id": is_id, "job_id": is_id,
    }  # fmt: skip
    few = name not in {"type", "status"} or len({*values}) <= WORDS_MAX
    return few and sum(map(tests.get(name, is_moment), values)) * 10 >= len(values) * 9


def is_flag(value: Any) -> bool:
    """Accept true and false."""
    return isinstance(value, bool)


def is_text(value: Any) -> bool:
    """Accept a text."""
    return isinstance(value, str)


def is_id(value: Any) -> bool:
    """Accept a text or a whole number."""
    return is_text(value) or (isinstance(value, int) and not is_flag(value))


def is_moment(value: Any) -> bool:
    """Accept a date, or a number of seconds or milliseconds of this century."""
    return isinstance(value, datetime) or unit_of(value) is not None


def unit_of(value: Any) -> str | None:
    """Return the unit of a number that can be a time."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return "s" if 10**9 <= value < 4 * 10**9 else "ms" if 10**12 <= value < 4 * 10**12 else None


def is_amount(value: Any) -> bool:
    """Accept a number that is no time."""
    return isinstance(value, int | Decimal) and not is_flag(value) and unit_of(value) != "ms"


def more(rows: Columns, chosen: Mapping[str, str], amounts: Sequence[str]) -> Iterator[str]:
    """Yield what names alone do not say: the unit of times, the scale of amounts, words and signs."""
    units = Counter(filter(None, map(unit_of, rows.get(chosen.get("created_at", ""), ()))))
    if units:
        yield f'time = "{units.most_common(1)[0][0]}"'
    numbers = [one for path in amounts for one in rows[path]]
    places = max((places_of(one) for one in numbers), default=0)
    if places:
        yield f"scale = {10 ** min(places, PLACES_MAX)}  # unsure: amounts have up to {places} decimals"
    words = Counter(one for one in rows.get(chosen.get("type", ""), ()) if isinstance(one, str))
    yield "[map.ledger.types]" if words else "# no field of types: every row is of unknown type"
    ours = {
        word: our for word in words for our in OUR_WORDS if word == our or our_word(word) == our
    }
    for word, count in words.most_common():
        if word not in ours:
            yield f'# {quoted(word)} = ""  # unsure: {count} rows; {", ".join(OUR_WORDS)}'
        elif word != ours[word]:
            yield f'{quoted(word)} = "{ours[word]}"  # unsure: {count} rows'
    taken = [word for word in ours if ours[word] in {"charge", "reclaim"}]
    if (
        "amount" in chosen
        and taken
        and all(one >= 0 for one in numbers if isinstance(one, int | Decimal))
    ):
        yield "[map.ledger.signs]  # unsure: no amount is negative"
        yield from (f"{quoted(word)} = -1" for word in taken)


def our_word(word: str) -> str | None:
    """Return our type of a word that other ledgers use."""
    plain = re.findall(r"[a-z]+", word.lower())
    return next(
        (our for our, known in OUR_WORDS.items() if {*known} & {*plain, "".join(plain)}), None
    )


def places_of(value: Any) -> int:
    """Count the decimals of a number."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return 0
    return max(0, -int(value.normalize().as_tuple().exponent))


def named(chosen: Mapping[str, str]) -> list[str]:
    """Return lines that name fields."""
    return [f"{ours} = {quoted(path)}" for ours, path in sorted(chosen.items())]


def quoted(text: str) -> str:
    """Return a text as TOML holds it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(one if one.isprintable() else f"\\U{ord(one):08X}" for one in escaped) + '"'
    )
