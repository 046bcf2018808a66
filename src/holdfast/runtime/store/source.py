"""A feed, as the runtime reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.event import RawEvent
from holdfast.runtime.store.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events in order.

    `held`: more events follow, behind an append that is not committed. `through`: no event will
    appear up to this position, if it is beyond the last event. `more`: more events follow, though
    these are fewer than the limit.
    """

    events: Sequence[RawEvent]
    held: bool = False
    through: int = 0
    more: bool = False


class Source(Protocol):
    """Reads one feed. Its events are settled: no smaller position appears later."""

    def read(self, after: int, limit: int) -> Chunk:
        """At most `limit` events after a position, in order."""

    def head(self) -> int:
        """The largest position, settled or not; 0 for an empty feed."""

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        """Raises HoldfastError if the feed no longer has the events after a checkpoint.

        Returns the checkpoint, which is advanced to the feed's beginning if nothing was read yet.
        """

    def verify(self) -> None:
        """Raises HoldfastError if the events are not of this feed; called before a commit."""

    def has_confirmed(self, checkpoint: Checkpoint) -> bool:
        """Whether the last read has shown that the checkpoint's epoch and revision are unchanged.

        False: the session has to check them.
        """

    def forget(self) -> None:
        """Drops events that were read ahead: an operator has changed something."""

    def has_news(self) -> bool:
        """Whether the feed is known to have grown since the last read. Never waits."""

    def wait(self, timeout_seconds: float) -> bool:
        """Waits until the feed may have grown since the last read; False after the timeout."""
