"""Another team's fields: which of their names stands for which of ours, read from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType

from ledgerctl.addresses import BadValue
from ledgerctl.config_file import quoted
from ledgerctl.domain.rows import RowType

HINT = "`ledgerctl help map` shows a whole map; `ledgerctl config map` proposes one"
UNITS = ("date", "s", "ms")
ROW_FIELDS = (
    "job_id", "account_id", "type", "amount", "credit", "debit", "created_at", "recorded_at",
)  # fmt: skip
JOB_FIELDS = (
    "account_id", "cost", "is_refunded", "refunded_at", "is_reclaimed", "reclaimed_at",
    "created_at", "status",
)  # fmt: skip
NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class FieldMap:
    """Describe where one collection holds our fields, and how to read its times and amounts."""

    collection: str
    paths: Mapping[str, str]
    """Our field → theirs; a dotted one reaches into subdocuments."""
    time: str = "date"
    dates_too: bool = False
    """Dates count beside numbers of seconds or milliseconds."""
    scale: int = 1
    types: Mapping[str, str] = field(default_factory=dict)
    signs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ForeignLedger:
    """Hold a ledger under other names; without `jobs` there are none."""

    ledger: FieldMap
    jobs: FieldMap | None = None

    def __str__(self) -> str:
        jobs = f", jobs in {self.jobs.collection}" if self.jobs else ", no jobs"
        return f"ledger in {self.ledger.collection}{jobs}"


def read_map(value: object) -> ForeignLedger | None:
    """Return the map that the tables under `map` describe; None for none. Raises BadValue."""
    tables = as_table("map", value, ("ledger", "jobs"))
    if not tables:
        return None
    rows = read_fields("map.ledger", tables.get("ledger", NOTHING), ROW_FIELDS, ledger=True)
    for name in ("account_id", "created_at"):
        if name not in rows.paths:
            raise BadValue(f"map.ledger lacks {name}", HINT)
    if ("amount" in rows.paths) == ({"credit", "debit"} <= set(rows.paths)):
        raise BadValue("map.ledger wants either amount, or both credit and debit", HINT)
    if "jobs" not in tables:
        return ForeignLedger(rows)
    jobs = read_fields("map.jobs", tables["jobs"], JOB_FIELDS, time=rows.time)
    return ForeignLedger(rows, jobs)


def read_fields(
    name: str, value: object, fields: tuple[str, ...], *, ledger: bool = False, time: str = "date"
) -> FieldMap:
    """Return one collection's part of the map."""
    more = ("types", "signs") if ledger else ()
    table = as_table(name, value, ("collection", "time", "scale", *fields, *more))
    scale, unit = table.get("scale", 1), table.get("time", time)
    if type(scale) is not int or scale < 1:
        raise BadValue(f"{name}.scale is no whole number above 0", "as in scale = 100")
    if unit not in UNITS:
        raise BadValue(f"{name}.time is none of {', '.join(UNITS)}", HINT)
    types = as_table(f"{name}.types", table.get("types", NOTHING))
    ours = [str(one) for one in RowType]
    if wrong := [word for word, our in types.items() if our not in ours]:
        raise BadValue(f"{name}.types.{quoted(wrong[0])} is none of {', '.join(ours)}", HINT)
    signs = as_table(f"{name}.signs", table.get("signs", NOTHING))
    if wrong := [word for word, sign in signs.items() if type(sign) is not int or sign**2 != 1]:
        raise BadValue(f"{name}.signs.{quoted(wrong[0])} is neither 1 nor -1", HINT)
    if (types or signs) and "type" not in table:
        raise BadValue(f"{name} names words and no field type that holds them", HINT)
    return FieldMap(
        collection=read_path(f"{name}.collection", table.get("collection", "")),
        paths={one: read_path(f"{name}.{one}", table[one]) for one in fields if one in table},
        time=str(unit),
        dates_too="time" not in table,
        scale=scale,
        types={word: str(our) for word, our in types.items()},
        signs={word: 1 if sign == 1 else -1 for word, sign in signs.items()},
    )


def as_table(name: str, value: object, keys: tuple[str, ...] | None = None) -> Mapping[str, object]:
    """Return a table whose keys are all known. Raises BadValue with the nearest known key."""
    if not isinstance(value, Mapping):
        raise BadValue(f"{name} is no table", HINT)
    for key in value if keys is not None else ():
        if key not in (keys or ()):
            near = get_close_matches(key, keys or (), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(keys or ())}"
            raise BadValue(f"{name} has an unknown key {quoted(key)}", hint)
    return value


def read_path(name: str, value: object) -> str:
    """Return a field or collection name as MongoDB can hold it."""
    if not isinstance(value, str) or not all(value.split(".")):
        raise BadValue(f"{name} is no name", 'a text in quotes, as in "customer.id"')
    if "$" in value or not value.isprintable():
        raise BadValue(f"{name} holds $ or a control character", HINT)
    return value
