"""Moves a projection forward, past events that it will never apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.errors import HoldfastError
from holdfast.model.definition import Definition, Outbox
from holdfast.model.start import Target
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.sql.database import Connection, Database
from holdfast.sql.outbox.registration import pass_queued
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.lane_rows import revoke_claims
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.sql.store.shard_layouts import feeds_of, known_feeds
from holdfast.sql.store.start import position_of


@dataclass(frozen=True, slots=True)
class Forward:
    """How a projection is moved forward on one feed: from where, to where, past how many events.

    All shards of a projection pass the same events.
    """

    feed: str
    position_before: int
    position: int
    events: int


def preview_journal(
    database: Database, definition: Definition, to: Target, now: datetime
) -> list[Forward]:
    """What `forward_journal` would do now."""
    with database.reading() as connection:
        feeds = known_feeds(connection, definition)
        return _plan(connection, definition, feeds, position_of(connection, "to", to, now))


def forward_journal(
    database: Database, definition: Definition, to: Target, change: ChangedBy
) -> list[Forward]:
    """Moves a projection of the journal on; events that were parked or have failed stay."""
    name = definition.name
    for attempt in operator_transactions(database):
        with attempt as connection:
            position = position_of(connection, "to", to, change.at)
            for feed in (feeds := feeds_of(connection, definition)):
                connection.run("open_checkpoint", {"projection": name, "feed": feed})
                # Locks it: no runner commits before the end.
                connection.run("bump_revision", {"projection": name, "feed": feed})
            plan = _plan(connection, definition, feeds, position)
            for moved in plan:
                whose = {"projection": name, "feed": moved.feed}
                connection.run("forward", {**whose, "position": position})
                if isinstance(definition.delivery, Outbox):
                    revoke_claims(connection, whose)
                    pass_queued(connection, whose, position)
            what = {"to": position, "events": max(moved.events for moved in plan)}
            before = {moved.feed: moved.position_before for moved in plan}
            change.write(connection, "forward", name, {"from": before, **what})
    database.announce()
    return plan


def forward_foreign(
    database: Database, definition: Definition, to: Mapping[str, int], change: ChangedBy | None
) -> list[Forward]:
    """Moves a projection on feeds that others write; without a change, only says what it would do.

    Feeds that are there already are left.
    """
    name, plan = definition.name, list[Forward]()
    if change is None:
        with database.reading() as connection:
            return _plan_foreign(connection, name, to)
    for attempt in operator_transactions(database):
        with attempt as connection:
            plan = _plan_foreign(connection, name, to)
            for moved in plan:
                whose = {"projection": name, "feed": moved.feed}
                connection.run("forward", {**whose, "position": moved.position})
                subject = {"feed": moved.feed, "from": moved.position_before, "to": moved.position}
                change.write(connection, "forward", name, subject)
    database.announce()
    return plan


def _plan(
    connection: Connection, definition: Definition, feeds: list[str], position: int
) -> list[Forward]:
    found = []
    for feed in feeds:
        whose = {"projection": definition.name, "feed": feed}
        rows = connection.run("read_checkpoint", whose)
        before = Checkpoint(*rows[0]).position if rows else 0
        between = {"after": before, "through": position}
        if not isinstance(definition.delivery, Outbox):
            ((events,),) = connection.run("count_between", between)
        else:
            # The backfill is at the checkpoint; what is behind it comes from the queue.
            _, until, *_ = connection.run("read_outbox", whose)[0]
            between["through"] = min(position, until or 0)
            ((events,),) = connection.run("count_between", between)
            events += connection.run("count_untried", {**whose, "position": position})[0][0]
            if not events:
                continue
        if before < position or isinstance(definition.delivery, Outbox):
            found.append(Forward(feed, before, position, events))
    if not found:
        raise HoldfastError(
            f"projection {definition.name!r} has nothing to pass up to position {position}; "
            "holdfast status says where it is"
        )
    return found


def _plan_foreign(connection: Connection, name: str, to: Mapping[str, int]) -> list[Forward]:
    found, at = [], ""
    for feed, position in to.items():
        rows = connection.run("read_checkpoint", {"projection": name, "feed": feed})
        if not rows:
            raise HoldfastError(f"projection {name!r} has never run on feed {feed!r}")
        before = Checkpoint(*rows[0]).position
        at = f"at position {before} of {feed}, and not before {position}"
        if before < position:
            found.append(Forward(feed, before, position, position - before))
    if not found:
        raise HoldfastError(f"projection {name!r} is {at}")
    return found
