"""A runner's session, and the leases of a process, written once for all databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import Fenced, ProjectionFaulted, StoreUnavailable
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.feed_names import is_ours
from holdfast.model.lane import Lane
from holdfast.model.rows.row_type import Key, TableSpec
from holdfast.model.sql_spec import SqlSpec
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.faults import Fault
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.queue_items import ParkedEvent
from holdfast.runtime.store.transaction import RowChanges
from holdfast.sql.database import Connection, Database, Row, handled_database
from holdfast.sql.process_name import has_died, process_name
from holdfast.sql.store.checkpoints import changed, fenced, of
from holdfast.sql.store.foreign_versions import SqlForeignVersions
from holdfast.sql.store.head_reader import HeadReader
from holdfast.sql.store.queue_rows import parked_event
from holdfast.sql.store.shard_layouts import admit
from holdfast.sql.store.sql_ranges import SqlRangeStatements
from holdfast.sql.store.tables import prepare_tables
from holdfast.sql.store.transaction import SqlTransaction
from holdfast.sql.values import moment


class SqlSession:
    """A runner's connection, which it may do without while there is nothing to do."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._connection: Connection | None = database.connect()
        self._leads: Checkpoint | None = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            connection = self.database.connect()
            try:
                if self._leads is not None:
                    _lead_on(connection, self._leads)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def rest(self) -> None:
        """Lets go of the connection; another one is opened when it is needed."""
        self.close()
        self._connection = None

    @property
    def is_resting(self) -> bool:
        return self._connection is None

    def open_checkpoint(self, projection: str, feed: str) -> Checkpoint:
        found = self.find_checkpoint(projection, feed)
        if found is None:
            names = {"projection": projection, "feed": feed}
            with self.connection.transaction():
                admit(self.connection, projection, feed)
                self.connection.run("open_checkpoint", names)
            found = self.find_checkpoint(projection, feed)
        if found is None:
            raise Fenced(f"feed {feed!r} of projection {projection!r} is no more")
        return found

    def find_checkpoint(self, projection: str, feed: str) -> Checkpoint | None:
        names = {"projection": projection, "feed": feed}
        rows = self.connection.run("read_checkpoint", names)
        return Checkpoint(*rows[0]) if rows else None

    def overrides(self, projection: str) -> dict[str, Any]:
        rows = self.connection.run("read_settings", {"projection": projection})
        return {name: msgspec.json.decode(value) for _, name, value, *_ in rows}

    def prepare(self, definition: Definition) -> None:
        prepare_tables(self.database, self.connection, definition)

    def take_over(
        self, checkpoint: Checkpoint, *, resumed: bool = False, ended_well: bool = False
    ) -> Checkpoint:
        died = not (resumed or ended_well) and has_died(checkpoint)
        names = {"id": checkpoint.id, "leader": process_name(), "resumed": resumed, "died": died}
        with self.connection.transaction():
            rows = self.connection.run("take_over", names)
            if rows:
                epoch = Checkpoint(*rows[0]).epoch
                self.connection.run("lead_on", {"id": checkpoint.id, "epoch": epoch})
        if not rows:
            if self.connection.run("read_outbox", of(checkpoint)):
                raise ProjectionFaulted(
                    f"projection {checkpoint.projection!r} is delivered by an outbox on this "
                    "database, and this code says delivery='log'; holdfast outbox forget "
                    f"{checkpoint.projection} goes on in the log, and holdfast reset "
                    f"{checkpoint.projection} begins again with what the code says"
                )
            now = self.connection.run("read_checkpoint", of(checkpoint))
            if not now or now[0][0] != checkpoint.id:
                raise fenced(checkpoint)  # Other shards have taken its place.
            raise needs_reset(checkpoint.projection)
        self._leads = Checkpoint(*rows[0])
        return self._leads

    def lead_on(self, checkpoint: Checkpoint) -> None:
        self._leads = checkpoint
        _lead_on(self.connection, checkpoint)

    def check_epoch(self, checkpoint: Checkpoint) -> None:
        names = {
            "id": checkpoint.id,
            "epoch": checkpoint.epoch,
            "revision": checkpoint.revision,
        }
        if not self.connection.run("check_epoch", names):
            raise changed(self.connection, checkpoint)

    def closed_lanes(self, checkpoint: Checkpoint) -> dict[str, Lane]:
        rows = self.connection.run("closed_lanes", of(checkpoint))
        return {lane: Lane(events, moment(due_at)) for lane, events, due_at in rows}

    def resolved_ahead(self, checkpoint: Checkpoint) -> set[int]:
        names = {**of(checkpoint), "position": checkpoint.position}
        return {row[0] for row in self.connection.run("resolved_ahead", names)}

    def lane_items(self, checkpoint: Checkpoint, lane: str, limit: int) -> list[ParkedEvent]:
        names = {**of(checkpoint), "lane": lane, "limit": limit}
        query = "lane_items" if is_ours(checkpoint.feed) else "lane_items_by_version"
        return [parked_event(self.connection, row) for row in self.connection.run(query, names)]

    @property
    def foreign_versions(self) -> SqlForeignVersions:
        return SqlForeignVersions(lambda: self.connection)

    def mark(self, checkpoint: Checkpoint, event: RawEvent, attempts: int) -> None:
        names = {
            "id": checkpoint.id,
            "epoch": checkpoint.epoch,
            "position": event.position,
            "attempts": attempts,
        }
        with self.connection.transaction():
            if not self.connection.run("mark_event", names):
                raise changed(self.connection, checkpoint)

    def note_wait(
        self,
        checkpoint: Checkpoint,
        until: datetime,
        reason: str,
        *,
        keep_mark: bool,
        failure: Fault | None = None,
    ) -> None:
        wait = {"until": until, "reason": reason, "keep_mark": keep_mark}
        names = {"id": checkpoint.id, "epoch": checkpoint.epoch}
        with self.connection.transaction():
            self.connection.run("record_wait", names | wait)
            if failure is not None:
                self.connection.run("record_failure", names | _failure(failure))

    def release(self, checkpoint: Checkpoint) -> None:
        with self.connection.transaction():
            self.connection.run("release", {"id": checkpoint.id, "epoch": checkpoint.epoch})

    def record_fault(self, checkpoint: Checkpoint, fault: Fault) -> None:
        names = {"id": checkpoint.id, "epoch": checkpoint.epoch, "needs_reset": fault.needs_reset}
        with self.connection.transaction():
            self.connection.run("record_fault", names | _failure(fault))

    def range_statements(self, spec: SqlSpec) -> SqlRangeStatements:
        return SqlRangeStatements(self.database, lambda: self.connection, spec)

    def has_rows(self, table: TableSpec) -> bool:
        return self.connection.has_rows(table)

    def load_rows(
        self, table: TableSpec, keys: Sequence[Key]
    ) -> Mapping[Key, tuple[tuple[Any, ...], int]]:
        return self.connection.load_rows(table, keys)

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        with self.connection.transaction():
            transaction = SqlTransaction(self.connection, self._advance)
            yield transaction
        if transaction.has_appended:
            self.database.announce()

    def advance(
        self, checkpoint: Checkpoint, to: Advance, rows: tuple[TableSpec, RowChanges] | None = None
    ) -> Checkpoint:
        moved = self.connection.run_at_once("advance", advanced(checkpoint, to), rows)
        if moved is None:
            with self.transaction() as transaction:
                if rows is not None:
                    transaction.write_rows(*rows)
                return transaction.advance(checkpoint, to)
        return self._moved(checkpoint, moved)

    def _advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Moves the checkpoint on in the open transaction."""
        return self._moved(checkpoint, self.connection.run("advance", advanced(checkpoint, to)))

    def _moved(self, checkpoint: Checkpoint, rows: Sequence[Row]) -> Checkpoint:
        if not rows:
            raise changed(self.connection, checkpoint)
        return Checkpoint(*rows[0])

    @contextmanager
    def working(self) -> Iterator[None]:
        token = handled_database.set(self.database)
        try:
            yield
        finally:
            handled_database.reset(token)

    def abort(self) -> None:
        if (connection := self._connection) is not None:
            connection.abort()

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        found = self.database.unavailable(error)
        if found is None and self._connection is not None and self._connection.is_lost:
            # Whatever a handler has made of it.
            return StoreUnavailable("the connection was lost", connection_lost=True)
        return found

    def interrupt(self) -> None:
        if (connection := self._connection) is not None:
            connection.interrupt()

    def refused(self, error: BaseException) -> bool:
        return self.database.refused(error)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class SqlLeases:
    """Leases of one process."""

    def __init__(self, database: Database, head_reader: HeadReader | None = None) -> None:
        self._database, self._head_reader = database, head_reader or HeadReader(database)

    def acquire(self, checkpoint: Checkpoint) -> Lease | None:
        return self._database.lease(checkpoint)

    def is_taken(self, checkpoint: Checkpoint) -> bool:
        return self._head_reader.is_leased(checkpoint)

    def cut_off(self, checkpoint: Checkpoint) -> None:
        self._database.cut_off(checkpoint.id)


def _lead_on(connection: Connection, checkpoint: Checkpoint) -> None:
    with connection.transaction():
        connection.run("lead_on", {"id": checkpoint.id, "epoch": checkpoint.epoch})


def _failure(fault: Fault) -> dict[str, Any]:
    """A failure as the statements read it."""
    return {
        "error_type": fault.error_type,
        "error_message": fault.error_message,
        "error_stacktrace": fault.error_stacktrace,
        "at": fault.at,
        "position": fault.position,
        "event_id": fault.event_id,
        "event_type": fault.event_type,
        "since": fault.since or fault.at,
        "attempts": fault.attempts,
        "limit": fault.limit,
    }


def needs_reset(projection: str) -> ProjectionFaulted:
    """Why a projection can't go on."""
    return ProjectionFaulted(
        f"projection {projection!r} has rows that its checkpoint does not know of, because a "
        "handler ended the transaction itself; fix the handler, then run "
        f"holdfast reset {projection}"
    )


def advanced(checkpoint: Checkpoint, to: Advance) -> dict[str, Any]:
    """A checkpoint's next value as the statement reads it."""
    return {
        "id": checkpoint.id,
        "epoch": checkpoint.epoch,
        "after": checkpoint.position,
        "revision": checkpoint.revision,
        "position": to.position,
        "events": to.events,
        "event_id": to.last_event_id,
        "event_type": to.last_event_type,
        "at": to.at,
        "events_per_second": to.events_per_second,
    }
