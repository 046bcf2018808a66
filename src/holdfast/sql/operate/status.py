"""The status of every projection, as the database knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.model.feed_names import MESSAGES, is_journal, is_ours
from holdfast.runtime.status import LastError, ProjectionStatus
from holdfast.runtime.store.clock import Clock
from holdfast.sql.database import Database
from holdfast.sql.operate.deliveries import Deliveries, read_deliveries, read_relays
from holdfast.sql.operate.lag import Takes, age, first_unreached
from holdfast.sql.operate.settings import read_overrides
from holdfast.sql.outbox.claims import database_time
from holdfast.sql.values import moment, uuid

RATE_SECONDS = 10.0
"""Maximum age of a rate; an older one is shown as 0."""


Heads = Mapping[tuple[str, str], int]
"""The known ends of foreign feeds, by projection and feed."""


def read_status(
    database: Database, clock: Clock, heads: Heads, takes: Mapping[str, Takes]
) -> list[ProjectionStatus]:
    """Every projection that has ever run on this database.

    `takes`: which event types each of the known ones applies.
    """
    now, found = clock.now(), []
    with database.reading() as connection:
        rows = connection.run("status")
        own = int(connection.run("head")[0][0])
        relays = read_relays(connection, database_time(connection))
        alive = {names for names, relay in relays if relay.is_alive}
        delivered = read_deliveries(connection)
        overrides = read_overrides(connection)
        leased = database.leased([row[0] for row in rows])
        for row in rows:
            _, projection, feed, _, position, *_ = row
            head = own if is_journal(feed) else heads.get((projection, feed))
            is_known = head is not None or feed == MESSAGES
            status = _status(
                row,
                head=position if head is None else head,
                is_led=row[0] in leased or (projection, feed) in alive,
                now=now,
                delivered=delivered.get((projection, feed), Deliveries()),
                unreached=partial(
                    first_unreached,
                    connection,
                    feed,
                    after=position,
                    takes=takes.get(projection, lambda _: True),
                ),
            )
            set_values = {name: o.value for name, o in overrides.get(projection, {}).items()}
            found.append(replace(status, is_head_known=is_known, overrides=set_values))
    return found


def _status(
    row: Sequence[Any],
    *,
    head: int,
    is_led: bool,
    now: datetime,
    delivered: Deliveries,
    unreached: Callable[..., datetime | None],
) -> ProjectionStatus:
    (_, projection, feed, state, position, epoch, leader, processed, rate, *rest) = row
    last_id, last_type, last_at, *error = rest[:13]
    needs_reset, paused_at, paused_by, paused_note, until, reason, *last = rest[13:]
    mode, backfill_until, queued_since, stuck_since, stuck_events, *queued = last
    if feed == MESSAGES:
        head = position = 0  # Messages have no position in a journal.
    lag = max(0, head - position)
    if mode is not None:
        leader, processed = None, delivered.applied
        last_id, last_type = delivered.last_event_id, delivered.last_event_type
        last_at = delivered.last_processed_at
        if backfill_until is not None and position >= backfill_until:
            # The queue has every event by now.
            position, lag = head, queued[1] - stuck_events
    processed_at = moment(last_at)
    recent = _is_recent(last_at, now)
    next_at = unreached(through=None if mode is None else backfill_until)
    if not is_ours(feed) and lag:
        next_at = processed_at  # Only the broker knows when the next event was written.
    since = [at for at in (next_at, moment(queued_since)) if at is not None]
    waiting_until = moment(until)
    waits = waiting_until is not None and waiting_until > now
    is_faulted = state == "faulted"
    if paused_by is not None:
        state = "paused"
    elif not is_faulted:
        state = "running" if is_led else "stopped"
    return ProjectionStatus(
        projection=projection,
        feed=feed,
        state=state,
        position=position,
        head=head,
        lag_events=lag,
        lag_seconds=age(now, min(since, default=None)),
        events_processed=processed,
        events_per_second=rate if recent else 0.0,
        epoch=epoch,
        leader=":".join(leader.split(":")[:2]) if is_led and leader else None,
        last_event_id=uuid(last_id),
        last_event_type=last_type,
        last_processed_at=processed_at,
        last_error=_last_error(error),
        is_faulted=is_faulted,
        needs_reset=bool(needs_reset),
        paused_at=moment(paused_at),
        paused_by=paused_by,
        paused_note=paused_note,
        waiting_until=waiting_until if waits else None,
        waiting_for=reason if waits else None,
        stuck_events=stuck_events,
        stuck_seconds=age(now, moment(stuck_since)),
        closed_lanes=queued[0],
        queued_events=queued[1],
        delivery="log" if mode is None else "outbox",
        mode=mode,
    )


def _is_recent(at: Any, now: datetime) -> bool:
    then = moment(at)
    return then is not None and (now - then).total_seconds() <= RATE_SECONDS


def _last_error(columns: Sequence[Any]) -> LastError | None:
    type_, message, stacktrace, at, position, event_id, event_type, since, *attempts = columns
    failed_at = moment(at)
    if failed_at is None:
        return None
    what = position, uuid(event_id), event_type
    first_at = moment(since) or failed_at
    return LastError(type_, message, stacktrace, failed_at, *what, first_at, *attempts)
