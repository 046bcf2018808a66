"""The audit: who has changed what, when and why, in the transaction of the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.model import arguments
from holdfast.runtime.store.queue_items import AuditRow
from holdfast.sql.database import Connection, Database
from holdfast.sql.values import as_json, struct_of


@dataclass(frozen=True, slots=True)
class ChangedBy:
    """Who changes something, when and why."""

    by: str
    at: datetime
    note: str | None = None

    def __post_init__(self) -> None:
        arguments.actor("by", self.by)
        arguments.text_or_none("note", self.note)

    def write(
        self, connection: Connection, action: str, projection: str, subject: Mapping[str, Any]
    ) -> None:
        """Writes the change into the audit, in the open transaction."""
        names = {"at": self.at, "actor": self.by, "note": self.note}
        what = {"action": action, "projection": projection, "subject": as_json(subject)}
        connection.run("write_audit", names | what)


def read_audit(database: Database, projection: str | None, limit: int) -> list[AuditRow]:
    """The latest changes first."""
    with database.reading() as connection:
        rows = connection.run("read_audit", {"projection": projection, "limit": limit})
    return [struct_of(AuditRow, row) for row in rows]
