"""Measure what must be fast, each figure a ratio of whole processes taken in turns in one run.

python -m tests.bench [NAME…] [--json] [--size tiny|small|full] [--data DIR]
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tests.bench.place import SIZES, Claim, Place, opened, say
from tests.servers import stop_on_sigterm

NAMES = (
    "balances",
    "show",
    "foreign",
    "replay",
    "rebuild",
    "drift_audit",
    "requeue_all",
    "requeue_filtered",
    "distance",
    "million",
    "stats",
    "guard",
    "export",
    "start_up",
)


@dataclass(frozen=True)
class Figure:
    """A claim with the bench that made it."""

    bench: str
    work: str
    claim: Claim

    @property
    def must_reach(self) -> str:
        """The limit in words."""
        if self.claim.figure is None:
            return "-"
        sign = "≥" if self.claim.at_least else "≤"
        return f"{sign} {self.claim.limit:g} {self.claim.unit}".rstrip()

    @property
    def shown(self) -> str:
        """The figure in words."""
        if self.claim.figure is None:
            return "-"
        return f"{self.claim.figure:.3g} {self.claim.unit}".rstrip()


def main() -> int:
    """Run the benches that are named, or all; 1 when a figure misses what it must reach."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="one document instead of the table")
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--data", type=Path, help="keep the generated data here for the next run")
    words = parser.parse_args()
    if unknown := set(words.names) - set(NAMES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    stop_on_sigterm()
    with opened(SIZES[words.size], words.data) as place:
        figures = [figure for name in words.names or NAMES for figure in measured(place, name)]
    print(as_json(figures, words.size) if words.json else as_table(figures, words.size))
    return int(any(figure.claim.verdict == "missed" for figure in figures))


def measured(place: Place, name: str) -> Iterator[Figure]:
    """The figures of one bench; one that fails ends the run."""
    module: ModuleType = import_module(f"tests.bench.{name}")
    print(f"{name}: {module.WORK}", file=sys.stderr, flush=True)
    began = time.monotonic()
    for claim in module.run(place):
        if claim.skipped:
            say(f"SKIPPED {claim.what}: {claim.skipped}")
        yield Figure(name, module.WORK, claim)
    say(f"{time.monotonic() - began:.0f} s in all")


def as_json(figures: list[Figure], size: str) -> str:
    """One document."""
    items = [
        {"bench": one.bench, "work": one.work, **asdict(one.claim), "verdict": one.claim.verdict}
        for one in figures
    ]
    return json.dumps({"size": size, "figures": items}, ensure_ascii=False, indent=2)


def as_table(figures: list[Figure], size: str) -> str:
    """Bench and work once, then its figures, each beside what it must reach."""
    lines = [("bench", "figure", "", "must reach", "")]
    lines += [
        (one.bench, one.shown, one.claim.what, one.must_reach, one.claim.verdict) for one in figures
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    text = [f"size {size}: the work below is the full one's" if size != "full" else "full size"]
    bench = ""
    for line, work in zip(lines, ["", *(one.work for one in figures)], strict=True):
        if work and line[0] != bench:
            bench = line[0]
            text.append(f"\n{work}")
        text.append(
            "  ".join(one.ljust(width) for one, width in zip(line, widths, strict=True)).rstrip()
        )
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(main())
