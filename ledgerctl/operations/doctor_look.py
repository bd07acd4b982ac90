"""What every check of the doctor is given."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ledgerctl.stores.connections import Stores

CHECK_S = 2.5  # how long one check may take


class Source(StrEnum):
    """What a check looks at."""

    MONGO = "mongo"
    REDIS = "redis"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Look:
    """The stores, and this machine's clock."""

    stores: Stores
    clock: Callable[[], datetime]
