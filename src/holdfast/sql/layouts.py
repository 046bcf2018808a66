"""How many shards projections have, as the store knows it, and how that is changed."""

from __future__ import annotations

from typing import Any

from holdfast.core.definition import Definition
from holdfast.core.errors import ConfigError
from holdfast.core.feeds import is_journal, shard_feed, shard_feeds, shard_of, shards_in
from holdfast.core.shards import Layout, OtherLayout, ShardState
from holdfast.sql.audit import Changed
from holdfast.sql.changes import changes
from holdfast.sql.database import Connection, Database
from holdfast.sql.processes import process_name


class SqlLayouts:
    """The layouts of all projections."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def me(self) -> str:
        return process_name()

    def begin(self, projection: str, shards: int) -> Layout:
        found = self._find(projection)
        if found is None:
            with self._database.writing() as connection:
                connection.run("begin_layout", {"projection": projection, "shards": shards})
            found = self._find(projection)
            assert found is not None
        return found

    def layout(self, projection: str) -> Layout:
        return self._find(projection) or Layout(1)

    def states(self, projection: str) -> list[ShardState]:
        with self._database.reading() as connection:
            rows = connection.run("shard_states", {"projection": projection})
        return [ShardState(*row) for row in rows]

    def ask(self, projection: str, state: ShardState) -> None:
        names = {"projection": projection, "feed": state.feed, "leader": state.leader}
        with self._database.writing() as connection:
            connection.run("ask_for_shard", {**names, "by": self.me})
        self._database.announce()

    def plan(self, definition: Definition, shards: int, change: Changed) -> Layout:
        """Begins a change to so many shards, or takes one back; returns the layout."""
        name = {"projection": definition.name}
        for attempt in changes(self._database):
            with attempt as connection:
                connection.run("begin_layout", {**name, "shards": definition.shards})
                now = Layout(*connection.run("hold_layout", name)[0])
                if shards == (now.next_shards or now.shards):
                    return now
                rows = connection.run("revise_all", name)
                positions = {feed: position for feed, position, _ in rows}
                if paused := next((by for *_, by in rows if by is not None), None):
                    raise ConfigError(
                        f"projection {definition.name!r} is paused by {paused}, and its shards "
                        "must go on a little before others take their place; holdfast resume "
                        f"{definition.name} first"
                    )
                then = Layout(now.shards)
                if shards != now.shards:
                    barrier = max((positions.get(feed, 0) for feed in now.feeds), default=0)
                    then = Layout(now.shards, shards, barrier)
                _write(connection, definition.name, then)
                subject = {"from": now.shards, "to": shards, "barrier": then.barrier}
                change.write(connection, "reshard", definition.name, subject)
        self._database.announce()
        return then

    def change(self, projection: str) -> bool:
        name = {"projection": projection}
        if not _is_ready(self.layout(projection), self.states(projection)):
            return False
        for attempt in changes(self._database):
            with attempt as connection:
                layout = Layout(*connection.run("hold_layout", name)[0])
                rows = connection.run("revise_all", name)
                states = [ShardState(feed, None, position, "", None) for feed, position, _ in rows]
                if not _is_ready(layout, states) or layout.next_shards is None:
                    return False
                _switch(connection, projection, layout, layout.next_shards)
        self._database.announce()
        return True

    def _find(self, projection: str) -> Layout | None:
        with self._database.reading() as connection:
            rows = connection.run("read_layout", {"projection": projection})
        return Layout(*rows[0]) if rows else None


def admit(connection: Connection, projection: str, feed: str) -> None:
    """Raises OtherLayout unless a projection's shards are those that a feed is one of.

    To be called in the transaction that makes the feed's checkpoint.
    """
    own = shards_in(feed)
    if own is None:
        return
    name = {"projection": projection}
    connection.run("begin_layout", {**name, "shards": own})
    shards, *_ = connection.run("hold_layout", name)[0]
    if shards != own:
        raise OtherLayout(
            f"projection {projection!r} runs in {shards} shards on this database, and this code "
            f"says {own}: register it with shards={shards}, or run holdfast reshard {projection} "
            "to change the database"
        )


def reset_layout(connection: Connection, definition: Definition) -> None:
    """A projection that begins again has as many shards as the code says."""
    name = {"projection": definition.name}
    if connection.run("hold_layout", name):
        wanted = shard_feeds(definition.shards)
        for feed, *_ in connection.run("shard_states", name):
            if feed not in wanted:
                connection.run("end_shard", {**name, "feed": feed})
        _write(connection, definition.name, Layout(definition.shards))


def feeds_of(connection: Connection, definition: Definition) -> list[str]:
    """The feeds on which a projection runs, or would."""
    if definition.shards == 1:
        return [definition.feed]
    name = {"projection": definition.name}
    connection.run("begin_layout", {**name, "shards": definition.shards})
    return Layout(*connection.run("hold_layout", name)[0]).feeds


def _is_ready(layout: Layout, states: list[ShardState]) -> bool:
    if layout.next_shards is None or layout.barrier is None:
        return False
    positions = {state.feed: state.position for state in states}
    return all(positions.get(feed, 0) >= layout.barrier for feed in layout.feeds)


def _switch(connection: Connection, projection: str, layout: Layout, shards: int) -> None:
    """Other shards take the place of those that have come to the barrier."""
    name = {"projection": projection}
    for feed in shard_feeds(shards):
        connection.run("open_checkpoint", {**name, "feed": feed})
    lanes = [(f, lane) for f, lane in connection.run("queued_lanes", name) if is_journal(f)]
    for feed, lane in lanes:
        to_feed = shard_feed(shard_of(lane, shards), shards)
        moved = {**name, "feed": feed, "lane": lane, "to_feed": to_feed}
        connection.run("move_queued", moved)
        connection.run("move_lane", moved)
    events = 0
    for feed in layout.feeds:
        for (count,) in connection.run("end_shard", {**name, "feed": feed}):
            events += count
    for feed in shard_feeds(shards):
        begin: dict[str, Any] = {**name, "feed": feed, "position": layout.barrier}
        connection.run("begin_shard", {**begin, "events": events})
        events = 0
    _write(connection, projection, Layout(shards))


def _write(connection: Connection, projection: str, layout: Layout) -> None:
    names = {
        "projection": projection,
        "shards": layout.shards,
        "next_shards": layout.next_shards,
        "barrier": layout.barrier,
    }
    connection.run("write_layout", names)
