"""Write to stdout, here alone: bounded buffering, encodings that never raise, full disks."""

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TextIO

from ledgerctl.domain.ids import chunks
from ledgerctl.errors import OutputFailed
from ledgerctl.render.report import CommandLine, Record
from ledgerctl.render.text import encodable, folded_sentence, visible

_HELD_CHARACTERS_MAX: Final = 65536
_BATCH: Final = 500


@dataclass(frozen=True)
class Look:
    """Say how the result may look: colour, cells of a line (None: any), header, what ages count from."""

    color: bool
    width: int | None
    header: bool = True
    now: datetime | None = None


class Output:
    """Hold back text for one stream until there is a good deal of it.

    So a short answer that fails on its way leaves nothing half-said. An encoding problem never
    raises; a reader that went away raises BrokenPipeError, any other trouble OutputFailed.
    """

    def __init__(self, stream: TextIO, *, room: int | None = None) -> None:
        """`room` is the width of the terminal that sentences are folded to; None: they are not."""
        self._stream = stream
        self._room = room
        self._held: list[str] = []
        self._held_characters = 0
        self.notes: list[str] = []  # what a format says about its own layout
        self.encoding = _encoding(stream)
        self.is_unicode = self.encoding.startswith("utf")
        self.visible: Callable[[str], str] = visible if self.is_unicode else self._visible

    def _visible(self, text: str) -> str:
        return encodable(visible(text), self.encoding)

    def can_show(self, text: str) -> bool:
        """Return whether the stream's encoding has all these characters."""
        return encodable(text, self.encoding) == text

    def write(self, text: str) -> None:
        """Take finished text; it is the caller who made it visible."""
        self._held.append(text)
        self._held_characters += len(text)
        if self._held_characters > _HELD_CHARACTERS_MAX:
            self._pass_on()

    def line(self, text: str) -> None:
        """Take one line of anybody's text."""
        self.write(f"{self.visible(text)}\n")

    def prose(self, text: str) -> None:
        """Take one sentence, folded at a terminal's edge; a command line stays whole."""
        if self._room is None or len(text) < self._room or isinstance(text, CommandLine):
            self.line(text)
            return
        for line in folded_sentence(self.visible(text), self._room):
            self.write(f"{line}\n")

    def finish(self) -> None:
        """Hand everything to the operating system."""
        self._pass_on()
        self._guarded(self._stream.flush)

    def _pass_on(self) -> None:
        text = "".join(self._held)
        self._held.clear()
        self._held_characters = 0
        if not self.is_unicode:
            text = encodable(text, self.encoding)
        self._guarded(lambda: self._stream.write(text))

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(
                f"the output cannot be written: {error.strerror or error}",
                hint="Write to another place, or make room there.",
            ) from error


def _encoding(stream: TextIO) -> str:
    try:
        return codecs.lookup(stream.encoding or "utf-8").name
    except (LookupError, AttributeError):
        return "ascii"


def batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield the records in lists of a few hundred, none of them empty."""
    return chunks(records, _BATCH)
