"""The messages of the outbox, as their consumers get them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ledgerctl.domain.ids import Id

KEY = "message_key"
TENANT = "tenant_id"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the outbox; `key` is the value as stored, `id` what people read and type."""

    id: Id
    key: Any
    tenant: Any = None
    topic: str | None = None
    payload: Any = None
    created_at: datetime | None = None
