"""The audit: who has changed what, when and why, in the transaction of the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.queue import AuditRow
from holdfast.sql.database import Connection, Database
from holdfast.sql.values import moment


def write_audit(
    connection: Connection,
    *,
    at: datetime,
    by: str,
    action: str,
    projection: str,
    subject: Mapping[str, Any],
    note: str | None,
) -> None:
    """Notes a change, in the open transaction."""
    connection.run(
        "write_audit",
        {
            "at": at,
            "actor": by,
            "action": action,
            "projection": projection,
            "subject": msgspec.json.encode(subject).decode(),
            "note": note,
        },
    )


def read_audit(database: Database, projection: str | None, limit: int) -> list[AuditRow]:
    """The latest changes first."""
    with database.reading() as connection:
        rows = connection.run("read_audit", {"projection": projection, "limit": limit})
    return [
        AuditRow(id_, moment(at) or datetime.min, actor, action, name, subject, note)
        for id_, at, actor, action, name, subject, note in rows
    ]
