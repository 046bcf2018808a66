"""What applies events inside a transaction, and who is to blame when one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.errors import Fenced, Revised, StoreUnavailable, TransactionEnded
from holdfast.model.definition import Definition, lane_of
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.runtime.engines.invoke import Function, Invoker
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import Transaction


class AtEvent(Exception):
    """Something happened at an event, whose payload is not for messages."""

    def __init__(self, event: RawEvent, error: BaseException) -> None:
        super().__init__(event.position)
        self.event, self.error = event, error

    def __str__(self) -> str:
        kind, event = type(self.error).__name__, self.event
        return f"event {event.id} at position {event.position}: {kind}: {text_of(self.error)}"


class EventFailed(AtEvent):
    """One event could not be applied; nothing of it is left."""


class StoreFailedAt(AtEvent):
    """The store failed in an event's handler: whose fault it is shows when it happens again."""

    error: StoreUnavailable


class BatchRefused(Exception):
    """What the events together left in the rows can't be stored; one of them is to blame."""


class BatchLost(AtEvent):
    """An event failed and took the whole transaction with it; nothing of the batch is in."""


class Unrepeatable(Exception):
    """An event failed that had been applied before, when it was done again for another's sake."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run of events has ended: whether any had a handler, and the failure of the last."""

    has_applied: bool
    failed: EventFailed | None = None


class Batch(Protocol):
    """Events being applied. Leaving its block without an error commits them."""

    def lane_of(self, event: RawEvent) -> str:
        """The lane whose order the event belongs to."""

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        """Applies one event, by its handler or by `instead`; False if there is nothing to do.

        Raises EventFailed with no trace of the event left: the batch can go on.
        """

    def finished(self) -> AbstractContextManager[Transaction]:
        """The open transaction, with all rows written, for what goes with them."""


class FeedBatch(Batch, Protocol):
    """Events of a feed being applied, under its checkpoint."""

    @property
    def is_full(self) -> bool:
        """Whether it is time to commit, for the sake of memory."""

    def expect(self, events: Sequence[RawEvent]) -> None:
        """These come next, and only these are applied before it is called again."""

    def run(self, events: Iterable[RawEvent]) -> Ran:
        """Applies events in order, up to the first that fails.

        The next one is taken when the one before it is applied.
        """

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Finishes, with the checkpoint moved on, where nothing else goes with the rows."""


class Engine(Protocol):
    """Applies events of one kind of projection."""

    def batch(
        self,
        checkpoint: Checkpoint | None,
        work: Transaction | None,
        *,
        again: bool,
        singly: bool,
    ) -> AbstractContextManager[FeedBatch]:
        """Events to be applied in one transaction: `work`, or one of its own under a checkpoint.

        `again`: they come from the queue, which knows that they are not applied. `singly`: every
        event is undone, and its values are checked, by itself, whatever that costs.
        """

    def committed(self) -> Sequence[Function]:
        """The transaction is in. Returns what was to be called then."""

    def forget(self) -> None:
        """The transaction is not in: drop whatever was kept from it."""

    def drop(self, streams: Iterable[str]) -> None:
        """Drops what is kept of streams that others may have changed."""


def run_singly(apply: Callable[[RawEvent], bool], events: Iterable[RawEvent]) -> Ran:
    """Runs events where each is applied by itself."""
    has_applied = False
    try:
        for event in events:
            has_applied |= apply(event)
    except EventFailed as failed:
        return Ran(has_applied, failed)
    return Ran(has_applied)


class Calls:
    """Calls one projection's handlers, and says who is to blame when one fails."""

    def __init__(
        self, definition: Definition, types: EventTypes, session: Session, caller: Invoker
    ) -> None:
        self.definition, self.types, self.session = definition, types, session
        self._caller = caller
        self.settle = caller.settle
        self.is_limited = definition.has_time_limits

    def call(self, event_type: str, handler: Function, *args: Any) -> Any:
        if self.is_limited:
            seconds = self.definition.policy_of(event_type).backoff.timeout_seconds
            if seconds is not None:
                interrupt = self.session.interrupt
                return self._caller.call_within(seconds, interrupt, handler, *args)
        return self._caller.call(handler, *args)

    def lane_of(self, event: RawEvent) -> str:
        """The lane of an event that has not been decoded."""
        return lane_of(self.definition, self.types, event)

    def blamed(self, event: RawEvent, error: BaseException) -> Exception:
        """What a handler's exception means: the event's failure, or the store's."""
        if isinstance(error, Fenced | Revised | TransactionEnded):
            return error
        unavailable = self.session.unavailable(error)
        if unavailable is None:
            return EventFailed(event, error)
        return StoreFailedAt(event, unavailable)
