"""ForeignFeed: events that other systems write, and how far their versions can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.errors import HoldfastError, PayloadError
from holdfast.model.event import RawEvent

UNDECODABLE = "holdfast.undecodable"
"""The type of an event that stands for a record that can't be decoded. Its data say why."""

NOTHING = "holdfast.nothing"
"""The type of an event that stands for a record that turned out to hold no event."""


class VersionGap(HoldfastError):
    """An event came before an earlier version of its stream. Stored as EARLY."""


class Undecodable(PayloadError):
    """A record can't be decoded to an event; it is kept as it came."""


class DeadEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not tried again, with the record it was read from (`kept`)."""

    projection: str
    lane: str
    event: RawEvent
    kept: str
    error_type: str
    error_message: str
    attempts: int
    at: datetime


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message about a dead event, for another system."""

    topic: str
    key: str
    id: UUID
    data: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ForeignFeed:
    """How a projection takes events that other systems write.

    `contiguous`: versions have no gaps within a stream and begin with `first_version` (None: with
    any version). An event that comes too early waits `gap_seconds` for the events before it. With
    `restart_seconds`, a stream that was silent for that time may begin again.
    Otherwise the ids of the last `window_events` of a feed tell which events are duplicates. Events
    of the types in `unnumbered` have no version.

    `decode` decodes a kept record again. It returns an event of type UNDECODABLE if that fails, and
    of type NOTHING if the record holds no event. `letter` makes the message about a dead event.
    """

    decode: Callable[[str], RawEvent]
    contiguous: bool = True
    first_version: int | None = 1
    gap_seconds: float = 5.0
    restart_seconds: float | None = None
    window_events: int = 10_000
    unnumbered: frozenset[str] = frozenset({UNDECODABLE, NOTHING})
    letter: Callable[[DeadEvent], DeadLetter] | None = None

    @property
    def versions_only_grow(self) -> bool:
        """Whether a later event of a stream always has a higher version."""
        return self.contiguous and self.restart_seconds is None


def undecodable_reason(event: RawEvent) -> Undecodable | None:
    """Why a record can't be decoded, if the event stands for one; else None."""
    if event.type != UNDECODABLE:
        return None
    return Undecodable(msgspec.json.decode(event.data)["error"])
