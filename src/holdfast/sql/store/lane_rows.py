"""The rows of closed lanes, and which order they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.model.feed_names import is_ours
from holdfast.model.lane import UNKNOWN, Lane
from holdfast.runtime.store.queue_items import EARLY
from holdfast.sql.database import Connection
from holdfast.sql.values import AT_ONCE, as_json, moment


def write_lanes(
    connection: Connection, whose: Mapping[str, Any], lanes: Mapping[str, Lane]
) -> None:
    """Closes lanes of a projection on a feed, or changes what is known of them."""
    items = [{"lane": n, "events": x.events, "due_at": x.due_at} for n, x in lanes.items()]
    if items:
        connection.run("write_lanes", {**whose, "lanes": as_json(items)})


def open_lane(connection: Connection, whose: Mapping[str, Any], lane: str) -> None:
    """Nothing waits in the lane any more."""
    connection.run("open_lanes", {**whose, "lanes": as_json([lane])})


def wake_lanes(
    connection: Connection, whose: Mapping[str, Any], stream: str, at: datetime
) -> Sequence[str]:
    """What waited for events of a stream whose lane was unknown may go on."""
    rows = connection.run("wake_lanes", {**whose, "stream": stream, "at": at})
    return [lane for (lane,) in rows]


def waiting(connection: Connection, projection: str, feed: str, lane: str) -> int:
    """How many events wait in a lane."""
    names = {"projection": projection, "feed": feed, "lane": lane}
    return int(connection.run("lane_count", names)[0][0])


def refresh(connection: Connection, projection: str, feed: str, lane: str) -> None:
    """Makes the lane's row say what the queue holds."""
    whose = {"projection": projection, "feed": feed}
    connection.run("unclaim_lane", whose | {"lane": lane})
    if lane.startswith(UNKNOWN):
        wake_lanes(connection, whose, lane.removeprefix(UNKNOWN), AT_ONCE)
    count = waiting(connection, projection, feed, lane)
    if count == 0:
        open_lane(connection, whose, lane)
        return
    query = "lane_head" if is_ours(feed) else "lane_head_by_version"
    status, next_attempt_at, error = connection.run(query, whose | {"lane": lane})[0]
    due_at = {"pending": AT_ONCE, "failed": moment(next_attempt_at) or AT_ONCE}.get(status)
    if error == EARLY:
        due_at = AT_ONCE  # It may have its turn now.
    write_lanes(connection, whose, {lane: Lane(count, due_at)})
