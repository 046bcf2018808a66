"""Why a projection does not advance, as far as the database knows.

Obstacles come first, in the order in which an operator fixes them; then how much is left to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from holdfast.model.definition import Definition, Outbox
from holdfast.model.feed_names import MESSAGES, is_journal, is_ours
from holdfast.runtime.status import LastError, ProjectionStatus, attempt_of
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.queue_items import Status
from holdfast.sql.database import Connection, Database
from holdfast.sql.operate.lag import Takes
from holdfast.sql.operate.status import Heads, read_status
from holdfast.sql.values import moment, uuid
from holdfast.texts import clean

MAX_HEADS = 5
"""Maximum of closed lanes that are named."""

MAX_QUERY_CHARACTERS = 500
"""Maximum length of a statement that is shown."""

HEAD_FIELDS = (
    "id",
    "lane",
    "status",
    "position",
    "event_type",
    "event_id",
    "attempts",
    "next_attempt_at",
    "error_type",
    "error_message",
    "events",
)
"""The columns of lane_heads."""

APPEND_FIELDS = ("pid", "user", "application", "state", "since", "query")
"""The columns of open_appends."""

Kind = Literal[
    "delivery",
    "no_worker",
    "mode",
    "paused",
    "faulted",
    "waiting",
    "lanes_closed",
    "held",
    "resharding",
    "behind",
    "nothing_to_do",
]


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason, or that there is none: `text` says it, `fields` has the facts."""

    kind: Kind
    text: str
    fields: dict[str, Any] = {}


def explain(
    database: Database, clock: Clock, definition: Definition, heads: Heads, takes: Takes
) -> list[Reason]:
    """Why a projection does not advance; the last reasons say how much there is to do."""
    projection, feed = definition.name, definition.feed
    statuses = read_status(database, clock, heads, {projection: takes})
    found = [s for s in statuses if s.projection == projection]
    with database.reading() as connection:
        if not found:
            head = int(connection.run("head")[0][0]) if is_ours(feed) else sum(heads.values())
            return [*_never_ran(head)]
        other = [*_delivery(definition, found)]
        if [s.feed for s in found] == [feed] and is_ours(feed):
            return other + _reasons(connection, found[0])
        reasons = [
            msgspec.structs.replace(
                reason, text=f"{s.feed}: {reason.text}", fields={"feed": s.feed, **reason.fields}
            )
            for s in found
            for reason in _reasons(connection, s)
        ]
    return other + sorted(reasons, key=lambda reason: reason.kind in ("behind", "nothing_to_do"))


def _reasons(connection: Connection, status: ProjectionStatus) -> list[Reason]:
    return [
        *_paused(status),
        *_mode(status),
        *_faulted(connection, status),
        *_no_worker(connection, status),
        *_waiting(status),
        *_held(connection, status),
        *_resharding(connection, status),
        *_lanes_closed(connection, status),
        *_rest(status),
    ]


def _delivery(definition: Definition, found: Sequence[ProjectionStatus]) -> Iterator[Reason]:
    """Whether this code's workers are refused, because the database delivers it in another way."""
    is_outbox, has_outbox = isinstance(definition.delivery, Outbox), found[0].mode is not None
    has_shards = len(found) > 1 and not has_outbox and is_ours(definition.feed)
    if has_outbox and not is_outbox:
        known, wanted = "an outbox", "the log"
    elif is_outbox and has_shards:
        known, wanted = "the log, in shards", "an outbox"
    else:
        return
    yield Reason(
        kind="delivery",
        text=f"the database delivers it by {known}, and this code by {wanted}: its workers stop",
        fields={"known": known, "wanted": wanted},
    )


def _never_ran(head: int) -> Iterator[Reason]:
    yield Reason(kind="no_worker", text="it has never run here", fields={"leader": None})
    if head:
        yield Reason(
            kind="behind",
            text=f"it is behind by {head:,} events",
            fields={"position": 0, "head": head, "lag_events": head},
        )


