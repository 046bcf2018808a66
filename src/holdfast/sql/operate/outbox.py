"""Outbox delivery for operators: its state, its mode, its workers; and sending messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import AppendError, ConfigError
from holdfast.model import arguments
from holdfast.model.definition import MODES, Mode
from holdfast.model.event import NewEvent, check_stream
from holdfast.model.feed_names import JOURNAL
from holdfast.runtime.status import ProjectionStatus
from holdfast.runtime.store.queue_items import OUTSTANDING, QueueItem, QueueSelection, Status
from holdfast.sql.database import Connection, Database, Row, handled_database, refuse_handlers
from holdfast.sql.journal.encode import EventEncoder
from holdfast.sql.journal.join import joined, joined_async
from holdfast.sql.operate.deliveries import (
    Deliveries,
    RelayStatus,
    read_deliveries,
    read_relays,
)
from holdfast.sql.operate.queue import Queue
from holdfast.sql.outbox.claims import database_time
from holdfast.sql.outbox.registration import publish
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.lane_rows import revoke_claims
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.threads import in_thread

FORGET = (
    "reset_lanes",
    "reset_queue",
    "forget_outbox_types",
    "forget_outbox",
    "forget_settings",
    "forget_deliveries",
)
FAR_AHEAD = datetime.max.replace(tzinfo=UTC)


class OutboxReport(msgspec.Struct, frozen=True, kw_only=True):
    """One outbox projection. `depth` counts its items by status, `backfill_left` is in positions.

    `applied` and `failed` count attempts since the start or the last reset, over all processes.
    `items` are the oldest in the statuses that were asked for.
    """

    projection: str
    mode: Mode
    backfill_left: int
    depth: dict[str, int]
    lag_seconds: float
    stuck_events: int
    stuck_seconds: float
    applied: int
    failed: int
    relays: tuple[RelayStatus, ...]
    items: tuple[QueueItem, ...]


class Outbox:
    """The outbox projections and the sinks of an App's database, and messages for the sinks."""

    def __init__(
        self,
        database: Database,
        queue: Queue,
        *,
        records: EventEncoder,
        prepare: Callable[[], None],
        check_prepared: Callable[[], None],
        has_tables: Callable[[], bool],
        replay: Callable[[QueueItem, ChangedBy], None],
        statuses: Callable[[], Sequence[ProjectionStatus]],
    ) -> None:
        self._database, self._queue, self._records = database, queue, records
        self._prepare, self._check_prepared, self._replay = prepare, check_prepared, replay
        self._has_tables, self._clock = has_tables, records.clock
        self._statuses = statuses

    def send(
        self,
        topic: str,
        payload: Any,
        *,
        key: str,
        id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        connection: Any = None,
    ) -> UUID:
        """Sends a message to every sink that takes the topic; returns its id.

        It is delivered at least once, with the same id, and in order among the messages of its key.
        A message of the same topic with an `id` that was given before, in the last 30 days, is the
        same message, and is not sent again.
        `payload` is a dict, or an event whose type has the topic's name. `connection` joins an open
        transaction as `journal.append` does: the message is sent if and only if it commits. Raises
        AppendError if no sink takes the topic.
        """
        message = self._message(topic, payload, key, id, metadata)
        if connection is not None:
            self._check_prepared()
            return _sent(message, joined(connection, self._database)("send", message))
        if handled_database.get() is self._database:
            raise AppendError(
                "a handler sends in its own transaction, or the message would be sent again when "
                "the event is tried again; pass connection=tx"
            )
        self._prepare()
        with self._database.appending(key) as own:
            sent = _sent(message, own.run("send", message))
        self._database.announce()
        return sent

    async def send_async(
        self,
        topic: str,
        payload: Any,
        *,
        key: str,
        id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        connection: Any = None,
    ) -> UUID:
        """As `send`, for asyncio; also joins psycopg's and SQLAlchemy's async connections."""
        if connection is None:
            return await in_thread(self.send, topic, payload, key=key, id=id, metadata=metadata)
        message = self._message(topic, payload, key, id, metadata)
        await in_thread(self._check_prepared)
        run = joined_async(connection, self._database)
        return _sent(message, await run("send", message))

    def report(self, *, status: Status | None = None, limit: int = 10) -> Sequence[OutboxReport]:
        """The state of each projection, with its oldest items in a status, or oldest failures."""
        arguments.whole("limit", limit)
        if not self._has_tables():
            return []
        with self._database.reading() as connection:
            found = connection.run("outboxes")
            relays = read_relays(connection, database_time(connection))
            deliveries = read_deliveries(connection)
        counts = self._queue.stats()
        statuses = {state.projection: state for state in self._statuses()}
        reports = []
        for projection, feed, mode, until, position in found:
            done, state = deliveries.get((projection, feed), Deliveries()), statuses[projection]
            own = [count for count in counts if count.projection == projection]
            depth: dict[str, int] = dict.fromkeys(OUTSTANDING, 0)
            for count in own:
                depth[count.status] = depth.get(count.status, 0) + count.items
            workers = tuple(relay for names, relay in relays if names == (projection, feed))
            reports.append(
                OutboxReport(
                    projection=projection,
                    mode=mode,
                    backfill_left=0 if until is None else max(0, until - position),
                    depth=depth,
                    lag_seconds=state.lag_seconds,
                    stuck_events=state.stuck_events,
                    stuck_seconds=state.stuck_seconds,
                    applied=done.applied,
                    failed=done.failed,
                    relays=workers,
                    items=tuple(self._items(projection, status, limit)),
                )
            )
        return reports

    def set_mode(self, projection: str, mode: Mode, *, by: str, note: str | None = None) -> bool:
        """Changes how a projection is delivered, in all processes; returns whether it was another.

        When this returns, workers that began in another mode can't finish.
        """
        if mode not in MODES:
            raise ConfigError(f"mode is {mode!r}; it is one of {', '.join(MODES)}")
        refuse_handlers(self._database, "a projection")
        self._prepare()
        for attempt in operator_transactions(self._database):
            with attempt as connection:
                whose = _whose(connection, projection)
                changed = bool(connection.run("set_mode", {**whose, "mode": mode}))
                if changed:
                    revoke_claims(connection, whose)
                    self._by(by, note).write(connection, "mode", projection, {"mode": mode})
        self._database.announce()
        return changed

    def forget(self, projection: str, *, by: str, note: str | None = None) -> int:
        """Ends outbox delivery for a projection or a sink that is gone from the code.

        Nothing is queued for it from then on, and its waiting items are deleted; returns their
        number. Its tables and its checkpoint stay.
        """
        refuse_handlers(self._database, "a projection")
        self._prepare()
        for attempt in operator_transactions(self._database):
            with attempt as connection:
                connection.run("lock_registry")
                whose = _whose(connection, projection)
                ((items,),) = connection.run("count_waiting", whose)
                if whose["feed"] == JOURNAL:
                    # A later registration under this name, or the log, goes on after this.
                    ((head,),) = connection.run("head")
                    connection.run("pass_position", {**whose, "position": head})
                connection.run("shorten_lock_timeout")
                for statement in FORGET:
                    connection.run(statement, {"projection": projection})
                connection.run("forget_relays", {**whose, "before": FAR_AHEAD})
                connection.run("record_registration")
                self._by(by, note).write(connection, "forget", projection, {"items": items})
        publish(self._database)
        return int(items)

    def replay(self, item_id: int, *, by: str, note: str | None = None) -> QueueItem | None:
        """Tries one item now, in this process, regardless of its attempts and its next attempt.

        Returns None if it was applied, else the item with its new error, on which its policy has
        decided. The attempt counts as one more: an item that was dead is dead again if it fails.
        The item must be the head of its lane, and no worker may be trying it. Workers don't get it
        meanwhile.
        """
        item = self._queue.get(item_id)
        with self._database.reading() as connection:
            names = {"projection": item.projection, "feed": item.feed}
            if not connection.run("read_outbox", names):
                raise ConfigError(
                    f"projection {item.projection!r} reads its feed, and tries what waits by "
                    f"itself; holdfast queue requeue {item_id} has it tried at once"
                )
        if item.status not in OUTSTANDING:
            raise ConfigError(f"item {item_id} is {item.status}: there is nothing to replay")
        self._replay(item, self._by(by, note))
        self._database.announce()
        left = [i for i in self._queue.list(QueueSelection(ids=(item_id,))) if i.status != "done"]
        return left[0] if left else None

    def _by(self, by: str, note: str | None) -> ChangedBy:
        return ChangedBy(by, self._clock.now(), note)

    def _message(
        self,
        topic: str,
        payload: Any,
        key: str,
        id: UUID | None,
        metadata: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        record = self._records.record(NewEvent(payload, type=topic, id=id), metadata)
        return {
            "topic": record.type,
            "key": check_stream(key),
            "id": str(record.id),
            "data": record.data,
            "metadata": record.metadata,
            "at": record.recorded_at,
            "once": id is not None,
        }

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


def _sent(message: Mapping[str, Any], rows: Sequence[Row]) -> UUID:
    if not rows:
        raise AppendError(
            f"no sink takes topic {message['topic']!r} on this database; register one with "
            "@app.sink(), and run it, or app.migrate(), before anybody sends"
        )
    return UUID(message["id"])


def _whose(connection: Connection, projection: str) -> dict[str, str]:
    """The names of an outbox projection, whose checkpoint is locked from now on."""
    for name, feed, *_ in connection.run("outboxes"):
        whose = {"projection": name, "feed": feed}
        if name == projection and connection.run("bump_revision", whose):
            return whose
    raise ConfigError(
        f"projection {projection!r} is not delivered by an outbox on this database; "
        "@app.projection(delivery='outbox') registers it with its first run"
    )
