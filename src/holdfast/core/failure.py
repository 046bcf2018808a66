"""A failure as a policy sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.core.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed attempt at one event.

    `attempt` is 1 for the first. Where the payload can't be decoded, `event.data` holds its plain
    JSON values.
    """

    event: Event[Any]
    error: BaseException
    attempt: int
    position: int
    projection: str
    lane: str
    first_failed_at: datetime
    failed_at: datetime

    @property
    def age_seconds(self) -> float:
        """How long ago this event failed first."""
        return (self.failed_at - self.first_failed_at).total_seconds()


class ProcessDied(Exception):
    """The process ended without a word, so many times, while it worked on this event alone."""

    def __init__(self, deaths: int) -> None:
        super().__init__("the process ended while it worked on this event, and no other")
        self.deaths = deaths


class WorkerLost(Exception):
    """The worker that tried this event ended, or was silent for too long, before it was done."""
