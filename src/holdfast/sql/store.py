"""The store that the core's ports describe, written once for all databases."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec

from holdfast.core.definition import JOURNAL, MESSAGES, Definition
from holdfast.core.errors import Fenced, HoldfastError, ProjectionFaulted, StoreUnavailable
from holdfast.core.event import RawEvent, kept
from holdfast.core.intake import Letter
from holdfast.core.ports import (
    Advance,
    Checkpoint,
    Chunk,
    Fault,
    HandlerTx,
    Lease,
    Revised,
    RowChange,
)
from holdfast.core.queue import (
    MAX_STACKTRACE_CHARACTERS,
    Attempt,
    Entry,
    Lane,
    Record,
    Setback,
    Waiting,
    clean,
)
from holdfast.core.table import Key, TableSpec
from holdfast.sql.database import Connection, Database, Row, handled_database
from holdfast.sql.tables import prepare_tables
from holdfast.sql.values import as_json, moment

_marks: dict[int, str] = {}


def _mark() -> str:
    """Tells this process from one that had its number before; a forked child has its own."""
    return _marks.setdefault(os.getpid(), uuid4().hex[:8])


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

    def take_over(
        self, checkpoint: Checkpoint, *, resumed: bool = False, ended_well: bool = False
    ) -> Checkpoint:
        died = not (resumed or ended_well) and _has_died(checkpoint)
        names = {"id": checkpoint.id, "leader": _name(), "resumed": resumed, "died": died}
        with self.connection.transaction():
            rows = self.connection.run("take_over", names)
        if not rows:
            if self.connection.run("read_outbox", _of(checkpoint)):
                raise ProjectionFaulted(
                    f"projection {checkpoint.projection!r} is delivered by an outbox on this "
                    "database, and this code says delivery='log'; holdfast reset "
                    f"{checkpoint.projection} begins again with what the code says"
                )
            raise needs_reset(checkpoint.projection)
        return Checkpoint(*rows[0])

    def check_epoch(self, checkpoint: Checkpoint) -> None:
        names = {
            "id": checkpoint.id,
            "epoch": checkpoint.epoch,
            "revision": checkpoint.revision,
        }
        if not self.connection.run("check_epoch", names):
            raise _changed(self.connection, checkpoint)

    def closed_lanes(self, checkpoint: Checkpoint) -> dict[str, Lane]:
        rows = self.connection.run("closed_lanes", _of(checkpoint))
        return {lane: Lane(events, moment(due_at)) for lane, events, due_at in rows}

    def resolved_ahead(self, checkpoint: Checkpoint) -> set[int]:
        names = {**_of(checkpoint), "position": checkpoint.position}
        return {row[0] for row in self.connection.run("resolved_ahead", names)}

    def lane_items(self, checkpoint: Checkpoint, lane: str, limit: int) -> list[Waiting]:
        names = {**_of(checkpoint), "lane": lane, "limit": limit}
        query = "lane_items" if is_ours(checkpoint.feed) else "lane_items_by_version"
        return [waiting_item(self.database, row) for row in self.connection.run(query, names)]

    def read_versions(self, checkpoint: Checkpoint, streams: Sequence[str]) -> dict[str, int]:
        names = {"projection": checkpoint.projection, "streams": as_json(streams)}
        return dict(self.connection.run("read_versions", names))

    def seen_ids(self, checkpoint: Checkpoint, ids: Sequence[UUID]) -> list[UUID]:
        names = {"projection": checkpoint.projection, "ids": as_json(ids)}
        return [UUID(row[0]) for row in self.connection.run("seen_ids", names)]

    def waiting_versions(self, checkpoint: Checkpoint, lane: str) -> tuple[int, int] | None:
        names = {**_of(checkpoint), "lane": lane}
        ((first, last),) = self.connection.run("waiting_versions", names)
        return None if first is None else (first, last)

    def is_resolved(self, checkpoint: Checkpoint, stream: str, version: int) -> bool:
        names = {**_of(checkpoint), "stream": stream, "version": version}
        return bool(self.connection.run("is_resolved", names))

    def begin_feed(
        self, checkpoint: Checkpoint, origin: str, position: int
    ) -> tuple[str, Checkpoint]:
        names = {"id": checkpoint.id, "epoch": checkpoint.epoch}
        with self.connection.transaction():
            begin = {**names, "origin": origin, "position": position}
            rows = self.connection.run("begin_feed", begin)
            if rows:
                return origin, Checkpoint(*rows[0])
            rows = self.connection.run("read_origin", names)
        if not rows:
            raise _fenced(checkpoint)
        return str(rows[0][0]), checkpoint

    def mark(self, checkpoint: Checkpoint, event: RawEvent, attempts: int) -> None:
        names = {
            "id": checkpoint.id,
            "epoch": checkpoint.epoch,
            "position": event.position,
            "attempts": attempts,
        }
        with self.connection.transaction():
            if not self.connection.run("mark_event", names):
                raise _changed(self.connection, checkpoint)

    def note_wait(
        self, checkpoint: Checkpoint, until: datetime, reason: str, *, keep_mark: bool
    ) -> None:
        with self.connection.transaction():
            self.connection.run(
                "note_wait",
                {
                    "id": checkpoint.id,
                    "epoch": checkpoint.epoch,
                    "until": until,
                    "reason": reason,
                    "keep_mark": keep_mark,
                },
            )

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
                    "error_type": fault.error_type,
                    "error_message": clean(fault.error_message, MAX_STACKTRACE_CHARACTERS),
                    "error_stacktrace": clean(fault.error_stacktrace, MAX_STACKTRACE_CHARACTERS),
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

    @contextmanager
    def working(self) -> Iterator[None]:
        token = handled_database.set(self.database)
        try:
            yield
        finally:
            handled_database.reset(token)

    def abort(self) -> None:
        self.connection.abort()

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        found = self.database.unavailable(error)
        if found is None and self.connection.is_lost:
            # Whatever a handler has made of it.
            return StoreUnavailable("the connection was lost", connection_lost=True)
        return found

    def interrupt(self) -> None:
        self.connection.interrupt()

    def refused(self, error: BaseException) -> bool:
        return self.database.refused(error)

    def close(self) -> None:
        self.connection.close()


class SqlWork:
    """A runner's open transaction."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database, self._connection = database, connection
        self.has_appended = False
        self._has_savepoint = False

    def hold(self, checkpoint: Checkpoint) -> Checkpoint:
        names = {"id": checkpoint.id, "epoch": checkpoint.epoch}
        rows = self._connection.run("hold", names)
        if not rows:
            raise _fenced(checkpoint)
        return Checkpoint(*rows[0])

    @contextmanager
    def handling(self) -> Iterator[HandlerTx]:
        with self._connection.handling() as tx:
            yield tx
            self.has_appended = tx.has_appended

    def savepoint(self) -> None:
        self._connection.savepoint(renewed=self._has_savepoint)
        self._has_savepoint = True

    def undo(self) -> None:
        self._connection.undo()

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
                "revision": checkpoint.revision,
                "position": to.position,
                "events": to.events,
                "event_id": to.last_event_id,
                "event_type": to.last_event_type,
                "at": to.at,
                "events_per_second": to.events_per_second,
            },
        )
        if not rows:
            raise _changed(self._connection, checkpoint)
        return Checkpoint(*rows[0])

    def enqueue(self, checkpoint: Checkpoint, entries: Sequence[Entry], at: datetime) -> set[int]:
        names = _of(checkpoint)
        positions = [entry.event.position for entry in entries]
        stretch = {"first": min(positions), "last": max(positions)}
        rows = self._connection.run("queued_positions", names | stretch)
        known = {row[0] for row in rows}
        new = [entry for entry in entries if entry.event.position not in known]
        self._connection.run_many("enqueue", [names | _item(entry) | {"at": at} for entry in new])
        return {entry.event.position for entry in new}

    def finish_items(self, ids: Sequence[int]) -> None:
        if ids:
            self._connection.run("finish_items", {"ids": as_json(ids)})

    def set_back(self, setback: Setback, at: datetime) -> None:
        names = {
            "id": setback.id,
            "status": setback.status,
            "retries": setback.retries,
            "next_attempt_at": setback.next_attempt_at,
            "at": at,
        }
        self._connection.run("fail_item", names | _errors(setback.record))

    def move_item(self, item_id: int, lane: str) -> None:
        self._connection.run("move_item", {"id": item_id, "lane": lane})

    def write_versions(self, checkpoint: Checkpoint, steps: Mapping[str, tuple[int, int]]) -> None:
        items = [
            {"stream": stream, "previous": before, "version": version}
            for stream, (before, version) in steps.items()
        ]
        rows = self._connection.run("write_versions", {**_of(checkpoint), "steps": as_json(items)})
        if _count(rows) != len(items):
            raise Revised(
                f"streams of projection {checkpoint.projection!r} have moved on by another feed"
            )

    def write_seen(self, checkpoint: Checkpoint, ids: Mapping[UUID, int], *, keep: int) -> None:
        items = [{"id": id_, "position": position} for id_, position in ids.items()]
        self._connection.run("write_seen", {**_of(checkpoint), "events": as_json(items)})
        until = checkpoint.position - keep
        if until > 0:
            self._connection.run("forget_seen", {**_of(checkpoint), "until": until})

    def send(self, letter: Letter) -> None:
        names = {
            "topic": letter.topic,
            "key": letter.key,
            "id": str(letter.id),
            "data": letter.data,
            "metadata": "{}",
            "at": letter.at,
        }
        if not self._connection.run("send", names):
            raise HoldfastError(f"nobody takes the messages of {letter.topic!r}; is it registered?")
        self.has_appended = True

    def write_lanes(self, checkpoint: Checkpoint, lanes: Mapping[str, Lane]) -> None:
        write_lanes(self._connection, _of(checkpoint), lanes)

    def open_lane(self, checkpoint: Checkpoint, lane: str) -> None:
        open_lane(self._connection, _of(checkpoint), lane)

    def wake_lanes(self, checkpoint: Checkpoint, stream: str, at: datetime) -> Sequence[str]:
        return wake_lanes(self._connection, _of(checkpoint), stream, at)


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

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        head = self.head()
        if checkpoint.position > head:
            raise HoldfastError(
                f"it has come to position {checkpoint.position}, and feed {checkpoint.feed!r} ends "
                f"at {head}: has the feed been cut, or restored from an older copy? What was "
                f"appended since would be passed over; holdfast reset {checkpoint.projection} "
                "begins again"
            )
        return checkpoint

    def wait(self, timeout_seconds: float) -> bool:
        has_rung = self._database.bell.wait(self._heard, timeout_seconds)
        self._heard = self._database.bell.rings
        return has_rung


