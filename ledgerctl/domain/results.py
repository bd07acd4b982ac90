"""How a change ends: what became of each thing, and what stopped it early."""

from typing import NamedTuple


class Remedy(NamedTuple):
    """Name the command that heals a finding: its words, and the job it is about."""

    verb: str
    job_id: str | None = None
