"""The claims of outbox workers, on SQL databases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.errors import ConfigError, HoldfastError, ProjectionFaulted
from holdfast.model.definition import Definition, Outbox
from holdfast.model.event import RawEvent
from holdfast.model.feed_names import MESSAGES
from holdfast.runtime.store.claims import LEASE_SECONDS, Claim, OutboxState, RelayStats
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.queue_items import ParkedEvent, QueueItem
from holdfast.sql.database import Connection
from holdfast.sql.outbox.registration import begin_backfill, refuse_shards
from holdfast.sql.process_name import process_name
from holdfast.sql.store.lane_rows import waiting
from holdfast.sql.store.queue_rows import parked_event
from holdfast.sql.store.session import needs_reset
from holdfast.sql.values import as_json, moment

BACKFILL_EVENTS = 5_000
"""Maximum of events that a backfill puts into the queue in one transaction."""

CLEANED_ITEMS = 1_000
"""Maximum of done items that are deleted in one transaction."""

CLEANED_TIMES = 20
"""Maximum of such transactions in a row."""

SENT_SECONDS = 30 * 86_400.0
"""Time for which the ids are known that senders have chosen for messages."""

HASTEN_SECONDS = 10.0
"""Interval at which lanes are looked for that a wrong clock has put off."""

ENDED_SECONDS = 3_600.0
"""Time without a heartbeat after which a process is forgotten."""

SLOTS = 32
"""Number of rows among which the counts of a projection are spread."""


class HasConnection(Protocol):
    """A session, or a transaction that is open."""

    @property
    def connection(self) -> Connection: ...


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that an operator has opened."""

    connection: Connection


class _Rehearsed(Exception):
    def __init__(self, claims: Sequence[Claim]) -> None:
        self.claims = claims


