"""The way in: answers --version and the root help at once, loads the rest only when needed."""

import sys


def main() -> None:
    """Run the command line and exit with its code; `--version` and root help import nothing else."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from ledgerctl import __version__

        sys.stdout.write(f"ledgerctl {__version__}\n")
        return
    if not arguments or arguments in (["--help"], ["-h"]):
        from ledgerctl.cli.root_help import ROOT_HELP

        sys.stdout.write(ROOT_HELP)
        return
    from ledgerctl.cli.app import run

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
