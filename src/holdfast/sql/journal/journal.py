"""The journal: an append-only event store in which every event has a position."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import AppendError, ConcurrencyError, StoreConflict
from holdfast.model import arguments
from holdfast.model.event import Appended, Event, RawEvent, check_stream
from holdfast.model.event_types import EventTypes
from holdfast.sql.database import Database, Row, Run, handled_database
from holdfast.sql.journal.encode import EncodedEvent, EventEncoder
from holdfast.sql.journal.join import joined, joined_async
from holdfast.sql.journal.positions import check_tail
from holdfast.sql.values import as_json
from holdfast.threads import in_thread

READ_EVENTS = 1_000
"""Maximum of events in one read."""

TAIL_SECONDS = 1.0
"""Interval at which a tail reads without a wake-up."""

TABLES_SECONDS = 0.1
"""Interval at which a tail looks whether there is a journal."""

Steps = Generator[tuple[str, Mapping[str, Any]], list[Row], Appended]


class Journal:
    """Appends and reads events. Safe to use from many threads."""

    def __init__(
        self,
        database: Database,
        *,
        types: EventTypes,
        records: EventEncoder,
        prepare: Callable[[], None],
        check_prepared: Callable[[], None],
        has_tables: Callable[[], bool],
        apply_inline: Callable[[str, Sequence[str]], frozenset[str]] = lambda *_: frozenset(),
    ) -> None:
        self._database, self._types, self.records = database, types, records
        self._prepare, self._check_prepared = prepare, check_prepared
        self._has_tables, self._apply_inline = has_tables, apply_inline

    def append(
        self,
        stream: str,
        events: Sequence[Any],
        *,
        expected_version: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        connection: Any = None,
    ) -> Appended:
        """Appends events to a stream, all or none, and returns their positions.

        `expected_version`: None takes any, 0 means that the stream must not exist yet, a number
        that it must be at exactly this version; else ConcurrencyError. `metadata` goes to every
        event. Events with the ids of an earlier append change nothing and return its result.
        `connection` joins an open transaction of sqlite3, psycopg, SQLAlchemy or Django, or a
        handler's `tx`: the events are appended if and only if it commits. Without it, the result
        names the outbox projections that have applied the events by then.
        """
        records = self._checked(stream, events, expected_version, metadata)
        if connection is not None:
            self._check_prepared()
            steps = append_steps(stream, records, expected_version)
            return drive(steps, joined(connection, self._database))
        if handled_database.get() is self._database:
            raise AppendError(
                "an append inside a handler must be in the handler's transaction, or it would be "
                "made again when the events are applied again; pass connection=tx to join it. A "
                "TableProjection has no tx, because it only folds: append in a Projection"
            )
        self._prepare()
        try:
            appended = self._append(stream, records, expected_version)
        except StoreConflict:
            # Another transaction has just appended events of these ids: now they are visible.
            appended = self._append(stream, records, expected_version)
        self._database.announce()
        applied = self._apply_inline(stream, [record.type for record in records])
        return msgspec.structs.replace(appended, applied=applied) if applied else appended

    async def append_async(
        self,
        stream: str,
        events: Sequence[Any],
        *,
        expected_version: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        connection: Any = None,
    ) -> Appended:
        """As `append`, for asyncio; also joins psycopg's and SQLAlchemy's async connections."""
        if connection is None:
            return await in_thread(
                self.append, stream, events, expected_version=expected_version, metadata=metadata
            )
        records = self._checked(stream, events, expected_version, metadata)
        steps = append_steps(stream, records, expected_version)
        await in_thread(self._check_prepared)
        run = joined_async(connection, self._database)
        try:
            name, params = next(steps)
            while True:
                name, params = steps.send(await run(name, params))
        except StopIteration as done:
            result: Appended = done.value
            return result

    def wake(self) -> None:
        """Wakes readers now. Worth calling after the commit of a transaction that was joined."""
        self._database.announce()

    def read(self, *, after: int = 0, limit: int | None = None) -> Iterator[Event[Any]]:
        """Settled events after a position, in order, in chunks; ends where the journal does now."""
        return map(self._types.decode, self.read_raw(after=after, limit=limit))

    def read_raw(self, *, after: int = 0, limit: int | None = None) -> Iterator[RawEvent]:
        """As `read`, with payloads as they are stored."""
        arguments.whole("after", after)
        arguments.whole_or_none("limit", limit)
        if not self._has_tables():
            return
        left = limit
        while left is None or left > 0:
            wanted = READ_EVENTS if left is None else min(left, READ_EVENTS)
            with self._database.reading() as connection:
                chunk = connection.settled(after, wanted)
            yield from chunk.events
            if chunk.held or len(chunk.events) < wanted:
                return
            after = chunk.events[-1].position
            left = None if left is None else left - len(chunk.events)

    def read_stream(
        self, stream: str, *, after_version: int = 0, limit: int | None = None
    ) -> Iterator[Event[Any]]:
        """One stream's events after a version, in order."""
        raw = self.read_stream_raw(stream, after_version=after_version, limit=limit)
        return map(self._types.decode, raw)

    def read_stream_raw(
        self, stream: str, *, after_version: int = 0, limit: int | None = None
    ) -> Iterator[RawEvent]:
        """As `read_stream`, with payloads as they are stored."""
        check_stream(stream)
        arguments.whole("after_version", after_version)
        arguments.whole_or_none("limit", limit)
        if not self._has_tables():
            return
        left = limit
        while left is None or left > 0:
            wanted = READ_EVENTS if left is None else min(left, READ_EVENTS)
            params = {"stream": stream, "after": after_version, "limit": wanted}
            with self._database.reading() as connection:
                events = connection.raw_events(connection.run("read_stream", params))
            yield from events
            if len(events) < wanted:
                return
            after_version = events[-1].version
            left = None if left is None else left - len(events)

    def stream_version(self, stream: str) -> int:
        """The version a stream is at; 0 if it is not there."""
        names = {"stream": check_stream(stream)}
        if not self._has_tables():
            return 0
        with self._database.reading() as connection:
            return int(connection.run("stream_version", names)[0][0])

    def head(self) -> int:
        """The largest position there is; 0 for an empty journal."""
        if not self._has_tables():
            return 0
        with self._database.reading() as connection:
            return int(connection.run("head")[0][0])

    def tail(
        self, *, after: int | None = None, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event[Any]]:
        """Events after a position (the head by default) as they come, until `stop()` is true.

        Raises HoldfastError where the journal has not come to the position, or was replaced.
        """
        return map(self._types.decode, self.tail_raw(after=after, stop=stop))

    def tail_raw(
        self, *, after: int | None = None, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[RawEvent]:
        """As `tail`, with payloads as they are stored."""
        arguments.whole_or_none("after", after)
        while not self._has_tables():
            after = after or 0
            if stop():
                return
            time.sleep(TABLES_SECONDS)
        if after is None:
            with self._database.reading() as connection:
                after = connection.settled_end()
        self._database.listen()
        last_id = None
        while not stop():
            heard = self._database.wake.count
            self._prepare()
            with self._database.reading() as connection:
                check_tail(connection, after, last_id)
            for event in self.read_raw(after=after):
                after, last_id = event.position, event.id_text
                yield event
                if stop():
                    return
            self._database.wake.wait(heard, TAIL_SECONDS)

    @contextmanager
    def transaction(self) -> Iterator[Run]:
        """Several appends in one transaction: drive each with the function that this yields."""
        self._prepare()
        with self._database.writing() as connection:
            yield connection.run
        self._database.announce()

    def _append(
        self, stream: str, records: Sequence[EncodedEvent], expected: int | None
    ) -> Appended:
        with self._database.appending(stream) as own:
            return drive(append_steps(stream, records, expected), own.run)

    def _checked(
        self,
        stream: str,
        events: Sequence[Any],
        expected: int | None,
        metadata: Mapping[str, Any] | None,
    ) -> list[EncodedEvent]:
        """The events of one append, checked."""
        check_stream(stream)
        _check_expected(expected)
        return self.records.of(stream, events, metadata)


def append_steps(stream: str, records: Sequence[EncodedEvent], expected: int | None) -> Steps:
    """The statements of one append; the generator's result is what it did."""
    document = as_json(records)
    rows = yield (
        "append",
        {
            "stream": stream,
            "expected": expected,
            "check_ids": any(record.id_is_given for record in records),
            "events": document,
        },
    )
    if rows:
        rows = sorted(rows)
        return Appended(stream, rows[-1][1], tuple(row[0] for row in rows))
    # Nothing was written: this append was made before, or the version is another.
    known = {UUID(str(row[3])): row for row in (yield "find_events", {"events": document})}
    if not known:
        version = yield "stream_version", {"stream": stream}
        assert expected is not None
        raise ConcurrencyError(stream, expected=expected, actual=version[0][0])
    return _first_result(stream, records, known)


def _first_result(
    stream: str, records: Sequence[EncodedEvent], known: Mapping[UUID, Row]
) -> Appended:
    found = [known.get(record.id) for record in records]
    same = [row for row in found if row is not None and row[2] == stream]
    versions = [row[1] for row in same]
    in_order = all(b == a + 1 for a, b in itertools.pairwise(versions))
    if len(same) < len(records) or not in_order:
        raise AppendError(
            f"append to stream {stream!r}: {len(known)} of its {len(records)} event ids are in the "
            "journal already, and not as one append like this; use new ids for new events"
        )
    return Appended(stream, versions[-1], tuple(row[0] for row in same))


def drive(steps: Steps, run: Run) -> Appended:
    """Runs an append's statements one after the other."""
    try:
        name, params = next(steps)
        while True:
            name, params = steps.send(run(name, params))
    except StopIteration as done:
        result: Appended = done.value
        return result


def _check_expected(expected: object) -> None:
    if expected is not None and (not isinstance(expected, int) or isinstance(expected, bool)):
        raise AppendError(f"expected_version is {expected!r}; it is a number, or None for any")
    if isinstance(expected, int) and not 0 <= expected <= arguments.MAX_NUMBER:
        raise AppendError(
            f"expected_version is {arguments.shown(expected)}; 0 means that the stream must not "
            "exist yet"
        )
