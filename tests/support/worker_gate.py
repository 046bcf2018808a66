"""PostgreSQL held or slowed inside the COMMIT of a checkpoint, where a kill hurts most."""

from typing import Any

import psycopg


def at_commit(url: str, call: str) -> None:
    """Makes the server call this inside every COMMIT that moves a checkpoint on."""
    with psycopg.connect(url) as connection:
        connection.execute(
            f"""
            CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM {call}; RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON holdfast_checkpoint
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                WHEN (old.position <> new.position) EXECUTE FUNCTION at_commit()
            """.encode()
        )


def waiting_for_lock(connection: psycopg.Connection[tuple[Any, ...]]) -> list[int]:
    """The connections to this database that wait for a lock."""
    rows = connection.execute(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return [pid for (pid,) in rows]
