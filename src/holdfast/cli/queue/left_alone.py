"""Why a change leaves an item alone, and what to do instead."""

from __future__ import annotations

from holdfast.app import App
from holdfast.model.feed_names import is_ours
from holdfast.model.projection import Projection
from holdfast.runtime.store.queue_items import OUTSTANDING, QueueItem, QueueSelection


def why_left_alone(app: App, action: str, item: QueueItem) -> str:
    """Why an action does not apply to an item, and what to do instead."""
    name = f"item {item.id} is {item.status}"
    if item.status in OUTSTANDING:
        if action == "purge":
            return f"{name}: an item that still waits is never deleted; requeue or resolve it first"
        if item.status in ("processing", "retrying"):
            return f"{name}: it is being tried; look again when the attempt has ended"
        return f"{name}: {_turn(app, item)}"
    if item.status == "done":
        return f"{name}: it was applied, and is only kept to be looked at"
    if action == "resolve" or item.status == "resolved":
        by = f", by {item.resolved_by}" if item.resolved_by else ""
        return f"{name}{by}: it is closed, and can't be changed any more"
    rewind = f"go back with holdfast rewind {item.projection} --to first-skip, or "
    return (
        f"{name}: events behind it were applied without it. To apply it in its place, "
        f"{rewind if _is_replayable(app, item.projection) else ''}"
        f"build the projection again with holdfast reset {item.projection}"
    )


def _turn(app: App, item: QueueItem) -> str:
    head = _head_of_lane(app, item)
    if head.id == item.id:
        return "it has not failed, and is tried as soon as a worker runs"
    return (
        f"it waits behind item {head.id} ({head.status}), the head of its lane {item.lane!r}; "
        f"holdfast queue show {head.id} says why. Requeue or resolve item {head.id}, and this one "
        "follows"
    )


def _head_of_lane(app: App, item: QueueItem) -> QueueItem:
    """The item that is tried first in the lane of this one."""
    selections = [
        QueueSelection(projection=item.projection, lane=item.lane, status=status)
        for status in OUTSTANDING
    ]
    oldest = [other for selection in selections for other in app.queue.list(selection, limit=1)]
    ours = is_ours(item.feed)
    return min(
        (other for other in oldest if other.feed == item.feed),
        key=lambda other: (0 if ours else other.version, other.position),
        default=item,
    )


def _is_replayable(app: App, projection: str) -> bool:
    definitions = [runner.definition for runner in app.supervise().workers]
    instances = [each.kind.projection for each in definitions if each.name == projection]
    return any(isinstance(one, Projection) and one.replayable for one in instances)
