"""A feed, as the runtime reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.event import RawEvent
from holdfast.runtime.store.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events in order. `held`: more is there, behind an append that has not committed yet.

    `through`: nothing more will come up to this position, where that is beyond the last event.
    `more`: there is more behind that, though these are fewer than asked for.
    """

    events: Sequence[RawEvent]
    held: bool = False
    through: int = 0
    more: bool = False


class Source(Protocol):
    """Reads one feed. What it returns is settled: nothing smaller appears later."""

    def read(self, after: int, limit: int) -> Chunk:
        """At most `limit` events after position `after`, in order."""

    def head(self) -> int:
        """The largest settled or unsettled position there is; 0 for an empty feed."""

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        """Raises HoldfastError if the feed no longer has what comes after a checkpoint.

        Returns it, moved on to where the feed begins if nothing was read from it before.
        """

    def assure(self) -> None:
        """Raises HoldfastError if what was read is not the feed's: before it is committed."""

    def forget(self) -> None:
        """A person has changed something: what was read before may be different now."""

    def wait(self, timeout_seconds: float) -> bool:
        """Returns when something may have been added since the last read, or in time; and which."""
