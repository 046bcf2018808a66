"""Lanes: the unit of order."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

import msgspec

UNKNOWN = "(unknown) "
"""Prefix of the lane that holds a stream's events whose own lane could not be computed."""


MAX_LANE_CHARACTERS = 512
"""Maximum length of a lane's name, as of a stream's: the databases' indexes hold it."""


class Lane(msgspec.Struct, frozen=True, gc=False):
    """A closed lane: the number of events, and when its head is due (None: an operator decides)."""

    events: int
    due_at: datetime | None


def lane_name(text: str) -> str:
    """The name of a lane: the text itself or, of a longer one, its beginning and a hash."""
    if len(text) <= MAX_LANE_CHARACTERS or text.startswith(UNKNOWN):
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"{text[: MAX_LANE_CHARACTERS - len(digest) - 1]}~{digest}"


def unknown_lane(stream: str) -> str:
    """The lane of a stream's events whose own lane could not be computed.

    Any later event of the stream may belong to the same lane, so it waits behind them.
    """
    return UNKNOWN + stream
