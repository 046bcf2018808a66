"""Drains lanes: applies what waits in the queue, in order, under the runner's own epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import Revised
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import NOTHING
from holdfast.model.lane import UNKNOWN, Lane, unknown_lane
from holdfast.runtime.apply.leadership import SLICE_SECONDS, Leadership
from holdfast.runtime.engines.engine import (
    Batch,
    BatchLost,
    BatchRefused,
    EventFailed,
    Unrepeatable,
)
from holdfast.runtime.failure.attempts import Stop
from holdfast.runtime.signals import Died, Drained, Skipped
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import LOOK_LATER_SECONDS, FailedAttempt, ParkedEvent
from holdfast.runtime.store.transaction import Transaction

DRAIN_EVENTS = 100
"""Events of a lane that are tried in one transaction."""

LOOK_LATER = timedelta(seconds=LOOK_LATER_SECONDS)

Alone = Callable[[RawEvent], AbstractContextManager[None]]
"""The block in which an event is tried that may kill the process."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is tried of a lane in one transaction, and what follows it."""

    lane: str
    limit: int
    due: Sequence[ParkedEvent]
    rest: ParkedEvent | None

    @property
    def events(self) -> Sequence[RawEvent]:
        return [item.event for item in self.due]


@dataclass(slots=True)
class _Result:
    """What has become of a part so far."""

    part: _Part
    applied: list[ParkedEvent] = field(default_factory=list)
    known: list[ParkedEvent] = field(default_factory=list)
    """Those that had been here before, and need nothing."""
    setbacks: list[FailedAttempt] = field(default_factory=list)
    moved: dict[ParkedEvent, str] = field(default_factory=dict)
    stop: Stop | None = None
    is_early: bool = False
    """Whether it has stopped at an event that came too early."""

    @property
    def gone(self) -> int:
        """Those that wait here no longer."""
        skipped = sum(setback.status == "skipped" for setback in self.setbacks)
        return len(self.applied) + len(self.known) + skipped + len(self.moved)

    @property
    def follows(self) -> ParkedEvent | None:
        """The lane's head now."""
        return (*self.part.due, self.part.rest)[self.gone]


