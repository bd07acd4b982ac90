"""`ledgerctl completion`: the completion files of bash, zsh and fish."""

from enum import StrEnum
from typing import Annotated

import typer

from ledgerctl.cli.command import command, noun
from ledgerctl.cli.session import Session
from ledgerctl.render.report import Column, Kind, Report

app = noun("completion")


class Shell(StrEnum):
    """List the shells that are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(app, "show")
def show(
    _session: Session,
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", metavar="SHELL")],
) -> Report:
    """Print the completion file of a shell; it edits nothing.

    The wheel also installs the three files under its prefix's share/, where bash-completion finds
    the first by itself and fish and zsh look when share/ is on their paths.

    Examples: ledgerctl completion show bash > ~/.local/share/bash-completion/completions/ledgerctl
              ledgerctl completion show zsh > ~/.zfunc/_ledgerctl
              ledgerctl completion show fish > ~/.config/fish/completions/ledgerctl.fish
    """
    from ledgerctl.cli.completion_files import completion_file

    text = completion_file(shell.value)
    lines = text.removesuffix("\n").split("\n")
    return Report(
        columns=(Column("shell", kind=Kind.ID), Column("text")),
        records=[{"shell": shell.value, "text": text}],
        document={"shell": shell.value, "lines": lines},
        text=lines,
    )
