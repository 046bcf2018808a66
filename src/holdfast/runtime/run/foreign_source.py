"""Where others write the events of a projection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import ForeignFeed
from holdfast.model.policy import Policy
from holdfast.model.projection import Projection
from holdfast.runtime.run.worker import RunnerContext, Worker


@dataclass(frozen=True, slots=True)
class ForeignDeadLetter:
    """A dead event that others have written down.

    `feed` and `position` say where it was before, if that is one of ours; the event itself has a
    position that no event of a feed has.
    """

    feed: str | None
    position: int | None
    event: RawEvent


class ForeignSource(Protocol):
    """Where others write the events of a projection."""

    @property
    def feed(self) -> str:
        """The name of its first feed."""

    def intake(self) -> ForeignFeed:
        """How a projection takes what comes from there."""

    def sink(self, projection: str) -> tuple[type[Projection], Policy] | None:
        """What takes the letters about dead events of a projection, if anybody does."""

    def next_event(self, feed: str, after: int) -> RawEvent | None:
        """The first event of a feed after a position."""

    def letters(self, topic: str) -> Iterator[ForeignDeadLetter]:
        """Dead events in a topic that others have written."""

    def worker(self, definition: Definition, wiring: RunnerContext, *, catches_up: bool) -> Worker:
        """What runs a projection on all its feeds; with `catches_up`, up to their present heads."""

    def heads(self) -> Mapping[str, int]:
        """Where each feed ends; raises StoreUnavailable if that can't be had quickly."""
