"""The number of shards of each projection in the database, and changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import ConfigError, LayoutChanged, StoreConflict
from holdfast.model.definition import Definition, Log
from holdfast.model.feed_names import (
    JOURNAL,
    is_journal,
    shard_feed,
    shard_feeds,
    shard_of,
    shards_in,
)
from holdfast.runtime.shards.layout import ShardLayout, ShardState
from holdfast.sql.database import Connection, Database
from holdfast.sql.process_name import process_name
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.operator_transaction import operator_transactions

ASK_SECONDS = 1.0
"""Timeout of a request for a shard, which waits for its leader's transaction."""


class SqlShardLayouts:
    """The layouts of all projections."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def me(self) -> str:
        return process_name()

    def begin(self, projection: str, shards: int) -> ShardLayout:
        found = self.find(projection)
        if found is None:
            with self._database.writing() as connection:
                connection.run("begin_layout", {"projection": projection, "shards": shards})
            found = self.find(projection)
            assert found is not None
        return found

    def layout(self, projection: str) -> ShardLayout:
        return self.find(projection) or ShardLayout(1)

    def states(self, projection: str) -> list[ShardState]:
        with self._database.reading() as connection:
            rows = connection.run("shard_states", {"projection": projection})
        return [ShardState(*row[:5]) for row in rows]

    def ask(self, projection: str, state: ShardState) -> None:
        names = {"projection": projection, "feed": state.feed, "leader": state.leader}
        with suppress(StoreConflict), self._database.changing(ASK_SECONDS) as connection:
            connection.run("ask_for_shard", {**names, "by": self.me})
        self._database.announce()

    def plan(self, definition: Definition, shards: int, change: ChangedBy) -> ShardLayout:
        """Begins a change to this number of shards, or takes one back; returns the layout."""
        for attempt in operator_transactions(self._database):
            with attempt as connection:
                now = then = _lock(connection, definition.name, definition.shards)
                goes_back = shards == now.shards
                if not goes_back:
                    _check_changeable(connection, definition.name)
                if shards != (now.next_shards or now.shards):
                    at = _fence(connection, definition.name)
                    barrier = None if goes_back else max(_positions(now, at))
                    then = ShardLayout(now.shards, None if goes_back else shards, barrier)
                    subject = {"from": now.shards, "to": shards, "barrier": barrier}
                    change.write(connection, "reshard", definition.name, subject)
                    _write(connection, definition.name, then)
                    then = _step(connection, definition.name, then, at)
        self._database.announce()
        return then

    def change(self, projection: str) -> bool:
        if not self._may_step(projection):
            return False
        for attempt in operator_transactions(self._database):
            with attempt as connection:
                layout = ShardLayout(*connection.run("lock_layout", {"projection": projection})[0])
                then = _step(connection, projection, layout, _fence(connection, projection))
        self._database.announce()
        return layout != then and then.next_shards is None

    def _may_step(self, projection: str) -> bool:
        """Whether a change may go on, as far as a read without locks shows."""
        layout = self.layout(projection)
        if layout.next_shards is None or layout.barrier is None:
            return False
        at = {state.feed: state.position for state in self.states(projection)}
        found = {at.get(feed, 0) for feed in layout.feeds}
        return len(found) == 1 or max(found) > layout.barrier

    def find(self, projection: str) -> ShardLayout | None:
        with self._database.reading() as connection:
            rows = connection.run("read_layout", {"projection": projection})
        return ShardLayout(*rows[0]) if rows else None


def admit(connection: Connection, projection: str, feed: str) -> None:
    """Raises LayoutChanged unless the feed belongs to the projection's present layout.

    To be called in the transaction that creates the feed's checkpoint.
    """
    own = shards_in(feed)
    if own is None:
        return
    shards = _lock(connection, projection, own).shards
    if shards != own:
        raise LayoutChanged(
            f"projection {projection!r} runs in {shards} shards on this database, and this code "
            f"says {own}: register it with shards={shards}, or run holdfast reshard {projection} "
            "to change the database"
        )


def reset_layout(connection: Connection, definition: Definition) -> None:
    """Gives a projection that begins again the number of shards that the code says."""
    name = {"projection": definition.name}
    if connection.run("lock_layout", name):
        wanted = shard_feeds(definition.shards)
        for feed in wanted:
            connection.run("open_checkpoint", {**name, "feed": feed})  # Paused if the others are.
        for feed, *_ in connection.run("shard_states", name):
            if feed not in wanted:
                connection.run("end_shard", {**name, "feed": feed})
        _write(connection, definition.name, ShardLayout(definition.shards))


def feeds_of(connection: Connection, definition: Definition) -> list[str]:
    """The feeds on which a projection runs, or would run."""
    if not isinstance(definition.delivery, Log):
        return [definition.feed]
    return _lock(connection, definition.name, definition.shards).feeds


def known_feeds(connection: Connection, definition: Definition) -> list[str]:
    """The same, without a lock, and without recording how many shards a new projection has."""
    if not isinstance(definition.delivery, Log):
        return [definition.feed]
    rows = connection.run("read_layout", {"projection": definition.name})
    return ShardLayout(*rows[0]).feeds if rows else shard_feeds(definition.shards)


def _lock(connection: Connection, projection: str, shards: int) -> ShardLayout:
    """The layout, locked until the transaction ends; a new projection gets this many shards."""
    name = {"projection": projection}
    connection.run("begin_layout", {**name, "shards": shards})
    return ShardLayout(*connection.run("lock_layout", name)[0])


@dataclass(frozen=True, slots=True)
class _ShardAt:
    """A shard, locked until the transaction ends."""

    position: int
    needs_reset: bool


def _fence(connection: Connection, projection: str) -> dict[str, _ShardAt]:
    """Fences the runners of all shards; returns the shards by feed."""
    rows = connection.run("fence_shards", {"projection": projection})
    return {feed: _ShardAt(*rest) for feed, *rest in rows}


def _check_changeable(connection: Connection, projection: str) -> None:
    if connection.run("read_outbox", {"projection": projection, "feed": JOURNAL}):
        raise ConfigError(
            f"projection {projection!r} is delivered by an outbox on this database, which works on "
            "many streams at once already"
        )
    for _, _, _, _, _, paused_by, needs_reset in connection.run(
        "shard_states", {"projection": projection}
    ):
        if paused_by is not None:
            raise ConfigError(
                f"projection {projection!r} is paused by {paused_by}, and its shards must go on a "
                f"little before others take their place; holdfast resume {projection} first"
            )
        if needs_reset:
            raise ConfigError(
                f"projection {projection!r} has rows that its checkpoint does not know of; "
                f"holdfast reset {projection} begins again, with as many shards as the code says"
            )


def _positions(layout: ShardLayout, shards: Mapping[str, _ShardAt]) -> set[int]:
    return {shards[feed].position if feed in shards else 0 for feed in layout.feeds}


def _step(
    connection: Connection, projection: str, layout: ShardLayout, shards: Mapping[str, _ShardAt]
) -> ShardLayout:
    """Ends a change of layout if all shards are at one position; returns the layout.

    The position may be beyond the barrier: code without shards does not stop at it.
    """
    if layout.next_shards is None or any(shard.needs_reset for shard in shards.values()):
        return layout
    positions = _positions(layout, shards)
    if len(positions) == 1:
        (position,) = positions
        return _switch(connection, projection, layout, layout.next_shards, position=position)
    if layout.barrier is None or max(positions) > layout.barrier:
        layout = replace(layout, barrier=max(positions))
        _write(connection, projection, layout)
    return layout


def _switch(
    connection: Connection, projection: str, layout: ShardLayout, shards: int, *, position: int
) -> ShardLayout:
    """Replaces the shards, which have all come to one position, by new ones."""
    name = {"projection": projection}
    for feed in shard_feeds(shards):
        connection.run("open_checkpoint", {**name, "feed": feed})
    found = [(f, lane) for f, lane in connection.run("queued_lanes", name) if is_journal(f)]
    if found:
        moved = {
            "feed": [feed for feed, _ in found],
            "lane": [lane for _, lane in found],
            "to_feed": [shard_feed(shard_of(lane, shards), shards) for _, lane in found],
        }
        connection.run_columns("move_queued", name, moved)
        connection.run_columns("move_lanes", name, moved)
    events = 0
    for feed in layout.feeds:
        for (count,) in connection.run("end_shard", {**name, "feed": feed}):
            events += count
    for feed in shard_feeds(shards):
        begin: dict[str, Any] = {**name, "feed": feed, "position": position}
        connection.run("begin_shard", {**begin, "events": events})
        events = 0
    _write(connection, projection, ShardLayout(shards))
    return ShardLayout(shards)


def _write(connection: Connection, projection: str, layout: ShardLayout) -> None:
    names = {
        "projection": projection,
        "shards": layout.shards,
        "next_shards": layout.next_shards,
        "barrier": layout.barrier,
    }
    connection.run("write_layout", names)
