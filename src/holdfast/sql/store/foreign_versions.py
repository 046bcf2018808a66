"""What is known of streams that other systems write, on a runner's connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from holdfast.errors import Revised
from holdfast.model.event import RawEvent
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import ParkedEvent
from holdfast.sql.database import Connection
from holdfast.sql.store.checkpoints import fenced, of
from holdfast.sql.store.queue_rows import parked_event
from holdfast.sql.values import as_json, moment


class SqlForeignVersions:
    """Versions, ids and origins of feeds that other systems write."""

    def __init__(self, connected: Callable[[], Connection]) -> None:
        """`connected` is the connection that the session has now."""
        self._connected = connected

    @property
    def _connection(self) -> Connection:
        return self._connected()

    def read_versions(self, checkpoint: Checkpoint, streams: Sequence[str]) -> dict[str, int]:
        names = {"projection": checkpoint.projection, "streams": as_json(streams)}
        return dict(self._connection.run("read_versions", names))

    def last_time(self, checkpoint: Checkpoint, stream: str) -> datetime | None:
        names = {"projection": checkpoint.projection, "stream": stream}
        rows = self._connection.run("last_time", names)
        return moment(rows[0][0]) if rows else None

    def write_times(self, checkpoint: Checkpoint, times: Mapping[str, datetime]) -> None:
        projection = {"projection": checkpoint.projection}
        rows = [projection | {"stream": stream, "at": times[stream]} for stream in sorted(times)]
        self._connection.run_many("write_time", rows)

    def seen_ids(self, checkpoint: Checkpoint, ids: Sequence[UUID]) -> list[UUID]:
        names = {"projection": checkpoint.projection, "ids": as_json(ids)}
        return [UUID(row[0]) for row in self._connection.run("seen_ids", names)]

    def waiting_versions(self, checkpoint: Checkpoint, lane: str) -> tuple[int, int] | None:
        names = {**of(checkpoint), "lane": lane}
        ((first, last),) = self._connection.run("waiting_versions", names)
        return None if first is None else (first, last)

    def undecoded_items(self, checkpoint: Checkpoint, lane: str, limit: int) -> list[ParkedEvent]:
        names = {**of(checkpoint), "lane": lane, "limit": limit}
        rows = self._connection.run("undecoded_items", names)
        return [parked_event(self._connection, row) for row in rows]

    def renumber(self, checkpoint: Checkpoint, events: Mapping[int, RawEvent]) -> None:
        with self._connection.transaction():
            if not self._connection.run(
                "lock_checkpoint", {"id": checkpoint.id, "epoch": checkpoint.epoch}
            ):
                raise fenced(checkpoint)
            for id_, event in events.items():
                names = {"id": id_, "stream": event.stream, "version": event.version}
                self._connection.run("renumber_item", {**names, "event_type": event.type})

    def is_resolved(
        self, checkpoint: Checkpoint, stream: str, version: int, *, even_early: bool
    ) -> bool:
        names = {**of(checkpoint), "stream": stream, "version": version, "even_early": even_early}
        return bool(self._connection.run("is_resolved", names))

    def begin_feed(
        self, checkpoint: Checkpoint, origin: str, position: int
    ) -> tuple[str, Checkpoint]:
        names = {"id": checkpoint.id, "epoch": checkpoint.epoch}
        with self._connection.transaction():
            begin = {**names, "origin": origin, "position": position}
            rows = self._connection.run("begin_feed", begin)
            if rows:
                return origin, Checkpoint(*rows[0])
            self._connection.run("note_origin", {**names, "origin": origin})
            rows = self._connection.run("read_origin", names)
        if not rows:
            raise fenced(checkpoint)
        return str(rows[0][0]), checkpoint

    def begin_feeds(self, projection: str, feeds: Mapping[str, tuple[str, int]]) -> None:
        with self._connection.transaction():
            if self._connection.run("has_begun", {"projection": projection}):
                return
            for feed, (origin, position) in feeds.items():
                names = {"projection": projection, "feed": feed}
                self._connection.run("open_checkpoint", names)
                found = Checkpoint(*self._connection.run("read_checkpoint", names)[0])
                begin = {"origin": origin, "position": position, "epoch": found.epoch}
                self._connection.run("begin_feed", {**begin, "id": found.id})

    def write_versions(self, checkpoint: Checkpoint, steps: Mapping[str, tuple[int, int]]) -> None:
        previous, versions = zip(*steps.values(), strict=True)
        columns = {"stream": list(steps), "previous": previous, "version": versions}
        if self._connection.run_columns("write_versions", of(checkpoint), columns) != len(steps):
            raise Revised(
                f"streams of projection {checkpoint.projection!r} have moved on by another feed"
            )

    def write_seen(self, checkpoint: Checkpoint, ids: Mapping[UUID, int], *, keep: int) -> None:
        # What came into the queue from elsewhere has no position here.
        items = [
            {"id": id_, "position": position if position > 0 else checkpoint.position}
            for id_, position in ids.items()
        ]
        self._connection.run("write_seen", {**of(checkpoint), "events": as_json(items)})
        until = checkpoint.position - keep
        if until > 0:
            self._connection.run("forget_seen", {**of(checkpoint), "until": until})
