"""The events of one shard."""

from __future__ import annotations

import time

from holdfast.model.feed_names import shard_of
from holdfast.runtime.shards.layout import ShardLayout, ShardLayouts
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.source import Chunk, Source

PASS_SECONDS = 0.1
"""Maximum time for which a shard passes events of other shards without a commit."""

PASS_EVENTS = 1_000
"""Maximum number of events of other shards that are passed without a commit."""

READS_AT_ONCE = 8
"""Maximum number of reads without an event of its own, before the runner checks its lease."""


class ShardSource:
    """The events of a shard, up to the barrier if there is one."""

    def __init__(
        self, source: Source, layouts: ShardLayouts, projection: str, *, number: int, of: int
    ) -> None:
        self._source, self._layouts, self._projection = source, layouts, projection
        self._number, self._of = number, of
        self._layout: ShardLayout | None = None
        self._others = (0, 0)
        """Between these positions all events are known to be of other shards."""
        self._told_at, self._is_silent = 0.0, False

    def read(self, after: int, limit: int) -> Chunk:
        # After the checkpoint was read, or a barrier could be set between the two and be missed.
        layout = self._layout = self._layout or self._layouts.layout(self._projection)
        since, through = self._others
        if not since <= after <= through:
            since = through = after
        for _ in range(READS_AT_ONCE):
            if layout.barrier is not None and through >= layout.barrier:
                return self._told(after, Chunk((), through=layout.barrier))
            chunk = self._source.read(through, limit)
            events = chunk.events
            if events:
                through = events[-1].position
            if layout.barrier is not None and through > layout.barrier:
                # Behind the last of them there may be numbers without events.
                through = layout.barrier
                events = [event for event in events if event.position <= through]
            is_last = len(events) < limit
            own = [e for e in events if shard_of(e.stream, self._of) == self._number]
            if own:
                return Chunk(own, held=chunk.held, through=through, more=not is_last)
            self._others = since, through
            if is_last:
                return self._told(after, Chunk((), held=chunk.held, through=through))
        return Chunk((), through=through, more=True)

    def head(self) -> int:
        return self._source.head()

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        self._look_again()
        return self._source.check(checkpoint)

    def verify(self) -> None:
        self._source.verify()

    def has_confirmed(self, checkpoint: Checkpoint) -> bool:
        return self._source.has_confirmed(checkpoint)

    def forget(self) -> None:
        self._look_again()
        self._source.forget()

    def has_news(self) -> bool:
        return self._source.has_news()

    def wait(self, timeout_seconds: float) -> bool:
        if self._is_silent:
            timeout_seconds = min(timeout_seconds, PASS_SECONDS)
        return self._source.wait(timeout_seconds)

    def _look_again(self) -> None:
        self._layout, self._others = None, (0, 0)

    def _told(self, after: int, chunk: Chunk) -> Chunk:
        """The chunk, or for a short time an empty one: to pass others' events is a commit."""
        now = time.monotonic()
        is_soon = now - self._told_at < PASS_SECONDS and chunk.through - after < PASS_EVENTS
        is_due = self._layout is not None and chunk.through == self._layout.barrier
        self._is_silent = chunk.through > after and is_soon and not is_due
        if self._is_silent:
            return Chunk((), held=chunk.held)
        self._told_at = now
        return chunk
