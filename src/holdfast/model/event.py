"""Events: as they are appended, as they are stored, and as a handler gets them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from holdfast.errors import AppendError, HoldfastError

T = TypeVar("T")

_uuid = msgspec.json.Decoder(UUID).decode

MAX_STREAM_CHARACTERS = 512
"""Maximum length of a stream's name."""

MAX_TYPE_CHARACTERS = 255
"""Maximum length of an event type's name."""


class Event(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One event, as a handler gets it.

    `position` orders all events of a feed; `version` counts 1, 2, 3… within the stream.
    `id` never changes and is a good idempotency key for calls to other systems.
    """

    position: int
    stream: str
    version: int
    id: UUID
    type: str
    data: T
    metadata: Mapping[str, Any]
    recorded_at: datetime


_id_of = vars(Event)["id"].__get__


class StoredEvent(Event[T], frozen=True, gc=False):
    """An event whose id is stored as text, and becomes a UUID when it is read.

    Most handlers never read it: that saves a fifth of a fold's time. Code that bypasses the
    property, as msgspec does, finds the text.
    """

    @property  # type: ignore[misc]
    def id(self) -> UUID:
        known: UUID | str = _id_of(self)
        return known if isinstance(known, UUID) else _uuid(f'"{known}"')

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__struct_fields__)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__)
        return f"Event({', '.join(values)})"

    __hash__ = None  # type: ignore[assignment]


class RawEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stored event whose payload is not decoded yet: `data` and `metadata` are JSON text.

    Sources return these, so that events without a handler are never decoded. `id_text` is the id as
    text, because the garbage collector tracks UUIDs, and a batch may have 50,000.
    """

    position: int
    stream: str
    version: int
    id_text: str
    type: str
    data: str
    metadata: str
    recorded_at: datetime

    @property
    def id(self) -> UUID:
        return _uuid(f'"{self.id_text}"')


class ForeignEvent(RawEvent, frozen=True, array_like=True, gc=False):
    """An event that another system has written."""

    def kept(self) -> str:
        """The record it was read from, as text, for the queue."""
        raise NotImplementedError


class NewEvent(msgspec.Struct, frozen=True):
    """An event to append, where the payload alone is not enough.

    `data` is a dict (then `type` names it), a dataclass, a msgspec Struct or a pydantic model.
    Give `id` when the append may be repeated: appending the same ids again changes nothing and
    returns the first result.
    """

    data: Any
    type: str | None = None
    id: UUID | None = None
    metadata: Mapping[str, Any] | None = None


class Appended(msgspec.Struct, frozen=True):
    """The result of an append: the stream's new version, and each event's position in order.

    `applied`: the outbox projections that have applied the events already, in this process.
    """

    stream: str
    version: int
    positions: tuple[int, ...]
    applied: frozenset[str] = frozenset()

    @property
    def position(self) -> int:
        """The last position. Give it to `wait_for` to read your own write."""
        return self.positions[-1]


def kept(event: RawEvent) -> str | None:
    """The record that an event was read from, if another system has written it."""
    return event.kept() if isinstance(event, ForeignEvent) else None


def check_stream(name: object) -> str:
    """Returns `name` if it can be a stream's name on every database, else raises."""
    return _check_name("a", "stream name", name, MAX_STREAM_CHARACTERS, AppendError)


def check_type(name: object, *, error: type[HoldfastError] = AppendError) -> str:
    """Returns `name` if it can be an event type's name on every database, else raises."""
    if name == "*":
        raise error("an event type can't be '*', because @on(\"*\") takes all other types")
    return _check_name("an", "event type", name, MAX_TYPE_CHARACTERS, error)


def _check_name(
    article: str, what: str, name: object, limit: int, error: type[HoldfastError]
) -> str:
    if not isinstance(name, str):
        raise error(f"{article} {what} is a str, not {type(name).__name__}")
    if not name:
        raise error(f"{article} {what} can't be empty")
    if len(name) > limit:
        raise error(f"{what} of {len(name):,} characters: the limit is {limit}; shorten it")
    if "\0" in name:
        raise error(f"{what} {name!r} contains a NUL character; remove it")
    try:
        name.encode()
    except UnicodeEncodeError as cause:
        raise error(f"{what} {name!r} is not valid Unicode: {cause.reason}") from cause
    return name