class SqlLeases:
    """Leases of one process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, checkpoint: Checkpoint) -> Lease | None:
        return self._database.lease(checkpoint)

    def cut_off(self, checkpoint: Checkpoint) -> None:
        self._database.cut_off(checkpoint.id)


def is_ours(feed: str) -> bool:
    """Whether we number the feed ourselves, so that positions say what comes before what."""
    return feed in (JOURNAL, MESSAGES)


def _count(rows: Sequence[Row]) -> int:
    """How many rows were written: told by a count, or by a row for each."""
    return int(rows[0][0]) if len(rows) == 1 else len(rows)


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


def needs_reset(projection: str) -> ProjectionFaulted:
    """Why a projection can't go on."""
    return ProjectionFaulted(
        f"projection {projection!r} has rows that its checkpoint does not know of, because a "
        "handler ended the transaction itself; mend the handler, then run "
        f"holdfast reset {projection}"
    )


def _changed(connection: Connection, checkpoint: Checkpoint) -> Exception:
    """Why a checkpoint is not as its runner left it."""
    rows = connection.run("read_checkpoint", _of(checkpoint))
    if rows:
        now = Checkpoint(*rows[0])
        is_ours = (now.id, now.epoch) == (checkpoint.id, checkpoint.epoch)
        if is_ours and now.revision != checkpoint.revision:
            return Revised(f"projection {checkpoint.projection!r} was changed by a person")
    return _fenced(checkpoint)


