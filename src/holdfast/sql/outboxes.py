"""Outbox delivery as people see it: what waits, who works, and in which mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from holdfast.core.definition import MODES, Mode
from holdfast.core.errors import ConfigError
from holdfast.core.ports import Clock
from holdfast.core.queue import OUTSTANDING, QueueItem, QueueSelection, Status
from holdfast.sql.audit import write_audit
from holdfast.sql.database import Database, refuse_handlers
from holdfast.sql.queue import Queue
from holdfast.sql.values import AT_ONCE, moment

ALIVE_SECONDS = 10.0
"""A process that was seen so lately is taken for alive."""


class RelayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A process that delivers a projection, or has done so, and what came of its attempts.

    In shadow mode it has `looked` at events, and could not decode the `unreadable` ones.
    """

    process: str
    is_alive: bool
    started_at: datetime
    seen_at: datetime
    applied: int
    failed: int
    looked: int
    unreadable: int


class OutboxReport(msgspec.Struct, frozen=True, kw_only=True):
    """One outbox projection. `depth` counts its items by status, `backfill_left` is in positions.

    `applied` and `failed` count attempts, over all processes that have ever worked. `items` are the
    oldest in the statuses that were asked for.
    """

    projection: str
    mode: Mode
    backfill_left: int
    depth: dict[str, int]
    oldest_pending_seconds: float
    applied: int
    failed: int
    relays: tuple[RelayStatus, ...]
    items: tuple[QueueItem, ...]


class Outbox:
    """The outbox projections of an App's database."""

    def __init__(
        self,
        database: Database,
        queue: Queue,
        *,
        clock: Clock,
        prepare: Callable[[], None],
        feed: str,
    ) -> None:
        self._database, self._queue, self._clock = database, queue, clock
        self._prepare, self._feed = prepare, feed

    def report(self, *, status: Status | None = None, limit: int = 10) -> Sequence[OutboxReport]:
        """How each projection stands, with its oldest items in a status, or that have failed."""
        self._prepare()
        now = self._clock.now()
        with self._database.reading() as connection:
            found = connection.run("outboxes")
            relays = connection.run("relays")
        counts = self._queue.stats()
        reports = []
        for projection, feed, mode, until, position in found:
            own = [count for count in counts if count.projection == projection]
            depth: dict[str, int] = dict.fromkeys(OUTSTANDING, 0)
            for count in own:
                depth[count.status] = depth.get(count.status, 0) + count.items
            ages = [count.oldest_seconds for count in own if count.status in OUTSTANDING]
            workers = tuple(
                RelayStatus(
                    process=process,
                    is_alive=_seconds(now, seen) <= ALIVE_SECONDS,
                    started_at=_moment(started),
                    seen_at=_moment(seen),
                    applied=applied,
                    failed=failed,
                    looked=looked,
                    unreadable=unreadable,
                )
                for name, of, process, started, seen, applied, failed, looked, unreadable in relays
                if (name, of) == (projection, feed)
            )
            reports.append(
                OutboxReport(
                    projection=projection,
                    mode=mode,
                    backfill_left=0 if until is None else max(0, until - position),
                    depth=depth,
                    oldest_pending_seconds=max(ages, default=0.0),
                    applied=sum(worker.applied for worker in workers),
                    failed=sum(worker.failed for worker in workers),
                    relays=workers,
                    items=tuple(self._items(projection, status, limit)),
                )
            )
        return reports

    def set_mode(self, projection: str, mode: Mode, *, by: str, note: str | None = None) -> bool:
        """Changes how a projection is delivered, in all processes; returns whether it was another.

        When this returns, whoever was at work in another mode can't finish.
        """
        if mode not in MODES:
            raise ConfigError(f"mode is {mode!r}; it is one of {', '.join(MODES)}")
        refuse_handlers(self._database, "a projection")
        self._prepare()
        whose = {"projection": projection, "feed": self._feed}
        with self._database.changing() as connection:
            if not connection.run("revise", whose) or not connection.run("read_outbox", whose):
                raise ConfigError(
                    f"projection {projection!r} is not delivered by an outbox on this database; "
                    "@app.projection(delivery='outbox') registers it with its first run"
                )
            changed = bool(connection.run("set_mode", {**whose, "mode": mode}))
            if changed:
                connection.run("revoke_lanes", {**whose, "at": AT_ONCE})
                connection.run("unclaim_all", whose)
                write_audit(
                    connection,
                    at=self._clock.now(),
                    by=by,
                    action="mode",
                    projection=projection,
                    subject={"mode": mode},
                    note=note,
                )
        self._database.announce()
        return changed

    def _items(self, projection: str, status: Status | None, limit: int) -> Sequence[QueueItem]:
        statuses: Sequence[Status] = ("failed", "dead") if status is None else (status,)
        found = [
            item
            for one in statuses
            for item in self._queue.list(
                QueueSelection(projection=projection, status=one), limit=limit
            )
        ]
        return sorted(found, key=lambda item: item.id)[:limit]


def _moment(value: object) -> datetime:
    at = moment(value)
    assert at is not None
    return at


def _seconds(now: datetime, at: object) -> float:
    return (now - _moment(at)).total_seconds()
