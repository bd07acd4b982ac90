"""The shape of a stored document, named once for every store."""

from typing import Any

Document = dict[str, Any]
