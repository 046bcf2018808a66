"""What a relay needs from the queue: claims on lanes, and an end to what was claimed.

A claim is committed before anything is tried. It counts the attempt, it has a token that nobody
else knows, and it ends by itself when it is not renewed. What was tried is finished only by whoever
still has the lane under his token: so whoever was taken for dead changes nothing when he wakes up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.definition import Mode
from holdfast.model.event import RawEvent
from holdfast.model.failure import WorkerLost
from holdfast.runtime.store.queue_items import ParkedEvent
from holdfast.runtime.store.session import Session

LEASE_SECONDS = 30.0
"""A claim that is not renewed for so long is over."""

SUSPECT_LOSSES = 2
"""An event at which so many workers were lost is tried while nothing else is begun."""


class ClaimLost(Exception):
    """A lane is no longer ours: the lease has ended, or a person has changed something."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A lane that is ours. The first of `items` is its head, of which an attempt was counted.

    `was_lost`: instead, the head was being tried by somebody whose lease has ended.
    """

    lane: str
    items: Sequence[ParkedEvent]
    was_lost: bool

    @property
    def head(self) -> ParkedEvent:
        return self.items[0]

    @property
    def is_suspect(self) -> bool:
        """Whether workers were lost at its head again and again: it may be what has ended them."""
        losses = [a for a in self.head.record.history if a.error_type == WorkerLost.__name__]
        return not self.was_lost and len(losses) >= SUSPECT_LOSSES


@dataclass(slots=True)
class RelayStats:
    """What a process has done: attempts, and in shadow mode events that it has looked at."""

    applied: int = 0
    failed: int = 0
    looked: int = 0
    unreadable: int = 0
    looked_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class OutboxState:
    """How an outbox projection stands. `left`: so many positions are still to be backfilled."""

    mode: Mode
    paused_by: str | None
    left: int

    @property
    def is_open(self) -> bool:
        """Whether lanes may be claimed, and events applied."""
        return self.mode == "live" and self.paused_by is None and self.left == 0


class Claims(Protocol):
    """One thread's way to the queue of an outbox projection, on a session."""

    @property
    def session(self) -> Session: ...

    def standing(self) -> OutboxState: ...

    def begin(self) -> None:
        """A fault that was noted is over: it is tried again.

        Raises ProjectionFaulted where only a reset makes the rows right.
        """

    def backfill(self) -> int:
        """Puts the next stretch of older events into the queue; returns what is left."""

    def claim(self, token: str, *, lanes: int, items: int) -> Sequence[Claim]:
        """Claims lanes that are due, longest first, and loads so many items of each."""

    def claim_lane(self, token: str, lane: str, *, events: int) -> Sequence[Claim]:
        """Claims one lane, if it is free and exactly so many events wait in it."""

    def claim_head(self, token: str, lane: str) -> Sequence[Claim]:
        """Claims the first item of one lane, if the lane is free and due."""

    def rehearse(self, *, lanes: int, items: int) -> int:
        """Claims lanes as `claim` does, and undoes it at once; returns how many there were."""

    def waiting(self, lane: str) -> int:
        """How many events wait in a lane."""

    def renew(self, tokens: Collection[str]) -> None:
        """Those who are at work keep their lanes."""

    def hold(self, token: str, lanes: Collection[str], *, wait: bool) -> set[str]:
        """In the open transaction: which of the lanes are still ours, and stay so until its end.

        Without `wait`, those that an append holds just now are left out.
        """

    def settle(self, token: str, gone: Mapping[str, int]) -> None:
        """In the open transaction: gives lanes back, each with so many items fewer."""

    def finish(self, items: Collection[int]) -> None:
        """In the open transaction: these are done."""

    def unclaim(self, items: Collection[int]) -> None:
        """In the open transaction: these heads were not tried after all."""

    def look(self, after: int, limit: int) -> Sequence[tuple[int, RawEvent]]:
        """The ids and events of what waits, behind an id, for somebody who only looks."""

    def seen(self, worker: str, tally: RelayStats) -> None:
        """Says that a process is alive, and what it has done."""

    def clean(self) -> None:
        """Deletes some of what was kept for long enough, and forgets processes that are gone."""

    def next_due(self) -> tuple[float | None, bool]:
        """How many seconds until a lane is due, or loses its worker; None if nothing waits.

        And whether any lane has a worker, in any process.
        """
