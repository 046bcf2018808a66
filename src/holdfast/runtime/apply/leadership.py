"""A runner's time as the leader of its projection: what applying and draining have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.errors import Revised
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.foreign_feed import DeadEvent
from holdfast.model.lane import unknown_lane
from holdfast.runtime.apply.deduplicate import deduplication_of
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.attempts import Attempts
from holdfast.runtime.failure.closed_lanes import ClosedLanes
from holdfast.runtime.failure.recovery import Recovery
from holdfast.runtime.signals import Signal
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.queue_items import FailureHistory
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import Transaction

SLICE_SECONDS = 1.0
"""A transaction ends after the event that exceeds this, so that slow handlers don't hold locks."""

FOLD_SECONDS = 2.0
"""The same where events are folded, and no transaction is open meanwhile: the longer, the more of
them become one row to write."""

TIMES_IN_VAIN = 2
"""So often in a row people may undo a transaction before they have to wait for its end."""

HOLD_SECONDS = 5.0
"""For so long they have to wait then, after each change."""


class Leadership(Attempts):
    """Where a leader is: its checkpoint, its closed lanes, and the rows it keeps in memory.

    When people have come between twice in a row, transactions hold the checkpoint from their
    beginning for some seconds, so that work is not done in vain for as long as people go on.
    """

    def __init__(
        self,
        definition: Definition,
        *,
        types: EventTypes,
        session: Session,
        checkpoint: Checkpoint,
        lanes: ClosedLanes,
        judge: Recovery,
        caller: Invoker,
        clock: Clock,
        emit: Callable[[Signal], None],
        stopping: Callable[[], bool],
        blamed: dict[int, BaseException],
    ) -> None:
        super().__init__(
            definition,
            names=(checkpoint.projection, checkpoint.feed),
            types=types,
            session=session,
            judge=judge,
            caller=caller,
            clock=clock,
            emit=emit,
            blamed=blamed,
        )
        self.checkpoint, self.lanes, self.stopping = checkpoint, lanes, stopping
        self.ledger = deduplication_of(definition.foreign, session, checkpoint)
        self._rate = _Rate(clock)
        self._in_vain = 0
        self._hold_until = 0.0

    @property
    def is_holding(self) -> bool:
        """Whether the next transaction holds the checkpoint from its beginning."""
        return self.clock.monotonic() < self._hold_until

    def revise(self, checkpoint: Checkpoint, lanes: ClosedLanes) -> None:
        """Goes on from what a person has changed."""
        self.checkpoint, self.lanes = checkpoint, lanes
        self.engine.forget()
        self.ledger.forget()

    def is_held(self, event: RawEvent) -> bool:
        """Whether an event of its stream waits whose lane is unknown: it may be the same."""
        if self.definition.lanes_are_streams:
            return False
        return self.lanes.get(unknown_lane(event.stream)) is not None

    def marked(self, ruled: Collection[int]) -> Callable[[int], bool] | None:
        """What tells whether something is known of an event, by its position; None: of no event.

        `ruled`: events about which the policy has been asked.
        """
        all_kinds = (ruled, self.lanes.resolved, self._blamed, self.judge.awaited)
        known: list[Collection[int]] = [positions for positions in all_kinds if positions]
        return (lambda position: any(position in k for k in known)) if known else None

    @contextmanager
    def transaction(self) -> Iterator[Transaction | None]:
        """Whatever is kept in memory goes when the transaction does.

        Begins it where people must not come between; else the engine does, perhaps later.
        """
        try:
            if self.is_holding:
                with self.session.transaction() as work:
                    self._hold(work)
                    with self.session.working():
                        yield work
            else:
                with self.session.working():
                    yield None
        except BaseException as error:
            self.engine.forget()
            self.ledger.forget()
            self.lanes.roll_back()
            if isinstance(error, Revised):
                self._in_vain += 1
                if self._in_vain >= TIMES_IN_VAIN:
                    self._hold_until = self.clock.monotonic() + HOLD_SECONDS
            raise
        self._in_vain = 0

    def expect(self, events: Iterable[RawEvent]) -> None:
        """Looks up what is needed to place events, before their rows are.

        So no row is older than the version of its stream: one that others have moved on since is
        not next any more.
        """
        self.engine.drop(self.ledger.load(events))

    def advance(self, applied: int, last: RawEvent | None) -> Advance:
        """The checkpoint's next value; without `last` it stays where it is."""
        return Advance(
            position=self.checkpoint.position if last is None else last.position,
            events=applied,
            last_event_id=last.id if last else None,
            last_event_type=last.type if last else None,
            at=self.clock.now(),
            events_per_second=self._rate.after(applied),
        )

    def send_letters(
        self, work: Transaction, dead: Iterable[tuple[str, RawEvent, str | None, FailureHistory]]
    ) -> None:
        """Tells others of events that are dead, where they want to know."""
        intake = self.definition.foreign
        if intake is None or intake.letter is None:
            return
        for lane, event, kept, record in dead:
            if kept is not None:
                last = record.history[-1]
                death = DeadEvent(
                    projection=self.definition.name,
                    lane=lane,
                    event=event,
                    kept=kept,
                    error_type=last.error_type,
                    error_message=self.definition.masked(last.error_message),
                    attempts=record.attempts,
                    at=last.at,
                )
                work.send(intake.letter(death))

    def committed(self, checkpoint: Checkpoint, events: Sequence[RawEvent]) -> None:
        """The transaction is in, with these events applied: does what may only happen now."""
        self.checkpoint = checkpoint
        self._rate.commit()
        self.ledger.commit()
        self.told(events)

    def _hold(self, work: Transaction) -> None:
        """Looks again where nobody can come between any more."""
        before, now = self.checkpoint, work.hold(self.checkpoint)
        if now.position != before.position or now.paused_by != before.paused_by:
            raise Revised(f"projection {now.projection!r} was changed by a person")
        if now.revision != before.revision:
            self._hold_until = self.clock.monotonic() + HOLD_SECONDS
            self.revise(now, read_lanes(self.session, now))


def read_lanes(session: Session, checkpoint: Checkpoint) -> ClosedLanes:
    """The lanes as the store knows them now."""
    return ClosedLanes(session.closed_lanes(checkpoint), session.resolved_ahead(checkpoint))


class _Rate:
    """Events per second over the last second or so of work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known = self._next = clock.monotonic(), 0, 0.0

    def after(self, events: int) -> float:
        """The rate, if so many more are applied."""
        since, counted, rate = self._known
        counted += events
        now = self._clock.monotonic()
        seconds = now - since
        if seconds > 0 and (seconds >= 1.0 or rate == 0.0):
            rate = counted / seconds
        self._next = (now, 0, rate) if seconds >= 1.0 else (since, counted, rate)
        return rate

    def commit(self) -> None:
        """They are."""
        self._known = self._next
