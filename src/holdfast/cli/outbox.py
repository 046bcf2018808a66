"""`holdfast outbox`: the queues, relays and modes of outbox projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import confirm
from holdfast.cli.options import confirmed_change_options, json_option, limit_option
from holdfast.cli.output import Table, print_result, print_rows, shown
from holdfast.cli.queue.item_view import item_fields, items_table
from holdfast.cli.queue.selection import status_option
from holdfast.model.definition import MODES, Mode
from holdfast.runtime.store.queue_items import Status
from holdfast.sql.operate.outbox import OutboxReport

if TYPE_CHECKING:
    from rich.console import Group, RenderableType


@click.group()
def outbox() -> None:
    """Show and change how outbox projections are delivered."""


@outbox.command()
@takes_app()
@status_option("Show items in this status, instead of those that have failed")
@limit_option(10, "Maximum number of items for each projection, the oldest first.")
@json_option
def report(app: App, status: Status | None, limit: int, as_json: bool) -> None:
    """Show the queue and the relays of each outbox projection."""
    reports = app.outbox.report(status=status, limit=limit)
    outboxes = [_fields(report) for report in reports]
    empty = "no projection is delivered by an outbox here"
    print_rows(reports, _view, empty, as_json, outboxes=outboxes)


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
    """End outbox delivery for a projection or sink that the code no longer delivers so.

    Appends queue nothing for it any more, and the items in its queue are deleted, unapplied. Its
    tables stay. A projection that the code delivers by the log goes on with the next event.
    """
    if projection in app.projections and app.delivery_of(projection) == "outbox":
        raise click.UsageError(
            f"{projection!r} is in the app, which would register it again; take it out of the code "
            "first, or deliver it by the log."
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


def _view(reports: Sequence[OutboxReport]) -> Group:
    from rich.console import Group
    from rich.text import Text

    # What is tried is one column: on a terminal of 80 there is no room for two.
    tried = ("processing", "retrying")
    items = ("pending", "tried", "failed", "dead")
    numbers = ("workers", *items, "lag", "stuck", "applied", "failures")
    rows = (
        (
            report.projection,
            report.mode,
            f"{sum(relay.is_alive for relay in report.relays)}",
            f"{report.depth['pending']:,}",
            f"{sum(report.depth[status] for status in tried):,}",
            f"{report.depth['failed']:,}",
            f"{report.depth['dead']:,}",
            f"{report.lag_seconds:,.0f} s",
            f"{report.stuck_events:,}",
            f"{report.applied:,}",
            f"{report.failed:,}",
        )
        for report in reports
    )
    below: list[RenderableType] = []
    for report in reports:
        if report.backfill_left:
            left = f"{report.backfill_left:,} events are to be backfilled"
            below.append(Text(shown(f"{report.projection}: {left}")))
        if report.items:
            below.append(items_table(report.items))
    return Group(Table(("projection", "mode", *numbers), rows, right=numbers), *below)
