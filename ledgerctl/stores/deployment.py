"""The MongoDB deployment itself, read only: who we are there, what it promises, what expires."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from ledgerctl.config import CollectionNames
from ledgerctl.domain.doctor import FlagCounts
from ledgerctl.stores.codec import Document, to_shown
from ledgerctl.stores.mongo import Mongo, scans_of

BOOLEAN_OR_ABSENT = ["bool", "missing", "null"]


@dataclass(frozen=True, slots=True)
class Login:
    """Hold the users that the connection acts as, and their rights; none where none is asked."""

    users: tuple[str, ...]
    database: str
    privileges: tuple[Mapping[str, Any], ...]

    def allows(self, collection: str, action: str) -> bool:
        """Return whether these users may do `action` on a collection of our database."""
        return any(
            action in privilege["actions"] and self._covers(privilege["resource"], collection)
            for privilege in self.privileges
        )

    def _covers(self, resource: Mapping[str, Any], collection: str) -> bool:
        if resource.get("anyResource"):
            return True
        return (
            "db" in resource
            and resource["db"] in {"", self.database}
            and resource["collection"] in {"", collection}
        )


class Deployment:
    """Ask the server about itself: each call is one short command that changes nothing."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    def version(self) -> str:
        """Return the server's version."""
        return str(self._command("buildInfo").get("version", "?"))

    def login(self) -> Login:
        """As whom we are connected, with every privilege, inherited ones too."""
        found = self._command("connectionStatus", showPrivileges=True)["authInfo"]
        return Login(
            users=tuple(f"{one['user']}@{one['db']}" for one in found["authenticatedUsers"]),
            database=self._mongo.database.name,
            privileges=tuple(found.get("authenticatedUserPrivileges", ())),
        )

    def is_writable(self) -> bool:
        """Return whether the server we talk to takes writes: it is no secondary."""
        return bool(self._mongo.hello.get("isWritablePrimary", False))

    def clock_offset(self, clock: Callable[[], datetime]) -> timedelta:
        """Return the server's time minus ours, as of the middle of asking."""
        before = clock()
        answer = self._command("hello")
        after = clock()
        heard: datetime = answer["localTime"]
        heard = heard if heard.tzinfo else heard.replace(tzinfo=UTC)
        return heard - (before + (after - before) / 2)

    def asked_write_concern(self) -> Document:
        """Return what the URI asks of every write; ours ask for majority and journal."""
        return dict(self._mongo.client.write_concern.document)

    def default_write_concern(self) -> Document:
        """Return what the deployment gives a writer that asks for nothing.

        Where it names none, as beside an arbiter, that is the acknowledgement of one member.
        """
        return dict(self._command("getDefaultRWConcern").get("defaultWriteConcern") or {"w": 1})

    def keeps_journal(self) -> bool:
        """Return whether a standalone server keeps its journal, without which our writes fail."""
        options = self._command("getCmdLineOpts").get("parsed", {})
        journal = options.get("storage", {}).get("journal", {})
        return bool(journal.get("enabled", True))

    def demand_login(self) -> None:
        """Raise NotPermitted when the server wants a user and we are none; needs no right else."""
        with self._mongo.reading("look at the database"):
            self._mongo.database.list_collection_names(authorizedCollections=True)

    def options_of(self, collection: str) -> Document:
        """Return how a collection was made (`capped`, `expireAfterSeconds`); empty without one."""
        name = self._mongo.collection(collection).name
        with self._mongo.reading(f"read the options of {name}"):
            found = self._mongo.database.list_collections(filter={"name": name})
            return next((dict(one.get("options", {})) for one in found), {})

    def collections(self) -> Iterator[tuple[str, str, Document]]:
        """Yield each collection of ours that exists: its name, its kind, how it was made."""
        names = {self._mongo.collection(one.name).name for one in fields(CollectionNames)}
        with self._mongo.reading("read how the collections were made"):
            for one in self._mongo.database.list_collections():
                if one["name"] in names:
                    yield one["name"], one.get("type", "collection"), one.get("options", {})

    def shard_keys(self) -> dict[str, Document]:
        """Return by its name in the settings the key of each collection that a router spreads."""
        if self._mongo.hello.get("msg") != "isdbgrid":
            return {}
        database = self._mongo.database.name
        names = [one.name for one in fields(CollectionNames)]
        ours = {f"{database}.{self._mongo.collection(name).name}": name for name in names}
        with self._mongo.reading("read the shard keys"):
            found = self._mongo.client["config"]["collections"].find({"_id": {"$in": [*ours]}})
            return {ours[one["_id"]]: one["key"] for one in found if not one.get("dropped")}

    def has_rows_without_account(self) -> bool:
        """Return whether the account of some ledger row is only its job's."""
        with self._mongo.reading("look for rows without an account"):
            return self._mongo.collection("ledger").find_one({"account_id": None}) is not None

    def collection_names(self) -> list[str]:
        """Return the collections of the database that may hold documents of a team's own."""
        with self._mongo.reading("list the collections"):
            names = self._mongo.database.list_collection_names(authorizedCollections=True)
        return sorted(name for name in names if not name.startswith("system."))

    def sample(self, name: str, size: int) -> list[Document]:
        """Return up to `size` documents of a collection, in plain types, under their own names."""
        with self._mongo.reading(f"read {name}"):
            found = self._mongo.database[name].aggregate([{"$sample": {"size": size}}])
            return [to_shown(document) for document in found]

    def walks(self, name: str, path: str) -> bool:
        """Ask whether a look-up by this field reads the whole collection."""
        query = {"find": name, "filter": {path: {"$in": ["", 0]}}}
        with self._mongo.reading(f"explain a look-up in {name}"):
            plan = self._mongo.database.command("explain", query, verbosity="queryPlanner")
        return any(str(one["stage"]).endswith("COLLSCAN") for one in scans_of(plan))

    def flag_counts(self, *, sample: int | None = None) -> FlagCounts:
        """Return how many jobs have which faulty flags; of all jobs, or of `sample` random ones."""
        pipeline: list[Document] = [{"$sample": {"size": sample}}] if sample else []
        with self._mongo.reading("count the jobs' flags"):
            found = self._mongo.collection("jobs").aggregate([*pipeline, COUNT_FLAGS])
            counts = next(iter(found), {})
        return FlagCounts(
            jobs=counts.get("jobs", 0),
            absent=counts.get("absent", 0),
            not_boolean=counts.get("not_boolean", 0),
            corrupt=counts.get("corrupt", 0),
            sampled=sample is not None,
        )

    def _command(self, name: str, **options: Any) -> Document:
        with self._mongo.reading(f"ask MongoDB ({name})"):
            return dict(self._mongo.client.admin.command(name, **options))


def _either(test: Callable[[Document], Document]) -> Document:
    return _number(
        {"$or": [test({"$type": f"${flag}"}) for flag in ("is_refunded", "is_reclaimed")]}
    )


def _number(test: Document) -> Document:
    return {"$sum": {"$cond": [test, 1, 0]}}


NEVER_REFUNDED: Document = {"$in": [{"$ifNull": ["$is_refunded", False]}, [False]]}
COUNT_FLAGS: Document = {
    "$group": {
        "_id": None,
        "jobs": {"$sum": 1},
        "absent": _either(lambda kind: {"$in": [kind, ["missing", "null"]]}),
        "not_boolean": _either(lambda kind: {"$not": [{"$in": [kind, BOOLEAN_OR_ABSENT]}]}),
        "corrupt": _number({"$and": [{"$eq": ["$is_reclaimed", True]}, NEVER_REFUNDED]}),
    }
}