def _paused(status: ProjectionStatus) -> Iterator[Reason]:
    if status.paused_at is None:
        return
    why = f": {status.paused_note}" if status.paused_note else ", without a note"
    yield Reason(
        kind="paused",
        text=f"it is paused by {status.paused_by} since {_at(status.paused_at)}{why}",
        fields={
            "by": status.paused_by,
            "since": status.paused_at,
            "note": status.paused_note,
            "leader": status.leader,
        },
    )


def _mode(status: ProjectionStatus) -> Iterator[Reason]:
    if status.mode not in (None, "live"):
        what = "nobody applies anything" if status.mode == "off" else "events are only looked at"
        yield Reason(
            kind="mode",
            text=f"its mode is {status.mode}: {what}",
            fields={"mode": status.mode},
        )


def _is_led(status: ProjectionStatus) -> bool:
    if status.delivery == "outbox":
        return status.state in ("running", "paused")
    return status.leader is not None


def _faulted(connection: Connection, status: ProjectionStatus) -> Iterator[Reason]:
    error = status.last_error
    if error is None or not status.is_faulted:
        return
    item, item_status = _item_of(connection, status, error.position)
    where = "" if error.position is None else f" at position {error.position:,}"
    what = "" if error.event_type is None else f", {error.event_type!r} event {error.event_id}"
    yield Reason(
        kind="faulted",
        text=f"it stopped{where}{what}, {_at(error.at)}: {error.type}: {error.message}",
        fields={
            "at": error.at,
            "position": error.position,
            "event_id": error.event_id,
            "event_type": error.event_type,
            "item": item,
            "item_status": item_status,
            "is_passed": error.position is not None and error.position <= status.position,
            **_error_fields(error),
            "needs_reset": status.needs_reset,
        },
    )


def _error_fields(error: LastError) -> dict[str, Any]:
    return {
        "error_type": error.type,
        "error_message": error.message,
        "error_stacktrace": error.stacktrace,
        "since": error.since,
        "attempts": error.attempts,
        "max_attempts": error.max_attempts,
    }


def _item_of(
    connection: Connection, status: ProjectionStatus, position: int | None
) -> tuple[int | None, Status | None]:
    """The id and the status of an event in the queue."""
    if position is None or position > status.position:
        return None, None
    names = {"projection": status.projection, "feed": status.feed, "position": position}
    for id_, _, item_status, _ in connection.run("item_at", names):
        return id_, item_status
    return None, None


def _no_worker(connection: Connection, status: ProjectionStatus) -> Iterator[Reason]:
    # A worker that runs may wait for an operator with nothing held: the fault says what to do.
    if _is_led(status) or status.waiting_until is not None or status.is_faulted:
        return
    names = {"projection": status.projection, "feed": status.feed}
    last = Checkpoint(*connection.run("read_checkpoint", names)[0])
    fields: dict[str, Any] = {"leader": None, "unclean_ends": 0, "mark_position": None}
    text = "no worker runs it" if status.epoch else "it has never run here"
    if last.state == "running":
        fields |= {"unclean_ends": last.unclean_ends + 1, "mark_position": last.mark_position}
        text += "; the last one ended without a word"
        if last.mark_position is not None:
            text += f", at the event at position {last.mark_position:,}, which was tried alone"
    yield Reason(kind="no_worker", text=text, fields=fields)


def _waiting(status: ProjectionStatus) -> Iterator[Reason]:
    until, error = status.waiting_until, status.last_error
    if status.is_faulted or (until is None and error is None):
        return
    text, fields = "", {"until": until, "waiting_for": status.waiting_for}
    if until is not None:
        text = f"it waits until {_at(until)} for {status.waiting_for}"
    elif error is not None and not _is_led(status):
        return
    elif error is not None:
        text = f"it tries {error.event_type!r} event {error.event_id} again"
    if error is not None:
        text += (
            f"; {attempt_of(error) or 'the last attempt'} failed, {_at(error.at)}, the first one "
            f"{_at(error.since)}: {error.type}: {error.message}"
        )
        fields |= {"at": error.at, **_error_fields(error)}
    yield Reason(kind="waiting", text=text, fields=fields)


