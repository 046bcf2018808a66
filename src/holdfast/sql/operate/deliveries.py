"""What outbox workers have done, and which of them are alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.sql.database import Connection
from holdfast.sql.process_name import is_gone, shown_name
from holdfast.sql.values import moment, struct_of, uuid

ALIVE_SECONDS = 10.0
"""Maximum age of the heartbeat of a live process."""

Names = tuple[str, str]
"""A projection and its feed."""


class RelayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A process that delivers a projection, or has done so, and the results of its attempts.

    In shadow mode it has `looked` at events for `looked_seconds`, and could not decode the
    `unreadable` ones.
    """

    process: str
    is_alive: bool
    started_at: datetime
    seen_at: datetime
    applied: int
    failed: int
    looked: int
    unreadable: int
    looked_seconds: float


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The results of all attempts at a projection's events, and the last event that was applied."""

    applied: int = 0
    failed: int = 0
    last_event_id: UUID | None = None
    last_event_type: str | None = None
    last_processed_at: datetime | None = None


def read_deliveries(connection: Connection) -> Mapping[Names, Deliveries]:
    """The results of each outbox projection, over all its processes."""
    found: dict[Names, Deliveries] = {}
    for projection, feed, applied, failed, event_id, event_type, at in connection.run("deliveries"):
        so_far = found.get((projection, feed), Deliveries())
        last_at = moment(at)
        if last_at is not None and (
            so_far.last_processed_at is None or last_at > so_far.last_processed_at
        ):
            last = uuid(event_id), event_type, last_at
            so_far = Deliveries(so_far.applied, so_far.failed, *last)
        found[projection, feed] = replace(
            so_far, applied=so_far.applied + applied, failed=so_far.failed + failed
        )
    return found


def read_relays(connection: Connection, now: datetime) -> list[tuple[Names, RelayStatus]]:
    """The processes that deliver projections, or have done so lately."""
    found = []
    for projection, feed, ended_at, process, *rest in connection.run("relays"):
        relay = struct_of(RelayStatus, (shown_name(process), False, *rest))
        is_recent = (now - relay.seen_at).total_seconds() <= ALIVE_SECONDS
        is_alive = is_recent and ended_at is None and not is_gone(process)
        found.append(((projection, feed), msgspec.structs.replace(relay, is_alive=is_alive)))
    return found
