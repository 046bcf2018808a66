"""Ranges of the journal, which the database applies by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from uuid import UUID

if TYPE_CHECKING:
    from holdfast.model.event import RawEvent
    from holdfast.runtime.store.checkpoint import Checkpoint
    from holdfast.runtime.store.transaction import HandlerTx


@dataclass(frozen=True, slots=True)
class EventRange:
    """A stretch of the journal after a position, where nothing smaller can appear any more.

    `held`: more is there, and not settled. `last` is None if there are no events.
    """

    after: int
    through: int
    events: int
    last: tuple[UUID, str] | None
    """The last event's id and type."""
    held: bool = False


@runtime_checkable
class RangeSource(Protocol):
    """A source that knows how far its events go without reading them."""

    def extent(self, after: int, limit: int) -> EventRange:
        """The next events, as far as they are settled."""


class RangeStatements(Protocol):
    """A SqlProjection's statements on one runner's session."""

    def stretch(self, after: int, through: int) -> EventRange:
        """What is there between two positions, all of it settled."""

    def waiting(self, checkpoint: Checkpoint, extent: EventRange) -> Iterator[RawEvent]:
        """The events of closed lanes, in order, a few at a time."""

    def apply(self, extent: EventRange, closed_for: Checkpoint | None) -> None:
        """Applies a stretch in the open transaction, without the closed lanes of a projection."""

    def apply_one(self, tx: HandlerTx, event: RawEvent) -> None:
        """Applies one event, which need not be as the journal has it, in the open transaction."""
