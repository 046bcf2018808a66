"""Values as drivers return them: SQLite has no types for times and ids."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec


def moment(value: Any) -> datetime | None:
    """A time, whatever the driver made of it."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def uuid(value: Any) -> UUID | None:
    """An id, whatever the driver made of it."""
    return UUID(value) if isinstance(value, str) else value


AT_ONCE = datetime(2000, 1, 1, tzinfo=UTC)
"""Due, whatever the clocks of this host and of the worker's say."""


def as_json(value: Any) -> str:
    """A document for a statement that takes many values at once."""
    return msgspec.json.encode(value).decode()
