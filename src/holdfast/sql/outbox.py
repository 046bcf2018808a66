"""Outbox delivery: who is registered, and the claims of those who work.

Registering must leave no gap between what the backfill brings and what appends bring. Appends look
at the registrations in the database, in their own transaction. On PostgreSQL an append may not see
one that was committed a moment ago. So it also looks at a sequence, whose value depends on no
snapshot, and which is raised when the registration is in: an append that comes later either sees
the registration or fails, to be tried again. Those that came earlier have drawn their positions,
and the backfill goes up to the last position that was drawn. What both bring is in the queue once.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.core.claims import LEASE_SECONDS, Claim, Standing, Tally
from holdfast.core.definition import MESSAGES, Definition, Mode
from holdfast.core.errors import ConfigError, ProjectionFaulted
from holdfast.core.event import RawEvent
from holdfast.core.ports import Clock
from holdfast.core.projection import CATCH_ALL
from holdfast.core.queue import Waiting
from holdfast.sql.database import Connection, Database
from holdfast.sql.store import SqlSession, needs_reset, waiting_item
from holdfast.sql.values import moment

BACKFILL_EVENTS = 5_000
"""Positions that are put into the queue in one transaction."""

CLEANED_ITEMS = 1_000
"""Items that are deleted at once, of those that were kept for long enough."""

GONE_SECONDS = 3_600.0
"""A process that was not seen for so long is gone: what it did is counted with the rest."""


class _Rehearsed(Exception):
    def __init__(self, claims: Sequence[Claim]) -> None:
        self.claims = claims


def register(database: Database, definition: Definition) -> None:
    """Has events put into the queue for a projection, from its checkpoint on.

    For one that is registered, takes note of the event types that it handles now.
    """
    assert definition.outbox is not None
    mode = definition.outbox.mode
    whose = {"projection": definition.name, "feed": definition.feed}
    types = sorted({CATCH_ALL} if definition.catch_all else definition.handlers)
    with database.reading() as connection:
        known = connection.run("read_outbox", whose)
        same = types == [row[0] for row in connection.run("outbox_types", whose)]
    if known and same and known[0][1] is not None:
        _check_mode(definition, mode, known[0][0])
        return
    with database.writing() as connection:
        connection.run("lock_outbox")
        connection.run("open_checkpoint", whose)
        is_new = connection.run("register_outbox", {**whose, "mode": mode})
        if is_new:
            # Whoever has led it by the log is fenced, and what was parked is counted.
            connection.run("begin_relay", whose)
            connection.run("count_lanes", whose)
        if is_new and definition.outbox.start == "now":
            end = database.settled_end(connection)
            connection.run("move_backfill", {**whose, "after": 0, "through": end})
        connection.run("clear_outbox_types", whose)
        for event_type in types:
            connection.run("add_outbox_type", {**whose, "event_type": event_type})
        connection.run("count_registration")
    with database.writing() as connection:
        connection.run("lock_outbox")
        connection.run("show_outbox")
        # Messages that were sent before are nowhere.
        until = 0 if definition.feed == MESSAGES else connection.run("last_drawn")[0][0]
        connection.run("set_backfill", {**whose, "until": until})
        ((now, *_),) = connection.run("read_outbox", whose)
    _check_mode(definition, mode, now)


def _check_mode(definition: Definition, mode: Mode, now: str) -> None:
    if mode != "live" and now == "live":
        raise ConfigError(
            f"projection {definition.name!r} is live in the database, and this code says "
            f"mode={mode!r}; the two can't be at once. holdfast outbox mode {definition.name} "
            f"{mode} changes it for everybody"
        )


def first_left(database: Database, projection: str, feed: str, position: int) -> int | None:
    """The first position, up to one, whose event will still be tried; None if there is none."""
    whose = {"projection": projection, "feed": feed}
    with database.reading() as connection:
        _, until, backfilled, *_ = connection.run("read_outbox", whose)[0]
        if until is None or backfilled < min(until, position):
            return int(backfilled) + 1
        ((found,),) = connection.run("outbox_reached", whose | {"position": position})
    return None if found is None else int(found)


class SqlClaims:
    """The claims of one thread."""

    def __init__(self, session: SqlSession, definition: Definition, *, clock: Clock) -> None:
        assert definition.outbox is not None
        self.session, self._clock = session, clock
        self._database: Database = session.database
        self._whose = {"projection": definition.name, "feed": definition.feed}
        self._keep_seconds = definition.outbox.keep_seconds

    @property
    def _connection(self) -> Connection:
        return self.session.connection

    def standing(self) -> Standing:
        return self._standing("read_outbox")

    def begin(self) -> None:
        with self._connection.transaction():
            if not self._connection.run("begin_relay", self._whose):
                raise needs_reset(self._whose["projection"])

    def backfill(self) -> int:
        _, until, after, *_ = self._connection.run("read_outbox", self._whose)[0]
        if until is None or after >= until:
            return 0
        chunk = self._database.settled(self._connection, after, BACKFILL_EVENTS)
        end = self._database.settled_end(self._connection)
        through = chunk.events[-1].position if len(chunk.events) == BACKFILL_EVENTS else end
        through = min(through, until)
        if through <= after:
            return int(until - after)
        names = {**self._whose, "after": after, "through": through}
        with self._connection.transaction():
            if not self._connection.run("move_backfill", names):
                return int(until - after)  # Somebody else has moved it on.
            added = self._connection.run("backfill", names | {"at": self._clock.now()})
            lanes = Counter(lane for (lane,) in added)
            self._run_lanes(
                "add_to_lanes", [{"lane": lane, "events": n} for lane, n in lanes.items()]
            )
        return int(until - through)

    def claim(self, token: str, *, lanes: int, items: int) -> list[Claim]:
        return self._claim("claim_lanes", token, items, {"limit": lanes})

    def claim_lane(self, token: str, lane: str, *, events: int) -> list[Claim]:
        return self._claim("claim_lane", token, events, {"lane": lane, "events": events})

    def claim_head(self, token: str, lane: str) -> list[Claim]:
        return self._claim("claim_lane", token, 1, {"lane": lane, "events": None})

    def rehearse(self, *, lanes: int, items: int) -> int:
        try:
            with self._connection.transaction():
                raise _Rehearsed(self._take("claim_lanes", "rehearsal", items, {"limit": lanes}))
        except _Rehearsed as rehearsed:
            return len(rehearsed.claims)

    def _claim(
        self, statement: str, token: str, items: int, which: Mapping[str, Any]
    ) -> list[Claim]:
        with self._connection.transaction():
            if not self._standing("outbox_gate").is_open:
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
        names = {**self._whose, "lanes": _json(claimed), "limit": items}
        found: dict[str, list[Waiting]] = {}
        for lane, *row in self._connection.run("claimed_items", names):
            found.setdefault(lane, []).append(waiting_item(self._database, tuple(row)))
        heads = [waiting[0].id for waiting in found.values()]
        self._connection.run("claim_heads", {**leased, "ids": _json(heads), "worker": token})
        # A lane in which nothing waits, which should not be, is given back.
        empty = set(claimed) - found.keys()
        if empty:
            self.settle(token, dict.fromkeys(empty, 0))
        return [
            Claim(lane, waiting, waiting[0].status == "processing")
            for lane, waiting in found.items()
        ]

    def waiting(self, lane: str) -> int:
        return int(self._connection.run("lane_count", {**self._whose, "lane": lane})[0][0])

    def renew(self, tokens: Collection[str]) -> None:
        names = {"lease_seconds": LEASE_SECONDS, "tokens": _json(list(tokens))}
        with self._connection.transaction():
            self._connection.run("renew_claims", names | self._times())

    def hold(self, token: str, lanes: Collection[str], *, wait: bool) -> set[str]:
        names = {**self._whose, "token": token, "lanes": _json(list(lanes))}
        rows = self._connection.run("hold_claims" if wait else "hold_free_claims", names)
        return {lane for (lane,) in rows}

    def settle(self, token: str, gone: Mapping[str, int]) -> None:
        names = {**self._whose, "token": token, "now": self._clock.now()}
        if any(gone.values()):
            closed = self._connection.run("close_claims", {**names, "lanes": _lanes(gone)})
            left = gone.keys() - {lane for (lane,) in closed}
            gone = {lane: gone[lane] for lane in left}
        if gone:
            self._connection.run("settle_claims", {**names, "lanes": _lanes(gone)})

    def finish(self, items: Collection[int]) -> None:
        if items:
            names = {"ids": _json(list(items))}
            if self._keep_seconds:
                self._connection.run("keep_items", names | {"at": self._clock.now()})
            else:
                self._connection.run("finish_items", names)

    def unclaim(self, items: Collection[int]) -> None:
        if items:
            self._connection.run("unclaim_heads", {"ids": _json(list(items))})

    def look(self, after: int, limit: int) -> list[tuple[int, RawEvent]]:
        names = {**self._whose, "after": after, "limit": limit}
        rows = self._connection.run("look_at_items", names)
        events = self._database.raw_events([row[1:] for row in rows])
        return [(row[0], event) for row, event in zip(rows, events, strict=True)]

    def seen(self, worker: str, tally: Tally) -> None:
        names = {
            **self._whose,
            **asdict(tally),
            "worker": worker,
            "process": f"{socket.gethostname()}:{os.getpid()}",
            "at": self._clock.now(),
        }
        with self._connection.transaction():
            self._connection.run("see_relay", names)

    def clean(self) -> None:
        now = self._clock.now()
        kept_until = now - timedelta(seconds=self._keep_seconds)
        names = {**self._whose, "before": kept_until, "limit": CLEANED_ITEMS}
        gone = {**self._whose, "before": now - timedelta(seconds=GONE_SECONDS)}
        with self._connection.transaction():
            self._connection.run("clean_items", names)
            if self._connection.run("gone_relays", gone):
                self._connection.run("count_gone_relays", gone)
                self._connection.run("forget_relays", gone)

    def next_due(self) -> tuple[float | None, bool]:
        rows = self._connection.run("next_due", self._whose)
        at = moment(rows[0][0]) if rows else None
        if at is None:
            return None, False
        return max(0.0, (at - self._clock.now()).total_seconds()), bool(rows[0][1])

    def _standing(self, statement: str) -> Standing:
        rows = self._connection.run(statement, self._whose)
        if not rows:
            raise ProjectionFaulted(
                f"projection {self._whose['projection']!r} is no longer registered for outbox "
                "delivery on this database; restart this process to register it again"
            )
        mode, until, position, paused_by, must_be_reset = rows[0]
        left = 1 if until is None or must_be_reset else max(0, until - position)
        return Standing(mode, paused_by, left)

    def _times(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"now": now, "lease_until": now + timedelta(seconds=LEASE_SECONDS)}

    def _run_lanes(self, name: str, lanes: Sequence[Mapping[str, Any]]) -> None:
        if lanes:
            names = {**self._whose, "lanes": _json(lanes), "now": self._clock.now()}
            self._connection.run(name, names)


def _lanes(gone: Mapping[str, int]) -> str:
    return _json([{"lane": lane, "gone": n} for lane, n in gone.items()])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
