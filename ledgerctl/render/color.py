"""Decide once for everybody whether to colour: rich reads the environment in its own way."""

from collections.abc import Mapping
from typing import Final, Literal

ColorChoice = Literal["auto", "always", "never"]
_OFF: Final = {"0", "false", "no", "off"}


def use_color(choice: ColorChoice, environment: Mapping[str, str], is_tty: bool) -> bool:
    """Obey the first that is set: --color, NO_COLOR, TERM=dumb, FORCE_COLOR (0: off), the terminal.

    An empty variable counts as unset. Sources: contract, section 1; no-color.org.
    """
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    if forced := environment.get("FORCE_COLOR"):
        return forced.lower() not in _OFF
    return is_tty
