"""The command line that goes on where an interrupted one stopped."""

import shlex
import sys


def go_on(moved: int = 0) -> str:
    """The command that goes on where this one stopped: `--limit` by what is left, no `--expect`."""
    words: list[str] = []
    given = iter(sys.argv[1:])
    for word in given:
        name, equals, value = word.partition("=")
        if name == "--expect":
            if not equals:
                next(given, None)
        elif name == "--limit":
            limit = value if equals else next(given, "")
            left = int(limit) - moved if limit.isdigit() else 0
            words += ["--limit", str(max(1, left))]
        else:
            words.append(word)
    return shlex.join(["ledgerctl", *words])