def _has_died(checkpoint: Checkpoint) -> bool:
    """Whether the last leader has ended without a word, as far as it can be known from here."""
    if checkpoint.state != "running" or checkpoint.leader is None:
        return False
    host, pid, process = (*checkpoint.leader.split(":"), "", "")[:3]
    if host != socket.gethostname() or not pid.isdigit():
        return True  # It can't be seen from here.
    if int(pid) == os.getpid():
        # In a container every process may have the same number.
        return process != _mark()
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{_mark()}"


def _of(checkpoint: Checkpoint) -> dict[str, Any]:
    return {"projection": checkpoint.projection, "feed": checkpoint.feed}


def _item(entry: Entry) -> dict[str, Any]:
    """An entry as the statement reads it."""
    return {
        **{name: getattr(entry.event, name) for name in RawEvent.__struct_fields__},
        "kept": kept(entry.event),
        "lane": entry.lane,
        "status": entry.status,
        "next_attempt_at": entry.next_attempt_at,
        **_errors(entry.record),
    }


def _errors(record: Record) -> dict[str, Any]:
    last = record.history[-1] if record.history else None
    return {
        "attempts": record.attempts,
        "first_failed_at": record.first_failed_at,
        "last_failed_at": last.at if last else None,
        "error_type": last.error_type if last else None,
        "error_message": last.error_message if last else None,
        "error_stacktrace": last.error_stacktrace if last else None,
        "history": as_json(record.history),
    }


def waiting_item(database: Database, row: Row) -> Waiting:
    id_, status, next_attempt_at, retries, attempts, first_failed_at, history, *event, kept = row
    (raw,) = database.raw_events([tuple(event)])
    record = Record(
        attempts, moment(first_failed_at), msgspec.json.decode(history, type=tuple[Attempt, ...])
    )
    return Waiting(id_, status, moment(next_attempt_at), retries, raw, record, kept)


def _fenced(checkpoint: Checkpoint) -> Fenced:
    return Fenced(
        f"projection {checkpoint.projection!r} on feed {checkpoint.feed!r} was taken over after "
        f"epoch {checkpoint.epoch}, position {checkpoint.position}; nothing was written"
    )
