"""What applies events of one kind of projection, and who is to blame when one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import Fenced, Revised, StoreUnavailable, TransactionEnded
from holdfast.model.event import RawEvent
from holdfast.runtime.engines.invoke import Function
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import Transaction


class AtEvent(Exception):
    """Something happened at an event, whose payload stays out of messages."""

    def __init__(self, event: RawEvent, error: BaseException) -> None:
        super().__init__(event.position)
        self.event, self.error = event, error

    def __str__(self) -> str:
        kind, event = type(self.error).__name__, self.event
        return f"event {event.id} at position {event.position}: {kind}: {text_of(self.error)}"


class EventFailed(AtEvent):
    """One event could not be applied; nothing of it is left."""


class StoreFailedAt(AtEvent):
    """The store failed in an event's handler. Whether the event is to blame shows later."""

    error: StoreUnavailable


class BatchRefused(Exception):
    """The events together can't be stored; one of them is to blame."""


class BatchLost(AtEvent):
    """An event failed and took the whole transaction with it."""


class Unrepeatable(Exception):
    """An event failed that was applied before, when it was applied again for another's sake."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run of events ended: whether any had a handler, and the failure of the last."""

    has_applied: bool
    failed: EventFailed | None = None


class Applies(Protocol):
    """Applies single events in one transaction. Leaving its block without an error commits it."""

    def lane_of(self, event: RawEvent) -> str:
        """The lane whose order an event belongs to."""

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        """Applies one event, by its handler or by `instead`; False if it has no handler.

        Raises EventFailed, with nothing of the event left: the transaction can go on.
        """

    def finished(self) -> AbstractContextManager[Transaction]:
        """The open transaction, with all rows written, for what goes with them."""


class Batch(Applies, Protocol):
    """Applies many events in one transaction."""

    @property
    def is_full(self) -> bool:
        """Whether memory asks for a commit."""

    def expect(self, events: Sequence[RawEvent]) -> None:
        """Announces the next events; only these are applied before the next call."""

    def run(self, events: Iterable[RawEvent]) -> Ran:
        """Applies events in order, up to the first that fails.

        An event is taken from `events` after the one before it was applied.
        """

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Writes all rows and moves the checkpoint on, where nothing else goes with them."""


class Engine(Protocol):
    """Applies events of one kind of projection."""

    def batch(
        self,
        checkpoint: Checkpoint | None,
        transaction: Transaction | None,
        *,
        from_queue: bool,
        singly: bool,
    ) -> AbstractContextManager[Batch]:
        """Events to be applied in `transaction`, or in one of its own under a checkpoint.

        `from_queue`: the queue knows that they are not applied. `singly`: each event is known to
        be done before the next one begins, at any cost.
        """

    def committed(self) -> Sequence[Function]:
        """The transaction is committed. Returns what is to be called now."""

    def forget(self) -> None:
        """The transaction is not committed: drops what was kept from it."""

    def drop(self, streams: Iterable[str]) -> None:
        """Drops what is kept of streams that other runners may have changed."""


def run_each(apply: Callable[[RawEvent], bool], events: Iterable[RawEvent]) -> Ran:
    """Runs events where each is applied by itself."""
    has_applied = False
    try:
        for event in events:
            has_applied |= apply(event)
    except EventFailed as failed:
        return Ran(has_applied, failed)
    return Ran(has_applied)


def blame(session: Session, event: RawEvent, error: BaseException) -> Exception:
    """What a handler's exception means: the event's failure, or the store's."""
    if isinstance(error, Fenced | Revised | TransactionEnded):
        return error
    unavailable = session.unavailable(error)
    if unavailable is None:
        return EventFailed(event, error)
    return StoreFailedAt(event, unavailable)


def refusal(session: Session, error: Exception) -> BaseException | None:
    """Why the store refused a whole batch for one of its events; None: for another reason."""
    match error:
        case BatchLost():
            return error.error
        case BatchRefused() | Unrepeatable():
            return error.__cause__ or error
        case _:
            return error if session.refused(error) else None
