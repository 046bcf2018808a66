"""Which event is to blame when the store or the process itself fails.

Mostly none is. But a store that fails in the same event's handler again and again, or a process
that dies at it, has met its cause. To be sure, the suspect is tried alone:

- The store fails in an event's handler: that event is the suspect, and is set apart in the next
  batch. Where the store failed at the end of a group of writes, the culprit is one of the next
  `wary_events`: each of them is known to be done before the next one begins. An event at which the
  connection is lost `strikes` times in a row is to blame; at deadlocks, `conflict_strikes` times.
- A process dies twice at the same checkpoint (`unclean_ends`): events are tried one at a time, each
  with a durable mark. An event at which processes die `marked_deaths` times is to blame.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import StoreConflict
from holdfast.model.event import RawEvent
from holdfast.model.failure import ProcessDied
from holdfast.runtime.engines.engine import StoreFailedAt
from holdfast.runtime.failure.recovery import Recovery
from holdfast.runtime.limits import RuntimeLimits
from holdfast.runtime.store.checkpoint import Checkpoint


class Suspects:
    """What a runner holds against events."""

    def __init__(self, limits: RuntimeLimits) -> None:
        self._limits = limits
        self.has_any = False
        """Whether anything is held against events that come. If not, nothing else is asked."""
        self.suspect: RawEvent | None = None
        self._strikes = 0
        self._wary_events = 0
        self.alone_events = 0
        """How many more events are tried one at a time."""
        self.marked: int | None = None
        """The position of an event that processes have died at. It is tried before all others."""
        self._deaths = 0
        self._careful_events = 0
        """How many more events come in small batches: the last process died at one of them."""
        self.range_lost_after: int | None = None
        """After which position a range was lost with the connection: one of its events may be to
        blame, which shows only when they come one by one."""

    @property
    def goes_singly(self) -> bool:
        """Whether each event is tried alone, and marked before."""
        return self.alone_events > 0

    @property
    def is_wary(self) -> bool:
        """Whether each event must be known to be done before the next one begins."""
        return self._wary_events > 0 or self.alone_events > 0

    @property
    def sets_apart(self) -> bool:
        """Whether an event that comes is tried alone."""
        return self.alone_events > 0 or self.suspect is not None

    @property
    def is_careful(self) -> bool:
        """Whether batches are small: if the process dies, fewer events can be to blame."""
        return self._careful_events > 0

    def begin(self, checkpoint: Checkpoint, recovery: Recovery, *, most_events: int) -> None:
        """Draws conclusions from how the last leader has ended."""
        limits, position = self._limits, checkpoint.mark_position
        if position is not None and checkpoint.mark_attempts >= limits.marked_deaths:
            recovery.blame(position, ProcessDied(checkpoint.mark_attempts))
        self.marked, self._deaths = position, checkpoint.mark_attempts
        if position is not None or checkpoint.unclean_ends >= limits.unclean_ends:
            self.alone_events = min(most_events, limits.careful_events)
        self._careful_events = most_events if checkpoint.unclean_ends else 0
        self._note_any()

    def most_together(self, events: Sequence[RawEvent]) -> int:
        """How many of these events may go into one transaction: a suspect is set apart."""
        if self.goes_singly:
            return 1
        if self.suspect is not None:
            for index, event in enumerate(events):
                if event.position == self.suspect.position:
                    return max(index, 1)
        return len(events)

    def attempt_at(self, event: RawEvent) -> int:
        """The number of the attempt at an event alone, with those that a process died of."""
        return self._deaths + 1 if event.position == self.marked else 1

    def survived(self, event: RawEvent) -> None:
        """The event was tried alone, and the process lives, whatever became of the event."""
        if event.position == self.marked:
            self.marked = None

    def passed(self, events: int, position: int) -> None:
        """A batch is committed, up to a position."""
        if self.suspect is not None and self.suspect.position <= position:
            self.suspect, self._strikes = None, 0
        self.alone_events = max(0, self.alone_events - events)
        self._wary_events = max(0, self._wary_events - events)
        self._careful_events = max(0, self._careful_events - events)
        self._note_any()

    def at_head(self) -> None:
        """No event is left that could kill the process."""
        self.alone_events = self._careful_events = 0
        self._note_any()

    def strike(self, failed: StoreFailedAt, recovery: Recovery) -> None:
        """The store failed inside a handler. Once it is the store; again and again, the event."""
        limits, event, error = self._limits, failed.event, failed.error
        is_known = self.suspect is not None and self.suspect.position == event.position
        self._strikes = self._strikes + 1 if is_known else 1
        self.suspect, self._wary_events, self.has_any = event, limits.wary_events, True
        if (error.connection_lost and self._strikes >= limits.strikes) or (
            isinstance(error, StoreConflict) and self._strikes >= limits.conflict_strikes
        ):
            # Its policy is asked as soon as the store can be reached.
            recovery.blame(event.position, error)
            self._strikes = 0

    def _note_any(self) -> None:
        self.has_any = self.sets_apart or self.is_wary or self.is_careful
