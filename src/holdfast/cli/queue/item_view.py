"""Items of the queue in words: rows of a table, one in full, and why one is left alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.app import App
from holdfast.cli.output import add_row, duration, new_table, one_line, redacted, shown, utc
from holdfast.model.feed_names import is_ours
from holdfast.model.projection import Projection
from holdfast.runtime.store.queue_items import OUTSTANDING, QueueCount, QueueItem, QueueSelection

if TYPE_CHECKING:
    from rich.table import Table

ERROR_CHARACTERS = 120

LONG_FIELDS = ("data", "metadata", "error_stacktrace", "history", "kept")
COLOURS = {"dead": "bold red", "failed": "red", "skipped": "yellow", "resolved": "green"}


def table_of(items: Sequence[QueueItem]) -> Table:
    """Items for people, a row each."""
    now = datetime.now(UTC)
    table = new_table(
        "id", "projection", "lane", "status", "attempts", "event type", "error", "age",
        "next attempt", right=("id", "attempts", "age"),
    )  # fmt: skip
    for item in items:
        add_row(
            table,
            str(item.id),
            item.projection,
            item.lane,
            (item.status, COLOURS.get(item.status, "")),
            str(item.attempts),
            item.event_type,
            error_of(item),
            duration((now - item.created_at).total_seconds()),
            _next(item, now),
        )
    return table


def stats_table(counts: Sequence[QueueCount]) -> Table:
    """How much is in the queue, for people."""
    table = new_table("projection", "status", "error", "items", "oldest", right=("items", "oldest"))
    for count in counts:
        add_row(
            table,
            count.projection,
            (count.status, COLOURS.get(count.status, "")),
            count.error_type or "",
            f"{count.items:,}",
            duration(count.oldest_seconds),
        )
    return table


def in_full(item: QueueItem) -> Iterator[str]:
    """Everything about an item, line by line."""
    now = datetime.now(UTC)
    yield f"item {item.id} of {shown(item.projection)}, lane {shown(item.lane)}: {item.status}"
    yield f"  event      {shown(item.event_type)} {item.event_id}"
    yield f"  stream     {shown(item.stream)}, version {item.version}"
    yield f"  position   {item.position} of {shown(item.feed)}, recorded {utc(item.recorded_at)}"
    yield f"  queued     {utc(item.created_at)}"
    yield f"  attempts   {item.attempts}"
    if next_attempt := _next(item, now):
        yield f"  next       {next_attempt}"
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
        yield from (
            f"  {shown(line)}" for line in redacted(item.error_stacktrace).rstrip().splitlines()
        )


def plain(item: QueueItem, *, in_full: bool) -> dict[str, Any]:
    """An item as JSON; the payload as it is, not as text in text."""
    fields = msgspec.structs.asdict(item)
    if not in_full:
        return {name: value for name, value in fields.items() if name not in LONG_FIELDS}
    return {**fields, "data": _raw(item.data), "metadata": _raw(item.metadata)}


def line_of(item: QueueItem) -> str:
    """An item on one line, for the question before a change."""
    what = f"{item.id}  {item.projection}  {item.lane}  {item.status}  {item.event_type}"
    return shown(f"{what}  {error_of(item)}".rstrip())


def error_of(item: QueueItem) -> str:
    """The error on one line, cut."""
    if item.error_type is None:
        return ""
    return one_line(f"{item.error_type}: {item.error_message}", max_characters=ERROR_CHARACTERS)


def why_left_alone(app: App, action: str, item: QueueItem) -> str:
    """Why an action is not for an item, and what to do instead."""
    name = f"item {item.id} is {item.status}"
    if item.status in OUTSTANDING:
        if action == "purge":
            return f"{name}: what still waits is never deleted; requeue or resolve it first"
        if item.status == "processing":
            return f"{name}: it is tried just now; look again when that has ended"
        return f"{name}: {_turn(app, item)}"
    if item.status == "done":
        return f"{name}: it was applied, and is only kept to be looked at"
    if action == "resolve" or item.status == "resolved":
        return f"{name}, by {item.resolved_by}: what is over does not come back"
    rewind = f"go back with holdfast rewind {item.projection} --to first-skip, or "
    return (
        f"{name}: events behind it were applied without it. To apply it in its place, "
        f"{rewind if _can_be_rewound(app, item.projection) else ''}"
        f"build the projection again with holdfast reset {item.projection}"
    )


def _turn(app: App, item: QueueItem) -> str:
    selections = [
        QueueSelection(projection=item.projection, lane=item.lane, status=status)
        for status in OUTSTANDING
    ]
    oldest = [other for selection in selections for other in app.queue.list(selection, limit=1)]
    ours = is_ours(item.feed)
    head = min(
        (other for other in oldest if other.feed == item.feed),
        key=lambda other: (0 if ours else other.version, other.position),
        default=item,
    )
    if head.id == item.id:
        return "it has not failed, and is tried as soon as a worker runs"
    return (
        f"it waits behind item {head.id} ({head.status}), the head of its lane {item.lane!r}; "
        f"holdfast queue show {head.id} says why. Requeue or resolve that one, and this one follows"
    )


def _can_be_rewound(app: App, projection: str) -> bool:
    definitions = [runner.definition for runner in app.supervise().runners]
    instances = [each.instance for each in definitions if each.name == projection]
    return any(isinstance(one, Projection) and one.replayable for one in instances)


def _next(item: QueueItem, now: datetime) -> str:
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


def _raw(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
