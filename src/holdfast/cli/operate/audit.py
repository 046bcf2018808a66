"""`holdfast audit`: who has changed what, when and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.output import (
    add_row,
    json_option,
    new_table,
    one_line,
    print_json,
    stdout_console,
    utc,
)
from holdfast.runtime.store.queue_items import AuditRow

if TYPE_CHECKING:
    from rich.table import Table


@click.command()
@takes_app()
@click.option("--projection", metavar="NAME", help="Only changes to this projection.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="How many at most.",
)
@json_option
def audit(app: App, projection: str | None, limit: int, as_json: bool) -> None:
    """Show what people have changed, the latest first: who, when, what and why."""
    rows = app.audit(projection, limit=limit)
    if as_json:
        print_json({"changes": [_plain(row) for row in rows]})
    elif rows:
        stdout_console().print(_table(rows))
    else:
        click.echo("nobody has changed anything yet")


def _plain(row: AuditRow) -> dict[str, object]:
    return {**msgspec.structs.asdict(row), "subject": msgspec.json.decode(row.subject)}


def _table(rows: Sequence[AuditRow]) -> Table:
    table = new_table("when", "who", "what", "projection", "of", "why", fold=("of", "why"))
    for row in rows:
        add_row(
            table,
            utc(row.at),
            row.actor,
            row.action,
            row.projection or "",
            _subject(row.subject),
            one_line(row.note or ""),
        )
    return table


def _subject(text: str) -> str:
    """{"items":[4,5],"position":3} as people read it."""
    parts = []
    for name, value in msgspec.json.decode(text, type=dict[str, object]).items():
        inner = " ".join(map(str, value)) if isinstance(value, list) else value
        parts.append(f"{name} {inner}".rstrip())
    return ", ".join(parts)
