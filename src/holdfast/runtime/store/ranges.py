"""Ranges of the journal, which the database applies by a SqlProjection's statements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from holdfast.model.event import RawEvent
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.transaction import HandlerTx


@dataclass(frozen=True, slots=True)
class EventRange:
    """The events after one position through another. They are settled.

    `last`: the id and type of the last event, None without events. `held`: more events follow,
    behind an append that is not committed.
    """

    after: int
    through: int
    events: int
    last: tuple[str, str] | None
    held: bool = False


@runtime_checkable
class RangeSource(Protocol):
    """A source that can return the range of its next events without reading them."""

    def next_range(self, after: int, limit: int) -> EventRange:
        """The range of the next settled events."""


class RangeStatements(Protocol):
    """A SqlProjection's statements on one runner's session."""

    def waiting(self, checkpoint: Checkpoint, events: EventRange) -> Iterator[RawEvent]:
        """The events of closed lanes in a range, in order, a few at a time."""

    def apply(self, events: EventRange, closed_for: Checkpoint | None) -> None:
        """Applies a range in the open transaction.

        Events in lanes that are closed for the checkpoint `closed_for` are left out.
        """

    def apply_one(self, tx: HandlerTx, event: RawEvent) -> None:
        """Applies one event in the open transaction. It may differ from the journal's copy."""
