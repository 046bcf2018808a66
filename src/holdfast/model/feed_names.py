"""Names of the feeds that are ours: the journal, its shards, and messages."""

from __future__ import annotations

import re
import zlib

JOURNAL = "journal"
"""The journal's name as a feed."""

MESSAGES = "messages"
"""The feed of what is sent to other systems."""

MAX_SHARDS = 256

_SHARD = re.compile(r"journal\[(\d+)/(\d+)\]", re.ASCII)


def shard_feed(number: int, of: int) -> str:
    """The name of a shard of the journal, counted from 1; one of one is the journal itself."""
    return JOURNAL if of == 1 else f"{JOURNAL}[{number}/{of}]"


def shard_feeds(shards: int) -> list[str]:
    """The names of all shards."""
    return [shard_feed(number, shards) for number in range(1, shards + 1)]


def shards_in(feed: str) -> int | None:
    """Of how many shards a feed is one; None where it is not the journal's."""
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
    """Whether we number the feed ourselves, so that positions say what comes before what."""
    return feed == MESSAGES or is_journal(feed)
