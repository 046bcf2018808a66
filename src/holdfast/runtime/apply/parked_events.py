"""Drains lanes: applies what waits in the queue, in order, under the runner's own epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import Revised
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import NOTHING
from holdfast.model.lane import UNKNOWN, Lane, unknown_lane
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.apply.narrow import Narrowing
from holdfast.runtime.apply.outcome import Outcome
from holdfast.runtime.engines.engine import Batch, EventFailed, refusal
from holdfast.runtime.failure.attempts import LaneStop
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import FailedAttempt, ParkedEvent
from holdfast.runtime.store.transaction import Transaction


@dataclass(slots=True)
class _Drain:
    """One transaction's part of a lane: what is due, what follows it, and what came of it."""

    lane: str
    due: Sequence[ParkedEvent]
    following: ParkedEvent | None
    refused: EventFailed | None = None
    """The head, if the store has refused it alone."""
    applied: list[ParkedEvent] = field(default_factory=list)
    duplicates: list[ParkedEvent] = field(default_factory=list)
    failed: list[FailedAttempt] = field(default_factory=list)
    moved: dict[ParkedEvent, str] = field(default_factory=dict)
    """Items that belong to another lane."""
    stop: LaneStop | None = None
    is_early: bool = False
    """Whether it has stopped at an event that came too early."""

    @property
    def gone(self) -> int:
        """How many items wait in the lane no longer."""
        skipped = sum(failed.status == "skipped" for failed in self.failed)
        return len(self.applied) + len(self.duplicates) + skipped + len(self.moved)

    @property
    def head(self) -> ParkedEvent | None:
        """The lane's head now."""
        return (*self.due, self.following)[self.gone]


