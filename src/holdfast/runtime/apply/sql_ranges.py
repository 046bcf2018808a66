"""Applies ranges of the journal by a SqlProjection's statements, inside the database."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.apply.outcome import Outcome
from holdfast.runtime.engines.engine import BatchRefused
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import NewItem
from holdfast.runtime.store.ranges import EventRange, RangeStatements


class SqlRangeEvents:
    """Applies ranges, and moves the checkpoint on with each commit."""

    def __init__(self, leadership: Leadership, statements: RangeStatements) -> None:
        self._leadership, self._statements = leadership, statements

    def may_go_on(self, *, refused_after: int | None) -> bool:
        """Whether the next events may be applied as a range: nothing is known of any of them.

        `refused_after`: the position after which the database has refused a single event.
        """
        leadership, suspects = self._leadership, self._leadership.suspects
        position = leadership.checkpoint.position
        return not (
            (suspects.has_any and suspects.sets_apart)
            or position in (suspects.range_lost_after, refused_after)
            or leadership.recovery.known
            or any(resolved > position for resolved in leadership.lanes.resolved)
        )

    def apply(self, events: EventRange) -> Outcome:
        """Applies one range in one transaction; raises what the database refuses."""
        leadership = self._leadership
        assert events.last is not None
        began = leadership.clock.monotonic()
        items: list[NewItem] = []
        with (
            leadership.transaction() as locked,
            nullcontext(locked) if locked else leadership.session.transaction() as transaction,
        ):
            closed_for = leadership.checkpoint if leadership.lanes else None
            if closed_for is not None:
                items = self._behind(closed_for, events)
            self._statements.apply(events, closed_for)
            event_id, event_type = events.last
            advance = replace(
                leadership.advance(events.events - len(items), None),
                position=events.through,
                last_event_id=event_id,
                last_event_type=event_type,
            )
            checkpoint = transaction.advance(leadership.checkpoint, advance)
            if items:
                added = transaction.enqueue(checkpoint, items, advance.at)
                leadership.lanes.discount(i for i in items if i.event.position not in added)
                transaction.write_lanes(checkpoint, leadership.lanes.changes)
        leadership.lanes.commit()
        outcome = leadership.committed(checkpoint, ())
        outcome.new_items = items
        outcome.seconds = leadership.clock.monotonic() - began
        return outcome

    def _behind(self, checkpoint: Checkpoint, events: EventRange) -> list[NewItem]:
        """The events that have to wait in closed lanes.

        Raises BatchRefused if there is no room for them: then fewer events go together.
        """
        leadership = self._leadership
        limits, most_bytes = leadership.definition.policy.limits, leadership.limits.batch_bytes
        items, size_bytes = [], 0
        for event in self._statements.waiting(checkpoint, events):
            size_bytes += len(event.data) + len(event.metadata)
            is_much = size_bytes > most_bytes and events.events > 1
            if is_much or leadership.lanes.overflow(event.stream, limits) is not None:
                raise BatchRefused
            item = NewItem(event, event.stream, "pending")
            leadership.lanes.add(item)
            items.append(item)
        return items
