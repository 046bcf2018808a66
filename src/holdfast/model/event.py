"""Events: what is appended, what is stored, what a handler gets."""

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
MAX_TYPE_CHARACTERS = 255


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
    """An event as it is read: its id is made from text when somebody asks for it, as few do.

    What passes over the property, as msgspec does, finds the text on every database.
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

    Sources return these, so that events nobody handles are never decoded. `id_text` is the id as
    `str` writes it: a UUID is an object that the garbage collector looks at, and there may be
    50,000 in a batch.
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
    """An event that others have written, with what it was read from."""

    def kept(self) -> str:
        """That as text, which goes into the queue with the event: nothing of it is lost."""
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
    """What an append did: the stream's new version and the position of each event, in order.

    `applied`: the outbox projections that have applied these events already, in this process.
    """

    stream: str
    version: int
    positions: tuple[int, ...]
    applied: frozenset[str] = frozenset()

    @property
    def position(self) -> int:
        """The last position: what `wait_for` needs to read your own write."""
        return self.positions[-1]


def kept(event: RawEvent) -> str | None:
    """What an event was read from, where others have written it."""
    return event.kept() if isinstance(event, ForeignEvent) else None


def check_stream(name: object) -> str:
    """Returns `name` if it can be a stream's name on every database, else raises."""
    return _check_name("a", "stream name", name, MAX_STREAM_CHARACTERS, AppendError)


def check_type(name: object, *, refusal: type[HoldfastError] = AppendError) -> str:
    """Returns `name` if it can be an event type's name on every database, else raises."""
    if name == "*":
        raise refusal("an event type can't be '*', because @on(\"*\") takes all other types")
    return _check_name("an", "event type", name, MAX_TYPE_CHARACTERS, refusal)


def _check_name(
    article: str, what: str, name: object, limit: int, refusal: type[HoldfastError]
) -> str:
    if not isinstance(name, str):
        raise refusal(f"{article} {what} is a str, not {type(name).__name__}")
    if not name:
        raise refusal(f"{article} {what} can't be empty")
    if len(name) > limit:
        raise refusal(f"{what} of {len(name):,} characters: the limit is {limit}; shorten it")
    if "\0" in name:
        raise refusal(f"{what} {name!r} contains a NUL character; remove it")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise refusal(f"{what} {name!r} is not valid Unicode: {error.reason}") from error
    return name
