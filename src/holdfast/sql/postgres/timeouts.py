"""The settings of a connection, and the limits of time that a role may have.

A runner has no limits: a long batch would look like a bad event, and a lease would end with an idle
connection. Appends and reads keep those of the role. Without one they would wait for ever behind a
transaction that hangs, so they wait for a lock for ten seconds at most.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from holdfast.errors import ConfigError

OLDEST_SERVER = 140_000

LOCK_SECONDS = 10
"""Maximum of waiting for a lock, for appends and reads whose role has no lock_timeout."""

_LIMITS = (
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
)

_WAITING = f"""
    SELECT pg_catalog.set_config('lock_timeout'::text, '{LOCK_SECONDS}s'::text, false)
    WHERE pg_catalog.current_setting('lock_timeout'::text) = '0'
"""

Raw = psycopg.Connection[Any]


def configure(raw: Raw, *, is_limited: bool) -> None:
    """Sets up a new connection; `is_limited`: with the limits of its role."""
    if raw.info.server_version < OLDEST_SERVER:
        raise ConfigError(
            f"PostgreSQL {raw.info.server_version // 10_000} is too old; "
            f"{OLDEST_SERVER // 10_000} or later is needed"
        )
    # Datetimes come back as UTC on every database. The append function needs a fresh snapshot for
    # each of its statements.
    raw.execute(
        "SET TIME ZONE 'UTC'; SET default_transaction_isolation = 'read committed'; "
        + (_WAITING if is_limited else unlimited(raw, "SESSION"))
    )
    # Otherwise a killed worker's statement runs on, with its rows locked against the next worker.
    # Not every platform's server supports it.
    with suppress(psycopg.errors.InvalidParameterValue):
        raw.execute("SET client_connection_check_interval = '1s'")


def unlimited(raw: Raw, scope: str, *, lock_seconds: float = 0.0) -> str:
    """The statements that lift all limits, for the SESSION or for the transaction (LOCAL)."""
    limits = [*_LIMITS, *(["transaction_timeout"] if raw.info.server_version >= 170_000 else [])]
    lifted = "; ".join(f"SET {scope} {name} = 0" for name in limits)
    return f"SET {scope} lock_timeout = {int(lock_seconds * 1000):d}; {lifted}"
