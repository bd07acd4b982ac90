"""A consumer that is killed at one step, run as its own process: STEP, then ledgerctl's words."""

import os
import signal
import sys
from typing import Any

from ledgerctl.cli.app import run
from ledgerctl.operations.claims import Claims


def die(*_: Any, **__: Any) -> Any:
    """End as kill -9 ends a process: nothing after it runs."""
    os.kill(os.getpid(), signal.SIGKILL)


def claim_and_die(self: Claims, *args: Any, **named: Any) -> Any:
    ORIGINAL_CLAIM(self, *args, **named)
    die()


ORIGINAL_CLAIM = Claims.claim_many


def main(step: str, words: list[str]) -> int:
    # A handler kills its consumer by itself; the other steps are the consumer's own.
    if step == "before_claim":
        Claims.claim_many = die  # type: ignore[method-assign]  # where it dies
    elif step == "after_claim":
        Claims.claim_many = claim_and_die  # type: ignore[method-assign]  # where it dies
    elif step == "before_mark":
        Claims.succeeded = die  # type: ignore[method-assign]  # where it dies
    return run(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
