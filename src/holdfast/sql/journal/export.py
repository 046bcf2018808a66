"""Exports of the journal as JSON Lines: streamed, and resumable after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from holdfast.errors import ConfigError
from holdfast.sql.journal.journal import Journal
from holdfast.sql.journal.json_lines import LINE_START, decode_line, encode_line

REPORT_EVENTS = 1_000
"""Interval of progress reports, in events."""

SEEK_BYTES = 64 * 1024
"""Size of the reads that go backwards through a file to find its last line."""


@dataclass(frozen=True, slots=True)
class Exported:
    """How far an export is: events written, and the position of the last one in the file."""

    events: int
    position: int


def export_lines(
    journal: Journal,
    out: BinaryIO,
    *,
    after: int = 0,
    stream: str | None = None,
    progress: Callable[[Exported], None] = lambda _: None,
) -> Exported:
    """Writes the events after a position, of all streams or of one, as far as the journal goes."""
    events = journal.read_raw(after=after) if stream is None else journal.read_stream_raw(stream)
    done = Exported(0, after)
    for event in events:
        if event.position <= after:
            continue  # Of one stream, which is read from its beginning.
        out.write(encode_line(event))
        done = Exported(done.events + 1, event.position)
        if done.events % REPORT_EVENTS == 0:
            progress(done)
    progress(done)
    return done


def resume_export(journal: Journal, file: BinaryIO, *, stream: str | None = None) -> int:
    """Cuts a half-written last line off an export, and returns the position to go on after.

    Raises ConfigError, and changes nothing, if the file is not an export of this journal (and of
    this stream). The file is open for reading and writing, and is left at its end.
    """
    end = _after_line_break(file, file.seek(0, 2))
    position = _last_position(journal, file, end, stream) if end else 0
    if not end:
        file.seek(0)
        begun = file.read(len(LINE_START))
        if begun != LINE_START[: len(begun)]:
            raise ConfigError("the file is not an export of a journal; it is left as it is")
    file.seek(end)
    file.truncate()
    return position


def _last_position(journal: Journal, file: BinaryIO, end: int, stream: str | None) -> int:
    """The position in the line that ends at `end`; raises unless it is this journal's."""
    start = _after_line_break(file, end - 1)
    file.seek(start)
    try:
        last = decode_line(file.read(end - start))
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the file is not an export of a journal, and is left as it is: {error}"
        ) from error
    position = last.position or 0
    event = next(journal.read_raw(after=position - 1, limit=1), None)
    if event is None or (event.position, event.id) != (position, last.id):
        raise ConfigError("the file's last line is no event of this journal; it is left as it is")
    if stream not in (None, last.stream):
        raise ConfigError(
            f"the file ends with an event of stream {last.stream!r}, not {stream!r}; "
            "it is left as it is"
        )
    return position


def _after_line_break(file: BinaryIO, end: int) -> int:
    """Where the last line break before `end` ends; 0 if there is none."""
    while end:
        start = max(0, end - SEEK_BYTES)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
