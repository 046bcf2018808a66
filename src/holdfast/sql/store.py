"""The store that the core's ports describe, written once for all databases."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from typing import Any
from uuid import UUID

from holdfast.core.errors import Fenced, ProjectionFaulted, StoreConflict, StoreUnavailable
from holdfast.core.ports import Advance, Checkpoint, Chunk, Clock, Fault, Lease, RowChange
from holdfast.core.projection import Definition, Tx
from holdfast.core.status import LastError, ProjectionStatus
from holdfast.core.table import Key, TableSpec
from holdfast.sql.database import Connection, Database, handled_database
from holdfast.sql.tables import clear_tables, prepare_tables

RESET_ATTEMPTS = 5
"""A reset may meet the running projection in a deadlock so often, before it says so."""

RATE_SECONDS = 10.0
"""A rate that was measured longer ago than this is history, and shown as 0."""


class SqlSession:
    """A runner's connection."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.connection = database.connect()

    def open_checkpoint(self, projection: str, feed: str) -> Checkpoint:
        names = {"projection": projection, "feed": feed}
        rows = self.connection.run("read_checkpoint", names)
        if not rows:
            with self.connection.transaction():
                self.connection.run("open_checkpoint", names)
            rows = self.connection.run("read_checkpoint", names)
        return Checkpoint(*rows[0])

    def prepare(self, definition: Definition) -> None:
        prepare_tables(self.database, self.connection, definition)

    def take_over(self, checkpoint: Checkpoint) -> Checkpoint:
        leader = f"{socket.gethostname()}:{os.getpid()}"
        with self.connection.transaction():
            rows = self.connection.run("take_over", {"id": checkpoint.id, "leader": leader})
        if not rows:
            raise ProjectionFaulted(
                f"projection {checkpoint.projection!r} has rows that its checkpoint does not know "
                "of, because a handler ended the transaction itself; mend the handler, then run "
                f"holdfast reset {checkpoint.projection}"
            )
        return Checkpoint(*rows[0])

    def check_epoch(self, checkpoint: Checkpoint) -> None:
        names = {"id": checkpoint.id, "epoch": checkpoint.epoch}
        if not self.connection.run("check_epoch", names):
            raise _fenced(checkpoint)

    def release(self, checkpoint: Checkpoint) -> None:
        with self.connection.transaction():
            self.connection.run("release", {"id": checkpoint.id, "epoch": checkpoint.epoch})

    def record_fault(self, checkpoint: Checkpoint, fault: Fault) -> None:
        with self.connection.transaction():
            self.connection.run(
                "record_fault",
                {
                    "id": checkpoint.id,
                    "epoch": checkpoint.epoch,
                    "error_type": _storable(fault.error_type),
                    "error_message": _storable(fault.error_message),
                    "error_stacktrace": _storable(fault.error_stacktrace),
                    "at": fault.at,
                    "position": fault.position,
                    "event_id": fault.event_id,
                    "event_type": fault.event_type,
                    "needs_reset": fault.needs_reset,
                },
            )

    def load_rows(
        self, table: TableSpec, keys: Sequence[Key]
    ) -> Mapping[Key, tuple[tuple[Any, ...], int]]:
        return self.connection.load_rows(table, keys)

    @contextmanager
    def transaction(self) -> Iterator[SqlWork]:
        with self.connection.transaction():
            work = SqlWork(self.database, self.connection)
            yield work
        if work.has_appended:
            self.database.announce()

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        found = self.database.unavailable(error)
        if found is None and self.connection.is_lost:
            # Whatever a handler has made of it.
            return StoreUnavailable("the connection was lost", connection_lost=True)
        return found

    def refused(self, error: BaseException) -> bool:
        return self.database.refused(error)

    def close(self) -> None:
        self.connection.close()


class SqlWork:
    """A runner's open transaction."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database, self._connection = database, connection
        self.has_appended = False

    @contextmanager
    def handling(self) -> Iterator[Tx]:
        with self._connection.handling() as tx:
            token = handled_database.set(self._database)
            try:
                yield tx
            finally:
                handled_database.reset(token)
            self.has_appended = tx.has_appended

    def check_intact(self) -> None:
        self._connection.check_intact()

    def write_rows(self, table: TableSpec, rows: Sequence[RowChange]) -> None:
        written = self._connection.write_rows(table, rows)
        if written != len(rows):
            raise Fenced(
                f"{len(rows) - written} rows of table {table.name!r} were at a later position: "
                "somebody else writes it"
            )

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None:
        self._connection.delete_rows(table, keys)

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        rows = self._connection.run(
            "advance",
            {
                "id": checkpoint.id,
                "epoch": checkpoint.epoch,
                "after": checkpoint.position,
                "position": to.position,
                "events": to.events,
                "event_id": to.last_event_id,
                "event_type": to.last_event_type,
                "at": to.at,
                "events_per_second": to.events_per_second,
            },
        )
        if not rows:
            raise _fenced(checkpoint)
        return Checkpoint(*rows[0])


class JournalSource:
    """The journal as a feed, read on a runner's connection."""

    def __init__(self, session: SqlSession) -> None:
        self._database, self._connection = session.database, session.connection
        self._heard = self._database.bell.rings

    def read(self, after: int, limit: int) -> Chunk:
        self._heard = self._database.bell.rings
        return self._database.settled(self._connection, after, limit)

    def head(self) -> int:
        return int(self._connection.run("head")[0][0])

    def wait(self, timeout_seconds: float) -> None:
        self._database.bell.wait(self._heard, timeout_seconds)


