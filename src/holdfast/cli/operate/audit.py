"""`holdfast audit`: who has changed what, when and why."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.operate.status import wide_console
from holdfast.cli.output import json_option, one_line, print_json, shown
from holdfast.runtime.store.queue_items import AuditRow


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
        _print(rows)
    else:
        click.echo("nobody has changed anything yet")


def _plain(row: AuditRow) -> dict[str, object]:
    return {**msgspec.structs.asdict(row), "subject": msgspec.json.decode(row.subject)}


def _print(rows: Sequence[AuditRow]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("when", "who", "what", "projection"):
        table.add_column(title, no_wrap=True)
    table.add_column("of", overflow="fold")
    table.add_column("why", overflow="fold")
    for row in rows:
        table.add_row(
            Text(f"{row.at:%Y-%m-%d %H:%M:%S} UTC"),
            Text(shown(row.actor)),
            Text(shown(row.action)),
            Text(shown(row.projection or "")),
            Text(_subject(row.subject)),
            Text(one_line(row.note or "")),
        )
    wide_console().print(table)


def _subject(text: str) -> str:
    """{"items":[4,5],"position":3} as people read it."""
    parts = []
    for name, value in msgspec.json.decode(text, type=dict[str, object]).items():
        inner = " ".join(map(str, value)) if isinstance(value, list) else value
        parts.append(f"{name} {inner}".rstrip())
    return shown(", ".join(parts))
