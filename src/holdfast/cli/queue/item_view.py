"""Items of the queue as rows of a table, as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.cli.output import Table, duration, one_line, shown, traceback_lines, utc
from holdfast.runtime.store.queue_items import QueueCount, QueueItem

MAX_ERROR_CHARACTERS = 120
"""Maximum length of an error in a table or a line."""

LONG_FIELDS = ("data", "metadata", "error_stacktrace", "history", "kept")
"""Fields that only `holdfast queue show` prints."""

COLOURS = {"dead": "bold red", "failed": "red", "skipped": "yellow", "resolved": "green"}


def items_table(items: Sequence[QueueItem]) -> Table:
    """A table with a row for each item."""
    now = datetime.now(UTC)
    rows = (
        (
            str(item.id),
            item.projection,
            item.lane,
            (item.status, COLOURS.get(item.status, "")),
            str(item.attempts),
            item.event_type,
            error_of(item),
            duration((now - item.created_at).total_seconds()),
            _next_attempt(item, now),
        )
        for item in items
    )
    names = ("id", "projection", "lane", "status", "attempts", "event type", "error")
    return Table((*names, "age", "next attempt"), rows, right=("id", "attempts", "age"))


def stats_table(counts: Sequence[QueueCount]) -> Table:
    """A table of counts by projection, status and error."""
    rows = (
        (
            count.projection,
            (count.status, COLOURS.get(count.status, "")),
            count.error_type or "",
            f"{count.items:,}",
            duration(count.oldest_seconds),
        )
        for count in counts
    )
    columns = ("projection", "status", "error", "items", "oldest")
    return Table(columns, rows, right=("items", "oldest"))


def lines_of(item: QueueItem) -> Iterator[str]:
    """Everything about an item, line by line."""
    now = datetime.now(UTC)
    yield f"item {item.id} of {shown(item.projection)}, lane {shown(item.lane)}: {item.status}"
    yield f"  event      {shown(item.event_type)} {item.event_id}"
    yield f"  stream     {shown(item.stream)}, version {item.version}"
    yield f"  position   {item.position} of {shown(item.feed)}, recorded {utc(item.recorded_at)}"
    yield f"  queued     {utc(item.created_at)}"
    yield f"  attempts   {item.attempts}"
    if due := _next_attempt(item, now):
        yield f"  next       {due}"
    if item.resolved_at is not None:
        yield f"  resolved   {utc(item.resolved_at)} by {shown(item.resolved_by or '')}"
    if item.note:
        yield f"  note       {shown(item.note)}"
    yield from _json_lines("payload", item.data)
    yield from _json_lines("metadata", item.metadata)
    if item.history:
        yield "attempts"
        for attempt in item.history:
            error = f"{attempt.error_type}: {attempt.error_message}"
            yield f"  {utc(attempt.at)}  {one_line(error)}"
    if item.error_stacktrace:
        yield "traceback"
        yield from (f"  {line}" for line in traceback_lines(item.error_stacktrace))


def item_fields(item: QueueItem) -> dict[str, Any]:
    """An item for JSON, without its long fields."""
    fields = msgspec.structs.asdict(item)
    return {name: value for name, value in fields.items() if name not in LONG_FIELDS}


def all_fields(item: QueueItem) -> dict[str, Any]:
    """An item for JSON; payload and metadata are values, not texts that hold JSON."""
    fields = msgspec.structs.asdict(item)
    return {**fields, "data": _decoded(item.data), "metadata": _decoded(item.metadata)}


def line_of(item: QueueItem) -> str:
    """An item on one line, for the question before a change."""
    what = f"{item.id}  {item.projection}  {item.lane}  {item.status}  {item.event_type}"
    return shown(f"{what}  {error_of(item)}".rstrip())


def error_of(item: QueueItem) -> str:
    """The error on one line."""
    if item.error_type is None:
        return ""
    return one_line(f"{item.error_type}: {item.error_message}", max_characters=MAX_ERROR_CHARACTERS)


def _next_attempt(item: QueueItem, now: datetime) -> str:
    match item.status:
        case "dead":
            return "when requeued"
        case "pending":
            return "in its turn"
        case "failed":
            left = ((item.next_attempt_at or now) - now).total_seconds()
            return f"in {duration(left)}" if left > 0 else "due"
        case _:
            return ""


def _json_lines(title: str, text: str) -> Iterator[str]:
    yield title
    try:
        pretty = msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        pretty = text
    yield from (f"  {shown(line)}" for line in pretty.splitlines())


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
