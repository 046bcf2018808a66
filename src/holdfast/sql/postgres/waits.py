"""Who waits for whom on the server, as errors tell it."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import errors

from holdfast.errors import StoreUnavailable
from holdfast.sql.database import Connection, Row


def was_cancelled(error: StoreUnavailable) -> bool:
    """Whether a statement was ended because it took too long."""
    return isinstance(error.__cause__, errors.LockNotAvailable | errors.QueryCanceled)


def stream_holder(connection: Connection, stream: str) -> str | None:
    """The session that appends to a stream wait for, if one can be found."""
    rows = connection.run("stream_holder", {"stream": stream})
    return _described(rows[0]) if rows else None


def waits_of(connection: Connection, pids: Sequence[int]) -> str:
    """What sessions wait for, as a clause."""
    rows = connection.run("sessions_in_the_way", {"pids": list(pids)})
    return ", ".join(f"{count} wait for {_described(row)}" for count, *row in rows)


def _described(row: Row | Sequence[object]) -> str:
    pid, user, application, state, seconds = row
    known = [
        f"user {user}" if user else "",
        str(application or ""),
        f"{state} for {seconds:.0f} s" if state and seconds is not None else "",
    ]
    details = ", ".join(detail for detail in known if detail)
    return f"process {pid} of the database server" + (f" ({details})" if details else "")
