"""An event as a line of JSON: the format of exports and imports.

`{"position", "stream", "version", "id", "type", "data", "metadata", "recorded_at"}`, of which an
import needs stream, type and data. Payloads are not changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec

from holdfast.model.event import RawEvent

LINE_START = b'{"position":'
"""The beginning of every line of an export."""


class Line(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One line of a file. `data` and `metadata` are JSON, not decoded."""

    position: int | None = None
    stream: str
    version: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    id: UUID | None = None
    type: str
    data: msgspec.Raw
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    recorded_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


def encode_line(event: RawEvent) -> bytes:
    """An event as a line, with its line break."""
    line = Line(
        position=event.position,
        stream=event.stream,
        version=event.version,
        id=event.id,
        type=event.type,
        data=_on_one_line(event.data),
        metadata=_on_one_line(event.metadata),
        recorded_at=event.recorded_at,
    )
    return _encode(line) + b"\n"


def _on_one_line(text: str) -> msgspec.Raw:
    """In JSON a line break can only be space between tokens."""
    return msgspec.Raw(text.replace("\n", " ").replace("\r", " "))


_encode = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder(Line).decode
