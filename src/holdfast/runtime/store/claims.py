"""Claims: the right of a relay's worker to a lane of the queue.

A claim is committed before anything is tried. It counts the attempt, has a secret token, and
expires unless it is renewed. An attempt is finished only under the same token, so a worker that was
taken for dead changes nothing when it wakes up.
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
"""Time after which a claim expires unless it is renewed."""

SUSPECT_LOSSES = 2
"""Number of lost workers after which an event is tried alone in the process."""


class ClaimLost(Exception):
    """The lane is no longer claimed: the claim has expired, or an operator has changed the lane."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed lane. The first of `items` is its head, whose attempt is counted.

    `was_lost`: no attempt is counted; a worker whose claim has expired was trying the head. It was
    alone in its process if it is suspect.
    """

    lane: str
    items: Sequence[ParkedEvent]
    was_lost: bool

    @property
    def head(self) -> ParkedEvent:
        return self.items[0]

    @property
    def has_failed(self) -> bool:
        """Whether its head has failed before."""
        return self.head.history.first_failed_at is not None

    @property
    def is_suspect(self) -> bool:
        """Whether its head may be the cause of several lost workers: it is tried alone."""
        attempts = self.head.history.last_attempts
        return sum(a.error_type == WorkerLost.__name__ for a in attempts) >= SUSPECT_LOSSES


@dataclass(slots=True)
class RelayStats:
    """Counts of one process: attempts, and in shadow mode events that it has looked at."""

    applied: int = 0
    failed: int = 0
    looked: int = 0
    unreadable: int = 0
    looked_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class OutboxState:
    """The state of an outbox projection.

    `left`: the number of positions left to backfill. A reset raises `epoch`.
    """

    mode: Mode
    paused_by: str | None
    left: int
    epoch: int

    @property
    def is_open(self) -> bool:
        """Whether lanes may be claimed, and events applied."""
        return self.mode == "live" and self.paused_by is None and self.left == 0


class Claims(Protocol):
    """The queue of an outbox projection, for one thread on its session."""

    def state(self) -> OutboxState: ...

    def begin(self) -> None:
        """Clears a recorded fault.

        Raises ProjectionFaulted if only a reset makes the rows right.
        """

    def backfill(self) -> int:
        """Puts the next range of older events into the queue; returns the number that is left."""

    def claim(self, token: str, *, lanes: int, again: int, items: int) -> Sequence[Claim]:
        """Claims lanes that are due, longest first, and loads some items of each.

        `again`: how many more lanes are claimed whose heads have failed before.
        """

    def claim_lane(self, token: str, lane: str, *, events: int) -> Sequence[Claim]:
        """Claims one lane, if it is free and holds exactly this number of events."""

    def rehearse(self, *, lanes: int, items: int) -> int:
        """Claims lanes as `claim` does, and rolls back; returns the number of lanes."""

    def waiting(self, lane: str) -> int:
        """The number of events that wait in a lane."""

    def renew(self, tokens: Collection[str]) -> None:
        """Prolongs the claims under these tokens."""

    def lock(self, token: str, lanes: Collection[str], *, wait: bool) -> set[str]:
        """In the open transaction: locks the lanes that are still claimed, and returns them.

        Without `wait`, lanes that an append has locked are left out.
        """

    def release(self, token: str, gone: Mapping[str, int]) -> None:
        """In the open transaction: releases lanes, each with this number of items fewer."""

    def finish(self, items: Collection[int]) -> None:
        """In the open transaction: removes applied items, or keeps them as done."""

    def unclaim(self, items: Collection[int]) -> None:
        """In the open transaction: takes back the counted attempts of heads that were not tried."""

    def expire(self, token: str, lanes: Collection[str]) -> None:
        """In the open transaction: ends claims of lanes whose heads' workers are lost.

        The heads stay as they are, so that the next claim finds them lost.
        """

    def peek(self, after: int, limit: int) -> Sequence[tuple[int, RawEvent]]:
        """The ids and events of the items after an id; nothing is claimed."""

    def count(self, applied: Sequence[RawEvent], failed: int) -> None:
        """In the open transaction, as the last step: counts the results of attempts."""

    def heartbeat(self, worker: str, stats: RelayStats, *, ends: bool = False) -> None:
        """Records that a process is alive, or ends, and its counts."""

    def clean(self) -> None:
        """Deletes some items whose time to be kept is over, and processes that are gone.

        Now and then, makes lanes due that a clock has put off which is, or was, ahead of this one.
        """

    def next_due(self, *, again: bool) -> tuple[float | None, bool]:
        """Seconds until a lane is due or a claim expires, None if nothing waits.

        Without `again` lanes whose heads have failed before don't count. The second value says
        whether any process has claimed a lane.
        """
