"""Feeds that other systems write: where they begin, and which events of their streams have come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from holdfast.model.event import RawEvent
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import ParkedEvent


class ForeignVersions(Protocol):
    """Part of a session, for feeds that other systems write.

    A stream belongs to the projection, not to a feed: it may go on on another one.
    """

    def begin_feed(
        self, checkpoint: Checkpoint, origin: str, position: int
    ) -> tuple[str, Checkpoint]:
        """Stores the feed's origin and first position, if the feed is new.

        An origin tells the feed from another one of the same name. Returns the origin that is
        stored, and the checkpoint as it is.
        """

    def begin_feeds(self, projection: str, feeds: Mapping[str, tuple[str, int]]) -> None:
        """Does the same for all feeds of a projection at once, if none of them has begun."""

    def read_versions(self, checkpoint: Checkpoint, streams: Sequence[str]) -> Mapping[str, int]:
        """The last version of each stream that the projection knows."""

    def write_versions(self, checkpoint: Checkpoint, steps: Mapping[str, tuple[int, int]]) -> None:
        """Moves streams from one version to another, in the open transaction.

        Raises Revised if a stream has moved on by another feed.
        """

    def last_time(self, checkpoint: Checkpoint, stream: str) -> datetime | None:
        """When the last event of a stream was recorded, if that was written."""

    def write_times(self, checkpoint: Checkpoint, times: Mapping[str, datetime]) -> None:
        """Stores when the last events of streams were recorded, in the open transaction."""

    def seen_ids(self, checkpoint: Checkpoint, ids: Sequence[UUID]) -> Sequence[UUID]:
        """The ids among these that the projection has seen."""

    def write_seen(self, checkpoint: Checkpoint, ids: Mapping[UUID, int], *, keep: int) -> None:
        """Stores the ids of events, with their positions, in the open transaction.

        Of older ones about the last `keep` stay.
        """

    def is_resolved(
        self, checkpoint: Checkpoint, stream: str, version: int, *, even_early: bool
    ) -> bool:
        """Whether an operator has resolved a version of a stream; `even_early`: one that came early
        counts too."""

    def waiting_versions(self, checkpoint: Checkpoint, lane: str) -> tuple[int, int] | None:
        """The first and the last version that wait in a lane."""

    def undecoded_items(
        self, checkpoint: Checkpoint, lane: str, limit: int
    ) -> Sequence[ParkedEvent]:
        """Items of a lane that are to be tried, and could not be decoded before."""

    def renumber(self, checkpoint: Checkpoint, events: Mapping[int, RawEvent]) -> None:
        """Gives items, by id, the stream and version of their events; raises Fenced."""
