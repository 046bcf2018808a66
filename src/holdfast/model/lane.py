"""Lanes: the unit of order."""

from __future__ import annotations

from datetime import datetime

import msgspec

UNKNOWN = "(unknown) "
"""Prefix of the lane that holds a stream's events whose own lane could not be computed."""


class Lane(msgspec.Struct, frozen=True, gc=False):
    """A closed lane: the number of events, and when its head is due (None: an operator decides)."""

    events: int
    due_at: datetime | None


def unknown_lane(stream: str) -> str:
    """The lane of a stream's events whose own lane could not be computed.

    Any later event of the stream may belong to the same lane, so it waits behind them.
    """
    return UNKNOWN + stream
