"""Where a projection of the journal begins. It is decided once, and kept for a reset."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.errors import ConfigError
from holdfast.model.definition import Definition
from holdfast.model.start import Start
from holdfast.sql.database import Connection
from holdfast.sql.store.shard_layouts import admit


def decide_start(
    connection: Connection,
    whose: dict[str, str],
    start: Start,
    *,
    now: datetime | None,
    position: int,
) -> int:
    """Where a projection begins, in the open transaction; `position`: where it is.

    All its shards begin at the place that was decided for the first of them.
    """
    admit(connection, **whose)
    name = {"projection": whose["projection"]}
    ((decided,),) = connection.run("read_start", name)
    if decided is None:
        decided = 0 if position else position_of(connection, "start", start, now)
        connection.run("write_start", {**name, "position": decided})
    return int(decided)


def restart(connection: Connection, definition: Definition, feeds: Sequence[str]) -> None:
    """A reset goes back to where the projection has begun; a place in the code is found again."""
    name = {"projection": definition.name}
    if definition.start == "now":
        for (decided,) in connection.run("read_start", name):
            for feed in feeds if decided else ():
                connection.run("pass_position", {**name, "feed": feed, "position": decided})
        return
    connection.run("write_start", {**name, "position": 0 if definition.start == "start" else None})


def position_of(connection: Connection, name: str, place: Start, now: datetime | None) -> int:
    """The position of a place in the journal; raises ConfigError if that is still to come.

    `now` is needed for a time.
    """
    if place == "start":
        return 0
    # Behind the settled end, an event may still appear; and no checkpoint is behind the last one.
    end = min(int(connection.run("head")[0][0]), connection.settled_end())
    if place == "now":
        return end
    if isinstance(place, datetime):
        assert now is not None
        if place > now:
            raise ConfigError(f"{name} is {place.isoformat()}, which is still to come")
        rows = connection.run("first_since", {"at": place})
        return min(int(rows[0][0]) - 1, end) if rows else end
    if place > end:
        raise ConfigError(f"{name} is position {place}, and the journal ends at {end}")
    return place