class SqlClaims:
    """The claims of one thread."""

    def __init__(self, session: HasConnection, definition: Definition, *, clock: Clock) -> None:
        assert isinstance(definition.delivery, Outbox)
        self._session, self._clock = session, clock
        self._whose = {"projection": definition.name, "feed": definition.feed}
        self._definition, self._keep_seconds = definition, definition.delivery.keep_seconds
        self._hasten_at = 0.0
        self._slot = random.randrange(SLOTS)

    @property
    def _connection(self) -> Connection:
        return self._session.connection

    def state(self) -> OutboxState:
        rows = self._connection.run("read_outbox", self._whose)
        if not rows:
            raise ProjectionFaulted(
                f"projection {self._whose['projection']!r} is no longer registered for outbox "
                "delivery on this database; restart this process to register it again"
            )
        mode, until, position, paused_by, must_be_reset, epoch = rows[0]
        left = 1 if until is None or must_be_reset else max(0, until - position)
        return OutboxState(mode, paused_by, left, epoch)

    def begin(self) -> None:
        with self._connection.transaction():
            refuse_shards(self._connection, self._definition)
            if not self._connection.run("begin_relay", self._whose):
                raise needs_reset(self._whose["projection"])

    def backfill(self) -> int:
        if self._definition.start not in ("start", "now"):
            with self._connection.transaction():
                begin_backfill(self._connection, self._definition, self._clock.now())
        _, until, after, *_ = self._connection.run("read_outbox", self._whose)[0]
        if until is None or after >= until:
            return 0
        chunk = self._connection.settled(after, BACKFILL_EVENTS)
        end = self._connection.settled_end()
        through = chunk.events[-1].position if len(chunk.events) == BACKFILL_EVENTS else end
        through = min(through, until)
        if through <= after:
            return int(until - after)
        names = {**self._whose, "after": after, "through": through}
        with self._connection.transaction():
            if not self._connection.run("move_backfill", names):
                return int(until - after)  # Another process has moved the backfill.
            now = self._clock.now()
            added = self._connection.run("backfill", names | {"at": now})
            counts = Counter(lane for (lane,) in added)
            if counts:
                lanes = as_json([{"lane": lane, "events": n} for lane, n in counts.items()])
                self._connection.run("add_to_lanes", {**self._whose, "lanes": lanes, "now": now})
        return int(until - through)

    def claim(self, token: str, *, lanes: int, again: int, items: int) -> list[Claim]:
        return self._claim("claim_lanes", token, items, {"limit": lanes, "again": again})

    def claim_lane(self, token: str, lane: str, *, events: int) -> list[Claim]:
        return self._claim("claim_lane", token, events, {"lane": lane, "events": events})

    def claim_item(self, token: str, item: QueueItem) -> list[Claim]:
        """Claims an item in the open transaction, whatever its attempts and its next attempt.

        Raises unless it is the head of its lane, no worker has it, and the projection is live.
        """
        self._connection.run("lock_checkpoint_shared", self._whose)
        if not self.state().is_open:
            raise ConfigError(
                f"projection {item.projection!r} is paused, or not live: nothing of it is tried"
            )
        taken = self._take("claim_lane", token, 1, {"lane": item.lane, "events": None})
        if not taken:
            raise HoldfastError(
                f"item {item.id} is not free: a worker tries it, or another item of its lane; "
                "holdfast queue show says what came of it"
            )
        head = taken[0].head.id
        if head != item.id:
            raise ConfigError(f"item {item.id} waits behind item {head} of its lane")
        return taken

    def rehearse(self, *, lanes: int, items: int) -> int:
        names = {"limit": lanes, "again": lanes}
        try:
            with self._connection.transaction():
                raise _Rehearsed(self._take("claim_lanes", "rehearsal", items, names))
        except _Rehearsed as rehearsed:
            return len(rehearsed.claims)

    def _claim(
        self, statement: str, token: str, items: int, which: Mapping[str, Any]
    ) -> list[Claim]:
        with self._connection.transaction():
            self._connection.run("lock_checkpoint_shared", self._whose)
            if not self.state().is_open:
                return []
            return self._take(statement, token, items, which)

    def _take(
        self, statement: str, token: str, items: int, which: Mapping[str, Any]
    ) -> list[Claim]:
        leased = {"lease_seconds": LEASE_SECONDS, **self._times()}
        names = {**self._whose, **leased, **which, "token": token}
        claimed = [lane for (lane,) in self._connection.run(statement, names)]
        if not claimed:
            return []
        names = {**self._whose, "lanes": as_json(claimed), "limit": items}
        found: dict[str, list[ParkedEvent]] = {}
        for lane, *row in self._connection.run("claimed_items", names):
            found.setdefault(lane, []).append(parked_event(self._connection, tuple(row)))
        heads = [waiting[0].id for waiting in found.values()]
        self._connection.run("claim_heads", {**leased, "ids": as_json(heads), "worker": token})
        for empty in set(claimed) - found.keys():
            self._connection.run("open_lane", {**self._whose, "lane": empty})
        return [
            Claim(lane, waiting, waiting[0].status == "processing")
            for lane, waiting in found.items()
        ]

    def waiting(self, lane: str) -> int:
        return waiting(self._connection, **self._whose, lane=lane)

    def renew(self, tokens: Collection[str]) -> None:
        names = {"lease_seconds": LEASE_SECONDS, "tokens": as_json(list(tokens))}
        with self._connection.transaction():
            self._connection.run("renew_claims", names | self._times())

    def lock(self, token: str, lanes: Collection[str], *, wait: bool) -> set[str]:
        names = {**self._whose, "token": token, "lanes": as_json(list(lanes))}
        rows = self._connection.run("lock_claims" if wait else "lock_free_claims", names)
        return {lane for (lane,) in rows}

    def release(self, token: str, gone: Mapping[str, int]) -> None:
        names = {**self._whose, "token": token, "now": self._clock.now()}
        if any(gone.values()):
            closed = self._connection.run("open_finished_lanes", {**names, "lanes": _lanes(gone)})
            left = gone.keys() - {lane for (lane,) in closed}
            gone = {lane: gone[lane] for lane in left}
        if gone:
            self._connection.run("release_claims", {**names, "lanes": _lanes(gone)})

    def finish(self, items: Collection[int]) -> None:
        if items:
            names = {"ids": as_json(list(items))}
            if self._keep_seconds:
                self._connection.run("keep_items", names | {"at": self._clock.now()})
            else:
                self._connection.run("finish_items", names)

    def unclaim(self, items: Collection[int]) -> None:
        if items:
            self._connection.run("unclaim_heads", {"ids": as_json(list(items))})

    def expire(self, token: str, lanes: Collection[str]) -> None:
        if lanes:
            names = {**self._whose, "token": token, "lanes": as_json(list(lanes))}
            self._connection.run("expire_claims", {**names, "now": self._clock.now()})

    def peek(self, after: int, limit: int) -> list[tuple[int, RawEvent]]:
        names = {**self._whose, "after": after, "limit": limit}
        rows = self._connection.run("peek_items", names)
        events = self._connection.raw_events([row[1:] for row in rows])
        return [(row[0], event) for row, event in zip(rows, events, strict=True)]

    def count(self, applied: Sequence[RawEvent], failed: int) -> None:
        if not (applied or failed):
            return
        last = applied[-1] if applied else None
        names = {
            **self._whose,
            "slot": self._slot,
            "applied": len(applied),
            "failed": failed,
            "event_id": last.id_text if last else None,
            "event_type": last.type if last else None,
            "at": self._clock.now() if last else None,
        }
        self._connection.run("count_attempts", names)

    def heartbeat(self, worker: str, stats: RelayStats, *, ends: bool = False) -> None:
        names = {
            **self._whose,
            **asdict(stats),
            "worker": worker,
            "process": process_name(),
            "ends": ends,
        }
        with self._connection.transaction():
            self._connection.run("relay_heartbeat", names)

    def clean(self) -> None:
        now = self._clock.now()
        if self._clock.monotonic() >= self._hasten_at:
            self._hasten_at = self._clock.monotonic() + HASTEN_SECONDS
            names = {**self._whose, "lease_seconds": LEASE_SECONDS, **self._times()}
            with self._connection.transaction():
                self._connection.run("hasten_lanes", names)
        kept_until = now - timedelta(seconds=self._keep_seconds)
        done = {**self._whose, "before": kept_until, "limit": CLEANED_ITEMS}
        for _ in range(CLEANED_TIMES):
            with self._connection.transaction():
                cleaned = self._connection.run("delete_done_items", done)
            if len(cleaned) < CLEANED_ITEMS:
                break
        if self._whose["feed"] == MESSAGES:
            forgotten = {"before": now - timedelta(seconds=SENT_SECONDS), "limit": CLEANED_ITEMS}
            with self._connection.transaction():
                self._connection.run("forget_sent", forgotten)
        ended = database_time(self._connection) - timedelta(seconds=ENDED_SECONDS)
        gone = {**self._whose, "before": ended}
        with self._connection.transaction():
            self._connection.run("forget_relays", gone)

    def next_due(self, *, again: bool) -> tuple[float | None, bool]:
        ((due_at, is_busy),) = self._connection.run("next_due", {**self._whose, "again": again})
        at = moment(due_at)
        left = None if at is None else max(0.0, (at - self._clock.now()).total_seconds())
        return left, bool(is_busy)

    def _times(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"now": now, "lease_until": now + timedelta(seconds=LEASE_SECONDS)}


def database_time(connection: Connection) -> datetime:
    """The time by the database's clock, which heartbeats have."""
    found = moment(connection.run("database_time")[0][0])
    assert found is not None
    return found


def _lanes(gone: Mapping[str, int]) -> str:
    return as_json([{"lane": lane, "gone": n} for lane, n in gone.items()])
