"""One fault at one write of one command: struck, judged, finished by the same command again."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.faults.cases import Case
from tests.faults.child import Event
from tests.faults.ground import Ending, Findings, Ground, State
from tests.faults.injections import DELAY_S, Fault, Landing, environment_of
from tests.proxy import Plan

UNCHANGED = {2, 3, 4, 6, 9}  # exit codes that say that nothing changed
HALF_DONE = {"missing_row", "missing_message", "flag_time"}  # what a standalone may show meanwhile
ON_ITS_WAY = {"refunded_but_succeeded"}  # a worker sets the status first, then reclaims
AGAIN_MAX = 3
PARTIAL = 8
STOPPED = {130, 143}
COUNTED = {0, PARTIAL, 143}  # with a result whose counts must be true


@dataclass
class Reference:
    """A case without any fault: what it starts from, what it comes to, and its writes."""

    before: State
    outcome: tuple[Any, ...]
    outcome_uncounted: tuple[Any, ...]
    findings_before: Findings
    findings: Findings
    events: list[Event]

    def writes(self, store: str) -> list[Event]:
        """The writes to a store, in order."""
        return [one for one in self.events if one.store == store and one.moment == "before"]


def undisturbed(ground: Ground, case: Case) -> Reference:
    """Run a case without any fault, twice: the second time it changes nothing more."""
    ground.prepare(case)
    before, findings_before = ground.state(), ground.findings()
    ending = ground.run(case.words)
    after, findings = ground.state(), ground.findings()
    assert ending.code == 0, ending.err
    assert case.said(ending.document()) == case.did(before, after), ending.out
    counted, uncounted = after.outcome(attempts=True), after.outcome(attempts=False)
    again = ground.run(case.words)
    assert again.code == 0, again.err
    assert ground.state().outcome(attempts=False) == uncounted
    return Reference(before, counted, uncounted, findings_before, findings, ending.events)


@dataclass
class Line:
    """What one fault came to."""

    fault: str
    case: str
    kind: str
    at: int
    landed: bool
    code: int
    again: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        where = f"{self.kind}, {self.case}, write {self.at}, {self.fault}"
        return f"{where}: exit {self.code}, again {self.again}: {'; '.join(self.problems)}"


def strike(ground: Ground, case: Case, reference: Reference, fault: Fault, at: int) -> Line:
    """Let the fault strike at the `at`-th write, judge what is left, run the command again."""
    ground.reset()
    landing = Landing(ground)
    fault.arm(landing)
    ending = struck(ground, case, reference, fault, landing, at)
    after = ground.state()
    line = Line(fault.name, case.name, ground.kind, at, landing.landed, ending.code)
    line.problems += judged(case, reference, fault, ending, after, codes(fault, landing))
    line.problems += misreported(ending, ground.logged())
    line.problems += lost_or_doubled(reference.before, after)
    line.problems += new_findings(ground, reference)
    if ending.code != 0 or fault.loses:
        line.problems += finished(ground, case, reference, line)
    if line.problems:
        print(line, flush=True)
        line.problems.append(f"it said {ending.out[:600]} {ending.err[:600]}")
    return line


def struck(
    ground: Ground, case: Case, reference: Reference, fault: Fault, landing: Landing, at: int
) -> Ending:
    """The run that the fault strikes."""
    plan = None
    if fault.spoils is not None:
        writes = reference.writes(fault.store)
        skip = sum(one.command == writes[at].command for one in writes[:at])
        plan = Plan(writes[at].command, fault.spoils, skip=skip, delay_s=DELAY_S)
    seen = 0

    def act(event: Event, process: Any) -> None:
        nonlocal seen
        if (event.store, event.moment) != (fault.store, fault.moment):
            return
        if seen == at and plan is None:
            landing.event, landing.process = event, process
            fault.strike(landing)
        seen += 1

    try:
        with environment_of(fault, ground, plan) as changes:
            ending = ground.run(case.words, act, changes)
    finally:
        fault.undo(landing)
    if plan is not None:
        landing.landed = plan.landed > 0
    return ending


def judged(
    case: Case,
    reference: Reference,
    fault: Fault,
    ending: Ending,
    after: State,
    allowed: set[int],
) -> list[str]:
    """What is wrong with the exit code, held against what has changed."""
    if fault.signal is not None and ending.code == -fault.signal:
        return []  # SIGTERM too: before the program listens, or after it has ended its work
    found = []
    if ending.code not in allowed:
        found.append(f"exit {ending.code} is not one of {sorted(allowed)}")
    found += untrue(case, reference, ending, after, forgotten=fault.loses)
    document = ending.document()
    if ending.code in COUNTED and document is not None and not fault.loses:
        counts = case.said(document), case.did(reference.before, after)
        if counts[0] != counts[1]:
            found.append(f"it said {counts[0]} and did {counts[1]}")
    if (document is None) == (ending.error_document() is None):
        found.append("neither or both of a result and an error")
    return found


SHAPE = {"operation_id", "dry_run", "error", "not_tried"}
UNKNOWN = 7


def misreported(ending: Ending, logged: dict[str, Any] | None) -> list[str]:
    """Where document, operator log and exit code do not say the same."""
    if ending.code < 0:
        return []
    found = []
    document, error = ending.document(), ending.error()
    if document is not None and not document.keys() >= SHAPE:
        found.append(f"the document lacks {sorted(SHAPE - document.keys())}")
    if error is not None and error["exit_code"] != ending.code:
        found.append(f"the error says exit {error['exit_code']}")
    unknown = error is not None and error["code"] == "outcome_unknown"
    if ending.code not in STOPPED and unknown is not (ending.code == UNKNOWN):
        found.append(f"exit {ending.code}, and the last step is {'un' if unknown else ''}known")
    if logged is None:
        return found
    said = logged["exit_code"]
    if said is None and "stays open" not in ending.out + ending.err and ending.code != 6:
        found.append(f"the log's entry is open after exit {ending.code}")
    if said is not None and said != ending.code:
        found.append(f"the log says exit {said}, the process {ending.code}")
    return found


def untrue(
    case: Case, reference: Reference, ending: Ending, after: State, *, forgotten: bool
) -> list[str]:
    """Where the exit code says one thing and the state another."""
    unchanged = after.told_apart() == reference.before.told_apart()
    if ending.code in UNCHANGED and not unchanged:
        what = difference(reference.before, after)
        return [f"exit {ending.code}, and something changed: {what}"]
    if ending.code == PARTIAL and unchanged:
        return ["exit 8, and nothing changed"]
    if ending.code == 0 and not forgotten and not complete(case, reference, after):
        return ["exit 0, and it is not done"]
    return []


def codes(fault: Fault, landing: Landing) -> set[int]:
    """The exit codes that a fault can have; a commit that is refused may have been made before."""
    commit = landing.event is not None and landing.event.command == "commitTransaction"
    if fault.signal is not None:
        return {0, 143} if fault.signal == 15 else {0}
    if fault.harmless:
        return {0}
    return {0, 3, 6, 8, 9} | ({7} if fault.may_be_unknown or commit else set())


def complete(case: Case, reference: Reference, after: State) -> bool:
    """Whether a state is what the command comes to."""
    if case.counts_again:
        return after.outcome(attempts=False) == reference.outcome_uncounted
    return after.outcome(attempts=True) == reference.outcome


def difference(before: State, after: State) -> str:
    """Where two states differ, in few words."""
    said = [
        f"{name} {key}: {before.collections[name].get(key)} -> {after.collections[name].get(key)}"
        for name in before.collections
        for key in {**before.collections[name], **after.collections[name]}
        if before.collections[name].get(key) != after.collections[name].get(key)
    ]
    said += [
        f"{key} {len(before.lists.get(key, []))} -> {len(after.lists.get(key, []))} entries"
        for key in sorted({*before.lists, *after.lists})
        if before.lists.get(key) != after.lists.get(key)
    ]
    return "; ".join(said)[:600]


def lost_or_doubled(before: State, after: State) -> list[str]:
    """Entries that stand nowhere although their job is not done, or in two places."""
    found = []
    there, was = after.whereabouts(), before.whereabouts()
    jobs = after.collections["jobs"]
    done = {name for name in was if jobs.get(name, {}).get("status") == "succeeded"}
    if lost := sorted(name for name in was if not there[name] and name not in done):
        found.append(f"{len(lost)} lost: {lost[:5]}")
    if doubled := sorted(name for name, count in there.items() if count > max(1, was[name])):
        found.append(f"{len(doubled)} doubled: {doubled[:5]}")
    return found


def new_findings(ground: Ground, reference: Reference) -> list[str]:
    """What the audit finds that it did not find before; a standalone may stand half done."""
    new = ground.findings() - reference.findings_before
    excused = ON_ITS_WAY | (HALF_DONE if ground.kind == "standalone" else set())
    worse = sorted(f"{code} {job}" for code, job in new if code not in excused)
    return [f"the audit finds {worse}"] if worse else []


def finished(ground: Ground, case: Case, reference: Reference, line: Line) -> list[str]:
    """Run the same command again, as its message says, until it is done."""
    ground.lapse()
    for words in case.before_again:
        ground.run(words)
    ending = ground.run(case.words)
    line.again.append(ending.code)
    while ending.code != 0 and len(line.again) < AGAIN_MAX:
        ground.lapse()
        ending = ground.run(case.words)
        line.again.append(ending.code)
    after = ground.state()
    found = []
    if line.again[-1] != 0:
        found.append(f"again it ended with {line.again}: {ending.out[:300]} {ending.err[:300]}")
    if after.outcome(attempts=False) != reference.outcome_uncounted:
        found.append(f"after another run it is not done: {apart(after, reference)}")
    if ground.findings() != reference.findings:
        found.append(f"afterwards the audit finds {sorted(ground.findings())}")
    return found + [f"after another run {one}" for one in lost_or_doubled(reference.before, after)]


def apart(after: State, reference: Reference) -> str:
    """What differs between two outcomes."""
    ours, wanted = after.outcome(attempts=False), reference.outcome_uncounted
    collections = [
        f"{name} {key}: {ours[0][name].get(key)} for {wanted[0][name].get(key)}"
        for name in wanted[0]
        for key in {**wanted[0][name], **ours[0][name]}
        if ours[0][name].get(key) != wanted[0][name].get(key)
    ]
    lists = [
        f"{key}: {len(ours[1].get(key, []))} for {len(wanted[1].get(key, []))}: {ours[1].get(key, [])[:1]}"
        for key in sorted({*ours[1], *wanted[1]})
        if ours[1].get(key) != wanted[1].get(key)
    ]
    return "; ".join(collections + lists)[:600]


def printed(lines: list[Line]) -> str:
    """The table: fault × command × outcome, the faults that landed alone."""
    landed = [line for line in lines if line.landed]
    rows: dict[tuple[str, str], Counter[int]] = {}
    for line in landed:
        rows.setdefault((line.fault, line.case), Counter())[line.code] += 1
    said = [f"{'fault':<46} {'command':<28} landed  exit codes"]
    for (fault, case), codes in sorted(rows.items()):
        outcome = " ".join(f"{code}×{count}" for code, count in sorted(codes.items()))
        said.append(f"{fault:<46} {case:<28} {codes.total():>6}  {outcome}")
    totals = Counter(line.code for line in landed)
    outcome = ", ".join(f"{count} ended {code}" for code, count in sorted(totals.items()))
    wrong = sum(bool(line.problems) for line in lines)
    said.append(f"{len(landed)} faults landed: {outcome}; {wrong} with something wrong")
    return "\n".join(said)