class ParkedEvents:
    """Applies what waits in lanes whose heads are due."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._round: list[str] = []
        """The due lanes that have not had their turn, the next one last."""
        self._tried: set[str] = set()
        """The lanes whose heads have failed, or must wait."""
        self._until, self._yields = 0.0, False

    def forget(self) -> None:
        """An operator has changed something: all lanes are looked at anew."""
        self._round.clear()
        self._tried.clear()

    def drain_due(self, announce: Callable[[Outcome], None], *, yields: bool) -> None:
        """Tries lanes that are due, a transaction each, and announces what came of it.

        It takes a short time, and one attempt at least. With `yields` no attempt begins once the
        feed has an event: so a healthy one waits for one attempt at most, whatever is parked.
        """
        leadership = self._leadership
        self._until = leadership.clock.monotonic() + leadership.limits.drain_seconds
        self._yields = yields
        while (lane := self._next_lane()) is not None:
            is_alone = leadership.suspects.goes_singly
            announce(self._drain_alone(lane) if is_alone else self._drain_all(lane))
            if self._is_over():
                return

    def has_tried_all(self) -> bool:
        """Whether no lane is due that may still get on."""
        leadership = self._leadership
        return self._tried.issuperset(leadership.lanes.due(leadership.clock.now()))

    def _next_lane(self) -> str | None:
        """The lane whose turn it is, if any is due. All have their turns before one has another."""
        leadership = self._leadership
        if not self._round:
            self._round = [*reversed(self._due())]
        now = leadership.clock.now()
        while self._round and not leadership.stopping():
            lane = self._round.pop()
            known = leadership.lanes.get(lane)
            if known is not None and known.due_at is not None and known.due_at <= now:
                return lane
        return None

    def _is_over(self) -> bool:
        """Whether it is the feed's turn again."""
        leadership = self._leadership
        is_late = leadership.clock.monotonic() >= self._until
        return is_late or leadership.stopping() or (self._yields and leadership.source.has_news())

    def _due(self) -> Sequence[str]:
        """The lanes that are due, in the order in which they are tried."""
        leadership, marked = self._leadership, self._leadership.suspects.marked
        due = leadership.lanes.due(leadership.clock.now())
        # Items that move from an unknown lane to their own come before that is tried.
        due = sorted(due, key=lambda lane: not lane.startswith(UNKNOWN))
        if marked is None or not due:
            return due
        if marked > leadership.checkpoint.position:
            return []  # The marked event is in the feed, and comes first.
        return sorted(due, key=lambda lane: self._head(lane) != marked)

    def _head(self, lane: str) -> int | None:
        """The position of a lane's head."""
        leadership = self._leadership
        items = leadership.session.lane_items(leadership.checkpoint, lane, 1)
        return items[0].event.position if items else None

    def _drain_all(self, lane: str) -> Outcome:
        """Tries what waits in a lane, in order, up to the first that fails."""
        with self._leadership.attempting(None):
            return self._drain(lane, self._leadership.limits.drain_events)

    def _drain_alone(self, lane: str) -> Outcome:
        """Tries the head of a lane, which may kill the process."""
        head = next(iter(self._read(lane, 1).due), None)
        with self._leadership.attempting(None if head is None else head.event):
            return self._drain(lane, 1, only=[] if head is None else [head.id])

    def _drain(self, lane: str, most: int, *, only: Sequence[int] | None = None) -> Outcome:
        """Commits as many items as the store takes together; a refused one has failed."""
        narrowing, refused = Narrowing(most), None
        while True:
            drain = self._read(lane, narrowing.limit)
            drain.refused = refused
            try:
                return self._commit(drain, narrowing.limit, only)
            except Exception as error:
                cause = refusal(self._leadership.session, error)
                if cause is None or not drain.due or refused is not None:
                    raise
                if not narrowing.refused(len(drain.due)):
                    refused = EventFailed(drain.due[0].event, cause)

    def _read(self, lane: str, limit: int) -> _Drain:
        leadership = self._leadership
        # One more than is tried, to know what follows.
        items = leadership.session.lane_items(leadership.checkpoint, lane, limit + 1)
        if leadership.definition.foreign is not None:
            items = self._decoded_again(lane, items, limit)
        now = leadership.clock.now()
        leadership.deduplication.load(item.event for item in items)
        due: list[ParkedEvent] = []
        for item in items[:limit]:
            if not (item.is_due(now) or (item.is_early and self._has_its_turn(item, due))):
                break
            due.append(item)
        return _Drain(lane, due, items[len(due)] if len(due) < len(items) else None)

    def _gap_ends_at(self, item: ParkedEvent) -> datetime | None:
        """Until when an event that came too early waits for those before it, if it still does."""
        foreign, now = self._leadership.definition.foreign, self._leadership.clock.now()
        assert foreign is not None
        # It counts from when it was found to be early; until then it had waited for another.
        since = item.history.last_attempts[-1].at if item.is_early else now
        until = since + timedelta(seconds=foreign.gap_seconds)
        return until if until > now else None

    def _has_its_turn(self, item: ParkedEvent, before: Sequence[ParkedEvent]) -> bool:
        """Whether an event that came too early follows those before it by now."""
        if before:
            return before[-1].event.version + 1 == item.event.version
        self._leadership.deduplication.check_unmoved(item.event)
        return self._leadership.deduplication.place(item.event) == "next"

    def _decoded_again(
        self, lane: str, items: Sequence[ParkedEvent], limit: int
    ) -> list[ParkedEvent]:
        """The items with events as today's code decodes what they came from, in their order."""
        leadership = self._leadership
        versions = leadership.session.foreign_versions
        undecoded = versions.undecoded_items(leadership.checkpoint, lane, limit)
        stored = {item.id: item for item in (*items, *undecoded)}
        decoded = {id_: self._decode_again(item) for id_, item in stored.items()}
        changed = {
            id_: item.event
            for id_, item in decoded.items()
            if self._order_of(item.event) != self._order_of(stored[id_].event)
        }
        if not changed:
            return [decoded[item.id] for item in items]
        versions.renumber(leadership.checkpoint, changed)
        items = leadership.session.lane_items(leadership.checkpoint, lane, limit + 1)
        return [self._decode_again(item) for item in items]

    def _order_of(self, event: RawEvent) -> tuple[str, int]:
        """What orders an event in its lane."""
        foreign = self._leadership.definition.foreign
        assert foreign is not None
        is_counted = foreign.contiguous and event.type not in foreign.unnumbered
        return event.stream, event.version if is_counted else 0

    def _decode_again(self, item: ParkedEvent) -> ParkedEvent:
        foreign = self._leadership.definition.foreign
        if foreign is None or item.kept is None:
            return item
        event = foreign.decode(item.kept)
        version = item.event.version if event.type in foreign.unnumbered else event.version
        event = msgspec.structs.replace(event, position=item.event.position, version=version)
        return replace(item, event=event)

    def _commit(self, drain: _Drain, limit: int, only: Sequence[int] | None) -> Outcome:
        """Tries what is due in one transaction.

        `only`: these items, though an operator may come between until the checkpoint is locked.
        """
        leadership = self._leadership
        began = leadership.clock.monotonic()
        with leadership.transaction() as transaction:
            if transaction is not None:
                found = self._read(drain.lane, limit)
                drain.due, drain.following = found.due, found.following
                if only is not None and [item.id for item in drain.due] != only:
                    raise Revised("an operator has dealt with the marked event")
            events = [item.event for item in drain.due]
            leadership.expect(events)
            with leadership.engine.batch(
                leadership.checkpoint, transaction, from_queue=True, singly=False
            ) as batch:
                batch.expect(events)
                for item in drain.due:
                    self._try(batch, item, drain)
                    if drain.stop is not None or self._is_over():
                        break
                left = self._left(drain)
                with batch.finished() as finishing:
                    checkpoint, others = self._write(finishing, drain, left)
        for lane, known in {**others, drain.lane: left}.items():
            leadership.lanes.set(lane, known)
        if drain.stop is not None or not drain.due:
            self._tried.add(drain.lane)
        outcome = leadership.committed(checkpoint, [item.event for item in drain.applied])
        events_of = {item.id: item.event for item in drain.due}
        outcome.failed = [(drain.lane, events_of[f.id], f) for f in drain.failed]
        if drain.applied or left is None:
            outcome.drained = drain.lane, len(drain.applied), left is None
        outcome.seconds = leadership.clock.monotonic() - began
        outcome.blocked = drain.stop.blocked if drain.stop is not None else None
        return outcome

    def _try(self, batch: Batch, item: ParkedEvent, drain: _Drain) -> None:
        leadership, lane, own = self._leadership, drain.lane, batch.lane_of(item.event)
        if own != lane and not own.startswith(UNKNOWN):
            drain.moved[item] = own  # Its handler was fixed, and now its lane can be computed.
            return
        if self._waits_for_unknown(lane, item.event):
            drain.stop = LaneStop(leadership.clock.now() + self._recheck)
            return
        deduplication = leadership.deduplication
        arrival = deduplication.place(item.event)
        if arrival == "duplicate" or item.event.type == NOTHING:
            drain.duplicates.append(item)
            return
        try:
            if drain.refused is not None and drain.refused.event.position == item.event.position:
                raise drain.refused
            if arrival == "early" and (gap := deduplication.gap(item.event)) is not None:
                deduplication.check_unmoved(item.event)
                if (until := self._gap_ends_at(item)) is not None:
                    if not item.is_early:
                        history = item.history.after(gap, leadership.clock.now())
                        drain.failed.append(
                            FailedAttempt(item.id, "failed", history, item.retries, until)
                        )
                    drain.stop = LaneStop(until)
                    return
                drain.is_early = True
                raise EventFailed(item.event, gap)
            leadership.attempts.attempt(batch, item.event)
        except EventFailed as failed:
            attempt, drain.stop = leadership.attempts.fail_item(batch, lane, item, failed.error)
            if attempt is not None:
                drain.failed.append(attempt)
                if attempt.status == "skipped":
                    deduplication.passed(item.event)
                return
        deduplication.passed(item.event)
        drain.applied.append(item)

    def _write(
        self, transaction: Transaction, drain: _Drain, left: Lane | None
    ) -> tuple[Checkpoint, Mapping[str, Lane]]:
        """Writes what came of a drain; returns also the other lanes that have changed."""
        leadership, lane = self._leadership, drain.lane
        advance = leadership.advance(len(drain.applied), None)
        others = self._joined(drain.moved)
        checkpoint = transaction.advance(leadership.checkpoint, advance)
        leadership.deduplication.write(checkpoint)
        transaction.finish_items([item.id for item in (*drain.applied, *drain.duplicates)])
        items = {item.id: item for item in drain.due}
        for failed in drain.failed:
            transaction.fail_item(failed, advance.at)
            if failed.status == "dead":
                item = items[failed.id]
                dead = (lane, item.event, item.kept, failed.history)
                leadership.send_dead_letters(transaction, [dead])
        for item, own in drain.moved.items():
            transaction.move_item(item.id, own)
        if left is None:
            transaction.open_lane(checkpoint, lane)
            transaction.write_lanes(checkpoint, others)
        else:
            transaction.write_lanes(checkpoint, {**others, lane: left})
        if lane.startswith(UNKNOWN) and drain.gone:
            stream = lane.removeprefix(UNKNOWN)
            for woken in transaction.wake_lanes(checkpoint, stream, advance.at):
                known = others.get(woken) or leadership.lanes.get(woken)
                if known is not None and woken != lane:
                    others[woken] = Lane(known.events, advance.at)
        return checkpoint, others

    def _joined(self, moved: Mapping[ParkedEvent, str]) -> dict[str, Lane]:
        """The lanes that items move to, with them in it, in the order of the feed."""
        lanes: dict[str, Lane] = {}
        now = self._leadership.clock.now()
        for item, own in moved.items():
            known = lanes.get(own) or self._leadership.lanes.get(own)
            if known is None:
                lanes[own] = Lane(1, now)
            else:
                is_head = own not in lanes and not self._is_head_before(own, item.event)
                lanes[own] = Lane(known.events + 1, now if is_head else known.due_at)
        return lanes

    def _waits_for_unknown(self, lane: str, event: RawEvent) -> bool:
        """Whether an earlier event of the stream, whose lane is unknown, may belong to this one."""
        unknown = unknown_lane(event.stream)
        if lane == unknown or not self._leadership.waits_for_unknown_lane(event):
            return False
        return self._is_head_before(unknown, event)

    def _is_head_before(self, lane: str, event: RawEvent) -> bool:
        """Whether the head of a lane comes before an event."""
        leadership = self._leadership
        if leadership.lanes.get(lane) is None:
            return False
        items = leadership.session.lane_items(leadership.checkpoint, lane, 1)
        if not items:
            return False
        head = items[0].event
        if leadership.definition.foreign is None:
            return head.position < event.position
        return (head.version, head.position) < (event.version, event.position)

    def _left(self, drain: _Drain) -> Lane | None:
        """What a drain leaves of a lane; None opens it."""
        head = drain.head
        if head is None:
            return None
        known = self._leadership.lanes.get(drain.lane)
        events = max(1, (known.events if known else 0) - drain.gone)
        now = self._leadership.clock.now()
        if drain.stop is not None:
            due_at = drain.stop.due_at
        else:
            due_at = now if head.is_due(now) else head.next_attempt_at
        if due_at is None and (head.is_early or drain.is_early):
            due_at = now + self._recheck  # The event that it misses may come by another feed.
        return Lane(events, due_at)

    @property
    def _recheck(self) -> timedelta:
        """Safety net: when a waiting lane re-checks by itself, in case its wake-up was lost."""
        return timedelta(seconds=self._leadership.limits.lane_recheck_seconds)
