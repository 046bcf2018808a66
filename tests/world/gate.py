"""PostgreSQL and leases, as an accident or an operator would change them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.support.postgres import wait_until
from tests.support.sql import execute

LEASES = (
    "SELECT DISTINCT pid FROM pg_locks"
    " WHERE locktype = 'advisory' AND classid = 'holdfast_checkpoint'::regclass::oid"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def at_commit(url: str, call: str) -> None:
    """Makes the server call this inside every COMMIT that moves a checkpoint on."""
    _add_trigger(
        url,
        call,
        "UPDATE ON holdfast_checkpoint",
        when="WHEN (old.position <> new.position)",
    )


def slow_lanes(url: str) -> None:
    """Holds every transaction that closes, changes or opens a lane for a while in its COMMIT."""
    _add_trigger(url, "pg_sleep(0.005)", "INSERT OR UPDATE OR DELETE ON holdfast_lane")


def _add_trigger(url: str, call: str, event: str, *, when: str = "") -> None:
    execute(
        url,
        f"""
        CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM {call}; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER at_commit AFTER {event}
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW {when} EXECUTE FUNCTION at_commit()
        """,
    )


def waiting_for_lock(connection: psycopg.Connection[tuple[Any, ...]]) -> list[int]:
    """The connections to this database that wait for a lock."""
    rows = connection.execute(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return [pid for (pid,) in rows]


def lose_leases(url: str) -> int:
    """Ends the connections, or removes the files, that hold leases; returns how many there were.

    The epoch stays as it is, and nobody is told.
    """
    if url.startswith("sqlite:///"):
        database = Path(url.removeprefix("sqlite:///"))
        files = list(database.parent.glob(f"{database.name}-lease-*"))
        for file in files:
            file.unlink()
        return len(files)
    return len(execute(url, f"SELECT pg_terminate_backend(pid) FROM ({LEASES}) AS holders"))


def take_lease(url: str, take: Callable[[], object] | None = None) -> None:
    """Takes the lease from its holder, as an accident would, or as `take` does.

    Returns when it is free: PostgreSQL ends a connection in its own time.
    """
    (take or (lambda: lose_leases(url)))()
    if url.startswith("postgresql"):
        wait_until(lambda: not execute(url, LEASES), 30, "the lease to be free")
