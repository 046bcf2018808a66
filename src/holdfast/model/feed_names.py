"""Names of the feeds that holdfast numbers: the journal, its shards, and messages."""

from __future__ import annotations

import re
import zlib

JOURNAL = "journal"
MESSAGES = "messages"
"""The feed of messages to other systems."""

MAX_SHARDS = 256
"""Maximum number of shards of a projection."""

_SHARD = re.compile(r"journal\[(\d+)/(\d+)\]", re.ASCII)


def shard_feed(number: int, of: int) -> str:
    """The name of a shard of the journal, counted from 1. A single shard is the journal itself."""
    return JOURNAL if of == 1 else f"{JOURNAL}[{number}/{of}]"


def shard_feeds(shards: int) -> list[str]:
    """The names of all shards."""
    return [shard_feed(number, shards) for number in range(1, shards + 1)]


def shards_in(feed: str) -> int | None:
    """The number of shards that the journal has in this feed's layout; None for other feeds."""
    if feed == JOURNAL:
        return 1
    found = _SHARD.fullmatch(feed)
    return None if found is None else int(found[2])


def shard_of(lane: str, shards: int) -> int:
    """The number of the shard that a lane belongs to. It never changes for the same `shards`."""
    return zlib.crc32(lane.encode()) % shards + 1


def is_journal(feed: str) -> bool:
    """Whether a feed is the journal, or a shard of it."""
    return shards_in(feed) is not None


def is_ours(feed: str) -> bool:
    """Whether holdfast numbers the feed, so that positions order its events."""
    return feed == MESSAGES or is_journal(feed)
