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
    """The events after a position, through another one: no smaller position appears later.

    `last` is the last event's id and type, None without events. `held`: more events follow, behind
    an append that is not committed.
    """

    after: int
    through: int
    events: int
    last: tuple[UUID, str] | None
    held: bool = False


@runtime_checkable
class RangeSource(Protocol):
    """A source that knows the range of its events without reading them."""

    def next_range(self, after: int, limit: int) -> EventRange:
        """The range of the next events, as far as they are settled."""


class RangeStatements(Protocol):
    """A SqlProjection's statements on one runner's session."""

    def between(self, after: int, through: int) -> EventRange:
        """The range between two positions, all of it settled."""

    def waiting(self, checkpoint: Checkpoint, events: EventRange) -> Iterator[RawEvent]:
        """The events of closed lanes in a range, in order, a few at a time."""

    def apply(self, events: EventRange, closed_for: Checkpoint | None) -> None:
        """Applies a range in the open transaction, without the closed lanes of a projection."""

    def apply_one(self, tx: HandlerTx, event: RawEvent) -> None:
        """Applies one event in the open transaction; it may differ from the journal's."""
