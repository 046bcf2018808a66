"""`holdfast outbox`: the queues, relays and modes of outbox projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import confirm
from holdfast.cli.options import confirmed_change_options, json_option, limit_option
from holdfast.cli.output import add_row, new_table, print_json, print_result, stdout_console
from holdfast.cli.queue.item_view import item_fields, table_of
from holdfast.cli.queue.selection import status_option
from holdfast.model.definition import MODES, Mode
from holdfast.runtime.store.queue_items import Status
from holdfast.sql.operate.outbox import OutboxReport


@click.group()
def outbox() -> None:
    """Show and change how outbox projections are delivered."""


@outbox.command()
@takes_app()
@status_option("Show items in this status, instead of those that have failed")
@limit_option(10, "Maximum of items for each projection, the oldest first.")
@json_option
def report(app: App, status: Status | None, limit: int, as_json: bool) -> None:
    """Show the queue and the relays of each outbox projection."""
    reports = app.outbox.report(status=status, limit=limit)
    if as_json:
        print_json({"outboxes": [_fields(report) for report in reports]})
    elif reports:
        _print(reports)
    else:
        click.echo("no projection is delivered by an outbox here")


@outbox.command()
@takes_app("PROJECTION", "MODE")
@confirmed_change_options
def mode(app: App, projection: str, mode: str, yes: bool, as_json: bool, **audit: Any) -> None:
    """Change a projection's mode: live, shadow or off.

    The change takes effect in all processes at once. Appends fill the queue in every mode.
    """
    if mode not in MODES:
        raise click.BadParameter(f"{mode!r} is not one of {', '.join(MODES)}.", param_hint="MODE")
    chosen: Mode = mode
    confirm(f"This makes {projection!r} on {app.url} {mode}, in all processes.", yes=yes)
    changed = app.outbox.set_mode(projection, chosen, **audit)
    text = f"{projection} is {mode}" if changed else f"{projection} was {mode} already"
    print_result(text, as_json, projection=projection, mode=mode, changed=changed)


@outbox.command()
@takes_app("PROJECTION")
@confirmed_change_options
def forget(app: App, projection: str, yes: bool, as_json: bool, **audit: Any) -> None:
    """End delivery for a projection or sink that the code no longer has.

    Appends queue nothing for it any more, and the items in its queue are deleted, unapplied. Its
    tables stay.
    """
    if projection in app.projections:
        raise click.UsageError(
            f"{projection!r} is in the app, which would register it again; take it out of the code "
            "first."
        )
    depth = {report.projection: report.depth for report in app.outbox.report(limit=1)}
    waiting = sum(depth.get(projection, {}).values())
    confirm(f"This deletes {waiting:,} items of {projection!r} on {app.url} unapplied.", yes=yes)
    items = app.outbox.forget(projection, **audit)
    text = f"{projection} is forgotten, with {items:,} items"
    print_result(text, as_json, projection=projection, items=items)


def _fields(report: OutboxReport) -> dict[str, object]:
    return {
        **msgspec.structs.asdict(report),
        "relays": [msgspec.structs.asdict(relay) for relay in report.relays],
        "items": [item_fields(item) for item in report.items],
    }


def _print(reports: Sequence[OutboxReport]) -> None:
    counts = ("relays", "pending", "processing", "failed", "dead", "oldest", "applied")
    table = new_table("projection", "mode", *counts, right=counts)
    for report in reports:
        depth = report.depth
        add_row(
            table,
            report.projection,
            report.mode,
            f"{sum(relay.is_alive for relay in report.relays)}",
            f"{depth['pending']:,}",
            f"{depth['processing']:,}",
            f"{depth['failed']:,}",
            f"{depth['dead']:,}",
            f"{report.oldest_pending_seconds:,.0f} s",
            f"{report.applied:,}",
        )
    console = stdout_console()
    console.print(table)
    for report in reports:
        if report.backfill_left:
            click.echo(f"{report.projection}: {report.backfill_left:,} events are to be backfilled")
        if report.items:
            console.print(table_of(report.items))
