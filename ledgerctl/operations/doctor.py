"""The doctor: one short look at each thing that the guarantees stand on, never hanging."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from ledgerctl.domain.doctor import Check, CheckResult, CheckStatus, fail, unknown, worst_first
from ledgerctl.errors import CrossSlot, LedgerctlError, StoreUnavailable
from ledgerctl.operations import doctor_mongo as mongo
from ledgerctl.operations import doctor_queues as queues
from ledgerctl.operations import foreign
from ledgerctl.operations.doctor_mongo import CHECK_S, DoctorContext, Source, permissions
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.indexes import INBOX_UNIQUE, LEDGER_UNIQUE

BUDGET_S = 20.0  # for everything together; what has not been looked at by then is unknown

Question = Callable[[DoctorContext], CheckResult | None]


@dataclass(frozen=True, slots=True)
class Probe:
    """Hold one check: its name, the store it needs, and the function that looks."""

    id: str
    source: Source
    ask: Question


CHECKS: tuple[Probe, ...] = (
    Probe("mongo.reachable", Source.MONGO, mongo.reachable),
    Probe("mongo.transactions", Source.MONGO, mongo.transactions),
    Probe("mongo.collections", Source.MONGO, mongo.collections),
    Probe("mongo.shard_keys", Source.MONGO, mongo.shard_keys),
    Probe("mongo.write_concern", Source.MONGO, mongo.write_concern),
    Probe("mongo.clock", Source.MONGO, mongo.clock),
    Probe(
        "index.ledger_unique",
        Source.MONGO,
        partial(mongo.guarded, LEDGER_UNIQUE, "a job can be refunded or charged twice"),
    ),
    Probe(
        "index.inbox_unique",
        Source.MONGO,
        partial(mongo.guarded, INBOX_UNIQUE, "a message can be claimed and applied twice"),
    ),
    Probe("index.ledger_account", Source.MONGO, partial(mongo.useful, "account_id")),
    Probe("index.ledger_created", Source.MONGO, partial(mongo.useful, "created_at")),
    Probe("index.expiry", Source.MONGO, mongo.expiry),
    Probe("ledger.append_only", Source.MONGO, mongo.append_only),
    Probe("jobs.flags", Source.MONGO, mongo.flags),
    Probe("redis.reachable", Source.REDIS, queues.reachable),
    Probe("redis.role", Source.REDIS, queues.role),
    Probe("redis.commands", Source.REDIS, queues.commands),
    Probe("redis.eviction", Source.REDIS, queues.eviction),
    Probe("redis.persistence", Source.REDIS, queues.persistence),
    Probe("redis.types", Source.REDIS, queues.types),
    Probe("db.growth", Source.MONGO, mongo.growth),
    Probe("redis.failover", Source.REDIS, queues.failover),
    Probe("inbox.keys", Source.MONGO, mongo.inbox_keys),
    Probe("inbox.stuck", Source.MONGO, mongo.inbox_stuck),
    Probe("config.permissions", Source.FILES, permissions),
)
# Another team's ledger is never written, so what guards our writes is not asked of it.
OF_MAP: tuple[Probe, ...] = (
    Probe("map.fields", Source.MONGO, foreign.fields_of_map),
    Probe("map.indexes", Source.MONGO, foreign.indexes_of_map),
    Probe("map.amounts", Source.MONGO, foreign.amounts_of_map),
)
NOT_OF_MAP = ("index.ledger", "index.inbox", "inbox.", "mongo.shard_keys")
REACHABLE = {"mongo.reachable", "redis.reachable"}
QUEUES_WORK = {"redis.role", "redis.types"}


@dataclass(slots=True)
class Examination:
    """Hold one round of all checks; remembers which store has been lost, and why."""

    look: DoctorContext
    started: float = field(default_factory=time.monotonic)
    lost: dict[Source, str] = field(default_factory=dict)

    def finding(self, probe: Probe) -> CheckResult | None:
        """Return what a check found in its share of the time, None where it does not apply."""
        if why := self.lost.get(probe.source):
            return unknown(why)
        if time.monotonic() - self.started > BUDGET_S:
            return unknown("no time was left for it", "run it again")
        try:
            with self._bounded(probe.source):
                return probe.ask(self.look)
        except LedgerctlError as error:
            return self._trouble(probe, error)

    def _trouble(self, probe: Probe, error: LedgerctlError) -> CheckResult:
        """Return why a check could not look; a store that does not answer is not asked again."""
        if isinstance(error, CrossSlot):  # it answers, and refuses every queue command
            status = CheckStatus.FAIL if probe.id in QUEUES_WORK else CheckStatus.UNKNOWN
            return CheckResult(status, error.message, error.hint)
        if probe.id in REACHABLE:
            self.lost[probe.source] = f"{probe.id} failed"
            return fail(error.message, remedy(probe.source, error))
        if not isinstance(error, StoreUnavailable):
            return unknown(error.message, error.hint)
        if self._answers(probe.source):
            return unknown(f"no answer within {CHECK_S:g} s", "run it again")
        self.lost[probe.source] = "the store stopped answering"
        return unknown(error.message, error.hint)

    def _answers(self, source: Source) -> bool:
        """Return whether the store still answers, though not to everything in time."""
        try:
            with self._bounded(source):
                if source is Source.MONGO:
                    self.look.stores.deployment.version()
                else:
                    self.look.stores.queue_server.ping()
        except LedgerctlError:
            return False
        return True

    @contextmanager
    def _bounded(self, source: Source) -> Iterator[None]:
        stores = self.look.stores
        if source is not Source.MONGO:
            if source is Source.REDIS:
                stores.queues.client.outage.limit_s = 0  # a look waits for nobody
            yield
            return
        stores.mongo.outage.limit_s = 0
        with self.look.stores.mongo.bounded(CHECK_S):
            yield


def examine(stores: Stores, *, clock: Callable[[], datetime]) -> list[Check]:
    """Return every check of the contract, those that need somebody first; changes nothing.

    A store that is down fails its reachable check and leaves its others unknown; so does a right
    that is missing. `clock` is this machine's. Source: contract, section 3, doctor.
    """
    examination = Examination(DoctorContext(stores, clock))
    checks = CHECKS
    if stores.settings.map is not None:
        checks = (*(one for one in CHECKS if not one.id.startswith(NOT_OF_MAP)), *OF_MAP)
    findings = ((probe.id, examination.finding(probe)) for probe in checks)
    found = [Check(name, finding) for name, finding in findings if finding is not None]
    return worst_first(with_loss(found, examination.lost))


def with_loss(found: list[Check], lost: dict[Source, str]) -> list[Check]:
    """Return a store that answered first and then fell silent is not reachable either."""
    return [
        Check(check.id, fail(f"{lost[source]} after: {check.finding.detail}"))
        if check.id in REACHABLE
        and check.finding.status is not CheckStatus.FAIL
        and (source := Source(check.id.partition(".")[0])) in lost
        else check
        for check in found
    ]


def remedy(source: Source, error: LedgerctlError) -> str:
    """Return what to do about a store that cannot be used."""
    if not isinstance(error, StoreUnavailable):
        return error.hint
    setting = "mongo_uri" if source is Source.MONGO else "redis_url"
    return f"start it, or correct {setting}: `ledgerctl config show` says what sets it"
