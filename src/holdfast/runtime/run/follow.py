"""Following a feed: drain what is due, apply what is new, wait for more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event as Flag

from holdfast.errors import Fenced, ProjectionPaused, Revised, ShardRequested, StoreUnavailable
from holdfast.model.definition import Fold
from holdfast.model.event import RawEvent
from holdfast.model.lane import UNKNOWN
from holdfast.runtime.apply.feed_events import Applier
from holdfast.runtime.apply.leadership import Leadership, read_lanes
from holdfast.runtime.apply.parked_events import Drainer
from holdfast.runtime.apply.sql_ranges import RangeApplier
from holdfast.runtime.engines.sql_single import SqlEngine
from holdfast.runtime.failure.exclusive import exclusive_run
from holdfast.runtime.failure.suspects import SINGLE_EVENTS, Suspects
from holdfast.runtime.run.batch_reader import BatchReader, Reading
from holdfast.runtime.signals import Committed, Paused, Resumed
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.ranges import RangeSource
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source

DRAIN_LANES = 100
"""Lanes that are drained between two batches."""

SET_EVENTS = 50_000
"""Events that the database applies at once."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Where a batch has ended. `at_head`: the feed has no more; `held`: more is not settled."""

    at_head: bool
    held: bool


class Follower:
    """Follows a feed for one projection, while its lease is held."""

    def __init__(
        self,
        stint: Leadership,
        source: Source,
        lease: Lease,
        *,
        suspicion: Suspects,
        still_ours: Callable[[Session], Checkpoint],
        progressed: Callable[[], None],
        stop: Flag,
    ) -> None:
        self._stint, self._source, self._lease = stint, source, lease
        self._suspicion, self._still_ours, self._progressed = suspicion, still_ours, progressed
        self._stop = stop
        self._reader = BatchReader(
            source,
            stop.is_set,
            folds=isinstance(stint.definition.kind, Fold),
            is_careful=suspicion.is_careful,
        )
        self._applier, self._drainer = Applier(stint, source.verify), Drainer(stint)
        self._sets: RangeApplier | None = None
        if isinstance(stint.engine, SqlEngine):
            assert isinstance(source, RangeSource)
            self._next_range = source.next_range
            self._sets = RangeApplier(
                stint,
                stint.engine.statements,
                read_one=lambda after: source.read(after, 1).events[0],
                apply_alone=lambda event: self._applier.apply([event]),
            )

    def follow(self, until: int | None) -> bool:
        """Applies what there is, and what comes; returns when asked to stop.

        With `until`, returns True as soon as that position is reached and no lane is due.
        """
        stint = self._stint
        stint.checkpoint = self._source.check(stint.checkpoint)
        while not self._stop.is_set():
            if not self._lease.held:
                raise Fenced(f"projection {stint.definition.name!r} lost its lease")
            if stint.checkpoint.asked_by is not None:
                raise ShardRequested
            try:
                if stint.checkpoint.paused_by is not None:
                    self._sit_out(str(stint.checkpoint.paused_by), may_wait=until is None)
                    continue
                self._drain()
                before = stint.checkpoint.position
                if self._sets is not None and self._goes_by_sets():
                    read = self._apply_set(self._sets)
                else:
                    read = self._apply_read()
                if stint.checkpoint.position == before:
                    self._check_epoch()
            except Revised:
                self._revise()
                continue
            self._progressed()
            if self._is_arrived(until):
                return True
            if read.at_head:
                if not read.held:
                    self._suspicion.at_head()
                self._wait(is_busy=stint.checkpoint.position > before or read.held)
        return False

    def _sit_out(self, by: str, *, may_wait: bool) -> None:
        """Waits while the projection is paused."""
        stint = self._stint
        if not may_wait:
            name = stint.definition.name
            raise ProjectionPaused(f"it is paused by {by}; holdfast resume {name} lets it go on")
        stint.emit(Paused(*stint.names, by))
        with suppress(Revised):
            while not self._stop.is_set():
                self._check_epoch()
                self._source.wait(stint.definition.poll.empty_backoff_seconds)
        self._revise()
        if stint.checkpoint.paused_by is None:
            stint.emit(Resumed(*stint.names))

    def _check_epoch(self) -> None:
        """Raises Fenced or Revised if the checkpoint is not as it was left."""
        if not self._source.has_confirmed(self._stint.checkpoint):
            self._stint.session.check_epoch(self._stint.checkpoint)

    def _revise(self) -> None:
        """A person has changed something: goes on from what there is now."""
        self._source.forget()
        checkpoint = self._still_ours(self._stint.session)
        self._stint.revise(checkpoint, read_lanes(self._stint.session, checkpoint))

    def _drain(self) -> None:
        """Tries the lanes that are due, between batches."""
        stint = self._stint
        due: Sequence[str] = stint.lanes.due(stint.clock.now())
        # What is found to belong to another lane gets there before that is tried.
        due = sorted(due, key=lambda lane: not lane.startswith(UNKNOWN))
        marked = self._suspicion.marked
        if marked is not None:
            if marked > stint.checkpoint.position:
                return  # It comes in the feed, and first.
            due = sorted(due, key=lambda lane: self._drainer.head(lane) != marked)
        for lane in due[:DRAIN_LANES]:
            if self._stop.is_set():
                return
            if stint.lanes.get(lane) is None:
                continue  # A person has opened it meanwhile.
            if not self._suspicion.goes_singly:
                with exclusive_run.shared():
                    self._drainer.drain(lane)
                continue
            for _ in range(SINGLE_EVENTS):
                with exclusive_run.alone():
                    drained = self._drainer.drain(lane, alone=self._alone)
                if not drained or self._stop.is_set():
                    break

    def _apply_read(self) -> Ended:
        """Reads what comes next, and applies it."""
        stint, before = self._stint, self._stint.checkpoint.position
        streams = self._may_stream()
        reading = self._reader.read(before, keeps=not streams)
        if streams:
            self._apply_while_read(reading)
        elif events := [event for chunk in reading for event in chunk]:
            self._source.verify()  # Before any handler sees them.
            self._apply(events)
        if reading.last == before < reading.through:
            self._applier.pass_to(reading.through)
            stint.emit(Committed(*stint.names, reading.through, 0, 0.0))
        # Where there was no time for all of it, the rest is to be read again.
        is_done = stint.checkpoint.position >= reading.last
        return Ended(at_head=reading.at_head and is_done, held=reading.held)

    def _may_stream(self) -> bool:
        """Whether events can be folded while they are read.

        Not where they may have to be looked at one by one, nor in a transaction that is open, which
        others would wait for, perhaps those who read for us.
        """
        stint = self._stint
        if not isinstance(stint.definition.kind, Fold) or stint.is_holding:
            return False
        return not (self._reader.is_narrow or self._suspicion.has_any)

    def _apply_while_read(self, reading: Reading) -> None:
        """Events are folded as they come, and nothing is kept of them but their rows."""
        with self._told(), exclusive_run.shared():
            done = self._applier.apply_while_read(reading)
        if done is None:
            self._reader.narrow()
        else:
            self._suspicion.passed(done)

    def _goes_by_sets(self) -> bool:
        """Whether nothing is known of any event that comes."""
        stint = self._stint
        return not (
            self._suspicion.goes_singly
            or self._suspicion.suspect is not None
            or self._suspicion.blamed
            or self._suspicion.set_lost_after == stint.checkpoint.position
            or stint.judge.has_records
            or any(position > stint.checkpoint.position for position in stint.lanes.resolved)
        )

    def _apply_set(self, sets: RangeApplier) -> Ended:
        """Lets the database apply what comes next."""
        extent = self._next_range(self._stint.checkpoint.position, SET_EVENTS)
        try:
            with self._told(), exclusive_run.shared():
                sets.apply(extent)
        except StoreUnavailable as error:
            if error.connection_lost:
                self._suspicion.set_lost_after = self._stint.checkpoint.position
            raise
        at_head = extent.held or extent.events < SET_EVENTS
        return Ended(at_head=at_head, held=extent.held)

    def _apply(self, events: Sequence[RawEvent]) -> None:
        done = 0
        with self._told():
            for part in self._suspicion.parts(events):
                if self._stop.is_set():
                    break
                if self._suspicion.goes_singly:
                    with exclusive_run.alone(), self._alone(part[0]):
                        done += self._applier.apply(part, singly=True)
                    self._suspicion.tried()
                else:
                    with exclusive_run.shared():
                        done += self._applier.apply(part, singly=self._suspicion.is_wary)
            self._suspicion.passed(done)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tells what was committed, also of what precedes an event that stops it."""
        stint = self._stint
        started, before = stint.clock.monotonic(), stint.checkpoint
        try:
            yield
        finally:
            position, seconds = stint.checkpoint.position, stint.clock.monotonic() - started
            if position != before.position:
                self._reader.took(position - before.position, seconds)
                applied = stint.checkpoint.events_processed - before.events_processed
                stint.emit(Committed(*stint.names, position, applied, seconds))

    @contextmanager
    def _alone(self, event: RawEvent) -> Iterator[None]:
        """One event is tried, with a mark that tells the next process if this one dies of it."""
        attempt = self._suspicion.attempt_at(event)
        self._stint.session.mark(self._stint.checkpoint, event, attempt)
        try:
            yield
        finally:
            self._suspicion.survived(event)

    def _wait(self, *, is_busy: bool) -> None:
        poll = self._stint.definition.poll
        seconds = poll.interval_seconds if is_busy else poll.empty_backoff_seconds
        due_at = self._stint.lanes.next_due()
        if due_at is not None:
            left = (due_at - self._stint.clock.now()).total_seconds()
            seconds = max(0.0, min(seconds, left))
        if poll.wake:
            self._source.wait(seconds)
        else:
            self._stop.wait(seconds)

    def _is_arrived(self, until: int | None) -> bool:
        if until is None or self._stint.checkpoint.position < until:
            return False
        return not self._stint.lanes.due(self._stint.clock.now())
