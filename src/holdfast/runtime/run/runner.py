"""One projection on one feed: read, apply, commit, and again.

The life of a runner:

    stand by ──lease──▶ lead ──stop──▶ release, end
       ▲                 │ │ ▲
       └──fenced, store──┘ │ └──wait, holding the lease alone──┐
          away (wait)      ├──an event is to be tried again────┘
                           └──an event stops it──▶ record the fault, end

Everything an event causes is in one transaction with the checkpoint, which moves only under the
runner's epoch. So a runner may be killed, frozen or cut off at any point, and the next one goes on
from exactly what is committed.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import assert_never

from holdfast.errors import (
    Fenced,
    LayoutChanged,
    ProjectionFaulted,
    ProjectionPaused,
    Revised,
    ShardRequested,
    StoreUnavailable,
)
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.failure import ProcessDied
from holdfast.model.feed_names import JOURNAL
from holdfast.runtime.apply.feed_events import FeedEvents
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.apply.outcome import Outcome, announce
from holdfast.runtime.apply.parked_events import ParkedEvents
from holdfast.runtime.apply.sql_ranges import SqlRangeEvents
from holdfast.runtime.engines.engine import BatchLost, StoreFailedAt, refusal
from holdfast.runtime.engines.factory import engine_of
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.engines.sql_single import SqlEngine
from holdfast.runtime.failure.attempts import Blocked
from holdfast.runtime.failure.recovery import GiveUp
from holdfast.runtime.failure.suspects import Suspects
from holdfast.runtime.run.batch_reader import BatchReader, FeedBatch, RangeBatch, most_events
from holdfast.runtime.run.elector import Elector
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.signals import (
    BegunAgain,
    LeaseLost,
    Paused,
    Refused,
    Resumed,
    Singled,
    Started,
    Stopped,
)
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.faults import Fault, fault_of, text_of
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.session import Session


@dataclass(frozen=True, slots=True)
class _Retry:
    """An event that is tried again after a wait."""

    event: RawEvent
    until: float


class Runner(Worker):
    """Runs one projection until it is stopped, or faulted, or (with `until`) has arrived."""

    def __init__(
        self,
        definition: Definition,
        context: RunnerContext,
        *,
        until: int | None = None,
        is_shard: bool = False,
    ) -> None:
        """`is_shard`: it ends without a fault when the projection gets other shards."""
        super().__init__(definition, context, until)
        self._is_shard, self.is_retired = is_shard, False
        self._elector = Elector(definition.name, context, self._stop, until=until)
        self._held: tuple[Session, Lease] | None = None
        self._suspects = Suspects(context.limits)
        self._invoker = Invoker()
        self._attempts = self._new_attempts(self._invoker)

    @property
    def name(self) -> str:
        feed = self._context.feed
        return self.definition.name if feed == JOURNAL else f"{self.definition.name} {feed}"

    def run(self) -> None:
        """Blocks until the runner ends; afterwards `fault` says if something is wrong."""
        with closing(self._invoker), ExitStack() as end:
            end.callback(self.leave)
            while self._goes_on and not self.is_retired:
                try:
                    self._stand_by_and_lead()
                except ShardRequested:
                    # The process that has asked for it comes first.
                    self._stop.wait(self._limits.handover_seconds)
                except Fenced as fenced:
                    self._emit(LeaseLost(*self._names, str(fenced)))
                    self._stop.wait(self._limits.standby_seconds)
                except StoreUnavailable as error:
                    self._back_off(error, suspect=self._suspects.suspect)
                except ProjectionFaulted as known:
                    self._stopped_at = self._elector.found
                    self._end_unrecorded(fault_of(known, self._context.clock))
                except LayoutChanged as error:
                    if not self._is_shard:
                        self._give_up(fault_of(error, self._context.clock))
                    self.is_retired = self._is_shard
                except Exception as error:
                    self._give_up(fault_of(error, self._context.clock))

    # The loop

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

    # Becoming leader

    def _stand_by_and_lead(self) -> None:
        """Takes the lease, if it is free, and works until something ends it."""
        session = self._context.open_session()
        try:
            found = self._elector.stand_by(session)
            if found is None:
                self._arrived = self._elector.has_arrived
                return
            checkpoint, lease = found
            try:
                checkpoint = self._take_over(session, checkpoint, lease)
                while (blocked := self._work(session, checkpoint, lease)) is not None:
                    # Nothing is held while nothing can be done, but the lease.
                    session.close()
                    waited = partial(self._attempts.recovery.waited, blocked.event)
                    if not self._elector.rest(blocked.until, lease, waited):
                        self._attempts.recovery.end_wait(blocked.event)
                    session = self._context.open_session()
                    checkpoint = self._elector.still_ours(session)
                    session.lead_on(checkpoint)
            except Fenced:
                if not self._elector.was_reset(session, lease):
                    raise
                self._emit(BegunAgain(*self._names))
            finally:
                lease.release()
        finally:
            session.close()

    def _take_over(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> Checkpoint:
        if not self._elector.is_resumed(checkpoint):
            self._attempts = self._new_attempts(self._invoker)
        checkpoint = self._elector.take_over(session, checkpoint, lease)
        most = most_events(self.definition.kind, self._limits)
        self._suspects.begin(checkpoint, self._attempts.recovery, most_events=most)
        self._emit(Started(*self._names, checkpoint.position, checkpoint.epoch))
        if singly := self._suspects.alone_events:
            deaths = checkpoint.unclean_ends
            self._emit(Singled(*self._names, checkpoint.position, deaths, singly))
        return checkpoint

    def _work(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> _Retry | None:
        """Leads until something ends it; returns a wait if an event is to be tried again."""
        self._held = session, lease
        if self._tune(session):
            self._attempts.recovery.end_waits()
        leadership = self._leadership = self._new_leadership(session, checkpoint, lease)
        try:
            session.prepare(self.definition)
            self.use()
            self._lead(leadership)
        except Blocked as blocked:
            return self._block(leadership, blocked)
        except StoreFailedAt as failed:
            self._note_progress(leadership)
            self._suspects.strike(failed, self._attempts.recovery)
            raise failed.error from failed
        except ProjectionPaused as paused:
            self._own_fault = fault_of(paused, self._context.clock)
            session.release(leadership.checkpoint)
        except (Fenced, LayoutChanged):
            raise
        except StoreUnavailable:
            self._note_progress(leadership)
            raise
        except ShardRequested:
            self._release(leadership)
            raise
        except Exception as error:
            self._stopped_at = leadership.checkpoint
            self._give_up_leading(fault_of(error, self._context.clock))
        else:
            self._release(leadership)
        finally:
            self._feed.roll_back()
        return None

    def _new_leadership(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> Leadership:
        definition, context, limits = self.definition, self._context, self._limits
        engine = engine_of(definition, context.types, session, self._invoker, limits)
        source = context.open_source(session)
        leadership = Leadership(
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

    def _release(self, leadership: Leadership) -> None:
        leadership.session.release(leadership.checkpoint)
        self._emit(Stopped(*self._names, leadership.checkpoint.position))

    # Waiting and failing

    def _block(self, leadership: Leadership, blocked: Blocked) -> _Retry | None:
        step, event, clock = blocked.step, blocked.event, self._context.clock
        self._failures = 0
        failure = self._attempts.recovery.fault_of(event, step)
        if isinstance(step, GiveUp):
            self._stopped_at = leadership.checkpoint
            self._give_up_leading(failure)
            return None
        at = clock.monotonic() + step.seconds
        what = "a retry of" if step.reason == "retry" else "the circuit breaker, then"
        until = clock.now() + timedelta(seconds=step.seconds)
        reason = f"{what} event {event.id} ({event.type!r}) at position {event.position}"
        has_died = failure.error_type == ProcessDied.__name__
        leadership.session.note_wait(
            leadership.checkpoint, until, reason, keep_mark=has_died, failure=failure
        )
        self._elector.checkpoint = leadership.checkpoint
        return _Retry(event, at)

    def _give_up_leading(self, fault: Fault) -> None:
        """Ends with a fault, or raises Fenced: what misses a table that a reset has dropped."""
        with suppress(StoreUnavailable), closing(self._context.open_session()) as session:
            self._elector.still_ours(session)
        self._give_up(fault)

    def _note_progress(self, leadership: Leadership) -> None:
        """Failures with a commit between them are not in a row."""
        if leadership.checkpoint != self._elector.checkpoint:
            self._failures = 0

    def _noted_checkpoint(self, session: Session) -> Checkpoint | None:
        if self._elector.checkpoint is not None:
            return self._elector.checkpoint
        # It has never led. What another process leads is not this one's to speak of.
        found = session.find_checkpoint(*self._names)
        return None if found is None or self._context.leases.is_taken(found) else found

    def abandon(self) -> None:
        """The process ends though a handler has not returned: no event is to blame.

        What the handler has begun is undone. May block.
        """
        held, checkpoint = self._held, self._elector.checkpoint
        if held is None or checkpoint is None:
            return
        session, lease = held
        session.abort()
        # A lease that was given back says as much, where the store can't be written.
        lease.release()
        with suppress(Exception), closing(self._context.open_session()) as session:
            session.release(checkpoint)
