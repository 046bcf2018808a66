"""Positions never go back. What shows that they have: a journal that was cut, or replaced.

A checkpoint is a position. In another journal it means another event, so what was appended there
up to the checkpoint would be passed over in silence.
"""

from __future__ import annotations

from holdfast.errors import HoldfastError, SchemaError
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.sql.database import Connection

_REPLACED = "has the journal been cut, or restored from an older copy?"


def check_drawn(connection: Connection) -> None:
    """Raises SchemaError if a new row would get a number that the table has already passed.

    A restore or a logical replication can leave sequences behind.
    """
    behind = connection.run("numbers_behind")
    if not behind:
        return
    table, column, drawn, largest = behind[0]
    run = "; ".join(_set_number(table, column) for table, column, *_ in behind)
    raise SchemaError(
        f"{table}.{column} has come to {largest}, and its sequence only to {drawn}: has the "
        "database been restored in parts, or copied by a logical replication, which leaves "
        "sequences out? New events would get positions that readers have passed. Stop all that "
        f"appends, then run {run}"
    )


def check_checkpoint(connection: Connection, checkpoint: Checkpoint) -> None:
    """Raises HoldfastError if the journal has not the events that the checkpoint has passed."""
    check_end(connection, checkpoint)
    missing = connection.run("missing_last_event", {"id": checkpoint.id})
    if missing:
        projection = checkpoint.projection
        raise HoldfastError(
            f"it has come to position {checkpoint.position}, and its last event {missing[0][0]} is "
            f"not in the journal any more: {_REPLACED} What is new there would be passed over; "
            f"holdfast reset {projection} begins again. If the event was deleted on purpose: "
            "UPDATE holdfast_checkpoint SET last_event_id = NULL "
            f"WHERE projection = '{projection}'"
        )


def check_end(connection: Connection, checkpoint: Checkpoint) -> None:
    """Raises HoldfastError if the journal ends before a checkpoint."""
    head = int(connection.run("head")[0][0])
    if checkpoint.position > head:
        raise HoldfastError(
            f"it has come to position {checkpoint.position}, and feed {checkpoint.feed!r} ends "
            f"at {head}: {_REPLACED} What was appended since would be passed over; "
            f"holdfast reset {checkpoint.projection} begins again"
        )


def check_tail(connection: Connection, after: int, event_id: str | None) -> None:
    """Raises HoldfastError if a position was not given out yet, or now has another event."""
    end, found = connection.run("end_and_event", {"position": after})[0]
    if after > end and after > connection.run("last_drawn")[0][0]:
        raise HoldfastError(f"the journal ends at {end}, not after {after}: {_REPLACED}")
    if event_id is not None and found not in (None, event_id):
        raise HoldfastError(f"position {after} has another event than before: {_REPLACED}")


def _set_number(table: str, column: str) -> str:
    return (
        f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table}"
    )
