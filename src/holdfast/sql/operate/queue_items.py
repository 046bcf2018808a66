"""Items of the queue, read for operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model import arguments
from holdfast.model.lane import lane_name
from holdfast.runtime.store.queue_items import QueueItem, QueueSelection
from holdfast.sql.database import Connection, Row
from holdfast.sql.values import struct_of

BEING_TRIED = ("processing", "retrying")
"""The statuses of an item that a worker tries now: for the first time, or again."""


def find_items(
    connection: Connection,
    selection: QueueSelection,
    *,
    limit: int,
    after_id: int,
    now: datetime,
) -> Sequence[QueueItem]:
    """Items that fit a selection, oldest first."""
    if selection.ids:
        found = [connection.run("get_item", {"id": id_}) for id_ in sorted(selection.ids)]
        return [_item(rows[0]) for rows in found if rows][:limit]
    until = datetime.max.replace(tzinfo=UTC)
    if selection.older_than_seconds is not None:
        until = now - timedelta(seconds=selection.older_than_seconds)
    lane = None if selection.lane is None else lane_name(selection.lane)
    names: dict[str, Any] = {"lane": lane, "created_until": until, "after_id": after_id}
    names |= {"limit": limit, "has_failed": None}
    if selection.status in BEING_TRIED:
        names |= {"status": "processing", "has_failed": selection.status == "retrying"}
    return [
        _item(row)
        for row in connection.run("list_items", msgspec.structs.asdict(selection) | names)
    ]


def get_item(connection: Connection, item_id: int) -> QueueItem:
    """One item; raises if there is none."""
    arguments.whole("item_id", item_id)
    rows = connection.run("get_item", {"id": item_id})
    if not rows:
        raise no_item(item_id)
    return _item(rows[0])


def no_item(item_id: int) -> HoldfastError:
    """The error where there is no such item."""
    return HoldfastError(f"the queue has no item {item_id}; holdfast queue list shows all")


def _item(row: Row) -> QueueItem:
    history = QueueItem.__struct_fields__.index("history")
    decoded = msgspec.json.decode(row[history])
    item = struct_of(QueueItem, (*row[:history], decoded, *row[history + 1 :]))
    if item.status == "processing" and item.first_failed_at is not None:
        return msgspec.structs.replace(item, status="retrying")
    return item
