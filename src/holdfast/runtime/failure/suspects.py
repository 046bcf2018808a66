"""Which event is to blame when the store or the process itself fails.

Neither is an event's fault, as a rule. But a store that fails in the same event's handler again and
again, or a process that dies at it, has met its cause. To be sure, the suspect is tried alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import StoreConflict
from holdfast.model.event import RawEvent
from holdfast.model.failure import ProcessDied
from holdfast.runtime.engines.engine import StoreFailedAt
from holdfast.runtime.run import batch_reader as reading
from holdfast.runtime.store.checkpoint import Checkpoint

STRIKES = 3
"""A handler that loses the connection so often at one event has caused it."""

CONFLICT_STRIKES = 8
"""The same for deadlocks and serialisation failures, which others may cause."""

WARY_EVENTS = 256
"""Events from the first one on at which the store may have failed."""

UNCLEAN_ENDS = 2
"""After so many deaths at one checkpoint, events are tried one at a time."""

MARKED_DEATHS = 2
"""After so many deaths while one event was tried alone, that event is to blame."""

SINGLE_EVENTS = 100
"""Events that are tried alone before lanes are looked at again."""


class Suspects:
    """What a runner has against events."""

    def __init__(self) -> None:
        self.blamed: dict[int, BaseException] = {}
        """Events that have failed by what happened to the store or the process, by position."""
        self.suspect: RawEvent | None = None
        self._strikes = 0
        self._wary_for = 0
        """So many events more are known to be done before the next one begins: the store has failed
        at one of them, and it is not known at which."""
        self.alone_for = 0
        """So many events more are tried one at a time."""
        self.marked: int | None = None
        """The position of an event that processes have died at. It comes before all others."""
        self._deaths = 0
        self._careful_for = 0
        """So many events more come in small batches: the last process has died at one of them."""
        self.set_lost_after: int | None = None
        """After which position a stretch was lost with the connection: one of its events may be to
        blame, and that shows only when they come by themselves."""

    @property
    def goes_singly(self) -> bool:
        """Whether each event is tried alone, and marked before."""
        return self.alone_for > 0

    @property
    def is_wary(self) -> bool:
        """Whether each event is known to be done before the next one begins."""
        return self._wary_for > 0

    @property
    def has_any(self) -> bool:
        """Whether there is anything against an event that comes."""
        return self.goes_singly or self.suspect is not None

    def begin(self, checkpoint: Checkpoint, *, folds: bool) -> None:
        """Draws conclusions from how the last leader has ended."""
        position = checkpoint.mark_position
        if position is not None and checkpoint.mark_attempts >= MARKED_DEATHS:
            self.blamed[position] = ProcessDied(checkpoint.mark_attempts)
        self.marked, self._deaths = position, checkpoint.mark_attempts
        most = reading.most_events(folds=folds)
        if position is not None or checkpoint.unclean_ends >= UNCLEAN_ENDS:
            self.alone_for = min(most, reading.CAREFUL_EVENTS)
        self._careful_for = most if checkpoint.unclean_ends else 0

    def parts(self, events: Sequence[RawEvent]) -> list[Sequence[RawEvent]]:
        """What to commit before what: a suspect is set apart."""
        if self.alone_for:
            return [[event] for event in events[: min(self.alone_for, SINGLE_EVENTS)]]
        positions = [event.position for event in events] if self.suspect else []
        if self.suspect is None or self.suspect.position not in positions:
            return [events]
        at = positions.index(self.suspect.position)
        return [part for part in (events[:at], events[at : at + 1], events[at + 1 :]) if part]

    def attempt_at(self, event: RawEvent) -> int:
        """The number of the attempt at an event alone, counting those that a process died of."""
        return self._deaths + 1 if event.position == self.marked else 1

    def survived(self, event: RawEvent) -> None:
        """The event was tried alone, and the process lives, whatever became of the event."""
        if event.position == self.marked:
            self.marked = None

    def tried(self) -> None:
        """One event of the feed is done with."""
        self.alone_for = max(0, self.alone_for - 1)

    def is_careful(self) -> bool:
        """Whether batches are small: if the process dies, fewer events can be to blame."""
        return self._careful_for > 0

    def passed(self, events: int) -> None:
        """A batch of so many events is in."""
        self.suspect, self._strikes = None, 0
        self._careful_for = max(0, self._careful_for - events)
        self._wary_for = max(0, self._wary_for - events)

    def at_head(self) -> None:
        """There is nothing left that could kill the process."""
        self.alone_for = self._careful_for = 0

    def strike(self, failed: StoreFailedAt) -> None:
        """The store failed inside a handler. Once is the store; again and again is the event."""
        known = self.suspect is not None and self.suspect.position == failed.event.position
        self._strikes = self._strikes + 1 if known else 1
        self.suspect, self._wary_for = failed.event, WARY_EVENTS
        error = failed.error
        if (error.connection_lost and self._strikes >= STRIKES) or (
            isinstance(error, StoreConflict) and self._strikes >= CONFLICT_STRIKES
        ):
            # Its policy is asked as soon as the store can be reached.
            self.blamed[failed.event.position] = error
            self._strikes = 0
