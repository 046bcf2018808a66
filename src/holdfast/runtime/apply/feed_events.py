"""Applies events of the feed: rows, queue and checkpoint in one transaction, or nothing.

When an event fails, nothing of it is left, and the policy is asked about that event; the rest of
the batch goes on. What precedes a failure is always committed; what follows it in its lane waits
behind it.

A TableProjection folds several batches in memory before they are written in one transaction. Only
that transaction is open at the database, and only for the time of writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import takewhile
from operator import attrgetter

from holdfast.errors import HoldfastError, Revised
from holdfast.model.definition import Fold
from holdfast.model.event import RawEvent, kept
from holdfast.model.foreign_feed import VersionGap
from holdfast.model.policy import Fatal, Skip
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.apply.outcome import Outcome
from holdfast.runtime.engines.engine import Batch, EventFailed
from holdfast.runtime.failure.attempts import Blocked
from holdfast.runtime.failure.recovery import GiveUp
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.queue_items import OUTSTANDING, FailureHistory, NewItem

QUICK_EVENTS = 8
QUICK_SECONDS = 0.001
"""While this many folded events take less than this, the clock is read after as many."""

_stream = attrgetter("stream")


@dataclass(slots=True)
class _Open:
    """A transaction in progress: what has become of its events so far."""

    batch: Batch
    began: float
    most_seconds: float
    block: ExitStack
    """Leaving it commits, or rolls back."""
    events: int = 0
    last: RawEvent | None = None
    new_items: list[NewItem] = field(default_factory=list)
    duplicates: int = 0
    failed_before: list[RawEvent] = field(default_factory=list)
    """Events that had failed before, of which few are kept."""
    woken_lanes: set[str] = field(default_factory=set)
    """Lanes whose heads had come too early, and may have their turn now."""
    blocked: Blocked | None = None


class FeedEvents:
    """Applies batches of the feed, and moves the checkpoint on with each commit."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._open: _Open | None = None
        self.tried = 0
        """How many events the last transaction had, whatever came of it."""
        self.first: RawEvent | None = None
        """The first event of that transaction."""

    @property
    def has_unwritten(self) -> bool:
        """Whether events are folded in memory that are not written."""
        return self._open is not None

    @property
    def folded_through(self) -> int | None:
        """The position of the last event that is folded in memory and not written, if any is."""
        return None if self._open is None or self._open.last is None else self._open.last.position

    def roll_back(self) -> None:
        """Drops events that are folded in memory and not written."""
        if self._open is not None:
            opened, self._open = self._open, None
            error = Revised("folded events are dropped")
            with suppress(Revised):
                opened.block.__exit__(Revised, error, None)

    def apply(self, events: Sequence[RawEvent], *, ends: bool, singly: bool) -> Outcome | None:
        """Applies events in order, as far as there is time.

        `ends`: the transaction ends with them; else this returns None where more can be folded
        before it. `singly`: each event is known to be done before the next one begins. Raises
        Blocked at an event that must be tried again later, or stops the projection.
        """
        opened = self._open or self._begin(singly=singly)
        try:
            with_more = self._take(opened, events)
            if with_more and not ends:
                return None
            return self._commit(opened)
        except BaseException as error:
            self._open = None
            opened.block.__exit__(type(error), error, error.__traceback__)
            raise

    def _begin(self, *, singly: bool) -> _Open:
        leadership, limits = self._leadership, self._leadership.limits
        block = ExitStack()
        transaction = block.enter_context(leadership.transaction())
        try:
            batch = block.enter_context(
                leadership.engine.batch(
                    leadership.checkpoint, transaction, from_queue=False, singly=singly
                )
            )
        except BaseException as error:
            block.__exit__(type(error), error, error.__traceback__)
            raise
        folds = isinstance(leadership.definition.kind, Fold) and transaction is None
        seconds = limits.fold_seconds if folds else limits.batch_seconds
        self._open = _Open(batch, leadership.clock.monotonic(), seconds, block)
        return self._open

    def _take(self, opened: _Open, events: Sequence[RawEvent]) -> bool:
        """Applies events in the open transaction; returns whether it may have more."""
        leadership, batch, done = self._leadership, opened.batch, 0
        # From here on: a slow read is no reason to apply less of what was read.
        until = leadership.clock.monotonic() + opened.most_seconds
        self.tried = opened.events + len(events)
        if events and not opened.events:
            self.first = events[0]
        leadership.expect(events)
        batch.expect(events)
        while done < len(events):
            done, failed = self._run_fast_path(batch, events, done, until)
            is_first = not (done or opened.events)
            if done == len(events) or (
                not is_first and failed is None and self._is_over(batch, until)
            ):
                break
            try:
                item = self._apply_one(opened, events[done], failed)
            except Blocked as blocked:
                if is_first:
                    raise
                opened.blocked = blocked
                break
            if item is not None:
                if item.status in OUTSTANDING:
                    item = replace(item, event=leadership.deduplication.waits(item.event))
                opened.new_items.append(item)
                leadership.lanes.add(item)
            done += 1
            if self._is_over(batch, until):
                break
        opened.events += done
        if done:
            opened.last = events[done - 1]
        if leadership.recovery.known:
            known = leadership.recovery.known
            opened.failed_before += [e for e in events[:done] if e.position in known]
        now = leadership.clock.monotonic()
        is_over = batch.is_full or leadership.stopping() or now - opened.began > opened.most_seconds
        return done == len(events) and not is_over

    def _commit(self, opened: _Open) -> Outcome | None:
        """Commits the open transaction; returns None if it has no event."""
        leadership = self._leadership
        if opened.last is None:
            self._open = None
            opened.block.close()
            return None
        leadership.source.verify()
        applied = opened.events - len(opened.new_items) - opened.duplicates
        checkpoint = self._finish(opened, leadership.advance(applied, opened.last))
        opened.block.close()
        self._open = None
        if leadership.lanes.changes:
            leadership.lanes.commit()
        for item in opened.new_items:
            leadership.recovery.forget(item.event)
        outcome = leadership.committed(checkpoint, opened.failed_before)
        outcome.duplicates, outcome.new_items = opened.duplicates, opened.new_items
        outcome.blocked = opened.blocked
        outcome.seconds = leadership.clock.monotonic() - opened.began
        return outcome

    def _finish(self, opened: _Open, advance: Advance) -> Checkpoint:
        """Writes all that goes with the events; returns the checkpoint behind them."""
        leadership, items = self._leadership, opened.new_items
        if not (items or opened.woken_lanes or leadership.foreign):
            return opened.batch.advance(leadership.checkpoint, advance)
        with opened.batch.finished() as transaction:
            checkpoint = transaction.advance(leadership.checkpoint, advance)
            leadership.deduplication.write(checkpoint)
            if items:
                added = transaction.enqueue(checkpoint, items, advance.at)
                leadership.lanes.discount(i for i in items if i.event.position not in added)
                dead = [i for i in items if i.status == "dead" and i.event.position in added]
                leadership.send_dead_letters(
                    transaction, ((i.lane, i.event, kept(i.event), i.history) for i in dead)
                )
            for lane in opened.woken_lanes:
                leadership.lanes.wake(lane, advance.at)
            if items or opened.woken_lanes:
                transaction.write_lanes(checkpoint, leadership.lanes.changes)
        return checkpoint

    def _run_fast_path(
        self, batch: Batch, events: Sequence[RawEvent], start: int, until: float
    ) -> tuple[int, EventFailed | None]:
        """Applies events up to the first that needs a closer look.

        Returns its index, and its failure if it was tried.
        """
        leadership = self._leadership
        fast_path = _FastPath(leadership, batch, events, at=start, until=until)
        ran = batch.run(fast_path)
        if ran.has_applied:
            leadership.recovery.state.failures_in_a_row = 0
        if ran.failed is None:
            return fast_path.at, None
        failed = ran.failed.event
        leadership.deduplication.unpass(failed)
        indexes = range(start, len(events))
        return next(i for i in indexes if events[i].position == failed.position), ran.failed

    def _is_over(self, batch: Batch, until: float) -> bool:
        leadership = self._leadership
        return batch.is_full or leadership.stopping() or leadership.clock.monotonic() >= until

    def _apply_one(
        self, opened: _Open, event: RawEvent, failed: EventFailed | None
    ) -> NewItem | None:
        """Applies one event; returns the item that it becomes in the queue instead, if any.

        `failed`: it was tried, and this came of it.
        """
        leadership, batch = self._leadership, opened.batch
        deduplication, lanes = leadership.deduplication, leadership.lanes
        if event.position in lanes.resolved:
            return None  # An operator has dealt with it, and a rewind brings it again.
        arrival = deduplication.place(event)
        if arrival == "duplicate":
            opened.duplicates += 1
            return None
        overtakes = False
        if lanes and (deduplication.counts_all or leadership.definition.handles(event.type)):
            lane = batch.lane_of(event)
            if lanes.get(lane) is not None:
                overtakes = arrival == "next" and deduplication.overtakes(event)
                if not overtakes:
                    self._check_room(event, lane)
                    return NewItem(event, lane, "pending")
            if leadership.waits_for_unknown_lane(event):
                self._check_room(event, lane)
                recheck = timedelta(seconds=leadership.limits.lane_recheck_seconds)
                later = leadership.clock.now() + recheck
                return NewItem(event, lane, "pending", next_attempt_at=later)
        known = leadership.recovery.known.get(event.position)
        given_up = None if known is None else known.given_up
        if given_up is None and arrival == "early" and (gap := deduplication.gap(event)):
            deduplication.check_unmoved(event)
            return self._wait_for_gap(event, batch.lane_of(event), gap)
        if given_up is None:
            try:
                if failed is not None:
                    raise failed
                leadership.attempts.attempt(batch, event)
            except EventFailed as found:
                leadership.source.verify()  # A policy is asked about events of the feed alone.
                lane = batch.lane_of(event)
                given_up = leadership.attempts.decide(event, lane, found.error, batch)
        if given_up is None or isinstance(given_up.decision, Skip):
            deduplication.passed(event)
            if overtakes:
                opened.woken_lanes.add(batch.lane_of(event))
            if given_up is None:
                return None
        return self._item(event, batch.lane_of(event), given_up)

    def _wait_for_gap(self, event: RawEvent, lane: str, gap: VersionGap) -> NewItem:
        """An event that came too early waits in its lane for those before it."""
        self._check_room(event, lane)
        foreign, now = self._leadership.foreign, self._leadership.clock.now()
        assert foreign is not None
        until = now + timedelta(seconds=foreign.gap_seconds)
        return NewItem(event, lane, "failed", FailureHistory().after(gap, now), until)

    def _item(self, event: RawEvent, lane: str, given_up: GiveUp) -> NewItem:
        history = self._leadership.recovery.history_of(event)
        if isinstance(given_up.decision, Skip):
            return NewItem(event, lane, "skipped", history)
        self._check_room(event, lane)
        if given_up.park_seconds is None:
            return NewItem(event, lane, "dead", history)
        due_at = self._leadership.clock.now() + timedelta(seconds=given_up.park_seconds)
        return NewItem(event, lane, "failed", history, due_at)

    def _check_room(self, event: RawEvent, lane: str) -> None:
        why = self._leadership.lanes.overflow(lane, self._leadership.definition.policy.limits)
        if why is not None:
            error = HoldfastError(
                f"event {event.id} can't wait in lane {lane!r}: {why}. See holdfast queue list; "
                "fix, requeue or resolve what waits, then start the projection again"
            )
            raise Blocked(event, GiveUp(Fatal(), error))


