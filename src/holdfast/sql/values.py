"""Values as drivers return them: SQLite has no types for times and ids."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def moment(value: Any) -> datetime | None:
    """A time, from the driver's datetime or text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def uuid(value: Any) -> UUID | None:
    """An id, from the driver's UUID or text."""
    return UUID(value) if isinstance(value, str) else value


def struct_of(cls: type[S], row: Sequence[Any]) -> S:
    """A row as a struct that has a field for each column, in the same order."""
    return msgspec.convert(dict(zip(cls.__struct_fields__, row, strict=True)), cls)


AT_ONCE = datetime(2000, 1, 1, tzinfo=UTC)
"""Due, whatever the clocks of the hosts say."""


def as_json(value: Any) -> str:
    """A JSON document, for a statement that takes many values at once."""
    return msgspec.json.encode(value).decode()
