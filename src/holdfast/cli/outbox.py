"""`holdfast outbox`: what outbox projections have to do, who does it, and in which mode."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import by_option, confirm, note_option, yes_option
from holdfast.cli.output import add_row, json_option, new_table, print_json, stdout_console
from holdfast.cli.queue.item_view import plain, table_of
from holdfast.model.definition import MODES, Mode
from holdfast.runtime.store.queue_items import STATUSES, Status
from holdfast.sql.operate.outbox import OutboxReport


@click.group()
def outbox() -> None:
    """Outbox projections: what waits, who works, and in which mode."""


@outbox.command()
@takes_app()
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    help="Show items in this status, rather than those that have failed.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many items of each projection, the oldest first.",
)
@json_option
def report(app: App, status: Status | None, limit: int, as_json: bool) -> None:
    """Show how each outbox projection stands, and its oldest items."""
    reports = app.outbox.report(status=status, limit=limit)
    if as_json:
        print_json({"outboxes": [_plain(report) for report in reports]})
    elif reports:
        _print(reports)
    else:
        click.echo("no projection is delivered by an outbox here")


@outbox.command()
@takes_app("PROJECTION", "MODE")
@by_option
@note_option
@yes_option
@json_option
def mode(
    app: App, projection: str, mode: str, by: str, note: str | None, yes: bool, as_json: bool
) -> None:
    """Change a projection's mode: live, shadow or off.

    In all processes at once; writers go on filling the queue in every mode.
    """
    if mode not in MODES:
        raise click.BadParameter(f"{mode!r} is not one of {', '.join(MODES)}.", param_hint="MODE")
    chosen: Mode = mode
    confirm(f"This makes {projection!r} on {app.url} {mode}, in all processes.", yes=yes)
    changed = app.outbox.set_mode(projection, chosen, by=by, note=note)
    if as_json:
        print_json({"projection": projection, "mode": mode, "changed": changed})
    else:
        click.echo(f"{projection} is {mode}" if changed else f"{projection} was {mode} already")


@outbox.command()
@takes_app("PROJECTION")
@by_option
@note_option
@yes_option
@json_option
def forget(app: App, projection: str, by: str, note: str | None, yes: bool, as_json: bool) -> None:
    """End outbox delivery for a projection or sink that is gone from the code.

    Nothing is queued for it any more, and what waits in its queue is deleted. Its tables stay.
    """
    if projection in app.projections:
        raise click.UsageError(
            f"{projection!r} is in the app, which would register it again; take it out of the code "
            "first."
        )
    depth = {report.projection: report.depth for report in app.outbox.report(limit=1)}
    waiting = sum(count for count in depth.get(projection, {}).values())
    confirm(f"This deletes {waiting:,} items of {projection!r} on {app.url} unapplied.", yes=yes)
    items = app.outbox.forget(projection, by=by, note=note)
    if as_json:
        print_json({"projection": projection, "items": items})
    else:
        click.echo(f"{projection} is forgotten, with {items:,} items")


def _plain(report: OutboxReport) -> dict[str, object]:
    return {
        **msgspec.structs.asdict(report),
        "relays": [msgspec.structs.asdict(relay) for relay in report.relays],
        "items": [plain(item, in_full=False) for item in report.items],
    }


def _print(reports: Sequence[OutboxReport]) -> None:
    counts = ("workers", "pending", "processing", "failed", "dead", "oldest", "applied")
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
