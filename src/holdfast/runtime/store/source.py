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
    appear up to this position, where that is beyond the last event. `more`: more events follow,
    though these are fewer than asked for.
    """

    events: Sequence[RawEvent]
    held: bool = False
    through: int = 0
    more: bool = False


class Source(Protocol):
    """Reads one feed. What it returns is settled: no smaller position appears later."""

    def read(self, after: int, limit: int) -> Chunk:
        """At most `limit` events after a position, in order."""

    def head(self) -> int:
        """The largest position there is, settled or not; 0 for an empty feed."""

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        """Raises HoldfastError if the feed no longer has what comes after a checkpoint.

        Returns the checkpoint, moved on to the feed's beginning if nothing was read before.
        """

    def verify(self) -> None:
        """Raises HoldfastError if what was read is not of this feed; called before a commit."""

    def has_confirmed(self, checkpoint: Checkpoint) -> bool:
        """Whether a look of a moment ago has shown the checkpoint's epoch and revision unchanged.

        False: the session has to look.
        """

    def forget(self) -> None:
        """Drops what was read ahead: an operator has changed something."""

    def wait(self, timeout_seconds: float) -> bool:
        """Returns when the feed may have grown since the last read, or in time; and which."""
