"""The output formats; each one is written by the module `render/as_NAME.py`."""

from enum import StrEnum


class OutputFormat(StrEnum):
    """List the output formats, in the order of the help."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"

    @property
    def is_by_line(self) -> bool:
        """Tell a format that prints the records alone, for programs."""
        return self not in {OutputFormat.TABLE, OutputFormat.JSON}
