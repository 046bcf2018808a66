"""Shards: one projection, run as several runners, each with its part of the lanes.

Every shard reads the whole journal and takes the events whose lane is its own, by a hash that never
changes. To the rest it is a feed of its own, with a lease, a checkpoint and closed lanes, so that
any number of processes share the shards.

How many there are is written down in the store (see ShardLayout), and changes like this:

    a barrier is set: the furthest position that any shard has reached
    every shard goes on up to there, and no further
    the last one there: new shards begin at the barrier, the old ones are gone

Each step is one transaction, and every process that runs the projection can take it. So a process
may die at any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.feed_names import shard_feeds


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How many shards a projection has.

    While that is being changed: how many it will have, and up to where the present ones go.
    """

    shards: int
    next_shards: int | None = None
    barrier: int | None = None

    @property
    def feeds(self) -> list[str]:
        return shard_feeds(self.shards)


@dataclass(frozen=True, slots=True)
class ShardState:
    """Who runs a shard, how far it is, and who has asked for it."""

    feed: str
    leader: str | None
    position: int
    state: str
    asked_by: str | None


class ShardLayouts(Protocol):
    """What the store knows of shards."""

    @property
    def me(self) -> str:
        """This process, as the leader of shards."""

    def begin(self, projection: str, shards: int) -> ShardLayout:
        """How many shards it has; `shards` if it has never run."""

    def layout(self, projection: str) -> ShardLayout:
        """How many shards it has."""

    def states(self, projection: str) -> Sequence[ShardState]:
        """Those of its shards that have ever run."""

    def ask(self, projection: str, state: ShardState) -> None:
        """Asks the leader of a shard to leave it to this process."""

    def change(self, projection: str) -> bool:
        """Ends a change of layout if every shard has come to the barrier; returns whether."""
