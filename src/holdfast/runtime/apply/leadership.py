"""A runner's leadership of one projection on one feed: its lease is held, and the epoch is ours.

It begins when the runner has taken the lease and raised the checkpoint's epoch, and ends when the
runner stops, loses the lease, or is fenced. It holds what feed_events, parked_events and sql_ranges
share: the checkpoint, the closed lanes, the engine with its rows in memory, and what is known of
events that failed. All of it may be trusted between transactions: a commit succeeds only if epoch,
position and revision are as this runner left them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from holdfast.errors import Fenced, Revised, ShardRequested
from holdfast.model.definition import Definition, lane_of
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import DeadEvent
from holdfast.model.lane import unknown_lane
from holdfast.runtime.apply.deduplicate import deduplication_of
from holdfast.runtime.apply.outcome import Outcome
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.failure import exclusive
from holdfast.runtime.failure.attempts import Attempts
from holdfast.runtime.failure.closed_lanes import ClosedLanes
from holdfast.runtime.failure.suspects import Suspects
from holdfast.runtime.limits import RuntimeLimits
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.queue_items import FailureHistory
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source
from holdfast.runtime.store.transaction import Transaction


class Leadership:
    """What a runner knows and may do while it leads."""

    def __init__(
        self,
        definition: Definition,
        *,
        session: Session,
        lease: Lease,
        source: Source,
        checkpoint: Checkpoint,
        engine: Engine,
        attempts: Attempts,
        suspects: Suspects,
        limits: RuntimeLimits,
        stopping: Callable[[], bool],
    ) -> None:
        self.definition, self.session, self.source = definition, session, source
        self._lease, self.checkpoint = lease, checkpoint
        self.foreign, self.lanes_are_streams = definition.foreign, definition.lanes_are_streams
        self.engine, self.attempts, self.recovery = engine, attempts, attempts.recovery
        self.suspects, self.clock = suspects, attempts.clock
        self.limits, self.stopping = limits, stopping
        self.lanes = read_closed_lanes(session, checkpoint)
        self.deduplication = deduplication_of(
            self.foreign, session.foreign_versions, checkpoint, limits
        )
        self._rate = _Rate(self.clock)
        self._confirmed: Checkpoint | None = checkpoint
        """The checkpoint of the last commit, which needs no other confirmation."""
        self._revisions_in_vain = 0
        self._locks_first_until = 0.0

    def check(self) -> None:
        """Raises Fenced, Revised or ShardRequested if the runner may not simply go on."""
        if not self._lease.held:
            raise Fenced(f"projection {self.definition.name!r} lost its lease")
        if self.checkpoint.asked_by is not None:
            raise ShardRequested
        if self._confirmed is not self.checkpoint and not self.source.has_confirmed(
            self.checkpoint
        ):
            self.session.check_epoch(self.checkpoint)
        self._confirmed = None

    @property
    def locks_first(self) -> bool:
        """Whether the next transaction locks the checkpoint before anything else.

        After two transactions in a row that operators have undone, for some seconds: else work is
        done in vain for as long as they go on.
        """
        return self.clock.monotonic() < self._locks_first_until

    def revise(self, checkpoint: Checkpoint) -> None:
        """Goes on from what an operator has changed."""
        self.source.forget()
        self.checkpoint = self._confirmed = checkpoint
        self.lanes = read_closed_lanes(self.session, checkpoint)
        self.engine.forget()
        self.deduplication.forget()

    @contextmanager
    def transaction(self) -> Iterator[Transaction | None]:
        """The block of one transaction. If it raises, all that memory has of it is dropped.

        Yields None where the engine begins the transaction, perhaps later.
        """
        try:
            if self.locks_first:
                with self.session.transaction() as transaction:
                    self._lock_checkpoint(transaction)
                    with self.session.working():
                        yield transaction
            else:
                with self.session.working():
                    yield None
        except BaseException as error:
            self.engine.forget()
            self.deduplication.forget()
            self.lanes.roll_back()
            if isinstance(error, Revised):
                self._revisions_in_vain += 1
                if self._revisions_in_vain >= self.limits.revisions_in_vain:
                    self._lock_first()
            raise
        self._revisions_in_vain = 0

    @contextmanager
    def attempting(self, event: RawEvent | None) -> Iterator[None]:
        """The block of an attempt at events of which `event` is the first.

        If it is suspect, it is alone in the process, and marked: should the process die of it, the
        next one knows.
        """
        if event is None or not (self.suspects.has_any and self.suspects.goes_singly):
            with exclusive.exclusive_run.shared():
                yield
            return
        with exclusive.exclusive_run.alone():
            self.session.mark(self.checkpoint, event, self.suspects.attempt_at(event))
            try:
                yield
            finally:
                self.suspects.survived(event)

    def expect(self, events: Iterable[RawEvent]) -> None:
        """Looks up what deduplication needs, before the rows of events are loaded.

        So no row is older than the version of its stream.
        """
        if self.foreign is not None:
            self.engine.drop(self.deduplication.load(events))

    def advance(self, applied: int, last: RawEvent | None) -> Advance:
        """The checkpoint's next value; without `last` it stays where it is."""
        return Advance(
            position=self.checkpoint.position if last is None else last.position,
            events=applied,
            last_event_id=last.id_text if last else None,
            last_event_type=last.type if last else None,
            at=self.clock.now(),
            events_per_second=self._rate.after(applied),
        )

    def committed(self, checkpoint: Checkpoint, events: Iterable[RawEvent]) -> Outcome:
        """The transaction is committed, with these events applied that may have failed before."""
        moved = checkpoint.position != self.checkpoint.position
        outcome = Outcome(
            position=checkpoint.position if moved else None,
            applied=checkpoint.events_processed - self.checkpoint.events_processed,
        )
        self.checkpoint = self._confirmed = checkpoint
        self._rate.commit()
        if self.foreign is not None:
            self.deduplication.commit()
        outcome.callbacks = self.engine.committed()
        if self.recovery.known:
            for event in events:
                history = self.recovery.forget(event)
                if history is not None:
                    outcome.recovered.append((event, history.attempts + 1))
        return outcome

    def pass_to(self, position: int) -> Outcome:
        """Moves the checkpoint on where the feed has positions without events."""
        with self.transaction() as transaction:
            self.source.verify()
            to = replace(self.advance(0, None), position=position)
            checkpoint = (transaction or self.session).advance(self.checkpoint, to)
        return self.committed(checkpoint, ())

    def lane_of(self, event: RawEvent) -> str:
        """The lane of an event that is in no batch."""
        return lane_of(self.definition, self.attempts.types, event)

    def waits_for_unknown_lane(self, event: RawEvent) -> bool:
        """Whether an event of its stream waits in an unknown lane, which may be the same."""
        if self.lanes_are_streams:
            return False
        return self.lanes.get(unknown_lane(event.stream)) is not None

    def send_dead_letters(
        self,
        transaction: Transaction,
        dead: Iterable[tuple[str, RawEvent, str | None, FailureHistory]],
    ) -> None:
        """Sends dead events of a foreign feed to its dead-letter topic, if it has one."""
        if self.foreign is None or self.foreign.letter is None:
            return
        for lane, event, kept, history in dead:
            if kept is not None:
                last = history.last_attempts[-1]
                dead_event = DeadEvent(
                    projection=self.definition.name,
                    lane=lane,
                    event=event,
                    kept=kept,
                    error_type=last.error_type,
                    error_message=self.definition.masked(last.error_message),
                    attempts=history.attempts,
                    at=last.at,
                )
                transaction.send(self.foreign.letter(dead_event))

    def _lock_checkpoint(self, transaction: Transaction) -> None:
        """Looks again where no operator can come between any more."""
        before, now = self.checkpoint, transaction.lock_checkpoint(self.checkpoint)
        if now.position != before.position or now.paused_by != before.paused_by:
            raise Revised(f"projection {now.projection!r} was changed by an operator")
        if now.revision != before.revision:
            self._lock_first()
            self.revise(now)

    def _lock_first(self) -> None:
        self._locks_first_until = self.clock.monotonic() + self.limits.lock_first_seconds


def read_closed_lanes(session: Session, checkpoint: Checkpoint) -> ClosedLanes:
    """The closed lanes as the store knows them now."""
    return ClosedLanes(session.closed_lanes(checkpoint), session.resolved_ahead(checkpoint))


class _Rate:
    """Events per second over the last second or so of work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._known = self._next = self._began, 0, 0.0

    def after(self, events: int) -> float:
        """The rate with more events applied."""
        since, counted, rate = self._known
        counted += events
        now = self._clock.monotonic()
        seconds = now - since
        if seconds >= 1.0 or since == self._began:
            rate = counted / max(seconds, 1.0)  # Not of a first batch alone, which takes a moment.
        self._next = (now, 0, rate) if seconds >= 1.0 else (since, counted, rate)
        return rate

    def commit(self) -> None:
        self._known = self._next
