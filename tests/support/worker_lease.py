"""Takes leases away as an accident would: the epoch stays as it is, and nobody is told."""

from pathlib import Path

import psycopg


def lose_leases(url: str) -> int:
    """Ends the connections, or removes the files, that hold leases; returns how many there were."""
    if url.startswith("sqlite:///"):
        database = Path(url.removeprefix("sqlite:///"))
        files = list(database.parent.glob(f"{database.name}-lease-*"))
        for file in files:
            file.unlink()
        return len(files)
    with psycopg.connect(url, autocommit=True) as operator:
        ended = operator.execute(
            "SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM pg_locks"
            " WHERE locktype = 'advisory' AND classid = 'holdfast_checkpoint'::regclass::oid"
            " AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders"
        )
        return len(ended.fetchall())