class SqlLeases:
    """Leases of one process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, checkpoint: Checkpoint) -> Lease | None:
        return self._database.lease(checkpoint)


def reset(database: Database, definition: Definition) -> list[str]:
    """Clears a projection's tables and checkpoint in one transaction; returns the tables' names.

    Whoever runs it now is fenced, and begins again at the first event.
    """
    for attempt in count(1):
        try:
            with database.writing() as connection:
                connection.run("reset_checkpoint", {"projection": definition.name})
                tables = clear_tables(connection, definition)
            break
        except StoreConflict:
            # A runner locks rows and then the checkpoint; this, of necessity, goes the other way.
            if attempt == RESET_ATTEMPTS:
                raise
    database.announce()
    return tables


def owned_tables(database: Database, definition: Definition) -> list[str]:
    """The tables that a projection has made."""
    with database.reading() as connection:
        rows = connection.run("owned_tables", {"projection": definition.name})
    return [name for name, _ in rows]


def depose(database: Database, projection: str) -> int:
    """Takes the projection from whoever runs it; returns how many leases it had."""
    with database.reading() as connection:
        found = {row[0]: row[5] for row in connection.run("status") if row[1] == projection}
    held = database.leased(found)
    for checkpoint_id, epoch in found.items():
        database.depose(checkpoint_id)
        with database.writing() as connection:
            # Under a later epoch somebody has taken over already, and is not meant.
            connection.run("raise_epoch", {"id": checkpoint_id, "epoch": epoch})
    return len(held)


def read_positions(database: Database, projection: str) -> list[tuple[int, str]]:
    """Position and state of a projection's checkpoints."""
    with database.reading() as connection:
        return [(row[4], row[3]) for row in connection.run("status") if row[1] == projection]


def read_status(database: Database, clock: Clock) -> list[ProjectionStatus]:
    """Every projection that has ever run on this database."""
    with database.reading() as connection:
        rows = connection.run("status")
        head = int(connection.run("head")[0][0])
    leased = database.leased([row[0] for row in rows])
    return [_status(row, head=head, is_led=row[0] in leased, now=clock.now()) for row in rows]


def _status(row: Sequence[Any], *, head: int, is_led: bool, now: datetime) -> ProjectionStatus:
    (_, projection, feed, state, position, epoch, leader, processed, rate, *rest) = row
    last_id, last_type, last_at, *error, waiting_since = rest
    processed_at = _moment(last_at)
    recent = processed_at is not None and (now - processed_at).total_seconds() <= RATE_SECONDS
    since = _moment(waiting_since)
    if state != "faulted":
        state = "running" if is_led else "stopped"
    return ProjectionStatus(
        projection=projection,
        feed=feed,
        state=state,
        position=position,
        head=head,
        lag_events=max(0, head - position),
        lag_seconds=0.0 if since is None else max(0.0, (now - since).total_seconds()),
        events_processed=processed,
        events_per_second=rate if recent else 0.0,
        epoch=epoch,
        leader=leader if is_led else None,
        last_event_id=_uuid(last_id),
        last_event_type=last_type,
        last_processed_at=processed_at,
        last_error=_last_error(error),
    )


def _last_error(columns: Sequence[Any]) -> LastError | None:
    type_, message, stacktrace, at, position, event_id, event_type = columns
    moment = _moment(at)
    if moment is None:
        return None
    return LastError(type_, message, stacktrace, moment, position, _uuid(event_id), event_type)


def _fenced(checkpoint: Checkpoint) -> Fenced:
    return Fenced(
        f"projection {checkpoint.projection!r} on feed {checkpoint.feed!r} was taken over after "
        f"epoch {checkpoint.epoch}, position {checkpoint.position}; nothing was written"
    )


def _storable(text: str) -> str:
    """Text that every database takes, whatever an exception's message holds."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _moment(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _uuid(value: Any) -> UUID | None:
    return UUID(value) if isinstance(value, str) else value
