"""What a relay needs from the queue: claims on lanes, and an end to what was claimed.

A claim is committed before anything is tried. It counts the attempt, it has a token that nobody
else knows, and it ends by itself when it is not renewed. What was tried is finished only under the
same token: so a worker that was taken for dead changes nothing when it wakes up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.definition import Mode
from holdfast.model.event import RawEvent
from holdfast.model.failure import WorkerLost
from holdfast.runtime.store.queue_items import ParkedEvent

LEASE_SECONDS = 30.0
"""Time after which a claim ends that is not renewed."""

SUSPECT_LOSSES = 2
"""Number of lost workers after which an event is tried while nothing else is."""


class ClaimLost(Exception):
    """A lane is no longer ours: the claim has ended, or an operator has changed something."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A lane that is ours. The first of `items` is its head, of which an attempt was counted.

    `was_lost`: instead, the head was being tried by a worker whose claim has ended.
    """

    lane: str
    items: Sequence[ParkedEvent]
    was_lost: bool

    @property
    def head(self) -> ParkedEvent:
        return self.items[0]

    @property
    def is_suspect(self) -> bool:
        """Whether its head may be what has ended several workers."""
        attempts = self.head.history.last_attempts
        losses = [a for a in attempts if a.error_type == WorkerLost.__name__]
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
    """The state of an outbox projection. `left`: the positions that are still to be backfilled."""

    mode: Mode
    paused_by: str | None
    left: int

    @property
    def is_open(self) -> bool:
        """Whether lanes may be claimed, and events applied."""
        return self.mode == "live" and self.paused_by is None and self.left == 0


class Claims(Protocol):
    """The queue of an outbox projection, for one thread on its session."""

    def state(self) -> OutboxState: ...

    def begin(self) -> None:
        """A noted fault is over: the projection is tried again.

        Raises ProjectionFaulted where only a reset makes the rows right.
        """

    def backfill(self) -> int:
        """Puts the next range of older events into the queue; returns how many are left."""

    def claim(self, token: str, *, lanes: int, items: int) -> Sequence[Claim]:
        """Claims lanes that are due, longest first, and loads some items of each."""

    def claim_lane(self, token: str, lane: str, *, events: int) -> Sequence[Claim]:
        """Claims one lane, if it is free and exactly that many events wait in it."""

    def claim_head(self, token: str, lane: str) -> Sequence[Claim]:
        """Claims the first item of one lane, if the lane is free and due."""

    def rehearse(self, *, lanes: int, items: int) -> int:
        """Claims lanes as `claim` does, and undoes it at once; returns how many."""

    def waiting(self, lane: str) -> int:
        """How many events wait in a lane."""

    def renew(self, tokens: Collection[str]) -> None:
        """Prolongs the claims under these tokens."""

    def lock(self, token: str, lanes: Collection[str], *, wait: bool) -> set[str]:
        """In the open transaction: which of the lanes are still ours, and stay so until its end.

        Without `wait`, lanes that an append has locked are left out.
        """

    def release(self, token: str, gone: Mapping[str, int]) -> None:
        """In the open transaction: gives lanes back, each with some items fewer."""

    def finish(self, items: Collection[int]) -> None:
        """In the open transaction: these are done."""

    def unclaim(self, items: Collection[int]) -> None:
        """In the open transaction: these heads were not tried after all."""

    def peek(self, after: int, limit: int) -> Sequence[tuple[int, RawEvent]]:
        """The ids and events of items behind an id; nothing is claimed."""

    def heartbeat(self, worker: str, stats: RelayStats) -> None:
        """Says that a process is alive, and what it has done."""

    def clean(self) -> None:
        """Deletes some items that were kept for long enough, and processes that are gone."""

    def next_due(self) -> tuple[float | None, bool]:
        """Seconds until a lane is due, or its claim ends; None if nothing waits.

        And whether any lane is claimed, in any process.
        """