class _FastPath:
    """Events with no closed lane, no pending retry and no earlier decision, from `at` on.

    They are taken one by one while they are applied. It ends at the time `until`, when the batch is
    full, or when the runner is asked to stop. Afterwards `at` says how far it went, if no event has
    failed.
    """

    def __init__(
        self,
        leadership: Leadership,
        batch: Batch,
        events: Sequence[RawEvent],
        *,
        at: int,
        until: float,
    ) -> None:
        self._leadership, self._batch, self._events = leadership, batch, events
        self.at, self._until = at, until
        self._lanes_are_streams = leadership.lanes_are_streams

    def __iter__(self) -> Iterator[RawEvent]:
        """Each event comes through here: it asks nothing that can be known beforehand."""
        leadership, batch, events, at = self._leadership, self._batch, self._events, self.at
        monotonic, stopping = leadership.clock.monotonic, leadership.stopping
        folds = isinstance(leadership.definition.kind, Fold)
        deduplication = leadership.deduplication if leadership.foreign else None
        if deduplication is not None:
            deduplication.begin_run()
        lanes, known = leadership.lanes, leadership.recovery.known
        needs_look = bool(known or lanes.resolved or lanes.closed or lanes.changes)
        lookup_events = leadership.limits.lookup_events
        looked_at, few, free_until = monotonic(), 1, 0 if needs_look else len(events)
        while at < len(events):
            if needs_look and at >= free_until:
                ahead = lookup_events if self._lanes_are_streams else few
                free_until = at + self._count_free(events[at : at + ahead])
                if free_until == at:
                    return
            part = events[at : min(at + few, free_until)]
            after = at + len(part)
            if deduplication is None:
                yield from part
                at = after
            else:
                at += yield from deduplication.fast_path(part)
            self.at = at
            if at < after:
                return
            now = monotonic()
            if now >= self._until or batch.is_full or stopping():
                return
            few = QUICK_EVENTS if folds and now - looked_at < QUICK_SECONDS else 1
            looked_at = now

    def _count_free(self, events: Sequence[RawEvent]) -> int:
        """How many of the first events need no closer look.

        No lane is closed before the next event that needs one.
        """
        lanes, known = self._leadership.lanes, self._leadership.recovery.known
        at_once = self._lanes_are_streams and not (known or lanes.resolved)
        if at_once and lanes.are_open(map(_stream, events)):
            return len(events)
        return sum(1 for _ in takewhile(self._is_free, events))

    def _is_free(self, event: RawEvent) -> bool:
        leadership, lanes = self._leadership, self._leadership.lanes
        if event.position in leadership.recovery.known or event.position in lanes.resolved:
            return False
        if not lanes or (self._lanes_are_streams and event.stream not in lanes):
            return True
        counts_all = leadership.deduplication.counts_all
        if not (counts_all or leadership.definition.handles(event.type)):
            return True
        if lanes.get(self._batch.lane_of(event)) is not None:
            return False
        return not leadership.waits_for_unknown_lane(event)
