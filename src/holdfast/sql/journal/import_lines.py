"""Imports of JSON Lines into the journal: streamed, and resumable.

An import is a series of transactions. After an interruption, import the same file again: it passes
over events that are in the journal. An event is known by its id; a line without one gets an id that
follows from its number and content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO
from uuid import UUID, uuid5

import msgspec

from holdfast.errors import AppendError, ConcurrencyError, PayloadError, StoreConflict
from holdfast.model.event import RawEvent
from holdfast.model.event_types import describe
from holdfast.sql.database import Run
from holdfast.sql.journal.encode import EncodedEvent
from holdfast.sql.journal.journal import Journal, append_steps, drive
from holdfast.sql.journal.json_lines import decode_line
from holdfast.sql.values import as_json

BATCH_LINES = 500
"""Maximum of lines in one transaction."""

BATCH_BYTES = 4 * 2**20
"""Maximum size of a transaction, which its last line may exceed."""

CONFLICT_ATTEMPTS = 5
"""Maximum of attempts at a transaction that ends in deadlocks."""

_IDS = UUID("6ad0cf34-3a1e-5c08-9d0e-3a7a7f1f6f0d")


@dataclass(frozen=True, slots=True)
class Imported:
    """How far an import is: lines and bytes read, new events, and events that were there before."""

    lines: int
    bytes_read: int
    imported: int
    passed_over: int


def import_lines(
    journal: Journal,
    file: BinaryIO,
    *,
    progress: Callable[[Imported], None] = lambda _: None,
) -> Imported:
    """Appends a file's events in its order, with their ids, metadata and times.

    Raises AppendError at the first line that is refused; everything before it is in then. A line
    with a version must continue its stream.
    """
    reader = _Reader(journal, file)
    refused: AppendError | None = None
    imported = passed_over = 0
    done = Imported(0, 0, 0, 0)
    while not reader.at_end and refused is None:
        batch = reader.batch()
        written = _write_firmly(journal, batch)
        imported += written.imported
        passed_over += written.passed_over
        done = Imported(reader.lines, reader.bytes_read, imported, passed_over)
        progress(done)
        refused = written.refused or reader.refused
    if refused is not None:
        raise AppendError(
            f"{refused}. What precedes it is in the journal ({imported:,} imported, "
            f"{passed_over:,} there already); fix the line and import the file again"
        ) from refused
    return done


@dataclass(frozen=True, slots=True)
class _Ready:
    """A line that has been checked."""

    number: int
    stream: str
    version: int | None
    record: EncodedEvent


@dataclass(frozen=True, slots=True)
class _Written:
    """The result of one transaction, and the error of the line at which it ended."""

    imported: int = 0
    passed_over: int = 0
    refused: AppendError | None = None


class _Reader:
    """Reads and checks lines, and counts them."""

    def __init__(self, journal: Journal, file: BinaryIO) -> None:
        self.lines = 0
        self.bytes_read = 0
        self.at_end = False
        self.refused: AppendError | None = None
        self._journal, self._file = journal, file
        # Room for a payload at the limit in which every character is escaped.
        self._limit = 8 * journal.records.max_payload_bytes + 64 * 1024

    def batch(self) -> list[_Ready]:
        """Lines for one transaction; after the last ones, `at_end` or `refused` is set."""
        batch: list[_Ready] = []
        now = self._journal.records.clock.now()
        enough = self.bytes_read + BATCH_BYTES
        while len(batch) < BATCH_LINES and self.bytes_read < enough:
            text = self._file.readline(self._limit)
            if not text:
                self.at_end = True
                break
            self.lines += 1
            self.bytes_read += len(text)
            try:
                if len(text) == self._limit:
                    raise AppendError(f"has more than {self._limit:,} bytes")
                if text.strip():
                    batch.append(_ready(self._journal, self.lines, text, now))
            except AppendError as error:
                self.refused = _refused(self.lines, error)
                break
        return batch


def _ready(journal: Journal, number: int, text: bytes, now: datetime) -> _Ready:
    if number == 1:
        text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        line = decode_line(text)
        event = RawEvent(
            position=0,
            stream=line.stream,
            version=line.version or 0,
            id_text=str(line.id or uuid5(_IDS, f"{number} {text.strip().decode()}")),
            type=line.type,
            data=bytes(line.data).decode(),
            metadata=bytes(line.metadata).decode(),
            recorded_at=line.recorded_at or now,
        )
        return _Ready(number, line.stream, line.version, journal.records.raw(event))
    except PayloadError as error:
        raise AppendError(describe(error.__cause__ or error)) from error
    except RecursionError:
        raise AppendError("is not an event: it is nested too deep") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
        raise AppendError(f"is not an event: {error}") from error


def _write_firmly(journal: Journal, batch: Sequence[_Ready]) -> _Written:
    """Writes a batch, and tries again after a deadlock."""
    for _ in range(CONFLICT_ATTEMPTS - 1):
        with suppress(StoreConflict):
            return _write(journal, batch)
    return _write(journal, batch)


def _write(journal: Journal, batch: Sequence[_Ready]) -> _Written:
    """Writes a batch in one statement; append by append only if something is refused."""
    if not batch:
        return _Written()
    try:
        with journal.transaction() as run:
            fresh, there, refused = _sift(run, batch)
            _append_many(run, fresh)
            return _Written(len(fresh), there, refused)
    except _SomethingRefused:
        return _write_up_to_refusal(journal, batch)


def _write_up_to_refusal(journal: Journal, batch: Sequence[_Ready]) -> _Written:
    """Writes the lines before the first refused one, in one transaction."""
    with journal.transaction() as run:
        fresh, there, refused = _sift(run, batch)
        imported = 0
        for part in _appends(fresh):
            try:
                _append(run, part)
            except AppendError as error:
                # This append wrote nothing, and the transaction is intact: earlier appends stay.
                refused = _refused(part[0].number, error)
                there = sum(line.number < part[0].number for line in batch) - imported
                break
            imported += len(part)
    return _Written(imported, there, refused)


class _SomethingRefused(Exception):
    """One of many appends was refused; none is in the journal."""


def _sift(run: Run, batch: Sequence[_Ready]) -> tuple[list[_Ready], int, AppendError | None]:
    """The new lines and the number of known ones, up to a line that contradicts the journal."""
    ids = as_json([{"id": line.record.id} for line in batch])
    known: dict[UUID, tuple[str, int | None]] = {
        UUID(str(id_)): (stream, version)
        for _, version, stream, id_ in run("find_events", {"events": ids})
    }
    fresh: list[_Ready] = []
    there = 0
    for line in batch:
        if line.record.id not in known:
            known[line.record.id] = line.stream, line.version
            fresh.append(line)
            continue
        stream, version = known[line.record.id]
        if stream != line.stream or not (
            version == line.version or None in (version, line.version)
        ):
            error = AppendError(
                f"its id {line.record.id} belongs to version {version} of stream {stream!r}"
            )
            return fresh, there, _refused(line.number, error)
        there += 1
    return fresh, there, None


def _appends(lines: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """Groups neighbours of one stream whose versions follow each other, for one append each."""
    part: list[_Ready] = []
    for line in lines:
        if part and not _follows(part[-1], line):
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def _follows(line: _Ready, following: _Ready) -> bool:
    if line.version is None or following.version is None:
        return following.stream == line.stream and following.version is line.version
    return following.stream == line.stream and following.version == line.version + 1


def _append_many(run: Run, lines: Sequence[_Ready]) -> None:
    """Appends all in one statement, or raises."""
    if not lines:
        return
    events = [
        {
            **msgspec.structs.asdict(line.record),
            "stream": line.stream,
            "append": number,
            "expected": _expected(part),
        }
        for number, part in enumerate(_appends(lines))
        for line in part
    ]
    rows = run("append_many", {"events": as_json(events)})
    if len(rows) < len(lines):
        raise _SomethingRefused
    positions = [position for position, _ in rows]
    versions = zip(lines, (version for _, version in rows), strict=True)
    in_order = positions == sorted(positions)
    if not in_order or any(line.version not in (None, version) for line, version in versions):
        raise _SomethingRefused


def _append(run: Run, part: Sequence[_Ready]) -> None:
    first = part[0]
    records = [line.record for line in part]
    try:
        drive(append_steps(first.stream, records, _expected(part)), run)
    except ConcurrencyError as error:
        raise AppendError(
            f"it is version {first.version} of stream {first.stream!r}, and the journal has the "
            f"stream at version {error.actual}"
        ) from error


def _expected(part: Sequence[_Ready]) -> int | None:
    return None if part[0].version is None else part[0].version - 1


def _refused(number: int, error: AppendError) -> AppendError:
    refused = AppendError(f"line {number:,}: {error}")
    refused.__cause__ = error
    return refused
