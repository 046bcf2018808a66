"""What came of one transaction, and telling it after the commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.model.event import RawEvent
from holdfast.runtime.engines.invoke import Function, Invoker
from holdfast.runtime.failure.attempts import Attempts, Blocked
from holdfast.runtime.signals import (
    CallbackFailed,
    Committed,
    Died,
    Drained,
    Duplicates,
    Parked,
    Queued,
    Recovered,
    Signal,
    Skipped,
)
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.queue_items import FailedAttempt, NewItem


@dataclass(slots=True)
class Outcome:
    """What came of one committed transaction.

    `position` is the checkpoint's new one, or the last event's in outbox delivery; None if it has
    not moved. `recovered` are applied events that had failed before, with the number of their
    attempt. `blocked` is raised after the signals.
    """

    position: int | None = None
    applied: int = 0
    seconds: float = 0.0
    duplicates: int = 0
    new_items: Sequence[NewItem] = ()
    failed: Sequence[tuple[str, RawEvent, FailedAttempt]] = ()
    """Items of the queue that failed again, with their lanes and events."""
    parks_dead: bool = False
    """Whether an item that dies is parked by this: in outbox delivery it was not before."""
    drained: tuple[str, int, bool] | None = None
    """A lane, how many of its events were applied, and whether none is left."""
    recovered: list[tuple[RawEvent, int]] = field(default_factory=list)
    callbacks: Sequence[Function] = ()
    """What handlers want to be called after the commit."""
    blocked: Blocked | None = None


def announce(outcome: Outcome, attempts: Attempts, invoker: Invoker) -> None:
    """Tells what came of a transaction; raises Blocked if an event blocks the projection."""
    definition, names, emit = attempts.definition, attempts.names, attempts.emit
    for callback in outcome.callbacks:
        try:
            invoker.call(callback)
        except Exception as error:
            text = definition.masked(text_of(error))
            emit(CallbackFailed(*names, type(error).__name__, text))
    if outcome.duplicates:
        emit(Duplicates(*names, outcome.duplicates))
    _announce_items(outcome, names, emit)
    if outcome.drained is not None:
        lane, events, is_open = outcome.drained
        emit(Drained(*names, lane, events, is_open))
    for event, attempt in outcome.recovered:
        emit(Recovered(*names, event.position, attempt))
    if outcome.position is not None:
        emit(Committed(*names, outcome.position, outcome.applied, outcome.seconds))
    if outcome.blocked is not None:
        raise outcome.blocked


def _announce_items(
    outcome: Outcome, names: tuple[str, str], emit: Callable[[Signal], None]
) -> None:
    """Tells of events that are parked, dead or skipped, and of those that wait behind them."""
    for item in outcome.new_items:
        where = (*names, item.event.position, item.event.type, item.lane)
        if item.status == "skipped":
            emit(Skipped(*where))
        elif item.status != "pending":
            emit(Parked(*where))
            if item.status == "dead":
                emit(Died(*where))
    for lane, event, failed in outcome.failed:
        where = (*names, event.position, event.type, lane)
        if failed.status == "skipped":
            emit(Skipped(*where))
        elif failed.status == "dead":
            if outcome.parks_dead:
                emit(Parked(*where))
            emit(Died(*where))
    behind = Counter(item.lane for item in outcome.new_items if item.status == "pending")
    for lane, count in behind.items():
        emit(Queued(*names, lane, count))
