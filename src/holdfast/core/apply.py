"""Applies a batch of events in one transaction: rows and checkpoint together, or nothing.

A batch is tried whole. Only if an event fails is the good part before it applied again and
committed, so that what precedes a failure is always in and nothing after it ever is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core.codec import EventTypes
from holdfast.core.engines import (
    BatchRefused,
    Caller,
    Engine,
    EventFailed,
    HandlerEngine,
    TableEngine,
)
from holdfast.core.event import RawEvent
from holdfast.core.ports import Advance, Checkpoint, Clock, Session
from holdfast.core.projection import Definition

SLICE_SECONDS = 1.0
"""A transaction ends after the event that exceeds this, so that slow handlers don't hold locks."""


class Applier:
    """Applies events to one projection's rows, and moves `checkpoint` on with every commit."""

    def __init__(
        self,
        definition: Definition,
        *,
        types: EventTypes,
        session: Session,
        checkpoint: Checkpoint,
        clock: Clock,
        stopping: Callable[[], bool],
    ) -> None:
        self.checkpoint = checkpoint
        self._session, self._clock, self._stopping = session, clock, stopping
        self._caller = Caller()
        self._rate = _Rate(clock)
        table = definition.table
        self._engine: Engine = (
            HandlerEngine(definition, types, session, self._caller)
            if table is None
            else TableEngine(definition, types, session, self._caller, table)
        )

    def apply(self, events: Sequence[RawEvent]) -> int:
        """Applies and commits events in order; returns how many (fewer only when stopping).

        Raises EventFailed for an event that can't be applied, with all before it committed.
        """
        done = 0
        while done < len(events) and not (done and self._stopping()):
            done += self._apply(events[done:])
        return done

    def close(self) -> None:
        self._caller.close()

    def _apply(self, events: Sequence[RawEvent]) -> int:
        """One transaction, or as many as it takes to find the event that fails."""
        try:
            return self._commit(events)
        except EventFailed as failed:
            before = _index(events, failed.event)
            done = self.apply(events[:before])
            if done < before:
                return done  # Stopping: the failed event waits for the next start.
            raise
        except Exception as error:
            if not (isinstance(error, BatchRefused) or self._session.refused(error)):
                raise
            # What the events left behind can't be stored: halve until one event is left.
            if len(events) == 1:
                cause = error.__cause__ if isinstance(error, BatchRefused) else error
                raise EventFailed(events[0], cause or error) from error
            return self._apply(events[: len(events) // 2])

    def _commit(self, events: Sequence[RawEvent]) -> int:
        until = self._clock.monotonic() + SLICE_SECONDS

        def enough() -> bool:
            return self._stopping() or self._clock.monotonic() >= until

        try:
            with self._engine.run(self.checkpoint, events, enough) as (work, done):
                last = events[done - 1]
                advanced = work.advance(
                    self.checkpoint,
                    Advance(
                        position=last.position,
                        events=done,
                        last_event_id=last.id,
                        last_event_type=last.type,
                        at=self._clock.now(),
                        events_per_second=self._rate.after(done),
                    ),
                )
        except BaseException:
            self._engine.forget()
            raise
        self._engine.committed()
        self.checkpoint = advanced
        return done


class _Rate:
    """Events per second over the last second or so of work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since, self._events, self._rate = clock.monotonic(), 0, 0.0

    def after(self, events: int) -> float:
        self._events += events
        seconds = self._clock.monotonic() - self._since
        if seconds > 0 and (seconds >= 1.0 or self._rate == 0.0):
            self._rate = self._events / seconds
        if seconds >= 1.0:
            self._since, self._events = self._clock.monotonic(), 0
        return self._rate


def _index(events: Sequence[RawEvent], event: RawEvent) -> int:
    return next(i for i, candidate in enumerate(events) if candidate.position == event.position)
