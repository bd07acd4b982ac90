"""Write the files that are generated from the command table: `python -m tests.write_generated`."""

from pathlib import Path
from typing import Any, Final

import typer

from ledgerctl.cli.app import app
from ledgerctl.cli.completion import FILE_NAMES, completion_file

ROOT: Final = Path(__file__).resolve().parent.parent
ROOT_HELP: Final = ROOT / "ledgerctl" / "cli" / "help_texts" / "root.txt"
HELP_WIDTH: Final = 80


def live_root_help() -> str:
    """The root help as Typer formats it, at 80 columns whatever the terminal."""
    command: Any = typer.main.get_command(app)
    with command.make_context(
        "ledgerctl", [], resilient_parsing=True, max_content_width=HELP_WIDTH,
        terminal_width=HELP_WIDTH,
    ) as context:  # fmt: skip
        return str(command.get_help(context)) + "\n"


def generated() -> dict[Path, str]:
    """Every generated file and what stands in it."""
    files = {
        ROOT / "completions" / name: completion_file(shell) for shell, name in FILE_NAMES.items()
    }
    return {ROOT_HELP: live_root_help(), **files}


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
