"""Events and messages as the database stores them: checked, and encoded as JSON text."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import AppendError, PayloadError
from holdfast.model.event import NewEvent, RawEvent, check_stream, check_type
from holdfast.model.event_types import EventTypes, encode_metadata
from holdfast.model.json_fidelity import contains_nul
from holdfast.runtime.store.clock import Clock

MAX_APPEND_EVENTS = 10_000
"""Maximum of events in one append."""


class EncodedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checked event, with its payload and metadata as JSON text."""

    id: UUID
    type: str
    data: str
    metadata: str
    recorded_at: str
    id_is_given: bool = False


class EventEncoder:
    """Encodes events, and refuses those that could not be stored or read back."""

    def __init__(self, types: EventTypes, clock: Clock, *, max_payload_bytes: int) -> None:
        self._types, self.clock, self.max_payload_bytes = types, clock, max_payload_bytes

    def of(
        self, stream: str, events: Sequence[Any], metadata: Mapping[str, Any] | None
    ) -> list[EncodedEvent]:
        """The events of one append, checked."""
        if isinstance(events, str | bytes | Mapping) or not isinstance(events, Sequence):
            raise AppendError(f"append takes a list of events, not {type(events).__name__}")
        if not events:
            raise AppendError(f"append to stream {stream!r} has no events; leave the call out")
        if len(events) > MAX_APPEND_EVENTS:
            raise AppendError(
                f"{len(events):,} events in one append: the limit is {MAX_APPEND_EVENTS:,}"
            )
        now = timestamp(self.clock.now())
        records = [self.record(event, metadata, now) for event in events]
        if len({record.id for record in records}) < len(records):
            raise AppendError(f"append to stream {stream!r} has the same event id twice")
        return records

    def record(
        self, event: Any, metadata: Mapping[str, Any] | None = None, now: str | None = None
    ) -> EncodedEvent:
        """One event, checked."""
        new = event if isinstance(event, NewEvent) else NewEvent(event)
        for given in (metadata, new.metadata):
            if given is not None and not isinstance(given, Mapping):
                raise AppendError(f"metadata is a dict, not {type(given).__name__}")
        encoded = self._types.encode(new.data, type_name=new.type)
        own = {**(metadata or {}), **(new.metadata or {})}
        stored = encode_metadata(own, schema_version=encoded.schema_version)
        self._check_stored(encoded.type, encoded.data, stored)
        if new.id is not None and not isinstance(new.id, UUID):
            raise AppendError(
                f"event {encoded.type!r}: id is {new.id!r}, not a UUID; pass uuid.UUID(…)"
            )
        return EncodedEvent(
            new.id or new_id(self.clock.now()),
            encoded.type,
            encoded.data,
            stored,
            now or timestamp(self.clock.now()),
            new.id is not None,
        )

    def _check_stored(self, type_name: str, data: str, metadata: str) -> None:
        for what, text in (("data", data), ("metadata", metadata)):
            if contains_nul(text):
                raise AppendError(
                    f"event {type_name!r}: its {what} has text with a NUL character (\\u0000), "
                    "which SQL on PostgreSQL can't read; remove it, or write bytes as base64"
                )
        size = len(data.encode()) + len(metadata.encode())
        if size > self.max_payload_bytes:
            raise AppendError(
                f"event {type_name!r} has {size:,} bytes of payload and metadata; the limit is "
                f"{self.max_payload_bytes:,}. Store the bulk elsewhere and append a reference, or "
                "raise max_payload_bytes of the App"
            )

    def raw(self, event: RawEvent) -> EncodedEvent:
        """A record that stores an event's JSON text to the letter.

        Raises unless the event could be appended and read back. Ignores its position and version.
        """
        check_stream(event.stream)
        check_type(event.type)
        decoded = self._types.decode(event)
        if not isinstance(decoded.metadata, Mapping):
            raise PayloadError(f"metadata of event {event.id} is not an object")
        self._check_stored(event.type, event.data, event.metadata)
        recorded_at = timestamp(event.recorded_at)
        return EncodedEvent(
            event.id, event.type, event.data, event.metadata, recorded_at, id_is_given=True
        )


def new_id(now: datetime) -> UUID:
    """A version 7 UUID: ids of the same time are neighbours in the index."""
    milliseconds = int(now.timestamp() * 1000)
    random = secrets.randbits(74)
    return UUID(
        int=(milliseconds << 80)
        | (7 << 76)
        | ((random >> 62) << 64)
        | (2 << 62)
        | (random & (2**62 - 1))
    )


def timestamp(moment: datetime) -> str:
    """A time as text."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
