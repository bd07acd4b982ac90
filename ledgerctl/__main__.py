"""The way in: answers --version and the root help at once, loads the rest only when needed."""

import gc
import os
import sys

# A run lives for seconds and makes hardly any cycles: looking for them as often as a server would
# took a tenth of each start, and a tenth of reading a long list.
GARBAGE_AT = (500_000, 20, 20)
# A thread that reads ahead needs the interpreter for an instant after each wait; by Python's own
# five milliseconds it would get it so late that the one that works on what was read waits for it.
SWITCH_EVERY_S = 0.001
# Written by a test from the nouns, so that the root help needs nothing loaded.
ROOT_HELP = os.path.join(os.path.dirname(__file__), "cli", "help_texts", "root.txt")


def main() -> None:
    """Run the command line and exit with its code; `--version` and root help import nothing else."""
    try:
        code = answer(sys.argv[1:])
    except KeyboardInterrupt:  # while the program was still loading
        code = 130
    if "typer" in sys.modules:
        leave(code)
    sys.exit(code)


def leave(code: int) -> None:
    """End the process at once, with everything written and every store closed.

    At a usual end PyMongo waits half a second for its idle threads, and Python takes all that was
    loaded apart, which is a fifth of a short command.
    """
    from contextlib import suppress

    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or nobody reads it any more
            stream.flush()
    os._exit(code)


def answer(arguments: list[str]) -> int:
    """Answer one command line and return the exit code."""
    if arguments in (["--version"], ["-V"]):
        from ledgerctl import __version__

        return write(f"ledgerctl {__version__}\n")
    if not arguments or arguments in (["--help"], ["-h"]):
        with open(ROOT_HELP, encoding="utf-8") as text:
            return write(text.read())
    if arguments[0] == "--complete":
        from ledgerctl.cli.ids import complete

        return complete(arguments[1:], os.environ)
    gc.set_threshold(*GARBAGE_AT)
    sys.setswitchinterval(SWITCH_EVERY_S)
    from ledgerctl.cli.app import run

    return run(arguments)


def write(text: str) -> int:
    """Write a text that needs nothing loaded; a reader who left is fine, a full disk is not."""
    if sys.stdout is None:
        return 0
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        from ledgerctl.cli.boundary import drop, output_trouble, report_error

        trouble = output_trouble(error)
        drop(sys.stdout)
        return 0 if trouble is None else report_error(trouble, as_json=False)
    return 0


if __name__ == "__main__":
    main()
