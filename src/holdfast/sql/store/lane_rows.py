"""The rows of closed lanes: set by runners, recounted for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.model.feed_names import is_ours
from holdfast.model.lane import UNKNOWN, Lane
from holdfast.sql.database import Connection
from holdfast.sql.values import AT_ONCE, as_json


def set_lanes(connection: Connection, whose: Mapping[str, Any], lanes: Mapping[str, Lane]) -> None:
    """Writes the rows of lanes as a runner knows them."""
    items = [{"lane": n, "events": x.events, "due_at": x.due_at} for n, x in lanes.items()]
    if items:
        connection.run("set_lanes", {**whose, "lanes": as_json(items)})


def open_lane(connection: Connection, whose: Mapping[str, Any], lane: str) -> None:
    """Deletes the row of a lane in which nothing waits any more."""
    connection.run("open_lane", {**whose, "lane": lane})


def recount(connection: Connection, projection: str, feed: str, lane: str) -> None:
    """Makes the row of a lane say what the queue holds, and ends its claim."""
    whose = {"projection": projection, "feed": feed}
    connection.run("unclaim_lane", {**whose, "lane": lane})
    if lane.startswith(UNKNOWN):
        wake_lanes(connection, whose, lane.removeprefix(UNKNOWN), AT_ONCE)
    names = {**whose, "lane": lane, "by_version": not is_ours(feed), "at": AT_ONCE}
    if not connection.run("recount_lane", names):
        open_lane(connection, whose, lane)


def wake_lanes(
    connection: Connection, whose: Mapping[str, Any], stream: str, at: datetime
) -> Sequence[str]:
    """Makes lanes due that have waited for events of a stream whose lane was unknown."""
    rows = connection.run("wake_lanes", {**whose, "stream": stream, "at": at})
    return [lane for (lane,) in rows]


def revoke_claims(connection: Connection, whose: Mapping[str, Any]) -> None:
    """Ends all claims of a projection: its workers can't finish."""
    connection.run("shorten_lock_timeout")
    connection.run("revoke_claims", {**whose, "at": AT_ONCE})
    connection.run("unclaim_all", whose)


def waiting(connection: Connection, projection: str, feed: str, lane: str) -> int:
    """How many events wait in a lane."""
    names = {"projection": projection, "feed": feed, "lane": lane}
    return int(connection.run("lane_count", names)[0][0])
