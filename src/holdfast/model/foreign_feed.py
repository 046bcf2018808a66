"""ForeignFeed: how events come in that others have written, and what their numbers are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import HoldfastError, PayloadError
from holdfast.model.event import RawEvent

UNDECODABLE = "holdfast.undecodable"
"""The type of the event that stands for what could not be decoded. Its data say why."""

NOTHING = "holdfast.nothing"
"""The type of what is no event, now that it is read again."""


class VersionGap(HoldfastError):
    """An event came without the one that precedes it in its stream. Its name is EARLY."""


class Undecodable(PayloadError):
    """What came can't be read as an event; it is kept as it came."""


class DeadEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that has failed for good, with what was kept of it."""

    projection: str
    lane: str
    event: RawEvent
    kept: str
    error_type: str
    error_message: str
    attempts: int
    at: datetime


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message about a dead event, for those who listen elsewhere."""

    topic: str
    key: str
    id: UUID
    data: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ForeignFeed:
    """How a projection takes events that others have written.

    `contiguous`: versions count without a gap within a stream, beginning with `first_version`
    (None: with whatever comes first), and an event that comes too early waits `gap_seconds` for
    those before it. Otherwise the ids of the last `window_events` of a feed tell what has come
    before. Events of the types in `unnumbered` have no version.

    `decode` reads again what was kept of an event; it gives an event of type UNDECODABLE or NOTHING
    where it can't be read, or is none.
    `letter` tells others of an event that is dead.
    """

    decode: Callable[[str], RawEvent]
    contiguous: bool = True
    first_version: int | None = 1
    gap_seconds: float = 5.0
    window_events: int = 10_000
    unnumbered: frozenset[str] = frozenset({UNDECODABLE, NOTHING})
    letter: Callable[[DeadEvent], DeadLetter] | None = None


def undecodable_reason(event: RawEvent) -> Undecodable | None:
    """Why an event can't be read, if it stands for something undecodable."""
    if event.type != UNDECODABLE:
        return None
    data: Any = msgspec.json.decode(event.data)
    return Undecodable(data["error"])
