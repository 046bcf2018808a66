"""Drains lanes: applies what waits in the queue, in order, under the runner's own epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from holdfast.core.engine import Batch, BatchLost, BatchRefused, EventFailed, Unrepeatable
from holdfast.core.event import RawEvent
from holdfast.core.judge import Give
from holdfast.core.policy import Skip
from holdfast.core.queue import Lane, Setback, Waiting
from holdfast.core.signals import Died, Drained, Skipped
from holdfast.core.stint import SLICE_SECONDS, Halted, Stint

DRAIN_EVENTS = 100
"""Events of a lane that are tried in one transaction."""

LOOK_AGAIN = timedelta(seconds=1)
"""How long a lane waits for another one to open."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """Where a drain ends before it is through: when the lane is due next, and what to raise."""

    due_at: datetime | None
    halted: Halted | None = None


class Drainer:
    """Applies what waits in lanes whose heads are due."""

    def __init__(self, stint: Stint) -> None:
        self._stint = stint

    def drain(self, lane: str, *, alone: Callable[[RawEvent], None] | None = None) -> int:
        """Tries what waits in a lane, in order; returns how many events were applied.

        Ends at the first event that fails. Raises Halted where the whole projection has to wait or
        to stop. With `alone`, one event is tried, after a call that names it.
        """
        stint = self._stint
        limit = 1 if alone else DRAIN_EVENTS
        # One more than is tried, to know what follows.
        waiting = stint.session.lane_items(stint.checkpoint, lane, limit + 1)
        now = stint.clock.now()
        due = list(takewhile(lambda item: item.is_due(now), waiting))[:limit]
        rest = waiting[len(due)] if len(due) < len(waiting) else None
        if alone and due:
            alone(due[0].event)
        try:
            try:
                return self._commit(lane, due, rest)
            except (Unrepeatable, BatchRefused):
                return self._commit(lane, due, rest, singly=True)
        except Exception as error:
            cause = self._cause(error)
            if cause is None:
                raise
        # One of them is to blame for all: alone, each shows whether it is the one.
        return self._alone(lane, due, rest, cause)

    def _alone(
        self, lane: str, due: Sequence[Waiting], rest: Waiting | None, cause: BaseException
    ) -> int:
        head = due[0]
        if len(due) > 1:
            rest = due[1]
            try:
                return self._commit(lane, [head], rest)
            except Exception as error:
                own = self._cause(error)
                if own is None:
                    raise
                cause = own
        return self._commit(lane, [head], rest, refused=cause)

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
        lane: str,
        due: Sequence[Waiting],
        rest: Waiting | None,
        *,
        singly: bool = False,
        refused: BaseException | None = None,
    ) -> int:
        stint = self._stint
        applied: list[Waiting] = []
        setbacks: list[Setback] = []
        stop: _Stop | None = None
        until = stint.clock.monotonic() + SLICE_SECONDS
        events = [item.event for item in due]
        with (
            stint.transaction(),
            stint.engine.batch(stint.checkpoint, events, again=True, singly=singly) as batch,
        ):
            for item in due:
                if self._belongs_behind(batch, lane, item):
                    stop = _Stop(stint.clock.now() + LOOK_AGAIN)
                    break
                try:
                    if refused is not None:
                        raise EventFailed(item.event, refused)
                    stint.attempt(batch, item.event)
                except EventFailed as failed:
                    setback, stop = self._set_back(batch, lane, item, failed.error)
                    if setback is None:
                        applied.append(item)
                    else:
                        setbacks.append(setback)
                else:
                    applied.append(item)
                if stop is not None or stint.stopping() or stint.clock.monotonic() >= until:
                    break
            gone = len(applied) + sum(setback.status == "skipped" for setback in setbacks)
            left = self._left(lane, gone, stop, rest if gone == len(due) else due[gone])
            with batch.finished() as work:
                advance = stint.advance(len(applied), None)
                checkpoint = work.advance(stint.checkpoint, advance)
                work.finish_items([item.id for item in applied])
                for setback in setbacks:
                    work.set_back(setback, advance.at)
                if left is None:
                    work.open_lane(checkpoint, lane)
                else:
                    work.write_lanes(checkpoint, {lane: left})
        stint.lanes.set(lane, left)
        stint.committed(checkpoint, [item.event for item in applied])
        self._tell(lane, due, applied, setbacks, is_open=left is None)
        if stop is not None and stop.halted is not None:
            raise stop.halted
        return len(applied)

    def _belongs_behind(self, batch: Batch, lane: str, item: Waiting) -> bool:
        """Whether a mended event turns out to belong to another lane, which is closed."""
        own = batch.lane_of(item.event)
        return own != lane and self._stint.lanes.get(own) is not None

    def _set_back(
        self, batch: Batch, lane: str, item: Waiting, error: BaseException
    ) -> tuple[Setback | None, _Stop | None]:
        """What becomes of an item that failed; without a setback, the fallback has handled it."""
        stint = self._stint
        now = stint.clock.now()
        retries = item.retries + 1
        stint.judge.adopt(item.event, item.record)
        try:
            decision = stint.rule(item.event, lane, error, batch)
        except Halted as halted:
            record = stint.judge.settled(item.event) or item.record
            if isinstance(halted.verdict, Give):
                # Left as it was, to be tried when the projection runs again.
                return Setback(item.id, item.status, record, item.retries, None), _Stop(now, halted)
            at = now + timedelta(seconds=halted.verdict.seconds)
            stops_all = halted if halted.verdict.reason == "breaker" else None
            return Setback(item.id, "failed", record, retries, at), _Stop(at, stops_all)
        if decision is None:
            return None, None
        record = stint.judge.settled(item.event) or item.record
        if isinstance(decision, Skip):
            return Setback(item.id, "skipped", record, retries, None), None
        if decision.retry is not None and decision.retry.allows(retries):
            at = now + timedelta(seconds=decision.retry.delay(retries + 1))
            return Setback(item.id, "failed", record, retries, at), _Stop(at)
        return Setback(item.id, "dead", record, retries, None), _Stop(None)

    def _left(
        self, lane: str, gone: int, stop: _Stop | None, follows: Waiting | None
    ) -> Lane | None:
        """What a drain leaves of a lane, of which `follows` is the head now; None opens it."""
        if follows is None:
            return None
        known = self._stint.lanes.get(lane)
        events = max(1, (known.events if known else 0) - gone)
        now = self._stint.clock.now()
        if stop is not None:
            return Lane(events, stop.due_at)
        return Lane(events, now if follows.is_due(now) else follows.next_attempt_at)

    def _tell(
        self,
        lane: str,
        due: Sequence[Waiting],
        applied: Sequence[Waiting],
        setbacks: Sequence[Setback],
        *,
        is_open: bool,
    ) -> None:
        stint = self._stint
        items = {item.id: item.event for item in due}
        for setback in setbacks:
            event = items[setback.id]
            if setback.status == "skipped":
                stint.emit(Skipped(*stint.names, event.position, event.type, lane))
            elif setback.status == "dead":
                stint.emit(Died(*stint.names, event.position, event.type, lane))
        if applied or is_open:
            stint.emit(Drained(*stint.names, lane, len(applied), is_open))
