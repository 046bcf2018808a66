"""Lanes: the unit of order."""

from __future__ import annotations

from datetime import datetime

import msgspec

UNKNOWN = "(unknown) "
"""So begins the name of the lane of events whose own lane could not be computed, of one stream."""


class Lane(msgspec.Struct, frozen=True, gc=False):
    """A closed lane: how much waits, and when its head may be tried (None: when a person says)."""

    events: int
    due_at: datetime | None


def unknown_lane(stream: str) -> str:
    """Where events of a stream wait whose own lane could not be computed.

    Any later event of the stream may belong to the same lane, and so has to wait for them.
    """
    return UNKNOWN + stream
