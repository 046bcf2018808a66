"""The source of a projection whose events another system writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import ForeignFeed
from holdfast.model.policy import Policy
from holdfast.model.projection import Projection
from holdfast.runtime.run.worker import RunnerContext, Worker


@dataclass(frozen=True, slots=True)
class ForeignDeadLetter:
    """A dead event that another system has written.

    `feed` and `position` say where it was before, if that is one of ours; the event itself has a
    position that no event of a feed has.
    """

    feed: str | None
    position: int | None
    event: RawEvent


class ForeignSource(Protocol):
    """The source of a projection whose events another system writes."""

    @property
    def feed(self) -> str:
        """The name of its first feed."""

    def foreign_feed(self) -> ForeignFeed:
        """What a projection has to know of its feeds: versions, decoding, dead letters."""

    def sink(self, projection: str) -> tuple[type[Projection], Policy] | None:
        """The sink of a projection's dead letters, with its policy, if there is one."""

    def next_event(self, feed: str, after: int) -> RawEvent | None:
        """The first event of a feed after a position."""

    def letters(self, topic: str) -> Iterator[ForeignDeadLetter]:
        """Dead events in a topic that another system has written."""

    def worker(self, definition: Definition, context: RunnerContext, *, catches_up: bool) -> Worker:
        """What runs a projection on all its feeds; with `catches_up`, up to their present heads."""

    def heads(self) -> Mapping[str, int]:
        """Where each feed ends; raises StoreUnavailable if that can't be had quickly."""

    def heads_at(self, at: datetime) -> Mapping[str, int]:
        """Where each feed ended at a time, by the times of its events."""