class Drainer:
    """Applies what waits in lanes whose heads are due."""

    def __init__(self, stint: Leadership) -> None:
        self._stint = stint
        self._tried = _Part("", 0, (), None)

    def drain(self, lane: str, *, alone: Alone | None = None) -> int:
        """Tries what waits in a lane, in order; returns how many events were applied.

        Ends at the first event that fails. Raises Halted where the whole projection has to wait or
        to stop. With `alone`, one event is tried, in the block that it gives.
        """
        if alone is None:
            return self._drain(self._read(lane, DRAIN_EVENTS))
        part = self._read(lane, 1)
        if not part.due:
            return self._drain(part, only=[])
        with alone(part.due[0].event):
            return self._drain(part, only=[part.due[0].id])

    def head(self, lane: str) -> int | None:
        """The position of a lane's head."""
        stint = self._stint
        items = stint.session.lane_items(stint.checkpoint, lane, 1)
        return items[0].event.position if items else None

    def _drain(
        self,
        part: _Part,
        *,
        only: Sequence[int] | None = None,
        refused: EventFailed | None = None,
    ) -> int:
        try:
            try:
                return self._commit(part, only, refused)
            except (Unrepeatable, BatchRefused):
                return self._commit(part, only, refused, singly=True)
        except Exception as error:
            tried = self._tried.due
            cause = self._cause(error)
            if cause is None or not tried or (refused and _is(refused, tried[0])):
                raise
        if len(tried) == 1:
            refused = EventFailed(tried[0].event, cause)
            return self._drain(self._tried, only=only, refused=refused)
        # One of them is to blame for all: alone, each shows whether it is the one.
        return self._drain(self._read(part.lane, 1), only=only)

    def _read(self, lane: str, limit: int) -> _Part:
        stint = self._stint
        # One more than is tried, to know what follows.
        waiting = stint.session.lane_items(stint.checkpoint, lane, limit + 1)
        if stint.definition.foreign is not None:
            waiting = self._as_read_today(lane, waiting, limit)
        now = stint.clock.now()
        stint.ledger.load(item.event for item in waiting)
        due: list[ParkedEvent] = []
        for item in waiting[:limit]:
            if not (item.is_due(now) or (item.is_early and self._has_its_turn(item, due))):
                break
            due.append(item)
        return _Part(lane, limit, due, waiting[len(due)] if len(due) < len(waiting) else None)

    def _patience(self, item: ParkedEvent) -> datetime | None:
        """Until when an event that came too early waits for those before it, if it still does."""
        intake, now = self._stint.definition.foreign, self._stint.clock.now()
        assert intake is not None
        # It counts from when it was found to be early; until then it had waited for another.
        since = item.record.history[-1].at if item.is_early else now
        until = since + timedelta(seconds=intake.gap_seconds)
        return until if until > now else None

    def _has_its_turn(self, item: ParkedEvent, before: Sequence[ParkedEvent]) -> bool:
        """Whether an event that came too early no longer does, when those before it are done."""
        if before:
            return before[-1].event.version + 1 == item.event.version
        self._stint.ledger.look_again(item.event)
        return self._stint.ledger.place(item.event) == "next"

    def _as_read_today(
        self, lane: str, waiting: Sequence[ParkedEvent], limit: int
    ) -> list[ParkedEvent]:
        """What waits, with events as today's code reads what they came from, in their order."""
        stint = self._stint
        unread = stint.session.undecoded_items(stint.checkpoint, lane, limit)
        known = {item.id: self._read_again(item) for item in (*waiting, *unread)}
        before = {item.id: item.event for item in (*waiting, *unread)}
        changed = {
            id_: item.event
            for id_, item in known.items()
            if self._numbers(item.event) != self._numbers(before[id_])
        }
        if not changed:
            return [known[item.id] for item in waiting]
        stint.session.renumber(stint.checkpoint, changed)
        return [
            self._read_again(item)
            for item in stint.session.lane_items(stint.checkpoint, lane, limit + 1)
        ]

    def _numbers(self, event: RawEvent) -> tuple[str, int]:
        """By what an event is found in its lane. Where nobody counts, by nothing that changes."""
        intake = self._stint.definition.foreign
        assert intake is not None
        is_counted = intake.contiguous and event.type not in intake.unnumbered
        return event.stream, event.version if is_counted else 0

    def _read_again(self, item: ParkedEvent) -> ParkedEvent:
        """The item with its event as today's code reads what it came from."""
        intake = self._stint.definition.foreign
        if intake is None or item.kept is None:
            return item
        event = intake.decode(item.kept)
        version = item.event.version if event.type in intake.unnumbered else event.version
        event = msgspec.structs.replace(event, position=item.event.position, version=version)
        return replace(item, event=event)

    def _cause(self, error: Exception) -> BaseException | None:
        """What an event has done to a whole batch, or None if it was no event's doing."""
        match error:
            case BatchLost():
                return error.error
            case BatchRefused():
                return error.__cause__ or error
            case _:
                return error if self._stint.session.refused(error) else None

    def _commit(
        self,
        part: _Part,
        only: Sequence[int] | None,
        refused: EventFailed | None,
        *,
        singly: bool = False,
    ) -> int:
        """Tries a part in one transaction. Whoever is `refused` has failed already."""
        stint = self._stint
        until = stint.clock.monotonic() + SLICE_SECONDS
        with stint.transaction() as held:
            if held is not None:
                part = self._read(part.lane, part.limit)
                if only is not None and [item.id for item in part.due] != only:
                    raise Revised("a person has dealt with the marked event")
            self._tried = part
            result = _Result(part)
            stint.expect(part.events)
            with stint.engine.batch(
                stint.checkpoint, held, from_queue=True, singly=singly
            ) as batch:
                batch.expect(part.events)
                for item in part.due:
                    self._try(batch, item, result, refused)
                    late = stint.clock.monotonic() >= until
                    if result.stop is not None or late or stint.stopping():
                        break
                left = self._left(result)
                with batch.finished() as work:
                    checkpoint, others = self._write(work, result, left)
        for lane, known in {**others, part.lane: left}.items():
            stint.lanes.set(lane, known)
        stint.committed(checkpoint, [item.event for item in result.applied])
        self._tell(result, is_open=left is None)
        if result.stop is not None and result.stop.halted is not None:
            raise result.stop.halted
        return len(result.applied)

    def _try(
        self, batch: Batch, item: ParkedEvent, result: _Result, refused: EventFailed | None
    ) -> None:
        lane, own = result.part.lane, batch.lane_of(item.event)
        if own != lane and not own.startswith(UNKNOWN):
            result.moved[item] = own  # It is mended, and now it shows where it belongs.
            return
        if self._waits(lane, item.event):
            result.stop = Stop(self._stint.clock.now() + LOOK_LATER)
            return
        ledger = self._stint.ledger
        place = ledger.place(item.event)
        if place == "duplicate" or item.event.type == NOTHING:
            result.known.append(item)
            return
        try:
            if refused is not None and _is(refused, item):
                raise refused
            if place == "early" and (gap := ledger.gap(item.event)) is not None:
                ledger.look_again(item.event)
                if (until := self._patience(item)) is not None:
                    if not item.is_early:
                        record = item.record.after(gap, self._stint.clock.now())
                        result.setbacks.append(
                            FailedAttempt(item.id, "failed", record, item.retries, until)
                        )
                    result.stop = Stop(until)
                    return
                result.is_early = True
                raise EventFailed(item.event, gap)
            self._stint.attempt(batch, item.event)
        except EventFailed as failed:
            setback, result.stop = self._stint.set_back(batch, lane, item, failed.error)
            if setback is not None:
                result.setbacks.append(setback)
                if setback.status == "skipped":
                    ledger.passed(item.event)
                return
        ledger.passed(item.event)
        result.applied.append(item)

    def _write(
        self, work: Transaction, result: _Result, left: Lane | None
    ) -> tuple[Checkpoint, Mapping[str, Lane]]:
        """Writes what has become of a part; returns also the other lanes that have changed."""
        stint, lane = self._stint, result.part.lane
        advance = stint.advance(len(result.applied), None)
        others = self._joined(result.moved)
        checkpoint = work.advance(stint.checkpoint, advance)
        stint.ledger.write(work, checkpoint)
        work.finish_items([item.id for item in (*result.applied, *result.known)])
        items = {item.id: item for item in result.part.due}
        for setback in result.setbacks:
            work.set_back(setback, advance.at)
            if setback.status == "dead":
                item = items[setback.id]
                stint.send_letters(work, [(lane, item.event, item.kept, setback.record)])
        for item, own in result.moved.items():
            work.move_item(item.id, own)
        if left is None:
            work.open_lane(checkpoint, lane)
            work.write_lanes(checkpoint, others)
        else:
            work.write_lanes(checkpoint, {**others, lane: left})
        if lane.startswith(UNKNOWN) and result.gone:
            for woken in work.wake_lanes(checkpoint, lane.removeprefix(UNKNOWN), advance.at):
                known = others.get(woken) or stint.lanes.get(woken)
                if known is not None and woken != lane:
                    others[woken] = Lane(known.events, advance.at)
        return checkpoint, others

    def _joined(self, moved: Mapping[ParkedEvent, str]) -> dict[str, Lane]:
        """The lanes that items move to, with them in it, in the order of the feed."""
        lanes: dict[str, Lane] = {}
        now = self._stint.clock.now()
        for item, own in moved.items():
            known = lanes.get(own) or self._stint.lanes.get(own)
            if known is None:
                lanes[own] = Lane(1, now)
            else:
                is_head = own not in lanes and not self._is_before(own, item.event)
                lanes[own] = Lane(known.events + 1, now if is_head else known.due_at)
        return lanes

    def _waits(self, lane: str, event: RawEvent) -> bool:
        """Whether an earlier event of the stream, whose lane is unknown, may belong to this one."""
        unknown = unknown_lane(event.stream)
        return lane != unknown and self._stint.is_held(event) and self._is_before(unknown, event)

    def _is_before(self, lane: str, event: RawEvent) -> bool:
        if self._stint.lanes.get(lane) is None:
            return False
        items = self._stint.session.lane_items(self._stint.checkpoint, lane, 1)
        if not items:
            return False
        head = items[0].event
        if self._stint.definition.foreign is None:
            return head.position < event.position
        return (head.version, head.position) < (event.version, event.position)

    def _left(self, result: _Result) -> Lane | None:
        """What a drain leaves of a lane; None opens it."""
        follows = result.follows
        if follows is None:
            return None
        known = self._stint.lanes.get(result.part.lane)
        events = max(1, (known.events if known else 0) - result.gone)
        now = self._stint.clock.now()
        if result.stop is not None:
            due_at = result.stop.due_at
        else:
            due_at = now if follows.is_due(now) else follows.next_attempt_at
        if due_at is None and (follows.is_early or result.is_early):
            due_at = now + LOOK_LATER  # What it misses may come by another feed.
        return Lane(events, due_at)

    def _tell(self, result: _Result, *, is_open: bool) -> None:
        stint, lane = self._stint, result.part.lane
        items = {item.id: item.event for item in result.part.due}
        for setback in result.setbacks:
            event = items[setback.id]
            if setback.status == "skipped":
                stint.emit(Skipped(*stint.names, event.position, event.type, lane))
            elif setback.status == "dead":
                stint.emit(Died(*stint.names, event.position, event.type, lane))
        if result.applied or is_open:
            stint.emit(Drained(*stint.names, lane, len(result.applied), is_open))


def _is(failed: EventFailed, item: ParkedEvent) -> bool:
    return failed.event.position == item.event.position
