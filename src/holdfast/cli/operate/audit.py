"""`holdfast audit`: what operators have changed, when and why."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.options import json_option, limit_option
from holdfast.cli.output import Table, one_line, print_rows, utc
from holdfast.runtime.store.queue_items import AuditRow


@click.command()
@takes_app()
@click.option("--projection", metavar="NAME", help="Only changes to this projection.")
@limit_option(100, "Maximum number of changes.")
@json_option
def audit(app: App, projection: str | None, limit: int, as_json: bool) -> None:
    """Show what operators have changed, latest first: who, when, what and why."""
    rows = app.audit(projection, limit=limit)
    changes = [_fields(row) for row in rows]
    print_rows(rows, _table, "nobody has changed anything yet", as_json, changes=changes)


def _fields(row: AuditRow) -> dict[str, object]:
    return {**msgspec.structs.asdict(row), "subject": msgspec.json.decode(row.subject)}


def _table(rows: Sequence[AuditRow]) -> Table:
    cells = (
        (
            utc(row.at),
            row.actor,
            row.action,
            row.projection or "",
            _subject(row.subject),
            one_line(row.note or ""),
        )
        for row in rows
    )
    columns = ("time", "operator", "action", "projection", "subject", "note")
    return Table(columns, cells, fold=("subject", "note"))


def _subject(text: str) -> str:
    """{"items":[4,5],"position":3} as "items 4 5, position 3"."""
    parts = []
    for name, value in msgspec.json.decode(text, type=dict[str, object]).items():
        inner = " ".join(map(str, value)) if isinstance(value, list) else value
        parts.append(f"{name} {inner}".rstrip())
    return ", ".join(parts)
