"""One projection on one feed: read, apply, commit, and again. leader.py says when.

Everything an event causes is in one transaction with the checkpoint, which moves only under the
runner's epoch. So a runner may be killed, frozen or cut off at any point, and the next one goes on
from exactly what is committed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import assert_never

from holdfast.errors import ProjectionPaused, Revised, StoreUnavailable
from holdfast.runtime.apply.feed_events import FeedEvents
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.apply.outcome import Outcome, announce
from holdfast.runtime.apply.parked_events import ParkedEvents
from holdfast.runtime.apply.sql_ranges import SqlRangeEvents
from holdfast.runtime.engines.engine import BatchLost, refusal
from holdfast.runtime.engines.factory import engine_of
from holdfast.runtime.engines.sql_single import SqlEngine
from holdfast.runtime.run.batch_reader import BatchReader, FeedBatch, RangeBatch
from holdfast.runtime.run.leader import Leader
from holdfast.runtime.signals import Paused, Refused, Resumed
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.session import Session


class Runner(Leader):
    """Runs one projection until it is stopped, or faulted, or (with `until`) has arrived."""

    def _lead(self, leadership: Leadership) -> None:
        """Applies what there is, and what comes, until the runner is stopped or has arrived.

        The lease is held, and the epoch is ours.
        """
        leadership.checkpoint = leadership.source.check(leadership.checkpoint)
        at_head = True
        while self._goes_on:
            before = leadership.checkpoint.position
            try:
                if not self._feed.has_unwritten:
                    self._check(leadership)  # Lease, pause, asked to leave, an operator's change.
                    self._parked.drain_due(self._announce, yields=at_head)  # apply/parked_events
                batch = self._read(leadership)  # batch_reader -> store/source
                outcome = self._apply(leadership, batch)  # apply/feed_events: one transaction
            except Revised:
                self._revise(leadership)
                continue
            self._announce(outcome)  # Signals, after the commit.
            self._arrived = self._has_arrived(leadership)
            position = leadership.checkpoint.position
            # Events that there was no time for, or that were refused together, come at once.
            at_head = batch.at_head and position >= batch.last
            is_busy = position > before or batch.held
            del batch, outcome  # Nothing of a batch is kept while the next one is read.
            if at_head and not self._arrived:
                self._wait(leadership, is_busy=is_busy)

    def _check(self, leadership: Leadership) -> None:
        """Raises where the runner may not go on; waits while the projection is paused."""
        leadership.check()
        by = leadership.checkpoint.paused_by
        if by is None:
            return
        if self._until is not None:
            name = self.definition.name
            raise ProjectionPaused(f"it is paused by {by}; holdfast resume {name} lets it go on")
        self._emit(Paused(*self._names, by))
        with suppress(Revised):
            while not self._stop.is_set():
                leadership.source.wait(self.definition.poll.empty_backoff_seconds)
                leadership.check()
        self._revise(leadership)
        if leadership.checkpoint.paused_by is None:
            self._emit(Resumed(*self._names))
        raise Revised("the projection was paused")

    def _read(self, leadership: Leadership) -> FeedBatch | RangeBatch:
        """The events that come next."""
        after, reader = leadership.checkpoint.position, self._reader
        if self._ranges is not None and self._ranges.may_go_on(refused_after=reader.refused_after):
            return reader.next_range(after)
        folded = self._feed.folded_through
        sets_apart = self._suspects.has_any and self._suspects.sets_apart
        may_fold_on = not (leadership.locks_first or reader.is_narrow or sets_apart)
        return reader.next(
            after if folded is None else folded, begins=folded is None, may_fold_on=may_fold_on
        )

    def _apply(self, leadership: Leadership, batch: FeedBatch | RangeBatch) -> Outcome | None:
        """Applies a batch in one transaction; None if nothing is committed."""
        if not (batch.count or self._feed.has_unwritten):
            if batch.through > leadership.checkpoint.position:
                return leadership.pass_to(batch.through)
            return None
        before = leadership.checkpoint.position
        try:
            first = batch.events[0] if isinstance(batch, FeedBatch) and batch.events else None
            with leadership.attempting(first):
                match batch:
                    case FeedBatch():
                        singly = self._suspects.has_any and self._suspects.is_wary
                        outcome = self._feed.apply(batch.events, ends=batch.ends, singly=singly)
                    case RangeBatch():
                        assert self._ranges is not None
                        outcome = self._ranges.apply(batch.range)
                    case _:
                        assert_never(batch)
        except StoreUnavailable as error:
            if isinstance(batch, RangeBatch) and error.connection_lost:
                self._suspects.range_lost_after = before
            raise
        except Exception as error:
            cause = refusal(leadership.session, error)
            if cause is None:
                raise
            self._narrow(leadership, batch, error, cause)
            return None
        if outcome is not None:
            events = leadership.checkpoint.position - before
            self._reader.took(events, outcome.seconds)
            if self._suspects.has_any:
                self._suspects.passed(events, leadership.checkpoint.position)
        return outcome

    def _narrow(
        self,
        leadership: Leadership,
        batch: FeedBatch | RangeBatch,
        error: Exception,
        cause: BaseException,
    ) -> None:
        """The store has refused a transaction: fewer events show which of them is to blame."""
        tried, good = batch.count, None
        if isinstance(batch, FeedBatch):
            tried = self._feed.tried
            if isinstance(error, BatchLost):
                good = [e.position for e in batch.events].index(error.event.position)
        if not self._reader.is_narrow:
            text = self.definition.masked(f"{type(cause).__name__}: {text_of(cause)}")
            self._emit(Refused(*self._names, leadership.checkpoint.position, text))
        if self._reader.narrow(leadership.checkpoint.position, tried, good=good):
            return
        if isinstance(batch, FeedBatch):
            event = self._feed.first
            assert event is not None
            leadership.attempts.decide(event, leadership.lane_of(event), cause)

    def _announce(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            announce(outcome, self._leadership.attempts, self._invoker)
        self._recovered()

    def _revise(self, leadership: Leadership) -> None:
        """An operator has changed something: goes on from what there is now."""
        self._feed.roll_back()
        self._reader.forget()
        self._parked.forget()
        leadership.revise(self._elector.still_ours(leadership.session))
        self._tune(leadership.session)

    def _wait(self, leadership: Leadership, *, is_busy: bool) -> None:
        if not is_busy:
            self._suspects.at_head()
        poll = self.definition.poll
        seconds = poll.interval_seconds if is_busy else poll.empty_backoff_seconds
        due_at = leadership.lanes.next_due()
        if due_at is not None:
            left = (due_at - leadership.clock.now()).total_seconds()
            seconds = max(0.0, min(seconds, left))
        if poll.wake:
            leadership.source.wait(seconds)
            return
        with suppress(Revised):
            while seconds > 0 and not self._stop.wait(min(seconds, self._limits.recheck_seconds)):
                seconds -= self._limits.recheck_seconds
                leadership.check()

    def _has_arrived(self, leadership: Leadership) -> bool:
        """Whether the position `until` is reached, and each lane that is due was tried."""
        is_there = self._until is not None and leadership.checkpoint.position >= self._until
        return is_there and self._parked.has_tried_all()

    def _begin(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> Leadership:
        definition, context, limits = self.definition, self._context, self._limits
        engine = engine_of(definition, context.types, session, self._invoker, limits)
        source = context.open_source(session)
        leadership = self._leadership = Leadership(
            definition,
            session=session,
            lease=lease,
            source=source,
            checkpoint=checkpoint,
            engine=engine,
            attempts=self._attempts,
            suspects=self._suspects,
            limits=limits,
            stopping=self._stop.is_set,
        )
        self._feed, self._parked = FeedEvents(leadership), ParkedEvents(leadership)
        self._ranges = None
        if isinstance(engine, SqlEngine):
            self._ranges = SqlRangeEvents(leadership, engine.statements)
        self._reader = BatchReader(
            source,
            definition.kind,
            limits=limits,
            suspects=self._suspects,
            stopping=self._stop.is_set,
        )
        return leadership

    def _roll_back(self) -> None:
        self._feed.roll_back()
