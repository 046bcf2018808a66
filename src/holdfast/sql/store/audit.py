"""The audit: who has changed what, when and why, in the transaction of the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.runtime.store.queue_items import AuditRow
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


@dataclass(frozen=True, slots=True)
class ChangedBy:
    """Who changes something, when and why."""

    by: str
    at: datetime
    note: str | None = None

    def write(
        self, connection: Connection, action: str, projection: str, subject: dict[str, Any]
    ) -> None:
        """Notes the change in the audit, in the open transaction."""
        write_audit(
            connection,
            at=self.at,
            by=self.by,
            action=action,
            projection=projection,
            subject=subject,
            note=self.note,
        )


def read_audit(database: Database, projection: str | None, limit: int) -> list[AuditRow]:
    """The latest changes first."""
    with database.reading() as connection:
        rows = connection.run("read_audit", {"projection": projection, "limit": limit})
    return [
        AuditRow(id_, moment(at) or datetime.min, actor, action, name, subject, note)
        for id_, at, actor, action, name, subject, note in rows
    ]