def _held(connection: Connection, status: ProjectionStatus) -> Iterator[Reason]:
    if not is_journal(status.feed):
        return
    if status.delivery == "outbox" and status.position == status.head:
        return  # No runner reads the feed any more.
    chunk = connection.settled(status.position, 1)
    if chunk.events or not chunk.held:
        return
    visible = connection.read(status.position, 1)
    before = {"before": visible[0].position if visible else status.head}
    rows = connection.run("open_appends", before)
    holders = [dict(zip(APPEND_FIELDS, row, strict=True)) for row in rows]
    for holder in holders:
        holder["query"] = clean(holder["query"] or "", MAX_QUERY_CHARACTERS) or None
    if not holders:
        return  # It has just ended.
    first = holders[0]
    since = first["since"]
    yield Reason(
        kind="held",
        text=(
            f"events after position {status.position:,} are held back by an append that has not "
            f"ended: process {first['pid']} of the database server"
            + (f", since {_at(since)}" if since else "")
            + (f", its last statement: {first['query']}" if first["query"] else "")
        ),
        fields={"position": status.position, "appends": holders},
    )


def _resharding(connection: Connection, status: ProjectionStatus) -> Iterator[Reason]:
    """A change of the number of shards waits until all shards are at one position."""
    if not is_journal(status.feed) or status.delivery == "outbox":
        return
    rows = connection.run("read_layout", {"projection": status.projection})
    if not rows or rows[0][1] is None:
        return
    shards, next_shards, barrier = rows[0]
    where = "waits there for the others" if status.position >= barrier else "others wait for it"
    yield Reason(
        kind="resharding",
        text=f"it changes from {shards} to {next_shards} shards at position {barrier:,}; {where}",
        fields={"shards": shards, "next_shards": next_shards, "barrier": barrier},
    )


def _lanes_closed(connection: Connection, status: ProjectionStatus) -> Iterator[Reason]:
    if not status.closed_lanes:
        return
    names = {"projection": status.projection, "feed": status.feed, "limit": MAX_HEADS}
    query = "lane_heads" if is_ours(status.feed) else "lane_heads_by_version"
    heads = [dict(zip(HEAD_FIELDS, row, strict=True)) for row in connection.run(query, names)]
    for head in heads:
        head["event_id"] = uuid(head["event_id"])
        head["next_attempt_at"] = moment(head["next_attempt_at"])
    if status.delivery == "outbox":
        # Every event waits in a lane for a moment; only failures hold up the projection.
        heads = [head for head in heads if head["status"] in ("failed", "dead")]
        if not heads:
            return
    lanes, events = status.closed_lanes, status.queued_events
    others_go_on = status.state == "running" and status.waiting_until is None
    yield Reason(
        kind="lanes_closed",
        text=(
            f"{lanes:,} {'lane is' if lanes == 1 else 'lanes are'} closed, with {events:,} "
            f"{'event' if events == 1 else 'events'} in the queue"
            + ("; no other lane is held up" if others_go_on else "")
        ),
        fields={
            "lanes": lanes,
            "events": events,
            "stuck_events": status.stuck_events,
            "stuck_seconds": status.stuck_seconds,
            "heads": heads,
        },
    )


def _rest(status: ProjectionStatus) -> Iterator[Reason]:
    if not status.is_head_known:
        yield Reason(
            kind="behind",
            text="how much is left can't be known: the brokers do not answer",
            fields={"position": status.position, "head": None, "lag_events": None},
        )
        return
    places = {"position": status.position, "head": status.head, "lag_events": status.lag_events}
    if status.lag_events:
        is_open = status.mode in (None, "live")
        works = is_open and status.state == "running" and status.waiting_until is None
        yield Reason(
            kind="behind",
            text=(
                f"it is behind by {status.lag_events:,} "
                f"{'event' if status.lag_events == 1 else 'events'}"
                + (", and at work" if works else "")
            ),
            fields={
                **places,
                "lag_seconds": status.lag_seconds,
                "events_per_second": status.events_per_second,
                "leader": status.leader,
            },
        )
    else:
        yield Reason(
            kind="nothing_to_do",
            text=(
                f"every {'other ' if status.stuck_events else ''}message is delivered"
                if status.feed == MESSAGES
                else f"it has passed every event, up to position {status.position:,}"
            ),
            fields={**places, "lag_seconds": status.lag_seconds},
        )


def _at(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
